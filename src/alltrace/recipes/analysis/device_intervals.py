"""What a device did when: a rank's GPU work per device, as sets of intervals by class."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from alltrace.recipes.base import Part, RunFacts
from alltrace.run.rank import Rank
from alltrace.trace import columns as col
from alltrace.trace.arrays import integers, is_one_of, is_true
from alltrace.trace.communication_kernels import EXCHANGE
from alltrace.trace.intervals import Merged, merge, union
from alltrace.trace.kernel_rules import COMMUNICATION, MEETING, UNCLASSIFIED

TABLES: dict[str, tuple[str, ...]] = {
    "kernels": ("start", "end", "device", "kind"),
    "copies": ("start", "end", "device", "collective"),
    "graphs": ("start", "end", "device"),
}
"""What `device_activity` reads."""

GPU = col.text("gpu", "the device's UUID, or bus id, or CUDA ordinal, whichever is known first")
"""The column `gpu` of `device_rows`."""


@dataclass(frozen=True)
class Activity:
    """The GPU work of one rank on one device."""

    device: int  # the device's row in the rank's `devices`
    compute: Merged  # when at least one compute kernel, one that no rule names, or a graph traced as a whole, runs
    meeting: Merged  # when a kernel runs that no rule names and in which ranks meet; it is in no other class
    communication: Merged  # when at least one communication kernel runs, or a copy of a collective by copy engines
    copies: Merged  # when at least one other copy, or fill, runs
    start_ns: int  # first start of any of these
    end_ns: int  # last end
    kernel_ns: int  # summed duration of its kernels
    without_rule_ns: int  # of these, in kernels that no rule names and that count as compute
    meeting_ns: int  # of these, in kernels that no rule names and in which ranks meet
    exchange_ns: int  # of these, in kernels that wait for peers as they exchange
    graph_ns: int  # summed duration of graphs traced as a whole

    def facts(self) -> dict[str, int]:
        """Everything but the sets, by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, int)}


def device_activity(rank: Rank) -> list[Activity]:
    """The work of each device of a rank, by device."""
    tables = {name: rank.table(name, columns) for name, columns in TABLES.items()}
    kernels, copies, graphs = (
        {c: integers(table.column(c), -1 if c == "device" else 0) for c in ("start", "end", "device")}
        for table in tables.values()
    )
    communicates = is_one_of(tables["kernels"].column("kind"), COMMUNICATION)
    meets = is_one_of(tables["kernels"].column("kind"), (MEETING,))
    unknown = is_one_of(tables["kernels"].column("kind"), (UNCLASSIFIED,))
    exchanges = is_one_of(tables["kernels"].column("kind"), (EXCHANGE,))
    of_collectives = is_true(tables["copies"].column("collective"))
    activities = []
    for device in np.unique(np.concatenate([t["device"] for t in (kernels, copies, graphs)])).tolist():
        on = kernels["device"] == device
        spans = {
            name: (t["start"][rows], t["end"][rows])
            for name, t, rows in (
                ("c", copies, (copies["device"] == device) & ~of_collectives),
                ("x", copies, (copies["device"] == device) & of_collectives),
                ("g", graphs, graphs["device"] == device),
            )
        }
        k_start, k_end, talk, meet = kernels["start"][on], kernels["end"][on], communicates[on], meets[on]
        length = np.maximum(k_end - k_start, 0)
        starts, ends = (np.concatenate([k, *(s[n] for s in spans.values())]) for n, k in enumerate((k_start, k_end)))
        own = ~talk & ~meet
        activities.append(
            Activity(
                device=device,
                compute=union((merge(k_start[own], k_end[own]), merge(*spans["g"]))),
                meeting=merge(k_start[meet], k_end[meet]),
                communication=union((merge(k_start[talk], k_end[talk]), merge(*spans["x"]))),
                copies=merge(*spans["c"]),
                start_ns=int(starts.min()),
                end_ns=int(max(ends.max(), starts.max())),
                kernel_ns=int(length.sum()),
                without_rule_ns=int(length[unknown[on]].sum()),
                meeting_ns=int(length[meet].sum()),
                exchange_ns=int(length[exchanges[on]].sum()),
                graph_ns=int(np.maximum(spans["g"][1] - spans["g"][0], 0).sum()),
            )
        )
    return activities


def device_rows(parts: Sequence[Part], run: RunFacts) -> list[dict[str, Any]]:
    """The rows of all parts with their `rank`, and with `gpu`, the readable name of their `device` if known."""
    gpus = {(r.rank, d.device): d.identity[1] for r in run.ranks for d in r.devices}
    return [
        {**row, "rank": part.rank, "gpu": gpus.get((part.rank, row["device"]), row.get("gpu"))}
        for part in parts
        for row in part.table.to_pylist()
    ]


def class_notes(parts: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a reader must know of how kernels were classed; `parts`: rows with the sums of `Activity.facts`."""
    kernel = sum(p["kernel_ns"] for p in parts)
    unknown = sum(p["without_rule_ns"] for p in parts)
    graph, exchange, meeting = (sum(p[name] for p in parts) for name in ("graph_ns", "exchange_ns", "meeting_ns"))
    notes = []
    if 1000 * unknown >= kernel > 0:  # less is 0.0 % and changes no answer
        notes.append(
            f"{100 * unknown / kernel:.1f} % of the kernel time is in kernels that no rule names; it counts as compute "
            "(rules of your own: --kernel-rules)"
        )
    if 1000 * meeting >= kernel > 0:
        notes.append(
            f"{100 * meeting / kernel:.1f} % of the kernel time is in kernels that no rule names and that all ranks "
            "end together; it does not count as compute"
        )
    if 1000 * exchange >= kernel > 0:
        notes.append(
            f"{100 * exchange / kernel:.1f} % of the kernel time is in kernels that send to peers and wait for them "
            "(class exchange): it counts as communication and is no time on the network, so it gives no bandwidth"
        )
    if graph:
        notes.append(
            f"{graph / 1e6:,.1f} ms are CUDA graphs traced as a whole, which count as compute: communication inside is "
            "not visible (capture with --cuda-graph-trace=node to see it)"
        )
    return notes
