"""Events, states and communications as packed lines of a .prv, with the keys that put them into order.

At equal times ends come first, then intervals without length (begin and end together), states, begins and
communications: a thread with an interval that begins where the last one ends would otherwise be left without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from alltrace.core.paraver import overlapping
from alltrace.export.paraver.lines import (
    AGAIN,
    COMMUNICATION_LINE,
    EVENT_LINE,
    HIGH,
    LAST_HIGH,
    LATER,
    LOW,
    NEXT,
    OBJECT,
    PLACES,
    SMALL,
    STATE_LINE,
    VALUE,
    Lines,
)
from alltrace.export.sorted_rows import RowSorter
from alltrace.readers.paraver import labels as ev
from alltrace.trace.arrays import Int64

END_FIRST, INSTANT, STATE, BEGIN, COMMUNICATION = 0, 1, 3, 4, 5
_MIXED = -1
_OBJECT_SHIFT, _SHAPE_SHIFT = 32, 48
_OURS = -(1 << 63)  # the highest bit of a word with a shape among those of the lines it is written with


# Objects are numbers of `objects`, in that order. `sorter`: where the lines go, of two columns. `objects`: all objects,
# each as `cpu:appl:task:thread`; or how many there are, if another process writes the lines (see `Lines.take`).
class RecordWriter:
    """Packs lines and hands them to a sorter."""

    def __init__(self, sorter: RowSorter, objects: Sequence[str] | int) -> None:
        # how many states, events and communications were added
        self.counts: dict[str, int] = {"states": 0, "events": 0, "communications": 0}
        self.types: set[int] = set()  # the types of the events
        self._sorter = sorter
        self.lines: Lines = Lines(() if isinstance(objects, int) else objects)  # the shapes of the lines
        self._objects = objects if isinstance(objects, int) else len(objects)
        self._mark = 0 if isinstance(objects, int) else _OURS
        self._last: dict[int, Int64] = {}

    def text(self) -> Iterator[memoryview]:
        """The lines in order, piece by piece; a piece is good until the next."""
        return self.lines.text(self._sorter.ordered())

    def intervals(
        self,
        objects: Int64,
        starts: Int64,
        ends: Int64,
        types: int | Sequence[int],
        values: Any,
        more: Sequence[tuple[int, Any]] = (),
        *,
        kinds: Int64 | None = None,
    ) -> None:
        """Add events at the begin and the end of n intervals."""
        # `types`: the type; with `kinds` those that there are. `values`: int64 array of n, or one value. `more`: more
        # types with their values, which go on the same lines. `kinds`: Int64 array of n: which of `types` each has.
        family = _MIXED if kinds is not None or not isinstance(types, int) else types
        overlap = np.empty(len(starts), np.bool_)
        last = self._last.setdefault(family, np.full(self._objects, np.iinfo(np.int64).min))
        forms = [types] if isinstance(types, int) else types
        if not overlapping(objects, starts, ends, last, overlap):
            self._pairs(objects, starts, ends, forms, values, more, kinds)
            return
        for chosen in (~overlap, overlap):
            rows = np.flatnonzero(chosen)
            extra = [(n, _some(v, rows)) for n, v in more]
            # at the end of one of two that overlap, nothing else identifies which one it is
            extra = extra if chosen is not overlap else [*extra, (ev.LENGTH, ends[rows] - starts[rows])]
            self._pairs(objects[rows], starts[rows], ends[rows], forms, _some(values, rows), extra, _some(kinds, rows))

    def _pairs(
        self,
        objects: Int64,
        starts: Int64,
        ends: Int64,
        types: Sequence[int],
        values: Any,
        more: Sequence[tuple[int, Any]],
        kinds: Int64 | None,
    ) -> None:
        self.counts["events"] += 2 * len(starts)
        numbers = [n for n, _ in more]
        self._seen([(t, *numbers) for t in types], len(starts), kinds)
        begun = [_event(t, numbers) for t in types]
        # without more an end is the event of value 0, in the form of the begin: lines that are alike are written faster
        ended = [[f":{t}:", VALUE, *(f":{n}:0" for n in numbers), "\n"] for t in types]
        both = [[*b, AGAIN, *("0" if p == VALUE else p for p in e)] for b, e in zip(begun, ended, strict=True)]
        columns = (objects, starts, ends, values, kinds, *(v for _, v in more))
        instant = np.flatnonzero(ends <= starts)
        if not len(instant) and not more and _small(values) and np.all(ends[:-1] <= starts[1:]):  # in order already
            words = self._words(objects, begun, kinds)
            rows = np.empty((len(starts), 2, 2), np.int64)
            rows[:, 0, 0], rows[:, 0, 1] = starts * PLACES + BEGIN, words | values
            rows[:, 1, 0], rows[:, 1, 1] = ends * PLACES + END_FIRST, words
            self._sorter.add_rows(rows.reshape(-1, 2))
            return
        long = np.flatnonzero(ends > starts) if len(instant) else None
        own, begins, stops, numbered, kind, *rest = (_some(c, long) for c in columns)
        self._events(own, begins, BEGIN, begun, numbered, rest, kind)
        self._events(own, stops, END_FIRST, ended, 0, (), kind)
        if len(instant):
            own, begins, _, numbered, kind, *rest = (_some(c, instant) for c in columns)
            self._events(own, begins, INSTANT, both, numbered, rest, kind)

    def points(
        self,
        objects: Int64,
        times: Int64,
        types: int | Sequence[tuple[int, ...]],
        values: Any,
        more: Sequence[Any] = (),
        *,
        kinds: Int64 | None = None,
    ) -> None:
        """Add n events; events of one thread that arrive in order of time keep their order."""
        # `times`: int64 array of n. `types`: the type; with `kinds` the types that a line may have, one for `values`
        # and one for each of `more`. `values`: int64 array of n. `more`: Int64 arrays of n, values of further types.
        # `kinds`: Int64 array of n: which of `types` each has.
        forms = [(types,)] if isinstance(types, int) else types
        self._events(objects, times, BEGIN, [_event(t[0], t[1:]) for t in forms], values, more, kinds)
        self.counts["events"] += len(times)
        self._seen(forms, len(times), kinds)

    def _seen(self, forms: Sequence[tuple[int, ...]], rows: int, kinds: Int64 | None) -> None:
        if rows:
            for form in (0,) if kinds is None else np.flatnonzero(np.bincount(kinds)).tolist():
                self.types.update(forms[form])

    def states(self, objects: Int64, starts: Int64, ends: Int64, kinds: Int64, states: Sequence[int]) -> None:
        """Add n states."""
        # `ends`: int64 array of n ends, none before its start. `kinds`: Int64 array of n: which of `states` each has.
        lengths = ends - starts
        small = _small(lengths)
        kind = LATER if small else NEXT
        shapes = np.array([self._shape(STATE_LINE, ":", kind, f":{s}\n") for s in states], np.int64)
        words = objects << _OBJECT_SHIFT | shapes[kinds]
        self._add(words, starts, STATE, lengths if small else 0, () if small else (ends,))
        self.counts["states"] += len(starts)

    def communications(
        self,
        senders: Int64,
        sent: tuple[Int64, Int64],
        receivers: Int64,
        received: tuple[Int64, Int64],
        sizes: Any,
        tags: Any,
    ) -> None:
        """Add n communications; `sent`, `received` are logical and physical times, sizes and tags one number or n."""
        (issued, moved), (arrived, finished) = sent, received
        self.counts["communications"] += len(issued)
        if not len(issued):
            return
        moves, arrives = moved - issued, arrived - issued
        rest: list[Any] = []
        form: list[Any] = [":", LOW, ":", OBJECT, HIGH, ":", LAST_HIGH]
        if arrived is finished and _small(moves) and _small(arrives):
            rest.append(moves | arrives << 32)
        else:
            form = [":", NEXT, ":", OBJECT, NEXT, ":", NEXT]
            rest += [moved, arrived, finished]
        for values in (sizes, tags):
            first = values if np.ndim(values) == 0 else values[0]
            if np.all(values == first) and (values is tags or first == 0):  # few: they are in the text
                form.append(f":{first}")
            else:
                form += [":", NEXT]
                rest.append(values)
        shape = self._shape(COMMUNICATION_LINE, *form, "\n")
        self._add(senders << _OBJECT_SHIFT | shape, issued, COMMUNICATION, receivers, rest)

    def _events(
        self,
        objects: Int64,
        times: Int64,
        place: int,
        forms: Sequence[Sequence[Any]],
        values: Any,
        more: Sequence[Any],
        kinds: Int64 | None,
    ) -> None:
        small = _small(values)
        if not small:
            forms = [[NEXT if f == VALUE else f for f in form] for form in forms]
            more = [values, *more]
        self._add(self._words(objects, forms, kinds), times, place, values if small else 0, more)

    def _words(self, objects: Int64, forms: Sequence[Sequence[Any]], kinds: Int64 | None) -> Int64:
        shapes = np.array([self._shape(EVENT_LINE, *form) for form in forms], np.int64)
        words: Int64 = objects << _OBJECT_SHIFT
        words |= shapes[0] if kinds is None else shapes[kinds]
        return words

    def _shape(self, variant: int, *form: str | int) -> int:
        """A shape in its place in a word."""
        return self.lines.shape(variant, *form) << _SHAPE_SHIFT | self._mark

    def _add(self, words: Int64, times: Int64, place: int, values: Any, more: Sequence[Any]) -> None:
        """Add lines: their first rows, with values in the words, and further rows with the `more` numbers."""
        keys = times * PLACES
        keys += place
        words |= values
        order = None
        if np.any(keys[1:] < keys[:-1]):  # here numbers are sorted in less time than by the sorter
            order = np.argsort(keys, kind="stable")
        rows = np.empty((len(keys), 1 + len(more), 2), np.int64)
        rows[:, :, 0] = (keys if order is None else keys[order])[:, None]
        for n, column in enumerate((words, *more)):
            rows[:, n, 1] = column if order is None or np.ndim(column) == 0 else column[order]
        self._sorter.add_rows(rows.reshape(-1, 2))


def _event(number: int, more: Sequence[int]) -> list[Any]:
    """The form of an event with its value, and more types with theirs."""
    form: list[Any] = [f":{number}:", VALUE]
    for other in more:
        form += [f":{other}:", NEXT]
    return [*form, "\n"]


def _small(values: Any) -> bool:
    """Whether numbers have room in a line's first row."""
    if np.ndim(values) == 0:
        return bool(0 <= values < SMALL)
    return not len(values) or (int(values.min()) >= 0 and int(values.max()) < SMALL)


def _some(values: Any, rows: Int64 | None) -> Any:
    """The rows of a column; all of them for None, and of one number for all the number."""
    return values if rows is None or values is None or np.ndim(values) == 0 else values[rows]
