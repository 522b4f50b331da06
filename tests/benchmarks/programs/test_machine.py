"""The model of hosts, devices and links: small programs with times computed by hand."""

from __future__ import annotations

from itertools import pairwise

import pytest

from benchmarks.programs.machine import (
    CALL,
    COLLECTIVE,
    COPY,
    GRAPH,
    HOST,
    KERNEL,
    KERNEL_GAP_NS,
    LAUNCH_LATENCY_NS,
    LOAD,
    MARK,
    MPI,
    QUEUE,
    RECORD,
    STALL,
    SYNC,
    SYNC_RETURN_NS,
    WAIT,
    execute,
)


def kernel(duration, stream=7, gap=1_000, call=5_000):
    return (KERNEL, stream, 0, duration, gap, call, 1.0)


def collective(duration, number=0, stream=20, gap=1_000, call=5_000):
    return (COLLECTIVE, stream, 0, duration, gap, call, 0, number)


def test_a_kernel_begins_when_its_launch_has_reached_the_device_and_the_stream_is_free():
    found = execute([[kernel(100_000), kernel(50_000), (MARK, 0)]], [], record=True)
    first, second = found.recorded[0].kernels
    assert first[:2] == (6_000 + LAUNCH_LATENCY_NS, 106_000 + LAUNCH_LATENCY_NS)
    assert second[:2] == (first[1] + KERNEL_GAP_NS, first[1] + KERNEL_GAP_NS + 50_000)
    assert found.ends == [{0: second[1]}]
    assert [c[:2] for c in found.recorded[0].calls] == [(1_000, 6_000), (7_000, 12_000)]


def test_a_device_that_is_faster_than_its_host_waits_for_launches():
    found = execute([[kernel(1_000), kernel(1_000)]], [], record=True).recorded[0].kernels
    assert [k[0] for k in found] == [6_000 + LAUNCH_LATENCY_NS, 12_000 + LAUNCH_LATENCY_NS]


def test_a_collective_ends_on_all_members_when_the_last_has_begun_and_the_transfer_has_passed():
    late = [(HOST, 1_000_000), collective(30_000)]
    early, last = (r.kernels[0] for r in execute([[collective(30_000)], late], [2], record=True).recorded)
    assert early[0] == 6_000 + LAUNCH_LATENCY_NS
    assert last[0] == 1_006_000 + LAUNCH_LATENCY_NS
    assert early[1] == last[1] == last[0] + 30_000


def test_events_order_streams_and_nothing_else_does():
    code = [kernel(500_000), (RECORD, 7, 1, 0), (WAIT, 9, 1, 0), kernel(1_000, stream=9), kernel(1_000, stream=11)]
    first, waits, free = sorted(execute([code], [], record=True).recorded[0].kernels, key=lambda k: k[2])
    assert waits[0] == first[1] + KERNEL_GAP_NS
    assert free[0] < first[1]


@pytest.mark.parametrize("stream", [7, None])
def test_a_host_that_waits_goes_on_when_the_device_is_done(stream):
    found = execute([[kernel(500_000), (SYNC, stream, 0, "wait"), kernel(1_000)]], [], record=True).recorded[0]
    waited = found.calls[1]
    assert waited[:2] == (6_000, found.kernels[0][1] + SYNC_RETURN_NS)
    assert found.kernels[1][0] == waited[1] + 6_000 + LAUNCH_LATENCY_NS
    assert found.waits[0][:2] == waited[:2]


def test_a_call_that_drains_the_device_begins_its_own_time_then():
    found = execute([[kernel(500_000), (CALL, "cudaFree", 40_000, True)]], [], record=True).recorded[0]
    assert found.calls[1][:2] == (6_000, found.kernels[0][1] + 40_000)
    found = execute([[kernel(500_000), (CALL, "cudaMalloc", 40_000, False)]], [], record=True).recorded[0]
    assert found.calls[1][:2] == (6_000, 46_000)


@pytest.mark.parametrize(("blocks", "memory", "name"), [
    (True, "pinned", "cudaMemcpy_v3020"), (True, "pageable", "cudaMemcpyAsync_v3020"),
    (False, "pinned", "cudaMemcpyAsync_v3020"),
])  # fmt: skip
def test_a_copy_keeps_the_host_only_where_it_blocks(blocks, memory, name):
    found = execute([[(COPY, 7, "HtoD", 4_096, 90_000, 1_000, 5_000, blocks, memory)]], [], record=True).recorded[0]
    start, end = found.copies[0][:2]
    assert (start, end) == (6_000 + LAUNCH_LATENCY_NS, 96_000 + LAUNCH_LATENCY_NS)
    assert found.calls[0][:3] == (1_000, end + SYNC_RETURN_NS if blocks else 6_000, name)


def test_a_stalled_device_is_idle_though_work_is_queued():
    found = execute([[(STALL, 7, 300_000), kernel(1_000)]], [], record=True).recorded[0].kernels[0]
    assert found[0] == 300_000 + KERNEL_GAP_NS


def test_a_graph_runs_its_kernels_in_one_launch():
    found = execute([[(GRAPH, 7, ((3, 10_000, 1.0), (4, 20_000, 1.0)), None, 1_000, 5_000)]], [], record=True).recorded[
        0
    ]
    assert [k[3] for k in found.kernels] == [3, 4]
    assert [k[7] for k in found.kernels] == [1, 2]
    assert found.graphs[0][:2] == (found.kernels[0][0], found.kernels[1][1])
    assert len(found.calls) == 1


def test_launches_wait_where_the_queue_is_full():
    found = execute([[kernel(1_000_000) for _ in range(QUEUE + 200)]], [], record=True).recorded[0]
    ahead = [sum(k[1] < call[0] for k in found.kernels[: i + 1]) for i, call in enumerate(found.calls)]
    assert max(i + 1 - done for i, done in enumerate(ahead)) <= QUEUE + 64
    assert found.calls[-1][0] > 100 * 1_000_000


def test_workers_load_ahead_as_far_as_there_is_room_and_the_host_waits_for_what_is_late():
    batches = [(LOAD, 2, 2, 1_000_000, "load", False)] * 6
    slow = execute([batches], [], record=True).recorded[0].ranges
    gaps = [b[1] - a[1] for a, b in pairwise(slow)]
    assert gaps == [500_000] * 5  # two workers give a batch every half of the time that one takes
    pace = [step for batch in batches for step in (batch, (HOST, 2_000_000))]
    assert all(r[1] - r[0] == 20_000 for r in execute([pace], [], record=True).recorded[0].ranges[1:])


def test_mpi_keeps_hosts_until_all_have_come():
    call = (MPI, "MPI_Allreduce", 30_000, 0, 0, 8)
    first, second = (r.mpi[0] for r in execute([[call], [(HOST, 90_000), call]], [2], record=True).recorded)
    assert first[:2] == (0, 120_000)
    assert second[:2] == (90_000, 120_000)


def test_a_program_that_never_ends_is_refused():
    with pytest.raises(RuntimeError, match=r"on ranks \[0\] hosts or streams wait"):
        execute([[collective(1_000)], []], [2])
    with pytest.raises(RuntimeError, match="never ends"):
        execute([[(WAIT, 7, 1, 0), kernel(1_000), (SYNC, 7, 0, "wait"), (RECORD, 9, 1, 0)]], [])
