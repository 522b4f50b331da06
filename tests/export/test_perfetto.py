import gzip
import json
import os
import tarfile
from collections import defaultdict

import numpy as np
import pytest
from tests.making import HOSTILE, collective, copy, kernel, make_run
from tests.viewer_traces import names_of, slices_of

from alltrace.export.perfetto import export_by_host, export_perfetto
from alltrace.export.perfetto_messages import field, varint
from alltrace.export.selection import select
from alltrace.trace.errors import UsageError

trace_pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2", exc_type=ImportError)
INSTANT, COUNTER = 3, 4
CALL = {"name": "cudaLaunchKernel", "kind": "runtime"}


def exported(run, path, **options):
    files, slices, _ = export_perfetto(select(run), path, aligned=run.aligned(), **options)
    traces = []
    for file in files:
        data = file.read_bytes()
        trace = trace_pb2.Trace()
        trace.ParseFromString(gzip.decompress(data) if file.name.endswith(".gz") else data)
        traces.append(trace)
    return traces, slices


def test_slices_flows_marks_and_counters_parse_back(tmp_path):
    rows = {
        "api": [
            {"start": 1000, "end": 1500, "correlation": 1, **CALL},
            {"start": 1600, "end": 1700, "correlation": 2, **CALL},
        ],
        "kernels": [kernel(2001, 5_000_000_003, correlation=1)],
        "copies": [copy(1003, 2000)],
        "marks": [{"time": 1002, "name": "here"}],
        "gpu_metrics": [{"time": 1100, "metric": "SM", "value": 12.5}, {"time": 1200, "metric": "SM", "value": -0.25}],
    }
    [trace], count = exported(make_run(tmp_path / "run", {3: rows}), tmp_path / "t.pftrace")
    flow = 4 << 40
    assert count == 4
    assert sorted(slices_of(trace)) == [
        ("rank 3 (host0)/GPU0 stream 30 copies", 3, 1000, "memcpy HtoD", ()),
        ("rank 3 (host0)/GPU0 stream 7", 1001, 4_999_999_003, "gemm_kernel", (flow,)),
        ("rank 3 (host0)/main/CUDA API", 0, 500, "cudaLaunchKernel", (flow,)),
        ("rank 3 (host0)/main/CUDA API", 600, 700, "cudaLaunchKernel", ()),
    ]
    events = [(p.timestamp, p.track_event) for p in trace.packet if p.HasField("track_event")]
    assert [(t, e.name) for t, e in events if e.type == INSTANT] == [(2, "here")]
    counted = [(t, e) for t, e in events if e.type == COUNTER]
    assert [(t, e.double_counter_value) for t, e in counted] == [(100, 12.5), (200, -0.25)]
    assert names_of(trace)[counted[0][1].track_uuid][1] == "GPU0 SM"
    assert {p.trusted_packet_sequence_id for p in trace.packet} == {1}


def test_counters_of_shared_ordinals_and_flows_of_collectives(tmp_path):
    devices = [{"device": d, "ordinal": 0, "uuid": f"GPU-{d}"} for d in (0, 1)]
    samples = [{"time": t, "device": d, "metric": "SM", "value": 10.0 * d} for t in (1, 2) for d in (0, 1)]
    rows = {"devices": devices, "gpu_metrics": samples, "kernels": [kernel(0, 5, device=1)]}
    [trace], _ = exported(make_run(tmp_path / "run", {0: rows}), tmp_path / "t.pftrace")
    counted = [p.track_event for p in trace.packet if p.HasField("track_event") and p.track_event.type == COUNTER]
    names = names_of(trace)
    found = {(names[e.track_uuid][1], e.double_counter_value) for e in counted}
    assert found == {("GPU0 (GPU-0) SM", 0), ("GPU0 (GPU-1) SM", 10)}
    ranks = {
        r: {"kernels": [collective(10_000 * n + 1_000 * r, 10_000 * n + 6_000) for n in range(1, 7)]} for r in range(3)
    }
    [trace], _ = exported(make_run(tmp_path / "2" / "run", ranks), tmp_path / "2" / "t.pftrace")
    members = defaultdict(list)
    for track, start, *_, flows in slices_of(trace):
        assert len(flows) == 1
        members[flows[0]].append((track[:6], start))
    assert sorted(members.values()) == [
        [("rank 0", 10_000 * n), ("rank 1", 10_000 * n + 1_000), ("rank 2", 10_000 * n + 2_000)] for n in range(6)
    ]


def test_nesting_hostile_names_and_many_slices(tmp_path):
    rows = {"ranges": [{"start": i, "end": 100 - i, "name": n, "kind": "pushpop"} for i, n in enumerate(HOSTILE)]}
    rows["ranges"] += [{"start": 100, "end": 100, "name": "now", "kind": "pushpop"}]
    rows["ranges"] += [{"start": 100, "end": 200, "name": n, "kind": "pushpop"} for n in ("outer",)]
    rows["ranges"] += [{"start": 100, "end": 150, "name": "inner", "kind": "pushpop"}]
    [trace], _ = exported(make_run(tmp_path / "run", {0: rows}), tmp_path / "t.pftrace.gz")
    expected = [(i, 100 - i, n) for i, n in enumerate(HOSTILE)] + [
        (100, 100, "now"),
        (100, 200, "outer"),
        (100, 150, "inner"),
    ]
    assert sorted((s, e, n) for _, s, e, n, _ in slices_of(trace)) == sorted(expected)
    rng = np.random.default_rng(0)
    starts = np.cumsum(rng.integers(1, 10**9, 3000)).tolist()
    kernels = [kernel(s, s + 1, f"k{i % 7}()", correlation=i + 1) for i, s in enumerate(starts)]
    calls = [{"start": s - 1, "end": s, "correlation": i + 1, **CALL} for i, s in enumerate(starts)]
    run = make_run(tmp_path / "2" / "run", {r: {"kernels": kernels, "api": calls} for r in (0, 9)})
    [trace], count = exported(run, tmp_path / "2" / "t.pftrace")
    whole = slices_of(trace)
    assert count == len(whole) == 12_000
    ends = defaultdict(int)
    for *_, flows in whole:
        ends[flows] += 1
    assert set(ends.values()) == {2}
    assert len(ends) == 6000


@pytest.mark.parametrize("ranks", [{}, {0: {}}])
def test_an_empty_run(tmp_path, ranks):
    [trace], count = exported(make_run(tmp_path / "run", ranks), tmp_path / "t.pftrace")
    assert (count, len(trace.packet)) == (0, len(ranks))


def test_an_archive_has_a_trace_for_each_host_and_a_manifest(tmp_path):
    hosts = {0: "node 1/..", 1: "node 1/..", 2: "b\n", 5: "c"}
    ranks = {r: {"kernels": [kernel(1000 + r, 2000)]} for r in hosts}
    run = make_run(tmp_path / "run", ranks, hosts=hosts)
    files, slices, _ = export_by_host(select(run), tmp_path / "t.tar", aligned=run.aligned())
    assert (files, slices) == ([tmp_path / "t.tar"], 4)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run", "t.tar"]
    with tarfile.open(tmp_path / "t.tar") as archive:
        members = {m.name: archive.extractfile(m).read() for m in archive.getmembers()}
    manifest = json.loads(members.pop("perfetto_manifest.json"))["perfetto_manifest"]
    assert (
        list(members)
        == [f["path"] for f in manifest["files"]]
        == ["0000-node_1_...pftrace", "0001-b_.pftrace", "0002-c.pftrace"]
    )
    assert [f["machine"]["name"] for f in manifest["files"]] == ["node 1/..", "b\\n", "c"]
    first = {"file": "0000-node_1_...pftrace", "clock": "BOOTTIME"}
    clocks = {"clock": "BOOTTIME", "sync_to": first, "offset_ns": 0}
    assert [f.get("clocks") for f in manifest["files"]] == [None, clocks, clocks]
    assert (manifest["version"], manifest["trace_time"], manifest["attributes"]) == (1, first, {"alltrace.ranks": 4})
    found = []
    for data in members.values():
        trace = trace_pb2.Trace()
        trace.ParseFromString(data)
        found.append([(track[:6], start, end) for track, start, end, *_ in slices_of(trace)])
    assert found == [[("rank 0", 0, 1000), ("rank 1", 1, 1000)], [("rank 2", 2, 1000)], [("rank 5", 5, 1000)]]
    with pytest.raises(UsageError, match=r"ends in \.tar"):
        export_by_host(select(run), tmp_path / "t.pftrace")


@pytest.mark.slow
def test_sixteen_ranks_with_a_hundred_thousand_events_each(tmp_path):
    """Of a run of the largest size that a viewer is asked to open, every track, slice and flow is there."""
    count, ranks = int(os.environ.get("ALLTRACE_PERFETTO_EVENTS", "5000")), 16
    run = large_run(tmp_path / "run", ranks, count // 2)
    [trace], slices = exported(run, tmp_path / "t.pftrace")
    found = slices_of(trace)
    assert slices == len(found) == ranks * (count // 2) * 2
    tracks = defaultdict(int)
    starts = defaultdict(list)
    for track, start, end, _, flows in found:
        tracks[track] += 1
        assert end >= start
        for flow in flows:
            starts[flow].append((start, track))
    expected = {
        f"rank {r} (host{r // 8})/{t}"
        for r in range(ranks)
        for t in ("main/CUDA API", "GPU0 stream 7", "GPU0 stream 20")
    }
    assert set(tracks) == expected
    launches = {
        f: ends
        for f, ends in starts.items()
        if len(ends) == 2 and {t.rpartition("/")[2] for _, t in ends} & {"CUDA API"}
    }
    assert len(launches) == ranks * (count // 2)
    for ends in launches.values():
        (sent, caller), (begun, worker) = sorted(ends)
        assert sent <= begun
        assert caller.endswith("/main/CUDA API")
        assert worker.partition("/")[0] == caller.partition("/")[0]
    across = {f: ends for f, ends in starts.items() if f not in launches}
    assert {len(ends) for ends in across.values()} == {ranks}
    assert len(across) == count // 2 // 100


def large_run(folder, ranks, each):
    """Each rank has so many calls, each with a kernel 2 us later; every hundredth is a collective of all ranks."""
    rows = {}
    for rank in range(ranks):
        calls, kernels = [], []
        for i in range(each):
            begin = (
                20_000 * i + i * i * 7919 % 9001
            )  # nothing that comes again, by which ranks could be taken to be in step
            calls.append({"start": begin + rank, "end": begin + rank + 1500, "correlation": i + 1, **CALL})
            make = collective if i % 100 == 99 else kernel
            kernels.append(make(begin + rank + 2000, begin + 9000, correlation=i + 1))
        rows[rank] = {"api": calls, "kernels": kernels}
    return make_run(folder, rows, hosts={r: f"host{r // 8}" for r in range(ranks)})


def test_fields():
    assert varint(300) == b"\xac\x02"
    assert field(1, b"ab") == b"\x0a\x02ab"
    assert field(60, 1) == b"\xe0\x03\x01"
    assert len(varint(-1)) == 10
