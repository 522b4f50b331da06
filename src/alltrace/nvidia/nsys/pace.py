"""The pace recipes: how long each occurrence of a name took on each rank, and how long after the last it came.

The i-th occurrence of every rank is one iteration. nsys has a table of iterations by ranks for each quantity; `pace` holds all of
them, a row per iteration and rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from alltrace.nvidia.nsys.base import FILES, RANK_CELL, Cell, SqlNsysRecipe, file_columns, result_table
from alltrace.nvidia.nsys.duration_sums import TEXT, statistics, statistics_columns
from alltrace.nvidia.nsys.ranges import projected_table
from alltrace.recipes.analysis.distribution import collect, summarize
from alltrace.recipes.analysis.nvtx_projection import PROJECTION_READS
from alltrace.recipes.base import Answer, AnswerTable, Chart, Option
from alltrace.trace.arrays import integers
from alltrace.trace.number_text import number_ranges

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from alltrace.recipes.base import Part, RankTables, RunFacts

NAME = Option("name", str, None, "The name that marks the iterations.", required=True)
WIDE = ("start", "end", "duration", "delta", "duration_accum", "delta_accum")
_NOTHING = -(1 << 63)

_ITERATION = Cell("Iteration", "int", "Number of the occurrence on its rank, from 0.")
_PACE = (
    _ITERATION,
    RANK_CELL,
    Cell("Start", "ns", "When it began."),
    Cell("End", "ns", "When it ended."),
    Cell("Duration", "ns", "How long it took."),
    Cell("Delta", "ns", "From the end of the one before to its start; null for the first."),
    Cell("Duration Accum", "ns", "Durations up to it, added up."),
    Cell("Delta Accum", "ns", "Deltas up to it, added up."),
)


_DELTA = (
    Cell("Count", "int", "Ranks that have the iteration, and one before it."),
    *(
        Cell(title, "ns" if title in ("Min", "Max", "Sum") else "exact_ns", f"{title} of the ranks' deltas.")
        for title in ("Mean", "Std", "Min", "Q1", "Median", "Q3", "Max", "Sum")
    ),
)


class Pace(SqlNsysRecipe):
    """The iterations of each rank.

    The map returns the occurrences of `$name` by their starts: `start`, `end`, and on how many `threads` they are.

    Attributes:
        label: Title of the name in `stats`.
    """

    own: ClassVar[tuple[Option, ...]] = (NAME,)
    label: ClassVar[str] = TEXT
    results: ClassVar[Mapping[str, tuple[Cell, ...]]] = {
        "pace": _PACE,
        "stats": statistics(TEXT, "The name.", exact=False),
        **{f"pace_{quantity}": () for quantity in WIDE},
        "pace_delta_stats": _DELTA,
        **FILES,
    }
    chart: ClassVar[Chart | None] = Chart("lines", "Iteration", ("Delta",), "Rank")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Title the name in `stats`."""
        cls.results = {**cls.results, "stats": statistics(cls.label, "The name.", exact=False)}
        super().__init_subclass__(**kwargs)

    def combine(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """All tables."""
        if not parts:
            answer = self._made({}, {}, [])
            return answer._replace(notes=(f"no rank has {options['name']!r}",))
        columns = {part.rank: _quantities(part.table) for part in parts}
        pace: dict[str, Any] = {
            "Iteration": np.concatenate([np.arange(part.table.num_rows) for part in parts]),
            "Rank": np.repeat([part.rank for part in parts], [part.table.num_rows for part in parts]),
        }
        for quantity in WIDE:
            values = np.concatenate([c[quantity] for c in columns.values()])
            pace[quantity.replace("_", " ").title()] = pa.array(values, mask=values == _NOTHING)
        took = np.concatenate([c["duration"] for c in columns.values()])
        summary = summarize(collect({"rank": pa.array(np.zeros(len(took), np.int64))}, took), "linear")
        stats = {self.label: pa.array([options["name"]]), **statistics_columns(summary, exact=False)}
        answer = self._made({"pace": pace, "stats": stats, "files": file_columns(parts, run)}, columns, parts)
        return answer._replace(notes=tuple(_notes(parts)))

    def _made(self, tables: Mapping[str, Any], columns: Mapping[int, Mapping[str, Any]], parts: Sequence[Part]) -> Answer:
        """The answer with the tables of iterations by ranks."""
        answer = self.answer(tables)
        further = dict(answer.further)
        ranks = [part.rank for part in parts]
        longest = max((part.table.num_rows for part in parts), default=0)
        wide = {q: np.full((longest, len(ranks)), _NOTHING, np.int64) for q in WIDE}
        for at, rank in enumerate(ranks):
            for quantity, values in columns[rank].items():
                wide[quantity][: len(values), at] = values
        for quantity, values in wide.items():
            further[f"pace_{quantity}"] = _by_rank(ranks, values, quantity)
        further["pace_delta_stats"] = result_table(_DELTA, _describe_rows(wide["delta"]) if longest else {})
        return answer._replace(further=further)


def _quantities(table: Any) -> dict[str, NDArray[np.int64]]:
    start, end = integers(table.column("start")), integers(table.column("end"))
    duration = end - start
    delta = np.concatenate(([_NOTHING], start[1:] - end[:-1]))
    return {
        "start": start,
        "end": end,
        "duration": duration,
        "delta": delta,
        "duration_accum": np.cumsum(duration),
        "delta_accum": np.concatenate(([0], np.cumsum(delta[1:]))),
    }


def _by_rank(ranks: Sequence[int], values: NDArray[np.int64], quantity: str) -> AnswerTable:
    cells = tuple(Cell(str(rank), "ns", f"{quantity} of rank {rank}") for rank in ranks)
    columns = {str(rank): pa.array(values[:, at], mask=values[:, at] == _NOTHING) for at, rank in enumerate(ranks)}
    return result_table(cells, columns)


def _describe_rows(values: NDArray[np.int64]) -> dict[str, Any]:
    """The statistics of each row, as pandas describes it; null for a row without values."""
    known = values != _NOTHING
    n = known.sum(axis=1)
    last = np.iinfo(np.int64).max
    ordered = np.sort(np.where(known, values, last), axis=1)
    none, single = n == 0, n <= 1
    total = np.where(known, values, 0).sum(axis=1)
    mean = total / np.maximum(n, 1)
    squares = (np.where(known, values - mean[:, None], 0.0) ** 2).sum(axis=1)
    sizes = np.unique(n).tolist()  # hardly ever more than two

    def quantile(quarters: int) -> Any:
        found = np.zeros(len(values))
        for size in sizes:
            low, rest = divmod(max(size - 1, 0) * quarters, 4)
            rows = slice(None) if len(sizes) == 1 else n == size
            a, b = ordered[rows, low], ordered[rows, min(low + 1, max(size - 1, 0))]
            found[rows] = a + (b - a) * (rest / 4)
        return pa.array(found, mask=none)

    return {
        "Count": n,
        "Mean": pa.array(mean, mask=none),
        "Std": pa.array(np.sqrt(squares / np.maximum(n - 1, 1)), mask=single),
        "Min": pa.array(ordered[:, 0], mask=none),
        "Q1": quantile(1), "Median": quantile(2), "Q3": quantile(3),
        "Max": pa.array(np.where(known, values, _NOTHING).max(axis=1), mask=none),
        "Sum": pa.array(total, mask=none),
    }  # fmt: skip


def _notes(parts: Sequence[Part]) -> list[str]:
    counts = [part.table.num_rows for part in parts]
    notes = []
    if min(counts) != max(counts):
        notes.append(f"ranks have {min(counts)} to {max(counts)} occurrences; they are matched from the first on")
    several = [part.rank for part in parts if part.table.column("threads")[0].as_py() > 1]
    if several:
        notes.append(
            f"it occurs on several threads of rank {number_ranges(several)}; their occurrences are in one order, by their starts"
        )
    return notes


_OCCURRENCES = """
SELECT rank, start, "end", {threads} AS threads
FROM {table} JOIN names ON names.id = {name}
WHERE names.value = $name{more}
ORDER BY start, "end"
"""


class CudaGpuKernPace(Pace):
    """The pace of a kernel, by its short name: how long each of its runs took on each rank, and how long after the last it came.

    Choose a name that occurs once in each iteration, best one that ends when all ranks are there, such as a barrier: a rank with a
    long delta is late. The first table has a row per iteration and rank; nsys' tables, a column per rank, follow.
    """

    name = "cuda_gpu_kern_pace"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {"kernels": ("start", "end", "short_name")}
    label = "Shortname"
    map_sql: ClassVar[str] = _OCCURRENCES.format(threads=1, table="kernels", name="short_name", more="")


class NvtxPace(Pace):
    """The pace of an NVTX range: how long each of its occurrences took on each rank, and how long after the last it came.

    Choose a name that occurs once in each iteration, best one that ends when all ranks are there, such as a barrier: a rank with a
    long delta is late. The first table has a row per iteration and rank; nsys' tables, a column per rank, follow.
    """

    name = "nvtx_pace"
    device = False
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {"ranges": ("start", "end", "name", "thread")}
    map_sql: ClassVar[str] = _OCCURRENCES.format(
        threads="count(DISTINCT thread) OVER (PARTITION BY rank)", table="ranges", name="name", more=' AND "end" IS NOT NULL'
    )


class NvtxGpuProjPace(Pace):
    """The pace of an NVTX range on the GPU: of the work launched inside each of its occurrences, from first start to last end.

    Choose a name that occurs once in each iteration, best one that ends when all ranks are there, such as a barrier: a rank with a
    long delta is late. The first table has a row per iteration and rank; nsys' tables, a column per rank, follow.
    """

    name = "nvtx_gpu_proj_pace"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = PROJECTION_READS
    projects = True
    requires: ClassVar[tuple[str | tuple[str, ...], ...]] = ("ranges", "api", ("kernels", "copies"))
    map_sql: ClassVar[str] = _OCCURRENCES.format(threads=1, table="projected", name="name", more="")

    def rank_tables(self, rank: RankTables, options: Mapping[str, Any]) -> dict[str, Any]:
        """The projected ranges, which a compiled loop finds."""
        return {"projected": projected_table(rank)}
