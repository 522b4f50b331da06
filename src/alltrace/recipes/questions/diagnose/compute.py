"""Ranks that compute longer than others: slow devices, slow hosts, uneven work, and what varies at random.

`same_work` splits a rank's compute time into what the same work takes longer than elsewhere, and what it has more work.
`variation` says of each whether it belongs to ranks, rotates, or is random.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from alltrace.recipes.analysis.change_in_time import Throttled, throttled
from alltrace.recipes.analysis.variation import Variation, by_step, variation
from alltrace.recipes.questions.diagnose.all_rank_facts import AllRankFacts
from alltrace.recipes.questions.diagnose.finding import LEAST_SHARE, Finding
from alltrace.recipes.questions.diagnose.recovered_time import RecoveredTime
from alltrace.recipes.questions.diagnose.same_work import SameWork, breadth, most_added, most_delayed, same_work
from alltrace.recipes.questions.diagnose.stalls import stalls
from alltrace.replay.rank_graph import COMPUTE
from alltrace.trace.arrays import Flags, Floats, Int64
from alltrace.trace.distinct import distinct_rows, occurrences, sorted_groups, values_by

_MIX = np.int64(0x9E3779B97F4A7C1)  # an odd number; its multiples distinguish sets of names

_DEVIATIONS = 3.0
"""Durations that are so many standard deviations away from the median, in logarithms, are left out of a mean,"""

_FEWEST = 5  # if there are as many


def even_durations(run: RecoveredTime, ranks: Int64, steps: Int64, apart: Flags, even: Flags) -> Int64:
    """The weights of the run's graph if kernels always take as long as the same kernels do as a rule.

    Programs repeat themselves: the n-th segment of kernels of a step has the same kernels in other steps and on ranks
    alike. Segments with the same place in the step, the same number of kernels and the same names are the same; each
    then takes the mean of all but those far from the others (`_DEVIATIONS`), as a few long ones are no rule. Kernels of
    a slow device are only compared with each other, so that it stays slow.

    `ranks`: The ranks, ascending. `steps`: The judged steps, ascending.
    """
    replay = run.replay
    _, places = replay.names
    nodes, own, keys = [], [], []
    for part, base, place in zip(replay.parts, replay.base.tolist(), places, strict=True):
        size = len(part.when)
        took = np.bincount(part.cell_node, part.cell_ns, minlength=size)
        count = np.bincount(part.cell_node, part.cell_count, minlength=size).astype(np.int64)
        mix = np.zeros(size, np.int64)
        np.add.at(mix, part.cell_node, (place[part.cell_name] + 1) * _MIX * part.cell_count)
        step = replay.step[base : base + size]
        mine = np.flatnonzero((part.kind == COMPUTE) & (took > 0) & np.isin(step, steps))
        order = mine[np.lexsort((part.when[mine], step[mine]))]
        nodes.append(order + base)
        own.append(took[order])
        keys.append(np.column_stack((occurrences(step[order]), count[order], mix[order])))
    node, took, key = np.concatenate(nodes), np.concatenate(own), np.concatenate(keys)
    row, column = np.searchsorted(ranks, replay.rank[node]), np.searchsorted(steps, replay.step[node])
    chosen = even[row, column]
    node, took = node[chosen], took[chosen]
    key = np.column_stack((key, np.where(apart[row], row, -1)))[chosen]
    factor = np.ones(len(replay.kind))
    if len(node):
        same = distinct_rows(*key.T)[1]
        ordered, begins, having = sorted_groups(took, same, int(same.max()) + 1)
        quartiles = np.stack([ordered[begins + (having - 1) * quarter // 4] for quarter in (1, 2, 3)])
        # in logarithms: durations that vary much are skewed
        far = _DEVIATIONS * (np.log(quartiles[2] / quartiles[0]) / _QUARTILES_APART + _USUAL_WORK)
        group = np.repeat(np.arange(len(begins)), having)
        plain = (np.abs(np.log(ordered / quartiles[1][group])) <= far[group]) | (having[group] < _FEWEST)
        usual = np.bincount(group, ordered * plain) / np.bincount(group, plain)
        factor[node] = usual[same] / took
    return run.with_factors(factor)


_Key = TypeVar("_Key", int, str)

_QUARTILES_APART = 1.349  # in standard deviations of a normal distribution
_CLASSES = ("compute",)  # the class of time that these findings lose
_ALIKE = 0.1  # ranks are slow alike if their slowdowns differ by this share or less
_OF_HOST = 0.75  # a host is slow if all of its ranks are, and this share of them by a similar amount
_FEWEST_OF_HOSTS = 3  # that fewer ranks are slow, and are those of a host, can be chance
_DEVICE = 0.5  # a device is slow if kernels of a family with this share of the family's time take longer

_CLEAR = 1.1
"""Ranks that are slower by this factor are reported even if something else, such as slow launches, currently hides
it."""

_USUAL_WORK = 0.01  # a step has a rank's usual work if it differs by this share or less
_STEADY = 3  # from this number of steps on, a constant difference is distinguished from chance

_SURE_OF_CHANGE = 0.9

_OWN_WORK = 0.5  # what a host alone does is the cause if it has this share of what it does more than others
_CULPRIT = 0.5  # ranks with this share of the largest excess of work have too much of it
_ONE_CAUSE = 0.1  # what the same ranks lose in addition is part of a loss up to this share: no loss is surer


_ADVICE = {
    "throttling": (
        "{Named} {takes} longer for the same kernels {how}; check the clock, power limit and temperature of that GPU at"
        " that time, and what else began then."
    ),
    "stalls": (
        "Single kernels take far longer on {named} than elsewhere and at other times; look for errors that the device"
        " corrects (Xid, ECC, NVLink), page migrations, and other processes on it."
    ),
    "slow host": (
        "All ranks of {hosts} ({named}) take longer for the same kernels than others; check the host's cooling, power"
        " limits and other jobs."
    ),
    "slow device": (
        "The same kernels with the same launch configuration take longer on {named} than elsewhere; check the clocks,"
        " power and temperature of that GPU, and drain it if it stays slow."
    ),
    "slow work": (
        "The same work takes longer on {named} than elsewhere; look for a busy core, a CPU quota, or more data there."
    ),
    "some kernels": (
        "Some kernels take longer on {named}, and others of their kind do not, so their data differ rather than the"
        " device; spread tokens, experts or sequence lengths evenly."
    ),
    "some work": (
        "{where} takes longer on {named}, and other work of its host does not; look for a lock, a slow file system, a"
        " busy core, or more data there."
    ),
    "more work": (
        "{Named} {has} more work than others, which wait: more kernels, larger grids or other kernels; spread layers,"
        " tokens or experts evenly."
    ),
    "work of its own": (
        "Others wait for {where} of {named}, which they do not do; do it less often, on a thread of its own, or where"
        " nobody waits."
    ),
    "uneven steps": (
        "In turn, {named} {has} the most work of a step; balance tokens or sequence lengths over the ranks of a step."
    ),
    "slow in turn": (
        "Another rank takes longer in each step ({named}), for identically launched kernels, so no device is slow; look"
        " for data that makes work uneven, such as sequence lengths or routed tokens."
    ),
    "jitter": (
        "The same kernels vary at random between ranks and steps, and each step waits for the slowest; look for other"
        " jobs, changing clocks (power limits) and shared memory bandwidth, or synchronize less often."
    ),
}


@dataclass(frozen=True)
class _Cause:
    """One cause; `rows` are places of ranks, `lost` (ranks, steps) is its compute time in ns.

    `more_work`: Whether the ranks have more work than their peers, rather than slower devices.

    `even` is for durations that vary at random: the ranks without peers, and the steps of each rank that have even
    durations in a replay without the cause. None if a replay leaves out `lost`.
    """

    kind: str
    rows: Int64
    lost: Floats
    advice: str
    where: str
    evidence: dict[str, float]
    confidence: float
    hosts: tuple[str, ...] = ()
    even: tuple[Flags, Flags] | None = None
    more_work: bool = False

    def among(self, all_ranks: AllRankFacts, ranks: Int64) -> Self:
        """The cause found among some ranks, with the places and arrays of all ranks."""
        places = np.searchsorted(all_ranks.ranks, ranks)

        def spread(values: NDArray[Any]) -> NDArray[Any]:
            of_all = np.zeros((len(all_ranks.ranks), *values.shape[1:]), values.dtype)
            of_all[places] = values
            return of_all

        even = None if self.even is None else (spread(self.even[0]), spread(self.even[1]))
        return replace(self, rows=places[self.rows], lost=spread(self.lost), even=even)


def _cause(
    all_ranks: AllRankFacts,
    kind: str,
    advice: str,
    rows: Int64,
    lost: Floats,
    where: str,
    evidence: Mapping[str, float],
    confidence: float,
    *,
    how: str = "",
    affected: Int64 | None = None,
    **about: Any,
) -> _Cause:
    """A cause with one of `_ADVICE`, and what its ranks compute more as evidence."""
    named = all_ranks.named(rows)
    takes, has = ("takes", "has") if len(rows) == 1 else ("take", "have")
    words = {"named": named, "Named": named.capitalize(), "takes": takes, "has": has, "where": where, "how": how}
    affected = (lost[rows] > 0).sum(axis=1) if affected is None else affected
    excess = {
        "excess_ns_per_step": float(np.round(lost[rows].sum() / max(len(all_ranks.steps), 1) / max(len(rows), 1))),
        "steps_affected": int(affected.max(initial=0)),
        "steps": len(all_ranks.steps),
    }
    text = _ADVICE[advice].format(**words, hosts=", ".join(about.get("hosts", ())))
    return _Cause(kind, rows, lost, text, where, {**evidence, **excess}, confidence, **about)


def find(all_ranks: AllRankFacts) -> list[Finding]:
    """`straggler`, `slow-host`, `throttling`, `device-stall`, `imbalance` and `jitter`: one for each cause, in roles.

    What another process took from kernels is none of these.
    """
    roles = all_ranks.undisturbed.of_each_role()
    return _findings(all_ranks, [cause.among(all_ranks, role.ranks) for role in roles for cause in _causes(role)])


def _causes(all_ranks: AllRankFacts) -> list[_Cause]:
    if len(all_ranks.ranks) < 2 or not len(all_ranks.steps):
        return []
    stalled = {} if all_ranks.whole_run or all_ranks.judges_hosts else stalls(all_ranks)
    disturbed, all_ranks = all_ranks, _without(all_ranks, stalled)
    work = same_work(all_ranks)
    length = float(np.median(np.nan_to_num(all_ranks.times.sum(axis=2)).sum(axis=1)) / len(all_ranks.steps))
    compute = float(np.median(all_ranks.of("compute")))
    if not compute:
        return []
    # costs below the smallest share of a step that is reported
    least = LEAST_SHARE * length / compute
    slow = _of_whole_hosts(all_ranks, variation(work.ratio, least), least)
    values = by_step(work.ratio)
    # of the device are changes of which most kernels of a family are slower
    changes = [] if all_ranks.whole_run else throttled(values, least)
    changed = [c for c in changes if breadth(all_ranks, work, c.row) >= _DEVICE]
    if slow.rotates:  # each rank is slow in some steps, and none by itself
        changed = [change for change in changed if change.lasts]
    if changed:
        ratio = work.ratio.copy()
        for change in changed:
            ratio[change.row] = np.nan
        slow = _of_whole_hosts(all_ranks, variation(ratio, least), least)
    uneven = variation(work.own, least, spread=False)
    return [
        *_stalls(disturbed, stalled),
        *(_throttling(all_ranks, work, values, group) for group in _together(changed)),
        *_one_of_each([*_slow_devices(all_ranks, work, slow), *_uneven_work(all_ranks, work, uneven, least)]),
        *_random(all_ranks, work, slow, uneven),
    ]


def _one_of_each(causes: Sequence[_Cause]) -> list[_Cause]:
    """The causes, each with what the same ranks lose to the same kind, and with little that they lose to another.

    More work often has more data in launches that look like those of others, as an optimizer's have.
    """
    joined: list[_Cause] = []
    for less in sorted(causes, key=lambda cause: -float(cause.lost.sum())):
        for place, more in enumerate(joined):
            part = less.lost.sum() <= _ONE_CAUSE * more.lost[less.rows].sum() and np.isin(less.rows, more.rows).all()
            if part or (less.kind == more.kind and np.array_equal(less.rows, more.rows)):
                name, share = "excess_ns_per_step", len(less.rows) / len(more.rows)
                evidence = {**more.evidence, name: share * less.evidence[name] + more.evidence[name]}
                advice = more.advice if part or less.advice == more.advice else f"{more.advice} {less.advice}"
                joined[place] = replace(more, lost=less.lost + more.lost, evidence=evidence, advice=advice)
                break
        else:
            joined.append(less)
    return joined


def _of_whole_hosts(all_ranks: AllRankFacts, slow: Variation, least: float) -> Variation:
    """The same, where slow steps that all ranks of some hosts have, and no other rank, are those hosts', not chance."""
    rows: Flags = np.asarray(slow.slow.any(axis=1))
    hosts = all_ranks.hosts_of(all_ranks.ranks[rows].tolist())
    whole = sum(all_ranks.hosts.get(rank) in hosts for rank in all_ranks.ranks.tolist()) == rows.sum()
    if rows.sum() < _FEWEST_OF_HOSTS or rows.all() or not whole or slow.slow[rows].mean() < _OF_HOST:
        return slow
    steps = slow.slow & ~rows[:, None]
    return replace(slow, persistent=slow.persistent | rows, slow=steps, least=min(slow.least, least))


def _slow_devices(all_ranks: AllRankFacts, work: SameWork, slow: Variation) -> list[_Cause]:
    values = slow.values
    chosen = slow.persistent | slow.sometimes
    excess = np.where(slow.persistent, slow.level - 1, 0.0)
    for row in np.flatnonzero(slow.sometimes).tolist():
        beyond = values[row] - 1
        excess[row] = float(np.median(beyond[beyond > slow.least])) if (beyond > slow.least).any() else 0.0
    broad = np.array([chosen[row] and breadth(all_ranks, work, row) >= _DEVICE for row in range(len(chosen))])
    causes = []
    usual = slow.level[~chosen & ~np.isnan(slow.level)]
    apart = float(np.std(usual)) if len(usual) else 0.0  # devices that are not slow are not equal either
    tolerance = 3 * np.hypot(np.nan_to_num(slow.noise) / np.sqrt(max(values.shape[1], 1)), apart)
    left = chosen & broad
    host_excess, rows_of = _slow_hosts(all_ranks, excess, left, tolerance)
    cause = partial(_slow_cause, all_ranks, work, slow, excess)
    for hosts in _alike(host_excess, tolerance):
        rows = np.sort(np.concatenate([rows_of[h] for h in hosts]))
        left[rows] = False
        causes.append(cause(rows, "slow-host", "slow host", hosts=tuple(sorted(hosts))))
    of_host = all_ranks.judges_hosts
    ranks = {row: float(excess[row]) for row in np.flatnonzero(left).tolist()}
    advice = "slow work" if of_host else "slow device"
    causes += [cause(np.array(sorted(group)), "straggler", advice) for group in _alike(ranks, tolerance)]
    # the same kernels on the same grids, but some of a family only: more data, not a slower device
    some = np.flatnonzero(chosen & ~broad)
    if len(some):
        kind, advice, sure = ("straggler", "some work", 1.0) if of_host else ("imbalance", "some kernels", 0.8)
        causes.append(cause(some, kind, advice, sure, more_work=True))
    return causes


def _without(all_ranks: AllRankFacts, stalled: Mapping[int, Int64]) -> AllRankFacts:
    if not stalled:
        return all_ranks
    return all_ranks.with_facts({r: f.without(stalled[r]) if r in stalled else f for r, f in all_ranks.facts.items()})


def _together(changed: Sequence[Throttled]) -> list[list[Throttled]]:
    """Changes that begin within a step of each other, and are as large."""
    groups: list[list[Throttled]] = []
    for change in sorted(changed, key=lambda c: (int(c.slow.argmax()), -c.factor)):
        for group in groups:
            first = group[0]
            alike = abs(change.factor - first.factor) <= _ALIKE * (first.factor - 1) and change.lasts == first.lasts
            if alike and abs(int(change.slow.argmax()) - int(first.slow.argmax())) <= 1:
                group.append(change)
                break
        else:
            groups.append([change])
    return groups


def _throttling(all_ranks: AllRankFacts, work: SameWork, values: Floats, group: Sequence[Throttled]) -> _Cause:
    rows = np.array(sorted(c.row for c in group))
    share = np.zeros(work.ratio.shape)
    for change in group:
        own = values[change.row]
        usual = float(np.nanmean(np.where(change.slow, np.nan, own)))
        share[change.row] = _share_beyond(np.where(change.slow, own, np.nan), usual)
    lost = work.lost(share, all_ranks.of("compute"))
    first = min(int(c.slow.argmax()) for c in group)
    evidence = {
        "slowdown": float(np.median([c.factor for c in group])),
        "since_step": int(all_ranks.steps[first]),
        "breadth": float(np.median([breadth(all_ranks, work, row) for row in rows.tolist()])),
    }
    how = "from one step on" if all(c.lasts for c in group) else "again and again"
    affected = np.array([int(c.slow.sum()) for c in group])
    about = ("throttling", "throttling", rows, lost, most_delayed(all_ranks, work, rows), evidence, _SURE_OF_CHANGE)
    return _cause(all_ranks, *about, how=how, affected=affected)


def _stalls(all_ranks: AllRankFacts, stalled: Mapping[int, Int64]) -> list[_Cause]:
    rows = np.flatnonzero(np.isin(all_ranks.ranks, list(stalled)))
    lost = np.zeros(all_ranks.own.shape)
    works = []
    for row, (rank, beyond) in zip(rows.tolist(), sorted(stalled.items()), strict=True):
        facts = all_ranks.facts[rank]
        judged, at = all_ranks.judged(facts)
        lost[row, at] = beyond[judged].sum(axis=1)
        works.append((facts.work.names, beyond[judged].sum(axis=0)))
    if not lost.any():
        return []
    first = int((lost > 0).any(axis=0).argmax())
    evidence = {"longest_step_ns": float(lost.max()), "since_step": int(all_ranks.steps[first])}
    about = ("device-stall", "stalls", rows, lost, all_ranks.name_of_most(works), evidence, _SURE_OF_CHANGE)
    return [_cause(all_ranks, *about)]


def _slow_hosts(
    all_ranks: AllRankFacts, excess: Floats, slow: Flags, tolerance: float
) -> tuple[dict[str, float], dict[str, Int64]]:
    """The excess of slow hosts, and the indexes of their ranks that have it."""
    places = values_by((all_ranks.hosts.get(rank, ""), row) for row, rank in enumerate(all_ranks.ranks.tolist()))
    excess_of, rows_of = {}, {}
    for host, rows in places.items():
        if len(rows) < 2 or len(places) < 2 or not slow[rows].all():
            continue
        middle = float(np.median(excess[rows]))
        alike = np.abs(excess[rows] - middle) <= _ALIKE * middle + tolerance
        if alike.mean() >= _OF_HOST:
            excess_of[host] = middle
            rows_of[host] = np.array(rows)[alike]
    return excess_of, rows_of


def _alike(excess: Mapping[_Key, float], tolerance: float) -> list[list[_Key]]:
    """Groups of equal excess, the largest first."""
    groups: list[list[_Key]] = []
    for key in sorted(excess, key=lambda k: -excess[k]):
        if groups and excess[groups[-1][0]] - excess[key] <= _ALIKE * excess[groups[-1][0]] + tolerance:
            groups[-1].append(key)
        else:
            groups.append([key])
    return groups


def _slow_cause(
    all_ranks: AllRankFacts,
    work: SameWork,
    slow: Variation,
    excess: Floats,
    rows: Int64,
    kind: str,
    advice: str,
    sure: float = 1.0,
    **about: Any,
) -> _Cause:
    """What ranks compute beyond the peers' pace.

    A rank that is always slow is so by its level; a step that differs from it by more than noise counts separately.
    """
    values = slow.values[rows]
    noise = 4 * np.nan_to_num(slow.noise)
    level = slow.level[rows][:, None]
    apart = np.abs(values - level) > noise  # where a step's pace is not known, it is the rank's
    pace = np.where(slow.persistent[rows][:, None] & ~apart, level, values)
    beyond = np.nan_to_num(pace) - 1 > max(slow.least, noise if slow.sometimes[rows].any() else 0.0)
    share = np.zeros(work.ratio.shape)
    share[rows] = _share_beyond(np.where(beyond, pace, np.nan), 1.0)
    lost = work.lost(share, all_ranks.of("compute"))
    evidence = {
        "slowdown": 1 + float(np.median(excess[rows])),
        "breadth": float(np.median([breadth(all_ranks, work, row) for row in rows.tolist()])),
        **_variation_evidence(slow),
    }
    where, surety = most_delayed(all_ranks, work, rows), sure * _surety(slow, excess[rows])
    return _cause(all_ranks, kind, advice, rows, lost, where, evidence, surety, **about)


def _share_beyond(values: Floats, usual: float) -> Floats:
    """The share of each value that is beyond what is usual; 0 for those that are not known."""
    return np.where(values > usual, 1 - usual / np.where(values > usual, values, 1.0), 0.0)


def _uneven_work(all_ranks: AllRankFacts, work: SameWork, uneven: Variation, least: float) -> list[_Cause]:
    """Ranks with more work, by the share `least` or more: always the same ranks, and others in each step."""
    values = uneven.values
    own = np.nan_to_num(work.own)
    beyond = np.nan_to_num(own - own / np.where(values > 0, values, np.nan))
    beyond = np.maximum(beyond, 0)
    causes = []
    always = uneven.persistent | uneven.sometimes
    if always.any():
        total = np.where(always, beyond.sum(axis=1), 0)
        rows = np.flatnonzero(always & (total >= _CULPRIT * total.max()))
        lost = np.zeros_like(beyond)
        lost[rows] = beyond[rows]
        _, alone = most_added(all_ranks, rows)
        kind, advice = "imbalance", "more work"
        if all_ranks.judges_hosts and alone >= _OWN_WORK:
            kind, advice = "straggler", "work of its own"
        causes.append(_uneven_cause(all_ranks, uneven, rows, lost, kind, advice))
    if uneven.slow.any():
        lost = np.where(uneven.slow & ~always[:, None], beyond, 0.0)
    else:
        middle = np.nanmedian(np.where(always[:, None] & ~always.all(), np.nan, own), axis=0)
        lost = np.where(always[:, None], 0.0, np.maximum(own - middle, 0))
    total = lost.sum(axis=1)
    if total.any():
        rows = np.flatnonzero(total >= _CULPRIT * total.max())
        causes.append(_uneven_cause(all_ranks, uneven, rows, lost, "imbalance", "uneven steps"))
    return [cause for cause in causes if cause.evidence["work_ratio"] >= 1 + least]


def _uneven_cause(
    all_ranks: AllRankFacts, uneven: Variation, rows: Int64, lost: Floats, kind: str, advice: str
) -> _Cause:
    known = (lost[rows] > 0) & ~np.isnan(uneven.values[rows])
    more = uneven.values[rows][known]
    ratio = float(np.average(more, weights=lost[rows][known])) if len(more) else 1.0
    evidence = {"work_ratio": ratio, **_variation_evidence(uneven)}
    where, surety = most_added(all_ranks, rows)[0], _surety(uneven, more - 1)
    return _cause(all_ranks, kind, advice, rows, lost, where, evidence, surety, more_work=True)


def _random(all_ranks: AllRankFacts, work: SameWork, slow: Variation, uneven: Variation) -> list[_Cause]:
    """What is left of the time for the same work: another rank is slow in each step, or all vary at random."""
    values = slow.values
    if np.isnan(values).all():
        return []
    mine = slow.persistent | slow.sometimes
    compute = all_ranks.of("compute")
    causes = []
    if slow.rotates:
        rows = np.flatnonzero(slow.slow.any(axis=1))
        lost = work.lost(np.where(slow.slow, 1 - 1 / np.where(slow.slow, values, 1.0), 0.0), compute)
        evidence = {"slowdown": float(np.median(values[slow.slow])), **_variation_evidence(slow)}
        about = (rows, lost, most_delayed(all_ranks, work, rows), evidence, _surety(slow, values[slow.slow] - 1))
        causes.append(_cause(all_ranks, "imbalance", "slow in turn", *about, more_work=True))
    # a slow device varies too, around its own level
    around = np.where(slow.persistent[:, None], values / slow.level[:, None], values)
    plain = np.where(slow.sometimes[:, None] | (slow.slow & slow.rotates), np.nan, around)
    if not np.isnan(plain).all():
        middle = float(np.nanmedian(plain))
        lost = work.lost(_share_beyond(plain, middle), compute)
        rows = np.flatnonzero(~mine)
        surety, even = 0.55 + 0.4 * (1 - slow.between), _even(all_ranks, slow, uneven)
        about = (rows, lost, most_delayed(all_ranks, work, rows), _variation_evidence(slow), surety)
        causes.append(replace(_cause(all_ranks, "jitter", "jitter", *about, even=even), rows=rows[:0]))
    return causes


def _even(all_ranks: AllRankFacts, slow: Variation, uneven: Variation) -> tuple[Flags, Flags] | None:
    """`_Cause.even`: every step in which a rank has its usual work; None for a run without steps."""
    if all_ranks.whole_run:
        return None
    own = uneven.level[:, None]
    usual = np.abs(uneven.values - own) <= np.maximum(4 * np.nan_to_num(uneven.noise), _USUAL_WORK) * own
    return slow.persistent, usual & ~slow.slow


def _findings(all_ranks: AllRankFacts, causes: Sequence[_Cause]) -> list[Finding]:
    """The findings. One that a larger one hides is reported if it would cost time without that."""
    whole = np.minimum(sum((c.lost for c in causes), np.zeros_like(all_ranks.own)), all_ranks.own)
    least = max(LEAST_SHARE * all_ranks.span_ns, 1)
    # between ranks with unconnected clocks, a replay has no waiting
    first, *others = all_ranks.ranks.tolist()
    connected = all_ranks.alignment is not None and all(
        all_ranks.alignment.error_ns(first, r) is not None for r in others
    )
    findings = []
    costly = [c for c in causes if c.lost.max(initial=0.0) >= 1]
    for cause in costly:
        ranks = all_ranks.ranks[cause.rows].tolist()
        undo = all_ranks.less_compute(cause.lost)
        if cause.even is not None:
            apart, even = cause.even
            undo = partial(even_durations, ranks=all_ranks.ranks, steps=all_ranks.steps, apart=apart, even=even)
        if cause.kind == "device-stall":
            undo = partial(
                RecoveredTime.less_of_longest, ranks=all_ranks.ranks, steps=all_ranks.numbers, lost_ns=cause.lost
            )
        # of several causes of one rank each has its share of the time; one alone is undone as `whatif` undoes a rank
        alone = not any(len(np.intersect1d(cause.rows, c.rows)) for c in costly if c is not cause)
        alone = alone and all(all_ranks.facts[rank].work.slices is None for rank in ranks)
        # nothing of what changes in time is so in all steps
        if alone and cause.kind not in ("throttling", "device-stall") and 0 < len(ranks) <= len(all_ranks.ranks) / 2:
            undo = partial(RecoveredTime.at_peers_pace, ranks=ranks)
        if cause.more_work and 0 < len(ranks) < len(all_ranks.ranks) and _takes_most(cause, costly):
            slow = {row for c in costly if c is not cause and not c.more_work for row in c.rows.tolist()}
            undo = partial(_with_peers_work, all_ranks, ranks, all_ranks.ranks[sorted(slow)].tolist(), undo)
        loss = all_ranks.loss(_CLASSES, cause.lost, undo if connected else None)
        if len(cause.rows):  # with what ranks compute more, a replay may leave out the launches in between
            loss = replace(loss, estimate_ns=min(loss.estimate_ns, round(cause.lost.sum())))
        if cause.even is not None:
            # of n independent parts of a step that all wait for, each varies by a square root of n-th of the step
            waiting = 0 if all_ranks.members is None else len(all_ranks.members.rank)
            parts = max(waiting / len(all_ranks.ranks) / len(all_ranks.steps), 1)
            most = all_ranks.loss(_CLASSES, cause.lost).estimate_ns * np.sqrt(parts)
            loss = replace(loss, estimate_ns=min(loss.estimate_ns, round(most)))
        without, alone_ns = (all_ranks.loss(_CLASSES, lost).estimate_ns for lost in (whole - cause.lost, cause.lost))
        hidden = all_ranks.loss(_CLASSES, whole).estimate_ns - without - alone_ns  # by other causes
        clear = cause.kind in ("straggler", "slow-host") and cause.evidence.get("slowdown", 1.0) >= _CLEAR
        evidence = {name: round(value, 3) for name, value in cause.evidence.items()}
        told = clear or (cause.kind != "jitter" and hidden >= least)
        about = (cause.where, cause.advice, evidence, round(cause.confidence, 3), cause.hosts)
        findings.append(Finding(cause.kind, loss, tuple(ranks), *about, told=told))
    return findings


def _takes_most(cause: _Cause, causes: Sequence[_Cause]) -> bool:
    """Whether no other cause takes more time from any of its ranks: peers are no measure of a slow device."""
    own, others = cause.lost.sum(axis=1), [c for c in causes if c is not cause and len(c.rows)]
    return all((own >= other.lost.sum(axis=1))[cause.rows].all() for other in others)


def _with_peers_work(
    all_ranks: AllRankFacts,
    ranks: Sequence[int],
    slow: Sequence[int],
    otherwise: Callable[[RecoveredTime], Int64],
    run: RecoveredTime,
) -> Int64:
    """The run with the peers' work between the same operations; where these differ, without what the ranks have more.

    `slow`: Ranks that take longer for another reason, and so are no peers unless all others are.
    """
    roles = {all_ranks.roles.get(rank) for rank in ranks}
    peers = [r for r in all_ranks.ranks.tolist() if r not in ranks and all_ranks.roles.get(r) in roles]
    peers = [r for r in peers if r not in slow] or peers
    changed = run.with_peers_work(ranks, peers) if peers else None
    return otherwise(run) if changed is None else changed


def _surety(varying: Variation, excess: Floats) -> float:
    """How sure it is that ranks differ: how far they are above what chance explains, and in how many steps."""
    margin = max(float(np.median(excess)) / varying.least - 1, 0.0) if varying.least > 0 else 1.0
    known = 1.0 if varying.values.shape[1] >= _STEADY else 0.8
    return float((0.55 + 0.4 * (1 - np.exp(-margin))) * known)


def _variation_evidence(varying: Variation) -> dict[str, float]:
    evidence = {"persistence": varying.between}
    return evidence if np.isnan(varying.noise) else {**evidence, "noise": varying.noise}
