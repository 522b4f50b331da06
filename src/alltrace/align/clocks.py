"""The clocks of all hosts from matched collectives: offset and rate of each host, and the error of each report's UTC stamp.

Starts from UTC. A report's UTC stamp is off by milliseconds even from its own host's clock, so each report has its own
unknown, unless the reports state their host's monotonic clock: then all reports of a host share one. The rate of a host is an
unknown only where it lowers the residual by more than chance would (Bayesian information criterion). What no synchronising
collective connects is connected by sends and receives, and ranks without any connection stay at their UTC stamps, with a note.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from alltrace.align.clock_fit import MAD_TO_SIGMA, Block, Fit, Units, fit, make_blocks, residuals
from alltrace.align.clock_jumps import Jump, find_jump
from alltrace.align.clock_residuals import LEAST_INSTANCES, remaining
from alltrace.align.disjoint_sets import DisjointSets
from alltrace.align.members import EXCHANGE
from alltrace.align.message_bounds import bounds_between
from alltrace.run.manifest import Clock
from alltrace.trace.distinct import rows_by
from alltrace.trace.number_text import number_ranges

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from alltrace.align.clock_fit import Floats
    from alltrace.align.clock_residuals import Remaining
    from alltrace.align.members import Evidence
    from alltrace.run.manifest import Manifest
    from alltrace.trace.arrays import Int64

_SHORTEST_NS = 1_000
"""A shorter operation cannot have waited for anybody."""
_DRIFT_SPAN_NS = 1e9
_DRIFT_SPAN_SURE_NS = 5e7
_SURE = 6.0
_MOST_DRIFT = 1e-3
_MOST_JUMPS = 4
_TIED_TIMES, _TIED_AT_MOST_NS = 1.5, 1_000.0
"""How much worse the ends may fit if monotonic clocks tie the reports of a host."""


@dataclass(frozen=True)
class PlacedRank:
    """A rank before its clock is known.

    Attributes:
        rank: Its number.
        host: Its host.
        report: The report that its times are of.
        shift_ns: From the time of its files to ns since the run's zero, by its UTC stamp.
        system_ns: The host's monotonic clock at the zero of its files, or None.
        stamped: Whether there is a UTC stamp.
    """

    rank: int
    host: str
    report: int
    shift_ns: int
    system_ns: int | None = None
    stamped: bool = True


@dataclass(frozen=True)
class Solution:
    """The clocks found.

    Attributes:
        clocks: One per host, in the order of the hosts' first ranks.
        stamp_errors_ns: For each rank what its UTC stamp is ahead of its host's clock.
        ahead_ns: For each rank what its stamped time is ahead of the run's time at the run's zero: offset and stamp error.
        components: For each rank its component.
        residuals_ns: For each rank the typical error that remains, None with too little evidence.
        notes: What a reader must know.
    """

    clocks: tuple[Clock, ...]
    stamp_errors_ns: dict[int, int]
    ahead_ns: dict[int, int]
    components: dict[int, int]
    residuals_ns: dict[int, int | None]
    notes: tuple[str, ...] = ()


@dataclass
class _State:
    """What is known of the clocks while they are solved for; arrays by rank or host place."""

    ranks: Sequence[PlacedRank]
    hosts: list[str]
    units: Units
    known: Floats
    """For each rank the part of its stamp error that is known from the monotonic clock."""
    blocks: list[Block]
    fitted: Fit
    jumps: dict[int, Jump] = field(default_factory=dict)
    widths: dict[int, float] = field(default_factory=dict)
    """For each rank the half-width of the bounds that sends and receives gave."""
    messages: dict[int, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def place_ranks(manifest: Manifest) -> list[PlacedRank]:
    """The ranks of a run at their UTC stamps."""
    zero = manifest.zero_utc_ns
    placed = []
    for rank in manifest.ranks:
        base = rank.time_base_utc_ns
        stamped = base is not None and zero is not None
        report = rank.reports[0] if rank.reports else -1 - rank.rank
        system = manifest.reports[report].system_clock_ns if 0 <= report < len(manifest.reports) else None
        shift = base - zero if base is not None and zero is not None else 0
        placed.append(PlacedRank(rank.rank, rank.host, report, shift, system, stamped))
    return placed


def solve(evidence: Evidence, ranks: Sequence[PlacedRank]) -> Solution:
    """The clocks that make the members of synchronising collectives leave them together.

    Args:
        evidence: Matched operations, in the time of the ranks' files.
        ranks: All ranks of the run, by number.
    """
    rows = _usable(evidence, ranks)
    if not any(p.system_ns is not None for p in ranks):
        return _assembled(_solved(rows, ranks, tied=False))
    tied = _solved(rows, ranks, tied=True)
    if not tied.blocks or tied.fitted.scale <= _TIED_AT_MOST_NS:
        return _assembled(tied)
    free = _solved(rows, ranks, tied=False)
    if tied.fitted.scale <= _TIED_TIMES * free.fitted.scale + _TIED_AT_MOST_NS:
        return _assembled(tied)
    free.notes.append("the reports' monotonic clocks contradict the collectives and are not used")
    return _assembled(free)


@dataclass(frozen=True)
class _Rows:
    """The evidence with places of ranks for their numbers and stamped times for file times."""

    evidence: Evidence
    at: Int64
    start: Floats
    end: Floats
    synchronising: Int64
    messages: Int64
    exchanges: Int64


def _usable(evidence: Evidence, ranks: Sequence[PlacedRank]) -> _Rows:
    numbers = np.array([p.rank for p in ranks], np.int64)
    shifts = np.array([p.shift_ns for p in ranks], np.int64)
    at = np.searchsorted(numbers, evidence.rank)
    lasting = evidence.end - evidence.start >= _SHORTEST_NS
    # whole ns up to 2^53, which is a hundred days
    start = (evidence.start + shifts[at]).astype(np.float64)
    end = (evidence.end + shifts[at]).astype(np.float64)
    return _Rows(
        evidence,
        at,
        start,
        end,
        np.flatnonzero(evidence.synchronising & lasting),
        np.flatnonzero(np.abs(evidence.direction) == 1),
        np.flatnonzero((evidence.direction == EXCHANGE) & lasting),
    )


def _solved(rows: _Rows, ranks: Sequence[PlacedRank], *, tied: bool) -> _State:
    hosts = list(dict.fromkeys(p.host for p in ranks))
    keys, known = _units(ranks, tied=tied)
    number = {key: n for n, key in enumerate(dict.fromkeys(keys))}
    unit_of = np.array([number[k] for k in keys], np.int64)
    place = {host: n for n, host in enumerate(hosts)}
    host_of = np.array([place[p.host] for p in ranks], np.int64)
    used = rows.synchronising
    stamped = rows.end - known[rows.at]
    blocks = make_blocks(rows.evidence.instance[used], rows.evidence.communicator[used], rows.at[used], stamped[used])
    component = _components(blocks, unit_of)
    if len(rows.exchanges) and len(np.unique(component)) > 1:
        # the two ends of a message end together too, if less sharply; which is the sender is not known
        used = np.union1d(rows.synchronising, rows.exchanges)
        blocks = make_blocks(rows.evidence.instance[used], rows.evidence.communicator[used], rows.at[used], stamped[used])
        component = _components(blocks, unit_of)
    cluster = _clusters(component, unit_of, host_of, len(hosts))
    units = Units(unit_of, host_of, component, cluster)
    state = _State(ranks, hosts, units, known, blocks, fit(blocks, units, np.zeros(len(hosts), np.bool_)))
    _fit_with_jumps(state)
    _join_by_messages(state, rows)
    return state


def _units(ranks: Sequence[PlacedRank], *, tied: bool) -> tuple[list[tuple[str, object]], Floats]:
    """For each rank what it shares its unknown offset with, and the part of its stamp error that is known."""
    known = np.zeros(len(ranks))
    keys: list[tuple[str, object]] = []
    boots: dict[str, list[int]] = defaultdict(list)
    for placed in ranks:
        if tied and placed.system_ns is not None and placed.stamped:
            boots[placed.host].append(placed.shift_ns - placed.system_ns)
    middles = {host: sorted(b)[len(b) // 2] for host, b in boots.items()}
    for i, placed in enumerate(ranks):
        if tied and placed.system_ns is not None and placed.stamped:
            known[i] = placed.shift_ns - placed.system_ns - middles[placed.host]
            keys.append(("host", placed.host))
        else:
            keys.append(("report", placed.report))
    return keys, known


def _fit_with_jumps(state: _State) -> None:
    """Fits; where a host's clock stepped, again without the shorter side of the step, so that it is not smeared over the run."""
    state.fitted = _fit_with_drift(state)
    for _ in range(_MOST_JUMPS):
        found = find_jump(state.blocks, state.units, state.fitted, set(state.jumps))
        if found is None:
            break
        whole = [Block(b.instances, b.ranks, b.ends, b.present.copy()) for b in state.blocks]
        for block in state.blocks:
            own = state.units.host_of_rank[block.ranks] == found.host
            if own.any() and not own.all():  # among themselves the host's ranks step together
                outside = (block.ends < found.at_ns) if found.keep_after else (block.ends >= found.at_ns)
                block.present &= ~(outside & own[None, :])
        state.blocks = [kept for block in state.blocks if (kept := block.of_two()) is not None]
        state.jumps[found.host] = found
        state.fitted = _fit_with_drift(state)
        # only now the rate is free of the step
        state.jumps[found.host] = found.measured(whole, state.units, state.fitted)


def _fit_with_drift(state: _State) -> Fit:
    """The fit, with a rate for the hosts where it lowers the residual by more than chance would."""
    blocks, units = state.blocks, state.units
    steady = fit(blocks, units, np.zeros(units.hosts, np.bool_), state.fitted if state.jumps else None)
    span, count = _extent(state)
    can = (span >= _DRIFT_SPAN_SURE_NS) & (count >= 2 * LEAST_INSTANCES)
    if not can.any():
        return steady
    criterion = _criterion(blocks, units, steady, 0)
    moving = fit(blocks, units, can, steady)
    # of times that fit exactly the error is 0
    strength = np.abs(moving.b) / np.maximum(moving.b_error, np.finfo(np.float64).tiny)
    # one parameter lowers the criterion when its square over its variance is above log n; short spans need to be surer
    needed = np.where(span >= _DRIFT_SPAN_NS, np.sqrt(np.log(np.maximum(count, 2))), _SURE)
    chosen = can & (strength > needed) & (np.abs(moving.b) < _MOST_DRIFT)
    if not chosen.any():
        return fit(blocks, units, chosen, steady)
    if (chosen != can).any():
        moving = fit(blocks, units, chosen, steady)
    if _criterion(blocks, units, moving, int(chosen.sum())) < criterion:
        return moving
    return fit(blocks, units, np.zeros(units.hosts, np.bool_), steady)


def _extent(state: _State) -> tuple[Floats, Floats]:
    """For each host the time that its evidence spans, ns, and its number of ends."""
    hosts = state.units.hosts
    first, last, count = np.full(hosts, np.inf), np.full(hosts, -np.inf), np.zeros(hosts)
    for block in state.blocks:
        for column, host in enumerate(state.units.host_of_rank[block.ranks]):
            ends = block.ends[block.present[:, column], column]
            if len(ends):
                first[host], last[host] = min(first[host], ends.min()), max(last[host], ends.max())
                count[host] += len(ends)
    return np.where(count > 0, last - first, 0.0), count


def _criterion(blocks: Sequence[Block], units: Units, found: Fit, parameters: int) -> float:
    """Bayesian information criterion of a fit, with the robust scale of each communicator instead of the variance."""
    total, rows = 0.0, 0
    for block in blocks:
        residual = residuals(block, units, found.c, found.b, found.t0)[block.present]
        if len(residual):
            scale = MAD_TO_SIGMA * float(np.median(np.abs(residual))) + 1.0
            total += 2.0 * len(residual) * float(np.log(scale))
            rows += len(residual)
    return total + parameters * float(np.log(max(rows, 2)))


def _components(blocks: Sequence[Block], unit_of: Int64) -> Int64:
    """Component of each unit, by the instances that its ranks share."""
    together = (unit_of[members] for block in blocks for members in _meetings(block))
    return _joined(int(unit_of.max()) + 1 if len(unit_of) else 0, together)


def _meetings(block: Block) -> Iterator[Int64]:
    """The members of instances, each set of them at least once."""
    whole = block.present.all(axis=1)
    if whole.any():
        yield block.ranks
        return
    for columns in block.present:
        yield block.ranks[columns]


def _clusters(component: Int64, unit_of: Int64, host_of: Int64, hosts: int) -> Int64:
    """Cluster of each host, by the components that its units are of."""
    return _joined(hosts, (host_of[rows] for rows in rows_by(component[unit_of]).values()))


def _joined(count: int, together: Iterable[Int64]) -> Int64:
    """The set of each of `count` things, which is its lowest member, where all of each of `together` are of one set."""
    sets = DisjointSets(count)
    for members in together:
        one, *others = members.tolist() or (0,)
        for other in others:
            sets.join(one, other)
    return sets.labels()


def _join_by_messages(state: _State, rows: _Rows) -> None:
    """Connects components by sends and receives: no message is received before it was sent."""
    fitted, units = state.fitted, state.units
    if not len(rows.messages) or len(np.unique(units.component)) < 2:
        return
    used = rows.messages
    at = rows.at[used]
    unit = units.of_rank[at]
    ends = rows.end[used] - state.known[at] - fitted.c[unit]
    ends -= fitted.b[units.host_of_rank[at]] * (rows.end[used] - fitted.t0)
    component = units.component.copy()
    moves = np.zeros(units.count)
    bounds = bounds_between(rows.evidence.instance[used], units.component[unit], rows.evidence.direction[used], ends)
    members = {number: rows.tolist() for number, rows in rows_by(component[units.of_rank]).items()}
    own = rows_by(component)
    for bound in bounds:
        one, other = int(component[bound.one]), int(component[bound.other])
        if one == other:
            continue
        # bound.ahead_ns is what the second is ahead of the first before either was moved
        kept, moved = min(one, other), max(one, other)
        ahead = bound.ahead_ns - (moves[bound.other] - moves[bound.one])
        ahead = ahead if moved == other else -ahead
        for i in members[kept]:
            state.widths.setdefault(i, bound.half_width_ns)
            state.messages[i] = state.messages.get(i, 0) + bound.messages
        for i in members[moved]:
            state.widths[i] = max(state.widths.get(i, 0.0), bound.half_width_ns)
            state.messages[i] = state.messages.get(i, 0) + bound.messages
        moves[own[moved]] += ahead
        component[own[moved]] = kept
        members[kept] += members.pop(moved)
        own[kept] = np.concatenate((own[kept], own.pop(moved)))
    fitted.c += moves
    state.units = replace(units, component=component)


def _assembled(state: _State) -> Solution:
    """The solution in the manifest's terms: offsets at the run's zero, against the first host of each component."""
    units, ranks, fitted = state.units, state.ranks, state.fitted
    host_of, component = units.host_of_rank, units.component[units.of_rank]
    left = remaining(state.blocks, units, fitted)
    rates = fitted.b[host_of]
    c = fitted.c[units.of_rank] - rates * fitted.t0 + state.known * (1.0 - rates)
    stamped = np.array([p.stamped for p in ranks], np.bool_)
    for here in rows_by(component).values():
        reference = here[host_of[here] == host_of[here].min()]
        own = reference[stamped[reference]]
        c[here] -= np.median(c[own if len(own) else reference])
    ahead = c / (1.0 - rates)
    of_host = rows_by(host_of)
    # a host belongs to the component with most evidence of its ranks'
    main = [_heaviest(component[of_host[h]], left.ranks[of_host[h]]) for h in range(units.hosts)]
    numbers = {int(n): i for i, n in enumerate(dict.fromkeys([*main, *component.tolist()]))}
    clocks, errors = [], np.zeros(len(ranks))
    for h, host in enumerate(state.hosts):
        inside = of_host[h][component[of_host[h]] == main[h]]
        offset = round(float(np.median(ahead[inside])))
        # a rank that nothing connects to the others of its host has its host's clock, and its stamp is all there is
        errors[inside] = ahead[inside] - offset
        residual = _residual(state, left, inside)
        clock = Clock(host, offset, float(fitted.b[h] * 1e6), residual, _evidence(state, left, inside, h), numbers[main[h]])
        clocks.append(clock)
    stamp = {p.rank: round(float(errors[i])) for i, p in enumerate(ranks)}
    offsets = {clock.host: clock.offset_ns for clock in clocks}
    return Solution(
        clocks=tuple(clocks),
        stamp_errors_ns=stamp,
        ahead_ns={p.rank: stamp[p.rank] + offsets[p.host] for p in ranks},
        components={p.rank: numbers[int(component[i])] for i, p in enumerate(ranks)},
        residuals_ns={p.rank: _residual(state, left, np.array([i])) for i, p in enumerate(ranks)},
        notes=(*state.notes, *_notes(state, clocks, component != np.array(main, np.int64)[host_of])),
    )


def _heaviest(components: Int64, weights: Int64) -> int:
    totals: dict[int, int] = defaultdict(int)
    for number, weight in zip(components.tolist(), weights.tolist(), strict=True):
        totals[number] += weight
    return max(totals, key=lambda n: (totals[n], -n))


def _residual(state: _State, left: Remaining, ranks: NDArray[np.intp]) -> int | None:
    """The typical error of `ranks`, by their places; a clock that stepped is wrong by the step on one side of it."""
    widths = [state.widths[i] for i in ranks.tolist() if i in state.widths]
    found = left.of(ranks)
    if widths:
        found = max(found or 0.0, *widths, 1.0)
    steps = [abs(state.jumps[int(h)].step_ns) for h in np.unique(state.units.host_of_rank[ranks]) if int(h) in state.jumps]
    return None if found is None else round(max([found, *steps]))


def _evidence(state: _State, left: Remaining, ranks: NDArray[np.intp], host: int) -> int:
    messages = sum(state.messages.get(i, 0) for i in ranks.tolist())
    return int(left.hosts[host]) or messages


def _notes(state: _State, clocks: Sequence[Clock], alone: NDArray[np.bool_]) -> list[str]:
    """What a reader must know of the clocks."""
    notes = []
    zero = min((float(b.ends[b.present].min()) for b in state.blocks if b.present.any()), default=0.0)
    for h, jump in sorted(state.jumps.items()):
        side = "before" if jump.keep_after else "after"
        notes.append(
            f"the clock of {state.hosts[h]} steps by {round(jump.step_ns):,} ns against the others', "
            f"{(jump.at_ns - zero) / 1e9:.3f} s after the first collective; its times {side} that are wrong by as much, "
            "so shorter waits there between hosts are not reliable"
        )
    parts: dict[int, list[str]] = defaultdict(list)
    for clock in clocks:
        parts[clock.component].append(clock.host)
    if len(parts) > 1:
        named = "; ".join(_named(hosts) for hosts in list(parts.values())[:4])
        more = f"; and {len(parts) - 4} more" if len(parts) > 4 else ""
        notes.append(
            f"{len(parts)} groups of hosts share no collective ({named}{more}): between them only UTC stamps are available, "
            "which are off by milliseconds"
        )
    lonely = [p.rank for p, is_alone in zip(state.ranks, alone, strict=True) if is_alone]
    if lonely:
        subject = f"rank {lonely[0]} is" if len(lonely) == 1 else f"ranks {number_ranges(lonely)} are"
        notes.append(
            f"{subject} connected to the others by no collective: only UTC stamps are available, which are off by milliseconds"
        )
    few = [c.host for c in clocks if c.residual_ns is None and c.evidence]
    if few:
        notes.append(
            f"{_named(few)}: too few shared collectives to estimate the error of the clocks, so waits there are not reliable"
        )
    if state.widths:
        bounded = sorted({state.ranks[i].host for i in state.widths})
        notes.append(f"{_named(bounded)}: the clocks are known only from sends and receives, which give bounds")
    return notes


def _named(hosts: Sequence[str]) -> str:
    return ", ".join(hosts[:4]) + (f" and {len(hosts) - 4} more hosts" if len(hosts) > 4 else "")
