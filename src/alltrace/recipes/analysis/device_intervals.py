"""What a device did when: a rank's GPU work per device, as sets of intervals by class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from alltrace.recipes.base import AnswerColumn
from alltrace.trace.arrays import integers, is_one_of
from alltrace.trace.intervals import merge, union
from alltrace.trace.kernel_rules import COMMUNICATION, UNCLASSIFIED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.base import Part, RankTables, RunFacts
    from alltrace.trace.intervals import Merged

TABLES: dict[str, tuple[str, ...]] = {
    "kernels": ("start", "end", "device", "kind"),
    "copies": ("start", "end", "device"),
    "graphs": ("start", "end", "device"),
}
"""What `device_activity` reads."""

GPU = AnswerColumn("gpu", None, "the device's UUID, or bus id, or CUDA ordinal, whichever is known first")
"""The column `gpu` of `device_rows`."""


@dataclass(frozen=True)
class Activity:
    """The GPU work of one rank on one device.

    Attributes:
        device: The device's row in the rank's `devices`.
        compute: When at least one compute kernel, or a graph traced as a whole, runs.
        communication: When at least one communication kernel runs.
        copies: When at least one copy or fill runs.
        start_ns: First start of any of these.
        end_ns: Last end.
        kernel_ns: Summed duration of its kernels.
        unclassified_ns: Of these, in kernels that no rule names.
        graph_ns: Summed duration of graphs traced as a whole.
    """

    device: int
    compute: Merged
    communication: Merged
    copies: Merged
    start_ns: int
    end_ns: int
    kernel_ns: int
    unclassified_ns: int
    graph_ns: int

    def facts(self) -> dict[str, int]:
        """Everything but the sets, by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, int)}


def device_activity(rank: RankTables) -> list[Activity]:
    """The work of each device of a rank, by device."""
    tables = {name: rank.table(name, columns) for name, columns in TABLES.items()}
    kernels, copies, graphs = (
        {c: integers(table.column(c), -1 if c == "device" else 0) for c in ("start", "end", "device")} for table in tables.values()
    )
    communicates = is_one_of(tables["kernels"].column("kind"), COMMUNICATION)
    unknown = is_one_of(tables["kernels"].column("kind"), (UNCLASSIFIED,))
    found = []
    for device in np.unique(np.concatenate([t["device"] for t in (kernels, copies, graphs)])).tolist():
        on = kernels["device"] == device
        spans = {
            name: (t["start"][t["device"] == device], t["end"][t["device"] == device]) for name, t in (("c", copies), ("g", graphs))
        }
        k_start, k_end, talk, odd = kernels["start"][on], kernels["end"][on], communicates[on], unknown[on]
        length = np.maximum(k_end - k_start, 0)
        starts = np.concatenate([k_start, spans["c"][0], spans["g"][0]])
        ends = np.concatenate([k_end, spans["c"][1], spans["g"][1]])
        found.append(
            Activity(
                device=device,
                compute=union((merge(k_start[~talk], k_end[~talk]), merge(*spans["g"]))),
                communication=merge(k_start[talk], k_end[talk]),
                copies=merge(*spans["c"]),
                start_ns=int(starts.min()),
                end_ns=int(max(ends.max(), starts.max())),
                kernel_ns=int(length.sum()),
                unclassified_ns=int(length[odd].sum()),
                graph_ns=int(np.maximum(spans["g"][1] - spans["g"][0], 0).sum()),
            )
        )
    return found


def device_rows(parts: Sequence[Part], run: RunFacts) -> list[dict[str, Any]]:
    """The rows of all parts with their `rank`, and with `gpu`, what people call their `device` if that is known."""
    gpus = {(r.rank, d.device): d.identity[1] for r in run.ranks for d in r.devices}
    return [
        {**row, "rank": part.rank, "gpu": gpus.get((part.rank, row["device"]), row.get("gpu"))}
        for part in parts
        for row in part.table.to_pylist()
    ]


def class_notes(parts: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a reader must know of how kernels were classed, from rows with `kernel_ns`, `unclassified_ns` and `graph_ns`."""
    kernel = sum(p["kernel_ns"] for p in parts)
    unknown = sum(p["unclassified_ns"] for p in parts)
    graph = sum(p["graph_ns"] for p in parts)
    notes = []
    if 1000 * unknown >= kernel > 0:  # less is 0.0 % and changes no answer
        notes.append(
            f"{100 * unknown / kernel:.1f} % of the kernel time is in kernels that no rule classifies; it counts as "
            "compute (add rules with --kernel-rules)"
        )
    if graph:
        notes.append(
            f"{graph / 1e6:,.1f} ms are CUDA graphs traced as a whole, which count as compute: communication inside is not visible "
            "(capture with --cuda-graph-trace=node to see it)"
        )
    return notes
