"""What kinds of intervals a Paraver trace of ours can hold, by the types that its .pcf names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from alltrace.core.paraver import CHANGES, PUNCTUAL
from alltrace.readers.paraver import labels as ev
from alltrace.readers.paraver.labels import EventType

CALL_SLOT, LAST_WORK = 0, 4
KEPT = {
    ev.MEMORY_BYTES: "bytes", ev.GRAPH_ID: "graph", ev.GRAPH_EXEC: "graph_exec", ev.MPI_SENT: "sent", ev.MPI_RECEIVED: "received",
    ev.CORRELATION: "correlation", **{number: column for number, (column, _) in ev.GEOMETRY.items()},
}  # fmt: skip
"""Types that go with others, and what their values are."""

_NVTX = "NVTX "
_DEFAULT = f"NVTX {ev.DEFAULT_DOMAIN}"
_DEPTHS = range(ev.DEPTH, ev.NIC_METRICS)


@dataclass(frozen=True)
class Slot:
    """One kind of interval."""

    table: str  # the table its rows belong to
    word: str | None = None  # what the row's `kind` is, or its domain; None if the name determines it or there is none
    values: dict[int, str] = field(default_factory=dict)  # the label of each value
    kind: int = 0  # of intervals 0, else `PUNCTUAL` or `CHANGES` of `alltrace.core.paraver`


@dataclass(frozen=True)
class Slots:
    """The slots of a trace, and for each known type, ascending, its slot and its place among `KEPT`, -1 for none."""

    slots: tuple[Slot, ...]
    types: NDArray[np.int64]
    slot_of: NDArray[np.int64]
    place_of: NDArray[np.int64]


def slots_of(events: Iterable[EventType]) -> Slots:
    """The slots of a trace with these types; types that are not known are left out."""
    labels = {n: (ev.our_label(label), ev.our_values(label, e.values)) for e in events for n, label in e.types.items()}
    named = {label: n for n, (label, _) in labels.items()}
    wanted = [
        (ev.CALL, "api", None), (ev.KERNEL, "kernels", None), (named.get("NCCL kernel", -1), "kernels", None),
        (ev.MEMORY_OP, "copies", None), (named.get("CUDA graph", -1), "graphs", None),
        (ev.MPI_P2P, "mpi", "p2p"), (ev.MPI_COLLECTIVE, "mpi", "collective"), (ev.MPI_REST, "mpi", "other"),
        (ev.OPENACC_OTHER, "openacc", "other"), (ev.OPENACC_DATA, "openacc", "data"), (ev.OPENACC_LAUNCH, "openacc", "launch"),
        (ev.OPENMP, "openmp", None), (ev.OSRT, "osrt", None), (ev.UCX, "ucx", None), (ev.SYSCALL, "syscalls", None),
        (ev.RANGE_STARTEND, "ranges", None), (ev.MARK, "marks", None),
    ]  # fmt: skip
    slots = [Slot(table, word, labels.get(n, ("", {}))[1], PUNCTUAL if n == ev.MARK else 0) for n, table, word in wanted]
    slot_of = {n: slot for slot, (n, _, _) in enumerate(wanted) if n >= 0}
    for number, (label, values) in labels.items():
        if label.startswith(_NVTX) and number not in slot_of and number not in _DEPTHS:
            slot_of[number] = len(slots)
            slots.append(Slot("ranges", label.removeprefix(_NVTX) if label != _DEFAULT else None, values, CHANGES))
    place_of = {number: place for place, number in enumerate(KEPT)}
    types = sorted({*slot_of, *place_of})
    return Slots(
        tuple(slots),
        np.array(types, np.int64),
        np.array([slot_of.get(n, -1) for n in types], np.int64),
        np.array([place_of.get(n, -1) for n in types], np.int64),
    )
