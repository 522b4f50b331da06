"""A rank's work as a graph is made from it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from tests.making import copy, kernel, make_run
from tests.replay.jobs import COMPUTE_STREAM, Rank, full_queue

from alltrace.replay.work import OTHER, TRANSFER, _merged, read


def test_work_was_launched_by_its_own_process(tmp_path):
    """Each process counts its correlations from 1."""

    def calls(process, *starts):
        return [
            {"start": s, "end": s + 5, "correlation": n, "process": process, "name": "cudaStreamSynchronize"}
            for n, s in enumerate(starts)
        ]

    def wait(process, stream):
        return {"start": 20, "end": 30, "kind": "stream", "correlation": 1, "process": process, "stream": stream}

    rows = {
        "processes": [{"process": n, "pid": 10 + n, "name": "train"} for n in range(2)],
        "kernels": [kernel(1100 + 1000 * n, 1150 + 1000 * n, correlation=n, stream=7 + n) for n in range(2)],
        "api": calls(1, 10, 20) + calls(0, 1050, 2050),
        "syncs": [wait(1, 7), wait(0, 8)],
    }
    work, waits = read(make_run(tmp_path, {0: rows}).in_session_time().rank(0), np.empty(0, np.int64))
    assert work.launch.tolist() == [1050, 2050]
    assert dict(zip(waits.start.tolist(), waits.track.tolist(), strict=True)) == {10: -1, 20: 0, 1050: -1, 2050: 1}


@pytest.mark.parametrize(
    "name",
    [
        "cudaStreamSynchronize_v3020",
        "hipDeviceSynchronize",
        "hipStreamSynchronize_spt",
        "hipEventSynchronize",
        "hipCtxSynchronize",
        "hipMemcpy",
        "hipMemcpyDtoH",
        "hipFree",
        "hipMalloc",
        "hipHostMalloc",
        "hipHostFree",
    ],
)
def test_calls_that_wait_for_the_device_wait_by_any_vendors_name(tmp_path, name):
    names = [
        name,
        "hipMemcpyAsync",
        "hipLaunchKernel",
        "hipStreamWaitEvent",
        "hipMallocAsync",
        "hipFreeAsync",
        "cudaMemcpyAsync",
    ]
    calls = [
        {"start": 10 * n, "end": 10 * n + 5, "correlation": n, "name": called} for n, called in enumerate(names, 1)
    ]
    _, waits = read(make_run(tmp_path, {0: {"api": calls}}).in_session_time().rank(0), np.empty(0, np.int64))
    assert (waits.start.tolist(), waits.end.tolist()) == ([10], [15])


def test_each_stream_of_each_device_is_a_track_of_its_own(tmp_path):
    places = [(1, 9), (0, 7), (1, 7), (0, 9), (1, 9), (0, 8)]
    devices = [{"device": d, "ordinal": d} for d in (0, 1)]
    kernels = [kernel(100 * n, 100 * n + 10, device=device, stream=stream) for n, (device, stream) in enumerate(places)]
    work, _ = read(make_run(tmp_path, {0: {"kernels": kernels, "devices": devices}}).rank(0), np.empty(0, np.int64))
    # rows stand track by track
    assert [work.tracks[t] for t in work.track.tolist()] == sorted(places)
    assert work.tracks == sorted(set(places))


def test_a_launch_that_takes_long_waits_if_the_queue_of_its_stream_is_full():
    rank = full_queue(1400, 100_000)
    _, waits = read(rank, np.empty(0, np.int64))
    blocked = [call for call in rank.rows["api"] if call["end"] - call["start"] >= 50_000]
    assert len(blocked) > 50
    # but for what a launch takes while there are places; the first has what a shorter one before it waited
    assert waits.start.tolist()[1:] == [call["start"] + 10_000 for call in blocked[1:]]
    assert waits.end.tolist() == [call["end"] for call in blocked]
    assert set(waits.track.tolist()) == {0}
    # short launches into a full queue are one wait when they have waited for long enough, with the host's own time left
    short = full_queue(1400, 20_000)
    _, waits = read(short, np.empty(0, np.int64))
    took = np.array([call["end"] - call["start"] for call in short.rows["api"]])
    waited_ns = (took - 10_000)[took > 10_000].sum()
    assert 0 <= waited_ns - (waits.end - waits.start).sum() < 50_000
    assert ((waits.end - waits.start) >= 40_000).all()
    # as long a launch with fewer kernels in the queue is the host's own time
    assert not len(read(full_queue(1400, 100_000, queue=512), np.empty(0, np.int64))[1].start)


def test_a_graph_waits_once_for_a_place_in_the_queue():
    """Each graph of 500 kernels takes 5 ms; with two of them in the queue, the launch of another waits for one."""
    rank, host, ends = Rank(0, rows={"kernels": [], "api": []}), 0, []
    for n in range(20):
        begun, host = host, host + 20_000
        if n > 2:
            host = max(host, ends[n - 3])
        start = max(host, ends[-1] if ends else 0)
        ends.append(start + 500 * 10_000)
        for place in range(500):
            at = start + 10_000 * place
            names = {"correlation": n, "name": "gemm", "stream": COMPUTE_STREAM, "device": 0, "kind": "compute"}
            rank.rows["kernels"].append(names | {"start": at, "end": at + 10_000})
        rank.rows["api"].append({"start": begun, "end": host, "correlation": n, "name": "cudaGraphLaunch"})
    _, waits = read(rank, np.empty(0, np.int64))
    blocked = [call for call in rank.rows["api"] if call["end"] - call["start"] > 20_000]
    assert len(blocked) == 17
    assert waits.end.tolist() == [call["end"] for call in blocked]
    assert waits.start.tolist() == [call["start"] + 20_000 for call in blocked]


def test_a_copy_waits_if_its_call_returns_after_it_ended(tmp_path):
    """As one to pageable memory does; others return before, or are too short to have waited."""
    calls = [(0, 100), (1_000, 900_000), (1_000_000, 1_005_000), (3_000_000, 3_020_000)]
    spans = [(2_000, 800_000), (850_000, 890_000), (1_700_000, 1_800_000), (3_010_000, 3_012_000)]
    rows = {
        "kernels": [kernel(*spans[0], correlation=0)],
        "copies": [copy(*span, "DtoH", stream=7, correlation=n) for n, span in enumerate(spans) if n],
        "api": [{"start": s, "end": e, "correlation": n, "name": "cudaMemcpyAsync"} for n, (s, e) in enumerate(calls)],
    }
    _, waits = read(make_run(tmp_path, {0: rows}).in_session_time().rank(0), np.empty(0, np.int64))
    assert (waits.start.tolist(), waits.end.tolist(), waits.track.tolist()) == ([1_000], [900_000], [0])


def test_a_copy_that_is_a_known_wait_is_one_wait(tmp_path):
    rows = {
        "copies": [copy(100_000, 200_000, "DtoH", stream=7, correlation=1)],
        "api": [{"start": 0, "end": 210_000, "correlation": 1, "name": "cudaMemcpy"}],
    }
    _, waits = read(make_run(tmp_path, {0: rows}).in_session_time().rank(0), np.empty(0, np.int64))
    assert waits.start.tolist() == [0]


def test_kernels_of_a_collective_are_one_piece_of_work_and_one_that_has_none_changes_nothing():
    numbers = np.array([10, 20, 30, 40])
    columns = {
        "start": numbers, "end": numbers + 5, "track": np.zeros(4, np.int32), "launch": numbers, "launched": numbers,
        "kind": np.full(4, OTHER, np.int8), "name": numbers,
    }  # fmt: skip
    # the second collective has no times, the third no kernel that starts with it
    collectives = {"start": [20, None, 41], "end": [35, None, 45], "device": [0] * 3, "stream": [7] * 3}
    rank = SimpleNamespace(table=lambda name, wanted: pa.table(collectives))
    work = _merged(rank, columns, [(0, 7)], np.arange(3))
    assert work.start.tolist() == [10, 20, 40]
    assert work.end.tolist() == [15, 35, 45]
    assert work.kind.tolist() == [OTHER, TRANSFER, OTHER]
    assert work.rows == {1: [0]}
