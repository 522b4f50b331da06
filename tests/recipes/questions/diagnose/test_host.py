"""Findings about the host: on real reports with measured truth, and the meaning of pauses after waits."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from tests.making import kernel, make_run

from alltrace.api import OpenRun
from alltrace.recipes.questions.diagnose.finding import Loss
from alltrace.recipes.questions.diagnose.host import _few_of, _pauses_behind_waits, _short_pauses, find
from alltrace.run.importer import import_reports


@pytest.fixture(scope="module")
def pair(tmp_path_factory, corpus):
    """The same training with no loader worker and with four: the runs."""
    found = {}
    for workers in (0, 4):
        folder = tmp_path_factory.mktemp("loader")
        import_reports(
            [str(corpus / "kineto" / "tb_plugin" / f"resnet50_workers{workers}.pt.trace.json.gz")],
            folder / "run",
            jobs=1,
        )
        found[workers] = OpenRun(folder / "run")
    return found


@pytest.mark.slow
@pytest.mark.corpus
def test_a_loader_in_the_launching_thread_is_the_first_finding(pair):
    first = pair[0].recipe("diagnose").to_pylist()[0]
    assert (first["kind"], first["where"]) == (
        "data-stall",
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    )
    # of the typical step more workers gave back what is called lost
    steps = {workers: _steps_ns(run) for workers, run in pair.items()}
    median = {workers: sorted(lengths)[len(lengths) // 2] for workers, lengths in steps.items()}
    gain = 1 - median[4] / median[0]
    assert first["lost_share"] == pytest.approx(gain, rel=1 / 3)


@pytest.mark.corpus
def test_a_loader_with_workers_costs_little(pair):
    lost = {row["kind"]: row["lost_share"] for row in pair[4].recipe("diagnose").to_pylist()}
    assert lost.get("data-stall", 0) < 0.01


def _steps_ns(run):
    """The lengths of the profiler's steps on the host."""
    rows = run.rank(0).table("ranges", ("start", "end", "name"))
    names = run.rank(0).texts(rows.column("name")).to_pylist()
    times = zip(rows.column("start").to_pylist(), rows.column("end").to_pylist(), names, strict=True)
    return [end - start for start, end, name in times if name.startswith("ProfilerStep#")]


@pytest.mark.parametrize(
    ("waits", "saved", "paused", "following", "steps_with", "behind"),
    [
        (2, 60, 0.3, 0.9, 10, True),
        (1, 60, 0.3, 0.9, 10, True),
        # waits at the end of steps alone are how programs are
        (0.5, 60, 0.3, 0.9, 10, False),
        (2, 40, 0.3, 0.9, 10, False),
        (2, 60, 0.001, 0.9, 10, False),
        # pauses that begin anywhere are not what the program does with what it waited for
        (2, 100, 0.3, 0.5, 10, False),
        # nor are those of some steps
        (2, 60, 0.3, 0.9, 8, False),
        (2, 60, 0.3, 0.9, 9, True),
    ],
)
def test_pauses_are_behind_waits_that_they_follow_and_that_give_back_as_much(
    waits, saved, paused, following, steps_with, behind
):
    run = SimpleNamespace(
        waits=lambda name: waits * 4 * 10 * (name == "sync"),
        no_host=lambda name: name,
        saved_ns=lambda name: {"sync": saved, "host-pause": 100}[name],
    )
    ranks, steps = np.arange(4), np.arange(10)
    lost = {"host-pause": np.where(steps < steps_with, np.full((4, 10), paused * 100), 0.0)}
    facts = {rank: SimpleNamespace(paused_ns=1000, paused_behind_ns=1000 * following) for rank in ranks.tolist()}
    all_ranks = SimpleNamespace(recovery=run, span_ns=1000, ranks=ranks, steps=steps, of=lost.__getitem__, facts=facts)
    assert _pauses_behind_waits(all_ranks) is behind
    facts |= {rank: SimpleNamespace(paused_ns=0, paused_behind_ns=0) for rank in (0, 1)}
    assert _pauses_behind_waits(all_ranks) is False, "half of the ranks wait like the others and do not pause"
    all_ranks.recovery = None
    assert _pauses_behind_waits(all_ranks) is False


@pytest.mark.parametrize(
    ("beyond", "calls", "slower", "found"),
    [
        ((0, 0, 200_000, 0), 20, 1, [2]),
        ((0, 0, 90_000, 0), 20, 1, []),
        # with ten waits more in a step each costs some launches
        ((0, 0, 200_000, 0), 120, 1, []),
        ((0, 0, 700_000, 0), 120, 1, [2]),
        ((0, 300_000, 300_000, 300_000), 20, 1, []),
        # who takes five times as long for each launch does so for those after a wait, which take 60 us elsewhere
        ((0, 0, 240_000, 0), 20, 5, []),
        ((0, 0, 640_000, 0), 20, 5, [2]),
    ],
)
def test_a_few_ranks_that_go_on_later_than_others_after_waits_pause(beyond, calls, slower, found):
    waits = np.full((4, 10), 60_000.0) + np.array(beyond)[:, None]
    facts = {
        r: SimpleNamespace(
            call_counts={"sync": calls if r == 2 else 20},
            steps=np.arange(10),
            launch_ns=8_000 * (slower if r == 2 else 1),
        )
        for r in range(4)
    }
    quarter = np.percentile(waits, 25, axis=0, method="lower")
    all_ranks = SimpleNamespace(
        excess=lambda values: values - quarter, span_ns=10 * 5_000_000, steps=np.arange(10), facts=facts
    )
    paused = _short_pauses(all_ranks, waits)
    assert np.flatnonzero(paused.any(axis=1)).tolist() == found
    assert paused.sum() == sum(10 * (beyond[r] - 60_000 * (slower - 1)) for r in found)
    facts[0].launch_ns = 0  # a full queue hides it
    assert (_short_pauses(all_ranks, waits) == paused).all()


US = 1_000


def _launched_late(launch_ns):
    """A rank of several phases: short kernels that are launched every `launch_ns`, long ones, and a wait for all of
    them."""
    kernels, calls, device, host = [], [], 0, 0
    for phase in range(6):
        for number in range(20):
            calls.append(
                {"start": host, "end": host + 5 * US, "name": "cudaLaunchKernel", "correlation": 100 * phase + number}
            )
            begin = max(device, host + 5 * US)
            device = begin + (10 * US if number < 14 else 150 * US)
            kernels.append(kernel(begin, device, correlation=100 * phase + number))
            host += launch_ns
        calls.append(
            {"start": host, "end": device + 5 * US, "name": "cudaStreamSynchronize", "correlation": 100 * phase + 99}
        )
        host = device + 5 * US
    return {0: {"kernels": kernels, "api": calls}}


def test_what_a_late_host_needs_to_refill_the_queue_after_a_wait_is_lost_to_launching(tmp_path):
    found = make_run(tmp_path / "run", _launched_late(40 * US)).recipe("diagnose").to_pylist()
    lost = {row["kind"]: row["lost_share"] or 0 for row in found}
    assert found[0]["kind"] == "launch-bound"
    assert lost["launch-bound"] > 0.25
    assert lost.get("sync", 0) < 0.01


def test_what_a_quick_host_needs_after_a_wait_is_lost_to_waiting(tmp_path):
    found = make_run(tmp_path / "run", _launched_late(6 * US)).recipe("diagnose").to_pylist()
    assert [row["kind"] for row in found if row["opportunity_share"] is None and row["lost_share"]] == ["sync"]


@pytest.mark.parametrize(("pauses", "parts", "severity"), [((10,), 4, "medium"), (range(1, 20, 2), 10, "high")])
def test_what_happens_once_in_a_run_without_steps_is_not_high(tmp_path, pauses, parts, severity):
    kernels, calls, at = [], [], 0
    for number in range(20):
        at += 60_000_000 // len(pauses) if number in pauses else 0
        calls.append({"start": at, "end": at + 5_000, "name": "cudaLaunchKernel", "correlation": number})
        kernels.append(kernel(at + 10_000, at + 5_000_000, correlation=number))
        at += 5_000_000
    run = make_run(tmp_path, {0: {"kernels": kernels, "api": calls}})
    first = next(row for row in run.recipe("diagnose").to_pylist() if row["kind"] == "host-pause")
    assert first["lost_share"] == pytest.approx(60 / 160, abs=0.03)
    assert (first["evidence"]["parts_affected"], first["severity"]) == (parts, severity)


@pytest.mark.parametrize(
    ("lost", "few"),
    [
        ([[30, 30], [10, 0], [10, 0], [10, 0]], [0]),
        ([[12, 10], [10, 9], [10, 9], [10, 9]], [0, 1, 2, 3]),  # one step of all ranks is the most of it
        ([[30, 30], [30, 30], [30, 30], [0, 0]], [0, 1, 2, 3]),
    ],
)
def test_of_what_all_ranks_lose_the_few_are_named_that_lose_more(lost, few):
    lost = np.array(lost, np.float64)
    quartile = SimpleNamespace(
        excess=lambda values: np.maximum(values - np.percentile(values, 25, axis=0, method="lower"), 0),
        culprits=lambda values, share: (
            (values.sum(axis=1) >= share * values.sum(axis=1).max()) & (values.sum(axis=1) > 0)
        ),
    )
    assert np.flatnonzero(_few_of(quartile, lost, np.ones(4, np.bool_))).tolist() == few


def test_no_device_waits_for_launches_while_its_host_does_other_work():
    """By a replay, launching in no time gives back 100 ns a step, for the host comes to its next batch sooner."""
    times = {"launch": np.full((2, 3), 10.0), "data": np.full((2, 3), 200.0)}
    none = np.zeros((2, 3))
    facts = SimpleNamespace(
        steps=range(3), call_names={}, call_counts={}, kernels=60, launch_ns=9, kernel_total_ns=600, paused_ns=0
    )
    all_ranks = SimpleNamespace(
        own=none + 1_000,
        ranks=np.arange(2),
        steps=np.arange(3),
        span_ns=3_000,
        recovery=None,
        facts={0: facts, 1: facts},
        facts_of=lambda _rows: [facts, facts],
        of=lambda name: times.get(name, none),
        of_host=lambda name: times.get(name, none),
        excess=lambda values: values - values.min(axis=0),
        culprits=lambda lost, _share=0.5: lost.sum(axis=1) > 0,
        bounds_ns=lambda classes, _rows: np.sum([times.get(name, none)[0] for name in classes], axis=0),
        loss=lambda classes, *_, shared: Loss(300, "replay", (*classes, *shared), 0, 600),
    )
    assert {f.kind: f.loss.estimate_ns for f in find(all_ranks)} == {"data-stall": 300, "launch-bound": 30}
    times["sync"] = times["data"]  # after a wait the queue is empty, and fills as fast as the host launches
    assert {f.kind: f.loss.estimate_ns for f in find(all_ranks)}["launch-bound"] == 300
