"""NVTX ranges as nsys prints them: names, levels, children, stacks, by column; and projected on GPU work."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.analysis.distribution import VALUE
from alltrace.recipes.analysis.nvtx_projection import projection
from alltrace.recipes.base import Part, RunFacts
from alltrace.recipes.execution.shared_tables import once
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Int64, integers
from alltrace.trace.errors import UsageError
from alltrace.trace.grouping import group

_MOST_BYTES = 8 << 30
RANGE_NAME = "coalesce(text_of(domain) || ':', '') || text_of(name)"
STYLE_NAME = "CASE kind WHEN 'pushpop' THEN 'PushPop' WHEN 'startend' THEN 'StartEnd' ELSE kind END"
"""What a range is called, over `domain` and `name`, and its style, over `kind`."""
RANGES = {"ranges": ("start", "end", "name", "domain")}
OF_NCCL = "JOIN names ON names.id = domain WHERE names.value IN ('NCCL', 'RCCL')"
"""What leaves ranges of the NVTX domains in which communication libraries name their calls, in whichever process."""


def projected(rank: Rank) -> Any:
    """The closed ranges that launched GPU work, with its extent as `start`, `end` and `value`, ns."""

    def make() -> Any:
        of = projection(rank)
        names = {name: of.ranges.column(name) for name in ("name", "domain")}
        table = pa.table({"start": of.first, "end": of.last, **names, VALUE: of.last - of.first})
        return table.filter(pc.invert(of.ranges.column("open")))

    return once(rank, "projected ranges", make)


def projected_table(rank: Rank) -> dict[str, Any]:
    """`projected` with the rank in front, as the table of a statement."""
    ranges = projected(rank)
    return {"projected": ranges.add_column(0, "rank", pa.array(np.full(ranges.num_rows, rank.rank, np.int32)))}


def range_labels(domain: Any, name: Any, texts: RunFacts | Rank) -> Any:
    """`domain:text` of ids, or the text alone in the default domain; null if there is no text."""
    text = texts.texts(name)
    return pc.coalesce(pc.binary_join_element_wise(texts.texts(domain), text, ":", null_handling="emit_null"), text)


def range_names(table: Any, texts: RunFacts | Rank) -> Any:
    codes, first = group([table.column("domain"), table.column("name")])
    distinct = pc.take(table.select(["domain", "name"]), pa.array(first)).combine_chunks()
    domain, name = (distinct.column(c).combine_chunks() for c in ("domain", "name"))
    labels = range_labels(domain, name, texts)
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), labels)


def is_kind(kinds: Any, kind: str) -> Any:
    """Whether each is of a kind, for the column `kind` of `ranges`: chunked booleans, null if it is null."""
    chunks = [
        pc.take(pa.array([word == kind for word in c.dictionary.to_pylist()], pa.bool_()), c.indices)
        for c in kinds.chunks
    ]
    return pa.chunked_array(chunks, pa.bool_())


def style_labels(kind: Any) -> Any:
    """`PushPop` or `StartEnd` for the words of `ranges.kind`, a string array."""
    words = pc.cast(kind, pa.string())
    for word, style in (("pushpop", "PushPop"), ("startend", "StartEnd")):
        words = pc.if_else(pc.equal(words, word), style, words)
    return words


def pids_and_tids(rank: Rank, threads: Int64) -> tuple[Int64, Int64]:
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
    count, total = np.zeros(len(parent), np.int64), np.zeros(len(parent), np.int64)
    rows = np.flatnonzero(parent >= 0)
    np.add.at(count, parent[rows], 1)
    np.add.at(total, parent[rows], length[rows])
    return count, total


def stacks(level: Int64, parent: Int64, number: Int64) -> Any:
    """The numbers of each range and its ancestors, outermost first: `:1:5:9`, a chunked array."""
    count = len(level)
    by_level = np.argsort(level, kind="stable")
    first = np.searchsorted(level[by_level], np.arange(int(level.max(initial=-1)) + 2))
    place = np.empty(count, np.int64)
    place[by_level] = np.arange(count)
    texts = pc.cast(pa.array(number[by_level]), pa.large_string())
    size = np.empty(count, np.int64)
    size[by_level] = pc.binary_length(texts).to_numpy(zero_copy_only=False).astype(np.int64) + 1
    of_levels = []
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
                f"the ranges are nested so deeply that their stacks exceed {_MOST_BYTES >> 30} GiB of text; select"
                " fewer ranks"
            )
        above = pc.binary_join_element_wise(
            pc.take(above, pa.array(at)), texts.slice(first[k], len(rows)), pa.scalar(":", pa.large_string())
        )
        of_levels.append(above)
    return pc.take(pa.chunked_array(of_levels, pa.large_string()), pa.array(place))


def name_tree(level: Int64, names: Any) -> Any:
    """The name of each range after two dashes for each of its ancestors, a dictionary array; null if it has no name."""
    codes, first = group([names.indices, pa.array(level)])
    some = pc.cast(pc.take(names, pa.array(first)), pa.string())
    deep = pc.binary_repeat(pa.scalar("--"), pa.array(level[first]))
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pc.binary_join_element_wise(deep, some, ""))


class Numbering(NamedTuple):
    """How a rank's ranges are numbered: by their rows in its report or by order, plus an offset for each report."""

    in_report: bool
    offset: int

    def numbers(self, rows: Any) -> Int64:
        own = integers(rows, -1) if self.in_report else np.arange(1, len(rows) + 1)
        return own + self.offset


def number_ranges(parts: Iterable[Part], run: RunFacts) -> list[Numbering]:
    """How the ranges of each part are numbered: by `source_row` as in the report, one report after the other."""
    reports = {r.rank: tuple(r.reports) for r in run.ranks}
    latest: dict[object, int] = {}
    keys: list[tuple[object, bool]] = []
    for part in parts:
        rows = integers(part.table.column("source_row"), -1)
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


def numbered_cells(table: Any, numbering: Numbering) -> dict[str, Any]:
    """The cells of ranges with `Lvl` and `parent`, a row, that have their numbers."""
    number, parent = numbering.numbers(table.column("source_row")), integers(table.column("parent"), -1)
    return {
        "RangeId": number,
        "ParentId": pa.array(number[np.maximum(parent, 0)] if len(number) else number, mask=parent < 0),
        "RangeStack": stacks(integers(table.column("Lvl"), -1), parent, number),
    }
