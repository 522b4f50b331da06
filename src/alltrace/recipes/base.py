"""What a recipe is: a question over all ranks, as a map over one rank's tables and a reduce over the small tables it returns.

A recipe never prints, plots or opens a file: the engine hands it tables, the faces show its answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias

from alltrace.recipes.part import Part
from alltrace.run.rank_tables import RankTables
from alltrace.trace.columns import Column, Columns, table_of
from alltrace.trace.options import Option, OptionValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from decimal import Decimal
    from typing import Self

    import pyarrow as pa

    from alltrace.align.aligned import Aligned
    from alltrace.recipes.row_stream import RowStream, StreamedRank
    from alltrace.run.clock import ClockMap
    from alltrace.run.manifest import Manifest, Rank


__all__ = [
    "Answer",
    "AnswerTable",
    "CellValue",
    "Chart",
    "ChartKind",
    "Column",
    "Option",
    "OptionValue",
    "Part",
    "RankTables",
    "Recipe",
    "RunFacts",
    "alignment_of",
]

CellValue: TypeAlias = "int | float | str | bool | bytes | Decimal | datetime | list[CellValue] | dict[str, CellValue] | None"
"""The value of a cell of an answer, as a Python value."""
ChartKind = Literal["stacked_bars", "bars", "box", "lines", "heatmap", "histogram", "scatter", "roofline"]


class Chart(NamedTuple):
    """How to draw an answer: the kind of picture and the columns on it.

    | kind | x | y | group |
    |---|---|---|---|
    | stacked_bars, bars | one bar per value | lengths, a colour each; with `group` one column | a colour per value |
    | box | one box per value | least, first quartile, median, third quartile, greatest | |
    | lines | a number | values, a line each; with `group` one column | a line per value |
    | scatter | a number | one column | a colour per value |
    | histogram | where each class begins, ascending | how many, one column | a colour per value |
    | heatmap | start of each time bin | values; the first is drawn | a row of cells per value |
    | roofline | work per byte | rate of work, one column | a colour per value; ceilings are in the answer's `extra` |

    Attributes:
        kind: The kind of picture.
        x: Column across.
        y: Columns up.
        group: Column that divides the rows, or None.
        detail: Column that distinguishes rows with equal `x` (a device of a rank), and is shown with them; or None.
        title: The title above the chart; None for the name of the question.
        log_x: Whether the axis across is logarithmic; what is not above 0 is then not drawn.
        log_y: The same of the axis up.
        where: A column and its value in the rows that are drawn, None for null; None to draw all rows.
    """

    kind: ChartKind
    x: str
    y: tuple[str, ...]
    group: str | None = None
    detail: str | None = None
    title: str | None = None
    log_x: bool = False
    log_y: bool = False
    where: tuple[str, str | None] | None = None


class AnswerTable(NamedTuple):
    """A table of an answer.

    Attributes:
        table: A `pyarrow.Table` with the columns of `columns`, in that order.
        columns: What the columns mean.
        stream: Its rows as they are made, if the answer was requested as a stream; `table` is then empty. None otherwise.
    """

    table: pa.Table
    columns: Columns
    stream: RowStream | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it has no rows."""
        return self.table.num_rows == 0 if self.stream is None else self.stream.is_empty


class Answer(NamedTuple):
    """The answer to a question.

    Attributes:
        table: A `pyarrow.Table` with the columns of `columns`, in that order.
        columns: What the columns mean.
        notes: What a reader must know: ranks left out, what could not be judged and why.
        extra: Further small lists of rows, by name, next to `rows` in JSON (such as `clocks` of `info`).
        chart: How to draw it, or None.
        further: Further tables, by name; each can be the answer (`only`), and each becomes a file if a folder is written.
        name: The name of the main table among them.
        stream: The rows of the main table as they are made, if the answer was requested as a stream; `table` is then empty.
    """

    table: pa.Table
    columns: Columns
    notes: tuple[str, ...] = ()
    extra: Mapping[str, Sequence[Mapping[str, Any]]] = {}
    chart: Chart | None = None
    further: Mapping[str, AnswerTable] = {}
    name: str = "answer"
    stream: RowStream | None = None

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], columns: Columns, *further: Any, **named: Any) -> Self:
        """The answer with these rows; what is `further` are the other attributes, in their order."""
        return cls(table_of(rows, columns), columns, *further, **named)

    def all_tables(self) -> dict[str, AnswerTable]:
        """All tables by name, the main one first."""
        return {self.name: AnswerTable(self.table, self.columns, self.stream), **self.further}

    def read(self) -> Answer:
        """The same answer with the rows of its streams in its tables."""
        tables = {
            name: t if t.stream is None else AnswerTable(t.stream.read_all(), t.columns) for name, t in self.all_tables().items()
        }
        main = tables.pop(self.name)
        return self._replace(table=main.table, stream=None, further=tables)

    def close(self) -> None:
        """Make no more rows of its streams, and remove their temporary files."""
        for table in self.all_tables().values():
            if table.stream is not None:
                table.stream.close()

    def only(self, name: str) -> Answer:
        """The same answer with the table called `name` alone.

        Raises:
            UsageError: The table does not exist.
        """
        from alltrace.trace.errors import UsageError

        tables = self.all_tables()
        if name not in tables:
            raise UsageError.unknown("table of the answer", name, tables)
        return Answer(tables[name].table, tables[name].columns, self.notes, name=name, stream=tables[name].stream)


class RunFacts(Protocol):
    """Facts about the run that `reduce` may use in addition to the parts."""

    @property
    def alignment(self) -> Aligned | None:
        """The alignment, if it was made for the question; see also `alignment_of`."""
        ...

    @property
    def manifest(self) -> Manifest:
        """The facts of the run."""
        ...

    @property
    def ranks(self) -> Sequence[Rank]:
        """The ranks, by number."""
        ...

    def clock(self, record: Rank) -> ClockMap:
        """The map from the time in the files of a rank to the clock of the answer."""
        ...

    @property
    def span_ns(self) -> tuple[int, int]:
        """First start and last end of any event of any rank, aligned."""
        ...

    def texts(self, ids: pa.Array) -> pa.Array:
        """The strings of an Arrow array of name ids, as a string array; null if the id is."""
        ...

    def name_table(self) -> pa.Table:
        """All interned strings of the run, as a `pyarrow.Table` (`id`, `value`) sorted by id."""
        ...


def alignment_of(run: RunFacts) -> Aligned:
    """The alignment of a run; it exists if the recipe is `aligned`, since the alignment is then computed first."""
    if run.alignment is None:
        raise RuntimeError("the recipe does not say that it is `aligned`")
    return run.alignment


class Recipe(ABC):
    """One question. Its docstring is its documentation; the first line is its help.

    Attributes:
        name: The name to run it by.
        tables: The canonical tables and columns that `map` reads, all of which must have been imported.
        requires: Of these, the tables that a rank must have; a tuple in it means any one of its tables. Empty
            for any one of `tables`. A rank without them is left out, with a note.
        options: Its options.
        columns: The columns of its answer; a recipe with columns that depend on options overrides `answer_columns`.
        chart: How to draw its answer, or None; a recipe with a chart that depends on options overrides `answer_chart`.
        aligned: Whether it needs what is derived over all ranks (`alltrace.align`): aligned clocks, `collectives`, matched
            instances, steps. It is made first; `reduce` finds it as `run.alignment`, `map` by `table("collectives")` and `shared`.
        on_one_clock: Whether it compares times of several hosts, or with `host_samples` those of several reports: such a run
            is aligned first, as for `aligned`, and others are used as they are.
        host_samples: Whether samples of GPU metrics in any report of a rank's host will do for `requires` and `tables`.
        rereads: Whether `map` reads a table more than once; each is then read once, with all columns that `reads` names.
        keeps: Whether the answer for a whole run is a table alone that is kept with the run (`execution.kept_findings`).
        kept_parts: Names of the parts that `map` keeps with the run (`execution.kept_parts`); once they are there, it reads nothing
            else. A recipe with such parts also `rereads`.
        worth_processes: Rows from which it pays off to run ranks in processes; each takes half a second of CPU time to start.
        windowed: Whether it can be limited to some steps; the tables that it then sees are cut down to them.
        session_time: Whether its times count from the start of the first report's session, as in the profiler's own tools,
            and not from the run's first event.
    """

    name: ClassVar[str]
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    requires: ClassVar[tuple[str | tuple[str, ...], ...]] = ()
    options: ClassVar[tuple[Option, ...]] = ()
    columns: ClassVar[Columns] = ()
    chart: ClassVar[Chart | None] = None
    aligned: ClassVar[bool] = False
    on_one_clock: ClassVar[bool] = False
    host_samples: ClassVar[bool] = False
    windowed: ClassVar[bool] = True
    session_time: ClassVar[bool] = False
    rereads: ClassVar[bool] = False
    keeps: ClassVar[bool] = False
    kept_parts: ClassVar[tuple[str, ...]] = ()
    worth_processes: ClassVar[int] = 4_000_000

    def with_defaults(self, values: Mapping[str, Any]) -> Self:
        """The same recipe with other defaults for some of its options."""
        recipe = copy(self)
        vars(recipe)["options"] = tuple(o._replace(default=values.get(o.name, o.default)) for o in self.options)
        return recipe

    def answer_columns(self, options: Mapping[str, Any]) -> Columns:  # noqa: ARG002
        """The columns of the answer under `options`."""
        return self.columns

    def answer_chart(self, options: Mapping[str, Any]) -> Chart | None:  # noqa: ARG002
        """How to draw the answer under `options`; None if no picture fits."""
        return self.chart

    def reads(self, options: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:  # noqa: ARG002
        """The tables and columns that `map` reads under `options`."""
        return dict(self.tables)

    def needs(self, options: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:  # noqa: ARG002
        """The tables that a rank must have under `options`: of each group any one."""
        if not self.requires:
            return (tuple(self.tables),) if self.tables else ()
        return tuple((t,) if isinstance(t, str) else t for t in self.requires)

    def without(self, options: Mapping[str, Any]) -> dict[str, str]:  # noqa: ARG002
        """Tables that a rank may lack under `options`, with a note: for each table, what follows if it is missing."""
        return {}

    def lays_together(self, options: Mapping[str, Any]) -> bool:  # noqa: ARG002
        """Whether it needs one clock under `options` (see `on_one_clock`)."""
        return self.on_one_clock

    def prepared(self, options: Mapping[str, Any], run: RunFacts) -> Mapping[str, Any]:  # noqa: ARG002
        """The options as `map` and `reduce` get them: with what `map` must know of the run, such as bins equal on all ranks."""
        return options

    def shown_statement(self, options: Mapping[str, Any]) -> str:  # noqa: ARG002
        """The question as one SELECT over all ranks, for `alltrace sql`.

        Raises:
            UsageError: It is not one that SQL answers.
        """
        from alltrace.trace.errors import UsageError

        raise UsageError(f"{self.name} is computed by compiled loops, not SQL; leave out --show-sql")

    def stream(
        self,
        ranks: Sequence[StreamedRank],  # noqa: ARG002
        run: RunFacts,  # noqa: ARG002
        options: Mapping[str, Any],  # noqa: ARG002
    ) -> Answer | None:
        """The answer with its rows as they are made, equal to those of `reduce`; None if the answer cannot be streamed."""
        return None

    @abstractmethod
    def map(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """What one rank contributes, as a `pyarrow.Table`; runs in any process."""

    @abstractmethod
    def reduce(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """The answer from all ranks' parts, which come sorted by rank; must accept an empty sequence."""

    def streamed(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """The answer of `reduce`; large tables may be streams, and `parts` must then last until these are read or closed."""
        return self.reduce(parts, run, options)
