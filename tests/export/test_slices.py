"""The output for viewers, read back: durations, nesting, categories and arguments."""

import json
import random
from collections import Counter, defaultdict

import pytest
from tests.making import COMMUNICATION_KERNEL, collective, copy, kernel, make_run, random_rows
from tests.viewer_traces import all_nest, arguments_of, events_of, names_of, path_of

from alltrace.export.chrome import export_chrome
from alltrace.export.columns import GPU_TABLES, HOST_TABLES
from alltrace.export.perfetto import export_perfetto
from alltrace.export.selection import select

trace_pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2", exc_type=ImportError)


def perfetto(run, path, **options):
    """Slices of a Perfetto trace: track, start, end, name, category, arguments."""
    export_perfetto(select(run, **options), path)
    trace = trace_pb2.Trace()
    trace.ParseFromString(path.read_bytes())
    names = names_of(trace)
    return [
        ((uuid, path_of(names, uuid)), start, end, e.name, *e.categories, arguments_of(e))
        for uuid, start, end, e in events_of(trace)
    ]


def chrome(run, path, **options):
    """Slices of a Chrome trace, likewise."""
    export_chrome(select(run, **options), path)
    events = json.loads(path.read_text(), parse_float=lambda t: int(t.replace(".", "")))[
        "traceEvents"
    ]  # three decimals each
    labels = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    return [
        (
            (e["pid"], e["tid"], labels[e["pid"], e["tid"]]),
            e["ts"],
            e["ts"] + e["dur"],
            e["name"],
            e["cat"],
            e.get("args", {}),
        )
        for e in events
        if e["ph"] == "X"
    ]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("read", [perfetto, chrome])
@pytest.mark.parametrize("seed", [0, 1])
def test_every_duration_is_the_runs_and_slices_nest(tmp_path, read, seed):
    draw = random.Random(seed)
    tables = [t for t in (*HOST_TABLES, *GPU_TABLES) if t != "marks"]
    ranks = {r: {t: random_rows(t, 150, draw, length=2000) for t in tables} for r in (0, 3)}
    for rows in ranks.values():
        rows["ranges"] += [{"start": 7, "end": e, "name": f"together {e}", "kind": "pushpop"} for e in (9, 2000, 50, 7)]
        rows["api"] += [
            {"start": 7, "end": e, "name": "f", "correlation": c, "kind": "runtime"}
            for e, c in ((9, 1), (99, 2), (9, 3))
        ]
    found = read(make_run(tmp_path / "run", ranks), tmp_path / "out")
    zero = min(row["start"] for rows in ranks.values() for t in tables for row in rows[t])
    last = max(row["end"] or 0 for rows in ranks.values() for t in tables for row in rows[t])
    wanted = Counter()
    for rows in ranks.values():
        for table in tables:
            for row in rows[table]:
                end = row["end"] if row["end"] is not None else last if table == "ranges" else row["start"]
                wanted[row["start"] - zero, max(end, row["start"]) - zero] += 1
    assert Counter((s[1], s[2]) for s in found) == wanted
    on = defaultdict(list)
    for track, start, end, *_ in found:
        on[track].append((start, end))
    assert all(map(all_nest, on.values()))
    assert any("start/end ranges" in str(track) for track in on)
    assert all("API" in str(track) for track, *_, category, _ in found if category.startswith("cuda_"))


GEOMETRY = {f"{what}_{axis}": n for what, n in (("grid", 5), ("block", 64)) for axis in "xyz"}


@pytest.mark.parametrize("read", [perfetto, chrome])
def test_slices_have_the_arguments_and_categories_of_the_profilers_own_traces(tmp_path, read):
    operation = {
        "op": "AllReduce",
        "communicator": "0xabc",
        "sequence": 9,
        "bytes": 4096,
        "datatype": "float32",
        "group_size": 2,
    }
    rows = {
        "api": [
            {"start": 1, "end": 2, "correlation": 5, "name": "cuLaunchKernel", "kind": "driver", "return_value": -3}
        ],
        "kernels": [
            kernel(10, 20, correlation=5, registers=40, dynamic_shared_memory=0, **GEOMETRY),
            collective(30, 50, correlation=6),
            kernel(60, 70),
        ],
        "copies": [copy(3, 5, bytes=300, src_kind="pinned"), copy(6, 7, kind="memset", bytes=None)],
        "ranges": [
            {
                "start": 0,
                "end": 9,
                "name": "r",
                "kind": "pushpop",
                "domain": "NCCL",
                "payload": '{"x": 1}',
                "category": 4,
            }
        ],
        "collectives": [{"start": 30, "end": 50, "stream": 20, "api_start": 1, "api_end": 2, **operation}],
    }
    found = {s[1]: (s[3:5], s[5]) for s in read(make_run(tmp_path / "run", {0: rows}), tmp_path / "out")}
    work = {"context": 1, "device": 0}
    assert found[1] == (("cuLaunchKernel", "cuda_driver"), {"correlation": 5, "return value": -3})
    assert found[10][0] == ("gemm_kernel", "kernel")
    assert found[10][1] == {
        "full name": "void gemm_kernel(int)", "grid": [5, 5, 5], "block": [64, 64, 64], "registers per thread": 40,
        "dynamic shared memory": 0, "correlation": 5, "stream": 7, **work,
    }  # fmt: skip
    assert found[30][1] == {
        "full name": COMMUNICATION_KERNEL, "correlation": 6, "collective": "AllReduce", "communicator": "0xabc",
        "sequence": 9, "bytes": 4096, "datatype": "float32", "group size": 2, "stream": 20, **work,
    }  # fmt: skip
    assert found[60][1] == {"full name": "void gemm_kernel(int)", "stream": 7, **work}
    assert found[3] == (("memcpy HtoD", "gpu_memcpy"), {"bytes": 300, "source": "pinned", "stream": 30, **work})
    assert found[6] == (("memset", "gpu_memset"), {"stream": 30, **work})
    assert found[0] == (("r", "NCCL"), {"domain": "NCCL", "category": 4, "payload": '{"x": 1}'})


def test_a_process_and_threads_are_told_as_perfettos_importers_do(tmp_path):
    rows = {"api": [{"start": 1, "end": 2, "correlation": 5, "name": "f"}], "kernels": [kernel(0, 9), kernel(5, 12)]}
    run = make_run(tmp_path / "run", {0: rows})
    assert export_perfetto(select(run), tmp_path / "out").beside == 1
    trace = trace_pb2.Trace()
    trace.ParseFromString((tmp_path / "out").read_bytes())
    told = {p.track_descriptor.uuid: p.track_descriptor for p in trace.packet if p.HasField("track_descriptor")}
    [process] = [d for d in told.values() if d.HasField("process")]
    [thread] = [d for d in told.values() if d.HasField("thread")]
    assert (process.process.pid, process.process.process_name, list(process.process.process_labels)) == (
        4000,
        "rank 0 (host0)",
        ["pid 4000 on host0"],
    )
    assert (thread.parent_uuid, thread.thread.pid, thread.thread.tid, thread.thread.thread_name) == (
        process.uuid,
        4000,
        4001,
        "main",
    )
    rest = [(d.name, d.parent_uuid) for d in told.values() if d not in (process, thread)]
    stream = ("GPU0 stream 7", process.uuid)
    assert sorted(rest) == sorted(
        [("CUDA API", thread.uuid), stream, stream]
    )  # tracks of one name and parent are shown as one


@pytest.mark.parametrize("read", [perfetto, chrome])
def test_of_slices_that_start_together_the_outer_one_begins_first_whatever_else_they_have(tmp_path, read):
    rows = {
        "api": [
            {"start": 7, "end": end, "correlation": correlation, "name": "f", "kind": "runtime"}
            for end, correlation in ((99, 5), (50, None), (20, 6), (10, None), (9, 7))
        ],
        "kernels": [kernel(200, 210, correlation=5), kernel(300, 310, correlation=7)],
    }
    found = read(make_run(tmp_path / "run", {0: rows}), tmp_path / "out")
    calls = [(end, arguments.get("correlation")) for _, _, end, name, _, arguments in found if name == "f"]
    assert sorted(calls, key=lambda c: -c[0]) == [(92, 5), (43, None), (13, 6), (3, None), (2, 7)]
