"""Which members of an event are read, under which names profilers wrote them over the years, and where the scanner puts them."""

from __future__ import annotations

from alltrace.core.kineto import INSIDE, NUMBER, RAW, TEXT, TIME, TRIPLE

_EVENT: tuple[tuple[str, int, tuple[str, ...]], ...] = (
    ("ph", TEXT, ("ph",)),
    ("cat", TEXT, ("cat",)),
    ("name", TEXT, ("name",)),
    ("pid", NUMBER, ("pid",)),
    ("tid", NUMBER, ("tid",)),
    ("ts", TIME, ("ts",)),
    ("dur", TIME, ("dur",)),
    ("arguments", RAW, ()),
)
_ARGUMENTS: tuple[tuple[str, int, tuple[str, ...]], ...] = (
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
)


def _placed() -> dict[str, int]:
    at: dict[str, int] = {}
    place = 0
    for name, kind, _ in (*_EVENT, *_ARGUMENTS):
        at[name] = place
        place += 3 if kind == TRIPLE else 1
    return at


COLUMNS = _placed()
"""Field to its row in the scanner's table; `grid` and `block` take three."""

WHOLE = b"cuda_profiler_range"
"""The category of events with names of metrics as arguments; their text is the field `arguments`."""

ROWS = sum(3 if kind == TRIPLE else 1 for _, kind, _ in (*_EVENT, *_ARGUMENTS))

KEYS = (
    (0, b"args", INSIDE, 0),
    *(
        (level, key.encode(), kind, COLUMNS[name])
        for level, fields in enumerate((_EVENT, _ARGUMENTS))
        for name, kind, keys in fields
        for key in keys
    ),
)
"""What the scanner looks for: level (0 in an event, 1 in its arguments), key, how the value is written, row in its table."""
