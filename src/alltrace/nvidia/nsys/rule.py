"""What the recipes share that nsys has as rules too: rows to look at, worst first, and advice."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from alltrace.nvidia.cells import stack
from alltrace.nvidia.filters import NVTX
from alltrace.nvidia.nsys.base import FILE, FILE_CELL, Cell, NsysRecipe, files
from alltrace.nvidia.report import RANK
from alltrace.recipes.analysis.part_rows import with_rank
from alltrace.recipes.base import Option

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.base import Answer, Part, RankTables, RunFacts

ROWS = Option("rows", int, -1, "The most rows of each rank; -1 for all.", least=-1)


class Rule(NsysRecipe):
    """Rows that are worth a look, and what to do about them.

    Attributes:
        settings: Its options other than `--rows` and `--nvtx`.
        cells: Its columns but the last, `File`.
        order: What a rank's rows are ordered by, with `ascending` or `descending`.
        advice: What to do about the rows found.
        none: The meaning of an empty result.
    """

    on_one_clock: ClassVar[bool] = True
    own: ClassVar[tuple[Option, ...]]
    results: ClassVar[Mapping[str, tuple[Cell, ...]]]
    settings: ClassVar[tuple[Option, ...]] = ()
    cells: ClassVar[tuple[Cell, ...]]
    order: ClassVar[tuple[tuple[str, str], ...]] = (("Duration", "descending"), ("Start", "ascending"))
    advice: ClassVar[str]
    none: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Compose options and columns."""
        cls.own = (*cls.settings, ROWS, NVTX)
        if hasattr(cls, "cells"):
            cls.results = {"analysis": (*cls.cells, FILE_CELL)}
        super().__init_subclass__(**kwargs)

    @abstractmethod
    def rows(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The rows of one rank: a `pyarrow.Table` with a column per cell; `Row#` is added."""

    def map_rank(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The rank's worst rows."""
        found = self.rows(rank, options)
        rest = [name for name in found.column_names if name not in dict(self.order)]
        order = [*self.order, *((name, "ascending") for name in rest if not pa.types.is_dictionary(found.schema.field(name).type))]
        found = found.take(pc.sort_indices(found, order))
        return found if options["rows"] < 0 else found.slice(0, options["rows"])

    def combine(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """The rows of all ranks, rank by rank, with advice."""
        if not parts:
            return self.answer({}, (self.none,))
        called = files(run)
        whole = stack([with_rank(part.table, part.rank) for part in parts]).combine_chunks()
        columns: dict[str, Any] = {name: whole.column(name) for name in whole.column_names}
        columns[FILE] = pa.array([called[part.rank] for part in parts for _ in range(part.table.num_rows)], pa.string())
        columns["Row#"] = [i + 1 for part in parts for i in range(part.table.num_rows)]
        del columns[RANK]
        return self.answer({"analysis": columns}, (self.advice,))
