"""Steps in the records of PyTorch's flight recorder, which also covers the time before and after a capture.

A training loop issues the same collectives in each step. So a step is a stretch of the record that repeats: the period
is the number of collectives after which group, operation, sizes and program line come again. The time from the first
collective of a step to that of the next one is the time of a step, on the host that issues them.

If a run of the same job is there, its steps tell how many collectives a step has and where one begins, and which of the
recorded steps lie within the capture.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from alltrace.align.capture_slowdown import RECORDER, WARM_UP, CaptureSlowdown, compared
from alltrace.run.store import Run
from alltrace.trace.arrays import Flags, Int64
from alltrace.trace.distinct import rows_by

_MOST_PERIOD = 4096
_ALIKE = 0.9
"""This share of a record repeats with the period, or there is none: programs save or evaluate sometimes."""
_LEAST_STEPS = 3


class Entry(Protocol):
    """An operation of a record, as `alltrace.readers.flight_recorder` reads it."""

    group: str
    op: str
    sizes: str
    datatypes: str
    frame: str
    p2p: bool
    number: int | None
    created_ns: int | None


class CapturedSteps(NamedTuple):
    """What a run says of one rank, in ns since 1970 by the clock of the rank's host; its first and last event."""

    starts: Int64
    ends: Int64
    begin_ns: int
    end_ns: int


class RecordedSteps(NamedTuple):
    """The steps of one rank, each of `period` collectives: n of them."""

    rank: int
    period: int
    starts: Int64  # when the first collective of each was issued, ns since 1970
    took_ns: Int64  # until the first collective of the next one
    captured: Flags | None = None  # it lies within the capture as a whole; None without a run
    outside: Flags | None = None  # it lies outside of the capture as a whole


def captured_steps(run: Run, steps: pa.Table) -> dict[int, CapturedSteps]:
    """What an aligned run and its steps say of each rank that has steps and a known time of day."""
    found = {}
    rank, start, end = (steps.column(c).to_numpy() for c in ("rank", "start", "end"))
    for number, rows in rows_by(rank).items():
        record = run.rank(number).record
        if record.time_base_utc_ns is None or record.start_ns is None or record.end_ns is None:
            continue
        clock, base = run.clock(record), record.time_base_utc_ns
        own = rows[np.argsort(start[rows], kind="stable")]
        starts, ends = (
            np.array([base + clock.invert_one(t) for t in edge[own].tolist()], np.int64) for edge in (start, end)
        )
        found[number] = CapturedSteps(starts, ends, base + record.start_ns, base + record.end_ns)
    return found


def recorded_steps(entries: Sequence[Entry], rank: int, captured: CapturedSteps | None = None) -> RecordedSteps | None:
    """The steps in a rank's record, whose entries are in any order.

    None if the record does not repeat, or if the run's steps do not have as many collectives each.
    """
    own = sorted(
        (e for e in entries if not e.p2p and e.created_ns is not None), key=lambda e: (e.created_ns or 0, e.number or 0)
    )
    if len(own) < 2 * _LEAST_STEPS:
        return None
    time = np.array([e.created_ns for e in own], np.int64)
    numbers: dict[tuple[str, ...], int] = {}
    like = np.array(
        [numbers.setdefault((e.group, e.op, e.sizes, e.datatypes, e.frame), len(numbers)) for e in own], np.int64
    )
    stretch = _repeated(like) if captured is None else _of_run(like, time, captured)
    if stretch is None:
        return None
    usual, first = stretch
    period = len(usual)
    at = _begins(like, usual, first % period)
    starts, took = time[at], time[at + period] - time[at]
    if len(starts) < _LEAST_STEPS:
        return None
    if captured is None:
        return RecordedSteps(rank, period, starts, took)
    ends = starts + took
    inside = (starts >= captured.begin_ns) & (ends <= captured.end_ns)
    return RecordedSteps(rank, period, starts, took, inside, (ends <= captured.begin_ns) | (starts >= captured.end_ns))


def _repeated(like: Int64) -> tuple[Int64, int] | None:
    """The stretch that most periods are, of the smallest with which the record repeats, and the record's begin."""
    for period in range(1, min(len(like) // _LEAST_STEPS, _MOST_PERIOD) + 1):
        if _repeats(like, period) >= _ALIKE:
            stretches = Counter(like[n : n + period].tobytes() for n in range(0, len(like) - period + 1, period))
            return np.frombuffer(stretches.most_common(1)[0][0], np.int64), 0
    return None


def _repeats(like: Int64, period: int) -> float:
    """The share of the record that is the same one period later."""
    return float((like[period:] == like[:-period]).mean()) if len(like) > period else 0.0


def _of_run(like: Int64, time: Int64, captured: CapturedSteps) -> tuple[Int64, int] | None:
    """The collectives of a step that has as many as most of the run's, and the place of the first one."""
    low, high = (np.searchsorted(time, edges) for edges in (captured.starts, captured.ends))
    whole = (low > 0) & (high < len(time)) & (high > low)
    if whole.sum() < _LEAST_STEPS:
        return None
    period, number = Counter((high - low)[whole].tolist()).most_common(1)[0]
    if number < _ALIKE * whole.sum() or _repeats(like, period) < _ALIKE:
        return None
    first = int(low[whole & (high - low == period)][0])
    return like[first : first + period], first


def _begins(like: Int64, usual: Int64, first: int) -> Int64:
    """Where steps begin that are as usual and after which the next begins; others between steps are left out."""
    found, at, period = [], first, len(usual)
    while at + period < len(like):
        if like[at + period] == usual[0] and np.array_equal(like[at : at + period], usual):
            found.append(at)
            at += period
        else:
            at += 1
    return np.array(found, np.int64)


def slowdown_by_recorder(recorded: Sequence[RecordedSteps]) -> CaptureSlowdown | None:
    """Compare steps within the capture with those outside, by the records of the rank that has most outside.

    Ranks that wait for one another take the same time, so one of them tells it. The first three steps of the record are
    left out.
    """
    found = []
    for rank in recorded:
        if rank.captured is not None and rank.outside is not None:
            took = rank.took_ns[WARM_UP:] / 1e9
            found.append(compared(took[rank.captured[WARM_UP:]], took[rank.outside[WARM_UP:]], RECORDER))
    return max((f for f in found if f is not None), key=lambda f: (f.outside, f.inside), default=None)
