from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

_Bool: TypeAlias = NDArray[np.bool_]
_Float64: TypeAlias = NDArray[np.float64]
_Int64: TypeAlias = NDArray[np.int64]
_Int32: TypeAlias = NDArray[np.int32]

def median(values: _Float64, count: int) -> float: ...
def medians(values: _Float64, first: _Int64, room: _Float64, out: _Float64) -> None: ...
def robust_line(x: _Float64, y: _Float64, least: int, close: _Bool, room: _Float64, line: _Float64) -> bool: ...
def count_differences(
    partners: _Float64, times: _Float64, lows: _Int64, highs: _Int64, least: float, bins_per_ns: float, out_counts: _Int32
) -> None: ...
def widen_bins(fine: _Int32, factor: int, out_counts: _Int64, out_densest: _Int64) -> None: ...
def select_differences(
    partners: _Float64,
    times: _Float64,
    lows: _Int64,
    highs: _Int64,
    least: float,
    bins_per_ns: float,
    wanted: _Bool,
    out: _Float64,
) -> int: ...
def all_differences(partners: _Float64, times: _Float64, lows: _Int64, highs: _Int64, out: _Float64) -> None: ...
def pile_up(
    values: _Float64,
    least: float,
    fine_per_ns: float,
    factor: int,
    out_bins: _Int64,
    out_begins: _Int64,
    out_counts: _Int64,
    out_densest: _Int64,
) -> int: ...
def densest_windows(
    values: _Float64,
    begins: _Int64,
    counts: _Int64,
    widths: _Float64,
    worths: _Float64,
    reach: _Int64,
    out_worths: _Float64,
    out_medians: _Float64,
) -> None: ...
def pick_apart(values: _Float64, distance: float, out: _Int64) -> int: ...
def sharpest_window(values: _Float64, width: float, around: float) -> tuple[int, float, float]: ...
