"""A rank's blocks of PyTorch's allocator: bytes after each event, which free ends which block, and its origin."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from alltrace.recipes.analysis.operator_sums import Nodes
from alltrace.recipes.analysis.range_sums import Intervals
from alltrace.run.rank import Rank
from alltrace.trace import columns as col
from alltrace.trace.arrays import Int64, coded, integers, is_one_of

ALLOCATIONS = (
    "time", "thread", "device", "memory", "kind", "bytes", "address", "allocated_bytes", "reserved_bytes", "source_row",
    "stack",
)  # fmt: skip
"""The columns of `allocations` that `pools_of` reads."""


POOL = col.text("pool", "rank and kind of memory, and the device where the rank has several: a line of the picture")
MEMORY = col.text("memory", "kind of device that has the memory, such as cuda or cpu")


@dataclass(frozen=True)
class Pool:
    """The events of the allocator in the memory of one device, n of them in order of time; int64 arrays of n."""

    device: int  # the device's row in the rank's `devices`; -1 for the host's memory
    memory: str  # what kind of device it is
    time: Int64  # when, ns
    thread: Int64  # the thread; -1 if unknown
    size: Int64  # bytes of the block, negative if it is freed
    allocated: Int64  # bytes allocated after the event; if the trace does not state it, the sum of the sizes
    stated: bool  # whether the trace states it
    reserved: Int64  # bytes that the allocator has taken from the device; -1 if unknown
    # the row of the event that takes the block back, or of the one that handed it out; -1 if there is none
    partner: Int64
    addressed: bool  # whether the trace has addresses, without them no event has a partner
    stack: Int64  # id of the stack that allocated the block; 0 if the source has none with the event

    def __len__(self) -> int:
        return len(self.time)

    @property
    def before(self) -> int:
        """Bytes that were allocated before the first event."""
        return int(self.allocated[0] - self.size[0])

    @property
    def peak(self) -> int:
        """The row of the first event after which the most is allocated; -1 if the most is before the first event."""
        row = int(self.allocated.argmax())
        return row if self.allocated[row] > self.before else -1

    @property
    def peak_bytes(self) -> int:
        """Most that is allocated at once."""
        return max(int(self.allocated.max()), self.before)

    def facts(self) -> dict[str, Any]:
        """What rows of an answer and its notes say about the pool, by name."""
        return {name: getattr(self, name) for name in ("device", "memory", "stated", "addressed")}

    def alive(self, row: int) -> Int64:
        """The rows that allocated the blocks in use after the event in `row`; none for -1."""
        rows = np.flatnonzero(self.size[: row + 1] > 0)
        end = self.partner[rows]
        return rows[(end < 0) | (end > row)]


def pools_of(rank: Rank) -> list[Pool]:
    """The rank's pools, GPUs' first, by device."""
    table = rank.table("allocations", ALLOCATIONS)
    device = integers(table.column("device"), -1)
    words, memory = coded(table.column("memory"))
    names = [*words.to_pylist(), None]
    columns = {
        name: integers(table.column(name), -1) for name in ("time", "thread", "address", "source_row", "reserved_bytes")
    }
    size = np.where(is_one_of(table.column("kind"), ("free",)), -1, 1) * integers(table.column("bytes"))
    stacks = integers(table.column("stack"))
    stated = integers(table.column("allocated_bytes"), -1)
    pools = []
    kinds = {*zip(device.tolist(), memory.tolist(), strict=True)}
    for number, kind in sorted(kinds, key=lambda k: (k[0] < 0, k[0], names[k[1]] or "")):
        rows = np.flatnonzero((device == number) & (memory == kind))
        time, order = columns["time"][rows], columns["source_row"][rows]
        if (time[1:] <= time[:-1]).any():
            rows = rows[np.lexsort((order, time))]
        own, address = size[rows], columns["address"][rows]
        says = bool((stated[rows] >= 0).all())
        pools.append(
            Pool(
                number,
                names[kind] or "unknown",
                columns["time"][rows],
                columns["thread"][rows],
                own,
                stated[rows] if says else _counted(own),
                says,
                columns["reserved_bytes"][rows],
                _partners(address, own),
                bool((address > 0).any()),
                stacks[rows],
            )
        )
    return pools


def _counted(size: Int64) -> Int64:
    """The allocated bytes from the sizes alone; frees of blocks from before the capture add to the initial bytes."""
    total: Int64 = np.cumsum(size)
    return total - min(0, int(total.min(initial=0)))


def _partners(address: Int64, size: Int64) -> Int64:
    """Of each event the row of the other end of its block, which ends with the next event at its address."""
    partner = np.full(len(size), -1, np.int64)
    order = np.argsort(address, kind="stable")
    first, second = order[:-1], order[1:]
    same = (address[first] == address[second]) & (address[first] > 0) & (size[first] > 0) & (size[second] < 0)
    partner[first[same]], partner[second[same]] = second[same], first[same]
    return partner


def owners_of(nodes: Nodes, pool: Pool) -> Int64:
    """The key of the innermost node around each event of a pool, on its thread; -1 if there is none."""
    return nodes.keys_around(Intervals(pool.thread, pool.time, pool.time))


@dataclass(frozen=True)
class RankSteps:
    """The steps of a rank by start: int64 arrays of one length."""

    number: Int64
    start: Int64
    end: Int64

    def of(self, times: Int64) -> Int64:
        """The place of the step that holds each time; -1 for none."""
        if not len(self.start):
            return np.full(len(times), -1, np.int64)
        at = np.searchsorted(self.start, times, "right") - 1
        places: Int64 = np.where((at >= 0) & (times < self.end[np.maximum(at, 0)]), at, -1)
        return places


def steps_of(rank: Rank) -> RankSteps:
    """The rank's steps from the alignment; none if it found none."""
    table = rank.shared("steps")
    if table is None or not table.num_rows:
        return RankSteps(*(np.empty(0, np.int64) for _ in range(3)))
    number, start, end = (integers(table.column(c)) for c in ("step", "start", "end"))
    order = np.argsort(start, kind="stable")
    return RankSteps(number[order], start[order], end[order])


def with_labels(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with `pool`: rank and kind of memory, and the device if the rank has several of the kind."""
    several: dict[tuple[int, str], set[str | None]] = {}
    for row in rows:
        several.setdefault((row["rank"], row["memory"]), set()).add(row["gpu"])

    def label(row: Mapping[str, Any]) -> str:
        alone = len(several[row["rank"], row["memory"]]) == 1
        return " · ".join(str(row[c]) for c in (("rank", "memory") if alone else ("rank", "memory", "gpu")))

    return [{**row, "pool": label(row)} for row in rows]


def pool_notes(pools: Sequence[tuple[int, Any]]) -> Iterator[str]:
    """What a reader must know of pools, from pairs of rank and row with `stated`, `addressed`, `unmatched_frees`."""
    for fact, words in (
        (
            "stated",
            "the trace does not contain the total allocated memory, so sizes are summed from the start of the capture",
        ),
        ("addressed", "the trace has no addresses, so frees cannot be matched with their blocks"),
    ):
        ranks = sorted({rank for rank, row in pools if not row[fact]})
        if ranks:
            yield f"{'rank' if len(ranks) == 1 else 'ranks'} {_listed(ranks)}: {words}"


def _listed(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
