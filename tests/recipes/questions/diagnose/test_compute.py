"""Slow devices, slow hosts, uneven work and random variation: runs made by hand, in which one thing is known to be
so."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from tests.making import collective, kernel, make_run
from tests.recipes.work import module, operator

from alltrace.recipes.analysis.variation import Variation, variation
from alltrace.recipes.questions.diagnose import compute
from alltrace.recipes.questions.diagnose.compute import _Cause
from alltrace.recipes.questions.diagnose.finding import Loss
from alltrace.recipes.questions.diagnose.same_work import most_added

US = 1000
GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"
EXPERT = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_kernel__5x_cublas"
ADD = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>>(int, T2, T3)"
KERNELS = ((GEMM, 400, 128), (EXPERT, 300, 64), (ADD, 100, 4096), (GEMM, 200, 96), (ADD, 50, 2048))
"""Name, time in us and blocks of the kernels of a step."""


def run_of(folder, ranks, steps, duration, *, grid=None, more=None, per_host=4, operators=False):
    """Steps of `KERNELS`, all launched before the first begins, and an all-reduce that ends when the last rank has
    arrived.

    `duration(rank, step, place)` stretches a kernel; `grid` its grid likewise; `more` says how many kernels are run
    twice. With `operators` each kernel is launched by one of its own, `op0` and so on, in a module.
    """
    tables = {r: {"kernels": [], "api": [], "ranges": []} for r in range(ranks)}
    begin = steps * US
    for step in range(steps):
        host, arrivals = step * US, {}
        for rank, made in tables.items():
            at, listed = begin, [*KERNELS, *KERNELS[: more(rank, step) if more else 0]]
            for place, (name, took, blocks) in enumerate(listed):
                length = int(took * US * duration(rank, step, place))
                number = len(made["api"]) + 1
                wide = int(blocks * (grid(rank, step, place) if grid else 1))
                made["kernels"].append(
                    kernel(at, at + length, name, correlation=number, grid_x=wide, grid_y=1, grid_z=1, block_x=256)
                )
                made["api"].append(
                    {
                        "start": host + place * 10,
                        "end": host + place * 10 + 9,
                        "name": "cudaLaunchKernel",
                        "correlation": number,
                    }
                )
                if operators:
                    made["ranges"].append(operator(f"op{place}", host + place * 10, host + place * 10 + 9))
                at += length
            if operators:
                made["ranges"].append(module("Expert_0", host, host + 85))
            arrivals[rank] = at
        end = max(arrivals.values()) + 50 * US
        for rank, made in tables.items():
            number = len(made["api"]) + 1
            made["kernels"].append(collective(arrivals[rank], end, correlation=number))
            made["api"].append(
                {"start": host + 90, "end": host + 99, "name": "cudaLaunchKernel", "correlation": number}
            )
            made["ranges"].append({"start": host, "end": host + 900, "name": f"step {step}"})
        begin = end
    return make_run(folder, tables, hosts={r: f"host{r // per_host}" for r in range(ranks)})


KINDS = ("straggler", "slow-host", "throttling", "device-stall", "imbalance", "jitter")


def found_in(run):
    """Kind and ranks of what costs compute time, in the order found."""
    rows = run.recipe("diagnose").to_pylist()
    return [r for r in rows if r["kind"] in KINDS]


def kinds(run):
    return [(r["kind"], r["ranks"]) for r in found_in(run)]


def test_a_healthy_run_has_none(tmp_path):
    assert kinds(run_of(tmp_path, 8, 6, lambda *_: 1.0)) == []


def test_the_same_work_that_takes_longer_on_one_rank_step_after_step_is_a_straggler(tmp_path):
    draw = random.Random(1)
    found = found_in(run_of(tmp_path, 8, 6, lambda r, *_: (1.2 if r == 5 else 1.0) * draw.uniform(0.99, 1.01)))
    assert [(r["kind"], r["ranks"]) for r in found] == [("straggler", [5])]
    assert found[0]["evidence"]["slowdown"] == pytest.approx(1.2, abs=0.02)
    assert found[0]["evidence"]["persistence"] > 0.9
    assert "drain" in found[0]["advice"]


def test_a_slow_rank_is_so_in_steps_in_which_no_other_rank_does_the_same(tmp_path):
    def own(rank, step, place):  # in two steps, most kernels have grids that only this rank has
        return 1 + (1 + 8 * rank + step) / 64 if step in (2, 5) and place < 3 else 1.0

    found = found_in(run_of(tmp_path, 4, 8, lambda r, *_: 1.3 if r == 1 else 1.0, grid=own))
    assert [(r["kind"], r["ranks"]) for r in found] == [("straggler", [1])]
    assert found[0]["evidence"]["steps_affected"] == 8


@pytest.mark.slow
def test_the_kernel_that_is_named_comes_with_what_launched_it(tmp_path):
    def hot(rank, _step, place):
        return 1.8 if rank == 2 and place == 1 else 1.0

    found = found_in(run_of(tmp_path, 8, 6, hot, grid=hot, operators=True))
    assert [(r["kind"], r["where"], r["launched_by"]) for r in found] == [("imbalance", EXPERT, "op1, in Expert_0")]
    assert {r["launched_by"] for r in found_in(run_of(tmp_path / "without", 8, 6, hot, grid=hot))} == {None}


def test_larger_grids_are_uneven_work_and_no_straggler(tmp_path):
    def hot(rank, _step, place):
        return 1.8 if rank == 2 and place == 1 else 1.0

    found = found_in(run_of(tmp_path, 8, 6, hot, grid=hot))
    assert [(r["kind"], r["ranks"]) for r in found] == [("imbalance", [2])]
    assert found[0]["where"] == EXPERT
    assert "drain" not in found[0]["advice"]
    assert found[0]["evidence"]["work_ratio"] == pytest.approx(1 + 0.8 * 300 / 1050, abs=0.01)


def test_a_kernel_of_one_grid_that_takes_longer_while_others_of_its_family_do_not_is_uneven_work(tmp_path):
    found = found_in(run_of(tmp_path, 8, 6, lambda r, _s, place: 1.8 if r == 2 and place == 1 else 1.0))
    assert [(r["kind"], r["ranks"]) for r in found] == [("imbalance", [2])]
    assert found[0]["evidence"]["breadth"] < 0.5


def test_more_launches_are_uneven_work(tmp_path):
    found = kinds(run_of(tmp_path, 8, 6, lambda *_: 1.0, more=lambda r, _s: 2 if r == 3 else 0))
    assert found == [("imbalance", [3])]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("by_grid", [True, False])
@pytest.mark.parametrize("ranks", [2, 4, 16])
def test_another_rank_in_each_step_is_uneven_work(tmp_path, ranks, by_grid):
    def turn(rank, step, _place):
        return 1.3 if step % ranks == rank else 1.0

    found = found_in(run_of(tmp_path, ranks, 17, turn, grid=turn if by_grid else None))
    assert [r["kind"] for r in found] == ["imbalance"]
    assert set(found[0]["ranks"]) == set(range(ranks))
    assert found[0]["evidence"]["persistence"] < 0.3


@pytest.mark.sampled(3)
@pytest.mark.parametrize("ranks", [2, 8, 16])
def test_noise_names_no_rank(tmp_path, ranks):
    draw = random.Random(ranks)
    noise = {(r, s): draw.uniform(0.88, 1.12) for r in range(ranks) for s in range(12)}
    found = found_in(run_of(tmp_path, ranks, 12, lambda r, s, _p: noise[r, s]))
    assert [(r["kind"], r["ranks"]) for r in found] == [("jitter", [])]


def test_a_rank_that_is_slow_in_a_few_steps_throttles(tmp_path):
    found = found_in(run_of(tmp_path, 8, 20, lambda r, s, _p: 1.4 if r == 6 and s % 5 == 2 else 1.0))
    assert [(r["kind"], r["ranks"], r["evidence"]["steps_affected"]) for r in found] == [("throttling", [6], 4)]


def test_a_rank_that_becomes_ever_slower_throttles(tmp_path):
    found = kinds(run_of(tmp_path, 8, 20, lambda r, s, _p: 1 + 0.02 * s if r == 6 else 1.0))
    assert found == [("throttling", [6])]


@pytest.mark.slow
def test_a_slow_host_and_a_slower_rank_are_two_findings_the_largest_first(tmp_path):
    found = found_in(run_of(tmp_path, 16, 6, lambda r, *_: 1.15 if r == 13 else 1.08 if r // 4 == 1 else 1.0))
    assert [(r["kind"], r["ranks"], r["hosts"]) for r in found] == [
        ("straggler", [13], ["host3"]),
        ("slow-host", [4, 5, 6, 7], ["host1"]),
    ]
    assert [r["evidence"]["slowdown"] for r in found] == [1.15, 1.08]


@pytest.mark.slow
def test_a_slower_rank_of_a_slow_host_is_one_more_finding(tmp_path):
    found = found_in(run_of(tmp_path, 16, 6, lambda r, *_: 1.3 if r == 6 else 1.1 if r // 4 == 1 else 1.0))
    assert [(r["kind"], r["ranks"]) for r in found] == [("straggler", [6]), ("slow-host", [4, 5, 7])]


@pytest.mark.slow
def test_ranks_that_are_slow_alike_are_one_finding_and_others_are_not(tmp_path):
    slow = {1: 1.3, 9: 1.3, 14: 1.1}
    found = kinds(run_of(tmp_path, 16, 6, lambda r, *_: slow.get(r, 1.0)))
    assert found == [("straggler", [1, 9]), ("straggler", [14])]


def test_devices_of_a_slow_host_differ_as_those_of_others_do(tmp_path):
    pace = (1.0, 1.002, 0.999, 1.005, 1.021, 1.019, 1.022, 1.015)
    found = kinds(run_of(tmp_path, 8, 6, lambda r, *_: pace[r]))
    assert found == [("slow-host", [4, 5, 6, 7])]


def cause(kind, rows, lost_ns):
    """A cause that takes so much of each of two steps from some of four ranks."""
    lost = np.zeros((4, 2))
    lost[rows] = lost_ns
    return _Cause(kind, np.array(rows), lost, "", "gemm", {"excess_ns_per_step": lost_ns}, 0.9)


@pytest.mark.parametrize(
    ("kind", "rows", "lost_ns", "joined"),
    [
        ("slow-host", [2, 3], 10, True),
        ("slow-host", [2, 3], 11, False),  # more than losses are sure by
        ("straggler", [2], 10, True),  # some of the ranks
        ("straggler", [2], 11, False),
        ("slow-host", [1, 2], 5, False),  # another rank
        ("slow-host", [2, 3], 2_000, True),  # either may be the part
        ("imbalance", [2, 3], 90, True),  # one kind on the same ranks is one cause
        ("imbalance", [1, 2], 90, False),
    ],
)
def test_what_the_same_ranks_lose_beside_their_work_is_a_part_of_it(kind, rows, lost_ns, joined):
    uneven, other = cause("imbalance", [2, 3], 100), cause(kind, rows, lost_ns)
    for causes in ([uneven, other], [other, uneven]):
        found = compute._one_of_each(causes)
        if not joined:
            assert {id(c) for c in found} == {id(c) for c in causes}
            continue
        assert [c.kind for c in found] == [kind if lost_ns > 100 else "imbalance"]
        assert found[0].lost.tolist() == (uneven.lost + other.lost).tolist()
        assert found[0].evidence["excess_ns_per_step"] == 100 + lost_ns * len(rows) / 2


def test_a_large_part_keeps_its_advice():
    more = [replace(cause("straggler", [2], ns), advice=f"look at {ns}") for ns in (100, 90, 5)]
    assert [c.advice for c in compute._one_of_each(more)] == ["look at 100 look at 90"]


def test_all_that_is_a_part_of_the_largest_joins_it():
    parts = [cause("straggler", [2], 9), cause("slow-host", [3], 8)]
    found = compute._one_of_each([*parts, cause("imbalance", [2, 3], 100)])
    assert [(c.kind, c.lost.sum()) for c in found] == [("imbalance", 434)]


@pytest.mark.parametrize(
    ("behind_ns", "told"), [(0, [False]), (20, [False, False]), (400, [True, True]), (900, [True, True])]
)
def test_what_other_ranks_compute_longer_hides_a_rank_and_what_it_loses_by_itself_does_not(behind_ns, told):
    """A rank that is 500 ns late in each step, and perhaps one that is later; by a replay both cost nothing."""
    causes = [cause("imbalance", [2], 500)] + [cause("imbalance", [3], behind_ns)] * bool(behind_ns)
    own = np.full((4, 2), 1_000.0) + sum(c.lost for c in causes)

    def loss(_classes, lost, *change):
        ceiling = int((own.max(axis=0) - (own - lost).max(axis=0)).sum())
        return Loss(0 if change else ceiling, "replay", ("compute",), 0, 0)

    all_ranks = SimpleNamespace(
        own=own, span_ns=10_000, steps=np.arange(2), ranks=np.arange(4), roles={}, whole_run=False, loss=loss,
        less_compute=lambda lost: lost,
        of=lambda _name: own, alignment=SimpleNamespace(error_ns=lambda *_: 0),
        facts={r: SimpleNamespace(work=SimpleNamespace(slices=None)) for r in range(4)},
    )  # fmt: skip
    assert [f.told for f in compute._findings(all_ranks, causes)] == told


@pytest.mark.slow
def test_advice_names_all_ranks_in_ranges(tmp_path):
    slow = {*range(12, 20), 61}
    found = found_in(run_of(tmp_path, 64, 3, lambda r, *_: 1.2 if r in slow else 1.0, per_host=16))
    assert [r["ranks"] for r in found] == [sorted(slow)]
    assert "ranks 12-19, 61" in found[0]["advice"]


def test_a_straggler_shows_through_noise(tmp_path):
    draw = random.Random(3)
    noise = {(r, s): draw.uniform(0.97, 1.03) for r in range(8) for s in range(20)}
    found = kinds(run_of(tmp_path, 8, 20, lambda r, s, _p: noise[r, s] * (1.15 if r == 1 else 1)))
    assert found[0] == ("straggler", [1])
    assert all(kind in ("straggler", "jitter") for kind, _ in found)


def run_without_steps(folder, duration):
    """Kernels in no order that repeats, on four ranks alike; `duration(rank, place)` stretches a kernel."""
    draw = random.Random(9)
    listed = draw.choices(KERNELS, k=160)
    tables = {r: {"kernels": []} for r in range(4)}
    for rank, made in tables.items():
        at = 0
        for place, (name, took, blocks) in enumerate(listed):
            length = int(took * US * duration(rank, place))
            made["kernels"].append(kernel(at, at + length, name, grid_x=blocks, grid_y=1, grid_z=1, block_x=256))
            at += length
    return make_run(folder, tables)


def test_a_run_without_steps_is_judged_in_pieces(tmp_path):
    run = run_without_steps(tmp_path / "slow", lambda r, _p: 1.1 if r == 1 else 1.0)
    answer = run.recipe("diagnose")
    assert any("no steps were found" in note for note in answer.notes)
    assert kinds(run) == [("straggler", [1])]
    # longer for a part of the run on each rank in turn is not a device, although one has more of it
    turns = run_without_steps(
        tmp_path / "turns", lambda r, p: 1.5 if (0, 1, 2, 3, 1, 1, None, None)[p // 20] == r else 1.0
    )
    assert "straggler" not in [kind for kind, _ in kinds(turns)]


SLOW_HOST = np.array([[False] * 4] * 4 + [[True] * 4] * 4)


@pytest.mark.parametrize(
    ("slow", "per_host", "of_host"),
    [
        (SLOW_HOST, 4, True),
        (SLOW_HOST[::-1], 4, True),
        (np.roll(SLOW_HOST, 1, axis=0), 4, False),  # ranks of two hosts
        (SLOW_HOST & (np.arange(4) != np.arange(8)[:, None] % 4), 4, True),  # each but in one step
        (SLOW_HOST & (np.arange(4) == np.arange(8)[:, None] % 4), 4, False),  # each in another step
        (np.repeat([False, True], [6, 2])[:, None] | np.zeros((8, 4), bool), 2, False),  # two of eight can be chance
        (np.ones((8, 4), bool), 4, False),
    ],
)
def test_slow_steps_of_all_ranks_of_a_host_are_the_hosts(slow, per_host, of_host):
    hosts = {r: f"h{r // per_host}" for r in range(8)}
    all_ranks = SimpleNamespace(
        ranks=np.arange(8),
        hosts=hosts,
        hosts_of=lambda ranks: tuple({h for h in hosts.values() if {r for r in hosts if hosts[r] == h} <= set(ranks)}),
    )
    none = np.zeros(8, bool)
    before = Variation(1 + 0.02 * slow, 1 + 0.02 * slow.mean(axis=1), 0.03, 0.001, none, none, slow, 0.9)
    after = compute._of_whole_hosts(all_ranks, before, 0.005)
    assert after.persistent.tolist() == (slow.any(axis=1) if of_host else none).tolist()
    assert (after.least, after.rotates) == ((0.005, False) if of_host else (0.03, before.rotates))


def test_what_a_rank_does_alone_is_found_beside_what_it_does_slowly():
    """Each rank has the works 1 and 2, which one rank takes longer for; it alone has the work 3."""

    def facts(sums_ns, works=(1, 2)):
        ids = np.array(works)
        work = SimpleNamespace(
            names=ids,
            works=np.column_stack((ids, ids)),
            sums_ns=np.array([sums_ns] * 2),
            counts=np.ones((2, len(ids)), np.int64),
        )
        return SimpleNamespace(work=work)

    ranks = {rank: facts((100, 200)) for rank in range(3)} | {3: facts((180, 200, 50), (1, 2, 3))}
    all_ranks = SimpleNamespace(
        facts=ranks, name_of_most=lambda parts: str(max(zip(*parts[0], strict=True), key=lambda one: one[1])[0])
    )
    assert most_added(all_ranks, np.array([3])) == ("3", 1.0)
    assert most_added(all_ranks, np.array([0])) == ("1", 0.0)


def test_what_takes_most_of_a_rank_is_told_beside_causes_of_ranks_only():
    uneven, of_all = cause("imbalance", [2], 100), cause("jitter", [0, 1, 2, 3], 900)
    assert compute._takes_most(uneven, [uneven, cause("straggler", [2], 90)])
    assert not compute._takes_most(uneven, [uneven, cause("straggler", [2], 110)])
    assert compute._takes_most(uneven, [uneven, replace(of_all, rows=np.empty(0, np.int64))])


@pytest.mark.parametrize(
    ("more", "ratio"),
    [
        ((3, 2, 1, 0), None),  # of 1,000, which nobody notices
        ((400, 8, 6, 0), 1.39),  # most of the time is lost by the one of which the others have nearly the same work
    ],
)
def test_uneven_steps_are_told_by_what_costs_the_time_and_not_at_all_if_all_have_the_same(monkeypatch, more, ratio):
    own = np.array([[1000.0 + more[(rank + step) % 4] for step in range(12)] for rank in range(4)])
    monkeypatch.setattr(compute, "most_added", lambda *_: ("", 0.0))
    all_ranks = SimpleNamespace(named=str, steps=np.arange(12), judges_hosts=False)
    uneven = replace(variation(own, 0.005, spread=False), slow=np.zeros(own.shape, np.bool_))
    found = compute._uneven_work(all_ranks, SimpleNamespace(own=own), uneven, 0.005)
    assert [c.evidence["work_ratio"] for c in found] == ([] if ratio is None else [pytest.approx(ratio, abs=0.01)])
