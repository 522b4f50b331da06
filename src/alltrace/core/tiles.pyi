from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

_Int64: TypeAlias = NDArray[np.int64]
_Int8: TypeAlias = NDArray[np.int8]

def add_exclusive_time(
    starts: _Int64, ends: _Int64, kinds: _Int8, first: int, last: int, level: int, reach: _Int64, out: _Int64
) -> None: ...
def assign_lanes(starts: _Int64, ends: _Int64, free_from: _Int64, out_lanes: _Int8) -> None: ...
