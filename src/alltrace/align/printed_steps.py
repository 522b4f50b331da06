"""Steps from what the training printed: their numbers if reports have none, or the steps themselves.

A line is printed at a step's end. Where lines have a time, that places them; else how long the steps took does, if it
can: a sequence of step times that fits at several places about as well numbers nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from alltrace.align.log_call_matching import QUARTER_NS, ZONES
from alltrace.run.clock import clock_map
from alltrace.run.overlay import STEPS
from alltrace.run.run_logs import printed_steps
from alltrace.run.store import Run
from alltrace.trace.arrays import Floats, Int64

_COARSE_NS = 4e9
_MOST_AGREE = 0.8
_CLOSE_NS, _STAMPS_NS = 5e6, 1e9
_PHASE = 0.3
_FITS = 0.1
_ALL_FIT = 0.2
_BETTER = 3.0
_FEWEST = 3
_AT_ONCE = 1 << 18


class _Fit(NamedTuple):
    """The distance between the times of steps at one place of the log, over a number of steps."""

    mean: float
    variance: float
    worst: float
    steps: int


def with_printed_steps(run: Run, steps: Any, notes: tuple[str, ...]) -> tuple[Any, tuple[str, ...]]:
    """The steps of an aligned run with the values of its training log, if there is one and it fits; and notes."""
    printed = printed_steps(run.path)
    if printed is None or not printed.num_rows:
        return steps, notes
    number = printed.column("step").to_numpy()
    stamp = printed.column("time_ns").to_numpy(zero_copy_only=False).astype(np.float64)
    took = printed.column("step_time_s").to_numpy(zero_copy_only=False).astype(np.float64) * 1e9
    if steps.num_rows:
        if "range" in steps.column("source").to_pylist():
            return steps, (*notes, "the program's ranges name the steps, so the training log was not needed for them")
        return _numbered(run, steps, notes, number, stamp, took)
    made, reason = _made(run, number, stamp, took)
    if made is None:
        return steps, (*notes, f"the training log has {len(number)} unused steps: {reason}")
    per_rank = made.num_rows // max(1, len(run.ranks))
    text = (
        f"{per_rank} of {len(number)} steps of the training log are in the reports; each ends when its line was written"
    )
    return made, (*(n for n in notes if not n.startswith("no steps were found")), text)


def _bases(run: Run) -> dict[int, int] | None:
    """From times of a rank's files to UTC by the first host's clock; None if a report does not state its UTC."""
    zero = run.manifest.zero_utc_ns
    if zero is None or any(r.time_base_utc_ns is None for r in run.ranks):
        return None
    return {r.rank: zero + clock_map(run.manifest, r).apply_one(0) for r in run.ranks}


def _uncertain_ns(run: Run) -> float:
    """How far the clock of the log's host, which the log does not name, can be from the first host's."""
    offsets = [c.offset_ns for c in run.manifest.clocks] or [0]
    known = len(offsets) == 1 or all(c.evidence for c in run.manifest.clocks)
    return float(max(offsets) - min(offsets)) + (_CLOSE_NS if known else _STAMPS_NS)


def _zones(stamp: Floats, first: int, last: int) -> list[int]:
    """How far the lines may be ahead of UTC, in quarters of an hour, so that one is between `first` and `last`."""
    found = []
    for quarters in sorted(range(-ZONES, ZONES + 1), key=abs):
        at = stamp - quarters * QUARTER_NS
        if ((at >= first) & (at <= last)).any():
            found.append(quarters)
            if not quarters:
                break
    return found


def _numbered(
    run: Run, steps: Any, notes: tuple[str, ...], number: Int64, stamp: Floats, took: Floats
) -> tuple[Any, tuple[str, ...]]:
    own, first = np.unique(steps.column("step").to_numpy(), return_index=True)
    of, begin, end = (steps.column(c).to_numpy() for c in ("step", "start", "end"))
    lasted = np.array([np.median((end - begin)[of == s]) for s in own.tolist()], np.float64)
    bases = _bases(run)
    timed = None
    if bases is not None:
        base = np.array([bases[r] for r in steps.column("rank").to_numpy()[first].tolist()], np.int64)
        timed = _by_time(stamp, end[first] + base - lasted / 2, float(np.median(lasted)))
    near = int(np.ceil(max(_uncertain_ns(run) / float(np.median(lasted)) - _PHASE, 0)))
    shifts = range(-(len(own) - 1), len(number))
    if timed is not None:
        shifts = range(max(shifts.start, timed - near), min(shifts.stop, timed + near + 1))
    unknown = 0.0 if timed is not None and not near else np.inf
    fits = _fits(lasted, took, shifts, unknown)
    best = min(fits, key=lambda s: (fits[s].mean, -fits[s].steps), default=None)
    total = f"{len(own)} steps of the reports"
    if best is None or float(np.median(_cost(lasted, took, best, unknown))) > (
        _FITS if timed is None or near else np.inf
    ):
        return steps, (*notes, f"the training log was not joined: its {len(number)} steps do not fit the {total}")
    for shift, fit in fits.items():
        if shift != best and _as_good(fit, fits[best]):
            return steps, (
                *notes,
                f"the training log was not joined: the {total} fit in several places of its {len(number)}",
            )
    # if a step of the reports has no line, the numbers continue
    at = np.arange(len(own)) + best
    inside = (at >= 0) & (at < len(number))
    jump = int(number[at[inside][0]] - np.flatnonzero(inside)[0])
    new = np.where(inside, number[np.clip(at, 0, len(number) - 1)], np.arange(len(own)) + jump)
    if (np.diff(new) <= 0).any():
        return steps, (*notes, "the training log was not joined: its steps are out of order where they fit")
    column = pa.array(new[np.searchsorted(own, of)], pa.int64())
    text = f"steps have the numbers of the training log: {int(inside.sum())} of {total} have a line in it"
    return steps.set_column(steps.column_names.index("step"), "step", column), (*notes, text)


def _by_time(stamp: Floats, middle: Floats, lasted_ns: float) -> int | None:
    """How many lines are before that of the first step: the middle of a step is between the previous line and its own.

    None if the lines' times are missing, too coarse, or of another time.
    """
    if not np.isfinite(stamp).all() or not np.isfinite(middle).all() or (np.diff(stamp) < 0).any():
        return None
    coarse = not (np.mod(stamp, 1e9) > 0).any()
    if coarse and lasted_ns < _COARSE_NS:
        return None
    for quarters in _zones(stamp, int(middle.min()), int(middle.max() + lasted_ns)):
        at = np.searchsorted(stamp - quarters * QUARTER_NS, middle) - np.arange(len(middle))
        inside = (at + np.arange(len(middle)) > 0) & (at + np.arange(len(middle)) < len(stamp))
        if inside.any():
            shifts, many = np.unique(at[inside], return_counts=True)
            if many.max() >= _MOST_AGREE * inside.sum():
                return int(shifts[many.argmax()])
    return None


def _fits(lasted: Floats, took: Floats, shifts: range, unknown: float) -> dict[int, _Fit]:
    """How well the steps of the reports fit the log's from each shift on, by their times; many shifts at a time."""
    found: dict[int, _Fit] = {}
    own, lines = len(lasted), len(took)
    windows = np.lib.stride_tricks.sliding_window_view(took, own) if own <= lines else took[:0]
    shift = shifts.start
    while shift < shifts.stop:
        if 0 <= shift < len(windows):
            cost = _deviation(lasted, windows[shift : min(shifts.stop, shift + max(1, _AT_ONCE // own))], unknown)
        else:
            cost = _cost(lasted, took, shift, unknown)[np.newaxis]
        if cost.shape[1] >= min(_FEWEST, own, lines):
            with np.errstate(invalid="ignore"):  # of infinite values there is no variance
                moments = cost.mean(1).tolist(), cost.var(1).tolist(), cost.max(1).tolist()
            found.update((shift + n, _Fit(*row, cost.shape[1])) for n, row in enumerate(zip(*moments, strict=True)))
        shift += len(cost)
    return found


def _cost(lasted: Floats, took: Floats, shift: int, unknown: float) -> Floats:
    """How far the times of each step are apart where the first step of the reports is the log's number `shift`."""
    return _deviation(lasted[max(0, -shift) : len(took) - shift], took[max(0, shift) : len(lasted) + shift], unknown)


def _deviation(lasted: Floats, took: Floats, unknown: float) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.abs(np.log(lasted / took))
    return np.where(np.isfinite(ratio), ratio, unknown)


def _as_good(other: _Fit, best: _Fit) -> bool:
    """Whether the steps' times do not distinguish another place from the best one."""
    n = min(other.steps, best.steps)
    if n < _FEWEST:
        return True
    if best.worst <= _ALL_FIT and other.worst >= 2 * _ALL_FIT:  # a slow step is in the right place
        return False
    more = other.mean - best.mean
    spread = float(np.sqrt((other.variance + best.variance) / n)) + 1e-12
    return more < _BETTER * spread and other.mean < 2 * _FITS


def _made(run: Run, number: Int64, stamp: Floats, took: Floats) -> tuple[Any, str]:
    """Steps by the lines' times alone, for every rank; None and why where that cannot be."""
    if not np.isfinite(stamp).any():
        return None, "their lines have no time"
    bases = _bases(run)
    spans = [
        (r.start_ns + bases[r.rank], r.end_ns + bases[r.rank])
        for r in run.ranks
        if bases and r.start_ns is not None and r.end_ns is not None
    ]
    if bases is None or not spans:
        return None, "a report does not contain its start time"
    first, last = min(s for s, _ in spans), max(e for _, e in spans)
    zones = _zones(stamp, first, last)
    if len(zones) != 1:
        unlike = "their times are not those of the reports"
        return None, "their times have no time zone, and several would fit" if zones else unlike
    end = stamp - zones[0] * QUARTER_NS
    before = np.concatenate(([np.nan], np.where(np.diff(number) == 1, end[:-1], np.nan)))
    begin = np.where(np.isfinite(took), end - took, before)
    begin = np.fmax(begin, before) if np.isfinite(before).any() else begin
    inside = np.isfinite(begin) & np.isfinite(end) & (end > first) & (begin < last) & (end > begin)
    if not inside.any():
        return None, "none of them is within the reports"
    shortest = float(np.median((end - begin)[inside]))
    if _uncertain_ns(run) > shortest / 2:
        half = f"half of a step ({shortest / 1e6:.0f} ms)"
        return None, f"the hosts' clocks differ by more than {half}, and the log does not name its host"
    ranks, count = len(run.ranks), int(inside.sum())
    base = np.repeat([bases[r.rank] for r in run.ranks], count)
    table = {
        "rank": np.repeat([r.rank for r in run.ranks], count),
        "step": np.tile(number[inside], ranks),
        "start": (np.tile(begin[inside], ranks) - base).astype(np.int64),
        "end": (np.tile(end[inside], ranks) - base).astype(np.int64),
        "device_start": pa.nulls(ranks * count, pa.int64()),
        "device_end": pa.nulls(ranks * count, pa.int64()),
        "kind": pa.array(["step"] * ranks * count).dictionary_encode(),
        "source": pa.array(["log"] * ranks * count).dictionary_encode(),
    }
    return pa.table(table).cast(STEPS.arrow_schema()), ""
