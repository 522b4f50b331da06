"""One row per kernel launch: time, configuration, occupancy and speed of light."""

from __future__ import annotations

from collections.abc import Sequence

from alltrace.recipes.base import Answer, Chart
from alltrace.recipes.ncu import tables
from alltrace.recipes.ncu.metrics import MAIN, limiter, main_of, top_stall
from alltrace.recipes.ncu.tables import CONFIGURATION, IDENTITY, Profiled, identity, sizes
from alltrace.trace import columns as col

COLUMNS = (
    *IDENTITY,
    *CONFIGURATION,
    *(column for column, _ in MAIN),
    col.text("occupancy_limiter", "the resource that limits the blocks per multiprocessor; several if equal"),
    col.text("top_stall", "the most frequent stall reason"),
    col.text("device", "the GPU"),
)
CHART = Chart("scatter", "memory_percent", ("sm_percent",), "name", detail="launch", title="Speed of light of work and memory")


def answer(profiled: Sequence[Profiled], notes: Sequence[str]) -> Answer:
    """One row per launch, in the order of the reports."""
    rows = []
    for each in profiled:
        launch = each.launch
        stall = top_stall(launch)
        device = launch.metrics.get("device__attribute_display_name")
        rows.append(
            (
                *identity(each),
                sizes(launch.grid),
                sizes(launch.block),
                *(main_of(launch, column.name) for column, _ in MAIN),
                limiter(launch),
                stall[0] if stall else None,
                device if isinstance(device, str) else None,
            )
        )
    return Answer(tables.table(COLUMNS, rows), COLUMNS, tuple(notes), chart=CHART)
