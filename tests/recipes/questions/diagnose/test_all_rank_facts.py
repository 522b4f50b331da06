"""Facts over all ranks, including ranks with reports that end too early."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from tests.making import collective, kernel, make_run

from alltrace.recipes.questions.diagnose.all_rank_facts import AllRankFacts
from alltrace.recipes.questions.diagnose.gaps import CLASSES

US = 1000


def rank_of(steps, *, named=True):
    """Steps of five kernels, a collective, and an allocation between the first two kernels; the first takes 20 times as
    long."""
    tables = {"kernels": [], "api": [], "ranges": []}
    begin = 0
    for step in range(steps):
        pace = 2000 if step == 0 else 100
        for n in (0, 1, 2, 3, 4, 6):
            at, number = begin + n * pace, len(tables["api"]) + 1
            made = collective if n == 6 else kernel
            tables["kernels"].append(made((at + 20) * US, (at + (200 if n == 6 else 70)) * US, correlation=number))
            tables["api"].append(
                {"start": at * US, "end": (at + 10) * US, "name": "cudaLaunchKernel", "correlation": number}
            )
        allocation = {
            "start": (begin + 12) * US,
            "end": (begin + pace - 2) * US,
            "name": "cudaMalloc",
            "correlation": 1000 + step,
        }
        tables["api"].append(allocation)
        tables["ranges"].append({"start": begin * US, "end": (begin + 10 * pace - 10) * US, "name": f"step {step}"})
        begin += 10 * pace
    return tables if named else {**tables, "ranges": []}


def found_in(run):
    answer = run.recipe("diagnose")
    rows = [r for r in answer.to_pylist() if r["kind"] != "capture-fault"]
    return [(r["kind"], r["lost_ns"], r["lost_ns_per_step"], r["lost_share"]) for r in rows], answer


def test_a_rank_without_steps_does_not_bring_the_start_up_of_all_into_what_is_judged(tmp_path):
    whole, _ = found_in(make_run(tmp_path / "whole", {r: rank_of(10) for r in range(4)}))
    assert [kind for kind, *_ in whole][:2] == ["launch-bound", "allocation"]
    one_short = {r: rank_of(10) if r < 3 else rank_of(1, named=False) for r in range(4)}
    found, answer = found_in(make_run(tmp_path / "short", one_short))
    # who waits for the fourth rank is not known, so that losses are ceilings; what is judged is the same
    assert {kind for kind, *_ in whole[:2]} <= {kind for kind, *_ in found}
    judged = [{round(lost / share) for _, lost, _, share in rows if share is not None} for rows in (found, whole)]
    assert judged[0] == judged[1]
    assert all(kind in ("exposed-communication", "unexplained") for kind, lost, *_ in found if lost is None)
    assert any(note.startswith("it is unknown which ranks wait for which") for note in answer.notes)
    assert "9 steps are judged; left out: warm-up (step 0, 69.2 % of the time)" in answer.notes
    assert "no usable step was found on rank 3, so it is left out" in answer.notes
    assert all(3 not in r["ranks"] for r in answer.to_pylist() if r["kind"] != "capture-fault")


def test_runs_of_which_no_rank_has_steps_are_judged_whole(tmp_path):
    _, answer = found_in(make_run(tmp_path, {r: rank_of(1, named=False) for r in range(2)}))
    assert "no steps were found, so the whole run, including its start-up, is judged as one step" in answer.notes
    assert all(r["lost_ns_per_step"] is None for r in answer.to_pylist())


def test_steps_that_a_rank_lacks_are_left_out_and_the_first_of_a_late_report_too():
    def judged(*steps):
        facts = {r: SimpleNamespace(steps=np.array(s), whole_run=False) for r, s in enumerate(steps)}
        found = AllRankFacts({r: SimpleNamespace(facts=f) for r, f in facts.items()}, {}, None, None, None, None)
        return found.steps.tolist(), list(found.partly)

    every = range(1, 9)
    assert judged(every, every, every) == ([*every], [])
    assert judged(every, every, range(1, 6)) == ([1, 2, 3, 4, 5], [6, 7, 8])
    # a replay without a cause reaches step 4 sooner, and waits there for the report that begins with it
    assert judged(every, every, range(4, 9)) == ([5, 6, 7, 8], [1, 2, 3, 4])
    # where little is left, what half of the ranks have is judged
    assert judged(every, every, [8]) == ([*every], [])


@pytest.mark.parametrize(
    ("messages", "lost", "classes", "unknown"),
    [
        (0, [[50, 60], [50, 60]], ("data",), None),
        (7, [[50, 60], [50, 60]], ("data",), "in doubt"),  # the delays of stages add up
        (0, [[50, 60], [0, 60]], ("data",), None),  # of a step only what all lose
        (0, [[50, 60], [50, 60]], ("communication",), "in doubt"),
        (7, [[0, 0], [0, 0]], ("data",), None),
    ],
)
def test_a_loss_of_all_ranks_is_known_without_knowing_who_waits_unless_they_pass_messages_on(
    messages, lost, classes, unknown
):
    all_ranks = AllRankFacts.__new__(AllRankFacts)
    all_ranks.ranks, all_ranks.steps = np.arange(2), np.arange(2)
    times = np.full((2, 2, len(CLASSES)), 100.0)
    all_ranks.__dict__ |= {
        "times": times,
        "lengths": np.full(2, 100.0 * len(CLASSES)),
        "doubt": "in doubt",
        "_recovery": None,
    }
    all_ranks.__dict__["clocks_unknown"] = True
    lone = SimpleNamespace(messages=np.array([0, messages]), alone=np.zeros(2, int))
    all_ranks.facts = {rank: SimpleNamespace(steps=np.arange(2)) for rank in range(2)}
    all_ranks.__dict__ |= {"lone": [None, lone]}
    loss = all_ranks.loss(classes, np.array(lost, float))
    assert (loss.unknown, loss.least_ns) == (unknown, sum(map(min, zip(*lost, strict=True))))


ONE_LATE = [[60, 0], [2, 0], [0, 0]]


@pytest.mark.parametrize(
    ("lost", "waits", "missing", "sure"),
    [
        # both wait from 20 to 90, the late one loses 60 of it
        (ONE_LATE, {0: [], 1: [[10, 90]], 2: [[20, 100]]}, (), [60, 0]),
        # what they wait in the next step is none of it
        (ONE_LATE, {0: [], 1: [[10, 90], [110, 150]], 2: [[60, 150]]}, (), [30, 0]),
        # from 40 on all wait, maybe for a transfer
        (ONE_LATE, {0: [[40, 200]], 1: [[10, 90]], 2: [[20, 100]]}, (), [20, 0]),
        (ONE_LATE, {0: [], 1: [[10, 90]], 2: []}, (), [0, 0]),  # one that computes may be the one that is late
        (ONE_LATE, {0: [], 1: [[10, 90]], 2: [[20, 100]]}, (3,), [0, 0]),  # as may be one without a report
        # of two that lose time neither may wait
        ([[60, 0], [50, 0], [0, 0]], {0: [[30, 40]], 1: [[50, 60]], 2: [[20, 80]]}, (), [40, 0]),
        # in each step those that lose time in it are waited for
        ([[60, 40], [2, 40], [0, 0]], {0: [], 1: [[10, 90], [110, 150]], 2: [[20, 90], [110, 150]]}, (), [60, 0]),
    ],
)
def test_who_does_not_wait_while_all_others_do_is_waited_for_whoever_meets_whom(lost, waits, missing, sure):
    all_ranks = AllRankFacts.__new__(AllRankFacts)
    all_ranks.ranks, all_ranks.steps = np.arange(3), np.arange(2)
    regions = np.array([[0, 100], [100, 200]])
    all_ranks.facts = {
        rank: SimpleNamespace(steps=np.arange(2), regions=regions, waits=np.array(its, np.int64).reshape(-1, 2))
        for rank, its in waits.items()
    }
    all_ranks.alignment = SimpleNamespace(run=SimpleNamespace(manifest=SimpleNamespace(missing_ranks=missing)))
    times = np.full((3, 2, len(CLASSES)), 10.0)
    all_ranks.__dict__ |= {
        "times": times,
        "lone": [None] * 3,
        "doubt": "in doubt",
        "_recovery": None,
        "clocks_unknown": False,
    }
    loss = all_ranks.loss(("host-pause",), np.array(lost, float), ceiling_ns=60)
    assert (loss.least_ns, loss.unknown) == (sum(sure), None if sum(sure) == 60 else "in doubt")


@pytest.mark.parametrize(("unnamed", "record"), [(0, ""), (3, "; import the job's NCCL logs with --nccl-log for it")])
def test_a_doubt_names_the_record_that_would_tell(unnamed, record):
    all_ranks = AllRankFacts.__new__(AllRankFacts)
    manifest = SimpleNamespace(reports=[SimpleNamespace(profiler="rocprofv3")])
    all_ranks.alignment = SimpleNamespace(
        matching_reason="half is not explained", run=SimpleNamespace(manifest=manifest)
    )
    all_ranks.ranks, all_ranks.facts, all_ranks.whole_run = np.arange(2), {}, False
    all_ranks.__dict__["lone"] = [None, SimpleNamespace(unnamed=unnamed)]
    assert all_ranks.doubt == f"it is unknown which ranks wait for which: half is not explained{record}"


@pytest.mark.parametrize(
    ("alone", "missing", "share"),
    [
        ([0, 0], (), None),
        ([10, 10], (), None),
        ([1, 11], (), "11.0 %"),
        ([1, 11], (5,), None),
        ([100, 3], (), "100.0 %"),
    ],
)
def test_messages_without_a_partner_put_in_doubt_who_waits_for_whom(alone, missing, share):
    all_ranks = AllRankFacts.__new__(AllRankFacts)
    manifest = SimpleNamespace(reports=[], missing_ranks=missing)
    all_ranks.alignment = SimpleNamespace(matching_reason=None, run=SimpleNamespace(manifest=manifest))
    all_ranks.ranks, all_ranks.steps, all_ranks.whole_run = np.array([4, 7, 8]), np.array([1]), False
    all_ranks.facts = {rank: SimpleNamespace(steps=np.array([1, 2]), left_out=0) for rank in (4, 7, 8)}
    # the second step is not judged, as some report does not have it
    lone = [SimpleNamespace(messages=np.array([100, 9]), alone=np.array([count, 9]), unnamed=0) for count in alone]
    all_ranks.__dict__ |= {
        "lone": [*lone, None],
        "clocks_unknown": False,
        "_recovery": None,
    }
    rank = 4 if alone[0] > alone[1] else 7
    said = (
        f"it is unknown which ranks wait for which: {share} of the sends and receives of rank {rank} found no partner"
    )
    assert all_ranks.doubt == (said if share else None)


def test_a_step_goes_from_the_last_rank_to_the_last_rank():
    """Rank 0 is late at the end of step 3, for which the others wait in step 4."""
    regions = {0: [[100, 300], [300, 400]], 1: [[110, 200], [200, 410]], 2: [[105, 190], [190, 395]]}
    all_ranks = AllRankFacts.__new__(AllRankFacts)
    all_ranks.facts = {r: SimpleNamespace(steps=np.array([3, 4]), regions=np.array(own)) for r, own in regions.items()}
    all_ranks.facts[3] = SimpleNamespace(steps=np.array([4, 9]), regions=np.array([[200, 420], [500, 900]]))
    all_ranks.ranks, all_ranks.steps = np.arange(4), np.array([3, 4])
    assert all_ranks.lengths.tolist() == [300 - 110, 420 - 300]
    assert all_ranks.span_ns == 310


def test_the_name_with_the_largest_sum_is_one_of_ids_of_64_bits():
    high = (1 << 62) + 1  # a float has no such number
    all_ranks = SimpleNamespace(name=str)
    parts = [(np.array([high, 5]), np.array([2.0, 3.0])), (np.array([high]), np.array([2.0]))]
    assert AllRankFacts.name_of_most(all_ranks, parts) == str(high)
    assert AllRankFacts.name_of_most(all_ranks, []) == ""


def test_the_judged_steps_of_a_rank_have_places_among_those_of_all():
    all_ranks = SimpleNamespace(steps=np.array([2, 3, 5, 8]))
    rows, places = AllRankFacts.judged(all_ranks, SimpleNamespace(steps=np.array([1, 3, 4, 8, 9])))
    assert (rows.tolist(), places.tolist()) == ([1, 3], [1, 3])
    all_ranks.steps = np.empty(0, np.int64)
    assert AllRankFacts.judged(all_ranks, SimpleNamespace(steps=np.array([1])))[0].tolist() == []


def test_members_are_those_of_judged_steps_from_the_first_on():
    ends = [40, 90, 140, 190]  # in no step, in steps 7 and 8, and in one that is not judged
    columns = {
        "end": ends,
        "wait_start_ns": [e - 20 for e in ends],
        "until_ns": ends,
        "awaited_ns": [e - 5 for e in ends],
    }
    numbers = ("instance", "communicator", "stream", "bytes", "row", "error_ns")
    columns |= {name: [0, 1, 2, 3] for name in numbers} | {"rank": [0] * 4, "transfer_ns": [5] * 4}
    ops, fact = pa.array(["AllReduce"] * 4).dictionary_encode(), [True] * 4
    table = pa.table({**columns, "op": ops, "evidence": ["name"] * 4, "fact": fact})
    all_ranks = AllRankFacts.__new__(AllRankFacts)
    all_ranks.alignment, all_ranks.steps = SimpleNamespace(members=table), np.array([7, 8])
    regions = np.array([[50, 100], [100, 150], [150, 200]])
    all_ranks.facts = {0: SimpleNamespace(steps=np.array([7, 8, 9]), regions=regions, waits=np.array([[80, 130]]))}
    members = all_ranks.members
    assert (members.instance.tolist(), members.step.tolist()) == ([1, 2], [0, 1])
    assert (members.waited.tolist(), members.moved.tolist()) == ([10, 10], [5, 0])
