"""Decodes pickles of plain data, and nothing else.

A pickle is a program: unpickling one from elsewhere runs whatever it says. This decoder knows only the instructions that build
dicts, lists, tuples, texts, numbers, truth values and None. Any other instruction, above all those that name a class or call
something, ends it. It imports nothing by name and calls nothing that comes from the data. Source of the instructions:
Lib/pickletools.py.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_LONGEST_NUMBER = 64
_KEYS = (str, int, float, type(None))
_REFUSED = {
    0x63: "GLOBAL",
    0x93: "STACK_GLOBAL",
    0x52: "REDUCE",
    0x62: "BUILD",
    0x69: "INST",
    0x6F: "OBJ",
    0x81: "NEWOBJ",
    0x92: "NEWOBJ_EX",
    0x50: "PERSID",
    0x51: "BINPERSID",
    0x82: "EXT1",
    0x83: "EXT2",
    0x84: "EXT4",
    0x42: "BINBYTES",
    0x43: "SHORT_BINBYTES",
    0x8E: "BINBYTES8",
    0x96: "BYTEARRAY8",
    0x97: "NEXT_BUFFER",
    0x8F: "EMPTY_SET",
    0x91: "FROZENSET",
}


class PickleRefusedError(ValueError):
    """The pickle is no plain data, or damaged; the text says what was found and where."""


class _Mark:
    pass


_MARK = _Mark()


def decode(data: bytes) -> Any:
    """The plain data in a pickle.

    Raises:
        PickleRefusedError: It holds anything but plain data, or ends early.
    """
    machine = _Machine(data)
    try:
        return machine.run()
    except (IndexError, struct.error, KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        if isinstance(error, PickleRefusedError):
            raise
        raise PickleRefusedError(f"it is damaged at byte {machine.at}") from error


class _Machine:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        data, steps = self._data, _STEPS
        while True:
            if self.at >= len(data):
                raise PickleRefusedError(f"it ends at byte {self.at} without its stop")
            code = data[self.at]
            self.at += 1
            if code == 0x2E:  # STOP
                value = self._stack.pop()
                if isinstance(value, _Mark):
                    raise PickleRefusedError(f"it is damaged at byte {self.at}")
                return value
            step = steps.get(code)
            if step is None:
                name = _REFUSED.get(code, f"0x{code:02x}")
                raise PickleRefusedError(f"it has the instruction {name} at byte {self.at - 1}, which plain data do not need")
            step(self)

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > len(self._data):
            raise PickleRefusedError(f"it ends within a value at byte {self.at}")
        self.at += size
        return self._data[self.at - size : self.at]

    def skip(self, size: int) -> None:
        self.take(size)

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def line(self) -> bytes:
        end = self._data.index(b"\n", self.at)
        text = self._data[self.at : end]
        self.at = end + 1
        return text

    def text(self, form: str) -> None:
        self.push(self.take(self.number(form)).decode("utf-8", "surrogatepass"))

    def old_text(self, form: str) -> None:
        self.push(self.take(self.number(form)).decode("latin-1"))

    def long(self, form: str) -> None:
        size = self.number(form)
        if size > _LONGEST_NUMBER:
            raise PickleRefusedError(f"it has a number of {size} bytes at byte {self.at}")
        self.push(int.from_bytes(self.take(size), "little", signed=True))

    def decimal(self) -> None:
        text = self.line().rstrip(b"L")
        if text in (b"00", b"01"):
            self.push(text == b"01")
            return
        if len(text) > _LONGEST_NUMBER:
            raise PickleRefusedError(f"it has a number of {len(text)} digits at byte {self.at}")
        self.push(int(text))

    def since_mark(self) -> list[Any]:
        for n in range(len(self._stack) - 1, -1, -1):
            if self._stack[n] is _MARK:
                items = self._stack[n + 1 :]
                del self._stack[n:]
                return items
        raise PickleRefusedError(f"it is damaged at byte {self.at}")

    def group(self, size: int) -> None:
        items = self._stack[len(self._stack) - size :]
        if len(items) < size or any(item is _MARK for item in items):
            raise PickleRefusedError(f"it is damaged at byte {self.at}")
        del self._stack[len(self._stack) - size :]
        self.push(tuple(items))

    def append(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not list:
            raise PickleRefusedError(f"it is damaged at byte {self.at}")
        target.extend(items)

    def set_items(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not dict or len(items) % 2:
            raise PickleRefusedError(f"it is damaged at byte {self.at}")
        # a tuple of tuples of tuples ... would be hashed level by level, which Python does without looking how deep
        if not all(isinstance(key, _KEYS) for key in items[::2]):
            raise PickleRefusedError(f"it has a dict whose keys are neither texts nor numbers at byte {self.at}")
        target.update(zip(items[::2], items[1::2], strict=True))

    def make_dict(self) -> None:
        items = self.since_mark()
        self.push({})
        self.set_items(items)

    def set_item(self) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self.set_items([key, value])

    def put(self, index: int) -> None:
        self._memo[index] = self._stack[-1]

    def get(self, index: int) -> None:
        self.push(self._memo[index])


def _append_one(m: _Machine) -> None:
    value = m._stack.pop()  # noqa: SLF001  the steps are the machine's own
    m.append([value])


_STEPS: dict[int, Callable[[_Machine], None]] = {
    0x80: lambda m: m.skip(1),  # PROTO
    0x95: lambda m: m.skip(8),  # FRAME
    0x28: lambda m: m.push(_MARK),
    0x7D: lambda m: m.push({}),
    0x5D: lambda m: m.push([]),
    0x29: lambda m: m.push(()),
    0x4E: lambda m: m.push(None),
    0x88: lambda m: m.push(True),
    0x89: lambda m: m.push(False),
    0x74: lambda m: m.push(tuple(m.since_mark())),
    0x85: lambda m: m.group(1),
    0x86: lambda m: m.group(2),
    0x87: lambda m: m.group(3),
    0x6C: lambda m: m.push(m.since_mark()),
    0x64: lambda m: m.make_dict(),
    0x61: _append_one,
    0x65: lambda m: m.append(m.since_mark()),
    0x73: lambda m: m.set_item(),
    0x75: lambda m: m.set_items(m.since_mark()),
    0x4B: lambda m: m.push(m.number("<B")),
    0x4D: lambda m: m.push(m.number("<H")),
    0x4A: lambda m: m.push(m.number("<i")),
    0x8A: lambda m: m.long("<B"),
    0x8B: lambda m: m.long("<i"),
    0x49: lambda m: m.decimal(),
    0x4C: lambda m: m.decimal(),
    0x47: lambda m: m.push(m.number(">d")),
    0x46: lambda m: m.push(float(m.line())),
    0x8C: lambda m: m.text("<B"),
    0x58: lambda m: m.text("<I"),
    0x8D: lambda m: m.text("<Q"),
    0x56: lambda m: m.push(m.line().decode("raw-unicode-escape")),
    0x55: lambda m: m.old_text("<B"),
    0x54: lambda m: m.old_text("<i"),
    0x94: lambda m: m.put(len(m._memo)),  # noqa: SLF001
    0x71: lambda m: m.put(m.number("<B")),
    0x72: lambda m: m.put(m.number("<I")),
    0x70: lambda m: m.put(int(m.line())),
    0x68: lambda m: m.get(m.number("<B")),
    0x6A: lambda m: m.get(m.number("<I")),
    0x67: lambda m: m.get(int(m.line())),
}
