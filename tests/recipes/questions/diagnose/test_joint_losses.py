"""Causes of which both together give back more than the sum of both."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest
from tests.recipes.questions.diagnose.test_recovered_time import USUAL, played

from alltrace.recipes.questions.diagnose.finding import Finding, Loss
from alltrace.recipes.questions.diagnose.joint_losses import with_joint_losses, with_one_of_each_cause


def finding(kind, ranks, recovery, changed, classes=("compute",), **values):
    loss = Loss(recovery.saved_ns(changed), "replay", classes, 0, 10**6, without=lambda: changed)
    return Finding(kind, loss, ranks, "gemm", "", {"steps": 3}, **values)


def less_work(recovery, rank, lost_ns=200_000.0):
    return recovery.less_of_longest(np.array([rank]), None, np.array([[lost_ns]]))


def ranks_of(recovery, span_ns, host_ns=0, host_class="allocation", loader_ns=0):
    """Facts of three ranks and steps, of which rank 1 has time of its host, and a loader."""
    taken = np.zeros((3, 3))
    taken[1] = host_ns / 3
    return SimpleNamespace(
        recovery=recovery,
        span_ns=span_ns,
        ranks=np.arange(3),
        steps=np.arange(3),
        facts={rank: SimpleNamespace(loader_ns=loader_ns * (rank == 1)) for rank in range(3)},
        of_host=lambda name: taken * (name == host_class),
    )


@pytest.fixture
def run():
    return ranks_of(played([USUAL, [300_000, 300_000], USUAL]), 600_000)


def together(findings, run):
    return [f.evidence.get("together_ns") for f in with_joint_losses(findings, run)]


def test_both_state_what_they_cost_together_and_are_reported(run):
    findings = [
        finding("straggler", (0,), run.recovery, less_work(run.recovery, 0)),
        finding("data-stall", (1,), run.recovery, less_work(run.recovery, 1), classes=("data",)),
    ]
    stated = with_joint_losses(findings, run)
    assert [f.told for f in stated] == [True, True]
    assert [f.evidence["together_ns"] for f in stated] == pytest.approx([200_000] * 2, abs=2_000)
    assert stated[0].evidence["steps"] == 3


def test_one_alone_or_two_that_add_up_state_nothing(run):
    one = finding("straggler", (0,), run.recovery, less_work(run.recovery, 0))
    assert together([one], run) == [None]
    apart = ranks_of(played([[300_000, 100_000], [100_000, 300_000]]), 600_000)
    both = [finding("straggler", (r,), apart.recovery, less_work(apart.recovery, r)) for r in (0, 1)]
    assert together(both, apart) == [None, None]


@pytest.mark.parametrize(
    ("kind", "ranks", "classes", "values"),
    [
        ("jitter", (), ("compute",), {}),
        ("exposed-communication", (1,), ("communication",), {"needed_at_once": True}),
        ("idle-gap", (0,), ("idle",), {}),
        ("straggler", (0,), ("compute",), {}),
    ],
)
def test_no_pair_of_causes(run, kind, ranks, classes, values):
    findings = [
        finding("straggler", (0,), run.recovery, less_work(run.recovery, 0)),
        finding(kind, ranks, run.recovery, less_work(run.recovery, 1), classes, **values),
    ]
    assert together(findings, run) == [None, None]


def test_a_device_and_its_own_host_can_hide_each_other(run):
    findings = [
        finding("straggler", (0,), run.recovery, less_work(run.recovery, 0)),
        finding("host-pause", (0,), run.recovery, less_work(run.recovery, 1), ("host-pause",)),
    ]
    assert None not in together(findings, run)


def test_without_a_replay_nothing_is_stated(run):
    one = finding("straggler", (0,), run.recovery, less_work(run.recovery, 0))
    assert with_joint_losses([one], SimpleNamespace(recovery=None, span_ns=1)) == [one]


def test_of_two_that_cost_something_alone_less_needs_to_be_hidden():
    # the second rank is behind the first by a part of what it takes longer
    recovery = played([[300_000, 100_000], [300_000, 300_000], [100_000, 300_000]])
    findings = [
        finding("straggler", (r,), recovery, less_work(recovery, r, 400_000.0), classes=(c,))
        for r, c in ((0, "compute"), (1, "data"))
    ]
    alone = [f.loss.estimate_ns for f in findings]
    both = recovery.saved_ns(recovery.without_both(*(f.loss.without() for f in findings)))
    assert min(alone) > 0
    hidden = both - sum(alone)
    assert 0.1 * (both - max(alone)) < hidden < 0.5 * both
    assert None not in together(findings, ranks_of(recovery, 20 * hidden))
    assert together(findings, ranks_of(recovery, 300 * hidden)) == [None, None]


def test_of_three_the_two_that_cost_most_together_are_named():
    recovery = played([USUAL, [300_000, 300_000], USUAL])
    run = ranks_of(recovery, 600_000)
    findings = [
        finding("straggler", (0,), recovery, less_work(recovery, 0)),
        finding("imbalance", (1,), recovery, less_work(recovery, 1, 50_000.0)),
        finding("allocation", (1,), recovery, less_work(recovery, 1), classes=("allocation",)),
    ]
    stated = together(findings, run)
    assert stated[1] is None
    assert stated[0] == stated[2] == pytest.approx(200_000, abs=2_000)
    shares = [f.evidence["together_share"] for f in with_joint_losses(findings, run) if "together_ns" in f.evidence]
    assert shares == pytest.approx([1 / 3] * 2, abs=0.01)


@pytest.mark.parametrize(("classes", "host_ns", "stated"), [("allocation", 0, False), ("allocation", 200_000, True)])
def test_what_a_host_does_while_its_device_is_busy_can_be_hidden(classes, host_ns, stated):
    recovery = played([USUAL, [300_000, 300_000], USUAL])
    hidden = finding(classes, (1,), recovery, less_work(recovery, 1), (classes,))
    hidden = replace(hidden, loss=replace(hidden.loss, bound_ns=0))
    findings = [finding("straggler", (0,), recovery, less_work(recovery, 0)), hidden]
    assert (None not in together(findings, ranks_of(recovery, 600_000, host_ns))) is stated


def test_so_can_a_device_that_is_slower_than_its_peers_while_all_wait_for_another():
    recovery = played([USUAL, [300_000, 300_000], USUAL])
    hidden = finding("straggler", (1,), recovery, less_work(recovery, 1))
    hidden = replace(hidden, loss=replace(hidden.loss, bound_ns=0), evidence={"excess_ns_per_step": 60_000.0})
    findings = [finding("data-stall", (0,), recovery, less_work(recovery, 0), ("data",)), hidden]
    assert None not in together(findings, ranks_of(recovery, 600_000))
    findings[1] = replace(hidden, evidence={"excess_ns_per_step": 1_000.0})
    assert together(findings, ranks_of(recovery, 600_000)) == [None, None]


@pytest.mark.parametrize(
    ("loader_ns", "alone_ns", "stated"), [(0, 200_000, False), (190_000, 30_000, True), (100_000, 200_000, False)]
)
def test_without_a_slow_rank_the_others_still_wait_for_a_loader_that_is_hardly_faster(loader_ns, alone_ns, stated):
    # of 600 us in three steps the slow rank takes 200; a loader hides 170 of it that takes 190 us for the batches of a
    # step
    recovery = played([USUAL, [300_000, 100_000], USUAL])
    slow = finding("straggler", (0,), recovery, less_work(recovery, 0))
    loader = finding("data-stall", (1,), recovery, less_work(recovery, 1, 0.0), ("data",))
    found, _ = with_joint_losses([slow, loader], ranks_of(recovery, 600_000, 60_000, "data", loader_ns))
    assert ("together_ns" in found.evidence) is stated
    assert found.loss.estimate_ns == pytest.approx(alone_ns, abs=2_000)


def _saving(run, ranks, own, other, pause, copied):
    """A pause and copies of ranks, with these parts of their loss in the steps."""
    # that of the other rank stands for what the replay leaves out at another place
    taken = [less_work(run.recovery, rank, ns) for rank, ns in enumerate((pause, copied))]
    kinds = (("host-pause", ("host-pause",), own), ("sync-copy", ("sync-copy",), other))
    found = [
        finding(kind, ranks, run.recovery, changed, classes)
        for (kind, classes, _), changed in zip(kinds, taken, strict=True)
    ]
    return [
        replace(f, where=f.kind, loss=replace(f.loss, own_ns=7, steps=(np.full(3, 1e5), np.array(parts, float))))
        for f, (_, _, parts) in zip(found, kinds, strict=True)
    ]


@pytest.mark.parametrize("larger", [0, 1])
def test_copies_and_the_pause_that_follows_them_are_one_finding_with_the_loss_of_both(larger):
    run = ranks_of(played([[300_000, 100_000], [100_000, 300_000], USUAL]), 600_000)
    findings = _saving(run, (0,), [0.5, 0, 0.5], [0.4, 0, 0.6], *((40_000.0, 20_000.0), (20_000.0, 40_000.0))[larger])
    (one,) = with_one_of_each_cause(findings, run)
    alone = [f.loss.estimate_ns for f in findings]
    assert one.kind == findings[larger].kind
    assert one.loss.estimate_ns == pytest.approx(sum(alone), abs=2_000)
    assert max(alone) < one.loss.estimate_ns == run.recovery.saved_ns(one.loss.without())
    assert (one.loss.classes[-1], one.loss.own_ns, one.loss.bound_ns) == (findings[1 - larger].kind, 14, 2 * 10**6)
    also = ("sync-copy takes time there", "the launching thread pauses")[larger]
    assert f"In the same steps {also}" in one.advice


def test_without_copies_that_end_as_the_pause_begins_it_is_gone_too():
    run = ranks_of(played([[300_000, 100_000], USUAL, USUAL]), 600_000)
    pause, copies = _saving(run, (0,), [0.5, 0, 0.5], [0.5, 0, 0.5], 30_000.0, 0.0)
    copies = replace(copies, loss=replace(copies.loss, own_ns=3, without=lambda: less_work(run.recovery, 0, 40_000.0)))
    copies = replace(copies, loss=replace(copies.loss, estimate_ns=run.recovery.saved_ns(copies.loss.without())))
    (one,) = with_one_of_each_cause([pause, copies], run)
    assert (one.kind, one.loss.own_ns) == ("host-pause", 10)
    assert one.loss.estimate_ns == copies.loss.estimate_ns > pause.loss.estimate_ns


@pytest.mark.parametrize(
    ("ranks", "other"), [((0,), [0, 1, 0]), ((0, 1), [0.5, 0, 0.5])], ids=["other steps", "most ranks"]
)
def test_copies_in_other_steps_or_of_most_ranks_are_no_part_of_a_pause(ranks, other):
    run = ranks_of(played([[300_000, 100_000], [100_000, 300_000], USUAL]), 600_000)
    findings = _saving(run, ranks, [0.5, 0, 0.5], other, 40_000.0, 20_000.0)
    assert with_one_of_each_cause(findings, run) == findings
    assert with_one_of_each_cause(findings[1:], run) == findings[1:]
    assert with_one_of_each_cause(findings, SimpleNamespace(recovery=None, ranks=np.arange(9))) == findings


def _slow_and_paused(run, slowdown, steps_affected):
    slow = finding("straggler", (0,), run.recovery, less_work(run.recovery, 0, 40_000.0))
    pause = finding("host-pause", (0,), run.recovery, less_work(run.recovery, 1, 20_000.0), classes=("host-pause",))
    return [
        replace(slow, evidence={"slowdown": slowdown}),
        replace(pause, evidence={"steps_affected": steps_affected, "steps": 3}),
    ]


@pytest.mark.parametrize("order", [1, -1])
def test_a_host_that_works_slowly_and_pauses_lacks_a_cpu_and_is_one_finding(order):
    run = ranks_of(played([[300_000, 100_000], [100_000, 300_000], USUAL]), 600_000)
    run.judges_hosts = True
    findings = _slow_and_paused(run, 1.4, 2)[::order]
    (one,) = with_one_of_each_cause(findings, run)
    assert (one.kind, one.loss.classes) == ("straggler", ("compute", "host-pause"))
    assert one.loss.estimate_ns == pytest.approx(60_000, abs=2_000)
    assert "its main thread also pauses, as one does that gets no CPU" in one.advice


@pytest.mark.parametrize(
    ("slowdown", "steps_affected", "hosts", "ranks"),
    [(1.3, 2, True, (0,)), (1.4, 1, True, (0,)), (1.4, 2, False, (0,)), (1.4, 2, True, (1,))],
    ids=["has most of a CPU", "pauses now and then", "work of devices", "another rank pauses"],
)
def test_other_pauses_of_a_slow_rank_are_a_cause_of_their_own(slowdown, steps_affected, hosts, ranks):
    run = ranks_of(played([[300_000, 100_000], [100_000, 300_000], USUAL]), 600_000)
    run.judges_hosts = hosts
    slow, pause = _slow_and_paused(run, slowdown, steps_affected)
    findings = [slow, replace(pause, ranks=ranks)]
    assert with_one_of_each_cause(findings, run) == findings


@pytest.mark.parametrize(
    ("slow_ns", "more_ns", "kind"), [(40_000.0, 20_000.0, "straggler"), (20_000.0, 40_000.0, "imbalance")]
)
def test_a_host_with_more_work_is_one_finding_of_the_kind_that_takes_more(slow_ns, more_ns, kind):
    run = ranks_of(played([[300_000, 100_000], [100_000, 300_000], USUAL]), 600_000)
    slow = finding("straggler", (0,), run.recovery, less_work(run.recovery, 0, slow_ns))
    more = finding("imbalance", (0,), run.recovery, less_work(run.recovery, 1, more_ns))
    findings = [
        replace(f, evidence=evidence, loss=replace(f.loss, own_ns=round(own)))
        for f, evidence, own in ((slow, {"slowdown": 1.4}, slow_ns), (more, {"work_ratio": 1.4}, more_ns))
    ]
    run.judges_hosts = True
    (one,) = with_one_of_each_cause(findings, run)
    assert one.kind == kind
    assert one.loss.estimate_ns == pytest.approx(60_000, abs=2_000)
    assert one.advice.endswith(" takes more time too, which is part of the loss.")
    assert (one.loss.own_ns, one.loss.bound_ns) == (40_000, findings[0].loss.bound_ns)  # both are of one class
    run.judges_hosts = False
    assert with_one_of_each_cause(findings, run) == findings


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_rank_that_lacks_a_cpu_keeps_its_kind_beside_more_work(order):
    run = ranks_of(played([[300_000, 100_000], [100_000, 300_000], USUAL]), 600_000)
    run.judges_hosts = True
    slow, pause = _slow_and_paused(run, 1.4, 2)
    more = finding("imbalance", (0,), run.recovery, less_work(run.recovery, 0, 45_000.0))
    more = replace(more, evidence={"work_ratio": 1.4}, loss=replace(more.loss, own_ns=slow.loss.own_ns * 5))
    (one,) = with_one_of_each_cause([(slow, pause, more)[n] for n in order], run)
    assert (one.kind, one.loss.classes) == ("straggler", ("compute", "host-pause"))
    assert "its main thread also pauses, as one does that gets no CPU" in one.advice


def test_several_ranks_that_lack_a_cpu_are_told_of_as_several():
    run = ranks_of(played([[300_000, 100_000], [100_000, 300_000], USUAL]), 600_000)
    run.judges_hosts, run.ranks = True, np.arange(4)
    findings = [replace(f, ranks=(0, 1)) for f in _slow_and_paused(run, 1.4, 2)]
    (one,) = with_one_of_each_cause(findings, run)
    assert "their main threads also pause, as those do that get no CPU" in one.advice


def test_what_a_replay_gives_back_beyond_a_bound_makes_no_pair(run):
    findings = [
        finding("launch-bound", (0,), run.recovery, less_work(run.recovery, 0), classes=("launch",)),
        finding("data-stall", (1,), run.recovery, less_work(run.recovery, 1), classes=("data",)),
    ]
    bounded = replace(findings[0], loss=replace(findings[0].loss, beyond_ns=200_000))
    assert together(findings, run) == [pytest.approx(200_000, abs=2_000)] * 2
    assert together([bounded, findings[1]], run) == [None, None]
