from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

_Float64: TypeAlias = NDArray[np.float64]
_Int64: TypeAlias = NDArray[np.int64]

def match_scores(
    ops: _Int64,
    sizes: _Int64,
    durations: _Float64,
    lanes: _Int64,
    call_ops: _Int64,
    call_sizes: _Int64,
    kinds: _Int64,
    kind_durations: _Float64,
    kind_lanes: _Int64,
    first: int,
    alike: float,
    out: _Float64,
) -> None: ...
def prefix_scores(scores: _Float64, calls: int, first: int, out: _Float64) -> None: ...
def suffix_scores(scores: _Float64, calls: int, first: int, out: _Float64) -> None: ...
def best_path(scores: _Float64, prefix: _Float64, calls: int, first: int, out: _Int64) -> None: ...
def certain_matches(
    scores: _Float64,
    prefix: _Float64,
    suffix: _Float64,
    matches: _Int64,
    kinds: _Int64,
    first: int,
    margin: float,
    out: NDArray[np.bool_],
) -> None: ...
def cheapest_path(costs: _Float64, change: float, total: _Float64, came: NDArray[np.int32], out: _Int64) -> None: ...
