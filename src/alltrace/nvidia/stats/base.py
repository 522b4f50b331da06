"""What all stats reports share: how `nsys stats` names, rounds and orders its cells.

An answer's columns bear the headers that nsys prints, unit and all. A fractional column holds float64 already rounded as nsys does,
and its Arrow field has the metadata `decimals`: how many digits after the point every cell is printed with (`7.0`, `0.000`).
A whole number is an int64 printed as it is, and null is an empty cell. A face needs no other rule to print what nsys prints.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.analysis.distribution import COUNT
from alltrace.recipes.analysis.statistics_sql import distribution_statement, merged_statement, statistics_statement
from alltrace.recipes.base import Answer, AnswerColumn, Chart, Option, Part, RankTables, Recipe, RunFacts
from alltrace.recipes.row_stream import RowStream, merged, merged_by_call, merged_spilled, sliced_ranks
from alltrace.recipes.sql_recipe import SqlRecipe
from alltrace.trace.grouping import group

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence
    from typing import Self

    from alltrace.recipes.row_stream import StreamedRank

CellKind = Literal["text", "int", "real", "time", "mean_time", "percent", "size", "throughput", "ticks"]

_UNITS: dict[CellKind, str] = {
    "time": "ns", "mean_time": "ns", "percent": "%", "size": "MB", "throughput": "MB/s",
    "ticks": "ticks/ms",
}  # fmt: skip
_DECIMALS: dict[CellKind, int] = {"real": 1, "mean_time": 1, "percent": 1, "size": 3, "throughput": 3}

_MOST_TEXT = (1 << 31) - 1
_NVTX_NAME_READS = {
    "ranges": ("start", "end", "thread", "end_thread", "name", "domain", "kind", "source_row"),
    "api": ("start", "end", "process", "thread", "correlation"),
}
NVTX_NAME = Option(
    "nvtx_name", bool, default=False, help="Put the innermost NVTX range around the launch in front of a kernel's name."
)
BY_RANK = Option("by_rank", bool, default=False, help="A row for each rank, with the rank in front.")
RANK = "rank"


class Cell(NamedTuple):
    """A column of a stats report.

    Attributes:
        title: Its title without the unit, such as `Total Time`.
        kind: What its cells are: `text`; `int`, a plain whole number; `real`, a number with one decimal; `time`, whole ns;
            `mean_time`, ns with one decimal; `percent`, with one decimal; `size`, MB of 1e6 bytes with three decimals;
            `throughput`, MB/s with three decimals; `ticks`, whole ticks per ms.
        doc: What it means.
    """

    title: str
    kind: CellKind
    doc: str

    @property
    def header(self) -> str:
        """The title and the unit in brackets, as nsys prints it."""
        unit = _UNITS.get(self.kind)
        return f"{self.title} ({unit})" if unit else self.title

    def answer_column(self) -> AnswerColumn:
        """The column as answers describe it."""
        return AnswerColumn(self.header, _UNITS.get(self.kind), self.doc)

    def field(self) -> Any:
        """The `pyarrow.Field` of the column, with `decimals` if its cells have a fraction."""
        if self.kind == "text":
            return pa.field(self.header, pa.string())
        if self.kind not in _DECIMALS:
            return pa.field(self.header, pa.int64())
        return pa.field(self.header, pa.float64(), metadata={"decimals": str(_DECIMALS[self.kind])})


RANK_CELL = Cell("Rank", "int", "Rank of the process.")
_OTHER_RANK_CELL = Cell("Run Rank", "int", "Rank of the process in the run.")


class StatsReport(Recipe):
    """A report of `nsys stats` over all ranks.

    Attributes:
        title: The heading nsys prints above the report's table.
        cells: Its columns.
        exact_sizes: Whether sizes are in bytes and rates in bytes per second, not rounded (see `in_bytes`).
    """

    title: ClassVar[str]
    exact_sizes: ClassVar[bool] = False
    session_time: ClassVar[bool] = True
    cells: ClassVar[tuple[Cell, ...]]
    options: ClassVar[tuple[Option, ...]] = (BY_RANK,)

    def reads(self, options: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
        """The tables and columns that `map` reads under `options`, with those of `NVTX_NAME`."""
        reads = super().reads(options)
        for table, columns in _NVTX_NAME_READS.items() if options.get("nvtx_name") else ():
            reads[table] = tuple(dict.fromkeys((*reads.get(table, ()), *columns)))
        return reads

    def without(self, options: Mapping[str, Any]) -> dict[str, str]:
        """What follows for `NVTX_NAME`."""
        return dict.fromkeys(_NVTX_NAME_READS, "kernels are named without a range") if options.get("nvtx_name") else {}

    def in_bytes(self) -> Self:
        """The same report with sizes in bytes and rates in bytes per second, not rounded, under the same headers."""
        report = copy(self)
        vars(report)["exact_sizes"] = True
        return report

    @property
    def rank_cell(self) -> Cell:
        """The column that `--by-rank` adds, with another name if the report already has a column `Rank`."""
        taken = any(cell.title == RANK_CELL.title for cell in self.cells)
        return _OTHER_RANK_CELL if taken else RANK_CELL

    def answer_cells(self, options: Mapping[str, Any]) -> tuple[Cell, ...]:
        """The columns under `options`: `Rank` in front with `--by-rank`."""
        return (self.rank_cell, *self.cells) if options.get("by_rank") else self.cells

    def answer_columns(self, options: Mapping[str, Any]) -> tuple[AnswerColumn, ...]:
        """The columns of the answer under `options`."""
        return tuple(cell.answer_column() for cell in self.answer_cells(options))

    def answer_chart(self, options: Mapping[str, Any]) -> Chart | None:
        """The report's chart; by rank, the rank distinguishes bars of equal names."""
        if self.chart is None or not options.get("by_rank") or "bars" not in self.chart.kind:
            return self.chart
        return self.chart._replace(detail=self.rank_cell.header)

    def answer(self, columns: Mapping[str, Any], options: Mapping[str, Any], notes: Sequence[str] = ()) -> Answer:
        """The answer made of `columns`, rounded.

        Args:
            columns: An Arrow or NumPy array per cell, by title (without the unit), all of one length. Sizes are bytes,
                throughputs bytes per second, percentages 0 to 100.
            options: The options of the report.
            notes: What a reader must know.
        """
        cells = self.answer_cells(options)
        arrays = [_cells(cell, columns[cell.title], exact_sizes=self.exact_sizes) for cell in cells]
        fields = [cell.field().with_type(array.type) for cell, array in zip(cells, arrays, strict=True)]
        if self.exact_sizes:
            fields = [f.remove_metadata() if c.kind in ("size", "throughput") else f for c, f in zip(cells, fields, strict=True)]
        table = pa.table(arrays, schema=pa.schema(fields))
        return Answer(table, tuple(cell.answer_column() for cell in cells), tuple(notes))

    def as_made(self, tables: Generator[Any, None, None], options: Mapping[str, Any]) -> Answer:
        """The answer with the rows of `tables`, each the table of an `answer`."""
        empty = self.answer({cell.title: [] for cell in self.answer_cells(options)}, options)
        return empty._replace(stream=RowStream(tables, empty.table))


class SumReport(StatsReport, SqlRecipe):
    """A report with a row of statistics per name.

    A subclass has the statement that selects a rank's events (`events`) and the names of their keys (`labels`); the rest is the
    same in all.

    Attributes:
        keys: The columns of `events` except `value`.
        events: A SELECT of `rank`, `keys` and `value` (whole ns or bytes), a row for each event; see `SqlRecipe`.
        labels: An expression over the keys for the title of each of `named` and for each of `hidden`, with placeholders as in
            `events`; null is an empty text. Keys of equal labels become one row.
        counted: Title of the number of events.
        named: The cells after the statistics.
        hidden: Further labels that keep rows apart and are not printed.
        ties: How rows of equal totals are ordered: `count`, or titles of `named`, ascending.
        sizes: Whether the values are bytes rather than times.
        totaled: Title of their sum; None for `Total Time`, or `Total` of sizes.
    """

    cells: ClassVar[tuple[Cell, ...]]
    keys: ClassVar[tuple[str, ...]]
    events: ClassVar[str]
    labels: ClassVar[Mapping[str, str]]
    counted: ClassVar[str] = "Instances"
    named: ClassVar[tuple[Cell, ...]]
    hidden: ClassVar[tuple[str, ...]] = ()
    ties: ClassVar[tuple[str, ...]]
    sizes: ClassVar[bool] = False
    totaled: ClassVar[str | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Compose the cells from the subclass' words."""
        super().__init_subclass__(**kwargs)
        if hasattr(cls, "named"):
            cls.cells = (*statistics_cells(cls.counted, sizes=cls.sizes, totaled=cls.totaled), *cls.named)
            if "ties" not in vars(cls) and not hasattr(super(cls, cls), "ties"):
                cls.ties = (COUNT, cls.named[-1].title, *(cell.title for cell in cls.named[:-1]))

    def answer_chart(self, options: Mapping[str, Any]) -> Chart | None:
        """The totals of the first names; by rank, how they add up."""
        name, total = self.named[-1].header, next(c.header for c in self.cells if c.title.startswith("Total"))
        if options.get("by_rank"):
            return Chart("stacked_bars", self.rank_cell.header, (total,), name)
        return Chart("bars", name, (total,), detail=self.named[0].header if len(self.named) > 1 else None)

    def distinct(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """The keys that identify values under `options`."""
        return self.keys

    def map_statement(self, options: Mapping[str, Any]) -> str:
        """The distribution of the rank's values by key."""
        return distribution_statement(self.distinct(options), self.events.format_map(self.words(options)))

    def merge_statement(self, options: Mapping[str, Any]) -> str | None:
        """The distribution over all ranks, unless each has its own rows."""
        return None if self.ranks_stand_alone(options) else merged_statement(self.distinct(options))

    def ranks_stand_alone(self, options: Mapping[str, Any]) -> bool:
        """By rank."""
        return bool(options.get("by_rank"))

    def reduce_statement(self, options: Mapping[str, Any]) -> str:
        """The statistics of each name over all ranks, or by rank, the largest total first; with `quartiles` these too."""
        by_rank = bool(options.get("by_rank"))
        words = self.words(options)
        labels = {title: f"coalesce({expression.format_map(words)}, '')" for title, expression in self.labels.items()}
        order = ["total DESC", *(f'"{name}"' for name in self.ties)]
        statistics = statistics_statement(labels, self.distinct(options), by_rank=by_rank, quartiles=bool(options.get("quartiles")))
        return f"{statistics}\nORDER BY {', '.join([RANK, *order] if by_rank else order)}"

    def reduce(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """The statistics of each name over all ranks, the largest total first."""
        by_rank = bool(options.get("by_rank"))
        if not any(part.table.num_rows for part in parts):
            return self.answer({cell.title: [] for cell in self.answer_cells(options)}, options)
        table = self.over_parts(parts, run, options)
        columns = {cell.title: table.column(cell.title) for cell in self.named}
        if by_rank:
            columns[RANK_CELL.title] = table.column(RANK)
        columns.update(statistics_columns(table, self.counted, sizes=self.sizes, totaled=self.totaled))
        if not self.sizes:
            columns["Time"] = shares(table.column("total"), table.column(RANK) if by_rank else None)
        return self.answer(columns, options)


class TraceReport(StatsReport):
    """A report with a row per event, in the order of their starts.

    A subclass says what the rows of one rank are (`rows`).

    Attributes:
        by_call: The tables of launched work, if a row is a call of `api` and the work it launched; the start is the call's.
        order: Title of the column the rows are ordered by; rows with equal starts stay in the order of `rows`, lower ranks first.
        height: Title of the column that a picture shows over it.
        called: Title of the column that a picture has a colour for each value of.
    """

    on_one_clock: ClassVar[bool] = True
    by_call: ClassVar[tuple[str, ...]] = ()
    order: ClassVar[str] = "Start"
    height: ClassVar[str] = "Duration"
    called: ClassVar[str] = "Name"

    def is_event_wise(self, options: Mapping[str, Any]) -> bool:
        """Whether each row comes from one event of `tables` with the row's start, and of `by_call` what it launched.

        Then `rows` holds for any span of time.
        """
        return True

    def answer_chart(self, options: Mapping[str, Any]) -> Chart | None:
        """Each event by when it was and how long it took."""
        header = {cell.title: cell.header for cell in self.cells}
        return Chart("scatter", header[self.order], (header[self.height],), header[self.called])

    def rows(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The rows of one rank: a table with a column per cell, by title; see `answer` for the units."""
        raise NotImplementedError

    def map(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The rows of one rank."""
        return self.rows(rank, options)

    def stream(self, ranks: Sequence[StreamedRank], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """All rows, in the order of their starts, one span of time after the other."""
        return self.as_made(self._spans(ranks, run, options), options)

    def _spans(self, ranks: Sequence[StreamedRank], run: RunFacts, options: Mapping[str, Any]) -> Generator[Any, None, None]:
        def rows(tables: RankTables) -> Any:
            return self.map(tables, options)

        if not self.is_event_wise(options):
            spans = merged_spilled(((rank.rank, rows(rank.whole())) for rank in ranks), self.order)
        elif self.by_call:
            spans = merged_by_call(ranks, self.reads(options), self.by_call, rows, self.order)
        else:
            spans = merged(sliced_ranks(ranks, self.reads(options), rows))
        for parts in spans:
            yield self.reduce(parts, run, options).table

    def reduce(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """All rows, in the order of their starts."""
        tables = [
            with_rank(part, self.rank_cell.title) if options.get("by_rank") else part.table for part in parts if part.table.num_rows
        ]
        if not tables:
            return self.answer({cell.title: [] for cell in self.answer_cells(options)}, options)
        whole = stack(tables).combine_chunks()
        at = np.argsort(whole.column(self.order).to_numpy(), kind="stable")
        whole = whole if np.array_equal(at, np.arange(len(at))) else pc.take(whole, pa.array(at))
        return self.answer({name: whole.column(name) for name in whole.column_names}, options)


def statistics_cells(counted: str, *, sizes: bool = False, totaled: str | None = None) -> tuple[Cell, ...]:
    """The cells of the statistics: shares and times, or sizes, which have no share."""
    whole: CellKind = "size" if sizes else "time"
    mean: CellKind = "size" if sizes else "mean_time"
    title = totaled or ("Total" if sizes else "Total Time")
    total = Cell(title, whole, "Sum of the sizes." if sizes else "Sum of the durations.")
    share = () if sizes else (Cell("Time", "percent", "Share of the sum of Total Time over the rows listed."),)
    return (
        *share,
        total,
        Cell(counted, "int", "How many there were."),
        Cell("Avg", mean, "Mean."),
        Cell("Med", mean, "Median."),
        Cell("Min", whole, "Smallest."),
        Cell("Max", whole, "Largest."),
        Cell("StdDev", mean, "Standard deviation of a sample (n - 1); 0 for one value."),
    )


def statistics_columns(table: Any, counted: str, *, sizes: bool = False, totaled: str | None = None) -> dict[str, Any]:
    """The columns of `statistics_cells` but the share, from what `summarize` gave."""
    return {
        totaled or ("Total" if sizes else "Total Time"): table.column("total"),
        counted: table.column(COUNT),
        "Avg": table.column("mean"),
        "Med": table.column("median"),
        "Min": table.column("min"),
        "Max": table.column("max"),
        "StdDev": table.column("stddev"),
    }


def shares(totals: Any, within: Any = None) -> Any:
    """Each total as a percentage of the sum of all, or of the sum of those with the same `within`; null if that sum is 0."""
    values = np.asarray([float(v) for v in totals.to_pylist()])
    if within is None:
        sums = np.full(len(values), values.sum())
    else:
        codes, _ = group([within])
        sums = np.bincount(codes, weights=values)[codes] if len(codes) else values
    of_all = np.divide(100.0 * values, sums, out=np.zeros_like(values), where=sums != 0)
    return pa.array(of_all, mask=sums == 0)


def stack(tables: Sequence[Any]) -> Any:
    """The rows of all tables with one dictionary; Arrow unifies only dictionaries without null."""
    return pa.concat_tables([without_null_words(table) for table in tables]).unify_dictionaries()


def without_null_words(table: Any) -> Any:
    """The table with null if a word of a dictionary is null."""
    for position, field in enumerate(table.schema):
        column = table.column(position)
        if pa.types.is_dictionary(field.type) and any(chunk.dictionary.null_count for chunk in column.chunks):
            table = table.set_column(position, field.name, pc.dictionary_encode(pc.cast(column, field.type.value_type)))
    return table


def with_rank(part: Part, title: str = RANK) -> Any:
    """The part's table with a leading column of the rank's number."""
    table = part.table
    if title in table.column_names:
        return table
    return table.add_column(0, title, pa.array(np.full(table.num_rows, part.rank, np.int64)))


def round_half_up(values: Any) -> Any:
    """Float64 values rounded to one decimal, halves away from zero as SQL's ROUND does: 1.25 is 1.3."""
    return np.copysign(np.floor(np.abs(values) * 10.0 + 0.5) / 10.0, values)


def round_printed(values: Any, decimals: int) -> Any:
    """Float64 values rounded as printing with this many decimals does: a decimal half follows its binary value."""
    scale = 10.0**decimals
    scaled = values * scale
    rounded = np.rint(scaled) / scale
    near = np.flatnonzero(np.abs(scaled - np.floor(scaled) - 0.5) < 1e-6)
    if len(near):
        distinct, at = np.unique(values[near], return_inverse=True)
        rounded[near] = np.array([round(float(v), decimals) for v in distinct])[at]
    return rounded


def launch_dims(x: Any, y: Any, z: Any) -> Any:
    """`   4    1    1`: the dimensions of a grid or block as nsys prints them, each right-aligned to four places."""
    columns = [x, y, z]
    codes, first = group(columns)
    some = [pc.take(pc.cast(c, pa.int64()), pa.array(first)).to_pylist() for c in columns]
    texts = [None if None in dims else " ".join(f"{d:4d}" for d in dims) for dims in zip(*some, strict=True)]
    return pc.take(pa.array(texts, pa.string()), pa.array(codes))


def _cells(cell: Cell, values: Any, *, exact_sizes: bool = False) -> Any:
    """The values of one column, rounded and typed as its field says; a sum too large for int64 stays a decimal number."""
    field = cell.field()
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    array = values if isinstance(values, pa.Array) else pa.array(values)
    if exact_sizes and cell.kind in ("size", "throughput"):
        return pc.cast(array, pa.int64() if cell.kind == "throughput" else array.type, safe=False)
    if cell.kind == "text" and (pa.types.is_dictionary(array.type) or array.nbytes > _MOST_TEXT):
        return array  # more text than a string array can hold comes as a large one, and stays one
    if cell.kind not in _DECIMALS:
        return array if pa.types.is_decimal(array.type) else pc.cast(array, field.type)
    number = pc.cast(array, pa.float64(), safe=False)  # a whole number beyond 53 bits is rounded
    null = pc.is_null(number).to_numpy(zero_copy_only=False) if number.null_count else None
    exact = pc.fill_null(number, 0.0).to_numpy(zero_copy_only=False)
    rounded = round_printed(exact / 1e6, 3) if cell.kind in ("size", "throughput") else round_half_up(exact)
    return pa.array(rounded, mask=null)
