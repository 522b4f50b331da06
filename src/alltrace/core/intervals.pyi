from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

_Int64: TypeAlias = NDArray[np.int64]

def merge_sorted(starts: _Int64, ends: _Int64, out_starts: _Int64, out_ends: _Int64) -> int: ...
def intersect(
    a_starts: _Int64, a_ends: _Int64, b_starts: _Int64, b_ends: _Int64, out_starts: _Int64, out_ends: _Int64
) -> int: ...
def overlap(
    starts: _Int64, ends: _Int64, m_starts: _Int64, m_ends: _Int64, covered: NDArray[np.uint64], out: _Int64
) -> bool: ...
def nest(
    wanted: NDArray[np.bool_],
    tracks: _Int64,
    starts: _Int64,
    ends: _Int64,
    first_row: int,
    frontier: _Int64,
    state: _Int64,
    depths: _Int64,
    parents: _Int64,
    crosses: NDArray[np.uint8],
    slack: int,
) -> None: ...
def lanes(
    groups: _Int64,
    starts: _Int64,
    ends: _Int64,
    most_together: int,
    first: _Int64,
    known: _Int64,
    open_: _Int64,
    state: _Int64,
    out_lanes: _Int64,
    out_orders: _Int64,
) -> None: ...
def innermost(
    r_tracks: _Int64,
    r_starts: _Int64,
    r_ends: _Int64,
    q_tracks: _Int64,
    q_starts: _Int64,
    q_ends: _Int64,
    frontier: _Int64,
    state: _Int64,
    rows: _Int64,
) -> None: ...
def enclosing(
    r_tracks: _Int64,
    r_starts: _Int64,
    r_ends: _Int64,
    q_tracks: _Int64,
    q_starts: _Int64,
    q_ends: _Int64,
    active: _Int64,
    state: _Int64,
    out_pairs: _Int64,
) -> None: ...
