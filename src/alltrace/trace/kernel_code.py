"""The code of kernels, and its instructions with what was measured at each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Code:
    """The code of kernels, as a report keeps it.

    Attributes:
        binary: An ELF file for the device (cubin); empty if the report has none.
        files: Source files by path, of a report that was made with `--import-source`.
        functions: Address of each function on the device, by its mangled name.
    """

    binary: bytes
    files: Mapping[str, str]
    functions: Mapping[str, int]


class Place(NamedTuple):
    """A line of a file."""

    file: str
    line: int


@dataclass
class Instruction:
    """An instruction.

    Attributes:
        function: Mangled name of its function.
        offset: Its place in the function; in the address space where the function is not known.
        address: Its address on the device; None if the report does not say where the function lay.
        text: The instruction; None if it was not disassembled.
        source: Its line in the source; None without line information.
        ptx: Its line in the PTX; likewise.
        values: What was measured there, by metric.
    """

    function: str
    offset: int
    address: int | None
    text: str | None = None
    source: Place | None = None
    ptx: Place | None = None
    values: dict[str, float] = field(default_factory=dict)


@dataclass
class Listing:
    """The instructions of a launch.

    Attributes:
        instructions: By function, the kernel's own first, then by offset.
        sources: Lines of the source files that the report holds, by path.
        ptx: Lines of the PTX, by the name that line tables call it.
        problem: Why the code could not be read, in a sentence; empty if it could.
    """

    instructions: list[Instruction]
    sources: Mapping[str, list[str]]
    ptx: Mapping[str, list[str]]
    problem: str = ""
