"""What the recipes of `nsys recipe` share: their filters, their several tables, and the files that ranks go by."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from pathlib import PurePosixPath
from typing import Any, ClassVar

import pyarrow as pa

from alltrace.nvidia.cells import IMPORTANT, RANK_CELL, Cell, Columns, cell_table, empty_table
from alltrace.nvidia.filters import FILTERS, PROJECTED, filtered, given_filters
from alltrace.nvidia.ranges import projected_table
from alltrace.recipes.base import Answer, AnswerTable, Clock, Of, Option, Options, Part, Question, RunFacts
from alltrace.recipes.row_stream import RowStream
from alltrace.recipes.sql_recipe import Statements, id_table
from alltrace.run.rank import Rank

Results = Mapping[str, tuple[Cell, ...]]

_ENDINGS = (".gz", ".sqlite", ".nsys-rep", ".qdrep", ".qdstrm", ".json", ".h5", "_pqtdir", "_arwdir")
FILE = "File"
FILE_CELL = Cell(FILE, "text", "The rank's report; with the rank where several ranks have reports of one name.")
FILES = {"files": (FILE_CELL, RANK_CELL)}  # the table that says which rank goes by which file


class NsysRecipe(Question):
    """A recipe that nsys has too: `results` are the columns of its tables by name, the main one first.

    `own` are its options other than the `filters`. `device` is whether it reads what ran on GPUs, so that projected
    ranges can filter it, `projects` whether it projects ranges on GPU work: then the filters choose among the work, not
    among calls and ranges.
    """

    own: ClassVar[tuple[Option, ...]] = ()
    results: ClassVar[Results]
    device: ClassVar[bool] = True
    projects: ClassVar[bool] = False
    session_time = True
    important = IMPORTANT
    filters: ClassVar[tuple[Option, ...]] = FILTERS
    # a rank's distribution takes less than 0.1 us a row
    worth_processes = 20_000_000

    def __init__(self, name: str | None = None, doc: str | None = None, **facts: Any) -> None:
        """The recipe of that name; `facts` are attributes of it. A subclass that is one recipe states them itself."""
        vars(self).update({"name": name or self.name, "doc": doc if name else type(self).__doc__}, **facts)
        filters = (*self.filters, *([PROJECTED] if self.device and self.filters == FILTERS else []))
        columns = tuple(cell.answer_column() for cell in next(iter(self.results.values())))
        vars(self).update(options=(*self.own, *filters), columns=columns)

    def reads(self, options: Options) -> dict[str, tuple[str, ...]]:
        return given_filters(options).reads(self.tables)

    def clock_for(self, options: Options) -> Clock:
        filters = given_filters(options)
        clock = super().clock_for(options)
        return "one" if clock == "own" and (filters.start is not None or filters.end is not None) else clock

    def without(self, options: Options) -> dict[str, str]:
        filters = given_filters(options)
        nothing = f"nothing passes {filters}"
        named = {"ranges": nothing} if filters.nvtx or filters.projected else {}
        return {**named, "api": nothing} if filters.projected else named

    def map(self, rank: Rank, options: Options) -> Any:
        return self.map_rank(filtered(rank, options, host=not self.projects), options)

    def merge(self, parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
        return self.streamed(parts, run, options).read()

    def streamed(self, parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
        answer = self.combine([part for part in parts if part.table.num_rows], run, options)
        return with_filter_note(answer, options) if parts else answer

    @abstractmethod
    def map_rank(self, rank: Rank, options: Options) -> Any:
        """What one rank contributes, as a `pyarrow.Table`; the filters are applied."""

    @abstractmethod
    def combine(self, parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
        """The answer from the parts that have rows; a table that is a stream looks at the parts as it is read."""

    def answer(
        self, tables: Mapping[str, Columns | Generator[Columns, None, None]], notes: Sequence[str] = ()
    ) -> Answer:
        """The answer made of columns by title, for each of `results`; a missing table is empty."""
        # a table with a row for each event of all ranks comes in pieces, and is a stream.
        results = {name: _result(cells, tables.get(name) or {}) for name, cells in self.results.items()}
        (name, main), *others = results.items()
        return Answer(main.table, main.columns, tuple(notes), further=dict(others), name=name, stream=main.stream)


def _result(cells: Sequence[Cell], columns: Columns | Generator[Columns, None, None]) -> AnswerTable:
    if isinstance(columns, Mapping):
        return cell_table(cells, columns) if columns else empty_table(cells)

    def rows() -> Generator[Any, None, None]:
        with closing(columns):
            for piece in columns:
                yield cell_table(cells, piece).table

    empty = empty_table(cells)
    return empty._replace(stream=RowStream(rows(), empty.table))


def with_filter_note(answer: Answer, options: Options) -> Answer:
    """The answer, with a note if it is empty because nothing passes the filters among the options."""
    filters = given_filters(options)
    if not filters or not all(table.is_empty for table in answer.all_tables().values()):
        return answer
    return answer._replace(notes=(*answer.notes, f"nothing passes {filters}, so the answer is empty"))


def filtered_input(options: Options) -> str | None:
    """Which rows pass the filters among the options; None if there are none. A statement has no filters."""
    filters = given_filters(options)
    return f"which rows pass {filters}" if filters else None


class SqlNsysRecipe(NsysRecipe):
    """A recipe of nsys with a map that is one SELECT over the rows of a rank's tables that pass the filters."""

    def select(self, map_sql: Of[str], **facts: Any) -> Statements:
        """The statements over the recipe's tables, without those that only filters read."""

        def rank_tables(rank: Rank, _options: Options) -> dict[str, Any]:
            if self.projects:
                return projected_table(rank)
            return {table: id_table(rank, table, columns) for table, columns in self.tables.items()}

        computed = "the GPU work of each NVTX range" if self.projects else filtered_input
        defaults = {"reduce": "SELECT * FROM parts", "rank_tables": rank_tables, "computed": computed}
        return Statements(self.reads, map_sql, **{**defaults, **facts})

    @property
    @abstractmethod
    def statements(self) -> Statements: ...

    def map_rank(self, rank: Rank, options: Options) -> Any:
        return self.statements.map_rank(rank, options)

    def map_ranks(self, ranks: Sequence[Rank], options: Options) -> Any:
        return self.statements.map_ranks([filtered(rank, options, host=not self.projects) for rank in ranks], options)


def files(run: RunFacts) -> dict[int, str]:
    """The name of each rank's report, without folder and ending; different for each rank."""
    stems = {r.rank: ", ".join(_stem(run.manifest.reports[i].path) for i in r.reports) for r in run.ranks}
    counts = Counter(stems.values())
    return {rank: stem if counts[stem] == 1 else f"{stem} rank {rank}" for rank, stem in stems.items()}


def _stem(path: Any) -> str:
    # a path may hold bytes that are not UTF-8
    name = PurePosixPath(str(path).encode("utf-8", "backslashreplace").decode()).name
    while ending := next((e for e in _ENDINGS if name.endswith(e) and name != e), None):
        name = name[: -len(ending)]
    return name


def file_column(run: RunFacts, ranks: Sequence[int]) -> pa.Array:
    labels = files(run)
    return pa.array([labels[rank] for rank in ranks], pa.string())


def part_files(run: RunFacts, parts: Sequence[Part]) -> pa.Array:
    """For each row of the parts the name of its rank's report."""
    return file_column(run, [part.rank for part in parts for _ in range(part.table.num_rows)])


def file_columns(parts: Sequence[Part], run: RunFacts) -> Columns:
    ranks = [part.rank for part in parts]
    return {"Rank": ranks, FILE: file_column(run, ranks)} if ranks else {}
