"""The code of kernels, and its instructions with what was measured at each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True)
class Code:
    binary: bytes  # an ELF file for the device (cubin); empty if the report has none
    files: Mapping[str, str]  # source files by path, of a report that was made with `--import-source`
    functions: Mapping[str, int]  # address of each function on the device, by its mangled name


class Place(NamedTuple):
    file: str
    line: int


@dataclass
class Instruction:
    function: str  # mangled name of its function
    offset: int  # its place in the function; in the address space where the function is not known
    address: int | None  # its address on the device; None if the report does not say where the function lay
    text: str | None = None  # the instruction; None if it was not disassembled
    source: Place | None = None  # its line in the source; None without line information
    ptx: Place | None = None  # its line in the PTX; likewise
    values: dict[str, float] = field(default_factory=dict)  # what was measured there, by metric


@dataclass
class Listing:
    instructions: list[Instruction]  # by function, the kernel's own first, then by offset
    sources: Mapping[str, list[str]]  # lines of the source files that the report holds, by path
    ptx: Mapping[str, list[str]]  # lines of the PTX, by the name that line tables call it
    problem: str = ""  # why the code could not be read, in a sentence; empty if it could
