"""One row per launch and message of a rule: what NVIDIA's rules said when the launch was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alltrace.recipes.base import Answer, Chart
from alltrace.recipes.ncu import tables
from alltrace.recipes.ncu.metrics import main_of
from alltrace.recipes.ncu.tables import IDENTITY, Profiled, identity, lacking
from alltrace.trace import columns as col

COLUMNS = (
    *IDENTITY,
    col.text("section", "section that the rule belongs to, as Nsight Compute names it"),
    col.text("rule", "rule of Nsight Compute, such as `SOLBottleneck`"),
    col.text("kind", "`optimization`, `warning`, `error`, `ok` or `none`"),
    col.text("title", "title of the message"),
    col.percent("speedup_percent", "largest speedup that Nsight Compute estimates; null if it states none", None),
    col.text("speedup_of", "what gets faster: `global`, the launch, or `local`, the part that the rule examines"),
    col.ns("gain_ns", "speedup_percent applied to the launch's time, for a `global` one"),
    col.text("message", "message of the rule"),
)
CHART = Chart("bars", "name", ("speedup_percent",), "rule", detail="launch", title="Speed-up that Nsight Compute expects at most")


def answer(profiled: Sequence[Profiled], notes: Sequence[str]) -> Answer:
    """A row per launch and message, in the order of its sections and rules; rules without a message have none."""
    rows: list[tuple[Any, ...]] = []
    for each in profiled:
        duration = main_of(each.launch, "duration_ns")
        order = {section.identifier: n for n, section in enumerate(each.launch.sections)}
        rules = sorted(each.launch.rules, key=lambda r: order.get(r.section, len(order)))
        for rule in rules:
            for message in rule.messages:
                whole = message.speedup_of == "global" and message.speedup_percent is not None and duration is not None
                gain = round((message.speedup_percent or 0.0) / 100 * (duration or 0)) if whole else None
                cells = (message.kind, message.title or None, message.speedup_percent, message.speedup_of, gain, message.text)
                rows.append((*identity(each), rule.section, rule.identifier, *cells))
    said_notes = lacking(
        notes, profiled, [bool(p.launch.rules) for p in profiled], "results of rules", "`ncu --apply-rules yes` stores them"
    )
    return Answer(tables.table(COLUMNS, rows), COLUMNS, said_notes, chart=CHART)
