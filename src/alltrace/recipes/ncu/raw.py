"""One row per launch and metric: every metric as the report has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alltrace.recipes.base import Answer
from alltrace.recipes.ncu import tables
from alltrace.recipes.ncu.tables import IDENTITY, identity, typed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from alltrace.recipes.ncu.tables import Profiled

_TYPED = (
    *IDENTITY,
    typed("metric", str, None, "metric"),
    typed("value", float, None, "its value where it is a number, in the metric's base unit"),
    typed("text", str, None, "its value where it is a text"),
)
COLUMNS = tables.plain(_TYPED)
CHART = None


def answer(profiled: Sequence[Profiled], notes: Sequence[str]) -> Answer:
    """One row per launch and metric, the metrics by name."""
    rows = [
        (*identity(each), metric, *((None, value) if isinstance(value, str) else (float(value), None)))
        for each in profiled
        for metric, value in sorted(each.launch.metrics.items())
    ]
    return Answer(tables.table(_TYPED, rows), COLUMNS, tuple(notes), chart=CHART)
