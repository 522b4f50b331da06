"""The steps of simulated runs against those that were simulated."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from tests.making import kernel, make_run

import alltrace
from alltrace.align import steps
from alltrace.align.steps import find_steps, rank_steps
from alltrace.synth import write_run

STEPS = 7
SMALL = {
    "ranks": 8,
    "hosts": 2,
    "steps": STEPS,
    "kernels_per_layer": 6,
    "layers": 5,
    "warmup_steps": 1,
    "checkpoint_every": 4,
}


def steps_of(run):
    return find_steps(run, [rank_steps(run.rank(r.rank)) for r in run.ranks])


def found(folder, layout, **values):
    """The rows of all ranks, and the truth."""
    truth = write_run(layout, folder / "reports", **{**SMALL, **values}, ideal=True)
    return alltrace.open(folder / "reports", cache_dir=folder / "cache").recipe("steps").to_pylist(), truth


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    ("layout", "named"),
    [
        ("tensor-data", "step"),
        ("pipeline", "step"),
        ("experts", "step"),
        ("pipeline", "optimizer"),
        ("sharded", "optimizer"),
        ("pipeline", "nothing"),
        ("sharded", "nothing"),
    ],
)
def test_every_rank_has_the_steps_that_were_simulated_and_their_kinds(tmp_path, layout, named):
    extra = {"expert_parallel": 4} if layout == "experts" else {}
    names = {"step": {"step_names": "step"}, "optimizer": {"step_names": "none"}, "nothing": {"nvtx": False}}[named]
    rows, truth = found(tmp_path, layout, **names, **extra)
    assert {r["source"] for r in rows} == {"kernels" if named == "nothing" else "range"}
    for rank in range(8):
        own = [r for r in rows if r["rank"] == rank]
        assert [r["step"] for r in own] == list(range(STEPS))
        assert [r["kind"] for r in own] == ["warm-up", "step", "step", "checkpoint", "step", "step", "step"]
        # every other step is as long as it was, but for the one after the warm-up, which a pipeline enters unevenly
        true = np.diff(np.array(truth.steps_ns[rank]), axis=1).ravel()
        taken = np.array([r["duration_ns"] for r in own])
        assert taken[[4, 5]] == pytest.approx(true[[4, 5]], rel=0.02)


@pytest.mark.slow
def test_ranks_whose_clocks_nothing_connects_still_have_the_same_first_step(tmp_path):
    rows, _ = found(tmp_path, "pipeline", nvtx=False, offset_ms=500.0)
    assert {r["step"] for r in rows} == set(range(STEPS))
    assert all(sum(r["step"] == n for r in rows) == 8 for n in range(STEPS))


@pytest.mark.parametrize("seed", range(4))
def test_steps_that_differ_without_order_are_no_warm_up(tmp_path, seed):
    chance = np.random.default_rng(seed)
    assert _kinds(tmp_path, chance.permutation([700, 800, 900, 1000, 1100, 1200, 1300])) == ["step"] * 7


@pytest.mark.parametrize(
    ("took", "warm"),
    [
        ([2000, 1000, 1010, 990, 1000, 1005, 995], 1),
        ([2000, 1150, 1010, 990, 1000, 1005, 995], 2),
        # every other step reads the loss
        ([1360, 1010, 850, 1020, 860, 1000, 840], 1),
        # what comes back is not a warm-up
        ([1150, 1000, 1000, 1150, 1000, 1000, 1000], 0),
        ([1030, 1000, 1000, 1001, 1000, 1000, 1000], 0),
    ],
)
def test_first_steps_that_stand_out_on_the_device_are_warm_up(tmp_path, took, warm):
    assert _kinds(tmp_path, took) == ["warm-up"] * warm + ["step"] * (7 - warm)


@pytest.mark.parametrize(
    ("took", "computed", "warm"),
    [
        # hosts are late in steps behind the first, which take as long
        ([1300, 1250, 1350, 1000, 1400, 1300, 1000], [1250, 950, 960, 950, 955, 950, 945], 1),
        # kernels that differ from step to step warm nothing up
        ([1300, 1250, 1350, 1000, 1400, 1300, 1000], [980, 700, 960, 800, 955, 750, 945], 0),
        ([1300, 1250, 1350, 1000, 1400, 1300, 1000], [950, 950, 960, 950, 955, 950, 945], 0),
    ],
)
def test_a_first_step_whose_kernels_take_longer_than_any_later_is_warm_up(tmp_path, took, computed, warm):
    assert _kinds(tmp_path, took, computed) == ["warm-up"] * warm + ["step"] * (7 - warm)


@pytest.mark.parametrize(("kind", "warm"), [("compute", 1), ("collective", 0), ("meeting", 0)])
def test_what_waits_for_other_ranks_is_no_compute_of_a_first_step(tmp_path, kind, warm):
    took, worked = [1300, 1250, 1350, 1000, 1400, 1300, 1000], [1250, 950, 960, 950, 955, 950, 945]
    assert _kinds(tmp_path, took, worked, kind) == ["warm-up"] * warm + ["step"] * (7 - warm)


def _kinds(folder, took, computed=None, kind="compute"):
    """The kinds of steps that take so long on the device, of a host that runs ahead and takes long for every second
    one."""
    ends = 10 + np.cumsum(took)
    works = zip(ends, took if computed is None else computed, strict=True)
    kernels = [kernel(start=int(end - ns), end=int(end), correlation=n, kind=kind) for n, (end, ns) in enumerate(works)]
    host = [(2 * n, 2 * n + 1 + n % 2) for n in range(len(took))]
    api = [
        {"start": start, "end": end, "correlation": n, "name": "cudaLaunchKernel"}
        for n, (start, end) in enumerate(host)
    ]
    ranges = [{"start": start, "end": end, "name": f"step {n}"} for n, (start, end) in enumerate(host)]
    table, _ = steps_of(make_run(folder / "run", {0: {"kernels": kernels, "api": api, "ranges": ranges}}))
    return table.column("kind").to_pylist()


def test_ranges_that_launch_nothing_are_no_steps(tmp_path):
    kernels = [
        kernel(start=1000 * n + 100 * k, end=1000 * n + 100 * k + 90, name=f"k{k}") for n in range(8) for k in range(9)
    ]
    ranges = [{"start": 1000 * n + 950, "end": 1000 * n + 960, "name": f"step {n}"} for n in range(8)]
    table, _ = steps_of(make_run(tmp_path / "run", {0: {"kernels": kernels, "ranges": ranges}}))
    assert set(table.column("source").to_pylist()) == {"kernels"}


def _named(number):
    return {"start": 1000 * number, "end": 1000 * number + 900, "name": f"step {number}"}


def _repeated(numbers):
    return [{"start": 1000 * n, "end": 1000 * n + 900, "name": "train_step"} for n in numbers]


@pytest.mark.parametrize(
    ("own", "others", "wanted"),
    [
        (range(100, 106), range(100, 106), list(range(100, 106))),
        (range(100, 104), range(98, 106), list(range(98, 106))),
        ((100, 101, 105, 106), (100, 101, 105), [100, 101, 105]),
        (range(2), range(-1, 2), [0, 1, 2]),
    ],
)
def test_ranks_without_numbers_have_those_of_the_others(tmp_path, own, others, wanted):
    ranks = {0: {"ranges": [_named(n) for n in own]}, 1: {"ranges": _repeated(others)}}
    steps = steps_of(make_run(tmp_path, ranks))[0].to_pylist()
    assert [s["step"] for s in steps if s["rank"] == 1] == wanted
    assert [s["step"] for s in steps if s["rank"] == 0] == [n - min(0, *others) for n in own]


def _launch(start, correlation, process=0):
    return {"start": start, "end": start + 5, "correlation": correlation, "process": process, "kind": "runtime"}


@pytest.mark.parametrize("at", [0, 3400], ids=["before", "behind"])
def test_a_process_beside_does_not_launch_the_work_of_another(tmp_path, at):
    """Each process counts its correlations from 1."""
    rows = {
        "processes": [{"process": n, "pid": 10 + n, "name": "train"} for n in range(2)],
        "ranges": [_named(n) for n in (1, 2, 3)],
        "kernels": [kernel(1100 * n, 1100 * n + 50, correlation=n) for n in (1, 2)],
        "api": [_launch(at + n, n, process=1) for n in (1, 2)] + [_launch(1050 * n, n) for n in (1, 2)],
    }
    steps = steps_of(make_run(tmp_path, {0: rows}))[0].to_pylist()
    assert [(s["device_start"], s["device_end"]) for s in steps] == [(1100, 1150), (2200, 2250), (None, None)]


def test_work_and_a_call_without_correlation_do_not_belong_together(tmp_path):
    rows = {
        "ranges": [_named(n) for n in (1, 2, 3)],
        "kernels": [kernel(1100 * n, 1100 * n + 50, correlation=None) for n in (1, 2)],
        "api": [_launch(100, None), _launch(2050, 2)],
    }
    steps = steps_of(make_run(tmp_path, {0: rows}))[0].to_pylist()
    assert [(s["device_start"], s["device_end"]) for s in steps] == [(1100, 1150), (2200, 2250), (None, None)]


def _range(start, end, name, thread=0, depth=0):
    return {"start": start, "end": end, "name": name, "thread": thread, "depth": depth}


def _found(folder, ranges, **rows):
    found = steps_of(make_run(folder, {0: {"ranges": ranges, **rows}}))[0].to_pylist()
    return [(s["step"], s["start"], s["end"]) for s in found]


def _epochs(optimizers=True):
    """Two iterations of a benchmark with four steps each, of which each has three micro-batches and ends with an
    optimizer."""
    rows = []
    for n in range(2):
        rows.append(_range(10_000 * n, 10_000 * n + 9_900, f"iteration {n}"))
        for step in range(4):
            begin = 10_000 * n + 2_400 * step + 10
            rows.append(_range(begin, begin + 2_300, "train_step", depth=1))
            rows += [_range(begin + 700 * m + 1, begin + 700 * m + 600, "batch", depth=2) for m in range(3)]
            if optimizers:
                rows.append(_range(begin + 2_110, begin + 2_200, "Optimizer.step#SGD.step", depth=2))
    return rows


def test_the_step_is_what_holds_one_work_of_an_optimizer(tmp_path):
    wanted = [
        (4 * n + step, begin, begin + 2_300)
        for n in range(2)
        for step in range(4)
        for begin in [10_000 * n + 2_400 * step + 10]
    ]
    assert _found(tmp_path / "with", _epochs()) == wanted
    # nothing tells: the outermost
    assert _found(tmp_path / "without", _epochs(optimizers=False)) == [(0, 0, 9_900), (1, 10_000, 19_900)]


def test_nested_ranges_of_one_name_are_one_step(tmp_path):
    ranges = [_range(100 * n + d, 100 * n + 90 - d, "step", depth=d) for n in range(4) for d in range(3)]
    assert _found(tmp_path, ranges) == [(n, 100 * n, 100 * n + 90) for n in range(4)]


def test_batches_of_a_thread_that_loads_data_are_no_steps(tmp_path):
    ranges = [_range(100 * n, 100 * n + 60, f"step {n}") for n in range(4)]
    ranges += [_range(80 * n, 80 * n + 79, f"batch {n}", thread=1) for n in range(5)]
    threads = [{"thread": n, "process": 0, "tid": 4001 + n, "name": None} for n in range(2)]
    api = [{**_launch(100 * n + 10, n), "thread": 0} for n in range(4)]
    assert _found(tmp_path, ranges, threads=threads, api=api) == [(n, 100 * n, 100 * n + 60) for n in range(4)]


@pytest.mark.parametrize("optimizers", [1, 2], ids=["one", "two"])
def test_optimizers_alone_end_the_steps(tmp_path, optimizers):
    """With a pause between the first range of the program and its first step, and the loss read behind the
    optimizer."""
    ranges = [_range(0, 50, "init")]
    for n in range(5):
        at = 1000 + 200 * n
        ranges += [_range(at, at + 60, "forward"), _range(at + 61, at + 120, "backward")]
        ranges += [_range(at + 125 + 10 * k, at + 133 + 10 * k, "Optimizer.step#AdamW.step") for k in range(optimizers)]
        ranges += [_range(at + 150, at + 180, "loss")] if n < 4 else [_range(at + 150, at + 300, "loss")]
    steps = [(n, 1000 + 200 * n, 1200 + 200 * n) for n in range(5)]
    assert _found(tmp_path, ranges) == steps


@pytest.mark.parametrize("optimizers", [1, 2], ids=["one", "two"])
def test_a_host_that_waits_in_one_step_and_runs_ahead_in_the_next_has_all_steps(tmp_path, optimizers):
    """Each step launches 40 kernels, and two more between its optimizers; every third one waits."""
    ranges, api, kernels = [], [], []
    at = 1000
    for n in range(7):
        ranges.append(_range(at, at + 60 + (5000 if n % 3 == 0 else 0), "forward"))
        at = ranges[-1]["end"]
        ranges += [_range(at + 10 + 20 * k, at + 20 + 20 * k, "Optimizer.step#AdamW.step") for k in range(optimizers)]
        launched = [ranges[-1 - optimizers]["start"] + k for k in range(40)] + [at + 21 + k for k in range(2)]
        for time in launched:
            kernels.append(kernel(time + 1, time + 2, correlation=len(api)))
            api.append(_launch(time, len(api)))
        at = ranges[-1]["end"] + 30
    rows = {"kernels": kernels, "api": api}
    assert [s[0] for s in _found(tmp_path, ranges, **rows)] == list(range(7))


def test_of_nested_optimizers_the_outer_one_counts(tmp_path):
    ranges = []
    for n in range(4):
        at = 1000 * n
        ranges += [_range(at, at + 500, "forward"), _range(at + 600, at + 900, "DeepSpeedZeroOptimizer_Stage3.step")]
        ranges += [
            _range(at + 610 + 95 * k, at + 620 + 95 * k, "Optimizer.step#FusedAdam.step", depth=1) for k in range(3)
        ]
    assert _found(tmp_path, ranges) == [(0, 0, 1000), (1, 1000, 2000), (2, 2000, 3000), (3, 3000, 3900)]


def test_validation_is_a_step_where_nothing_trains(tmp_path):
    ranges = [_range(100 * n, 100 * n + 90, "validation_step") for n in range(4)]
    assert len(_found(tmp_path / "alone", ranges)) == 4
    training = [_range(1000 + 10 * n, 1005 + 10 * n, "train_step") for n in range(2)]
    assert _found(tmp_path / "beside", ranges + training) == [(0, 1000, 1005), (1, 1010, 1015)]


@pytest.mark.parametrize(
    ("name", "steps"), [("ProfilerStep#7", [7]), ("execute_context_0(0)_generation_4(4)", [0]), ("train_step", [])]
)
def test_one_range_is_a_step_where_its_name_says_so(tmp_path, name, steps):
    assert [s[0] for s in _found(tmp_path, [_range(0, 100, name)])] == steps


def test_a_graph_that_launches_layers_has_no_steps(tmp_path):
    """The kernels of ten layers repeat, but one call launches them all."""
    kernels = [kernel(1000 + 10 * n, 1009 + 10 * n, f"kernel {n % 8}", correlation=1) for n in range(80)]
    assert _found(tmp_path, [], kernels=kernels, api=[_launch(10, 1)]) == []


def test_a_longer_step_that_brings_much_more_home_than_others_is_a_checkpoint_however_small_the_part_of_a_model():
    def kinds(saved, length):
        took = np.array([100, 100, 100, length, 100, 100])
        copied, none = np.array([4, 4, 4, saved, 4, 4]), np.zeros(6, int)
        found = SimpleNamespace(
            rank=0,
            took=took,
            starts=none,
            ends=took,
            copied=copied,
            computed=none,
            prepared=none,
            saves=np.zeros(6, bool),
        )
        return list(steps._kinds([found], {0: np.arange(6)}).values())

    assert kinds(400_000, 200)[3] == "checkpoint"
    assert kinds(400_000, 100) == ["step"] * 6
    assert kinds(40_000, 200) == ["step"] * 6


@pytest.mark.parametrize(
    ("every", "kind"), [(12, "checkpoint"), (5, "checkpoint"), (4, "step"), (3, "step"), (2, "step")]
)
def test_checkpoints_in_a_quarter_of_the_steps_are_ordinary_steps(every, kind):
    saving = np.arange(24) % every == every - 1
    took, none = np.where(saving, 200, 100), np.zeros(24, int)
    copied = np.where(saving, 400_000, 4)
    found = SimpleNamespace(
        rank=0, took=took, starts=none, ends=took, copied=copied, computed=none, prepared=none, saves=np.zeros(24, bool)
    )
    kinds = steps._kinds([found], {0: np.arange(24)})
    assert {kinds[step] for step in np.flatnonzero(saving).tolist()} == {kind}
    assert {kinds[step] for step in np.flatnonzero(~saving).tolist()} == {"step"}


@pytest.mark.parametrize(("saving", "kind"), [((1, 3), "checkpoint"), ((1, 2, 3), "step")])
def test_a_long_step_that_names_a_save_is_a_checkpoint_where_at_most_half_of_all_do(saving, kind):
    saves, none = np.isin(np.arange(4), saving), np.zeros(4, int)
    took = np.array([100, 100, 100, 200])
    found = SimpleNamespace(
        rank=0, took=took, starts=none, ends=took, copied=none, computed=none, prepared=none, saves=saves
    )
    assert list(steps._kinds([found], {0: np.arange(4)}).values()) == ["step"] * 3 + [kind]


def test_a_stage_whose_micro_batches_are_alike_has_the_steps_of_the_others(tmp_path):
    def kernels(names):
        return [
            kernel(start=10_000 * step + 700 * place, end=10_000 * step + 700 * place + 600, name=name)
            for step in range(9)
            for place, name in enumerate(names)
        ]

    ranks = {0: {"kernels": kernels("abcdefghijkl")}, 1: {"kernels": kernels("xyz" * 4)}}
    table, _ = steps_of(make_run(tmp_path / "run", ranks))
    rows = table.to_pylist()
    assert [r["step"] for r in rows if r["rank"] == 0] == list(range(9))
    assert [r["step"] for r in rows if r["rank"] == 1] == list(range(9))
