"""How NVTX ranges stack up: levels, children, and the texts that nsys prints of them, made column by column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.trace.arrays import integers
from alltrace.trace.errors import UsageError
from alltrace.trace.grouping import group

if TYPE_CHECKING:
    from collections.abc import Iterable

    from alltrace.recipes.base import Part, RankTables, RunFacts
    from alltrace.trace.arrays import Int64

_MOST_BYTES = 8 << 30


def pids_and_tids(rank: RankTables, threads: Int64) -> tuple[Int64, Int64]:
    """The process ids and thread ids, as the operating system numbers them, of rows of `threads`."""
    table = rank.table("threads", ["thread", "process", "tid"])
    processes = rank.table("processes", ["process", "pid"])
    pid_of = _by_row(integers(processes.column("process")), integers(processes.column("pid"), -1))
    row = integers(table.column("thread"))
    tid_of = _by_row(row, integers(table.column("tid"), -1))
    process_of = _by_row(row, integers(table.column("process")))
    return pid_of[process_of[threads]], tid_of[threads]


def _by_row(rows: Int64, values: Int64) -> Int64:
    table = np.full(int(rows.max(initial=-1)) + 1, -1, np.int64)
    table[rows] = values
    return table


def levels(parent: Int64) -> Int64:
    """How many ancestors each range has, from the row of each one's parent (-1 for none)."""
    level = (parent >= 0).astype(np.int64)
    ancestor = parent
    while (ancestor >= 0).any():  # `level` counts the steps to `ancestor`; each round doubles them
        on = ancestor >= 0
        at = np.where(on, ancestor, 0)
        level = np.where(on, level + level[at], level)
        ancestor = np.where(on, ancestor[at], -1)
    return level


def children(parent: Int64, length: Int64) -> tuple[Int64, Int64]:
    """How many children each range has, and how long they are together."""
    count = np.zeros(len(parent), np.int64)
    total = np.zeros(len(parent), np.int64)
    rows = np.flatnonzero(parent >= 0)
    np.add.at(count, parent[rows], 1)
    np.add.at(total, parent[rows], length[rows])
    return count, total


def stacks(level: Int64, parent: Int64, number: Int64) -> tuple[Any, Int64]:
    """The numbers of each range and its ancestors, outermost first: `:1:5:9`.

    Args:
        level: How many ancestors each range has.
        parent: The row of its parent, -1 for none.
        number: Its number.

    Returns:
        The texts, a chunked array in any order, and the index of each range's text in it.

    Raises:
        UsageError: The texts would need more than 8 GiB.
    """
    count = len(level)
    by_level = np.argsort(level, kind="stable")
    first = np.searchsorted(level[by_level], np.arange(int(level.max(initial=-1)) + 2))
    place = np.empty(count, np.int64)
    place[by_level] = np.arange(count)
    texts = pc.cast(pa.array(number[by_level]), pa.large_string())
    size = np.empty(count, np.int64)
    size[by_level] = pc.binary_length(texts).to_numpy(zero_copy_only=False).astype(np.int64) + 1
    made = []
    above = pa.array([""], pa.large_string())
    needed = 0
    for k in range(len(first) - 1):
        rows = by_level[first[k] : first[k + 1]]
        at = np.zeros(len(rows), np.int64) if k == 0 else place[parent[rows]] - first[k - 1]
        if k:
            size[rows] += size[parent[rows]]
        needed += int(size[rows].sum())
        if needed > _MOST_BYTES:
            raise UsageError(
                f"the ranges are nested so deeply that their stacks exceed {_MOST_BYTES >> 30} GiB of text; select fewer ranks"
            )
        above = pc.binary_join_element_wise(
            pc.take(above, pa.array(at)), texts.slice(first[k], len(rows)), pa.scalar(":", pa.large_string())
        )
        made.append(above)
    whole = pa.chunked_array(made, pa.large_string())
    return whole, place


def name_tree(level: Int64, labels: Any) -> Any:
    """The name of each range after two dashes for each of its ancestors, a dictionary array; null if it has no name.

    Args:
        level: How many ancestors each range has.
        labels: The names, a dictionary array.
    """
    codes, first = group([labels.indices, pa.array(level)])
    some = pc.cast(pc.take(labels, pa.array(first)), pa.string())
    deep = pc.binary_repeat(pa.scalar("--"), pa.array(level[first]))
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pc.binary_join_element_wise(deep, some, ""))


class Numbering(NamedTuple):
    """How the ranges of a rank are numbered.

    Attributes:
        in_report: Whether by their rows in its report, rather than by their order.
        offset: What is added, so that numbers are distinct over all reports.
    """

    in_report: bool
    offset: int

    def numbers(self, rows: Any) -> Int64:
        """The numbers of the ranges with these rows (an Arrow array) in the report."""
        found = integers(rows, -1) if self.in_report else np.arange(1, len(rows) + 1)
        return found + self.offset


def number_ranges(parts: Iterable[Part], run: RunFacts, column: str) -> list[Numbering]:
    """How the ranges of each part are numbered: as in the report, the reports one after the other.

    Args:
        parts: Tables of ranges, one per rank; each is read once.
        run: Says which rank is of which report.
        column: The column with the row number of the range in its report.
    """
    reports = {r.rank: tuple(r.reports) for r in run.ranks}
    latest: dict[object, int] = {}
    keys: list[tuple[object, bool]] = []
    for part in parts:
        rows = integers(part.table.column(column), -1)
        of = reports.get(part.rank, ())
        # of several reports, or of a profiler that numbers nothing: by their order
        whole = len(of) == 1 and bool((rows >= 0).all())
        keys.append((of if whole else part.rank, whole))
        latest[keys[-1][0]] = max(latest.get(keys[-1][0], 0), int(rows.max(initial=0)) if whole else len(rows))
    offsets: dict[object, int] = {}
    total = 0
    for key, last in latest.items():
        offsets[key] = total
        total += last
    return [Numbering(whole, offsets[key]) for key, whole in keys]
