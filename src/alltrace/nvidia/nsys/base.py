"""What all recipes of `nsys recipe` share: their cells, their filters, their several tables, and the files that ranks go by."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.nvidia.cells import round_half_up
from alltrace.nvidia.filters import FILTERS, PROJECTED, filtered, given_filters
from alltrace.recipes.base import Answer, AnswerColumn, AnswerTable, Option, Part, RankTables, Recipe, RunFacts
from alltrace.recipes.row_stream import RowStream
from alltrace.recipes.sql_recipe import SqlRecipe, id_table

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    _Columns = Mapping[str, Any]

CellKind = Literal[
    "text",
    "word",
    "int",
    "ns",
    "bytes",
    "real",
    "mean_ns",
    "mean_bytes",
    "exact_ns",
    "exact_bytes",
    "percent",
    "mib_per_s",
    "ticks_per_s",
]

_UNITS: dict[str, str] = {
    "ns": "ns", "mean_ns": "ns", "exact_ns": "ns", "bytes": "bytes", "mean_bytes": "bytes", "exact_bytes": "bytes", "percent": "%",
    "mib_per_s": "MiB/s", "ticks_per_s": "ticks/s",
}  # fmt: skip
_ROUNDED = frozenset({"real", "mean_ns", "mean_bytes", "percent", "mib_per_s", "ticks_per_s"})
_ENDINGS = (".gz", ".sqlite", ".nsys-rep", ".qdrep", ".qdstrm", ".json", ".h5", "_pqtdir", "_arwdir")
FILE = "File"


class Cell(NamedTuple):
    """A column of a recipe's table.

    Attributes:
        title: Its name in nsys.
        kind: What its cells are: `text`; `word`, text of which few are distinct, each kept once; `int`; `ns` and `bytes`, whole;
            `real`, `mean_ns`, `mean_bytes`, `percent`, `mib_per_s` and `ticks_per_s`, rounded to one decimal; `exact_ns` and
            `exact_bytes`, fractions that are not rounded.
        doc: What it means.
        half_up: Whether a half in the digit left out is rounded up, as SQL does, and not to an even digit, as pandas does.
    """

    title: str
    kind: CellKind
    doc: str
    half_up: bool = False

    def answer_column(self) -> AnswerColumn:
        """The column as answers describe it."""
        return AnswerColumn(self.title, _UNITS.get(self.kind), self.doc)

    def field(self) -> Any:
        """The `pyarrow.Field` of the column."""
        if self.kind == "text":
            return pa.field(self.title, pa.string())
        if self.kind == "word":
            return pa.field(self.title, pa.dictionary(pa.int32(), pa.string()))
        if self.kind in ("int", "ns", "bytes"):
            return pa.field(self.title, pa.int64())
        return pa.field(self.title, pa.float64(), metadata={"decimals": "1"} if self.kind in _ROUNDED else None)


FILE_CELL = Cell(FILE, "text", "The rank's report; with the rank where several ranks have reports of one name.")
RANK_CELL = Cell("Rank", "int", "Rank.")
FILES = {"files": (FILE_CELL, RANK_CELL)}
"""The table that says which rank goes by which file."""


class NsysRecipe(Recipe):
    """A recipe that nsys has too.

    Attributes:
        own: Its options other than the filters.
        results: The columns of its tables by name, the main one first.
        device: Whether it reads what ran on GPUs, so that projected ranges can filter it.
        projects: Whether it projects ranges on GPU work: then the filters choose among the work, not among calls and ranges.
        filters: The filters that it takes.
    """

    own: ClassVar[tuple[Option, ...]] = ()
    options: ClassVar[tuple[Option, ...]]
    columns: ClassVar[tuple[AnswerColumn, ...]]
    results: ClassVar[Mapping[str, tuple[Cell, ...]]]
    device: ClassVar[bool] = True
    projects: ClassVar[bool] = False
    session_time: ClassVar[bool] = True
    filters: ClassVar[tuple[Option, ...]] = FILTERS
    # a rank's distribution takes less than 0.1 us a row
    worth_processes: ClassVar[int] = 20_000_000

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Compose options and columns from the subclass' words."""
        super().__init_subclass__(**kwargs)
        cls.options = (*cls.own, *cls.filters, *([PROJECTED] if cls.device and cls.filters == FILTERS else []))
        if hasattr(cls, "results"):
            cls.columns = tuple(cell.answer_column() for cell in next(iter(cls.results.values())))

    def reads(self, options: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
        """The tables and columns that are read under `options`, including those of the filters."""
        return given_filters(options).reads(self.tables)

    def lays_together(self, options: Mapping[str, Any]) -> bool:
        """Filters by time are on the run's clock."""
        filters = given_filters(options)
        return super().lays_together(options) or filters.start is not None or filters.end is not None

    def without(self, options: Mapping[str, Any]) -> dict[str, str]:
        """What follows for filters by ranges."""
        filters = given_filters(options)
        nothing = f"nothing passes {filters}"
        named = {"ranges": nothing} if filters.nvtx or filters.projected else {}
        return {**named, "api": nothing} if filters.projected else named

    def map(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """What one rank contributes, of the rows that pass the filters."""
        return self.map_rank(filtered(rank, options, host=not self.projects), options)

    def reduce(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """The tables from all ranks' parts."""
        return self.streamed(parts, run, options).read()

    def streamed(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """The tables from all ranks' parts; a table that comes in pieces is a stream."""
        answer = self.combine([part for part in parts if part.table.num_rows], run, options)
        return with_filters_told(answer, options) if parts else answer

    @abstractmethod
    def map_rank(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """What one rank contributes, as a `pyarrow.Table`; the filters are applied."""

    @abstractmethod
    def combine(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """The answer from the parts that have rows; must accept an empty sequence.

        A table that is a stream looks at the parts as it is read.
        """

    def answer(self, tables: Mapping[str, _Columns | Generator[_Columns, None, None]], notes: Sequence[str] = ()) -> Answer:
        """The answer made of columns by title, for each of `results`; a missing table is empty.

        A table with a row for each event of all ranks comes in pieces, and is a stream.
        """
        made = {}
        for name, cells in self.results.items():
            given = tables.get(name, {})
            made[name] = result_table(cells, given) if isinstance(given, Mapping) else _stream(cells, given)
        (name, main), *others = made.items()
        return Answer(main.table, main.columns, tuple(notes), further=dict(others), name=name, stream=main.stream)


def with_filters_told(answer: Answer, options: Mapping[str, Any]) -> Answer:
    """The answer, with a note if it is empty because nothing passes the filters among the options."""
    filters = given_filters(options)
    if not filters or not all(table.is_empty for table in answer.all_tables().values()):
        return answer
    return answer._replace(notes=(*answer.notes, f"nothing passes {filters}, so the answer is empty"))


def filtered_input(options: Mapping[str, Any]) -> str | None:
    """Which rows pass the filters among the options; None if there are none. A statement has no filters."""
    filters = given_filters(options)
    return f"which rows pass {filters}" if filters else None


class SqlNsysRecipe(NsysRecipe, SqlRecipe):
    """A recipe of nsys with a map that is one SELECT over the rows of a rank's tables that pass the filters."""

    def rank_tables(self, rank: RankTables, options: Mapping[str, Any]) -> dict[str, Any]:
        """The tables that the map reads, without those that only filters read."""
        return {table: id_table(rank, table, columns) for table, columns in self.tables.items()}

    def map_rank(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The rows of the map's statement."""
        return SqlRecipe.map(self, rank, options)

    def reduce_statement(self, options: Mapping[str, Any]) -> str:
        """The rows of all ranks."""
        return "SELECT * FROM parts"

    def computed_input(self, options: Mapping[str, Any]) -> str | None:
        """The projected ranges, if it is about these, and which rows pass the filters."""
        return "the GPU work of each NVTX range" if self.projects else filtered_input(options)


def result_table(cells: Sequence[Cell], columns: Mapping[str, Any]) -> AnswerTable:
    """A table of `cells`, rounded and typed.

    Args:
        cells: Its columns.
        columns: For each cell an Arrow or NumPy array by title, all of one length; none for an empty table.
    """
    fields = [cell.field() for cell in cells]
    arrays = [
        _typed(cell, columns.get(cell.title, [])) if columns else pa.array([], f.type)
        for cell, f in zip(cells, fields, strict=True)
    ]
    schema = pa.schema([f.with_type(a.type) for f, a in zip(fields, arrays, strict=True)])
    return AnswerTable(pa.table(arrays, schema=schema), tuple(cell.answer_column() for cell in cells))


def _stream(cells: Sequence[Cell], pieces: Generator[_Columns, None, None]) -> AnswerTable:
    empty = result_table(cells, {})
    return empty._replace(stream=RowStream(_made(cells, pieces), empty.table))


def _made(cells: Sequence[Cell], pieces: Generator[_Columns, None, None]) -> Generator[Any, None, None]:
    with closing(pieces):
        for piece in pieces:
            yield result_table(cells, piece).table


def _typed(cell: Cell, values: Any) -> Any:
    kind = cell.field().type
    if isinstance(values, pa.ChunkedArray) and values.type == kind and cell.kind not in _ROUNDED:
        return values
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if not isinstance(array, pa.Array):
        array = pa.array(array)
    if pa.types.is_dictionary(array.type) or (pa.types.is_decimal(array.type) and cell.kind not in _ROUNDED):
        if cell.kind == "word" or not pa.types.is_dictionary(array.type):
            return array
        return pc.cast(array, array.type.value_type)
    array = pc.cast(array, kind)
    if cell.kind not in _ROUNDED:
        return array
    null = pc.is_null(array).to_numpy(zero_copy_only=False) if array.null_count else None
    number = (pc.fill_null(array, 0.0) if array.null_count else array).to_numpy(zero_copy_only=False)
    return pa.array(round_half_up(number) if cell.half_up else np.round(number, 1), mask=null)


def files(run: RunFacts) -> dict[int, str]:
    """The name of each rank's report, without folder and ending; different for each rank."""
    stems = {r.rank: ", ".join(_stem(run.manifest.reports[i].path) for i in r.reports) for r in run.ranks}
    known = Counter(stems.values())
    return {rank: stem if known[stem] == 1 else f"{stem} rank {rank}" for rank, stem in stems.items()}


def _stem(path: Any) -> str:
    # a path may hold bytes that are not UTF-8
    name = PurePosixPath(str(path).encode("utf-8", "backslashreplace").decode()).name
    while ending := next((e for e in _ENDINGS if name.endswith(e) and name != e), None):
        name = name[: -len(ending)]
    return name


def file_columns(parts: Sequence[Part], run: RunFacts) -> dict[str, Any]:
    """The columns of the table `files`."""
    labels = files(run)
    ranks = [part.rank for part in parts]
    return {"Rank": ranks, FILE: [labels[r] for r in ranks]} if ranks else {}
