"""Which steps a selection names, and which rows count for them."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc
import pytest
from tests.making import COMMUNICATION_KERNEL, COMPUTE_KERNEL, kernel, make_run

from alltrace.align.store import aligned
from alltrace.recipes.execution.ask import ask
from alltrace.recipes.execution.window import Selection, select, window_of
from alltrace.recipes.execution.window_alignment import WindowedAlignment
from alltrace.run.importer import import_reports
from alltrace.run.store import Run
from alltrace.synth import write_run
from alltrace.trace.errors import UsageError


def rows_of(steps=6, device_lag=30, warm=0):
    """A rank with steps of 100 ns; each launches a kernel of 60 ns and a collective of 20 that end in the next step."""
    ranges, api, kernels = [], [], []
    at = 0
    for step in range(steps):
        length = 200 if step < warm else 100
        ranges.append({"start": at, "end": at + length, "name": f"step {step}", "kind": "pushpop"})
        ranges.append({"start": at + 5, "end": at + 50, "name": "forward", "kind": "pushpop"})
        for n, (name, start, long) in enumerate(
            ((COMPUTE_KERNEL, at + device_lag, 60), (COMMUNICATION_KERNEL, at + device_lag + 60, 20))
        ):
            correlation = 10 * step + n
            api.append(
                {"start": at + 10 + n, "end": at + 11 + n, "name": "cudaLaunchKernel", "correlation": correlation}
            )
            kernels.append(kernel(start, start + long, name, correlation=correlation))
        at += length
    return {"ranges": ranges, "api": api, "kernels": kernels}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("10:50", (10, 50)), ("10:", (10, None)), (":50", (None, 50)), ("7", (7, 8)), (" 0:1 ", (0, 1))],
)
def test_steps_are_a_half_open_interval(text, expected):
    found = select(text)
    assert (found.first, found.end) == expected
    assert bool(found)


@pytest.mark.parametrize("text", ["", ":", "5:3", "4:4", "a", "-1", "1:2:3", "1,2"])
def test_what_names_no_steps_is_refused(text):
    with pytest.raises(UsageError, match="expected steps such as 10:50"):
        select(text)


def test_no_selection_leaves_nothing_out():
    assert not select(None)
    assert select(None, skip_warmup=True) == Selection(skip_warmup=True)


def test_host_rows_count_by_host_extent_and_device_rows_by_device_extent(tmp_path):
    run = make_run(tmp_path / "run", {r: rows_of(device_lag=70) for r in range(2)})
    # a kernel of step 2 starts on the host side of step 2 at 210 and on the device at 270 to 330, its collective in
    # step 3 at 330
    overlap = ask(run, "overlap", steps="2:4")
    assert overlap.table.column("compute_ns").to_pylist() == [120, 120]
    assert overlap.table.column("communication_ns").to_pylist() == [40, 40]
    calls = ask(run, "stats:cuda_api_sum", steps="2:4").table
    assert sum(calls.column("Num Calls").to_pylist()) == 8


def test_the_steps_part_the_whole(tmp_path):
    run = make_run(tmp_path / "run", {r: rows_of(device_lag=70) for r in range(2)})
    whole = ask(run, "kernels").table.to_pylist()
    parts = [row for step in range(6) for row in ask(run, "kernels", steps=str(step)).table.to_pylist()]
    for name in {r["name"] for r in whole}:
        assert sum(r["count"] for r in parts if r["name"] == name) == next(
            r["count"] for r in whole if r["name"] == name
        )
        assert sum(r["total_ns"] for r in parts if r["name"] == name) == next(
            r["total_ns"] for r in whole if r["name"] == name
        )


def test_notes_name_the_steps_and_the_ranks_without_them(tmp_path):
    run = make_run(tmp_path / "run", {0: rows_of(6), 1: rows_of(6), 2: rows_of(3)})
    answer = ask(run, "overlap", steps="4:9")
    assert answer.table.column("rank").to_pylist() == [0, 1]
    assert any("only steps 4-5 of 0-5 are counted, on 2 of 3 ranks" in n for n in answer.notes)
    assert any("left out because these steps are missing there: rank 2" in n for n in answer.notes)


def test_a_step_that_is_not_there_is_refused_with_those_that_are(tmp_path):
    run = make_run(tmp_path / "run", {0: rows_of(6), 1: rows_of(6)})
    with pytest.raises(UsageError, match="--steps 9:12 selects no step; the run has steps 0 to 5"):
        ask(run, "overlap", steps="9:12")


def test_a_run_without_steps_cannot_be_asked_about_some(tmp_path):
    kernels = [kernel(0, 5, COMPUTE_KERNEL)]
    run = make_run(tmp_path / "run", {0: {"kernels": kernels}, 1: {"kernels": kernels}})
    with pytest.raises(UsageError, match="needs steps, but none were found"):
        ask(run, "overlap", steps="1:")


def test_warm_up_steps_are_skipped(tmp_path):
    run = make_run(tmp_path / "run", {r: rows_of(6, warm=2) for r in range(2)})
    answer = ask(run, "overlap", skip_warmup=True)
    assert answer.table.column("compute_ns").to_pylist() == [240, 240]
    assert any(n == "warm-up steps left out: 0-1" for n in answer.notes)


def test_one_rank_alone_has_steps(tmp_path):
    run = make_run(tmp_path / "run", {3: rows_of(6)})
    assert ask(run, "overlap", steps=":2").table.column("compute_ns").to_pylist() == [120]
    assert ask(run, "steps").table.num_rows == 6


def test_ranges_lose_parents_outside_the_window(tmp_path):
    from alltrace.recipes.execution.window import RankWindow

    run = make_run(tmp_path / "run", {0: rows_of(4)})
    window = RankWindow(np.array([2]), np.array([[203, 300]]), np.array([[200, 300]]))
    found = run.rank(0).view(window).table("ranges", ["start", "parent"])
    assert found.to_pylist() == [{"start": 205, "parent": None}]
    window = RankWindow(np.array([2]), np.array([[200, 300]]), np.array([[200, 300]]))
    assert run.rank(0).view(window).table("ranges", ["start", "parent"]).to_pylist() == [
        {"start": 200, "parent": None},
        {"start": 205, "parent": 0},
    ]


def test_stacks_of_ranges_begin_within_the_window(tmp_path):
    ranges = [{"start": 0, "end": 900, "name": "epoch", "depth": 0}]
    for step in range(4):
        ranges.append(
            {"start": 10 + 200 * step, "end": 190 + 200 * step, "name": f"step {step}", "depth": 1, "parent": 0}
        )
        ranges.append(
            {"start": 20 + 200 * step, "end": 60 + 200 * step, "name": "forward", "depth": 2, "parent": len(ranges) - 1}
        )
    rows = [{**r, "kind": "pushpop", "source_row": n} for n, r in enumerate(ranges, 1)]
    run = make_run(tmp_path / "run", {0: {"ranges": rows}})
    found = ask(run, "stats:nvtx_pushpop_trace", steps="1:3").table
    assert found.column("RangeStack").to_pylist() == [":4", ":4:5", ":6", ":6:7"]
    assert found.column("NameTree").to_pylist() == ["step 1", "--forward", "step 2", "--forward"]


def test_collectives_of_mpi_count_for_the_step_of_their_call(tmp_path):
    def rank(number):
        ranges = [{"start": 1000 * s, "end": 1000 * s + 900, "name": f"step {s}", "kind": "pushpop"} for s in range(4)]
        calls = [
            {"start": 1000 * s + 100 + 50 * number, "end": 1000 * s + 400, "name": "MPI_Allreduce"} for s in range(4)
        ]
        return {
            "ranges": ranges,
            "mpi": [{**c, "kind": "collective", "communicator": 1} for c in calls],
            "communicators": [{"communicator": 1, "group_rank": number, "size": 2}],
        }

    run = make_run(tmp_path / "run", {r: rank(r) for r in range(2)})
    assert ask(run, "collectives", steps="1:3").table.column("instances").to_pylist() == [2]
    assert ask(run, "nccl_straggler", steps="1:3").table.column("Caused Wait").to_pylist() == [100, 0]


def test_operations_have_one_row_number_in_what_ranks_and_the_alignment_tell(tmp_path):
    rows = rows_of()
    calls = [k for k in rows["kernels"] if k["name"] == COMMUNICATION_KERNEL]
    called = {"communicator": "c0", "op": "AllReduce", "group_size": 2, "evidence": "trace"}
    met = [called | {c: k[c] for c in ("start", "end", "correlation")} | {"sequence": n} for n, k in enumerate(calls)]
    run = make_run(
        tmp_path / "run", {r: rows | {"collectives": [m | {"group_rank": r} for m in met]} for r in range(2)}
    )
    alignment = aligned(run)
    window = window_of(select("2:4"), alignment.steps, [0, 1])
    members = WindowedAlignment(alignment, window).members
    for rank, of in window.ranks.items():
        own = members.filter(pc.equal(members.column("rank"), rank)).column("row").to_pylist()
        windowed = run.rank(rank).view(of)
        assert own == windowed.shared("members").column("row").to_pylist() == [0, 1]
        assert windowed.table("collectives").num_rows == 2


def test_a_replay_of_some_steps_has_their_collectives(tmp_path):
    write_run("tiny", tmp_path / "in", ranks=2, hosts=1, steps=6, ideal=True)
    import_reports([str(tmp_path / "in")], tmp_path / "run", jobs=1)
    for steps in ("0:2", "3:6"):
        answer = ask(Run(tmp_path / "run"), "critical-path", steps=steps)
        assert "transfer" in answer.table.column("class").to_pylist()
        assert any("the replay error is 0.00 %" in note for note in answer.notes)


def test_the_facts_of_the_whole_run_take_no_window(tmp_path):
    run = make_run(tmp_path / "run", {r: rows_of(6) for r in range(2)})
    with pytest.raises(UsageError, match="info describes the whole run"):
        ask(run, "info", steps="1:")
