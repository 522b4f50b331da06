"""Which call of a log is which operation of a trace, on one rank: two sequences, aligned.

Both are in the order of issue. A log is usually longer than the trace, and lines and events go missing on either side.
So short pieces of the trace are searched in the whole log first (correlation over operations), and from the best place
on both sequences are aligned within a band, by operation and by what is known of sizes; the duration of operations of
one size distinguishes places with equal operations. Values that a similarly good alignment would fill differently stay
open.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from alltrace.core import sequences
from alltrace.trace.arrays import Flags, Floats, Int64
from alltrace.trace.distinct import rows_by

BAND = 96
_PIECE = 16_384
_PIECES = ((128, 16), (32, 32))
_WELL = 0.95
_MOST_PAIRS = 64
_FEWEST = 8
_ROUNDS = 8
_FOUND = 0.5
_NEARLY = 0.12
_MOST_PLACES = 20_000
_MOST_TRIED = 6
_LESSONS = 2
_PURE = 0.9
_MARGIN = 1.0
_ANOTHER_MARGIN = 6.0
_CLOSE_NS = 3_000_000_000
QUARTER_NS = 900_000_000_000
ZONES = 14 * 4
_ALIKE = 0.35
"""Two durations are alike if their logarithms differ by less."""


@dataclass(frozen=True)
class TracedOps:
    """Operations of one rank in the order of issue; arrays of n values, of which -1 is an unknown stream or size."""

    op: Int64
    duration_ns: Int64  # on the device, 0 if not known
    lane: Int64  # number of the stream
    bytes: Int64
    utc_ns: Int64 | None  # when it was issued, by the host's clock; None if the report does not say


@dataclass(frozen=True)
class LoggedCalls:
    """Calls of one rank in the order of its log; arrays of m values."""

    op: Int64  # as in `TracedOps`
    kind: Int64  # equal numbers fill in the same
    group: Int64  # number of its communicator
    bytes: Int64
    utc_ns: Int64 | None  # when its line was written, in UTC or a local time of an unknown zone; None without times


@dataclass(frozen=True)
class CallMatch:
    call: Int64  # -1 without one
    sure: Flags  # no similarly good alignment fills in something else
    covered: int  # operations within the log
    share: float  # matched operations of these
    chance: float  # the share of operations that would agree by chance
    timed: bool  # the lines' times agree with the trace's
    reason: str | None = None  # why there is no match


def match_calls(trace: TracedOps, log: LoggedCalls) -> CallMatch:
    """Align the operations of a trace with the calls of a log."""
    n, m = len(trace.op), len(log.op)
    if not n or not m:
        return _none(n, 0.0, "the trace has no operation" if not n else "the log has no call")
    chance = _chance(trace, log)
    timed = trace.utc_ns is not None and log.utc_ns is not None
    windows = _windows(trace, log)
    if not windows:
        return _none(n, chance, "its lines are from another time than the trace")
    found: list[Alignment] = []
    agreeing = 0.0
    for low, high in windows:
        times = None if log.utc_ns is None else log.utc_ns[low:high]
        part = LoggedCalls(log.op[low:high], log.kind[low:high], log.group[low:high], log.bytes[low:high], times)
        for width, many in _PIECES:
            place = _place(trace, part, width, many)
            agreeing = max(agreeing, place.agreeing)
            if place.agreeing >= _FOUND:
                paths = (_aligned(trace, part, place, first) for first in _worth_trying(trace, part, place))
                found += [p._replace(call=np.where(p.call >= 0, p.call + low, -1)) for p in paths]
            if place.agreeing >= _WELL:  # where much is missing only short pieces are whole
                break
    if not found:
        return _none(
            n, chance, f"at best {100 * agreeing:.0f} % of its operations are in the same order as in the trace"
        )
    found.sort(key=lambda f: -f.score)
    best = found[0]
    sure, kinds = best.sure.copy(), np.append(log.kind, -1)  # the last: of no call
    for other in found[1:]:
        if best.score - other.score < _ANOTHER_MARGIN:
            sure &= (best.call < 0) | (kinds[best.call] == kinds[other.call])
    matched = best.call >= 0
    covered = _covered(best.call, m)
    return CallMatch(
        best.call, sure & matched, covered, float(matched.sum() / covered) if covered else 0.0, chance, timed
    )


def _none(n: int, chance: float, reason: str) -> CallMatch:
    return CallMatch(np.full(n, -1, np.int64), np.zeros(n, np.bool_), 0, 0.0, chance, timed=False, reason=reason)


def _covered(call: Int64, m: int) -> int:
    """Operations that the log can have: others are before its start or after its end."""
    at = np.flatnonzero(call >= 0)
    if not len(at):
        return 0
    first, last = int(at[0]), int(at[-1])
    before = min(first, int(call[first]))
    behind = min(len(call) - 1 - last, m - 1 - int(call[last]))
    return last - first + 1 + before + behind


def _tokens(trace: TracedOps, log: LoggedCalls) -> tuple[Int64, Int64]:
    """Operations, with their sizes if both sides mostly have them."""
    if min((trace.bytes >= 0).mean(), (log.bytes >= 0).mean()) < _PURE:
        return trace.op, log.op
    pairs = np.stack((np.concatenate((trace.op, log.op)), np.concatenate((trace.bytes, log.bytes))))
    _, numbers = np.unique(pairs, axis=1, return_inverse=True)
    numbers = numbers.reshape(-1).astype(np.int64)
    return numbers[: len(trace.op)], numbers[len(trace.op) :]


def _chance(trace: TracedOps, log: LoggedCalls) -> float:
    """The share of operations that would agree if their order meant nothing."""
    mine, its = map(rows_by, _tokens(trace, log))
    return sum(len(rows) * len(its[token]) for token, rows in mine.items() if token in its) / (
        len(trace.op) * len(log.op)
    )


def _windows(trace: TracedOps, log: LoggedCalls) -> list[tuple[int, int]]:
    """The calls with lines written while the trace was made, for each possible time zone of the lines.

    Times of another zone differ by quarters of an hour. If the lines' times fit as they are, no other zone is tried.
    """
    if trace.utc_ns is None or log.utc_ns is None:
        return [(0, len(log.op))]
    first, last = int(trace.utc_ns.min()) - _CLOSE_NS, int(trace.utc_ns.max()) + _CLOSE_NS
    reached = np.maximum.accumulate(log.utc_ns)
    windows = []
    for quarters in sorted(range(-ZONES, ZONES + 1), key=abs):
        ahead = quarters * QUARTER_NS
        low = int(np.searchsorted(reached, first + ahead))
        high = int(np.searchsorted(reached, last + ahead, side="right"))
        if high - low >= min(_FEWEST, len(trace.op)):
            windows.append((low, high))
            if not quarters:
                break
    return windows


@dataclass(frozen=True)
class _Place:
    """Where a piece of the trace is found in the log."""

    begin: int
    width: int
    firsts: Int64  # calls that the first operation may be, negative where the log begins later
    agreeing: float  # share
    lanes: Int64  # for each communicator the stream that its operations are on there


def _place(trace: TracedOps, log: LoggedCalls, width: int, many: int) -> _Place:
    """The piece of the trace that is best found in the log.

    Every communicator's operations are on one stream, which is found together with the place: there, each communicator
    gets the stream that matches most of its operations.
    """
    mine, its = _tokens(trace, log)
    n, m = len(mine), len(its)
    width = min(n, width)
    begins = np.unique(np.linspace(0, n - width, min(many, max(1, n // width))).astype(np.int64))
    size = 1 << (m + width - 1).bit_length()
    groups, lanes, words = np.unique(log.group), np.unique(trace.lane), np.intersect1d(mine, its)
    if len(groups) * len(lanes) > _MOST_PAIRS:
        lanes = lanes[:1] * 0 - 1
    signs = np.random.default_rng(0).choice((-1.0, 1.0), (_ROUNDS, int(max(mine.max(), its.max())) + 1))
    if len(words) <= _ROUNDS:  # few enough to be exact
        signs = (np.arange(signs.shape[1]) == words[:, None]).astype(np.float64)
    scale = 1.0 if len(words) <= _ROUNDS else 1.0 / _ROUNDS
    best = _Place(0, width, np.zeros(0, np.int64), -1.0, np.full(int(log.group.max()) + 1, -1, np.int64))
    if not len(words):
        return best
    theirs = np.array([[np.fft.rfft(np.where(log.group == g, row[its], 0.0), size) for row in signs] for g in groups])
    shifts = np.arange(-(width - 1), m)
    overlap = np.minimum(shifts + width, m) - np.maximum(shifts, 0)
    short = overlap < min(width, m, max(8, width // 2))
    for begin in begins.tolist():
        piece = slice(begin, begin + width)
        own = trace.lane[piece]
        met = np.zeros((len(groups), len(lanes), len(shifts)))
        for k, lane in enumerate(lanes.tolist()):
            here = (own == lane) if len(lanes) > 1 else np.ones(width, np.bool_)
            for row, spectrum in zip(signs, theirs.transpose(1, 0, 2), strict=True):
                turned = np.fft.rfft(np.where(here, row[mine[piece]], 0.0)[::-1], size)
                met[:, k] += np.fft.irfft(spectrum * turned, size)[:, : len(shifts)] * scale
        share = met.max(axis=1).sum(axis=0) / overlap
        share[short] = -1.0
        top = int(share.argmax())
        if share[top] > best.agreeing + 1e-9:
            near = np.flatnonzero(share >= share[top] - _NEARLY)
            near = near[np.argsort(-share[near], kind="stable")][:_MOST_PLACES]
            choice = met[:, :, top].argmax(axis=1)
            stream = np.full(int(log.group.max()) + 1, -1, np.int64)
            stream[groups] = np.where(met[:, :, top].max(axis=1) > 1.5, lanes[choice], -1)
            best = _Place(begin, width, shifts[near], float(share[top]), stream)
    return best


def _worth_trying(trace: TracedOps, log: LoggedCalls, place: _Place) -> list[int]:
    """Of places that fill in the same, one; of others those at which equal kinds took equally long."""
    begin, width = place.begin, place.width
    distinct: dict[int, int] = {}
    for first in place.firsts.tolist():
        low, high = max(0, first), min(first + width, len(log.kind))
        distinct.setdefault(zlib.crc32(log.kind[low:high].tobytes(), high - low), first)
    if len(distinct) <= _MOST_TRIED:
        return list(distinct.values())
    costs = []
    for first in distinct.values():
        low, high = max(0, -first), min(width, len(log.kind) - first)
        kinds = log.kind[first + low : first + high]
        taken = np.log(np.maximum(trace.duration_ns[begin + low : begin + high], 1))
        _, inverse, counts = np.unique(kinds, return_inverse=True, return_counts=True)
        means = np.bincount(inverse, taken) / counts
        differs = trace.op[begin + low : begin + high] != log.op[first + low : first + high]
        lane = place.lanes[log.group[first + low : first + high]]
        differs |= (lane >= 0) & (lane != trace.lane[begin + low : begin + high])
        costs.append(float(np.minimum(np.abs(taken - means[inverse]), 1.0).mean() + differs.mean()))
    order = np.argsort(costs, kind="stable")[:_MOST_TRIED]
    values = list(distinct.values())
    return [values[i] for i in order.tolist()]


def _aligned(trace: TracedOps, log: LoggedCalls, place: _Place, first: int) -> Alignment:
    """The alignment from one place on; durations of kinds are learned from an alignment without them."""
    kinds = int(log.kind.max()) + 1
    lane = np.full(kinds, -1, np.int64)
    lane[log.kind] = place.lanes[log.group]
    path = _passed(trace, log, place.begin, first, np.full(kinds, np.nan), lane)
    for _ in range(_LESSONS):
        typical, usual = _learned(trace, log, path.call, kinds)
        path = _passed(trace, log, place.begin, first, typical, np.where(usual >= 0, usual, lane))
    return path


def _learned(trace: TracedOps, log: LoggedCalls, call: Int64, kinds: int) -> tuple[Floats, Int64]:
    """For each kind the median logarithm of durations and the usual lane; NaN and -1 with fewer than three."""
    typical, lane = np.full(kinds, np.nan), np.full(kinds, -1, np.int64)
    rows = np.flatnonzero((call >= 0) & (trace.duration_ns > 0))
    for kind, at in rows_by(log.kind[call[rows]]).items():
        part = rows[at]
        if len(part) >= 3:
            typical[kind] = np.median(np.log(trace.duration_ns[part]))
            lanes, many = np.unique(trace.lane[part], return_counts=True)
            if many.max() >= _PURE * len(part):
                lane[kind] = lanes[many.argmax()]
    return typical, lane


def _passed(trace: TracedOps, log: LoggedCalls, begin: int, place: int, typical: Floats, lane: Int64) -> Alignment:
    """The band laid from the place to the end of the trace, and from there back to its beginning, piece by piece."""
    n = len(trace.op)
    call, sure = np.full(n, -1, np.int64), np.zeros(n, np.bool_)
    taken = np.log(np.where(trace.duration_ns > 0, trace.duration_ns, np.nan))
    score = 0.0
    for low, high, backward in _pieces(begin, n):
        shift = place - begin
        known = np.flatnonzero(call >= 0)
        if len(known):
            last = known[0] if backward else known[-1]
            shift = int(call[last] - last)
        found, certain, worth = align_within_band(
            trace.op[low:high], trace.bytes[low:high], taken[low:high], trace.lane[low:high], log.op, log.bytes,
            log.kind, typical, lane, low + shift, BAND, _ALIKE, _MARGIN,
        )  # fmt: skip
        fresh = found >= 0
        if len(known):  # a call belongs to one operation
            fresh &= (found < call[known[0]]) | (found > call[known[-1]])
        call[low:high] = np.where(fresh, found, -1)
        sure[low:high] = certain & fresh
        score += worth
    return Alignment(call, sure, score)


class Alignment(NamedTuple):
    """The best alignment of n operations and some calls."""

    call: Int64
    sure: Flags
    score: float


def align_within_band(
    op: Any, size: Any, duration: Any, lane: Any, call_op: Any, call_size: Any, kind: Any, kind_duration: Any,
    kind_lane: Any, first: int, band: int, alike: float, margin: float,
) -> Alignment:  # fmt: skip
    """Align the operations of a trace with the calls of a log, whose call `first` is expected at the first operation.

    A match scores 1, more where sizes, durations (logarithms, NaN if not known) and lanes agree and less where they do
    not; skipping costs. Operations before the first call and after the last cost nothing. Logarithms of equal durations
    are apart by at most `alike`. A match is sure if alignments in which the operation has a call of another kind score
    less by `margin`.
    """
    ops, sizes, durations, lanes, call_ops, call_sizes, kinds, kind_durations, kind_lanes = (
        np.ascontiguousarray(c) for c in (op, size, duration, lane, call_op, call_size, kind, kind_duration, kind_lane)
    )
    n, m, width = len(ops), len(call_ops), 2 * band + 1
    scores, prefix, suffix = np.empty((n, width)), np.empty((n + 1, width + 1)), np.zeros((n + 1, width + 1))
    sequences.match_scores(
        ops, sizes, durations, lanes, call_ops, call_sizes, kinds, kind_durations, kind_lanes, first, alike, scores
    )
    sequences.prefix_scores(scores, m, first, prefix)
    sequences.suffix_scores(scores, m, first, suffix)
    call, sure = np.full(n, -1, np.int64), np.zeros(n, np.bool_)
    sequences.best_path(scores, prefix, m, first, call)
    sequences.certain_matches(scores, prefix, suffix, call, kinds, first, margin, sure)
    return Alignment(call, sure, float(prefix[-1].max()))


def _pieces(begin: int, n: int) -> list[tuple[int, int, bool]]:
    """First, end and direction of each piece: from `begin` to the end, then from `begin` back."""
    forward = [(low, min(low + _PIECE, n), False) for low in range(begin, n, _PIECE)]
    back = [(max(high - _PIECE, 0), high, True) for high in range(begin, 0, -_PIECE)]
    return forward + back
