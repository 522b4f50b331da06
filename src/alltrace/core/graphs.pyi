from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

_Int32: TypeAlias = NDArray[np.int32]
_Int64: TypeAlias = NDArray[np.int64]

def topological_order(waiting: _Int32, first_leaving: _Int32, targets: _Int32, out_order: _Int32) -> int: ...
def longest_paths(
    order: _Int32, first: _Int32, sources: _Int32, weights: _Int64, times: _Int64, out_via: _Int64
) -> None: ...
def latest_times(order: _Int32, first: _Int32, sources: _Int32, weights: _Int64, latest: _Int64) -> None: ...
