"""A trace in one pass: its events in blocks of integers, its strings by code, and the rest of its top level."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from alltrace.readers.kineto import scanner
from alltrace.readers.kineto.fields import COLUMNS, ROWS, key_tables
from alltrace.readers.kineto.scanner import NEW_COUNT, ROW_COUNT, TEXT_COUNT
from alltrace.readers.kineto.text import PIECE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from alltrace.readers.kineto.text import Text

_BLOCK = 32768  # events
_NEW = 16384  # new strings of a call
_MOST_OF_AN_EVENT = 16 << 20
_MOST_OF_METADATA = 64 << 20
_BARE = re.compile(rb"-?\b(?:nan|inf(?:inity)?)\b", re.IGNORECASE)


@dataclass
class Block:
    """Some events.

    Attributes:
        values: One row per field (`fields.COLUMNS`) and one column per event; `scanner.NOTHING` where an event lacks a field.
        first: The number of the first event among those of the trace, from 1.
    """

    values: Any
    first: int

    def __getitem__(self, name: str) -> Any:
        return self.values[COLUMNS[name]]


@dataclass
class Scan:
    """What is read beside the events.

    Attributes:
        metadata: The members of the top level beside `traceEvents`, as JSON has them.
        texts: The strings by code, as bytes.
        events: Whole events read.
        broken: Events that are no JSON and were passed over.
        whole: Whether the text ended as it should.
        found: Whether there was an array of events.
    """

    metadata: dict[str, Any] = field(default_factory=dict)
    texts: list[bytes] = field(default_factory=list)
    events: int = 0
    broken: int = 0
    whole: bool = False
    found: bool = False


class Scanner:
    """Reads one trace.

    Attributes:
        scan: Complete once `blocks` has ended.
        array_closed: Whether the list of events had an end.
    """

    def __init__(self, text: Text, most: int | None = None) -> None:
        """Make a scanner of `text`, of its first `most` bytes where given."""
        self.scan = Scan()
        self._text = text
        self._left = most
        self._data = np.empty(0, np.uint8)
        self._at = 0
        self._ended = False
        self.array_closed = False
        self._keys = key_tables()
        self._slots, self._codes = np.zeros(1 << 16, np.uint64), np.zeros(1 << 16, np.int64)
        self._new_at, self._new_length = np.zeros(_NEW, np.int64), np.zeros(_NEW, np.int64)
        self._state = np.zeros(3, np.int64)

    def _more(self) -> bool:
        """Get more of the text behind what is not used yet; false at its end."""
        if self._ended:
            return False
        piece = self._text.read() if self._left is None else self._text.read(min(self._left, PIECE))
        if self._left is not None:
            self._left -= len(piece)
        if not piece:
            self._ended = True
            return False
        self._data = np.concatenate((self._data[self._at :], np.frombuffer(piece, np.uint8)))
        self._at = 0
        return True

    def _byte(self) -> int:
        """The next byte that is not white space, which stays; -1 at the end."""
        while True:
            self._at = int(scanner.blank(self._data, self._at, len(self._data)))
            if self._at < len(self._data):
                return int(self._data[self._at])
            if not self._more():
                return -1

    def blocks(self) -> Iterator[Block]:
        """The events, in the order of the trace."""
        if self._byte() == 0xEF:  # a byte-order mark
            self._at += 3
        first = self._byte()
        if first == ord("["):
            self.scan.found = True
            self._at += 1
            yield from self._array()
        elif first == ord("{"):
            self._at += 1
            yield from self._object()

    def _object(self) -> Iterator[Block]:
        while True:
            byte = self._byte()
            if byte == ord("}"):
                self.scan.whole = True
                return
            if byte == ord(","):
                self._at += 1
                continue
            key = self._value() if byte == ord('"') else None
            if key is None or self._byte() != ord(":"):
                return
            self._at += 1
            if key == b'"traceEvents"' and self._byte() == ord("["):
                self.scan.found = True
                self._at += 1
                yield from self._array()
                if not self.scan.whole:
                    return
                self.scan.whole = False
                continue
            self._byte()
            value = self._value()
            if value is None:
                return
            self.scan.metadata[key[1:-1].decode("utf-8", "replace")] = _parsed(value)

    def _value(self) -> bytes | None:
        """The JSON text of the value that begins here; None where it is broken, too long or cut short."""
        while True:
            stop = int(scanner.skip_value(self._data, self._at, len(self._data)))
            if stop >= 0:
                found = self._data[self._at : stop].tobytes()
                self._at = stop
                return found
            if stop == -2 or len(self._data) - self._at > _MOST_OF_METADATA or not self._more():
                return None

    def _array(self) -> Iterator[Block]:
        rows = np.full((ROWS, _BLOCK), scanner.NOTHING)
        scan, state = self.scan, self._state
        while True:
            at, why = scanner.scan(
                self._data, self._at, len(self._data), *self._keys, rows,
                self._slots, self._codes, self._new_at, self._new_length, state,
            )  # fmt: skip
            self._take_texts()
            self._at = int(at)
            if why == scanner.FULL:
                if state[TEXT_COUNT] + 64 > len(self._slots) // 2:
                    self._widen()
                if state[ROW_COUNT] == _BLOCK:
                    yield self._block(rows)
                    rows.fill(scanner.NOTHING)
            elif why == scanner.CLOSED:
                self.array_closed = scan.whole = True
                break
            elif why == scanner.BROKEN or len(self._data) - self._at > _MOST_OF_AN_EVENT or not self._more():
                if why == scanner.MORE and self._byte() < 0:
                    break  # cut short between two events
                rows[:, state[ROW_COUNT]] = scanner.NOTHING  # what the broken event left there
                scan.broken += 1
                if not self._resume():
                    break
        if state[ROW_COUNT]:
            yield self._block(rows)

    def _resume(self) -> bool:
        """Go to the next event after one that is broken; false where there is none."""
        while True:
            found = int(scanner.next_event(self._data, self._at, len(self._data)))
            if found >= 0:
                self._at = found
                return True
            self._at = max(self._at, len(self._data) - 4096)
            if not self._more():
                return False

    def _block(self, rows: Any) -> Block:
        count = int(self._state[ROW_COUNT])
        block = Block(rows[:, :count], self.scan.events + 1)
        self.scan.events += count
        self._state[ROW_COUNT] = 0
        return block

    def _take_texts(self) -> None:
        count = int(self._state[NEW_COUNT])
        if count:
            data = self._data
            places = zip(self._new_at[:count].tolist(), self._new_length[:count].tolist(), strict=True)
            self.scan.texts.extend([data[at : at + length].tobytes() for at, length in places])
            self._state[NEW_COUNT] = 0

    def _widen(self) -> None:
        slots, codes = np.zeros(4 * len(self._slots), np.uint64), np.zeros(4 * len(self._slots), np.int64)
        scanner.rehash(self._slots, self._codes, slots, codes)
        self._slots, self._codes = slots, codes


def decoded(text: bytes) -> str:
    """The string that JSON's text between two quotes stands for; an escape that JSON does not know stands for itself."""
    if b"\\" not in text:
        return text.decode("utf-8", "replace")
    try:
        return str(json.loads('"' + text.decode("utf-8", "replace") + '"', strict=False)).encode("utf-8", "replace").decode()
    except ValueError:
        return text.decode("utf-8", "replace")


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(_BARE.sub(b"null", text).decode("utf-8", "replace") if b'"' not in text else text, strict=False)
    except (ValueError, RecursionError):
        return None
