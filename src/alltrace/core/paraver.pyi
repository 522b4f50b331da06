from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

_Bool: TypeAlias = NDArray[np.bool_]
_Int64: TypeAlias = NDArray[np.int64]

TRACK_SHIFT: int
QUERY_SHIFT: int
OWNER_SHIFT: int

PUNCTUAL: int
CHANGES: int

OPEN_TIME: int
OPEN_VALUE: int
OPEN_END: int
OPEN_CALL: int
OPEN_BELOW: int
OPEN_OTHERS: int

SLOT: int
THREAD: int
BEGIN: int
END: int
VALUE: int
CALL: int
OTHERS: int

FREE: int
CALLS: int
ROWS: int
LOST: int

def innermost(
    first: int,
    groups: _Int64,
    starts: _Int64,
    ends: _Int64,
    values: _Int64,
    depths: _Int64,
    open_ends: _Int64,
    open_values: _Int64,
    count: int,
    out_groups: _Int64,
    out_times: _Int64,
    out_values: _Int64,
    out_depths: _Int64,
) -> tuple[int, int]: ...
def strongest(
    times: _Int64,
    codes: _Int64,
    more: _Int64,
    end: int,
    rest: _Int64,
    open_counts: _Int64,
    since: _Int64,
    states: _Int64,
    ended: _Int64,
    out_tracks: _Int64,
    out_starts: _Int64,
    out_ends: _Int64,
    out_states: _Int64,
    out_waits: _Int64,
    out_waited: _Int64,
) -> tuple[int, int]: ...
def overlapping(objects: _Int64, starts: _Int64, ends: _Int64, last_ends: _Int64, out: _Bool) -> int: ...
def parse_lines(text: NDArray[np.uint8], values: _Int64, offsets: _Int64, wrong: _Bool) -> int: ...
def pair(
    first: int,
    values: _Int64,
    offsets: _Int64,
    wrong: _Bool,
    first_threads: _Int64,
    types: _Int64,
    slots: _Int64,
    kinds: _Int64,
    columns: _Int64,
    heads: _Int64,
    waiting: _Int64,
    depths: _Int64,
    places: _Int64,
    out: _Int64,
    counters: _Int64,
    length_type: int,
    call_slot: int,
    last_work: int,
    first_tag: int,
) -> int: ...
