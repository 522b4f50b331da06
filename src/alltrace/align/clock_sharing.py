"""Which ranks share a clock: those of a host, unless ends show otherwise, and hosts with one monotonic clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from alltrace.align.clock_fit import Cells, Clocks, Ends, robust_levels
from alltrace.align.constants import OUTLIER_SIGMAS, WRONG_SHARE
from alltrace.run.manifest import Manifest
from alltrace.trace.arrays import Flags, Floats, Int64
from alltrace.trace.distinct import distinct, distinct_rows, folded, rows_by

_APART, _BY_STAMPS, _MONOTONIC = 0, 1, 2
FEW = 2
"""So many instances show nothing of a clock: a line goes through any two points."""


@dataclass(frozen=True)
class PlacedRank:
    """A rank before its clock is known."""

    rank: int
    host: str
    report: int  # that its times are of
    shift_ns: int  # from the time of its files to ns since the run's zero, by its UTC stamp
    system_ns: int | None = None  # the host's monotonic clock at the zero of its files
    stamped: bool = True  # there is a UTC stamp


def place_ranks(manifest: Manifest) -> list[PlacedRank]:
    zero = manifest.zero_utc_ns
    ranks = []
    for rank in manifest.ranks:
        base = rank.time_base_utc_ns
        stamped = base is not None and zero is not None
        report = rank.reports[0] if rank.reports else -1 - rank.rank
        system = manifest.reports[report].system_clock_ns if 0 <= report < len(manifest.reports) else None
        shift = base - zero if base is not None and zero is not None else 0
        ranks.append(PlacedRank(rank.rank, rank.host, report, shift, system, stamped))
    return ranks


@dataclass(frozen=True)
class Units:
    """The unknowns: ranks of a unit have one offset, once `known_ns` is taken off; ranks of a clock have one rate."""

    of_rank: Int64
    clock: Int64  # number of the rank's host, or of a host before it that has the same clock
    known_ns: Floats  # what is known of each rank's stamp's error

    @property
    def count(self) -> int:
        return int(self.of_rank.max(initial=-1)) + 1

    def offsets(self, cells: Cells, rows: NDArray[np.intp], weight: Floats, ahead_ns: Floats) -> tuple[Floats, Floats]:
        """The offset of each rank that best fits cells measured by clocks that are `ahead_ns`, and what it leaves."""
        apart, base = ahead_ns - self.known_ns, np.zeros(self.count)
        base[self.of_rank] = apart  # any of its ranks'
        rank = cells.rank[rows]
        values = cells.late_ns[rows] + (apart - base[self.of_rank])[rank]
        step, left = robust_levels(cells.block[rows], self.of_rank[rank], weight, values, np.ones(self.count, np.bool_))
        return self.known_ns + (base + step)[self.of_rank], left


class Sharing:
    """What is assumed of the ranks' clocks, until ends contradict it.

    A report's UTC stamp may be off by milliseconds even from the clock of its own host. So the reports of a host are
    one unit by their monotonic clocks, or by their stamps where these agree, or are units of their own. The stamp of a
    rank that has no ends, as `seen` says, is believed if those of other reports of its host may agree.
    """

    def __init__(self, ranks: Sequence[PlacedRank], seen: Flags) -> None:
        place = {host: n for n, host in enumerate(dict.fromkeys(p.host for p in ranks))}
        self.host: Int64 = np.array([place[p.host] for p in ranks], np.int64)
        self._clock_of_host = np.arange(len(place))
        self._stamped = np.array([p.stamped for p in ranks], np.bool_)
        self._report = distinct(np.array([p.report for p in ranks], np.int64))[1]
        monotonic = np.array([p.system_ns is not None and p.stamped for p in ranks], np.bool_)
        self._boot = np.array([p.shift_ns - (p.system_ns or 0) for p in ranks], np.float64)
        reports = distinct_rows(self.host[seen], self._report[seen])[0][0]
        self._several = np.bincount(reports, minlength=len(place)) > 1
        self._seen = np.isin(self._report, self._report[seen])
        self._wanted = np.where(np.bincount(self.host, ~monotonic, len(place)) > 0, _BY_STAMPS, _MONOTONIC)
        self._by = np.where(self._several, _APART, self._wanted)
        self._compared = False
        self.contradicted = np.zeros(len(place), np.bool_)  # the hosts with monotonic clocks that ends contradict
        self.units = self._numbered()

    def _numbered(self) -> Units:
        clock, by = self._clock_of_host[self.host], self._by[self.host]
        alone = (by == _BY_STAMPS) & ~self._seen & ~self._several[self.host]
        own = (by == _APART) | alone
        known = np.zeros(len(self.host))
        for rows in rows_by(np.where(by == _MONOTONIC, clock, -1)).values():
            if by[rows[0]] == _MONOTONIC:
                known[rows] = self._boot[rows] - np.sort(self._boot[rows])[len(rows) // 2]
        # reports without stamps may have one clock too, but not that of those with stamps
        shared = 2 * clock + self._stamped
        return Units(distinct(np.where(own, 2 * len(own) + self._report, shared))[1], clock, known)

    def corrected(self, cells: Cells, ends: Ends, clocks: Clocks) -> bool:
        """Let ranks of a host, then hosts, share what the ends do not contradict; returns whether anything changed."""
        before = self.units
        if not self._compared:
            self._compared = True
            for by in (_MONOTONIC, _BY_STAMPS):
                self._share(by, cells, ends, clocks)
        else:
            self._join(cells, clocks.ahead_ns)
        return self.units is not before

    def _share(self, by: int, cells: Cells, ends: Ends, clocks: Clocks) -> None:
        """Let reports of hosts share a clock, unless members would break the law then or are much too far apart."""
        tried = self._several & (self._by == _APART) & (self._wanted >= by)
        if not tried.any():
            return
        self._by[tried] = by
        self.units = self._numbered()
        sigma = folded(np.minimum, cells.rank, np.sqrt(cells.scatter), len(self.host), np.inf)
        apart, moved = clocks.ahead_ns - self.units.known_ns, np.zeros(len(self.host))
        # nothing is known of how far apart clocks are that no ends connect
        connected = cells.joined(np.flatnonzero(np.isfinite(cells.late_ns)), np.arange(len(self.host)))
        known = np.where(tried[self.host] & np.isfinite(sigma), self.units.of_rank * len(self.host) + connected, -1)
        for group, rows in rows_by(known).items():
            if group >= 0:
                moved[rows] = apart[rows] - np.median(apart[rows])
        enough = np.bincount(ends.rank, minlength=len(moved)) > FEW
        far = np.bincount(self.host, enough & (np.abs(moved) > OUTLIER_SIGMAS**2 * sigma), len(tried)) > 0
        broken = _broken(ends, self.host, replace(clocks, ahead_ns=clocks.ahead_ns - moved), len(tried))
        # ends that differ by more than they scatter are of clocks apart; if these would break the law, ranks end late
        far &= broken | ~_broken(ends, self.host, clocks, len(tried))
        wrong = tried & (far | broken)
        self.contradicted |= wrong & (by == _MONOTONIC)
        self._by[wrong] = _APART
        self.units = self._numbered()

    def _join(self, cells: Cells, ahead_ns: Floats) -> None:
        """Join hosts that are one machine: by the fit their monotonic clocks are one."""
        rows = cells.between(self.units.of_rank)
        rank = cells.rank[rows]
        weight = np.bincount(self.host[rank], 1.0 / (cells.scatter + cells.noise)[rows], len(self._by))
        began = np.zeros(len(self._by))
        began[self.host] = ahead_ns - self._boot
        hosts = np.flatnonzero((self._by == _MONOTONIC) & (weight > 0))
        for one, other in pairwise(hosts[np.argsort(began[hosts])].tolist()):
            near = began[other] - began[one] <= OUTLIER_SIGMAS * np.sqrt(1.0 / weight[one] + 1.0 / weight[other])
            clocks = self._clock_of_host[[one, other]]
            if near and clocks[0] != clocks[1]:
                self._clock_of_host[np.isin(self._clock_of_host, clocks)] = clocks.min()
                self.units = self._numbered()


def _broken(ends: Ends, host: Int64, clocks: Clocks, hosts: int) -> Flags:
    """Whether members of a host end before others have started, in more instances than are matched wrongly."""
    instances, group = distinct_rows(ends.instance, host[ends.rank])
    start, end = (clocks.true(ends.rank, times) for times in (ends.start, ends.end))
    last = folded(np.maximum, group, start, instances.shape[1], -np.inf)
    first = folded(np.minimum, group, end, instances.shape[1], np.inf)
    several = np.bincount(group) > 1
    number, less = (np.bincount(instances[1], which, hosts) for which in (several, first < last))
    result: Flags = less > np.maximum(WRONG_SHARE * number, FEW)
    return result
