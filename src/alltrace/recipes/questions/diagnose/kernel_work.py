"""What a rank's compute kernels did in each step: launches that are alike are one work, so that ranks can be compared on it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from alltrace.recipes.questions.diagnose.launch_columns import LAUNCH
from alltrace.recipes.questions.diagnose.time_slices import Launches, TimeSlices, time_slices
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Int64, integers
from alltrace.trace.distinct import distinct_rows

Float = NDArray[np.float64]

_MOST_WORKS = 64
"""Works kept of a rank, the longest in sum; what the others take is `rest_ns`."""


PIECES = 8
"""Pieces of a run without steps, of as many kernels each: what is so in all of them is not chance."""


@dataclass(frozen=True)
class KernelWork:
    """Works of a rank; n steps, or pieces of a run without steps, k works."""

    works: Int64  # name id and the values of `LAUNCH` of each, (k, 8); a null is 0
    counts: NDArray[np.int32]  # launches of each in each step, (n, k)
    sums_ns: Int64  # their summed durations, (n, k)
    longest_ns: Int64  # the longest launch of each in each step, 0 for none or if not known, (n, k)
    rest_ns: Int64  # of each step the time in all other works, n
    slices: TimeSlices | None = None  # what another process took from them; None if nothing shows that one did

    @property
    def names(self) -> Int64:
        """Name ids, k."""
        found: Int64 = self.works[:, 0]
        return found

    @property
    def total_ns(self) -> Int64:
        """Time in kernels in each step, n."""
        found: Int64 = self.sums_ns.sum(axis=1) + self.rest_ns
        return found

    @property
    def taken_share(self) -> Float:
        """The share of the works' time in each step that another process took, n, 0 to 1."""
        if self.slices is None:
            return np.zeros(len(self.rest_ns))
        found: Float = self.slices.beyond_ns.sum(axis=1) / np.maximum(self.sums_ns.sum(axis=1), 1)
        return found

    def without(self, beyond_ns: Int64) -> KernelWork:
        """The same without some time of each work in each step, (n, k), in single launches."""
        return replace(self, sums_ns=self.sums_ns - beyond_ns, longest_ns=np.minimum(self.longest_ns, self.sums_ns - beyond_ns))

    def undisturbed(self) -> KernelWork:
        """The same without what another process took."""
        if self.slices is None:
            return self
        rest = np.rint(self.rest_ns * (1 - self.taken_share)).astype(np.int64)
        unknown = np.zeros_like(self.longest_ns)  # which launches were interrupted
        return replace(self, sums_ns=self.sums_ns - self.slices.beyond_ns, longest_ns=unknown, rest_ns=rest, slices=None)


def kernel_work(rank: Rank, mine: NDArray[np.bool_], step: Int64, steps: int) -> KernelWork:
    """The works of a rank.

    `mine`: Which rows of `kernels` count.
    """
    table = rank.table("kernels", ("start", "end", "name", *LAUNCH))
    starts, ends = integers(table.column("start")), integers(table.column("end"))
    length = (ends - starts)[mine]
    columns = [integers(table.column(c))[mine] for c in ("name", *LAUNCH)]
    works, code = distinct_rows(*columns)
    count = works.shape[1]
    cell = step * count + code
    counts = np.bincount(cell, minlength=steps * count).astype(np.int32).reshape(steps, count)
    by_cell = np.zeros(steps * count, np.int64)
    np.add.at(by_cell, cell, length)
    sums: Int64 = by_cell.reshape(steps, count)
    by_cell = np.zeros(steps * count, np.int64)
    np.maximum.at(by_cell, cell, length)
    longest: Int64 = by_cell.reshape(steps, count)
    top = np.sort(np.argsort(-sums.sum(axis=0), kind="stable")[:_MOST_WORKS])
    place = np.full(count, -1)
    place[top] = np.arange(len(top))
    kept = place[code] >= 0
    launches = Launches(np.flatnonzero(mine)[kept], step[kept], place[code[kept]])
    slices = time_slices(starts, ends, launches, works[0, top], sums[:, top])
    rest = sums.sum(axis=1) - sums[:, top].sum(axis=1)
    return KernelWork(works.T[top], counts[:, top], sums[:, top], longest[:, top], rest, slices)
