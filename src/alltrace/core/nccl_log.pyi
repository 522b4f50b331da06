from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

_Bytes: TypeAlias = bytes | memoryview | NDArray[np.uint8]
_Int64: TypeAlias = NDArray[np.int64]
_UInt64: TypeAlias = NDArray[np.uint64]

FIELDS: tuple[str, ...]
"""The fields of a call, by their places in a row."""

ABSENT: int
"""The value of a field that the record does not have."""

def word_hash(word: _Bytes) -> int: ...
def lead_hash(buf: _Bytes, begin: int, start: int, stop: int) -> int: ...
def token_start(buf: _Bytes, begin: int, mark: int) -> int: ...
def time_of(lead: _Bytes) -> int: ...
def put(keys: _UInt64, values: _Int64, key: int, value: int) -> None: ...
def put_communicator(keys: _UInt64, values: _Int64, process: int, pointer: int, value: int) -> None: ...
def scan(
    block: _Bytes,
    first_line: int,
    times: bool,
    operations: _UInt64,
    lead_keys: _UInt64,
    lead_tokens: _Int64,
    token_process: _Int64,
    comm_keys: _UInt64,
    comm_values: _Int64,
    comms: _Int64,
    comm_count: int,
    calls: _Int64,
    careful: _Int64,
) -> tuple[int, int, int, int, int, int]: ...
