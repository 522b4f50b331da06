"""Launches that another process interrupted: processes that share a device get slices of its time in turn.

A kernel that is interrupted takes its usual time and the slice of the other process, whatever kernel it is. So launches
of several different kernels exceed what the same launch usually takes by the same time. Slower clocks are different:
they stretch every kernel in proportion. Shapes that differ under one launch configuration are different, too: each
kernel then has its own excess.
"""

from dataclasses import dataclass

import numpy as np

from alltrace.trace.arrays import Flags, Int64
from alltrace.trace.distinct import sorted_groups

LEAST_NS = 500_000  # slices are longer; shapes of small kernels that happen to differ alike, mostly by less
LEAST_LAUNCHES = 12  # fewer interrupted launches can be chance

_LEAST_KERNELS = 4
"""So many different kernels have to agree: shapes of two or three that belong together can differ alike."""

_LEAST_STEPS = 3  # so many steps have to have interrupted launches: one may be special
_FEWEST = 8  # a kernel's usual time is known from this number of launches on
_USUAL = 10  # the usual time of a launch is the lowest tenth's: a neighbour may interrupt most launches of a kernel
_BAND = 0.05  # excesses agree if they differ from a multiple of the slice by this share of it or less

_MOSTLY = 0.75
"""A kernel agrees if this share of its excesses does, and the device is shared if this share of such kernels does."""

_UNLIKE = 2.0
"""Kernels that agree take times that differ by this factor: then their excess is not in proportion to what they
take."""

_NO_CLOCK = 3.0  # a slower clock stretches no kernel by this factor

_STEADY = 0.25
"""Launches that are not interrupted take at most this share longer than usual; kernels that vary take any time."""

_ALIKE = 1.5  # median excesses of different kernels by slices of any length differ by this factor


@dataclass(frozen=True)
class TimeSlices:
    """What another process took from a rank's kernels; n steps and k works, as in `KernelWork`."""

    slice_ns: int  # the time that the other process got at once, median
    launches: int  # how many launches were seen to be interrupted
    kernels: int  # how many different kernels these are of
    name: int  # the name of the kernel that was seen to lose most
    beyond_ns: Int64  # what the works took beyond their usual time because of that, (n, k)


@dataclass(frozen=True)
class Launches:
    """Launches of a rank's works in its judged steps; arrays of m whole numbers."""

    row: Int64  # their rows among all kernels of the rank
    step: Int64  # the place of each one's step
    work: Int64  # the place of its work


def time_slices(starts: Int64, ends: Int64, launches: Launches, names: Int64, sums_ns: Int64) -> TimeSlices | None:
    """What another process took from a rank's kernels; None if nothing shows that one did.

    Slices come as time passes. So works that are longer than a slice, which may be interrupted in every launch, and
    works with too few launches or with several shapes lose the same share of their time in a step as the others do.

    `starts`: When all kernels of the rank began, ns, those that communicate too.
    """
    works, step, work = len(names), launches.step, launches.work
    length = (ends - starts)[launches.row]
    # a kernel that runs beside another one can take longer because of that
    alone = _alone(starts, ends)[launches.row]
    usual = _usual(length, work, works)
    beyond = length - usual[work]
    seen = np.flatnonzero(alone & (beyond >= LEAST_NS))
    if len(seen) < LEAST_LAUNCHES:
        return None
    slice_ns = _agreed(beyond[seen], work[seen])
    near = _near(beyond, slice_ns)
    agrees = _agree(launches, names, usual, alone & (2 * beyond >= slice_ns), near)
    if agrees is None:
        # slices of any length: no clock is slower by such a factor
        near = beyond >= np.maximum(LEAST_NS, (_NO_CLOCK - 1) * usual[work])
        agrees = _agree(launches, names, usual, alone & (beyond >= LEAST_NS), near)
        if agrees is None:
            return None
        seen, others = alone & near & agrees[work], alone & ~near & agrees[work]
        steady = others & (beyond <= _STEADY * usual[work])
        if steady.sum() < _MOSTLY * others.sum() or _in_proportion(beyond, work, usual, seen):
            return None
        slice_ns = float(np.median(beyond[seen]))
    measured = agrees & (usual <= slice_ns)
    interrupted = np.flatnonzero(near & measured[work])
    lost = np.zeros(sums_ns.shape, np.int64)
    np.add.at(lost, (step[interrupted], work[interrupted]), beyond[interrupted])
    share = lost.sum(axis=1) / np.maximum(sums_ns[:, measured].sum(axis=1), 1)
    most = int(names[lost.sum(axis=0).argmax()])
    lost[:, ~measured] = share[:, None] * sums_ns[:, ~measured]
    return TimeSlices(round(slice_ns), len(interrupted), len(np.unique(names[work[interrupted]])), most, lost)


def _agree(launches: Launches, names: Int64, usual: Int64, large: Flags, near: Flags) -> Flags | None:
    """Which works have large excesses that are near a slice; None if too few have."""
    step, work, works = launches.step, launches.work, len(names)
    exceeding, agreeing = (np.bincount(work[rows], minlength=works) for rows in (large, large & near))
    agrees: Flags = agreeing >= _MOSTLY * exceeding
    repeated = exceeding >= 2
    proof = np.flatnonzero(large & near & (agrees & repeated)[work])
    if (
        len(proof) < LEAST_LAUNCHES
        or len(np.unique(names[agrees & repeated])) < max(_LEAST_KERNELS, _MOSTLY * len(np.unique(names[repeated])))
        or len(np.unique(step[proof])) < _LEAST_STEPS
    ):
        return None
    low, high = np.percentile(usual[work[proof]], (10, 90))
    return agrees if high >= _UNLIKE * low else None


def _in_proportion(beyond: Int64, work: Int64, usual: Int64, rows: Flags) -> bool:
    """Whether works that take longer have longer excesses, as with other shapes: by more than its root."""
    works = np.unique(work[rows])
    middles = [float(np.median(beyond[rows & (work == number)])) for number in works.tolist()]
    shortest, longest = np.percentile(usual[works], (10, 90))
    low, high = np.percentile(middles, (10, 90))
    return bool(high > max(np.sqrt(longest / shortest), _ALIKE) * low)


def _alone(starts: Int64, ends: Int64) -> Flags:
    order = np.argsort(starts, kind="stable")
    until = np.maximum.accumulate(ends[order])
    apart = np.concatenate(([True], starts[order[1:]] >= until[:-1], [True]))
    alone = np.empty(len(starts), np.bool_)
    alone[order] = apart[:-1] & apart[1:]
    return alone


def _usual(length: Int64, work: Int64, works: int) -> Int64:
    """What a launch of each work usually takes, ns; of a work with few launches more than any of them does."""
    ordered, begins, counts = sorted_groups(length, work, works)
    usual: Int64 = np.full(works, np.iinfo(np.int64).max // 2)
    known = counts >= _FEWEST
    usual[known] = ordered[begins[known] + (counts[known] - 1) // _USUAL]
    return usual


def _agreed(beyond: Int64, work: Int64) -> float:
    """The excess that most works agree on, ns: the densest band's median, one vote for each work."""
    order = np.argsort(beyond, kind="stable")
    given = beyond[order]
    votes = np.concatenate(([0.0], np.cumsum(1 / np.bincount(work)[work[order]])))
    until = np.searchsorted(given, given * (1 + 2 * _BAND), "right")
    first = int((votes[until] - votes[:-1]).argmax())
    return float(np.median(given[first : until[first]]))


def _near(beyond: Int64, slice_ns: float) -> Flags:
    ratio = beyond / slice_ns
    whole = np.round(ratio)
    return (whole >= 1) & (np.abs(ratio - whole) <= _BAND)
