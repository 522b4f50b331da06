"""What a question is: data, a function over a rank's tables, and one over the small tables of all.

A question never prints, plots or opens a file: the engine hands it tables, the faces show its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from alltrace.recipes.part import Part
from alltrace.trace.columns import Column, Columns, table_of
from alltrace.trace.options import Option, OptionValue

if TYPE_CHECKING:
    from datetime import datetime
    from decimal import Decimal
    from typing import Self

    import pyarrow as pa

    from alltrace.align.aligned import Aligned
    from alltrace.recipes.row_stream import RowStream, StreamedRank
    from alltrace.run.clock import ClockMap
    from alltrace.run.manifest import Manifest, RankRecord
    from alltrace.run.members import Members
    from alltrace.run.rank import Rank


__all__ = [
    "Answer", "AnswerTable", "CellValue", "Chart", "ChartKind", "Column", "Option", "OptionValue", "Part", "Question",
    "RunFacts", "View", "alignment_of",
]  # fmt: skip

CellValue: TypeAlias = (
    "int | float | str | bool | bytes | Decimal | datetime | list[CellValue] | dict[str, CellValue] | None"
)
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
    """

    kind: ChartKind  # the kind of picture
    x: str  # column across
    y: tuple[str, ...]  # columns up
    group: str | None = None  # column that divides the rows, or None
    # column that distinguishes rows with equal `x` (a device of a rank), and is shown with them; or None
    detail: str | None = None
    title: str | None = None  # the title above the chart; None for the name of the question
    log_x: bool = False  # whether the axis across is logarithmic; what is not above 0 is then not drawn
    log_y: bool = False  # the same of the axis up
    # a column and its value in the rows that are drawn, None for null; None to draw all rows
    where: tuple[str, str | None] | None = None


class View(NamedTuple):
    """A question about logs or reports that are read without a run."""

    columns: Columns
    answer: Callable[..., Answer]
    chart: Chart | None = None


class AnswerTable(NamedTuple):
    """A table of an answer."""

    table: pa.Table  # a `pyarrow.Table` with the columns of `columns`, in that order
    columns: Columns  # what the columns mean
    # its rows as they are made, if the answer was requested as a stream; `table` is then empty. None otherwise
    stream: RowStream | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it has no rows."""
        return self.table.num_rows == 0 if self.stream is None else self.stream.is_empty


class Answer(NamedTuple):
    """The answer to a question."""

    table: pa.Table  # a `pyarrow.Table` with the columns of `columns`, in that order
    columns: Columns  # what the columns mean
    notes: tuple[str, ...] = ()  # what a reader must know: ranks left out, what could not be judged and why
    # further small lists of rows, by name, next to `rows` in JSON (such as `clocks` of `info`)
    extra: Mapping[str, Sequence[Mapping[str, Any]]] = {}
    chart: Chart | None = None  # how to draw it, or None
    # further tables, by name; each can be the answer (`only`), and each becomes a file if a folder is written
    further: Mapping[str, AnswerTable] = {}
    name: str = "answer"  # the name of the main table among them
    # the rows of the main table as they are made, if the answer was requested as a stream; `table` is then empty
    stream: RowStream | None = None
    verdict: str | None = None  # the answer in a sentence or two, or None

    @classmethod
    def of(
        cls,
        rows: Sequence[Mapping[str, Any]],
        columns: Columns,
        notes: tuple[str, ...] = (),
        extra: Mapping[str, Sequence[Mapping[str, Any]]] = MappingProxyType({}),
        chart: Chart | None = None,
    ) -> Self:
        """The answer with these rows; for the other arguments see the class."""
        return cls(table_of(rows, columns), columns, notes, extra, chart)

    def all_tables(self) -> dict[str, AnswerTable]:
        """All tables by name, the main one first."""
        return {self.name: AnswerTable(self.table, self.columns, self.stream), **self.further}

    def read(self) -> Answer:
        """The same answer with the rows of its streams in its tables."""
        tables = {
            name: t if t.stream is None else AnswerTable(t.stream.read_all(), t.columns)
            for name, t in self.all_tables().items()
        }
        main = tables.pop(self.name)
        return self._replace(table=main.table, stream=None, further=tables)

    def with_notes(self, *notes: str) -> Answer:
        """The same answer with more notes."""
        return self._replace(notes=(*self.notes, *notes))

    def close(self) -> None:
        """Make no more rows of its streams, and remove their temporary files."""
        for table in self.all_tables().values():
            if table.stream is not None:
                table.stream.close()

    def only(self, name: str) -> Answer:
        """The same answer with the table called `name` alone. Raises `UsageError`: the table does not exist."""
        from alltrace.trace.errors import UsageError

        tables = self.all_tables()
        if name not in tables:
            raise UsageError.unknown("table of the answer", name, tables)
        return Answer(tables[name].table, tables[name].columns, self.notes, name=name, stream=tables[name].stream)


class RunFacts(Protocol):
    """Facts about the run that `merge` may use in addition to the parts."""

    @property
    def alignment(self) -> Aligned | None:
        """The alignment, if it was made for the question; see also `alignment_of`."""

    @property
    def manifest(self) -> Manifest:
        """The facts of the run."""

    @property
    def ranks(self) -> Sequence[RankRecord]:
        """The ranks, by number."""

    @property
    def members(self) -> Members | None:
        """Which device of which process each rank is; None if ranks are processes."""

    def clock(self, record: RankRecord) -> ClockMap:
        """The map from the time in the files of a rank to the clock of the answer."""

    @property
    def span_ns(self) -> tuple[int, int]:
        """First start and last end of any event of any rank, aligned."""

    def texts(self, ids: pa.Array) -> pa.Array:
        """The strings of an Arrow array of name ids, as a string array; null if the id is."""

    def name_table(self) -> pa.Table:
        """All interned strings of the run, as a `pyarrow.Table` (`id`, `value`) sorted by id."""


def alignment_of(run: RunFacts) -> Aligned:
    """The alignment of a run; it exists if the recipe is `aligned`, since the alignment is then computed first."""
    if run.alignment is None:
        raise RuntimeError("the recipe does not say that it is `aligned`")
    return run.alignment


Options: TypeAlias = Mapping[str, Any]
Reads: TypeAlias = Mapping[str, tuple[str, ...]]
Needs: TypeAlias = tuple[str | tuple[str, ...], ...]
Clock = Literal["own", "one", "aligned"]
_T = TypeVar("_T")
Of: TypeAlias = _T | Callable[[Options], _T]


class Shown(Protocol):
    """The statements of a question (`alltrace.recipes.sql_recipe.Statements`)."""

    def shown(self, name: str, options: Options) -> str:
        """One statement over all ranks that computes the answer of the question called `name`."""


@dataclass(frozen=True, eq=False)
class Question:
    """A question over all ranks: data, a function over one rank's tables, and one over what all ranks contribute.

    What is `Of` something can be a function of the options.
    """

    name: str  # the name to ask it by
    doc: str | None  # its documentation; the first line is its help
    columns: Of[Columns]  # the columns of its answer
    map: Callable[[Rank, Options], Any]  # what one rank contributes, usually a `pyarrow.Table`; runs in any process
    # the answer from all ranks' parts, which come sorted by rank; accepts an empty sequence
    merge: Callable[[Sequence[Part], RunFacts, Options], Answer]
    # the canonical tables and columns that `map` reads, all of which must have been imported
    tables: Reads = field(default_factory=dict)
    reading: Callable[[Options], Reads] | None = None  # those that it reads under some options, if they differ
    # of these, the tables that a rank must have; a tuple in it means any one of its tables. Empty for any one of
    # `tables`. A rank without them is left out, with a note
    requires: Of[Needs] = ()
    options: tuple[Option, ...] = ()  # its options
    chart: Of[Chart | None] = None  # how to draw its answer, or None
    # `aligned` if it needs what is derived over all ranks (`alltrace.align`): aligned clocks, `collectives`, matched
    # instances, steps; `merge` finds it as `run.alignment`, `map` by `table("collectives")` and `shared`. `one` if it
    # compares times of several hosts, or with `host_samples` of several reports: such a run is aligned first
    clock: Of[Clock] = "own"
    # adds to the options what `map` must know of the run, such as bins equal on all ranks
    prepare: Callable[[Options, RunFacts], Options] | None = None
    sql: Shown | None = None  # its statements, if it has some
    # what `map` returns for several ranks, one below the other, with the column `rank`: quicker than one by one; or
    # fewer rows of which `merge` makes the same. None in place of a function or a table if they must be asked alone
    map_ranks: Callable[[Sequence[Rank], Options], pa.Table | None] | None = None
    # whether samples of GPU metrics in any report of a rank's host will do for `requires` and `tables`
    host_samples: bool = False
    # whether it judges the work of a rank's host where nothing ran on a device (`alltrace.run.host_work`)
    of_hosts: bool = False
    # whether ranks are devices where processes have several (`alltrace.align.devices`): it is asked of the run by
    # devices. In its answer, columns of ranks have processes again, `device` and `devices` tell the devices, and
    # sentences name them
    of_devices: Of[bool] = False
    windowed: bool = True  # whether it can be limited to some steps; the tables that it then sees are cut down to them
    # whether its times count from the start of the first report's session, as in the profiler's own tools, and not from
    # the run's first event
    session_time: bool = False
    # whether the answer for a whole run is a table alone that is kept with the run (`execution.kept_findings`)
    keeps: bool = False
    # names of the parts that `map` keeps with the run (`execution.kept_parts`); once they are there, it reads nothing
    # else. Otherwise each table is read once, with all columns that `tables` names. Its `clock` must be `aligned`
    kept_parts: tuple[str, ...] = ()
    # names of columns that say what a row is about and what the answer is, the most important first: a table always
    # shows the first three that the answer has, and the others rather than those that are not named
    important: tuple[str, ...] = ()
    # rows from which it pays off to run ranks in processes; each takes half a second of CPU time to start
    worth_processes: int = 4_000_000

    def __post_init__(self) -> None:
        """Raises `TypeError`: it has parts to keep, but is not asked of an aligned run."""
        if self.kept_parts and self.clock != "aligned":
            raise TypeError(
                f'recipe {self.name} has kept_parts, which are kept for aligned runs only; expected clock="aligned"'
            )

    @property
    def statements(self) -> Shown | None:
        """Its statements; None if it has none."""
        return self.sql

    def with_defaults(self, values: Options) -> Self:
        """The same question with other defaults for some of its options."""
        other = object.__new__(type(self))
        vars(other).update(
            vars(self), options=tuple(o._replace(default=values.get(o.name, o.default)) for o in self.options)
        )
        return other

    def formerly(self, name: str, values: Options) -> Question:
        """The question under a former name, with the defaults it had then; a note says what it is called now."""
        words = " ".join([self.name, *(w for o in self.options if o.name in values for w in o.words(values[o.name]))])
        note = f"{name} is now `alltrace recipe {words}`; the old name answers in 0.3 and 0.4"
        return replace(self.with_defaults(values), name=name, merge=partial(_merged_with_note, self.merge, note))

    def option_sets(self) -> Iterator[dict[str, Any]]:
        """The defaults of its options, then the same with one option that is a flag or has choices set otherwise."""
        defaults = {option.name: option.default for option in self.options}
        yield defaults
        for option in self.options:
            for value in option.choices or ((False, True) if option.type is bool else ()):
                if value != option.default:
                    yield {**defaults, option.name: value}

    def answer_columns(self, options: Options) -> Columns:
        """The columns of the answer under `options`."""
        return of(self.columns, options)

    def answer_chart(self, options: Options) -> Chart | None:
        """How to draw the answer under `options`; None if no picture fits."""
        return of(self.chart, options)

    def reads(self, options: Options) -> dict[str, tuple[str, ...]]:
        """The tables and columns that `map` reads under `options`."""
        return dict(self.tables if self.reading is None else self.reading(options))

    def needs(self, options: Options) -> tuple[tuple[str, ...], ...]:
        """The tables that a rank must have under `options`: of each group any one."""
        requires = of(self.requires, options)
        if not requires and not callable(self.requires):
            return (tuple(self.tables),) if self.tables else ()
        return tuple((t,) if isinstance(t, str) else t for t in requires)

    def prepared(self, options: Options, run: RunFacts) -> Options:
        """The options as `map` and `merge` get them."""
        return options if self.prepare is None else self.prepare(options, run)

    def clock_for(self, options: Options) -> Clock:
        """Which clock it needs under `options`."""
        return of(self.clock, options)

    def without(self, options: Options) -> dict[str, str]:  # noqa: ARG002
        """Tables that a rank may lack under `options`, with a note: for each table, what follows if it is missing."""
        return {}

    def shown_statement(self, options: Options) -> str:
        """The question as one SELECT over all ranks, for `alltrace sql`. Raises `UsageError`: it has no such one."""
        if self.statements is None:
            from alltrace.trace.errors import UsageError

            raise UsageError(f"{self.name} is computed by compiled loops, not SQL; leave out --show-sql")
        return self.statements.shown(self.name, options)

    def stream(self, ranks: Sequence[StreamedRank], run: RunFacts, options: Options) -> Answer | None:  # noqa: ARG002
        """The answer with its rows as they are made, equal to those of `merge`; None if it cannot be streamed."""
        return None

    def streamed(self, parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
        """The answer of `merge`, perhaps of streams: `parts` must then last until these are read or closed."""
        return self.merge(parts, run, options)


def of(value: Of[_T], options: Options) -> _T:
    """What a value is under `options`."""
    return value(options) if callable(value) else value


def _merged_with_note(
    merge: Callable[[Sequence[Part], RunFacts, Options], Answer],
    note: str,
    parts: Sequence[Part],
    run: RunFacts,
    options: Options,
) -> Answer:
    answer = merge(parts, run, options)
    return answer._replace(notes=(note, *answer.notes))


def AnswerColumn(name: str, unit: str | None, doc: str) -> Column:  # noqa: N802  packages call it so
    """A column of an answer: its name, its unit (`ns`, `bytes`, `%`, ...) or None, and what it means."""
    return Column(name, "any", unit, doc)


class Recipe(Question):
    """A question of a package written for 0.2: a class with `map` and `reduce`. It answers for two releases."""

    aligned: ClassVar[bool] = False
    on_one_clock: ClassVar[bool] = False

    def __init__(self) -> None:
        vars(self)["doc"] = type(self).__doc__

    def lays_together(self, options: Options) -> bool:  # noqa: ARG002
        """Whether it needs one clock under `options`."""
        return self.on_one_clock

    def clock_for(self, options: Options) -> Clock:
        """Which clock it needs under `options`."""
        return "aligned" if self.aligned else "one" if self.lays_together(options) else "own"

    def reduce(self, parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
        """The answer from all ranks' parts, which come sorted by rank; must accept an empty sequence."""
        raise NotImplementedError

    def merge(self, parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
        """The answer of `reduce`."""
        return self.reduce(parts, run, options)
