"""One row per launch, metric and instance: the single values of a metric, by address, opcode or unit of the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alltrace.recipes.base import Answer
from alltrace.recipes.ncu import tables
from alltrace.recipes.ncu.tables import IDENTITY, Profiled, identity, lacking, number_and_text, wanted
from alltrace.trace import columns as col
from alltrace.trace.launch_units import unit_of

COLUMNS = (
    *IDENTITY,
    col.text("metric", "metric"),
    col.text("instance", "what the value belongs to: an address of the code in hexadecimal, an opcode, or a number"),
    col.text("unit", "unit of the value; null for a plain count, or if the name does not state it"),
    col.real("value", "its value if it is a number, in its unit"),
    col.text("text", "its value if it is text"),
)
CHART = None
_LEAST_ADDRESS = 1 << 32
"""Addresses of code are above this; numbers of instances are small."""


def answer(profiled: Sequence[Profiled], notes: Sequence[str], patterns: Sequence[str] | None = None) -> Answer:
    """A row per launch, metric (by name) and instance, in the report's order; see `raw` for `patterns`."""
    rows: list[tuple[Any, ...]] = []
    for each in profiled:
        for metric in sorted(each.launch.instances):
            if not wanted(metric, patterns):
                continue
            unit = unit_of(metric)
            rows += [
                (*identity(each), metric, _shown(of), unit, *number_and_text(value))
                for of, value in each.launch.instances[metric]
                if value is not None
            ]
    texts = lacking(notes, profiled, [bool(p.launch.instances) for p in profiled], "values of instances", "a printed page has none")
    return Answer(tables.table(COLUMNS, rows), COLUMNS, texts, chart=CHART)


def _shown(instance: Any) -> str | None:
    if isinstance(instance, int) and instance >= _LEAST_ADDRESS:
        return f"{instance:#x}"
    return None if instance is None else str(instance)
