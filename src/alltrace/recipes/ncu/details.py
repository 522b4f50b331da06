"""One row per launch, section and metric: the page of details, from the sections that the report itself holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from alltrace.recipes.base import Answer
from alltrace.recipes.ncu import tables
from alltrace.recipes.ncu.tables import IDENTITY, METRIC_VALUE, Profiled, identity, lacking, number_and_text
from alltrace.trace import columns as col
from alltrace.trace.launch_units import unit_of
from alltrace.trace.launches import Launch, SectionMetric

COLUMNS = (
    *IDENTITY,
    col.text("section", "section"),
    col.text("part", "`header`, the table that a section shows first, or `body`, its charts and tables"),
    col.text("label", "the section's name for the metric; null if it has none"),
    *METRIC_VALUE,
)
CHART = None


def answer(profiled: Sequence[Profiled], notes: Sequence[str]) -> Answer:
    """One row per launch, section and metric that the launch has, in the order of the sections."""
    rows: list[tuple[Any, ...]] = []
    for each in profiled:
        for section in each.launch.sections:
            for shown in section.metrics:
                for metric, label in _expanded(each.launch, shown):
                    if (value := each.launch.metrics.get(metric)) is not None:
                        place = (section.name, shown.part, label or None, metric, unit_of(metric))
                        rows.append((*identity(each), *place, *number_and_text(value)))
    texts = lacking(notes, profiled, [bool(p.launch.sections) for p in profiled], "sections", "a printed page has none")
    return Answer(tables.table(COLUMNS, rows), COLUMNS, texts, chart=CHART)


def _expanded(launch: Launch, shown: SectionMetric) -> Iterator[tuple[str, str]]:
    """Metric and label of the members of a breakdown or group; the report stores their names as one text."""
    if ":" not in shown.name:
        yield next((name for name in (shown.name, *shown.others) if name in launch.metrics), shown.name), shown.label
        return
    members = launch.metrics.get(shown.name)
    if isinstance(members, str):
        yield from ((name, "") for name in members.split(",") if name)
