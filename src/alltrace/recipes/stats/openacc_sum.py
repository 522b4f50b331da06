"""The report `openacc_sum`: time in each OpenACC construct."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.stats.base import Cell
from alltrace.recipes.stats.host import CallSum

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.base import RunFacts


class OpenaccSum(CallSum):
    """The time that OpenACC constructs took, by construct and line."""

    name = "openacc_sum"
    title = "OpenACC Summary"
    tables: ClassVar = {"openacc": ("start", "end", "name", "file", "line")}
    keys = ("name", "file", "line")
    ties = ("Name",)
    counted = "Num Calls"
    named = (Cell("Name", "text", "Construct, and the file and line where it stands: `Wait@main.f90:12`."),)

    def labels(self, keys: Any, run: RunFacts, options: Mapping[str, Any]) -> Sequence[Any]:
        """The construct and its place, as far as that is known."""
        name, file = (run.texts(keys.column(c).combine_chunks()) for c in ("name", "file"))
        line = keys.column("line").combine_chunks().cast(pa.string())
        place = pc.binary_join_element_wise(file, line, ":", null_handling="emit_null")
        return [pc.coalesce(pc.binary_join_element_wise(name, pc.coalesce(place, file), "@", null_handling="emit_null"), name)]


RECIPE = OpenaccSum()
