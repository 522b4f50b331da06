"""Snapshots of PyTorch's allocator, as `torch.cuda.memory._dump_snapshot` writes them."""

from __future__ import annotations

import json
import pickle

import pytest

from alltrace.api import open_run
from alltrace.readers.memory_snapshot import is_report
from alltrace.readers.registry import open_report
from alltrace.trace.errors import InputError

ZERO_US = 1_700_000_000_000_000
STEP = [{"filename": "/train.py", "line": 12, "name": "step"}, {"filename": "/train.py", "line": 40, "name": "main"}]
LOSS = [{"filename": "/loss.py", "line": 3, "name": "loss"}, *STEP[1:]]


def event(action, at, address, size, frames=(), **others):
    own = {
        "action": action,
        "addr": address,
        "size": size,
        "stream": 0,
        "time_us": ZERO_US + at,
        "frames": list(frames),
    }
    return {**own, **others}


def snapshot(**others):
    """100 bytes from before the history live on; 500 of `step` live at the end, 900 of `loss` do not."""
    blocks = [
        {"address": 4096, "size": 512, "requested_size": 500, "state": "active_allocated", "frames": STEP},
        {"address": 4608, "size": 512, "requested_size": 100, "state": "active_awaiting_free", "frames": []},
        {"address": 5120, "size": 2096128, "requested_size": 0, "state": "inactive", "frames": []},
    ]
    segments = [
        {"device": 1, "address": 4096, "total_size": 2097152, "stream": 0, "segment_type": "small", "blocks": blocks},
        {"device": 0, "address": 1, "total_size": 7, "blocks": [{"size": 7, "state": "active_allocated"}]},
    ]
    trace = [
        event("segment_alloc", 0, 4096, 2097152),
        event("alloc", 10, 4096, 500, STEP),
        event("segment_alloc", 15, 1 << 30, 1048576),
        event("alloc", 20, 8192, 900, LOSS),
        event("free_requested", 30, 8192, 900),
        event("free_completed", 31, 8192, 900),
        event("segment_free", 40, 1 << 30, 1048576),
        event("snapshot", 50, 0, 0),
    ]
    settings = {"expandable_segments": False, "garbage_collection_threshold": 0.0}
    return {"segments": segments, "device_traces": [[], trace], "allocator_settings": settings, **others}


@pytest.fixture
def write(tmp_path):
    def made(content=None, name="snapshot_rank3.pickle", protocol=pickle.DEFAULT_PROTOCOL):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else pickle.dumps(content or snapshot(), protocol))
        return path

    return made


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_events_and_what_is_held_behind_each(write, protocol):
    path = write(protocol=protocol)
    reader = open_report(path)
    assert (reader.report.format, reader.report.utc_ns) == ("memory-snapshot", ZERO_US * 1000)
    (rows,) = [b.to_pylist() for _, b in reader.stream(("allocations", "kernels"))]
    names = reader.dictionaries()["names"].to_pylist()
    texts = {n["id"]: n["value"] for n in names}
    facts = ("time", "kind", "bytes", "address", "allocated_bytes", "reserved_bytes", "memory", "device")
    assert [tuple(r[f] for f in facts) for r in rows] == [
        (10_000, "allocate", 500, 4096, 600, 2097152, "cuda snapshot", 0),
        (20_000, "allocate", 900, 8192, 1500, 3145728, "cuda snapshot", 0),
        (31_000, "free", 900, 8192, 600, 3145728, "cuda snapshot", 0),
    ]
    assert [texts.get(r["stack"]) for r in rows] == [
        "/train.py(40): main;/train.py(12): step",
        "/train.py(40): main;/loss.py(3): loss",
        None,
    ]
    assert reader.dictionaries()["devices"].to_pylist()[0]["ordinal"] == 1


def test_a_snapshot_answers_what_lived_at_the_peak(write, tmp_path):
    run = open_run(write(), cache_dir=tmp_path / "cache")
    assert [(r.rank, r.rank_source) for r in run.ranks] == [(3, "file name")]
    (row,) = run.recipe("memory").to_pylist()
    assert (row["peak_bytes"], row["first_bytes"], row["last_bytes"], row["kept_bytes"]) == (1500, 100, 600, 500)
    assert [(r["name"], r["peak_bytes"]) for r in run.recipe("memory-peak", by="stack").to_pylist()] == [
        ("/train.py(40): main;/loss.py(3): loss", 900),
        ("/train.py(40): main;/train.py(12): step", 500),
        ("before the capture", 100),
        (None, 0),
    ]


def test_no_segment_is_no_byte_reserved(write):
    trace = [event("alloc", 10, 4096, 500), event("free_completed", 20, 4096, 500)]
    (rows,) = [b.to_pylist() for _, b in open_report(write(snapshot(segments=[], device_traces=[trace]))).stream(
        ("allocations",)
    )]  # fmt: skip
    assert [(r["allocated_bytes"], r["reserved_bytes"]) for r in rows] == [(500, 0), (0, 0)]


class Evil:
    def __reduce__(self):
        return (print, ("executed",))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (pickle.dumps({"segments": Evil()}), "its pickle was refused"),
        (pickle.dumps(snapshot())[:-40], "its pickle was refused"),
        (pickle.dumps({"segments": []}), "it has no device segments and traces"),
        (pickle.dumps({"segments": [3], "device_traces": []}), "it has no device segments and traces"),
        (pickle.dumps(snapshot(device_traces=[[], []])), "its history is empty"),
        (pickle.dumps(snapshot(device_traces=[[event("alloc", 1, 5, 7, time_us=None)]])), "its events have no times"),
        (pickle.dumps(snapshot(device_traces=[[event("alloc", 1, 5, -7)]])), "no whole numbers"),
        (pickle.dumps(snapshot(device_traces=[[event("alloc", 1, 5, 1 << 80)]])), "no whole numbers"),
    ],
)
def test_what_is_no_such_snapshot_is_refused_in_a_sentence(write, capsys, content, said):
    with pytest.raises(InputError, match=said):
        open_report(write(content))
    assert capsys.readouterr().out == ""


def test_only_such_pickles_are_reports(write, tmp_path):
    assert is_report(write())
    assert not is_report(write(name="snapshot.bin"))
    assert not is_report(write(pickle.dumps({"entries": []}), name="flight.pickle"))
    assert not is_report(tmp_path / "gone.pickle")


def test_a_snapshot_beside_the_trace_of_its_rank_is_on_its_clock(write, tmp_path):
    about = {"ph": "X", "cat": "user_annotation", "pid": 77, "tid": 77, "dur": 90}
    steps = [{**about, "name": f"ProfilerStep#{n}", "ts": 1_000_000 + 100 * n} for n in range(3)]
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1_000_010, "dur": 5}
    trace = {
        "distributedInfo": {"rank": 3, "world_size": 4},
        "deviceProperties": [{"id": 1, "name": "H200"}],
        "baseTimeNanoseconds": (ZERO_US - 1_000_000 - 100) * 1000,
        "traceEvents": [*steps, {**kernel, "args": {"device": 1, "stream": 7, "correlation": 1}}],
    }
    folder = tmp_path / "reports"
    folder.mkdir()
    (folder / "trace.json").write_text(json.dumps(trace))
    write().rename(folder / "snapshot_rank3.pickle")
    run = open_run(folder, cache_dir=tmp_path / "cache")
    assert [(r.rank, r.pids, len(r.devices)) for r in run.ranks] == [(3, (77,), 1)]
    (row,) = run.recipe("memory").to_pylist()
    # the history begins 100 us after the trace does, where its second step does
    assert (row["peak_step"], row["peak_bytes"], row["memory"]) == (1, 1500, "cuda snapshot")
    assert row["peak_at_ns"] == run.recipe("steps").to_pylist()[1]["start_ns"] + 20_000
