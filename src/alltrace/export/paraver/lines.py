"""Lines of a .prv as rows of two numbers, which are sorted, and become text when they are written.

The first number of a row is its key: eight times the time, and a place among the lines with that time. The second is a
word: 15 bits of the line's shape, 16 of its object, 32 of a value. Lines with more numbers continue with rows of the
same key; the second number is one of them, or two of 32 bits. A shape defines the text and the numbers in a line; types
of events and states are in its text, so most lines are one row of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from alltrace.core.text import AGAIN, HIGH, LAST_HIGH, LATER, LOW, NEXT, OBJECT, STOP, VALUE, write_paraver_lines
from alltrace.trace.arrays import Int64
from alltrace.trace.errors import UsageError

Form = tuple[str | int, ...]

__all__ = ["AGAIN", "HIGH", "LAST_HIGH", "LATER", "LOW", "NEXT", "OBJECT", "VALUE", "Lines"]

PLACES = 8
"""Places among what has one time."""

SMALL = 1 << 32
"""What a value must be below to have room in a line's first row."""

STATE_LINE, EVENT_LINE, COMMUNICATION_LINE = range(3)
_HEADS = ("1:", "2:", "3:", "")  # the last one is for an object within a line
_MOST_SHAPES = 1 << 15
_LINE_BYTES = 22 + 1  # a head, and one of "-" or a line end
_NUMBER_BYTES = 20
_WRITTEN_BYTES = 1 << 18


class Lines:
    """The shapes of lines and their objects. `objects`: each object as `cpu:appl:task:thread`; fewer than 65,536."""

    def __init__(self, objects: Sequence[str]) -> None:
        self._objects = len(objects)
        self._heads, self._head_at = _joined([f"{variant}{o}:" for variant in _HEADS for o in objects])
        self._shapes: dict[tuple[int, Form], int] = {}
        self._variants: list[int] = []
        self._steps: list[int] = [0]
        self._kinds: list[int] = []
        self._texts: list[str] = []
        self._longest = 0
        self._first_shapes = np.zeros(self._objects, np.int64)
        self._known_as: list[int] = []

    @property
    def shapes(self) -> list[tuple[int, Form]]:
        """All shapes, by number."""
        return list(self._shapes)

    def take(self, objects: Int64, shapes: Iterable[tuple[int, Form]]) -> None:
        """Know the shapes of the lines of some objects that another process has packed: all of them, by its numbers."""
        self._first_shapes[objects] = len(self._known_as)
        self._known_as += [self.shape(variant, *form) for variant, form in shapes]

    def shape(self, variant: int, *form: str | int) -> int:
        """The number of a shape."""
        # `variant`: `STATE_LINE`, `EVENT_LINE` or `COMMUNICATION_LINE`. `form`: the part after the object and the time:
        # text, or a kind of number. `VALUE` is the value of the line's row, `LATER` the sum of the time and that value,
        # `OBJECT` the object that it names. `NEXT` is the number of the next row that the line goes on with; `LOW` and
        # `HIGH` are the sum of the time and 32 bits of that number, and `LAST_HIGH`, which is `HIGH`, has the row after
        # it be the next. `AGAIN` is the line's beginning.
        number = self._shapes.get((variant, form))
        if number is not None:
            return number
        text, size = "", _LINE_BYTES + _NUMBER_BYTES
        for piece in form:
            if isinstance(piece, str):
                text += piece
                size += len(piece)
                continue
            self._texts.append(text)
            self._kinds.append(piece)
            text = ""
            size += _LINE_BYTES + _NUMBER_BYTES
        self._texts.append(text)
        self._kinds.append(STOP)
        self._steps.append(len(self._kinds))
        self._variants.append(variant)
        if len(self._variants) > _MOST_SHAPES:
            raise UsageError(
                f"the trace would have more than {_MOST_SHAPES:,} kinds of lines, of different types; give --only"
            )
        self._longest = max(self._longest, size)
        return self._shapes.setdefault((variant, form), len(self._shapes))

    def text(self, blocks: Iterable[tuple[Int64, Int64]]) -> Iterator[memoryview]:
        """The lines of rows, piece by piece; a piece is good until the next."""
        # `blocks`: Int64 arrays of n rows (n, 2) and of their places in order; all rows of a line are in one block.
        texts, text_at = _joined(self._texts)
        first_shapes: tuple[Int64 | None, Int64 | None] = (None, None)
        if self._known_as:
            first_shapes = (self._first_shapes, np.array(self._known_as, np.int64))
        shapes = (np.array(self._variants, np.int64), np.array(self._steps, np.int64), np.array(self._kinds, np.int8))
        out = np.empty(_WRITTEN_BYTES + self._longest, np.uint8)  # small enough to stay in the processor's cache
        for rows, order in blocks:
            place = 0
            while place < len(order):
                size, place = write_paraver_lines(
                    rows,
                    order,
                    place,
                    self._heads,
                    self._head_at,
                    self._objects,
                    *shapes,
                    texts,
                    text_at,
                    out,
                    _WRITTEN_BYTES,
                    *first_shapes,
                )
                yield out[:size].data


def _joined(pieces: Sequence[str]) -> tuple[NDArray[np.uint8], Int64]:
    """The bytes of pieces of ASCII text, and where each starts, with the end last."""
    at = np.zeros(len(pieces) + 1, np.int64)
    np.cumsum([len(p) for p in pieces], out=at[1:])
    return np.frombuffer("".join(pieces).encode("ascii"), np.uint8), at
