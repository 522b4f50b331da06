"""One row per launch and message of a rule: what NVIDIA's rules said when the launch was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alltrace.recipes.base import Answer, Chart
from alltrace.recipes.ncu import tables
from alltrace.recipes.ncu.metrics import main_of
from alltrace.recipes.ncu.tables import IDENTITY, identity, lacking, typed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from alltrace.recipes.ncu.tables import Profiled

_TYPED = (
    *IDENTITY,
    typed("section", str, None, "section that the rule belongs to, as Nsight Compute names it"),
    typed("rule", str, None, "rule of Nsight Compute, such as `SOLBottleneck`"),
    typed("kind", str, None, "`optimization`, `warning`, `error`, `ok` or `none`"),
    typed("title", str, None, "title of the message"),
    typed("speedup_percent", float, "%", "largest speedup that Nsight Compute estimates; null if it states none"),
    typed("speedup_of", str, None, "what gets faster: `global`, the launch, or `local`, the part that the rule examines"),
    typed("gain_ns", int, "ns", "speedup_percent applied to the launch's time, for a `global` one"),
    typed("message", str, None, "message of the rule"),
)
COLUMNS = tables.plain(_TYPED)
CHART = Chart("bars", "name", ("speedup_percent",), "rule", detail="launch", title="Speed-up that Nsight Compute expects at most")


def answer(profiled: Sequence[Profiled], notes: Sequence[str]) -> Answer:
    """One row per launch and message, of each launch in the order of its sections and rules; rules without a message have none."""
    rows: list[tuple[Any, ...]] = []
    for each in profiled:
        duration = main_of(each.launch, "duration_ns")
        order = {section.identifier: n for n, section in enumerate(each.launch.sections)}
        rules = sorted(each.launch.rules, key=lambda r: order.get(r.section, len(order)))
        for rule in rules:
            for said in rule.messages:
                whole = said.speedup_of == "global" and said.speedup_percent is not None and duration is not None
                gain = round((said.speedup_percent or 0.0) / 100 * (duration or 0)) if whole else None
                found = (said.kind, said.title or None, said.speedup_percent, said.speedup_of, gain, said.text)
                rows.append((*identity(each), rule.section, rule.identifier, *found))
    said_notes = lacking(
        notes, profiled, [bool(p.launch.rules) for p in profiled], "results of rules", "`ncu --apply-rules yes` stores them"
    )
    return Answer(tables.table(_TYPED, rows), COLUMNS, said_notes, chart=CHART)
