from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

_Bytes: TypeAlias = NDArray[np.uint8]
_Int64: TypeAlias = NDArray[np.int64]

INTERIOR: Final = 0x05
LEAF: Final = 0x0D

INT8: Final = 0
INT16: Final = 1
INT32: Final = 2
INT64: Final = 3
FLOAT64: Final = 4
BYTES: Final = 5

NOT_A_PAGE: Final = 1
TOO_MANY_CELLS: Final = 2
CELL_OUTSIDE: Final = 3
NO_SUCH_PAGE: Final = 4
USED_TWICE: Final = 5
CELL_TOO_LARGE: Final = 6
OUT_OF_ORDER: Final = 7
RECORD_TOO_LARGE: Final = 8
OVERLAP: Final = 9
BAD_HEADER: Final = 10
BAD_VALUES: Final = 11
EMPTY_PAGE: Final = 12
BAD_SPACE: Final = 13
NULL_VALUE: Final = 14
SURPRISE: Final = 100

def children(
    buf: _Bytes,
    pages: int,
    page_size: int,
    usable: int,
    page_count: int,
    lock_page: int,
    seen: _Bytes,
    most: _Int64,
    out: NDArray[np.uint32],
    out_most: _Int64,
    info: _Int64,
) -> int: ...
def local_size(size: int, usable: int) -> int: ...
def cells(
    buf: _Bytes,
    pages: int,
    page_size: int,
    usable: int,
    alone: bool,
    most: _Int64,
    start: _Int64,
    size: _Int64,
    rowid: _Int64,
    overflow: _Int64,
    info: _Int64,
) -> int: ...
def decode(
    buf: _Bytes,
    start: _Int64,
    size: _Int64,
    rowid: _Int64,
    low: int,
    high: int,
    fields: _Int64,
    rowid_kind: int,
    rowid_begin: int,
    first_row: int,
    text_at: _Int64,
    text_size: _Int64,
    nulls: _Int64,
    info: _Int64,
    out8: NDArray[np.int8],
    out16: NDArray[np.int16],
    out32: NDArray[np.int32],
    out64: _Int64,
    bits: _Bytes,
) -> int: ...
def gather(
    buf: _Bytes, at: _Int64, size: _Int64, count: int, offsets: NDArray[np.int32], to: int, data: _Bytes
) -> bool: ...
