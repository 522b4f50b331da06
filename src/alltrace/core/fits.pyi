from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

_Float64: TypeAlias = NDArray[np.float64]
_Int64: TypeAlias = NDArray[np.int64]

def median(values: _Float64, count: int) -> float: ...
def medians(values: _Float64, first: _Int64, room: _Float64, out: _Float64) -> None: ...
