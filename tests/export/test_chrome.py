import gzip
import json

import pytest
from tests.making import HOSTILE, collective, copy, kernel, make_run

from alltrace.export.chrome import export_chrome
from alltrace.export.perfetto import export_perfetto
from alltrace.export.selection import select

CALL = {"name": "cudaLaunchKernel", "kind": "runtime"}


def exported(run, path, **options):
    files, slices, _ = export_chrome(select(run), path, aligned=run.aligned(), **options)
    raw = [gzip.decompress(f.read_bytes()) if f.name.endswith(".gz") else f.read_bytes() for f in files]
    return [json.loads(r) for r in raw], slices


def of_phase(events, phase):
    return [e for e in events if e["ph"] == phase]


def test_slices_have_nanoseconds_names_and_sizes(tmp_path):
    rows = {
        "api": [{"start": 1000, "end": 1500, "correlation": 1, **CALL}],
        "kernels": [kernel(2001, 5_000_000_003, correlation=1)],
        "copies": [copy(1003, 2000, bytes=2**33)],
        "marks": [{"time": 1002, "name": "here"}],
        "gpu_metrics": [
            {"time": 1100, "metric": "SM", "value": 12.5},
            {"time": 1200, "metric": "SM", "value": float("nan")},
        ],
    }
    [trace], slices = exported(make_run(tmp_path / "run", {3: rows}), tmp_path / "t.json.gz")
    assert slices == 3
    assert trace["displayTimeUnit"] == "ns"
    events = trace["traceEvents"]
    work = {"context": 1, "device": 0}
    assert of_phase(events, "X") == [
        {
            "ph": "X", "pid": 4003, "tid": 1, "ts": 0, "dur": 0.5, "name": "cudaLaunchKernel", "cat": "cuda_runtime",
            "args": {"correlation": 1},
        },
        {
            "ph": "X", "pid": 4003, "tid": 4, "ts": 0.003, "dur": 0.997, "name": "memcpy HtoD", "cat": "gpu_memcpy",
            "args": {"bytes": 2**33, **work, "stream": 30},
        },
        {
            "ph": "X", "pid": 4003, "tid": 3, "ts": 1.001, "dur": 4999998.002, "name": "gemm_kernel", "cat": "kernel",
            "args": {"correlation": 1, "full name": "void gemm_kernel(int)", **work, "stream": 7},
        },
    ]  # fmt: skip
    mark = {"ph": "i", "s": "t", "pid": 4003, "tid": 2, "ts": 0.002, "name": "here", "cat": "user_annotation"}
    assert of_phase(events, "i") == [mark]
    assert of_phase(events, "C") == [{"ph": "C", "pid": 4003, "ts": 0.1, "name": "GPU0 SM", "args": {"value": 12.5}}]
    about = {"pid": 4003, "name": "launch", "cat": "launch", "id": "3.0"}
    assert of_phase(events, "s") == [{"ph": "s", "tid": 1, "ts": 0, **about}]
    assert of_phase(events, "f") == [{"ph": "f", "tid": 3, "ts": 1.001, "bp": "e", **about}]
    named = {e["tid"]: e["args"]["name"] for e in of_phase(events, "M") if e["name"] == "thread_name"}
    assert named == {1: "main CUDA API", 2: "main ranges", 3: "GPU0 stream 7", 4: "GPU0 stream 30 copies"}
    times = [e["ts"] for e in events if "ts" in e]
    assert times == sorted(times)


def test_arrows_join_collectives_and_hostile_names_come_back(tmp_path):
    ranks = {
        r: {"kernels": [collective(10_000 * n + 1_000 * r, 10_000 * n + 6_000) for n in range(1, 7)]} for r in range(3)
    }
    run = make_run(tmp_path / "run", ranks)
    assert len(run.aligned().members) == 18
    [trace], _ = exported(run, tmp_path / "t.json")
    arrows = [e for e in trace["traceEvents"] if e.get("cat") == "collective"]
    assert [(e["ph"], e["pid"]) for e in arrows] == [("s", 4000), ("t", 4001), ("f", 4002)] * 6
    assert len({e["id"] for e in arrows}) == 6
    for e in arrows:  # each lies on a slice
        assert any(
            s["pid"] == e["pid"] and s["tid"] == e["tid"] and s["ts"] == e["ts"]
            for s in of_phase(trace["traceEvents"], "X")
        )
    rows = {"ranges": [{"start": i, "end": i + 1, "name": n, "kind": "pushpop"} for i, n in enumerate(HOSTILE)]}
    [trace], _ = exported(make_run(tmp_path / "2" / "run", {0: rows}), tmp_path / "2" / "t.json")
    assert [e["name"] for e in of_phase(trace["traceEvents"], "X")] == list(HOSTILE)


def test_gpus_that_share_an_ordinal_have_counters_of_their_own(tmp_path):
    devices = [{"device": d, "ordinal": 0, "uuid": f"GPU-{d}"} for d in (0, 1)]
    samples = [{"time": t, "device": d, "metric": "SM", "value": 10.0 * d} for t in (1, 2) for d in (0, 1)]
    rows = {"devices": devices, "gpu_metrics": samples, "kernels": [kernel(0, 5, device=1)]}
    [trace], _ = exported(make_run(tmp_path / "run", {0: rows}), tmp_path / "t.json")
    found = {(e["name"], e["args"]["value"]) for e in of_phase(trace["traceEvents"], "C")}
    assert found == {("GPU0 (GPU-0) SM", 0), ("GPU0 (GPU-1) SM", 10)}
    named = {e["args"]["name"] for e in of_phase(trace["traceEvents"], "M") if e["name"] == "thread_name"}
    assert named == {"GPU0 (GPU-1) stream 7"}


@pytest.mark.parametrize("ranks", [{}, {0: {}}])
def test_an_empty_run_is_a_trace_without_events(tmp_path, ranks):
    [trace], slices = exported(make_run(tmp_path / "run", ranks), tmp_path / "t.json")
    assert slices == 0
    assert of_phase(trace["traceEvents"], "X") == []


def test_files_of_a_greatest_size_hold_all_events_once(tmp_path, monkeypatch):
    monkeypatch.setattr("alltrace.run.sorted_runs._MERGED_RECORDS", 50)
    monkeypatch.setattr("alltrace.run.sorted_runs._LEAST_RECORDS", 50)
    monkeypatch.setattr("alltrace.export.sorted_records._HELD_BYTES", 1000)
    run = make_run(tmp_path / "run", {0: {"kernels": [kernel(i, i + 1) for i in range(500)]}})
    parts, slices = exported(run, tmp_path / "t.json.gz", most_bytes=10_000)
    assert slices == 500
    assert len(parts) > 3
    assert (tmp_path / "t-2.json.gz").is_file()
    times = [e["ts"] for p in parts for e in of_phase(p["traceEvents"], "X")]
    assert times == [i / 1000 for i in range(500)]
    assert {len(of_phase(p["traceEvents"], "M")) for p in parts} == {5}


@pytest.mark.parametrize("write", [export_chrome, export_perfetto])
@pytest.mark.parametrize("most", [1, 3000, 20_000])
def test_no_file_is_larger_than_asked_for_however_few_records_there_are(tmp_path, write, most):
    run = make_run(tmp_path / "run", {0: {"kernels": [kernel(i, i + 1) for i in range(500)]}})
    whole, *_ = write(select(run), tmp_path / "whole")
    files, slices, _ = write(select(run), tmp_path / "t", most_bytes=most)
    sizes = [f.stat().st_size for f in files]
    assert slices == 500
    if most == 1:  # a record is never cut
        assert len(files) >= 500
    else:
        assert max(sizes) <= most
        assert min(sizes[:-1]) > 0.8 * most
    assert sum(sizes) >= whole[0].stat().st_size


def test_ranges_without_an_end_and_the_role_of_a_rank(tmp_path):
    rows = {
        "kernels": [kernel(0, None, "damaged"), kernel(9000, 10_000, "whole")],
        "api": [{"start": 1000, "end": None, **CALL}],
        "ranges": [{"start": 2000, "end": None, "name": "open", "kind": "pushpop"}],
    }
    [trace], _ = exported(make_run(tmp_path / "run", {0: rows}), tmp_path / "t.json")
    found = {e["name"]: (e["ts"], e["dur"]) for e in of_phase(trace["traceEvents"], "X")}
    assert found == {"damaged": (0, 0), "cudaLaunchKernel": (1, 0), "open": (2, 8), "whole": (9, 1)}
    run = make_run(tmp_path / "2" / "run", {0: {"kernels": [kernel(0, 10)]}}, roles={0: "trainer"})
    (file,), *_ = export_chrome(select(run), tmp_path / "2" / "out.json", aligned=run.aligned())
    assert '"name":"rank 0 trainer (host0)"' in file.read_text()
