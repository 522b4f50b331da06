"""What a rank's compute kernels did in each step: launches alike are one work, to compare ranks."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from alltrace.recipes.questions.diagnose.kernel_rows import LAUNCH, Int32, KernelRows
from alltrace.recipes.questions.diagnose.time_slices import LEAST_LAUNCHES, LEAST_NS, Launches, TimeSlices, time_slices
from alltrace.trace.arrays import Floats, Int64, blocks
from alltrace.trace.distinct import distinct_rows

_MOST_WORKS = 64  # works kept of a rank, the longest in sum; what the others take is `rest_ns`
PIECES = 8  # pieces of a run without steps, of as many kernels each: what is so in all of them is not chance


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
        return self.works[:, 0]

    @property
    def total_ns(self) -> Int64:
        total: Int64 = self.sums_ns.sum(axis=1) + self.rest_ns
        return total

    @property
    def taken_share(self) -> Floats:
        """The share of the works' time in each step that another process took, n, 0 to 1."""
        if self.slices is None:
            return np.zeros(len(self.rest_ns))
        share: Floats = self.slices.beyond_ns.sum(axis=1) / np.maximum(self.sums_ns.sum(axis=1), 1)
        return share

    def without(self, beyond_ns: Int64) -> Self:
        """The same without some time of each work in each step, (n, k), in single launches."""
        left_ns = self.sums_ns - beyond_ns
        return replace(self, sums_ns=left_ns, longest_ns=np.minimum(self.longest_ns, left_ns))

    def undisturbed(self) -> Self:
        if self.slices is None:
            return self
        rest = np.rint(self.rest_ns * (1 - self.taken_share)).astype(np.int64)
        left, unknown = self.sums_ns - self.slices.beyond_ns, np.zeros_like(self.longest_ns)
        return replace(self, sums_ns=left, longest_ns=unknown, rest_ns=rest, slices=None)


def kernel_work(kernels: KernelRows, step: Int32, steps: int) -> KernelWork:
    """The works of a rank.

    `step`: The place of the step of each kernel; -1 for those that do not count.
    """
    present = np.zeros(kernels.kinds.shape[1], np.bool_)
    for some in blocks(len(step)):
        present[kernels.kind[some][step[some] >= 0]] = True
    works, of_present = distinct_rows(*(np.where(c == -1, 0, c)[present] for c in kernels.of_kinds("name", *LAUNCH)))
    work = np.full(len(present), -1, np.int64)
    work[present] = of_present
    count = works.shape[1]
    counts, sums, longest = np.zeros((3, steps * count), np.int64)
    least = np.full(count, np.iinfo(np.int64).max)
    for _, own_step, own_work, length in _launches(kernels, step, work):
        cell = own_step * count + own_work
        np.add.at(counts, cell, 1)
        np.add.at(sums, cell, length)
        np.maximum.at(longest, cell, length)
        np.minimum.at(least, own_work, length)
    counts, sums, longest = (c.reshape(steps, count) for c in (counts, sums, longest))
    top = np.sort(np.argsort(-sums.sum(axis=0), kind="stable")[:_MOST_WORKS])
    place = np.full(count, -1)
    place[top] = np.arange(len(top))
    work[present] = place[of_present]
    slices, least = None, least[top]
    # no excess over a usual time is larger than the one over the least
    beyond = (length - least[own] >= LEAST_NS for _, _, own, length in _launches(kernels, step, work))
    if longest.max(initial=0) >= LEAST_NS and sum(map(np.count_nonzero, beyond)) >= LEAST_LAUNCHES:
        launches = Launches(*np.concatenate([c[:3] for c in _launches(kernels, step, work)], axis=1))
        slices = time_slices(kernels.start, kernels.end, launches, works[0, top], sums[:, top])
    rest = sums.sum(axis=1) - sums[:, top].sum(axis=1)
    return KernelWork(works.T[top], counts[:, top].astype(np.int32), sums[:, top], longest[:, top], rest, slices)


def _launches(kernels: KernelRows, step: Int32, work: Int64) -> Iterator[tuple[Int64, Int64, Int64, Int64]]:
    """The kernels that count, some at a time: rows, places of their steps, their works, durations.

    `work`: Of each kind, -1 for those to leave out.
    """
    for some in blocks(len(step)):
        own = work[kernels.kind[some]]
        rows = np.flatnonzero((step[some] >= 0) & (own >= 0))
        took = kernels.end[some] - kernels.start[some]
        yield some.start + rows, step[some][rows].astype(np.int64), own[rows], took[rows]
