"""What reports of `nsys stats` share, and two of their shapes: `SqlReport`, of statements, and `Trace`, of events."""

from collections.abc import Callable, Generator, Sequence
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.nvidia.cells import IMPORTANT, Cell, Columns, cell_table, empty_table, stack
from alltrace.nvidia.kernel_names import NVTX_NAME, kernel_words, launch_ranges, name_column
from alltrace.recipes.analysis.sql_engine import with_rank
from alltrace.recipes.base import Answer, Chart, Column, Of, Option, Options, Part, Question, RunFacts
from alltrace.recipes.row_stream import RowStream, StreamedRank, merged, merged_by_call, merged_spilled, sliced_ranks
from alltrace.recipes.sql_recipe import Statements, id_table
from alltrace.run.rank import Rank

Rows = Callable[[Rank, Options], Any]

BY_RANK = Option("by_rank", bool, default=False, help="A row for each rank, with the rank in front.")
RANK = "rank"
RANK_CELL = Cell("Rank", "int", "Rank of the process.")
_OTHER_RANK_CELL = Cell("Run Rank", "int", "Rank of the process in the run.")
_NVTX_NAME_READS = {
    "ranges": ("start", "end", "thread", "end_thread", "name", "domain", "kind", "source_row"),
    "api": ("start", "end", "process", "thread", "correlation"),
}


class Report(Question):
    """A report of `nsys stats` over all ranks: `title` is its heading, `cells` are its columns.

    With `exact_sizes`, sizes are in bytes and rates in bytes per second, not rounded, under the same headers.
    """

    title: ClassVar[str]
    cells: ClassVar[tuple[Cell, ...]]
    exact_sizes: ClassVar[bool] = False
    session_time = True
    important = IMPORTANT
    options: tuple[Option, ...] = (BY_RANK,)

    def __init__(self, name: str | None = None, title: str | None = None, doc: str | None = None, **facts: Any) -> None:
        """The report of that name; `facts` are attributes of it. A subclass that is one report states them itself."""
        own = {"name": name or self.name, "title": title or self.title, "doc": doc if name else type(self).__doc__}
        vars(self).update(facts, **own)

    def reads(self, options: Options) -> dict[str, tuple[str, ...]]:
        reads = super().reads(options)
        for table, columns in _NVTX_NAME_READS.items() if options.get("nvtx_name") else ():
            reads[table] = tuple(dict.fromkeys((*reads.get(table, ()), *columns)))
        return reads

    def without(self, options: Options) -> dict[str, str]:
        return dict.fromkeys(_NVTX_NAME_READS, "kernels are named without a range") if options.get("nvtx_name") else {}

    def in_bytes(self) -> Self:
        report = copy(self)
        vars(report)["exact_sizes"] = True
        return report

    @property
    def rank_cell(self) -> Cell:
        """The column that `--by-rank` adds, with another name if the report already has a column `Rank`."""
        return _OTHER_RANK_CELL if any(cell.title == RANK_CELL.title for cell in self.cells) else RANK_CELL

    def answer_cells(self, options: Options) -> tuple[Cell, ...]:
        """The columns under `options`: the rank in front with `--by-rank`."""
        return (self.rank_cell, *self.cells) if options.get("by_rank") else self.cells

    def answer_columns(self, options: Options) -> tuple[Column, ...]:
        return tuple(cell.answer_column() for cell in self.answer_cells(options))

    def answer_chart(self, options: Options) -> Chart | None:
        """The report's chart; by rank, the rank distinguishes bars of equal names."""
        chart = super().answer_chart(options)
        by_rank = options.get("by_rank") and chart is not None and "bars" in chart.kind
        return chart._replace(detail=self.rank_cell.header) if chart is not None and by_rank else chart

    def answer(self, columns: Columns, options: Options) -> Answer:
        """The answer made of `columns` by title (see `cell_table`)."""
        table = cell_table(self.answer_cells(options), columns, in_bytes=self.exact_sizes)
        return Answer(table.table, table.columns)

    def empty(self, options: Options) -> Answer:
        table = empty_table(self.answer_cells(options), in_bytes=self.exact_sizes)
        return Answer(table.table, table.columns)

    def row_stream(self, tables: Generator[Any, None, None], options: Options) -> Answer:
        empty = self.empty(options)
        return empty._replace(stream=RowStream(tables, empty.table))

    def tables_of(self, parts: Sequence[Part], options: Options) -> list[Any]:
        some = [part for part in parts if part.table.num_rows]
        if not options.get("by_rank"):
            return [part.table for part in some]
        return [with_rank(part.table, part.rank).rename_columns({RANK: self.rank_cell.title}) for part in some]


def by_rank(options: Options) -> bool:
    return bool(options.get("by_rank"))


class SqlReport(Report):
    """A report of two statements: `map_sql` over a rank's tables, `reduce_sql` over `parts`, with its titles.

    In a report that names kernels `{kernel}` is the id of a name, `{launch_range}` of the range, and `{kernel_name}`
    the text over keys of these names. `{by_rank}` is `rank, ` if each rank has its own rows, and else empty;
    `{rank_cell}` is its column then.
    """

    map_sql: ClassVar[str]
    reduce_sql: ClassVar[str]

    @property
    def names_kernels(self) -> bool:
        return any(option.name == NVTX_NAME.name for option in self.options)

    def reads(self, options: Options) -> dict[str, tuple[str, ...]]:
        """The tables and columns: kernel names that are shown, launches only where they are looked up."""
        reads = super().reads(options)
        if self.names_kernels:
            unused = {"short_name", "mangled_name"} - {name_column(options)}
            if not options.get("nvtx_name") and ("api",) not in self.needs(options):
                unused |= {"process", "correlation"}
            reads["kernels"] = tuple(c for c in reads["kernels"] if c not in unused)
        return reads

    def words(self, options: Options) -> dict[str, str]:
        by_rank = (
            {"by_rank": "rank, ", "rank_cell": 'rank AS "Rank", '}
            if options.get("by_rank")
            else {"by_rank": "", "rank_cell": ""}
        )
        return {**by_rank, **(kernel_words(options) if self.names_kernels else {})}

    def select(self, map_sql: Of[str], reduce_sql: Of[str], **facts: Any) -> Statements:
        """The statements over the rank's tables; `kernels` has the column `launch_range` if requested."""

        def rank_tables(rank: Rank, options: Options) -> dict[str, Any]:
            tables = {table: id_table(rank, table, columns) for table, columns in self.reads(options).items()}
            if options.get("nvtx_name"):
                tables["kernels"] = tables["kernels"].append_column(
                    "launch_range", launch_ranges(rank, tables["kernels"])
                )
            return tables

        def computed(options: Options) -> str | None:
            return "the NVTX range around each launch" if options.get("nvtx_name") else None

        own = {"rank_tables": rank_tables, "computed": computed}
        return Statements(self.reads, map_sql, reduce_sql, **{**own, **facts})

    @property
    def statements(self) -> Statements:
        return self.select(
            lambda options: self.map_sql.format_map(self.words(options)),
            lambda options: self.reduce_sql.format_map(self.words(options)),
        )

    def map(self, rank: Rank, options: Options) -> Any:
        return self.statements.map_rank(rank, options)

    def map_ranks(self, ranks: Sequence[Rank], options: Options) -> Any:
        return self.statements.map_ranks(ranks, options)

    def merge(self, parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
        if not any(part.table.num_rows for part in parts):
            return self.empty(options)
        table = self.statements.over_parts(parts, run, options)
        return self.answer({name: table.column(name) for name in table.column_names}, options)


class Trace(Report):
    """A report with a row per event, in order of start; rows with equal starts stay in order, lower ranks first.

    `rows` are the rows of one rank, with a column per cell by title (see `cell_table` for the units); each comes from
    one event of `tables` with the row's start, except under an option `spread`. `by_call` are the tables of launched
    work, if a row is a call of `api` and the work it launched. `order` is the title of the start, `height` and `called`
    of what a picture shows.
    """

    clock = "one"

    def __init__(
        self,
        name: str,
        title: str,
        doc: str,
        *,
        rows: Rows,
        cells: tuple[Cell, ...],
        by_call: tuple[str, ...] = (),
        order: str = "Start",
        height: str = "Duration",
        called: str = "Name",
        **facts: Any,
    ) -> None:
        self._rows, self._by_call, self._order = rows, by_call, order
        header = {cell.title: cell.header for cell in cells}
        chart = Chart("scatter", header[order], (header[height],), header[called])
        super().__init__(name, title, doc, cells=cells, chart=chart, **facts)

    def map(self, rank: Rank, options: Options) -> Any:
        return self._rows(rank, options)

    def stream(self, ranks: Sequence[StreamedRank], run: RunFacts, options: Options) -> Answer:
        def rows(tables: Rank) -> Any:
            return self.map(tables, options)

        if options.get("nvtx_name"):  # the range around a launch is not of the span
            spans = merged_spilled(((rank.rank, rows(rank.whole())) for rank in ranks), self._order)
        elif self._by_call:
            spans = merged_by_call(ranks, self.reads(options), self._by_call, rows, self._order)
        else:
            spans = merged(sliced_ranks(ranks, self.reads(options), rows))
        return self.row_stream((self.merge(parts, run, options).table for parts in spans), options)

    def merge(self, parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
        tables = self.tables_of(parts, options)
        if not tables:
            return self.empty(options)
        whole = stack(tables).combine_chunks()
        at = np.argsort(whole.column(self._order).to_numpy(), kind="stable")
        whole = whole if np.array_equal(at, np.arange(len(at))) else pc.take(whole, pa.array(at))
        return self.answer({name: whole.column(name) for name in whole.column_names}, options)
