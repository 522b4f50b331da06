"""The recipe `breakdown`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from alltrace.recipes.analysis.device_intervals import GPU, TABLES, class_notes, device_activity, device_rows
from alltrace.recipes.analysis.unrecorded import unrecorded_of
from alltrace.recipes.base import Answer, AnswerColumn, Chart, Option, Part, Recipe, answer_rows, answer_schema
from alltrace.trace.intervals import NOTHING, classify_ns, clip

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.base import RankTables, RunFacts

_CLASSES = ("compute_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns")


class Breakdown(Recipe):
    """Where each device's time went: compute, exposed communication, exposed copies, idle.

    At any moment a device is in exactly one class, the first that applies: a compute kernel runs; else a communication kernel
    runs; else a copy runs; else idle. So the classes sum to the span, to the nanosecond. The span is from the first start to the
    last end of the device's work, or of all devices' work with `--span run`. Time in which work may have run whose records are
    lost is in no class, and not in the span.
    """

    name = "breakdown"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = TABLES
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "span",
            str,
            "device",
            "span of each row: the device's own work, or from the first to the last work of any device",
            ("device", "run"),
        ),
    )
    columns: ClassVar[tuple[AnswerColumn, ...]] = (
        AnswerColumn("rank", None, "rank"),
        AnswerColumn("host", None, "host"),
        GPU,
        AnswerColumn("span_ns", "ns", "the time that is divided"),
        AnswerColumn("compute_ns", "ns", "a compute kernel runs"),
        AnswerColumn("exposed_communication_ns", "ns", "a communication kernel runs and no compute kernel"),
        AnswerColumn("exposed_copy_ns", "ns", "a copy or fill runs and no kernel"),
        AnswerColumn("idle_ns", "ns", "nothing runs"),
        AnswerColumn("compute_percent", "%", "compute_ns of span_ns"),
        AnswerColumn("exposed_communication_percent", "%", "exposed_communication_ns of span_ns"),
        AnswerColumn("exposed_copy_percent", "%", "exposed_copy_ns of span_ns"),
        AnswerColumn("idle_percent", "%", "idle_ns of span_ns"),
    )
    chart: ClassVar[Chart | None] = Chart("stacked_bars", "rank", _CLASSES, detail="gpu", title="Where each device's time went")

    def lays_together(self, options: Mapping[str, Any]) -> bool:
        """With the span of all devices, which are on several hosts."""
        return bool(options["span"] == "run")

    def map(self, rank: RankTables, options: Mapping[str, Any]) -> Any:  # noqa: ARG002
        """One row per device: the exact times by class, and what the notes need."""
        rows = []
        for work in device_activity(rank):
            sets = (rank.unrecorded(), work.compute, work.communication, work.copies)
            left_out, *times = classify_ns(sets, work.start_ns, work.end_ns)
            rows.append({**work.facts(), "left_out_ns": left_out, **dict(zip(_CLASSES, times, strict=True))})
        return pa.Table.from_pylist(rows)

    def reduce(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """A row per rank and device."""
        rows = device_rows(parts, run)
        first = min((row["start_ns"] for row in rows), default=0)
        last = max((row["end_ns"] for row in rows), default=0)
        hosts, unrecorded = {r.rank: r.host for r in run.ranks}, unrecorded_of(run)
        for row in rows:
            own = row["end_ns"] - row["start_ns"] - row["left_out_ns"]
            span = own
            if options["span"] == "run":
                span = last - first - clip(unrecorded.get(row["rank"], NOTHING), first, last).total_ns
            row["idle_ns"] += span - own
            row |= {c.replace("_ns", "_percent"): 100 * row[c] / span if span else None for c in _CLASSES}
            row |= {"host": hosts[row["rank"]], "span_ns": span}
        shares = {c.replace("_ns", "_percent"): 1 for c in _CLASSES}
        table = answer_rows(rows, answer_schema(self.columns, ("host", "gpu"), shares))
        return Answer(table, self.columns, (*_left_out(rows), *class_notes(rows)))


def _left_out(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """How little of the time of some ranks is divided."""
    judged = {r["rank"]: 1 - r["left_out_ns"] / (r["end_ns"] - r["start_ns"]) for r in rows if r["left_out_ns"]}
    if not judged:
        return []
    from alltrace.run.store import number_ranges

    least = min(judged.values())
    share = f"{least:.1%}" if len(judged) == 1 else f"{least:.1%} to {max(judged.values()):.1%}"
    who = f"{'rank' if len(judged) == 1 else 'ranks'} {number_ranges(sorted(judged))}"
    return [f"{who}: {share} of the time is divided; in the rest work may have run without a record"]


RECIPE = Breakdown()
