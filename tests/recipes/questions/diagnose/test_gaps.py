"""What a device's time without compute is put down to."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tests.making import collective, copy, kernel, make_run

from alltrace.recipes.questions.diagnose.gaps import CLASSES, _launch_ns, _short, regions_of
from alltrace.recipes.questions.diagnose.rank_facts import gather

MS = 1_000_000
NO_KERNELS = np.empty(0, np.int64)


def call(start, end, name="cudaLaunchKernel", correlation=None):
    return {"start": start, "end": end, "name": name, "correlation": correlation, "kind": "runtime"}


def facts_of(folder, **tables):
    """The facts of a rank whose two kernels run 0 to 1 ms and 5 to 6 ms."""
    tables.setdefault("kernels", [kernel(0, MS, correlation=1), kernel(5 * MS, 6 * MS, correlation=2)])
    run = make_run(folder, {0: tables})
    return gather(run.rank(0), None)[0]


def times_of(facts):
    return {name: int(value) for name, value in zip(CLASSES, facts.times[0], strict=True) if value}


@pytest.mark.parametrize(
    ("between", "expected"),
    [
        # the launch comes late, after calls that follow one another: the pace of launching
        ([call(s * MS // 2, s * MS // 2 + 1000, "cudaEventRecord") for s in range(10)], {"launch": 4 * MS}),
        # the host waits for the device, and then takes its time
        (
            [
                call(1000, MS + 2000, "cudaStreamSynchronize_v3020"),
                *[call(s * MS // 2, s * MS // 2 + 9, "cudaEventQuery") for s in range(3, 10)],
            ],
            {"sync": 4 * MS},
        ),
        # memory is allocated
        ([call(MS // 2, 5 * MS - 1000, "cudaMalloc_v3020")], {"allocation": 4 * MS - 1000, "launch": 1000}),
        # no thread calls anything
        ([call(MS, MS + 1000, "cudaEventRecord")], {"host-pause": 4 * MS - 1000, "launch": 1000}),
    ],
    ids=["launch", "sync", "allocation", "pause"],
)
def test_a_late_launch_is_put_down_to_what_the_host_does(tmp_path, between, expected):
    api = [call(-2000, -1000, correlation=1), *between, call(5 * MS - 1, 5 * MS, correlation=2)]
    found = times_of(facts_of(tmp_path / "run", api=api))
    assert found.pop("compute") == 2 * MS
    assert sum(found.values()) == 4 * MS
    for name, value in expected.items():
        assert found.get(name, 0) == pytest.approx(value, abs=3000)


def test_waiting_for_data_is_told_by_its_range(tmp_path):
    api = [call(-2000, -1000, correlation=1), call(5 * MS - 10, 5 * MS, correlation=2)]
    found = facts_of(tmp_path / "run", api=api, ranges=[{"start": MS, "end": 4 * MS, "name": "next_batch"}])
    assert times_of(found)["data"] == 3 * MS
    assert found.call_names["data"] == "next_batch"


def test_data_is_not_named_after_a_range_that_has_nothing_to_do_with_it(tmp_path):
    """One that was still open is of no length, and another range's name must not stand for the calls that read."""
    ranges = [{"start": 0, "end": 9 * MS, "name": "another"}, {"start": 8 * MS, "end": None, "name": "dataloader"}]
    facts = facts_of(tmp_path, ranges=ranges, osrt=[{"start": MS, "end": 4 * MS, "name": "read"}])
    assert facts.call_names["data"] == "read"


def test_a_kernel_is_launched_by_a_call_of_its_own_process(tmp_path):
    """Another process of the rank has a call of the same correlation id, long before."""
    processes = [{"process": n, "pid": 4000 + n, "name": "train"} for n in range(2)]
    threads = [{"thread": n, "process": 1 - n, "tid": 4001 + n, "name": "main"} for n in range(2)]
    own = [call(-2000, -1000, correlation=1), call(5 * MS - 10, 5 * MS, correlation=2)]
    api = [
        {**call(-5000, -4000, correlation=2), "process": 1, "thread": 0},
        *({**c, "process": 0, "thread": 1} for c in own),
    ]
    found = facts_of(tmp_path / "two", api=api, processes=processes, threads=threads)
    assert times_of(found) == times_of(facts_of(tmp_path / "one", api=own))


def test_a_queued_kernel_waits_for_communication_copies_or_nothing(tmp_path):
    api = [call(-2000, -1000, correlation=1), call(10, 20, correlation=2)]
    kernels = [kernel(0, MS, correlation=1), collective(MS, 3 * MS), kernel(5 * MS, 6 * MS, correlation=2)]
    found = facts_of(tmp_path / "run", api=api, kernels=kernels, copies=[copy(2 * MS, 4 * MS)])
    assert times_of(found) == {"compute": 2 * MS, "communication": 2 * MS, "transfer": MS, "idle": MS}
    assert found.waits.tolist() == [[MS + 2000, 3 * MS + 2000]]  # from the first call on


def test_blocking_copies_are_of_their_own_kind(tmp_path):
    api = [
        call(-2000, -1000, correlation=1),
        call(MS, 4 * MS, "cudaMemcpy", 9),
        call(5 * MS - 10, 5 * MS, correlation=2),
    ]
    found = facts_of(tmp_path / "sync", api=api, copies=[copy(MS, 4 * MS, correlation=9)])
    assert times_of(found)["sync-copy"] >= 3 * MS
    api[1] = call(MS, 4 * MS, "cudaMemcpyAsync", 9)
    found = facts_of(tmp_path / "pageable", api=api, copies=[copy(MS, 4 * MS, correlation=9, src_kind="pageable")])
    assert times_of(found)["pageable-copy"] >= 3 * MS
    assert found.copy_kinds == ["HtoD pageable"]


def test_the_classes_sum_to_the_regions(tmp_path):
    draw = np.random.default_rng(3)
    kernels, api = [], []
    for n in range(200):
        start = n * 10_000 + int(draw.integers(0, 9000))
        kernels.append(
            (collective if n % 5 == 0 else kernel)(start, start + int(draw.integers(1, 12_000)), correlation=n)
        )
        api.append(
            call(
                start - int(draw.integers(0, 9000)),
                start - int(draw.integers(0, 20)) + 1,
                "cudaFree" if n % 7 == 0 else "cudaLaunchKernel",
                n,
            )
        )
    found = facts_of(tmp_path / "run", kernels=kernels, api=api)
    assert (found.times >= 0).all()
    assert found.times.sum() == (found.regions[:, 1] - found.regions[:, 0]).sum()


def test_only_plain_steps_are_judged():
    def row(step, start, end, kind="step", device=True):
        first, last = (start + 10, end + 20) if device else (None, None)
        return {"step": step, "start": start, "end": end, "kind": kind, "device_start": first, "device_end": last}

    rows = [
        row(0, 0, 100, "warm-up"),
        row(1, 100, 200),
        row(2, 200, 300, "checkpoint"),
        row(3, 300, 400),
        row(4, 400, 500),
        row(5, 500, 600, device=False),
    ]
    steps, regions = regions_of(rows, NO_KERNELS)
    # the step behind a checkpoint begins with nothing queued
    assert steps.tolist() == [1, 4]
    assert regions.tolist() == [[120, 220], [420, 520]]
    # where there are only such steps they are judged
    steps, _ = regions_of([rows[0], *rows[2:4]], NO_KERNELS)
    assert steps.tolist() == [3]


@pytest.mark.parametrize(
    ("second", "kernels", "begin"),
    [
        ({}, [], 150),  # the host pauses from there on, in the first step's range and behind it
        ({"step": 3}, [], 300),  # a step between them is not recorded
        ({}, [250], 300),  # an evaluation ran between them
        ({}, [149, 300], 150),
        ({"after": "warm-up"}, [], 300),
        ({"after": "checkpoint"}, [], 300),
    ],
)
def test_a_region_begins_where_the_step_before_ends_on_the_device(second, kernels, begin):
    first = {"step": 1, "start": 100, "end": 200, "kind": "step", "device_start": 110, "device_end": 150}
    rows = [first, {**first, "step": 2, "start": 300, "end": 400, "device_start": 310, "device_end": 350, **second}]
    first["kind"] = second.get("after", "step")
    _, regions = regions_of(rows, np.array(kernels, np.int64))
    assert regions.tolist()[-1] == [begin, 350]


@pytest.mark.parametrize(("pause", "name"), [(5_000, "kernel-gap"), (5_001, "idle")])
def test_a_device_takes_some_time_from_one_queued_kernel_to_the_next(tmp_path, pause, name):
    api = [call(-2000, -1000, correlation=1), call(-900, -800, correlation=2)]
    kernels = [kernel(0, MS, correlation=1), kernel(MS + pause, 2 * MS, correlation=2)]
    found = facts_of(tmp_path / "run", api=api, kernels=kernels)
    assert times_of(found) == {"compute": 2 * MS - pause, name: pause}


@pytest.mark.parametrize(("name", "begin"), [("execute_context_0(0)_generation_4(4)", 200), ("forward", 50)])
def test_a_server_that_waits_for_requests_is_not_idle_in_a_step(tmp_path, name, begin):
    kernels = [kernel(10, 50, correlation=1), kernel(210, 250, correlation=2)]
    api = [call(0, 5, correlation=1), call(200, 205, correlation=2)]
    ranges = [{"start": s, "end": s + 100, "name": name} for s in (0, 200)]
    steps = [
        {
            "step": n,
            "start": 200 * n,
            "end": 200 * n + 100,
            "kind": "step",
            "device_start": 200 * n + 10,
            "device_end": 200 * n + 50,
        }
        for n in range(2)
    ]
    run = make_run(tmp_path, {0: {"kernels": kernels, "api": api, "ranges": ranges}})
    facts, _ = gather(run.rank(0), pa.Table.from_pylist(steps))
    assert facts.regions.tolist() == [[0, 50], [begin, 250]]


def test_rows_of_queued_kernels_no_longer_than_an_empty_one_are_lost_to_launching(tmp_path):
    def made(*spans, queued=True, **more):
        kernels = [kernel(start, end, correlation=n, **more) for n, (start, end) in enumerate(spans)]
        return {
            "kernels": kernels,
            "api": [call(-90_000 + n, -80_000 + n, correlation=n) if queued else call(s - 900, s - 100, correlation=n)
                    for n, (s, _) in enumerate(spans)],
        }  # fmt: skip

    row = ((0, 100_000), (101_000, 103_000), (104_000, 106_000), (107_000, 109_000), (110_000, 200_000))
    found = times_of(facts_of(tmp_path / "row", **made(*row)))
    # three kernels of 2 us and the pauses of 1 us behind them
    assert found == {"compute": 190_000, "short-kernels": 9_000, "kernel-gap": 1_000}
    # not one alone, not in a graph, and not where launching makes the device wait, which is told by itself
    alone = ((0, 100_000), (101_000, 103_000), (104_000, 200_000))
    assert "short-kernels" not in times_of(facts_of(tmp_path / "alone", **made(*alone)))
    assert "short-kernels" not in times_of(facts_of(tmp_path / "graph", **made(*row, graph_node=3)))
    late = times_of(facts_of(tmp_path / "late", **made(*row, queued=False)))
    assert "short-kernels" not in late
    assert late["launch"] == 4 * 900


def test_a_queued_transfer_is_no_part_of_the_call_that_waits_behind_it(tmp_path):
    """The host queues a transfer and then copies synchronously: only its own copy and what follows are that call's."""
    tables = {
        "copies": [
            copy(MS, 3 * MS, correlation=3, src_kind="pinned", dst_kind="device"),
            copy(3 * MS, 4 * MS, correlation=4, src_kind="device", dst_kind="pinned"),
        ],
        "api": [
            call(-2 * MS, -2 * MS + 10, correlation=1),
            call(-MS, -MS + 10, "cudaMemcpyAsync", 3),
            call(0, 4 * MS, "cudaMemcpy", 4),
            call(4 * MS, 5 * MS, correlation=2),
        ],
    }
    assert times_of(facts_of(tmp_path / "run", **tables)) == {
        "compute": 2 * MS,
        "transfer": 2 * MS,
        "sync-copy": 2 * MS,
    }


@pytest.mark.parametrize(
    ("memory", "kind", "expected"),
    [("pinned", "HtoD", "transfer"), ("pageable", "DtoH", "pageable-copy"), ("device", "DtoD", "copy")],
)
def test_a_device_that_copies_while_the_host_launches_late_does_not_wait_for_a_launch(tmp_path, memory, kind, expected):
    api = [
        call(-2000, -1000, correlation=1),
        *[call(s * MS // 2, s * MS // 2 + 1000, "cudaEventRecord") for s in range(10)],
        call(10, 20, "cudaMemcpyAsync", 9),
        call(5 * MS - 1, 5 * MS, correlation=2),
    ]
    copies = [copy(MS, 4 * MS, kind, correlation=9, src_kind=memory, dst_kind="device")]
    assert times_of(facts_of(tmp_path / "run", api=api, copies=copies)) == {
        "compute": 2 * MS,
        expected: 3 * MS,
        "launch": MS,
    }


@pytest.mark.parametrize("seed", range(6))
def test_time_in_which_a_device_copies_is_never_lost_to_launching(tmp_path, seed):
    draw = np.random.default_rng(seed)
    ticks, tick = 400, 10_000
    busy, copying = np.zeros(ticks, np.bool_), np.zeros(ticks, np.bool_)
    kernels, copies, api = [], [], []
    for n, at in enumerate(sorted(draw.choice(ticks - 20, 40, replace=False).tolist())):
        long, number = int(draw.integers(1, 12)), 2 * n
        begin, end = at * tick, (at + long) * tick
        if n % 2:
            kernels.append(kernel(begin, end, correlation=number))
            busy[at : at + long] = True
        else:
            memory = ("pinned", "pageable", "device")[n % 3]
            way = "DtoD" if memory == "device" else "HtoD"
            copies.append(copy(begin, end, way, correlation=number, src_kind=memory, dst_kind="device"))
            copying[at : at + long] = True
        called = begin - int(draw.integers(1, 5)) * tick
        name = "cudaLaunchKernel" if n % 2 else ("cudaMemcpy", "cudaMemcpyAsync")[int(draw.integers(2))]
        api.append(call(called, int(draw.integers(called + 1, begin + 1)), name, number))
    # the judged time begins with the first device work and ends with the last
    found = facts_of(tmp_path / "run", kernels=kernels, copies=copies, api=api)
    first, last = int(found.regions[0, 0]), int(found.regions[-1, 1])
    shown = min(e["start"] for e in (*kernels, *copies, *api))
    judged = np.zeros(ticks, np.bool_)
    judged[(first + shown) // tick : (last + shown) // tick] = True
    idle = judged & ~busy & ~copying
    assert (copying & judged & ~busy).sum() > 20
    assert times_of(found).get("launch", 0) <= int(idle.sum()) * tick
    assert sum(times_of(found).values()) == int(judged.sum()) * tick


@pytest.mark.parametrize(
    ("kernels", "last_end", "end"),
    [([], 380, 380), ([360], 380, 350), ([], 391, 350), ([], 390, 390)],  # at most as long as the step, which takes 40
)
def test_the_last_step_ends_with_a_barrier_behind_it(kernels, last_end, end):
    first = {"step": 1, "start": 290, "end": 300, "kind": "step", "device_start": 290, "device_end": 310}
    rows = [first, {**first, "step": 2, "start": 310, "end": 350, "device_start": 310, "device_end": 350}]
    _, regions = regions_of(rows, np.array(kernels, np.int64), last_end=last_end)
    assert regions.tolist() == [[290, 310], [310, end]]


def test_a_host_that_is_late_with_a_barrier_after_the_last_kernel_pauses(tmp_path):
    api = [call(-2000, -1000, correlation=1), call(6 * MS, 6 * MS + 1000, correlation=2)]
    kernels = [kernel(0, MS, correlation=1), collective(6 * MS + 2000, 7 * MS, correlation=2)]
    found = times_of(facts_of(tmp_path / "run", api=api, kernels=kernels))
    assert found["host-pause"] == 5 * MS
    assert found["communication"] > 0.9 * MS


def test_the_time_between_launches_is_of_their_order_in_time():
    starts = np.array([40, 50, 60])
    assert _launch_ns(np.array([0, 10, 30]), starts) == 15
    assert _launch_ns(np.array([30, 0, 10]), starts) == 15  # of several threads, whose kernels run in another order


def test_a_row_of_short_kernels_ends_with_its_last_kernel():
    starts = np.array([0, 2_000, 100_000])  # the third is launched too late to be a part of the row
    short = _short(starts, starts + 1_000, np.array([-9, -8, 99_000]), np.zeros(3, np.bool_))
    assert (short.starts.tolist(), short.ends.tolist()) == ([0], [3_000])
    short = _short(starts[:2], starts[:2] + 1_000, np.array([-9, -8]), np.zeros(2, np.bool_))
    assert (short.starts.tolist(), short.ends.tolist()) == ([0], [3_000])


def test_a_pause_that_begins_as_the_first_wait_ends_is_behind_it(tmp_path):
    wait = call(1000, MS + 2000, "cudaStreamSynchronize_v3020")
    api = [call(-2000, -1000, correlation=1), wait, call(5 * MS - 1, 5 * MS, correlation=2)]
    facts = facts_of(tmp_path / "run", api=api)
    # from the end of the wait to the next launch
    assert facts.paused_behind_ns == 5 * MS - 1 - (MS + 2000)
