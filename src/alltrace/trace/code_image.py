"""Machine code as an image: what an object file holds, laid out and linked in advance, so that opening it is copying it.

An object file (ELF, System V ABI for AMD64, 4.1 to 4.4) has its code and its constants in sections of their own, and places that
have to be filled in once it is known where these lie. Most are distances between two places of the code, which are the same
wherever the whole lies, and are filled in here once. What is left is filled in when an image is opened: addresses within it, and
functions of the C library, which are called by way of a jump beside the code. No other library is needed to run it: it is copied
into memory, which then may be run but no longer be written.
"""

from __future__ import annotations

import ctypes
import mmap
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

MAGIC = b"\x7fimage1\n"

OUTSIDE = ("memset", "memcpy", "memmove", "pow")
"""The functions of the C library that an image may call."""

_ELF = b"\x7fELF\x02\x01\x01"  # of 64 bits, the lowest first
_RELOCATABLE, _AMD64 = 1, 62
_SECTION = Struct("<IIQQQQIIQQ")
_SYMBOL = Struct("<IBBHQQ")
_RELOCATION = Struct("<QQq")
_HEAD = Struct("<8s3Q")  # of an image: what it is, where its entry lies in the code, and how many of the next two there are
_INSIDE = Struct("<Q")  # where an address lies that is counted from the beginning of the code
_CALLED = Struct("<QQ")  # where the address of a function lies, and which of `OUTSIDE` that is
_CODE, _SYMBOLS, _RELOCATIONS = 1, 2, 4  # kinds of sections
_WRITTEN, _LOADED = 1, 2  # flags of sections
_ADDRESS = 1  # R_X86_64_64
_DISTANCES = {2: Struct("<i"), 4: Struct("<i"), 24: Struct("<q")}  # R_X86_64_PC32, _PLT32, _PC64
_UNWINDING = b".eh_frame"  # for exceptions that pass through; none does
_CONSTANTS = b".data.rel.ro"  # written only to fill in addresses
_JUMP = b"\xff\x25\0\0\0\0"  # jmp *0(%rip): to the address that comes next

_OPEN: list[mmap.mmap] = []  # what was opened stays until the process ends


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int


class _Linker:
    """Lays out an object file and fills in what it can.

    Args:
        code: The object file.
    """

    def __init__(self, code: bytes) -> None:
        self.laid = bytearray()
        self.inside: list[int] = []
        self.called: list[tuple[int, int]] = []
        self._code = code
        (start,), (count, names) = Struct("<Q").unpack_from(code, 40), Struct("<HH").unpack_from(code, 60)
        self._sections = [_Section(*_SECTION.unpack_from(code, start + n * _SECTION.size)) for n in range(count)]
        self._names = self._sections[names]
        self._symbols = next(s for s in self._sections if s.kind == _SYMBOLS)
        self._places: dict[int, int] = {}
        self._jumps: dict[int, int] = {}

    def lay_out(self) -> bool:
        """Put what is loaded side by side; False where some of it is to be written."""
        for n, section in enumerate(self._sections):
            name = self._name(self._names, section.name)
            if not section.flags & _LOADED or not section.size or name == _UNWINDING:
                continue
            if section.kind != _CODE or (section.flags & _WRITTEN and not name.startswith(_CONSTANTS)):
                return False
            self._align(section.align)
            self._places[n] = len(self.laid)
            self.laid += self._content(section)
        return True

    def link(self) -> bool:
        """Fill in distances, and note down what else is to be filled in; False where that cannot be."""
        for section in self._sections:
            if section.kind == _RELOCATIONS and section.info in self._places:
                for offset, what, more in _RELOCATION.iter_unpack(self._content(section)):
                    if not self._fill_in(self._places[section.info] + offset, what & 0xFFFFFFFF, what >> 32, more):
                        return False
        return True

    def entry(self, symbol: str) -> int | None:
        """Where the function `symbol` lies."""
        for name, _, _, section, value, _ in _SYMBOL.iter_unpack(self._content(self._symbols)):
            if section in self._places and self._name(self._sections[self._symbols.link], name) == symbol.encode():
                return self._places[section] + int(value)
        return None

    def _fill_in(self, here: int, kind: int, symbol: int, more: int) -> bool:
        name, _, _, section, value, _ = _SYMBOL.unpack_from(self._code, self._symbols.offset + symbol * _SYMBOL.size)
        if section in self._places:
            there: int | None = self._places[section] + value
        else:
            there = self._jump(self._name(self._sections[self._symbols.link], name).decode()) if section == 0 else None
        if there is None:
            return False
        if kind == _ADDRESS:
            self.inside.append(here)
            _INSIDE.pack_into(self.laid, here, there + more)
        elif kind in _DISTANCES:
            _DISTANCES[kind].pack_into(self.laid, here, there + more - here)
        else:
            return False
        return True

    def _jump(self, name: str) -> int | None:
        """Where one jumps to a function of the C library; None for any other."""
        if name not in OUTSIDE:
            return None
        number = OUTSIDE.index(name)
        if number not in self._jumps:
            self._align(16)
            self._jumps[number] = len(self.laid)
            self.called.append((len(self.laid) + len(_JUMP), number))
            self.laid += _JUMP + bytes(8)
        return self._jumps[number]

    def _align(self, to: int) -> None:
        self.laid += bytes(-len(self.laid) % max(1, to))

    def _content(self, section: _Section) -> bytes:
        return self._code[section.offset : section.offset + section.size]

    def _name(self, names: _Section, at: int) -> bytes:
        start = names.offset + at
        return self._code[start : self._code.index(b"\0", start)]


def image(code: bytes, symbol: str) -> bytes | None:
    """The image of an object file that has the function `symbol`.

    None where it is for another processor than x86-64, keeps data that change, or needs more from outside than `OUTSIDE`.
    """
    if not code.startswith(_ELF) or Struct("<HH").unpack_from(code, 16) != (_RELOCATABLE, _AMD64):
        return None
    linker = _Linker(code)
    if not linker.lay_out() or not linker.link():
        return None
    entry = linker.entry(symbol)
    if entry is None:
        return None
    head = _HEAD.pack(MAGIC, entry, len(linker.inside), len(linker.called))
    left = [*(_INSIDE.pack(at) for at in linker.inside), *(_CALLED.pack(*what) for what in linker.called)]
    return b"".join([head, *left, linker.laid])


def open_image(whole: bytes) -> int:
    """The address of an image's function, in memory of this process.

    Raises:
        OSError: The system lets no memory be run that was written.
        ValueError: It is no image.
        AttributeError: The C library lacks a function.
    """
    try:
        magic, entry, inside, called = _HEAD.unpack_from(whole)
        begin = _HEAD.size + inside * _INSIDE.size + called * _CALLED.size
        code = bytearray(memoryview(whole)[begin:])
        if magic != MAGIC or entry >= len(code):
            raise ValueError("not an image of machine code")
        memory = mmap.mmap(-1, len(code), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        library = ctypes.CDLL(None, use_errno=True)
        for n in range(inside):
            (at,) = _INSIDE.unpack_from(whole, _HEAD.size + n * _INSIDE.size)
            _INSIDE.pack_into(code, at, _INSIDE.unpack_from(code, at)[0] + address)
        for n in range(called):
            at, number = _CALLED.unpack_from(whole, begin - (called - n) * _CALLED.size)
            function = getattr(library, OUTSIDE[number])
            _INSIDE.pack_into(code, at, ctypes.cast(function, ctypes.c_void_p).value)
    except (struct_error, IndexError) as error:
        raise ValueError("not an image of machine code") from error
    memory[:] = bytes(code)
    protect = library.mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    if protect(address, len(code), mmap.PROT_READ | mmap.PROT_EXEC):
        raise OSError(ctypes.get_errno(), "memory cannot be made to run")
    _OPEN.append(memory)
    return address + int(entry)
