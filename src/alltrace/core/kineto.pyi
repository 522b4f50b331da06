from collections.abc import Collection
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

_Bytes: TypeAlias = bytes | NDArray[np.uint8]

NUMBER: int
TIME: int
TEXT: int
RAW: int
TRIPLE: int
IDENTITY: int
INSIDE: int
"""How a field's value is written: as an integer; in thousandths; as the code of a string; as the code of a value's JSON
text; as three integers in three rows; as an integer, or `IDENTITIES` minus the code of a string. `INSIDE` is that with
the arguments."""

MORE: int
CLOSED: int
FULL: int
BROKEN: int
"""Why a scan stopped: the event at the position goes on past the buffer; the array ended; no room; the event is not
valid JSON."""

NOTHING: int
"""What a field holds that the event lacks."""

IDENTITIES: int
"""An `IDENTITY` is a string if it is below this, the one of code 0."""

class EventScanner:
    def __init__(
        self,
        fields: Collection[tuple[int, bytes, int, int]],
        whole: _Bytes = ...,
        category_row: int = ...,
        whole_row: int = ...,
    ) -> None: ...
    def scan(
        self, buf: _Bytes, at: int, end: int, rows: NDArray[np.int64], row: int
    ) -> tuple[int, int, int, list[bytes]]: ...

def fingerprint(text: _Bytes) -> int: ...
def blank(buf: _Bytes, at: int, end: int) -> int: ...
def skip_value(buf: _Bytes, at: int, end: int) -> int: ...
def next_event(buf: _Bytes, at: int, end: int) -> int: ...
