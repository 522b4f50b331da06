"""One row per launch and metric: every metric as in the report."""

from __future__ import annotations

from collections.abc import Sequence

from alltrace.recipes.base import Answer
from alltrace.recipes.ncu import tables
from alltrace.recipes.ncu.tables import IDENTITY, METRIC_VALUE, Profiled, identity, number_and_text, wanted
from alltrace.trace.launch_units import unit_of

COLUMNS = (*IDENTITY, *METRIC_VALUE)
CHART = None


def answer(profiled: Sequence[Profiled], notes: Sequence[str], patterns: Sequence[str] | None = None) -> Answer:
    """A row per launch and metric, by name; with `patterns`, only names that match one; * is any text."""
    rows = [
        (*identity(each), metric, unit_of(metric), *number_and_text(value))
        for each in profiled
        for metric, value in sorted(each.launch.metrics.items())
        if wanted(metric, patterns)
    ]
    return Answer(tables.table(COLUMNS, rows), COLUMNS, tuple(notes), chart=CHART)
