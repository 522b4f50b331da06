"""The lines of a .prv as numbers, block by block."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from alltrace.core.paraver import parse_lines
from alltrace.readers.text import Text
from alltrace.trace.arrays import Int64
from alltrace.trace.errors import InputError

_BLOCK = 4 << 20
_LONGEST_LINE = 64 << 20


@dataclass(frozen=True)
class Lines:
    """n lines."""

    first: int  # number of the first line in the file, from 1
    values: Int64  # int64 array of all numbers, line by line
    offsets: Int64  # int64 array of n + 1: where the numbers of each line start
    # boolean array of n: lines that are not whole numbers between colons. Empty lines and comments have no numbers.
    wrong: NDArray[np.bool_]


def read_lines(path: Path) -> tuple[str, Iterator[Lines]]:
    """The header of a .prv or .prv.gz, and its other lines in blocks. Raises `InputError`: the file cannot be read."""
    blocks = _blocks(path)
    first = next(blocks, b"")
    header, _, rest = first.partition(b"\n")
    return header.decode("utf-8", "replace"), _lines(rest, blocks)


def head_lines(path: Path) -> list[str]:
    """The first line of a .prv or .prv.gz and the comments after it. Raises `InputError`: it cannot be read."""
    head: list[str] = []
    for block in _blocks(path):
        lines = block.split(b"\n")
        for line in lines[:-1]:
            if head and not line.startswith(b"#"):
                return head
            head.append(line.decode("utf-8", "replace"))
    return head or [""]


def _blocks(path: Path) -> Iterator[bytes]:
    """Blocks of whole lines; a last line without an end gets one."""
    left = b""
    with closing(Text(path)) as text:
        while block := text.read(_BLOCK):
            left += block
            end = left.rfind(b"\n") + 1
            if end:
                yield left[:end]
                left = left[end:]
            elif len(left) > _LONGEST_LINE:
                raise InputError(path, found="a line is longer than 64 MB", expected="a .prv file")
        if text.cut:
            raise InputError(
                path, found="it cannot be read (its compressed data end early)", expected="a .prv or .prv.gz file"
            )
    if left:
        yield left + b"\n"


def _lines(rest: bytes, blocks: Iterator[bytes]) -> Iterator[Lines]:
    number = 2
    while True:
        if rest:
            text = np.frombuffer(rest, np.uint8)
            count = int(np.count_nonzero(text == ord("\n")))
            values = np.empty(len(text), np.int64)  # of which most is not written and so takes no memory
            offsets, wrong = np.empty(count + 1, np.int64), np.empty(count, bool)
            filled = parse_lines(text, values, offsets, wrong)
            yield Lines(number, values[:filled], offsets, wrong)
            number += count
        block = next(blocks, None)
        if block is None:
            return
        rest = block
