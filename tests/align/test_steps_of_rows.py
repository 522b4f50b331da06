"""Steps by optimizers and periods, on rows."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from tests.making import kernel, make_run

from alltrace.align.steps import (
    RankSteps,
    _as_long,
    _between,
    _continued,
    _Family,
    _kinds,
    _last_works,
    _middles,
    _numbers,
    _outermost,
    _period,
    _periods,
    rank_steps,
)

NONE = np.iinfo(np.int64).min


def test_a_step_begins_with_what_comes_once_in_each_step():
    # loading (0) begins steps, logging (1) comes in the first alone, work (2) twice
    starts = np.array([0, 5, 10, 20, 100, 110, 120, 200, 210, 220])
    ends = starts + 4
    codes = np.array([1, 0, 2, 2, 0, 2, 2, 0, 2, 2])
    begin, end = _between(np.array([90, 190, 290]), starts, ends, codes)
    assert begin.tolist() == [5, 100, 200]
    assert end.tolist() == [100, 200, 290]  # it lasts 10 after its optimizer, but no longer than anything does
    later = _between(np.array([90, 190, 290]), np.append(starts, 294), np.append(ends, 330), np.append(codes, 1))
    assert later[1].tolist() == [100, 200, 300]


def test_without_such_a_range_steps_are_from_optimizer_to_optimizer():
    begin, end = _between(np.array([90, 190, 290]), np.array([100, 120]), np.array([110, 130]), np.array([0, 0]))
    assert (begin.tolist(), end.tolist()) == ([90, 190], [190, 290])


def steps_of(starts, ends, *, rank=0, numbers=None, **known):
    """The steps of a rank, of which only some is known."""
    others = dict.fromkeys(("device", "took", "copied", "computed", "saves", "prepared"), np.empty(0, np.int64))
    return RankSteps(rank, "range", starts, ends, numbers, **others | known)


def test_the_middle_of_a_step_is_that_of_its_device_work():
    steps = steps_of(np.array([0, 40]), np.array([20, 60]), device=np.array([[10, 31], [NONE, NONE]]))
    assert _middles(steps).tolist() == [20, 50]


def test_what_is_copied_ahead_for_a_step_is_not_in_its_middle():
    device = np.array([[0, 100], [10, 200], [20, 300], [330, 400], [340, 350]])
    steps = steps_of(np.arange(5), np.arange(5) + 1, device=device)
    assert _middles(steps).tolist() == [50, 150, 250, 365, 350]


def test_numbers_go_on_before_and_after():
    assert _continued(np.array([4, 7, 9]), np.array([-2, 0, 1, 2, 5])).tolist() == [2, 4, 7, 9, 12]


def test_ranges_are_the_outermost_of_the_thread_with_most():
    starts, ends = np.array([0, 5, 10, 0, 20, 9]), np.array([10, 8, 20, 30, 25, 12])
    threads = np.array([1, 1, 1, 2, 1, 1])
    assert _outermost(np.arange(6), starts, ends, threads).tolist() == [0, 4]
    assert _outermost(np.array([1, 3]), starts, ends, threads).tolist() == [1]
    assert _outermost(np.empty(0, np.int64), starts, ends, threads).tolist() == []


class Work:
    def launched_in(self, starts, ends):
        return (ends - starts) // 10 if self.launches else np.zeros(len(starts), np.int64)

    def __init__(self, launches=True):
        self.launches = launches


def family(starts, lasting=10):
    starts = np.array(starts)
    return _Family(starts, starts + lasting, np.full(len(starts), -1), 1, 0)


def test_works_of_optimizers_that_are_close_end_one_step():
    twice = family([0, 12, 1000, 1012, 2000, 2012])
    assert _last_works([twice], Work()).tolist() == [22, 1022, 2022]
    assert _last_works([twice], Work(launches=False)).tolist() == [22, 1022, 2022]
    assert _last_works([family([0, 500, 1000, 1500]), family([5, 1005], 8)], Work()).tolist() == [13, 1013]
    # as often: the one that covers more
    assert _last_works([family([0, 500], 8), family([5, 505], 20)], Work()).tolist() == [25, 525]
    assert _last_works([], Work()) is None


def test_families_are_worth_their_time_and_then_their_place():
    one = family([0, 100])
    assert one.worth() == (20, 0)
    assert one.holding(np.array([0, 1, 10, 50, 101])) == 3 / 2  # a range holds what is after its start, to its end
    assert one.spans().numbers is None
    numbered = _Family(one.starts, one.ends, np.array([4, 5]), 1, 2)
    assert (numbered.spans().numbers.tolist(), numbered.worth()) == ([4, 5], (20, -2))
    assert _Family(one.starts, one.ends, np.array([4, 4]), 1, 2).spans().numbers is None


def test_the_period_is_the_shortest_that_agrees_with_itself():
    step = np.array([3, 1, 1, 2, 1, 1, 2, 0, 0, 2])
    assert _period(np.tile(step, 12)) == 10
    assert _period(np.zeros(80, np.int64)) is None  # one kernel alone shows no period
    assert _period(np.random.default_rng(0).integers(0, 9, 200)) is None
    assert _period(np.tile([0, 1], 40)) == 2


def test_periods_begin_at_the_rarest_token():
    tokens = np.tile([3, 1, 1, 2, 1, 1, 2, 0, 0, 2], 12)
    places, whole = _periods(tokens)
    assert (places.tolist(), whole) == (list(range(0, 120, 10)), True)
    places, whole = _periods(tokens[4:-3])
    assert (places.tolist(), whole) == (list(range(6, 107, 10)), False)
    assert _periods(np.tile([3, 1, 1, 2, 1, 1, 2, 0, 0, 2], 2)) is None
    # nothing comes once: from the first on
    places, whole = _periods(np.tile([0, 1, 1, 0, 1, 0, 0, 1], 8))
    assert (places.tolist(), whole) == (list(range(0, 64, 8)), True)


def test_steps_repeat_where_a_kernel_runs_more_often_in_a_row(tmp_path):
    names = [name for step in range(12) for name in ["a", *["b"] * (4 + step), *["c", "d"] * 3, "e"]]
    kernels = [kernel(100 * n, 100 * n + 90, name, correlation=n) for n, name in enumerate(names)]
    api = [{"start": 100 * n - 50, "end": 100 * n - 40, "correlation": n} for n in range(len(names))]
    steps = rank_steps(make_run(tmp_path, {0: {"kernels": kernels, "api": api}}).in_session_time().rank(0))
    begins = [n for n, name in enumerate(names) if name == "a"]
    assert np.diff(steps.starts).tolist() == (100 * np.diff(begins)).tolist()


def test_a_last_step_that_ends_with_a_kernel_in_a_row_lasts_to_the_end_of_all(tmp_path):
    names = [name for step in range(12) for name in ["a", *["c", "d"] * 3, *["b"] * (4 + step)]]
    kernels = [kernel(100 * n, 100 * n + 90, name, correlation=n) for n, name in enumerate(names)]
    api = [{"start": 100 * n - 50, "end": 100 * n - 40, "correlation": n} for n in range(len(names))]
    steps = rank_steps(make_run(tmp_path, {0: {"kernels": kernels, "api": api}}).in_session_time().rank(0))
    begins = [n for n, name in enumerate(names) if name == "a"]
    last = steps.starts[0] + 100 * len(names) + 40
    assert steps.ends.tolist() == [*(steps.starts[0] + 100 * np.array(begins[1:])).tolist(), last]


def test_two_kernels_in_any_order_have_no_steps(tmp_path):
    draw = np.random.default_rng(7)
    kernels = [kernel(100 * n, 100 * n + 90, "ab"[draw.integers(2)], correlation=n) for n in range(1000)]
    assert rank_steps(make_run(tmp_path, {0: {"kernels": kernels}}).in_session_time().rank(0)) is None


def ranks_of(middles, hosts, components, numbers):
    """A run, and the steps of its ranks, of 2 ns each around their middles."""
    apply = SimpleNamespace(apply=lambda times: times)
    run = SimpleNamespace(
        rank=lambda number: SimpleNamespace(clock=apply),
        ranks=[SimpleNamespace(rank=n, host=host) for n, host in enumerate(hosts)],
        manifest=SimpleNamespace(clocks=[SimpleNamespace(host=h, component=c) for h, c in components.items()]),
    )
    nothing = [np.full((len(m), 2), NONE) for m in middles]
    middles = [np.array(m) for m in middles]
    each = zip(middles, numbers, nothing, strict=True)
    steps = [
        steps_of(its - 1, its + 1, rank=n, numbers=own, device=device) for n, (its, own, device) in enumerate(each)
    ]
    return run, steps


def numbers_of(*args):
    return {rank: its.tolist() for rank, its in _numbers(*ranks_of(*args)).items()}


def test_steps_are_numbered_by_lining_ranks_up():
    one = {"a": 0, "b": 0}
    assert numbers_of([[10, 20, 30, 40], [21, 31, 41]], "ab", one, [None, None]) == {0: [0, 1, 2, 3], 1: [1, 2, 3]}
    assert numbers_of([[20, 30, 40, 50], [9, 19, 29]], "ab", one, [None, None]) == {0: [1, 2, 3, 4], 1: [0, 1, 2]}
    apart = {"a": 0, "b": 1}
    assert numbers_of([[10, 20, 30], [1021, 1031, 1041]], "ab", apart, [None, None]) == {0: [0, 1, 2], 1: [0, 1, 2]}
    assert numbers_of([[10, 20], [12]], "ab", one, [np.array([7, 8]), None]) == {0: [7, 8], 1: [7]}
    assert numbers_of([[10, 20], [0, 11, 21]], "ab", one, [np.array([7, 8]), None]) == {0: [7, 8], 1: [6, 7, 8]}
    assert numbers_of([[10], [10]], "ab", one, [np.array([3]), np.array([4])]) == {0: [3], 1: [4]}
    assert numbers_of([], "", {}, []) == {}


def kinds_of(took, *, computed=None, copied=None, saves=None, prepared=None):
    count = len(took)
    took = np.array(took)
    known = {"computed": computed, "copied": copied, "prepared": prepared}
    known = {name: np.zeros(count, np.int64) if own is None else np.array(own) for name, own in known.items()}
    saving = np.zeros(count, np.bool_) if saves is None else np.isin(np.arange(count), saves)
    steps = steps_of(np.zeros(count, np.int64), took, took=took, saves=saving, **known)
    kinds = _kinds([steps], {0: np.arange(count)})
    return tuple([number for number, kind in kinds.items() if kind == one] for one in ("warm-up", "checkpoint"))


def test_longer_steps_that_copy_or_say_so_write_a_checkpoint():
    took = [100, 100, 100, 100, 150, 100, 100, 100, 100, 100]
    assert kinds_of(took) == ([], [])
    assert kinds_of(took, saves=[4]) == ([], [4])
    assert kinds_of(took, saves=[5]) == ([], [])
    assert kinds_of(took, copied=[0] * 4 + [(64 << 10) + 1] + [0] * 5) == ([], [4])
    assert kinds_of(took, copied=[0] * 4 + [64 << 10] + [0] * 5) == ([], [])
    offloaded = [1 << 20] * 4, [1 << 20] * 5
    assert kinds_of(took, copied=[*offloaded[0], (1 << 20) + (64 << 10) + 1, *offloaded[1]]) == ([], [4])
    assert kinds_of(took, copied=[*offloaded[0], (1 << 20) + (64 << 10), *offloaded[1]]) == ([], [])
    # what is copied differs from step to step by as much
    assert kinds_of(took, copied=[n << 18 for n in (4, 5, 6, 4, 7, 5, 6, 4, 5, 6)]) == ([], [])
    often = [100, 150, 100, 150, 100, 100, 150, 100, 100, 100, 100]
    assert kinds_of(often, saves=[1, 3, 6]) == ([], [])  # 3 of 11 are a part of the work
    assert kinds_of([*often, 100, 100], saves=[1, 3, 6]) == ([], [1, 3, 6])


def test_a_step_behind_the_first_warms_up_if_it_prepares_more_than_those_of_the_second_half():
    took = [300, 150, 100, 101, 99, 100, 100, 100]
    assert kinds_of(took, prepared=[9, 2, 1, 0, 1, 1, 0, 1])[0] == [0, 1]
    assert kinds_of([300, 150, 140, 101, 99, 100, 100, 100], prepared=[2, 2, 0, 0, 0, 0, 0, 0])[0] == [0, 1]
    assert kinds_of(took, computed=[200, 120, 100, 100, 100, 100, 100, 100], prepared=[9, 0, 0, 0, 0, 0, 0, 0])[0] == [
        0,
        1,
    ]
    # as many calls as later: a pause, and no warm-up
    assert kinds_of(took, prepared=[9, 1, 1, 0, 1, 1, 0, 1])[0] == [0]
    # without such calls in the first step the time alone shows it
    assert kinds_of(took, prepared=[1, 1, 1, 0, 1, 1, 0, 1])[0] == [0, 1]
    # steps differ by more, but what allocates is warming up all the same; what does that without losing time is not
    uneven = [300, 115, 100, 120, 90, 120, 100, 90]
    assert kinds_of(uneven, prepared=[9, 2, 0, 0, 0, 0, 0, 0])[0] == [0, 1]
    assert kinds_of([300, 104, *uneven[2:]], prepared=[9, 2, 0, 0, 0, 0, 0, 0])[0] == [0]
    assert kinds_of(uneven)[0] == [0]
    assert kinds_of([115, *uneven[2:]], prepared=[1, 0, 0, 0, 0, 0, 0])[0] == [0]
    assert kinds_of([115, *uneven[2:]])[0] == []


def test_first_steps_that_take_longer_are_a_warm_up():
    assert kinds_of([300, 150, 100, 101, 99, 100, 100, 100])[0] == [0, 1]
    assert kinds_of([300, 100, 100, 101, 99, 100, 100, 300])[0] == [0]
    assert kinds_of([100, 300, 100, 101, 99, 100, 100, 100])[0] == []
    late = [100, 100, 100, 100, 100, 100, 100, 300]
    assert kinds_of([101, *late[1:]], computed=[200, 100, 100, 100, 100, 100, 100, 100])[0] == [0]


def as_long(begun, sources, clocks=None):
    """The starts of the steps of ranks that begin at these times, one a host; by whether ranges name them."""
    hosts = "abcd"[: len(begun)]
    run, _ = ranks_of([], hosts, clocks or dict.fromkeys(hosts, 0), [])
    steps = []
    for rank, (starts, source) in enumerate(zip(begun, sources, strict=True)):
        ends = np.append(starts[1:], starts[-1] + 1)
        ones = np.ones(len(starts), np.int64)
        values = {
            "took": ends - starts,
            "copied": ones,
            "computed": ones,
            "prepared": ones,
            "saves": np.arange(len(starts)) == 6,
        }
        device = np.stack((starts + 1, ends + 2), axis=1)
        steps.append(RankSteps(rank, source, np.array(starts), ends, None, device, **values))
    return _as_long(run, steps)


BY_KERNELS = np.arange(5, 1005, 100)
"""Ten steps of a rank that repeats itself once in each."""

MICRO = np.concatenate([100 * np.arange(10) + at for at in (0, 7, 15, 70)])
"""Four micro-batches in each of them."""


def test_ranks_that_repeat_themselves_by_micro_batches_have_the_steps_of_the_others():
    whole, parts = as_long([BY_KERNELS, np.sort(MICRO)], ["kernels", "kernels"])
    assert whole.starts.tolist() == BY_KERNELS.tolist()
    # cut where all of the first step is there
    assert parts.starts.tolist() == [100 * step for step in range(10)]
    assert parts.ends.tolist() == [*parts.starts[1:], 971]
    assert (parts.device[:, 0] - parts.starts).tolist() == [1] * 10
    assert (parts.device[:, 1] - parts.ends).tolist() == [2] * 10
    assert parts.took.tolist() == [102, *[100] * 8, 71]
    assert parts.computed.tolist() == parts.copied.tolist() == parts.prepared.tolist() == [4] * 10
    assert parts.saves.tolist() == [False, True, *[False] * 8]


def test_a_rank_that_was_recorded_in_part_has_the_whole_of_its_steps():
    late = np.sort(MICRO)[5:-2]
    assert as_long([BY_KERNELS, late], ["kernels", "kernels"])[1].starts.tolist() == [107 + 100 * n for n in range(8)]


def test_a_rank_that_was_recorded_later_than_the_others_has_their_steps_too():
    for first in (3, 6):
        late = np.sort(MICRO)[4 * first :]
        parts = as_long([BY_KERNELS, late], ["kernels", "kernels"])[1]
        assert parts.starts.tolist() == [100 * step for step in range(first, 10)]
    apart = as_long([BY_KERNELS, np.sort(MICRO) + 5000], ["kernels", "kernels"])[1]
    assert len(apart.starts) == 40


def test_steps_before_and_after_the_others_were_recorded_are_not_lost():
    assert len(as_long([BY_KERNELS[4:7], np.sort(MICRO)], ["kernels", "kernels"])[1].starts) == 9
    parts = as_long([BY_KERNELS[3:8], np.sort(MICRO)[1:-1]], ["kernels", "kernels"])[1]
    assert parts.starts.tolist() == [100 * step + 7 for step in range(9)]
    assert parts.computed.tolist() == [4] * 9


def test_a_step_of_which_all_events_were_dropped_has_nothing_of_the_next():
    begun = np.concatenate((np.sort(MICRO), 1000 + np.sort(MICRO)))
    parts = as_long([np.append(BY_KERNELS, BY_KERNELS + 1000), np.delete(begun, range(28, 32))], ["kernels"] * 2)[1]
    assert parts.computed.tolist() == parts.copied.tolist() == parts.prepared.tolist() == [4] * 7 + [0] + [4] * 12
    assert parts.device[7].tolist() == [NONE, NONE]


def test_a_rank_without_one_of_its_steps_does_not_have_the_longest():
    steps = as_long([BY_KERNELS, np.delete(BY_KERNELS * 99 // 100, 5), np.sort(MICRO)], ["kernels"] * 3)
    assert [len(its.starts) for its in steps] == [10, 9, 10]


def test_periods_that_are_not_the_parts_of_other_steps_stay():
    uneven = np.sort(np.random.default_rng(0).choice(1000, 40, replace=False))  # as of requests to a server
    assert len(as_long([BY_KERNELS, uneven], ["kernels", "kernels"])[1].starts) == 40
    others = np.arange(0, 600, 56)  # of which two or none begin in some steps
    assert len(as_long([BY_KERNELS[:6] - 5, others], ["kernels", "kernels"])[1].starts) == len(others)
    for first in ("kernels", "range"):
        named = as_long([BY_KERNELS, np.sort(MICRO)], [first, "range"])
        assert [len(its.starts) for its in named] == [10, 40]
    apart = as_long([BY_KERNELS, np.sort(MICRO)], ["kernels", "kernels"], {"a": 0, "b": 1})
    assert [len(its.starts) for its in apart] == [10, 40]


def test_ranges_say_which_periods_are_a_step_before_longer_periods_do():
    twice, ranges, parts = as_long([BY_KERNELS[::2], BY_KERNELS, np.sort(MICRO)], ["kernels", "range", "kernels"])
    assert (len(twice.starts), len(ranges.starts), len(parts.starts)) == (5, 10, 10)
