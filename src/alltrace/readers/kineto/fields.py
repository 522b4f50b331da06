"""Which members of an event are read, their names over the years, and where the scanner puts them."""

from __future__ import annotations

from collections.abc import Sequence

from alltrace.core.kineto import IDENTITY, INSIDE, NUMBER, RAW, TEXT, TIME, TRIPLE

Field = tuple[str, int, tuple[str, ...]]

EVENT: tuple[Field, ...] = (
    ("ph", TEXT, ("ph",)),
    ("cat", TEXT, ("cat",)),
    ("name", TEXT, ("name",)),
    ("pid", IDENTITY, ("pid",)),
    ("tid", NUMBER, ("tid",)),
    ("ts", TIME, ("ts",)),
    ("dur", TIME, ("dur",)),
    ("arguments", RAW, ()),
)
_ARGUMENTS: tuple[Field, ...] = (
    ("external", NUMBER, ("External id", "external id")),
    ("correlation", NUMBER, ("correlation",)),
    ("device", NUMBER, ("device",)),
    ("context", NUMBER, ("context",)),
    ("stream", NUMBER, ("stream",)),
    ("bytes", NUMBER, ("bytes",)),
    ("registers", NUMBER, ("registers per thread",)),
    ("shared", NUMBER, ("shared memory",)),
    ("occupancy", NUMBER, ("est. achieved occupancy %",)),
    ("grid", TRIPLE, ("grid",)),
    ("block", TRIPLE, ("block",)),
    ("graph", NUMBER, ("graph id",)),
    ("graph_node", NUMBER, ("graph node id",)),
    ("event", NUMBER, ("wait_on_cuda_event_id", "cuda_event_id")),
    ("record", NUMBER, ("wait_on_cuda_event_record_corr_id",)),
    ("record_stream", NUMBER, ("wait_on_stream",)),
    ("label", TEXT, ("name",)),
    ("kind", TEXT, ("kind",)),
    ("dims", RAW, ("Input Dims", "Input dims")),
    ("types", RAW, ("Input type",)),
    ("values", RAW, ("Concrete Inputs",)),
    ("strides", RAW, ("Input Strides",)),
    ("hierarchy", TEXT, ("Module Hierarchy",)),
    ("stack", TEXT, ("Call stack",)),
    ("autograd", NUMBER, ("Sequence number",)),
    ("collective", TEXT, ("Collective name",)),
    ("dtype", TEXT, ("dtype",)),
    ("in_count", NUMBER, ("In msg nelems", "In msg size")),
    ("out_count", NUMBER, ("Out msg nelems", "Out msg size")),
    ("group_size", NUMBER, ("Group size", "Group Size")),
    ("group", TEXT, ("Process Group Name",)),
    ("members", TEXT, ("Process Group Ranks",)),
    ("sequence", NUMBER, ("Seq", "seq", "Sequence Number")),
    ("source", NUMBER, ("Src Rank",)),
    ("target", NUMBER, ("Dst Rank",)),
    ("rank", NUMBER, ("Rank",)),
    ("root", NUMBER, ("Root", "Root Rank")),
    ("device_type", NUMBER, ("Device Type",)),
    ("device_id", NUMBER, ("Device Id",)),
    ("address", NUMBER, ("Addr",)),
    ("size", NUMBER, ("Bytes",)),
    ("allocated", NUMBER, ("Total Allocated",)),
    ("reserved", NUMBER, ("Total Reserved",)),
    ("merged_rank", NUMBER, ("rank",)),
    ("merged_pid", NUMBER, ("pid_raw",)),
)


class Fields:
    """The fields of events and of arguments, each with how it is written and its keys; `whole`: a category as text."""

    def __init__(self, event: Sequence[Field], arguments: Sequence[Field], whole: bytes = b"") -> None:
        self.columns: dict[str, int] = {}  # field to its row in the scanner's table; a triple takes three
        self.rows = 0
        # level (0 in an event, 1 in its arguments), key, how the value is written, row in the table
        self.keys: list[tuple[int, bytes, int, int]] = [(0, b"args", INSIDE, 0)]
        for level, fields in enumerate((event, arguments)):
            for name, kind, keys in fields:
                self.columns[name] = self.rows
                self.keys += [(level, key.encode(), kind, self.rows) for key in keys]
                self.rows += 3 if kind == TRIPLE else 1
        self.whole = whole


KINETO = Fields(EVENT, _ARGUMENTS, b"cuda_profiler_range")
"""Those of PyTorch's profiler, of which events with counters have names of metrics as arguments."""
