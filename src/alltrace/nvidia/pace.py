"""The pace recipes: how long each occurrence of a name took on each rank, and how long after the last it came.

The i-th occurrence of every rank is one iteration. nsys has a table of iterations by ranks for each quantity; `pace`
holds all of them, a row per iteration and rank.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.nvidia.cells import RANK_CELL, Cell, cell_table, cells, empty_table
from alltrace.nvidia.recipe import FILES, SqlNsysRecipe, file_columns
from alltrace.nvidia.recipe_sums import TEXT, duration_cells, duration_columns
from alltrace.recipes.analysis.nvtx_projection import PROJECTION_READS
from alltrace.recipes.analysis.sql_engine import run_statement
from alltrace.recipes.analysis.statistics_sql import statistics_statement
from alltrace.recipes.base import Answer, AnswerTable, Chart, Option, Options, Part, RunFacts
from alltrace.recipes.sql_recipe import Statements
from alltrace.trace.arrays import Int64, integers
from alltrace.trace.number_text import number_ranges

_WIDE = ("start", "end", "duration", "delta", "duration_accum", "delta_accum")
_NOTHING = -(1 << 63)
_PACE = (
    Cell("Iteration", "int", "Number of the occurrence on its rank, from 0."),
    RANK_CELL,
    *cells(
        "Start | ns | When it began.",
        "End | ns | When it ended.",
        "Duration | ns | How long it took.",
        "Delta | ns | From the end of the one before to its start; null for the first.",
        "Duration Accum | ns | Durations up to it, added up.",
        "Delta Accum | ns | Deltas up to it, added up.",
    ),
)
_DELTA = (
    Cell("Count", "int", "Ranks that have the iteration, and one before it."),
    *(
        Cell(title, "ns" if title in ("Min", "Max", "Sum") else "exact_ns", f"{title} of the ranks' deltas.")
        for title in ("Mean", "Std", "Min", "Q1", "Median", "Q3", "Max", "Sum")
    ),
)
_ADVICE = """

    Choose a name that occurs once in each iteration, best one that ends when all ranks are there, such as a barrier: a
    rank with a long delta is late. The first table has a row per iteration and rank; nsys' tables, a column per rank,
    follow.
    """


class Pace(SqlNsysRecipe):
    """The iterations of each rank: the occurrences of `$name` by their starts, with on how many `threads` they are.

    `column` of `table` is the name, `threads` an expression, `more` a further condition, `label` the title of the name
    in `stats`.
    """

    own: ClassVar[tuple[Option, ...]] = (
        Option("name", str, None, "The name that marks the iterations.", required=True),
    )
    chart = Chart("lines", "Iteration", ("Delta",), "Rank")

    def __init__(
        self,
        name: str,
        doc: str,
        *,
        table: str,
        column: str = "name",
        threads: str = "1",
        more: str = "",
        label: str = TEXT,
        **facts: Any,
    ) -> None:
        self._title = label
        self._map = f"""
SELECT rank, start, "end", {threads} AS threads
FROM {table} JOIN names ON names.id = {column}
WHERE names.value = $name{more}
ORDER BY start, "end"
"""
        wide: dict[str, tuple[Cell, ...]] = {f"pace_{quantity}": () for quantity in _WIDE}
        stats = duration_cells(label, "The name.", exact=False)
        results = {"pace": _PACE, "stats": stats, **wide, "pace_delta_stats": _DELTA, **FILES}
        super().__init__(name, f"{doc}{_ADVICE}", results=results, **facts)

    @property
    def statements(self) -> Statements:
        return self.select(self._map)

    def combine(self, parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
        if not parts:
            return self._with_wide({}, {}, [])._replace(notes=(f"no rank has {options['name']!r}",))
        columns = {part.rank: _quantities(part.table) for part in parts}
        pace: dict[str, Any] = {
            "Iteration": np.concatenate([np.arange(part.table.num_rows) for part in parts]),
            "Rank": np.repeat([part.rank for part in parts], [part.table.num_rows for part in parts]),
        }
        for quantity in _WIDE:
            values = np.concatenate([c[quantity] for c in columns.values()])
            pace[quantity.replace("_", " ").title()] = pa.array(values, mask=values == _NOTHING)
        took = pa.table({"name": pa.array([options["name"]] * len(pace["Rank"])), "value": pace["Duration"]})
        summary = _statistics(took, "name")
        stats = {self._title: summary.column("name"), **duration_columns(summary, exact=False)}
        answer = self._with_wide({"pace": pace, "stats": stats, "files": file_columns(parts, run)}, columns, parts)
        return answer._replace(notes=tuple(_notes(parts)))

    def _with_wide(
        self, tables: Mapping[str, Any], columns: Mapping[int, Mapping[str, Any]], parts: Sequence[Part]
    ) -> Answer:
        answer = self.answer(tables)
        further = dict(answer.further)
        ranks = [part.rank for part in parts]
        longest = max((part.table.num_rows for part in parts), default=0)
        wide = {q: np.full((longest, len(ranks)), _NOTHING, np.int64) for q in _WIDE}
        for at, rank in enumerate(ranks):
            for quantity, values in columns[rank].items():
                wide[quantity][: len(values), at] = values
        for quantity, values in wide.items():
            further[f"pace_{quantity}"] = _by_rank(ranks, values, quantity)
        further["pace_delta_stats"] = (
            cell_table(_DELTA, _delta_statistics(wide["delta"])) if longest else empty_table(_DELTA)
        )
        return answer._replace(further=further)


def _quantities(table: Any) -> dict[str, Int64]:
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


def _by_rank(ranks: Sequence[int], values: Int64, quantity: str) -> AnswerTable:
    columns = {str(rank): pa.array(values[:, at], mask=values[:, at] == _NOTHING) for at, rank in enumerate(ranks)}
    return cell_table([Cell(str(rank), "ns", f"{quantity} of rank {rank}") for rank in ranks], columns)


def _statistics(values: Any, key: str) -> Any:
    counted = values.append_column("rank", pa.nulls(values.num_rows, pa.int32())).append_column(
        "count", pa.repeat(1, values.num_rows)
    )
    return run_statement(f"{statistics_statement({key: key}, (key,), 'type_7')} ORDER BY {key}", {"parts": counted})


def _delta_statistics(deltas: Int64) -> dict[str, Any]:
    """The statistics of each iteration, a row, that has deltas; null for one without."""
    iteration, rank = np.nonzero(deltas != _NOTHING)
    summary = _statistics(pa.table({"iteration": iteration, "value": deltas[iteration, rank]}), "iteration")
    place = pc.index_in(pa.array(np.arange(len(deltas))), summary.column("iteration").combine_chunks())
    columns = {name: column.take(place) for name, column in duration_columns(summary, exact=True).items()}
    return {**columns, "Count": pc.fill_null(columns["Count"], 0)}


def _notes(parts: Sequence[Part]) -> list[str]:
    counts = [part.table.num_rows for part in parts]
    notes = []
    if min(counts) != max(counts):
        notes.append(f"ranks have {min(counts)} to {max(counts)} occurrences; they are matched from the first on")
    several = [part.rank for part in parts if part.table.column("threads")[0].as_py() > 1]
    if several:
        notes.append(
            f"it occurs on several threads of rank {number_ranges(several)}; their occurrences are in one order, by"
            " their starts"
        )
    return notes


cuda_gpu_kern_pace = Pace(
    "cuda_gpu_kern_pace",
    "The pace of a kernel, by its short name: how long each of its runs took on each rank, and how long after the last"
    " it came.",
    tables={"kernels": ("start", "end", "short_name")},
    table="kernels",
    column="short_name",
    label="Shortname",
)
nvtx_pace = Pace(
    "nvtx_pace",
    "The pace of an NVTX range: how long each of its occurrences took on each rank, and how long after the last it"
    " came.",
    tables={"ranges": ("start", "end", "name", "thread")},
    table="ranges",
    threads="count(DISTINCT thread) OVER (PARTITION BY rank)",
    more=' AND "end" IS NOT NULL',
    device=False,
)
nvtx_gpu_proj_pace = Pace(
    "nvtx_gpu_proj_pace",
    "The pace of an NVTX range on the GPU: of the work launched inside each of its occurrences, from first start to"
    " last end.",
    tables=PROJECTION_READS,
    table="projected",
    requires=("ranges", "api", ("kernels", "copies")),
    projects=True,
)
