"""Runs line programs of DWARF 2 to 4: which line of which file each address is from (DWARF 4, 6.2)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from alltrace.readers.wire import WireError
from alltrace.trace.names import text_of_bytes

_COPY, _ADVANCE_PC, _ADVANCE_LINE, _SET_FILE, _CONST_ADD_PC, _FIXED_ADVANCE_PC = 1, 2, 3, 4, 8, 9
_END_SEQUENCE, _SET_ADDRESS = 1, 2
_VERSIONS = (2, 3, 4)
_MOST_ROWS = 10_000_000


class LineRow(NamedTuple):
    """From `offset` on the code is of this line of this file; `line` 0 is code of no line."""

    offset: int
    file: str
    line: int


@dataclass
class Sequence:
    """Rows of one piece of code."""

    place: int  # the position of its address in the section, which a relocation fills in
    rows: list[LineRow] = field(default_factory=list)  # its rows, by rising offset


class _Header(NamedTuple):
    """How opcodes advance address and line, and how many operands the standard ones have."""

    step: int
    line_base: int
    line_range: int
    opcode_base: int
    operands: list[int]


class _Bytes:
    """Bytes that are read one after the other."""

    def __init__(self, data: memoryview, at: int, end: int) -> None:
        if not at <= end <= len(data):
            raise WireError("a line table is longer than its section")
        self.data, self.at, self.end = data, at, end

    def number(self, size: int) -> int:
        """An unsigned number of this many bytes."""
        if self.end - self.at < size:
            raise WireError("a line table is cut short")
        self.at += size
        return int.from_bytes(self.data[self.at - size : self.at], "little")

    def leb(self, *, signed: bool = False) -> int:
        """A number of variable length (DWARF 4, 7.6)."""
        value = shift = 0
        while shift < 70:
            byte = self.number(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value - (1 << shift) if signed and byte & 0x40 else value
        raise WireError("a number of a line table does not end")

    def string(self) -> str:
        """A text that a zero ends."""
        start = self.at
        while self.number(1):
            pass
        return text_of_bytes(bytes(self.data[start : self.at - 1]))


def rows_of_units(data: memoryview, places: Collection[int]) -> Iterator[Sequence]:
    """The sequences of units of known versions; `places`: of relocated addresses. Raises `WireError`: it is damaged."""
    at = 0
    while len(data) - at > 4:
        head = _Bytes(data, at, len(data))
        length = head.number(4)
        end = head.at + length
        unit = _Bytes(data, head.at, end)
        at = end
        if unit.number(2) in _VERSIONS:
            yield from _unit(unit, places)


def _unit(unit: _Bytes, places: Collection[int]) -> Iterator[Sequence]:
    version = int.from_bytes(unit.data[unit.at - 2 : unit.at], "little")
    length = unit.number(4)
    program = unit.at + length
    step = unit.number(1)
    if version == 4:
        unit.number(1)
    unit.number(1)
    line_base = unit.number(1)
    line_base -= 256 if line_base > 127 else 0
    line_range = unit.number(1)
    opcode_base = unit.number(1)
    if not line_range:
        raise WireError("a line table without a range of lines")
    operands = [0, *(unit.number(1) for _ in range(1, opcode_base))]
    folders = [""]
    while name := unit.string():
        folders.append(name)
    files = [""]
    while name := unit.string():
        folder = unit.leb()
        unit.leb()
        unit.leb()
        inside = folders[folder] if folder < len(folders) else ""
        files.append(f"{inside}/{name}" if inside and not name.startswith("/") else name)
    header = _Header(step, line_base, line_range, opcode_base, operands)
    yield from _run(_Bytes(unit.data, program, unit.end), header, files, places)


class _Machine:
    """The registers of a line program, and the rows that it has made."""

    def __init__(self, step: int, files: list[str]) -> None:
        self.step, self.files = step, files
        self.rows_read = 0
        self.reset()

    def reset(self) -> None:
        self.address, self.file, self.line = 0, 1, 1
        self.current = Sequence(-1)

    def row(self) -> None:
        self.rows_read += 1
        if self.rows_read > _MOST_ROWS:
            raise WireError("a line table has more rows than code can have instructions")
        name = self.files[self.file] if self.file < len(self.files) else ""
        self.current.rows.append(LineRow(self.address, name, self.line))

    def advance(self, opcode: int, header: _Header) -> None:
        """Advance as a special opcode does."""
        self.address += self.step * ((opcode - header.opcode_base) // header.line_range)

    def standard(self, opcode: int, code: _Bytes, header: _Header) -> None:
        """Run a standard opcode; the operands of those without an effect on rows are passed over."""
        if opcode == _COPY:
            self.row()
        elif opcode == _ADVANCE_PC:
            self.address += self.step * code.leb()
        elif opcode == _ADVANCE_LINE:
            self.line += code.leb(signed=True)
        elif opcode == _SET_FILE:
            self.file = code.leb()
        elif opcode == _CONST_ADD_PC:
            self.advance(255, header)
        elif opcode == _FIXED_ADVANCE_PC:
            self.address += code.number(2)
        else:
            for _ in range(header.operands[opcode]):
                code.leb()


def _run(code: _Bytes, header: _Header, files: list[str], places: Collection[int]) -> Iterator[Sequence]:
    machine = _Machine(header.step, files)
    while code.at < code.end:
        opcode = code.number(1)
        if opcode >= header.opcode_base:
            machine.advance(opcode, header)
            machine.line += header.line_base + (opcode - header.opcode_base) % header.line_range
            machine.row()
        elif opcode:
            machine.standard(opcode, code, header)
        else:
            size = code.leb()
            after = code.at + size
            if after > code.end:
                raise WireError("a line table is cut short")
            kind = code.number(1) if size else 0
            if kind == _SET_ADDRESS:
                machine.current.place = code.at
                machine.address = 0 if code.at in places else code.number(size - 1)
            elif kind == _END_SEQUENCE:
                yield machine.current
                machine.reset()
            code.at = after  # NVIDIA's own, such as the names of inlined functions, are passed over
