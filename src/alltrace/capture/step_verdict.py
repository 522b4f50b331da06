"""Who is slow, in which phase, and how sure that is, from a few numbers of each rank."""

from __future__ import annotations

from math import isfinite
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from alltrace.capture.gpu_state import GpuState, gpu_words

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

OTHER = "other"
"""What a rank does outside of all phases."""
CPU_WAIT = "cpu wait"
"""The time in which a rank could run and has no processor; it is a part of no phase, and not of the rank's own time."""
_LEAST_SHARE = 0.01
"""A smaller difference of a step's time is not reported, even if it is significant."""
_SURE = 5.0
"""Standard errors that a difference must have."""
_NORMAL = 1.4826
"""The standard deviation of a normal distribution, in median absolute deviations."""
_MEDIAN_ERROR = 1.2533
"""The ratio of the standard errors of the median and of the mean of normal values: the square root of half pi."""
_NAMED = 3
_MOST_ERRORS = 99.0
_ROW = Struct("<IIQddQd3IHHH")
_MOST_PHASES = 18


class RankTimes(NamedTuple):
    """What a rank sends of its last steps; times in s."""

    exchange: int  # the number of the exchange
    first: int  # the first of the steps
    own_s: float  # the median of its own time in a step: without the phases in which it waits
    error_s: float  # the standard error of that median
    slowest: int  # its step with the longest own time
    total_s: float  # the median time of a whole step
    gpu: GpuState
    names: int  # the checksum of the phases' names
    phases_s: tuple[float, ...]  # the median time in each phase, in the order of their names
    errors_s: tuple[float, ...]  # the standard errors of these
    slowest_s: tuple[float, ...]  # the times of the slowest step in each phase

    def packed(self) -> bytes:
        """As bytes, some hundred."""
        head = _ROW.pack(
            self.exchange, self.names, self.first, self.own_s, self.error_s, self.slowest, self.total_s,
            self.gpu.clock_mhz, self.gpu.most_mhz, self.gpu.throttle & 0xFFFFFFFF, min(self.gpu.xid, 0xFFFF),
            len(self.phases_s), 0,
        )  # fmt: skip
        return head + Struct(f"<{3 * len(self.phases_s)}f").pack(*self.phases_s, *self.errors_s, *self.slowest_s)


def unpacked(row: bytes) -> RankTimes | None:
    if len(row) < _ROW.size:
        return None
    exchange, names, first, own, error, slowest, total, clock, most, throttle, xid, count, _ = _ROW.unpack_from(row)
    if not 0 < count <= _MOST_PHASES or len(row) != _ROW.size + 12 * count:
        return None
    times = Struct(f"<{3 * count}f").unpack_from(row, _ROW.size)
    if not all(isfinite(t) and t > -1e6 for t in (own, error, total, *times)):
        return None
    gpu = GpuState(clock, most, throttle, xid)
    phases, errors, longest = (times[n : n + count] for n in (0, count, 2 * count))
    return RankTimes(exchange, first, own, error, slowest, total, gpu, names, phases, errors, longest)


def times_of(
    columns: Sequence[array[float]],
    names: Sequence[str],
    waits: frozenset[str],
    first: int,
    exchange: int,
    gpu: GpuState,
) -> RankTimes:
    """What a rank sends, from the times of its last steps in each phase, in s."""
    order = sorted(range(len(columns)), key=names.__getitem__)
    working = [columns[n] for n in order if names[n] not in waits and names[n] != CPU_WAIT]
    own = [sum(step) for step in zip(*working, strict=True)]
    middle, error = _middle_of(own)
    phases = [_middle_of(columns[n]) for n in order]
    slowest = max(range(len(own)), key=own.__getitem__)
    return RankTimes(
        exchange,
        first,
        middle,
        error,
        first + slowest,
        median([sum(step) for step in zip(*columns, strict=True)]),
        gpu,
        crc32("\0".join(sorted(names)).encode()),
        tuple(time for time, _ in phases),
        tuple(error for _, error in phases),
        tuple(columns[n][slowest] for n in order),
    )


def _middle_of(values: Sequence[float] | array[float]) -> tuple[float, float]:
    middle = median(values)
    spread = _NORMAL * median([abs(value - middle) for value in values])
    return middle, _MEDIAN_ERROR * spread / len(values) ** 0.5


class Finding(NamedTuple):
    rank: int  # the rank
    loss_s: float  # how much longer a step takes it than the median rank, in s
    phase: str  # the phase in which it loses most
    phase_s: float  # how much it loses there, in s
    errors: float  # how many standard errors the difference has


class Verdict(NamedTuple):
    slow: tuple[Finding, ...]  # the ranks that are slower than the others, the slowest first
    least_share: float  # the difference of a step's own time that would have been seen, as a share
    own: bool  # whether what ranks do by themselves was measured, and not only whole steps
    total_s: float  # the median time of a step


def judge(rows: Sequence[RankTimes], phases: Sequence[str], waits: frozenset[str]) -> Verdict:
    """Which rank is slow, from what each sent: by all of its own time, or by a phase that is not a wait for others."""
    total = median([row.total_s for row in rows])
    own, least = _differences([(row.own_s, row.error_s) for row in rows], total)
    by_phase = {
        phase: _differences([(row.phases_s[n], row.errors_s[n]) for row in rows], total)[0]
        for n, phase in enumerate(phases)
        if phase not in waits
    }
    slow = []
    for rank, (loss, errors) in enumerate(own):
        sure = [(its[rank][0], phase) for phase, its in by_phase.items() if its[rank][1] > 0]
        if not sure and not errors:
            continue
        phase_s, phase = max(sure or [(its[rank][0], phase) for phase, its in by_phase.items()])
        slow.append(Finding(rank, max(loss, phase_s), phase, phase_s, max(errors, by_phase[phase][rank][1])))
    slow.sort(key=lambda one: -one.loss_s)
    return Verdict(tuple(slow), least / total if total > 0 else 1.0, any(phase in waits for phase in phases), total)


def _differences(values: Sequence[tuple[float, float]], total_s: float) -> tuple[list[tuple[float, float]], float]:
    """How far each rank's value is above the median one, with the standard errors that this is, 0 if unsure."""
    # Also the least difference that a typical rank would have to have.
    middle = median([value for value, _ in values])
    # the scatter of all ranks, with at least half of them assumed to be as fast as the median
    among = _NORMAL * median([abs(value - middle) for value, _ in values])
    differences = []
    for value, own_error in values:
        error = (own_error**2 + among**2) ** 0.5
        sure = value - middle > max(_LEAST_SHARE * total_s, _SURE * error)
        differences.append((value - middle, ((value - middle) / error if error > 0 else _MOST_ERRORS) if sure else 0.0))
    typical = (median([error for _, error in values]) ** 2 + among**2) ** 0.5
    return differences, max(_LEAST_SHARE * total_s, _SURE * typical)


def describe(
    verdict: Verdict, rows: Sequence[RankTimes], phases: Sequence[str], since: dict[int, str], waits: frozenset[str]
) -> str:
    parts = [f"{_ms(verdict.total_s)} ms a step"]
    for one in verdict.slow[:_NAMED]:
        gpu = gpu_words(rows[one.rank].gpu)
        parts.append(
            f"rank {one.rank} is slow since {since.get(one.rank, 'now')}: {_ms(one.loss_s)} ms "
            f"({100 * one.loss_s / verdict.total_s:.1f} % of a step) more than the median rank, most in {one.phase} "
            f"({_ms(one.phase_s)} ms), {min(one.errors, _MOST_ERRORS):.0f} standard errors{gpu and f', {gpu}'}"
        )
    if len(verdict.slow) > _NAMED:
        parts.append(f"{len(verdict.slow) - _NAMED} more are slow")
    if not verdict.slow and not verdict.own:
        parts.append(
            f"no rank of {len(rows)} stands out, but whole steps do not show which rank waits for which; put "
            "report.phase('wait') around what waits for other ranks"
        )
    elif not verdict.slow:
        parts.append(
            f"no rank of {len(rows)} is slow, and less than {100 * verdict.least_share:.1f} % of a step more would not"
            " be seen"
        )
    place = max(
        range(len(rows)), key=lambda rank: sum(t for n, t in enumerate(rows[rank].slowest_s) if phases[n] not in waits)
    )
    times = rows[place].slowest_s
    went = ", ".join(
        f"{phase} {_ms(t)}" for phase, t in sorted(zip(phases, times, strict=True), key=lambda pair: -pair[1])
    )
    parts.append(f"slowest step {rows[place].slowest}: {_ms(sum(times))} ms on rank {place}: {went}")
    return "; ".join(parts)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f}"


def median(values: Sequence[float] | array[float]) -> float:
    """The upper median; `statistics` would be a further import of every program."""
    return sorted(values)[len(values) // 2]
