"""The recipe `breakdown`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from alltrace.recipes.analysis.device_intervals import TABLES, class_notes, device_activity, gpu_names
from alltrace.recipes.base import Answer, AnswerColumn, Chart, Option, Part, Recipe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.base import RankTables, RunFacts

_CLASSES = ("compute_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns")


class Breakdown(Recipe):
    """Where each device's time went: compute, exposed communication, exposed copies, idle.

    At any moment a device is in exactly one class, the first that applies: a compute kernel runs; else a communication kernel
    runs; else a copy runs; else idle. So the classes sum to the span, to the nanosecond. The span is from the first start to the
    last end of the device's work, or of all devices' work with `--span run`.
    """

    name = "breakdown"
    tables = TABLES
    options = (
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
        AnswerColumn("gpu", None, "the device's UUID, or bus id, or CUDA ordinal, whichever is known first"),
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
    chart = Chart("stacked_bars", "rank", _CLASSES, detail="gpu", title="Where each device's time went")

    def lays_together(self, options: Mapping[str, Any]) -> bool:
        """With the span of all devices, which are on several hosts."""
        return bool(options["span"] == "run")

    def map(self, rank: RankTables, options: Mapping[str, Any]) -> Any:  # noqa: ARG002
        """One row per device: the exact times by class, and what the notes need."""
        import pyarrow as pa

        from alltrace.trace.intervals import classify_ns

        rows = []
        for work in device_activity(rank):
            times = classify_ns((work.compute, work.communication, work.copies), work.start_ns, work.end_ns)
            rows.append(
                {
                    "device": work.device,
                    "start_ns": work.start_ns,
                    "end_ns": work.end_ns,
                    **dict(zip(_CLASSES, times, strict=True)),
                    "kernel_ns": work.kernel_ns,
                    "unclassified_ns": work.unclassified_ns,
                    "graph_ns": work.graph_ns,
                }
            )
        return pa.Table.from_pylist(rows, _part_schema())

    def reduce(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """A row per rank and device."""
        import pyarrow as pa

        found = [(p.rank, row) for p in parts for row in p.table.to_pylist()]
        whole = options["span"] == "run" and found
        first = min((row["start_ns"] for _, row in found), default=0)
        last = max((row["end_ns"] for _, row in found), default=0)
        gpus, hosts = gpu_names(run), {r.rank: r.host for r in run.ranks}
        rows = []
        for rank, row in found:
            own = row["end_ns"] - row["start_ns"]
            span = last - first if whole else own
            times = {c: row[c] for c in _CLASSES}
            times["idle_ns"] += span - own
            shares = {c.replace("_ns", "_percent"): 100 * t / span if span else None for c, t in times.items()}
            gpu = gpus.get((rank, row["device"]))
            rows.append({"rank": rank, "host": hosts[rank], "gpu": gpu, "span_ns": span, **times, **shares})
        return Answer(pa.Table.from_pylist(rows, _answer_schema()), self.columns, tuple(class_notes([r for _, r in found])))


def _part_schema() -> Any:
    import pyarrow as pa

    numbers = ("device", "start_ns", "end_ns", *_CLASSES, "kernel_ns", "unclassified_ns", "graph_ns")
    return pa.schema([(n, pa.int64()) for n in numbers])


def _answer_schema() -> Any:
    import pyarrow as pa

    fields = [pa.field("rank", pa.int32()), pa.field("host", pa.string()), pa.field("gpu", pa.string())]
    fields += [pa.field(n, pa.int64()) for n in ("span_ns", *_CLASSES)]
    fields += [pa.field(n.replace("_ns", "_percent"), pa.float64(), metadata={"decimals": "1"}) for n in _CLASSES]
    return pa.schema(fields)


RECIPE = Breakdown()
