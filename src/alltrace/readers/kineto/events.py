"""A trace in one pass: its events in blocks of integers, its strings by code, and the rest of its top level."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from alltrace.core import kineto as core
from alltrace.readers.kineto.fields import KINETO, Fields
from alltrace.readers.text import PIECE, Text
from alltrace.trace.names import text_of_bytes

_BLOCK = 32768  # events
_MOST_OF_AN_EVENT = 16 << 20
_MOST_OF_METADATA = 64 << 20
_BARE = re.compile(rb"-?\b(?:nan|inf(?:inity)?)\b", re.IGNORECASE)


@dataclass
class Block:
    """Some events."""

    values: Any  # one row per field and one column per event; `core.kineto.NOTHING` if an event lacks it
    first: int  # the number of the first event in the trace, from 1
    columns: Mapping[str, int] = field(default_factory=lambda: KINETO.columns)  # the row of each field

    def __getitem__(self, name: str) -> Any:
        return self.values[self.columns[name]]


@dataclass
class Scan:
    """What is read in addition to the events."""

    # the top-level members other than `traceEvents`, as JSON values
    metadata: dict[str, Any] = field(default_factory=dict)
    texts: list[bytes] = field(default_factory=list)  # the strings by code, as bytes
    events: int = 0  # whole events read
    broken: int = 0  # events that are not valid JSON and were passed over
    whole: bool = False  # whether the text ended as it should
    found: bool = False  # whether there was an array of events


class Scanner:
    """Reads one trace; `scan` is complete once `blocks` ended, `array_closed` whether the list of events had an end."""

    def __init__(self, text: Text, most: int | None = None, fields: Fields = KINETO) -> None:
        self.scan: Scan = Scan()
        self._text = text
        self._left = most
        self._data = np.empty(0, np.uint8)
        self._at = 0
        self._ended = False
        self.array_closed: bool = False
        self._fields = fields
        self._scanner = core.EventScanner(fields.keys, fields.whole, fields.columns["cat"], fields.columns["arguments"])

    def _more(self) -> bool:
        """Read more text after the unused part; false at its end."""
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
            self._at = core.blank(self._data, self._at, len(self._data))
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

    def goes_on(self) -> bool:
        """Whether something but white space and zeros follows what was read."""
        while (byte := self._byte()) == 0:
            self._at += 1
        return byte >= 0

    def _object(self) -> Iterator[Block]:
        while True:
            byte = self._byte()
            if byte == ord("}"):
                self._at += 1
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
        """The JSON text of the value that begins here; None if it is broken, too long or cut short."""
        while True:
            stop = core.skip_value(self._data, self._at, len(self._data))
            if stop >= 0:
                text = self._data[self._at : stop].tobytes()
                self._at = stop
                return text
            if stop == -2 or len(self._data) - self._at > _MOST_OF_METADATA or not self._more():
                return None

    def _array(self) -> Iterator[Block]:
        rows = np.full((self._fields.rows, _BLOCK), core.NOTHING)
        scan, count = self.scan, 0
        while True:
            self._at, why, count, texts = self._scanner.scan(self._data, self._at, len(self._data), rows, count)
            scan.texts.extend(texts)
            if why == core.FULL:
                if count == _BLOCK:
                    yield self._block(rows)
                    rows.fill(core.NOTHING)
                    count = 0
            elif why == core.CLOSED:
                self.array_closed = scan.whole = True
                break
            elif why == core.BROKEN or len(self._data) - self._at > _MOST_OF_AN_EVENT or not self._more():
                if why == core.MORE and self._byte() < 0:
                    break  # cut short between two events
                rows[:, count] = core.NOTHING  # what the broken event left there
                scan.broken += 1
                if not self._resume():
                    break
        if count:
            yield self._block(rows[:, :count])

    def _resume(self) -> bool:
        """Go to the next event after one that is broken; false if there is none."""
        while True:
            at = core.next_event(self._data, self._at, len(self._data))
            if at >= 0:
                self._at = at
                return True
            self._at = max(self._at, len(self._data) - 4096)
            if not self._more():
                return False

    def _block(self, rows: Any) -> Block:
        block = Block(rows, self.scan.events + 1, self._fields.columns)
        self.scan.events += rows.shape[1]
        return block


def decoded(text: bytes) -> str:
    """The string for JSON's text between two quotes; an escape unknown to JSON stays as it is."""
    if b"\\" not in text:
        return text_of_bytes(text)
    try:
        decoded = str(json.loads('"' + text.decode("utf-8", "surrogateescape") + '"', strict=False))
    except ValueError:
        return text_of_bytes(text)
    # what is not UTF-8, or half of a surrogate pair, is shown escaped
    return decoded.encode("utf-8", "backslashreplace").decode()


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(
            _BARE.sub(b"null", text).decode("utf-8", "replace") if b'"' not in text else text, strict=False
        )
    except (ValueError, RecursionError):
        return None
