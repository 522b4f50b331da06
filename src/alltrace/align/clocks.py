"""The clocks of hosts from matched operations: offset and rate, how far they may be off, and the stamps' errors.

Starts from UTC. Ranks of one host share its clock unless their ends show otherwise (`alltrace.align.clock_sharing`).
The rate of a host is an unknown only where it is larger than twice its error. What no synchronising operation connects
is connected by sends and receives, and ranks without any connection stay at their UTC stamps, with a note.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
from numpy.typing import NDArray

from alltrace.align.clock_errors import (
    Lateness,
    Limits,
    bounds_between,
    edges,
    errors_over_time,
    lateness,
    limits,
    offset_errors,
    rate_errors,
)
from alltrace.align.clock_fit import (
    SETTLED_NS,
    Cells,
    Clocks,
    Ends,
    Sums,
    ends_of,
    late_ends,
    measured,
    medians,
    over,
    robust_levels,
)
from alltrace.align.clock_jumps import Jump, find_jump
from alltrace.align.clock_sharing import FEW, PlacedRank, Sharing, Units
from alltrace.align.constants import (
    MAD_TO_SIGMA,
    MOST_RATE,
    OTHER_RECORDING_NS,
    OUTLIER_SIGMAS,
    SHORTEST_NS,
    WRONG_SHARE,
)
from alltrace.align.members import EXCHANGE, Evidence
from alltrace.run.manifest import Clock
from alltrace.trace.arrays import Flags, Floats, Int64
from alltrace.trace.distinct import distinct, distinct_rows, folded, rows_by
from alltrace.trace.number_text import number_ranges

_PASSES = 32
_MOST_JUMPS = 4
_EXACT = 1 << 10
"""How much surer a limit is than the surest cell."""


@dataclass(frozen=True)
class Solution:
    clocks: tuple[Clock, ...]  # one per host, in the order of the hosts' first ranks
    stamp_errors_ns: dict[int, int]  # what a rank's UTC stamp is ahead of its host's clock
    ahead_ns: dict[int, int]  # what a rank's stamped time is ahead at the run's zero: offset and stamp error
    components: dict[int, int]
    errors_ns: dict[int, int | None] = field(default_factory=dict)  # half of the 95 % interval
    shared: dict[int, int] = field(default_factory=dict)  # ranks with one number have no error against each other
    notes: tuple[str, ...] = ()


@dataclass
class _Fit:
    """Fitted clocks; arrays by rank."""

    ends: Ends
    clocks: Clocks
    units: Units
    component: Int64  # the lowest rank that each rank is connected with
    offset_error: Floats  # half of the interval, at the mean time of the rank's evidence
    host_error: Floats  # the same of the median of the rank's host
    rate_error: Floats  # half of the interval
    seen_ns: Floats  # first, mean and last stamped time of each rank's evidence
    limits: Limits

    def error(self, offset_error: Floats) -> Floats:
        """Half of the interval that holds each clock in all the time of its evidence."""
        first, middle, last = self.seen_ns
        return errors_over_time(offset_error, self.rate_error * (middle - first), self.rate_error * (last - middle))


@dataclass
class _State:
    """What is known of the clocks while they are solved for; arrays by the place of a rank."""

    ranks: Sequence[PlacedRank]
    hosts: list[str]
    host_of: Int64  # place of each rank's host
    fit: _Fit
    jumps: dict[int, Jump]
    widths: Floats  # half of the distance of the bounds that sends and receives gave
    messages: Int64  # how many these are
    notes: list[str] = field(default_factory=list)

    def error(self, fitted: Floats) -> Floats:
        """Half of the interval of each rank's offset, `fitted` by the fit; infinite with too little evidence.

        A clock that stepped is wrong by the step on one side of it.
        """
        units = self.fit.units
        of_ranks = np.bincount(self.fit.ends.rank, minlength=len(self.ranks))
        number = folded(np.maximum, units.of_rank, of_ranks, units.count, 0)
        error = np.where((number > FEW)[units.of_rank] | (self.messages > 0), fitted, np.inf) + self.widths
        for clock, jump in self.jumps.items():
            error[units.clock == clock] = np.maximum(error[units.clock == clock], abs(round(jump.step_ns)))
        return error


def solve(evidence: Evidence, ranks: Sequence[PlacedRank]) -> Solution:
    """The clocks by which members of synchronising operations, in the time of the ranks' files, leave them together."""
    apart: dict[str, int] = {}
    while True:
        state = _solved(_usable(evidence, ranks, apart), ranks)
        solution = _assembled(state)
        far = [c for c in solution.clocks if abs(c.offset_ns - _typical(solution, c)) > OTHER_RECORDING_NS]
        far = [c for c in far if all(p.stamped for p in ranks if p.host == c.host)]
        if not far:
            break
        apart |= {c.host: c.offset_ns - _typical(solution, c) for c in far}
    notes = [
        f"the clock of {host} is {abs(off) / 1e9:,.0f} s {'ahead of' if off > 0 else 'behind'} those of the hosts that"
        " its operations were matched with: that is another recording, so it stays apart at its UTC stamps"
        for host, off in apart.items()
    ]
    return replace(solution, notes=(*notes, *solution.notes))


def _typical(solution: Solution, clock: Clock) -> int:
    """The median offset of the clocks that are connected with `clock`."""
    offsets = sorted(c.offset_ns for c in solution.clocks if c.component == clock.component)
    return offsets[(len(offsets) - 1) // 2]


def _usable(evidence: Evidence, ranks: Sequence[PlacedRank], apart: Collection[str]) -> Evidence:
    """The evidence of hosts that are not `apart`, with places of ranks for their numbers, and stamped times."""
    at = np.searchsorted(np.array([p.rank for p in ranks], np.int64), evidence.rank)
    shift = np.array([p.shift_ns for p in ranks], np.int64)[at]
    here = np.array([p.host not in apart for p in ranks], np.bool_)[at]
    placed = replace(evidence, rank=at, start=evidence.start + shift, end=evidence.end + shift)
    return Evidence(*(getattr(placed, f.name)[here] for f in fields(placed)))


def _solved(evidence: Evidence, ranks: Sequence[PlacedRank]) -> _State:
    hosts = list(dict.fromkeys(p.host for p in ranks))
    lasting = evidence.end - evidence.start >= SHORTEST_NS
    used, exchanges = evidence.synchronising & lasting, (evidence.direction == EXCHANGE) & lasting
    fit, jumps, sharing = _fit_with_jumps(evidence, used, ranks)
    if exchanges.any() and len(np.unique(fit.component)) > 1:
        # the two ends of a message end together too, if less sharply; which is the sender is not known
        fit, jumps, sharing = _fit_with_jumps(evidence, used | exchanges, ranks)
    state = _State(ranks, hosts, sharing.host, fit, jumps, np.zeros(len(ranks)), np.zeros(len(ranks), np.int64))
    if sharing.contradicted.any():
        of = number_ranges(
            [p.rank for p, wrong in zip(ranks, sharing.contradicted[sharing.host], strict=True) if wrong]
        )
        state.notes.append(
            f"the monotonic clocks of the reports of ranks {of} contradict the collectives and are not used"
        )
    if state.fit.limits.broken:
        count = len(state.fit.ends.numbers)
        state.notes.append(
            f"in {state.fit.limits.broken:,} of {count:,} operations a member ends before another one starts: they "
            "are matched wrongly or their times are wrong, and are not used for the clocks"
        )
    _join_by_messages(state, evidence)
    return state


def _fit_with_jumps(
    evidence: Evidence, used: Flags, ranks: Sequence[PlacedRank]
) -> tuple[_Fit, dict[int, Jump], Sharing]:
    """Fits; where a clock stepped, again without the shorter side, so that it is not smeared over the run."""
    seen = np.bincount(evidence.rank[used | (np.abs(evidence.direction) == 1)], minlength=len(ranks)) > 0
    # whole ns up to 2^53, which is a hundred days
    start, end = (t[used].astype(np.float64) for t in (evidence.start, evidence.end))
    whole = ends = ends_of(evidence.instance[used], evidence.communicator[used], evidence.rank[used], start, end)
    jumps: dict[int, Jump] = {}
    while True:
        sharing = Sharing(ranks, seen)
        fit = _fitted(ends, sharing)
        jump = find_jump(ends, fit.clocks, fit.units.clock, jumps) if len(jumps) < _MOST_JUMPS else None
        if jump is None:
            break
        ends = ends.only(jump.kept(ends, fit.units.clock))
        jumps[jump.clock] = jump
    # only now the rates are free of the steps
    return fit, {n: j.measured(whole, fit.clocks, fit.units.clock) for n, j in jumps.items()}, sharing


def _fitted(ends: Ends, sharing: Sharing) -> _Fit:
    """The clocks that fit the ends; one has a rate only if it is larger than twice its error, and that small."""
    ranks = len(sharing.host)
    # from the middle of each rank's ends, so that no constant on a clock changes how the fit goes
    order, begins = ends.by_rank(ranks)
    clocks = Clocks(medians(ends.end[order], begins), np.zeros(ranks), float(ends.end.mean()) if len(ends.end) else 0.0)
    wanted = np.ones(ranks, np.bool_)
    clocks, cells = _settled(ends, clocks, sharing, wanted)
    clock = sharing.units.clock
    rows = cells.between(clock, sloped=True)
    # the others of each component are measured against its first
    free = cells.joined(rows, clock, ranks) != np.arange(ranks)
    rate_error = rate_errors(cells, rows, clock, free) if len(rows) else np.zeros(ranks)
    size = np.zeros(ranks)
    size[clock] = np.abs(clocks.rate)
    wanted = free & (size > 2 * rate_error) & (rate_error < MOST_RATE)
    missed = np.where(wanted, 0.0, size)
    clocks, cells = _settled(ends, replace(clocks, rate=clocks.rate * wanted[clock]), sharing, wanted)
    units, start = sharing.units, clocks.ahead_ns
    rows = cells.between(units.of_rank)
    component = cells.joined(rows, units.of_rank)[units.of_rank]
    # cells that are off and mostly break the law are of wrong instances; others are always late
    left = units.offsets(cells, rows, 1.0 / (cells.scatter + cells.noise)[rows], start)[1]
    off = np.zeros(len(cells.block), np.bool_)
    off[rows] = np.abs(left) > OUTLIER_SIGMAS
    begun, ended, last, first = edges(ends, clocks)
    broken = (ended < last[ends.instance]) | (begun > first[ends.instance])
    off &= 2 * np.bincount(ends.cell, broken, len(off)) > np.bincount(ends.cell, minlength=len(off))
    rows = rows[~off[rows]]
    late = lateness(cells, rows, units, len(np.unique(component[cells.rank[rows]])), start)
    clocks = replace(clocks, ahead_ns=units.offsets(cells, rows, late.weight, start)[0])
    used = ~off[ends.cell]
    # wrong instances alone break the law by more than ends scatter, and of a communicator few are wrong
    last, first = edges(ends, clocks)[2:]
    block = cells.block[ends.cell[ends.first[:-1]]]
    wrong = first - last < -OUTLIER_SIGMAS * np.sqrt(cells.scatter)[ends.cell[ends.first[:-1]]]
    wrong &= np.bincount(block, wrong)[block] <= WRONG_SHARE * np.bincount(block)[block]
    used &= ~wrong[ends.instance]
    law = limits(ends, used, clocks, units.of_rank)
    fitted, bound = clocks.ahead_ns, (cells, rows, late)
    for _ in range(_PASSES):
        if law.broken_ns <= SETTLED_NS:
            break
        bound = _held(*bound, units, clocks.ahead_ns - start, law)
        tried = replace(clocks, ahead_ns=units.offsets(*bound[:2], bound[2].weight, start)[0])
        less = limits(ends, used, tried, units.of_rank)
        # no clocks keep the law of instances that contradict each other
        if less.broken_ns > law.broken_ns - SETTLED_NS:
            break
        clocks, law = tried, less
    label = distinct(component)[1]
    lowest = folded(np.minimum, label, sharing.host, label.max(initial=-1) + 1, len(sharing.host))
    reference = sharing.host == lowest[label]
    of_label = Sums(label)

    def against(offsets: Floats) -> Floats:
        there = reference.reshape(-1, *[1] * (offsets.ndim - 1))
        return offsets - over(of_label(there * offsets), of_label(1.0 * there))[label]

    together = distinct_rows(sharing.host, component)[1]
    offset_error = (
        np.stack(offset_errors(cells, rows, units, late, against, together)) if len(rows) else np.zeros((2, ranks))
    )
    # a fit that the law moves was off by as much at least
    offset_error = np.maximum(offset_error, late.sigmas * np.abs(against(clocks.ahead_ns - fitted)))
    origins = np.zeros(units.count, np.bool_)
    origins[units.of_rank[reference]] = True
    own, middle = np.minimum(offset_error, law.reach(origins)[units.of_rank])
    seen = _seen(ends, units)
    return _Fit(ends, clocks, units, component, own, middle, np.hypot(rate_error, missed)[units.clock], seen, law)


def _settled(ends: Ends, clocks: Clocks, sharing: Sharing, wanted: Flags) -> tuple[Clocks, Cells]:
    """The clocks that fit best, within a small part of the scatter, and the cells; those `wanted` may have a rate.

    What the ends contradict of `sharing` is changed.
    """
    turn, span = 0, float(np.ptp(ends.end)) if len(ends.end) else 0.0
    while True:
        cells = measured(ends, clocks)
        units, begun, moved = sharing.units, clocks, 0.0
        rows = cells.between(units.clock, sloped=True)
        if wanted.any() and len(rows):
            of_row = units.clock[cells.rank[rows]]
            free = wanted & (cells.joined(rows, units.clock, len(wanted)) != np.arange(len(wanted)))
            step = robust_levels(cells.block[rows], of_row, 1.0 / cells.slope_noise[rows], cells.slope[rows], free)[0]
            clocks = replace(clocks, rate=clocks.rate + step[units.clock])
            cells = replace(cells, late_ns=cells.late_ns - step[units.clock][cells.rank] * cells.time_ns)
            moved = float(np.abs(step).max()) * span
        rows = cells.between(units.of_rank)
        weight = 1.0 / (cells.scatter + cells.noise)[rows]
        clocks = replace(clocks, ahead_ns=units.offsets(cells, rows, weight, begun.ahead_ns)[0])
        sigma = float(np.sqrt(np.median(cells.scatter[rows]))) if len(rows) else 0.0
        moved = max(moved, float(np.abs(clocks.ahead_ns - begun.ahead_ns).max(initial=0.0)))
        # the first passes bring clocks together that are minutes apart; a fit between two answers would move for ever
        settled = turn > 1 and moved < SETTLED_NS + sigma * (turn / _PASSES) ** 2
        turn += 1
        if (settled and not sharing.corrected(cells, ends, begun)) or turn == _PASSES:
            return begun, cells


def _held(
    cells: Cells, rows: NDArray[np.intp], late: Lateness, units: Units, moved: Floats, law: Limits
) -> tuple[Cells, NDArray[np.intp], Lateness]:
    """The cells, those fitted and their lateness, with two more for each pair of clocks that breaks the law."""
    pairs = np.flatnonzero(law.most_ns < -SETTLED_NS)
    rank_of = np.zeros(units.count, np.int64)
    rank_of[units.of_rank] = np.arange(len(units.of_rank))
    rank = rank_of[np.stack([law.one[pairs], law.other[pairs]], axis=1)].ravel()
    block = int(cells.block.max()) + 1 + np.repeat(np.arange(len(pairs)), 2)
    value = np.stack([law.most_ns[pairs], np.zeros(len(pairs))], axis=1).ravel() + moved[rank]
    more = np.arange(len(cells.block), len(cells.block) + len(rank))
    cells = replace(
        cells,
        block=np.concatenate((cells.block, block)),
        rank=np.concatenate((cells.rank, rank)),
        role=np.concatenate((cells.role, int(cells.role.max()) + 1 + more)),
        like=np.concatenate((cells.like, 0 * more)),
        late_ns=np.concatenate((cells.late_ns, value)),
    )
    exact = np.full(len(rank), float((late.always + late.noise).min()) / _EXACT)
    late = replace(late, always=np.concatenate((late.always, 0.0 * exact)), noise=np.concatenate((late.noise, exact)))
    return cells, np.concatenate((rows, more)), late


def _seen(ends: Ends, units: Units) -> Floats:
    """First, mean and last stamped time of the evidence of each rank's unit; 0 without any."""
    unit = units.of_rank[ends.rank]
    number = np.bincount(unit, minlength=units.count)
    first = folded(np.minimum, unit, ends.end, units.count, np.inf)
    last = folded(np.maximum, unit, ends.end, units.count, -np.inf)
    mean = over(np.bincount(unit, ends.end, units.count), number)
    seen: Floats = np.where(number > 0, np.stack([first, mean, last]), 0.0)[:, units.of_rank]
    return seen


def _join_by_messages(state: _State, evidence: Evidence) -> None:
    """Connects components by sends and receives: no message is received before it was sent."""
    fit, used = state.fit, np.abs(evidence.direction) == 1
    if not used.any() or len(np.unique(fit.component)) < 2:
        return
    at, component = evidence.rank[used], fit.component.copy()
    ends = fit.clocks.true(at, evidence.end[used].astype(np.float64))
    bounds = bounds_between(evidence.instance[used], fit.component[at], evidence.direction[used], ends)
    members, moves = rows_by(component), np.zeros(len(component))
    any_of = {number: int(rank[0]) for number, rank in members.items()}
    for half_width_ns, first, second, middle_ns, messages in bounds:
        a, b = any_of[first], any_of[second]
        one, other = int(component[a]), int(component[b])
        if one == other:
            continue
        # the bounds are of what the second was ahead of the first before either was moved
        lower, moved = min(one, other), max(one, other)
        ahead = middle_ns - (moves[b] - moves[a])
        state.widths[members[moved]] += half_width_ns
        state.messages[np.concatenate((members[lower], members[moved]))] += messages
        moves[members[moved]] += ahead if moved == other else -ahead
        component[members[moved]] = lower
        members[lower] = np.concatenate((members[lower], members.pop(moved)))
    state.fit = replace(fit, clocks=replace(fit.clocks, ahead_ns=fit.clocks.ahead_ns + moves), component=component)


def _assembled(state: _State) -> Solution:
    """The solution in the manifest's terms: offsets at the run's zero, against the first host of each component."""
    fit, ranks, host_of, component = state.fit, state.ranks, state.host_of, state.fit.component
    number, size = np.bincount(fit.ends.rank, minlength=len(ranks)), np.abs(late_ends(fit.ends, fit.clocks)[0])
    rates = fit.clocks.rate
    c = fit.clocks.ahead_ns - rates * fit.clocks.t0
    stamped = np.array([p.stamped for p in ranks], np.bool_)
    for here in rows_by(component).values():
        reference = here[host_of[here] == host_of[here].min()]
        own = reference[stamped[reference]]
        c[here] -= np.median(c[own if len(own) else reference])
    ahead = c / (1.0 - rates)
    of_host = rows_by(host_of)
    # a host belongs to the component with most evidence of its ranks'
    main = [_heaviest(component[of_host[h]], number[of_host[h]]) for h in range(len(state.hosts))]
    numbers = {int(n): i for i, n in enumerate(dict.fromkeys([*main, *component.tolist()]))}
    error, host_error = (state.error(fit.error(of)) for of in (fit.offset_error, fit.host_error))
    of_ends = rows_by(fit.ends.rank)
    clocks, stamp_errors = [], np.zeros(len(ranks))
    for h, host in enumerate(state.hosts):
        inside = of_host[h][component[of_host[h]] == main[h]]
        offset = round(float(np.median(ahead[inside])))
        # a rank that nothing connects to the others of its host has its host's clock, and its stamp is all there is
        stamp_errors[inside] = ahead[inside] - offset
        used = np.concatenate([np.empty(0, np.int64), *(of_ends[i] for i in inside.tolist() if i in of_ends)])
        evidence = len(np.unique(fit.ends.instance[used])) or int(state.messages[inside].max())
        drift = float(rates[inside[0]] * 1e6) or 0.0  # and not -0
        # against a first host that it is not connected with nothing is known
        worst = host_error[inside].max() if numbers[main[h]] == numbers[main[0]] else np.inf
        clocks.append(Clock(host, offset, drift, _scatter(size[used]), evidence, numbers[main[h]], _rounded(worst)))
    stamp = {p.rank: round(float(stamp_errors[i])) for i, p in enumerate(ranks)}
    offsets = {clock.host: clock.offset_ns for clock in clocks}
    return Solution(
        clocks=tuple(clocks),
        stamp_errors_ns=stamp,
        ahead_ns={p.rank: stamp[p.rank] + offsets[p.host] for p in ranks},
        components={p.rank: numbers[int(component[i])] for i, p in enumerate(ranks)},
        errors_ns={p.rank: _rounded(error[i]) for i, p in enumerate(ranks)},
        shared={p.rank: int(fit.units.of_rank[i]) for i, p in enumerate(ranks)},
        notes=(*state.notes, *_notes(state, clocks, component != np.array(main, np.int64)[host_of])),
    )


def _heaviest(components: Int64, weights: Int64) -> int:
    numbers, at = distinct(components)
    return int(numbers[np.bincount(at, weights).argmax()])


def _scatter(size: Floats) -> int | None:
    """The typical scatter of ends; None for so few that it would only show that a line goes through two points."""
    return max(1, round(MAD_TO_SIGMA * float(np.median(size)))) if len(size) > FEW else None


def _rounded(error: float) -> int | None:
    return None if np.isinf(error) else int(np.ceil(error))


def _notes(state: _State, clocks: Sequence[Clock], alone: Flags) -> list[str]:
    notes = []
    zero = float(state.fit.ends.end.min()) if len(state.fit.ends.end) else 0.0
    for h, jump in sorted(state.jumps.items()):
        side = "before" if jump.keep_after else "after"
        notes.append(
            f"the clock of {state.hosts[h]} steps by {round(jump.step_ns):,} ns against the others',"
            f" {(jump.at_ns - zero) / 1e9:.3f} s after the first collective; its times {side} that are wrong by as"
            " much, so shorter waits there between hosts are not reliable"
        )
    parts: dict[int, list[str]] = defaultdict(list)
    for clock in clocks:
        parts[clock.component].append(clock.host)
    if len(parts) > 1:
        named = "; ".join(_named(hosts) for hosts in list(parts.values())[:4])
        more = f"; and {len(parts) - 4} more" if len(parts) > 4 else ""
        notes.append(
            f"{len(parts)} groups of hosts share no collective ({named}{more}): between them only UTC stamps are"
            " available, which are off by milliseconds"
        )
    lonely = [p.rank for p, is_alone in zip(state.ranks, alone, strict=True) if is_alone]
    if lonely:
        subject = f"rank {lonely[0]} is" if len(lonely) == 1 else f"ranks {number_ranges(lonely)} are"
        notes.append(
            f"{subject} connected to the others by no collective: only UTC stamps are available, which are off by"
            " milliseconds"
        )
    few = [c.host for c in clocks if c.error_ns is None and c.evidence]
    if few:
        notes.append(
            f"{_named(few)}: too few shared collectives to estimate the error of the clocks, so waits there are not"
            " reliable"
        )
    if state.messages.any():
        bounded = sorted({state.ranks[i].host for i in np.flatnonzero(state.messages).tolist()})
        notes.append(f"{_named(bounded)}: the clocks are known only from sends and receives, which give bounds")
    return notes


def _named(hosts: Sequence[str]) -> str:
    return ", ".join(hosts[:4]) + (f" and {len(hosts) - 4} more hosts" if len(hosts) > 4 else "")
