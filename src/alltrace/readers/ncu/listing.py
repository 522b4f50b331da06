"""Lists the instructions of a launch with what was measured at each, from the code that its report holds."""

import struct
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from alltrace.readers.ncu.disassembly import Word
from alltrace.readers.ncu.line_program import LineRow, rows_of_units
from alltrace.readers.wire import WireError
from alltrace.trace.kernel_code import Code, Instruction, Listing, Place
from alltrace.trace.launches import Launch
from alltrace.trace.names import text_of_bytes

# Reads the code of kernels (cubin): which source and PTX line each instruction is from. A cubin is an ELF file (System
# V ABI, "Object Files") with a section of code for each function. Lines of the source are in `.debug_line`, lines of
# the PTX in `.nv_debug_line_sass`, both as line programs of DWARF 2 to 4 (6.2 of the standard), the PTX itself in
# `.nv_debug_ptx_txt`. Nothing of it is executed.

MAGIC = b"\x7fELF"
_HEADER = struct.Struct("<16x2HI3QI6H")
_SECTION = struct.Struct("<2I4Q2I2Q")
_SYMBOL = struct.Struct("<IBBHQQ")
_REL, _RELA = 9, 4
_SYMTAB = 2
_NOBITS = 8
_TEXT = ".text."
_MOST_SECTIONS = 1 << 20


@dataclass
class Function:
    """Code of a function."""

    size: int  # its bytes
    # file and line of the source, from each offset on; empty without line information
    lines: list[LineRow] = field(default_factory=list)
    ptx_lines: list[LineRow] = field(default_factory=list)  # the same of the PTX


@dataclass
class Cubin:
    """A device's object file."""

    functions: dict[str, Function]  # the functions by mangled name
    # the PTX's lines, the first is line 1, by the name that line tables call it; empty if it is not kept
    ptx: dict[str, list[str]]


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    data: memoryview
    size: int
    link: int
    info: int


def line_at(rows: Sequence[LineRow], offset: int) -> LineRow | None:
    """The row of a line table that an offset is in; None before the first."""
    place = bisect_right(rows, offset, key=lambda row: row.offset)
    return rows[place - 1] if place else None


def read_cubin(binary: bytes) -> Cubin:
    """Read functions and their lines. Raises `WireError`: it is not an ELF file, or damaged."""
    data = memoryview(binary)
    try:
        sections = _sections(data)
    except struct.error as error:
        raise WireError("a cubin is cut short") from error
    functions = {s.name[len(_TEXT) :]: Function(s.size) for s in sections if s.name.startswith(_TEXT)}
    for row_section, where in ((".debug_line", "lines"), (".nv_debug_line_sass", "ptx_lines")):
        for index, section in enumerate(sections):
            if section.name == row_section:
                _place(functions, sections, index, where)
    ptx = {
        s.name: [text_of_bytes(line) for line in bytes(s.data).rstrip(b"\0").split(b"\0")]
        for s in sections
        if s.name.startswith(".nv_debug_ptx_txt")
    }
    return Cubin(functions, ptx)


def _sections(data: memoryview) -> list[_Section]:
    if bytes(data[:4]) != MAGIC or bytes(data[4:6]) != b"\x02\x01":
        raise WireError("code that is not a 64-bit ELF file")
    *_, shoff, _, _, _, _, entry, count, names = _HEADER.unpack_from(data)
    if entry != _SECTION.size or count > _MOST_SECTIONS or shoff + count * entry > len(data):
        raise WireError("a cubin without its table of sections")
    raw = [_SECTION.unpack_from(data, shoff + n * entry) for n in range(count)]
    contents = [memoryview(b"") if r[1] == _NOBITS else data[r[4] : r[4] + r[5]] for r in raw]
    if any(r[1] != _NOBITS and len(c) != r[5] for r, c in zip(raw, contents, strict=True)):
        raise WireError("a section of a cubin is longer than the file")
    strings = contents[names] if names < count else memoryview(b"")
    return [_Section(_string(strings, r[0]), r[1], c, r[5], r[6], r[7]) for r, c in zip(raw, contents, strict=True)]


def _string(strings: memoryview, at: int) -> str:
    return text_of_bytes(bytes(strings[at:]).partition(b"\0")[0]) if at < len(strings) else ""


def _place(functions: dict[str, Function], sections: list[_Section], index: int, where: str) -> None:
    """Give each function the rows of a line table that are of its section."""
    addresses = _relocated(sections, index)
    for sequence in rows_of_units(sections[index].data, set(addresses)):
        name = addresses.get(sequence.place)
        function = functions.get(name[0]) if name else None
        if function is None or name is None:
            continue
        rows = getattr(function, where)
        rows += [LineRow(row.offset + name[1], row.file, row.line) for row in sequence.rows]
        rows.sort(key=lambda row: row.offset)


def _relocated(sections: list[_Section], index: int) -> dict[int, tuple[str, int]]:
    """Function and offset of the addresses in a section, by their position in it."""
    targets: dict[int, tuple[str, int]] = {}
    for section in sections:
        if section.kind not in (_REL, _RELA) or section.info != index or section.link >= len(sections):
            continue
        form = struct.Struct("<2Q" if section.kind == _REL else "<2Qq")
        symbols = sections[section.link]
        if symbols.kind != _SYMTAB:
            continue
        for at in range(0, len(section.data) - form.size + 1, form.size):
            place, info, *addend = form.unpack_from(section.data, at)
            number = info >> 32
            if (number + 1) * _SYMBOL.size > len(symbols.data):
                raise WireError("a cubin names a symbol that it does not have")
            _, _, _, home, value, _ = _SYMBOL.unpack_from(symbols.data, number * _SYMBOL.size)
            if home < len(sections) and sections[home].name.startswith(_TEXT):
                targets[place] = (sections[home].name[len(_TEXT) :], value + (addend[0] if addend else 0))
    return targets


Disassembler = Callable[[bytes], dict[str, list[Word]]]

_MAJOR, _VOLTA = "device__attribute_compute_capability_major", 7
"""From Volta on an instruction has 16 bytes, before it had 8."""
_MOST = 2**62
_PCS = "launch__function_pcs"
_PER_ADDRESS = ("inst_executed", "thread_inst_executed", "thread_inst_executed_true", "memory_", "smsp__pcsamp_",
                "derived__memory_", "smsp__branch_targets", "smsp__inst_executed_memdesc", "smsp__sass_")  # fmt: skip


class Listings:
    """Makes listings; code that launches share is read once. `disassemble`: a binary's instructions; None for none."""

    def __init__(self, disassemble: Disassembler | None = None) -> None:
        self._disassemble = disassemble
        self._known: dict[int, tuple[Code, Cubin | None, dict[str, list[Word]], str]] = {}

    def of(self, launch: Launch, code: Code | None) -> Listing:
        """The instructions of a launch; without its code, those addresses at which something was measured."""
        measured = _measured(launch)
        if code is None or not code.binary:
            instructions = [
                Instruction(launch.mangled or launch.function, a, a, values=v) for a, v in sorted(measured.items())
            ]
            return Listing(instructions, {}, {})
        _, cubin, words, problem = self._read(code)
        if cubin is None:
            instructions = [
                Instruction(launch.mangled or launch.function, a, a, values=v) for a, v in sorted(measured.items())
            ]
            return Listing(instructions, {}, {}, problem)
        sources = {path: text.splitlines() for path, text in code.files.items()}
        step = 16 if (launch.number_of(_MAJOR) or _VOLTA) >= _VOLTA else 8
        return Listing(list(_instructions(launch, code, cubin, words, measured, step)), sources, cubin.ptx)

    def _read(self, code: Code) -> tuple[Code, Cubin | None, dict[str, list[Word]], str]:
        if id(code) not in self._known:
            cubin, problem = None, ""
            try:
                cubin = read_cubin(code.binary)
            except WireError as error:
                problem = str(error)
            words = self._disassemble(code.binary) if self._disassemble is not None and cubin is not None else {}
            self._known[id(code)] = (code, cubin, words, problem)
        return self._known[id(code)]


def _measured(launch: Launch) -> dict[int, dict[str, float]]:
    """Values by address and metric."""
    by_address: defaultdict[int, dict[str, float]] = defaultdict(dict)
    for metric in launch.instances:
        if metric.startswith(_PER_ADDRESS):
            for address, value in launch.instances[metric]:
                if isinstance(address, int) and isinstance(value, (int, float)) and abs(value) < _MOST:  # false for NaN
                    by_address[address][metric] = value
    return by_address


def _instructions(
    launch: Launch,
    code: Code,
    cubin: Cubin,
    words: Mapping[str, list[Word]],
    measured: Mapping[int, dict[str, float]],
    step: int,
) -> Iterator[Instruction]:
    kernels = {value for _, value in launch.instances.get(_PCS, ())}
    functions = [
        n for n in cubin.functions if code.functions.get(n) in kernels or (not kernels and n == launch.mangled)
    ]
    functions = functions or [n for n in cubin.functions if n == launch.mangled]
    for name, base in code.functions.items():  # those that it called
        if name in cubin.functions and name not in functions:
            size = cubin.functions[name].size
            if any(base <= address < base + size for address in measured):
                functions.append(name)
    only = next(iter(cubin.ptx)) if len(cubin.ptx) == 1 else ""  # older compilers leave its name out
    for name in functions:
        function = cubin.functions[name]
        start = code.functions.get(name)
        texts = {word.offset: word.shown(start) for word in words.get(name, ())}
        for offset in range(0, function.size, step):
            address = None if start is None else start + offset
            source, ptx = line_at(function.lines, offset), line_at(function.ptx_lines, offset)
            yield Instruction(
                name,
                offset,
                address,
                texts.get(offset),
                Place(source.file, source.line) if source and source.line else None,
                Place(ptx.file or only, ptx.line) if ptx and ptx.line else None,
                measured.get(address, {}) if address is not None else {},
            )
