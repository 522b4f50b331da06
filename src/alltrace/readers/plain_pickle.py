"""Decodes pickles of plain data, and nothing else.

A pickle is a program: unpickling an untrusted one runs its code. A compiled loop decodes what PyTorch writes. Of any
other pickle, `pickletools` takes the program apart, which runs none of it, and of its instructions only those are
followed that build dicts, lists, tuples, texts, numbers, truth values and None. Any other, above all those that name a
class or call something, ends it.
"""

import pickletools
import struct
import warnings
from collections.abc import Callable
from typing import Any

from alltrace.core.pickles import plain_data

_LONGEST_NUMBER_BITS = 512
_KEYS = (str, int, float, type(None))
_MARK = object()
FILLING = b"\0 \r\n\t"  # what may fill the end of a file


class PickleRefusedError(ValueError):
    """The pickle is not plain data; the text says what was found and where."""


class PickleDamagedError(PickleRefusedError):
    """The pickle is damaged or ends early; `before` is the plain data before that place."""

    def __init__(self, text: str, before: Any) -> None:
        super().__init__(text)
        self.before = before


def decode(data: bytes) -> Any:
    """The plain data in a pickle. Raises `PickleRefusedError`: other data, or more. Raises `PickleDamagedError`."""
    value, end = decode_first(data)
    if end < len(data) and data[end:].strip(FILLING):
        raise PickleRefusedError(f"more follows the end of its pickle at byte {end}")
    return value


def decode_first(data: bytes) -> tuple[Any, int]:
    """The plain data in the pickle that data begins with, and where that ends; for errors see `decode`."""
    plain = plain_data(data)
    if plain is not None:
        return plain
    machine = _Machine()  # it says what is wrong, and keeps what comes before that
    try:
        with warnings.catch_warnings():  # `pickletools` warns of a text with an escape that Python does not know
            warnings.simplefilter("ignore", DeprecationWarning)
            return machine.run(data), machine.at + 1
    except (IndexError, struct.error, KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        if isinstance(error, PickleRefusedError):
            raise
        raise PickleDamagedError(f"it is damaged or ends early after byte {machine.at}", machine.finished()) from error


class _Machine:
    def __init__(self) -> None:
        self.at = 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self, data: bytes) -> Any:
        push = self.stack.append
        for opcode, argument, place in pickletools.genops(data):
            self.at, name = place or 0, opcode.name
            if name in _VALUES:
                push(argument)
            elif (step := _STEPS.get(name)) is not None:
                step(self, argument)
            else:
                raise PickleRefusedError(
                    f"it has the instruction {name} at byte {place}, which plain data does not need"
                )
        value = self.stack.pop()
        if value is _MARK:
            raise PickleRefusedError(f"it is damaged at byte {self.at}")
        return value

    def finished(self) -> Any:
        """What was read until now: open dicts and lists with their content, but open elements of lists."""
        open_value: list[Any] = []  # the innermost container that is not closed, once it is known
        while _MARK in self.stack:
            items = self.since_mark() + open_value
            container = self.stack.pop() if self.stack else None
            if type(container) is list:
                container.extend(items[: len(items) - len(open_value)])
            elif type(container) is dict:
                pairs = zip(items[::2], items[1::2], strict=False)
                container.update((key, value) for key, value in pairs if isinstance(key, _KEYS))
            open_value = [container] if type(container) in (list, dict) else []
        return open_value[0] if open_value else self.stack[0] if self.stack else None

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def number(self, value: int) -> None:
        if value.bit_length() > _LONGEST_NUMBER_BITS:
            raise PickleRefusedError(f"it has a number of {value.bit_length()} bits")
        self.push(value)

    def since_mark(self) -> list[Any]:
        for n in range(len(self.stack) - 1, -1, -1):
            if self.stack[n] is _MARK:
                items = self.stack[n + 1 :]
                del self.stack[n:]
                return items
        raise ValueError("no mark")

    def group(self, size: int) -> None:
        items = self.stack[len(self.stack) - size :]
        if len(items) < size or any(item is _MARK for item in items):
            raise ValueError("too few items")
        del self.stack[len(self.stack) - size :]
        self.push(tuple(items))

    def append(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not list:
            raise TypeError("no list")
        target.extend(items)

    def set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not dict or len(items) % 2:
            raise TypeError("no dict")
        # a tuple of tuples of tuples ... would be hashed level by level, which Python does without looking how deep
        if not all(isinstance(key, _KEYS) for key in items[::2]):
            raise PickleRefusedError("it has a dict whose keys are neither texts nor numbers")
        target.update(zip(items[::2], items[1::2], strict=True))

    def make_dict(self) -> None:
        items = self.since_mark()
        self.push({})
        self.set_items(items)

    def take_last(self, count: int) -> list[Any]:
        items = self.stack[-count:]
        del self.stack[-count:]
        return items


_VALUES = frozenset(
    "BINFLOAT FLOAT BININT BININT1 BININT2 SHORT_BINUNICODE BINUNICODE BINUNICODE8 UNICODE SHORT_BINSTRING "
    "BINSTRING".split()
)
"""Instructions that push their argument."""

_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), lambda _m, _a: None),
    "MARK": lambda m, _: m.push(_MARK),
    "EMPTY_DICT": lambda m, _: m.push({}),
    "EMPTY_LIST": lambda m, _: m.push([]),
    "EMPTY_TUPLE": lambda m, _: m.push(()),
    "NONE": lambda m, _: m.push(None),
    "NEWTRUE": lambda m, _: m.push(True),
    "NEWFALSE": lambda m, _: m.push(False),
    "TUPLE": lambda m, _: m.push(tuple(m.since_mark())),
    "TUPLE1": lambda m, _: m.group(1),
    "TUPLE2": lambda m, _: m.group(2),
    "TUPLE3": lambda m, _: m.group(3),
    "LIST": lambda m, _: m.push(m.since_mark()),
    "DICT": lambda m, _: m.make_dict(),
    "APPEND": lambda m, _: m.append(m.take_last(1)),
    "APPENDS": lambda m, _: m.append(m.since_mark()),
    "SETITEM": lambda m, _: m.set_items(m.take_last(2)),
    "SETITEMS": lambda m, _: m.set_items(m.since_mark()),
    **dict.fromkeys(("INT", "LONG", "LONG1", "LONG4"), _Machine.number),
    "MEMOIZE": lambda m, _: m.memo.__setitem__(len(m.memo), m.stack[-1]),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), lambda m, key: m.memo.__setitem__(key, m.stack[-1])),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), lambda m, key: m.push(m.memo[key])),
}
