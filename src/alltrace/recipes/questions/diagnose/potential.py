"""What could be saved in a rank's compute kernels, by kind: the most that it can be.

* `precision`: of matrix products, convolutions and attention in fp32 or TF32, what fp16 or bf16 takes less by the data
  sheet; of products with a vector, which only read, half.
* `attention`: all kernels between the two products of an attention that is not a fused kernel, and the copies before
  and after these products, such as to another precision; a fused kernel keeps the scores on the chip and reads its
  operands as they are. Of the products, what fp16 or bf16 takes less: fused kernels multiply in these.
* `fusion`: of kernels in a row that read and write each element once or so, all but the longest: a fused kernel does so
  once.
* `shapes`: of matrix products and convolutions, the part of the multiprocessors that is empty in the last wave of
  blocks.
* `small-kernels`: the idle time, of 10 microseconds at most, before kernels below 10 microseconds that are queued:
  those of a graph follow one another.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
import pyarrow as pa

from alltrace.recipes.analysis.device_peaks import peaks_of
from alltrace.recipes.analysis.kernel_families import BANDWIDTH_FAMILIES, HALF, MATRIX_FAMILIES, family_of
from alltrace.recipes.questions.diagnose.gaps import Activity
from alltrace.recipes.questions.diagnose.kernel_rows import LAUNCH, RESOURCES, Int32, KernelRows
from alltrace.recipes.questions.occupancy import DEVICE_LIMITS, Limits, blocks_at_once, occupancy
from alltrace.run.rank import Rank
from alltrace.trace.arrays import BLOCK_ROWS, Flags, Floats, Int64
from alltrace.trace.distinct import distinct, distinct_rows
from alltrace.trace.intervals import overlap_ns
from alltrace.trace.kernel_families import CONVOLUTION, GEMM, SOFTMAX

SMALL_NS = 10_000  # a kernel below this is a small one; launching it takes as long
_VECTOR_GAIN = 0.5  # elements of half the size are read in half the time

_VECTOR = re.compile("gemv|gemmk1")
_COPY = re.compile("copy_kernel")
_BACKWARD = re.compile("(?i)backward|bwd|grad")
_MOST_COPIES = 4  # beyond a product: three operands, and one more

_LAUNCH = (*LAUNCH, *RESOURCES)
_DEVICE = ("device", "name", *DEVICE_LIMITS)


@dataclass(frozen=True)
class Potential:
    """What one kind could save on a rank, in its judged steps."""

    saved_ns: int  # the most, ns of kernels, or of idle time for `small-kernels`
    affected_ns: int  # time of the kernels that it is about
    kernels: int  # how many these are
    name: int  # id of the name of the kernel that would save most


@dataclass(frozen=True)
class _Kernels:
    start: Int64
    end: Int64
    track: Int32
    step: Int32
    kind: Int32
    in_graph: Flags
    kinds: "_Kinds"

    def has(self, wanted: frozenset[str]) -> Flags:
        return np.array([f.family in wanted for f in self.kinds.families], np.bool_)[self.kind]

    def named(self, pattern: re.Pattern[str]) -> Flags:
        return self.kinds.named(pattern)[self.kind]

    @property
    def length(self) -> Int64:
        return self.end - self.start

    def cut(self) -> "Iterator[_Kernels]":
        """As many kernels at a time as `blocks` has, and those after them in the same row of one track and step."""
        ends = np.append(np.flatnonzero(~_follows(self))[1:], len(self.start))
        first = 0
        while first < len(self.start):
            last = int(ends[np.searchsorted(ends, min(first + BLOCK_ROWS, len(self.start)))])
            yield self.rows(slice(first, last))
            first = last

    def rows(self, some: slice | Int64) -> "_Kernels":
        times = self.start[some], self.end[some]
        return _Kernels(*times, self.track[some], self.step[some], self.kind[some], self.in_graph[some], self.kinds)


class _Kinds:
    def __init__(self, rank: Rank, kernels: KernelRows) -> None:
        table = rank.table("devices", _DEVICE)
        devices = zip(table.to_pylist(), rank.texts(table.column("name")).to_pylist(), strict=True)
        self.devices = {row["device"]: {**row, "name": name} for row, name in devices}
        self.name, self.device = kernels.of_kinds("name", "device")
        self.launch = np.stack(kernels.of_kinds(*_LAUNCH))
        ids, self._place = distinct(self.name)
        self._texts = [t or "" for t in rank.texts(pa.array(ids)).to_pylist()]
        families = [family_of(t) for t in self._texts]
        self.families = [families[n] for n in self._place]
        self.precision_share, self.empty_share = self._precision(), self._shapes()

    def named(self, pattern: re.Pattern[str]) -> Flags:
        """Which have a name that a pattern is found in."""
        return np.array([pattern.search(t) is not None for t in self._texts], np.bool_)[self._place]

    def _precision(self) -> Floats:
        """The share of each that fp16 or bf16 would save."""
        share = np.zeros(len(self.name))
        for device in np.unique(self.device).tolist():
            peaks = peaks_of(self.devices.get(device, {}).get("name"))
            if peaks is None:
                continue
            for place in np.flatnonzero(self.device == device).tolist():
                family = self.families[place]
                wide = family.family in MATRIX_FAMILIES and family.precision != HALF
                rate = peaks.rate(family.precision) if wide else None
                share[place] = 0.0 if rate is None else max(1 - rate / peaks.half, 0.0)
        vectors = self.named(_VECTOR)
        share[vectors] = np.minimum(share[vectors], _VECTOR_GAIN)
        return share

    def _shapes(self) -> Floats:
        products = np.array([f.family in (GEMM, CONVOLUTION) for f in self.families], np.bool_) & (self.launch[0] > 0)
        share = np.zeros(len(self.name))
        keys, at = distinct_rows(self.device[products], *self.launch[:, products])
        share[products] = np.array([_empty_share(self.devices.get(key[0]), key[1:]) for key in keys.T.tolist()])[at]
        return share


def potentials(rank: Rank, rows: KernelRows, step: Int32, work: Activity) -> dict[str, Potential]:
    """What each kind could save on a rank.

    `step`: The place of the step of each kernel; -1 for what does not count.
    """
    whole = _kernels(rows, step, _Kinds(rank, rows))
    sums: dict[str, Int64] = {}
    used = np.zeros(len(work.compute.starts), np.bool_)
    for kernels in whole.cut():
        kinds = kernels.kinds
        precision = np.rint(kernels.length * kinds.precision_share[kernels.kind]).astype(np.int64)
        inside, products = _attention(kernels)
        for kind, saved in (
            ("precision", precision),
            ("attention", np.where(inside, kernels.length, np.where(products, precision, 0))),
            ("fusion", _fusion(kernels, inside)),
            ("shapes", np.rint(kernels.length * kinds.empty_share[kernels.kind]).astype(np.int64)),
            ("small-kernels", _small(kernels, work, used)),
        ):
            if saved.any():
                _add(sums.setdefault(kind, np.zeros((3, len(kinds.name)), np.int64)), kernels, saved)
    return {kind: _potential(whole.kinds, *of_kinds) for kind, of_kinds in sums.items()}


def _kernels(rows: KernelRows, step: Int32, kinds: _Kinds) -> _Kernels:
    of_kind = distinct_rows(*rows.of_kinds("process", "device", "stream"))[1]
    track = of_kind.astype(np.int32)[rows.kind]
    kernels = _Kernels(rows.start, rows.end, track, step, rows.kind, rows.in_graph, kinds)
    after, before = slice(1, None), slice(None, -1)
    descends = (track[after] == track[before]) & (rows.start[after] < rows.start[before])
    descends |= track[after] < track[before]
    if descends.any() or (step < 0).any():
        index = np.flatnonzero(step >= 0)
        index = index[np.lexsort((rows.start[index], track[index]))] if descends.any() else index
        return kernels.rows(index)
    return kernels


def _add(sums: Int64, kernels: _Kernels, saved: Int64) -> None:
    """Add to the sums over the kernels of each kind that could save something: what they save, take, and are."""
    mine = saved > 0
    kind = kernels.kind[mine].astype(np.int64)
    for of_kinds, values in zip(sums, (saved[mine], kernels.length[mine], np.ones_like(kind)), strict=True):
        np.add.at(of_kinds, kind, values)


def _potential(kinds: _Kinds, saved: Int64, affected: Int64, count: Int64) -> Potential:
    ids, at = distinct(kinds.name)
    by_name = np.zeros(len(ids), np.int64)
    np.add.at(by_name, at, saved)
    return Potential(int(saved.sum()), int(affected.sum()), int(count.sum()), int(ids[by_name.argmax()]))


def _follows(kernels: _Kernels) -> Flags:
    same = np.zeros(len(kernels.start), np.bool_)
    same[1:] = (kernels.track[1:] == kernels.track[:-1]) & (kernels.step[1:] == kernels.step[:-1])
    return same


def _rows_of(chosen: Flags, follows: Flags) -> Int64:
    """The number of the row of chosen kernels that follow one another, which each is in; -1 for others."""
    begins = chosen & ~(follows & np.concatenate(([False], chosen[:-1])))
    return np.where(chosen, np.cumsum(begins) - 1, -1)


def _attention(kernels: _Kernels) -> tuple[Flags, Flags]:
    """The kernels that one fused kernel would replace, and the matrix products that it would do itself.

    The first are rows with a softmax, directly after one product and before another, and the copies beyond these
    products. The backward pass has two products on each side: for the gradients of values and scores, and for those of
    queries and keys.
    """
    follows = _follows(kernels)
    row = _rows_of(kernels.has(BANDWIDTH_FAMILIES), follows)
    count = int(row.max(initial=-1)) + 1
    inside, products = np.zeros((2, len(row)), np.bool_)
    if not count:
        return inside, products
    members = np.flatnonzero(row >= 0)
    first, last = np.full(count, len(row)), np.full(count, -1)
    np.minimum.at(first, row[members], members)
    np.maximum.at(last, row[members], members)
    softmax = kernels.has(frozenset({SOFTMAX}))
    product = kernels.has(frozenset({GEMM}))
    copy, backward = kernels.named(_COPY), kernels.named(_BACKWARD)
    linked = {-1: np.append(follows[1:], False), 1: follows}  # to the kernel before it in that direction

    def goes_on(at: Int64, way: int, wanted: Flags) -> Flags:
        place = np.clip(at, 0, len(row) - 1)
        ahead: Flags = (at == place) & linked[way][place] & wanted[place]
        return ahead

    chosen = np.bincount(row[members], softmax[members], minlength=count) > 0
    chosen &= goes_on(first - 1, -1, product) & goes_on(last + 1, 1, product)
    inside |= (row >= 0) & chosen[np.maximum(row, 0)]
    twice = np.bincount(row[members], (softmax & backward)[members], minlength=count) > 0
    for way, beyond in ((-1, first - 1), (1, last + 1)):
        at, going = beyond[chosen], np.ones(int(chosen.sum()), np.bool_)
        for more in (going, twice[chosen]):
            going = going & more & goes_on(at, way, product)
            products[at[going]] = True
            at = at + way * going
            copied = going
            for _ in range(_MOST_COPIES):
                copied = copied & goes_on(at, way, copy)
                inside[at[copied]] = True
                at = at + way * copied
    return inside, products


def _fusion(kernels: _Kernels, others: Flags) -> Int64:
    row = _rows_of(kernels.has(BANDWIDTH_FAMILIES) & ~others, _follows(kernels))
    mine = np.flatnonzero(row >= 0)
    saved = np.zeros(len(row), np.int64)
    # of each row the longest kernel comes last
    order = mine[np.lexsort((kernels.length[mine], row[mine]))]
    longest = np.append(np.diff(row[order]) != 0, True)
    saved[order] = np.where(longest, 0, kernels.length[order])
    return saved


def _empty_share(device: Mapping[str, object] | None, launch: list[int]) -> float:
    """The share of all waves' room for blocks that a launch leaves empty; 0 if it is not known."""
    if device is None:
        return 0.0
    has = {c: v for c in DEVICE_LIMITS if isinstance(v := device[c], int)}
    most = has.get("max_blocks_per_sm") or blocks_at_once(has.get("compute_major"), has.get("compute_minor"))
    known = ("sm_count", "compute_major", "max_warps_per_sm", "max_registers_per_sm", "max_shared_memory_per_sm")
    grid, block, (dynamic, registers, static) = launch[:3], launch[3:6], launch[6:]
    threads = prod(block)
    if most is None or threads < 1 or any(c not in has for c in known):
        return 0.0
    warps, registers_of_all, shared = (has[c] for c in known[2:])
    limits = Limits(warps, most, registers_of_all, shared, has["compute_major"])
    fit = occupancy(threads, max(registers, 0), max(static, 0) + max(dynamic, 0), limits)
    room = fit.blocks * has["sm_count"]
    blocks = prod(grid)
    return 0.0 if room < 1 or blocks < 1 else 1 - blocks / (-(-blocks // room) * room)


def _small(kernels: _Kernels, work: Activity, used: Flags) -> Int64:
    """The idle time before each small kernel that had been launched when the device became idle; none in a graph.

    `used`: Before which intervals of compute the time is one's already; of kernels that begin together one has it.
    """
    saved = np.zeros(len(kernels.start), np.int64)
    if not len(work.compute.starts):
        return saved
    at = np.searchsorted(work.compute.starts, kernels.start)
    at = np.minimum(at, len(work.compute.starts) - 1)
    # a kernel that begins as the device's compute does, after an interval of it
    mine = (work.compute.starts[at] == kernels.start) & (at > 0)
    before = work.compute.ends[np.maximum(at - 1, 0)]
    row = np.minimum(np.searchsorted(work.starts, kernels.start), len(work.starts) - 1)
    queued = (work.launch_end[row] <= before) & (work.launch_end[row] < kernels.start)
    idle = kernels.start - before
    mine &= queued & (idle > 0) & (idle <= SMALL_NS) & (kernels.length < SMALL_NS) & ~kernels.in_graph
    busy = (overlap_ns(before[mine], kernels.start[mine], times) for times in (work.communication, work.copies))
    saved[mine] = np.where(used[at[mine]], 0, np.maximum(idle[mine] - sum(busy), 0))
    own = np.flatnonzero(saved)
    of_interval, first = np.unique(at[own], return_index=True)
    used[of_interval] = True
    saved[np.delete(own, first)] = 0
    return saved
