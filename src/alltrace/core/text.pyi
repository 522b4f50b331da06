from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

_Bytes: TypeAlias = NDArray[np.uint8]
_Int8: TypeAlias = NDArray[np.int8]
_Int64: TypeAlias = NDArray[np.int64]

NUMBER: int
NUMBER_OR_NULL: int
NAME: int
CELL: int

TEXT: int
INT: int
MICROSECONDS: int
VARINT: int
FIXED64: int

STOP: int
VALUE: int
LATER: int
NEXT: int
AGAIN: int
OBJECT: int
LOW: int
HIGH: int
LAST_HIGH: int

NULL_NUMBER: int

def write_csv_rows(
    kinds: _Int8, values: _Int64, names: _Bytes, name_offsets: _Int64, texts: _Bytes, out: _Bytes
) -> int: ...
def write_records(
    kinds: _Int8,
    sources: _Int64,
    constants: _Int64,
    values: _Int64,
    offsets: _Int64,
    texts: _Bytes,
    lengths: _Int64,
    out: _Bytes,
) -> int: ...
def gather_records(texts: _Bytes, starts: _Int64, lengths: NDArray[np.int32], order: _Int64, out: _Bytes) -> None: ...
def columns_in_order(rows: _Int64, order: _Int64, few: int, out: _Int64) -> bool: ...
def write_paraver_lines(
    rows: _Int64,
    order: _Int64,
    first: int,
    heads: _Bytes,
    head_offsets: _Int64,
    objects: int,
    variants: _Int64,
    steps: _Int64,
    kinds: _Int8,
    texts: _Bytes,
    text_offsets: _Int64,
    out: _Bytes,
    most_bytes: int,
    first_shapes: _Int64 | None = None,
    known_as: _Int64 | None = None,
) -> tuple[int, int]: ...
