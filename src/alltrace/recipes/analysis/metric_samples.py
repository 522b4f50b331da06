"""Shared by recipes that assign samples of GPU metrics to the work that they describe.

A sample is the mean over the time since the sample before it. If more than two periods are between two samples, some
are missing: then the later one describes only one period, and the rest is unknown. The period is the median distance of
samples.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from alltrace.recipes.analysis.sampled import gpu_series_of_host, plain_metric
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Flags, Floats, Int64
from alltrace.trace.intervals import Merged, overlap_ns

SM_ISSUE, CLOCK = r"sm issue", r"gpc clock frequency"
_MHZ_BELOW = 1e5  # a clock that is higher is in Hz, as some versions of nsys write it
_A_CYCLE = 4  # schedulers of a multiprocessor, each of which issues one instruction a cycle


@dataclass(frozen=True)
class Weights:
    """How much of some work's time samples describe."""

    covered: Int64  # for each sample the time of the work in the time that it describes; int64 array of n, ns
    pure: Flags  # which of them describe that work alone, all their time long

    @property
    def covered_ns(self) -> int:
        """The time of the work that samples describe."""
        return int(self.covered.sum())

    def mean(self, values: Floats) -> float | None:
        """The mean of the values, each by the time of the work it describes; None if none describes any."""
        return float((values * self.covered).sum() / self.covered_ns) if self.covered_ns else None


@dataclass(frozen=True)
class Sampling:
    """Metrics of one device that were sampled at the same times."""

    device: int  # the device's row in the rank's `devices`
    begins: Int64  # where the time begins that each sample describes; int64 array of n, ascending, ns
    times: Int64  # when it was taken, and that time ends
    values: dict[str, Floats]  # for each metric by name its float64 array of n

    @property
    def known_ns(self) -> Int64:
        """The length of the time that each sample describes: int64 array of n, ns."""
        length: Int64 = self.times - self.begins
        return length

    def weights(self, work: Merged) -> Weights:
        """How much of the time of `work` each sample describes."""
        covered = overlap_ns(self.begins, self.times, work)
        return Weights(covered, (covered == self.known_ns) & (covered > 0))


def samplings(rank: Rank) -> list[Sampling]:
    """The samples of the rank's GPUs, in any report of its host, by device; not of metrics with a single time."""
    by_times: dict[tuple[int, bytes], Sampling] = {}
    for series in gpu_series_of_host(rank):
        last = np.concatenate((series.times[1:] != series.times[:-1], [True]))  # of two at one time the later row
        times, values = series.times[last], series.values[last]
        key = series.key[0], times.tobytes()
        if key in by_times:
            by_times[key].values[series.metric] = values
        elif len(times) > 1:
            by_times[key] = Sampling(series.key[0], _begins(times), times, {series.metric: values})
    return list(by_times.values())


def _begins(times: Int64) -> Int64:
    steps = np.diff(times)
    period = int(np.sort(steps)[(len(steps) - 1) // 2])
    begins = np.concatenate(([times[0] - period], times[:-1]))
    missing = times - begins > 2 * period
    result: Int64 = np.where(missing, times - period, begins)
    return result


class Executed(NamedTuple):
    """What the multiprocessors of a device executed in the time that samples describe."""

    instructions: int  # of warps: 4 a cycle and multiprocessor at most, by the share of the cycles that issue
    cycles: int  # of all multiprocessors


def executed(rank: Rank) -> dict[int, Executed]:
    """What each sampled device executed, about; without those of unknown issue rate, clock or multiprocessors."""
    issue: dict[int, tuple[float, int]] = {}
    clocks_hz: dict[int, float] = {}
    for sampling in samplings(rank):
        for metric, values in sampling.values.items():
            mean = float(np.average(values, weights=sampling.known_ns))
            if re.fullmatch(CLOCK, plain_metric(metric)):
                clocks_hz[sampling.device] = mean if mean > _MHZ_BELOW else mean * 1e6
            elif re.fullmatch(SM_ISSUE, plain_metric(metric)):
                issue[sampling.device] = mean / 100, int(sampling.known_ns.sum())
    by_device = {}
    for device in rank.table("devices", ["device", "sm_count"]).to_pylist():
        number, count = device["device"], device["sm_count"]
        if count and number in issue and clocks_hz.get(number):
            share, known_ns = issue[number]
            cycles = count * clocks_hz[number] * known_ns / 1e9
            by_device[number] = Executed(round(share * _A_CYCLE * cycles), round(cycles))
    return by_device
