"""Events, states and communications as lines of a .prv, with the keys that put them into order.

At equal times ends come first, then intervals without length (begin and end together), states, begins and communications: a thread
whose interval begins where the last one ends would else be left without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from alltrace.export.lines import INT, TEXT, Pool, Template
from alltrace.export.paraver.sweeps import overlapping
from alltrace.readers.paraver import labels as ev

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from alltrace.export.merge import Sorter

    Int64 = NDArray[np.int64]

END_FIRST, INSTANT, STATE, BEGIN, COMMUNICATION = 0, 1, 3, 4, 5
_PLACES = 8
_MIXED = -1
_AT_ONCE = 1 << 16


class RecordWriter:
    """Makes lines and hands them to a sorter.

    Args:
        sorter: Where the lines go.
    """

    def __init__(self, sorter: Sorter) -> None:
        self.counts = {"states": 0, "events": 0, "communications": 0}
        self._sorter = sorter
        self._pool = Pool()
        self._templates: dict[tuple[Any, ...], Template] = {}
        self._known = 0
        self._last: dict[int, Int64] = {}

    def objects(self, objects: Sequence[str]) -> Int64:
        """Numbers for objects (`cpu:appl:task:thread`), as an int64 array (3, n): as a state's, an event's, a partner's."""
        columns = [[self._pool.add(text) for text in (f"1:{o}:", f"2:{o}:", f"{o}:")] for o in objects]
        found = np.array(columns, np.int64).reshape(len(objects), 3).T
        self._known = max(self._known, int(found.max(initial=-1)) + 1)
        return np.asarray(found)

    def intervals(
        self, objects: Int64, starts: Int64, ends: Int64, types: Any, values: Any, more: Sequence[tuple[int, Any]] = ()
    ) -> None:
        """Add events at the begin and the end of n intervals.

        Args:
            objects: int64 array (3, n).
            starts: int64 array of n.
            ends: int64 array of n.
            types: The type, or an int64 array of n.
            values: int64 array of n, or one value.
            more: More types with their values, which go on the same lines.
        """
        family = types if np.ndim(types) == 0 else _MIXED
        overlap = np.empty(len(starts), np.bool_)
        last = self._last.setdefault(family, np.full(self._known, np.iinfo(np.int64).min))
        types, values = _column(types, len(starts)), _column(values, len(starts))
        more = [(n, _column(v, len(starts))) for n, v in more]
        if not overlapping(np.ascontiguousarray(objects[1]), starts, ends, last, overlap):
            self._pairs(objects, starts, ends, types, values, more)
            return
        for chosen in (~overlap, overlap):
            rows = np.flatnonzero(chosen)
            columns = (objects[:, rows], starts[rows], ends[rows], types[rows], values[rows])
            extra = [(n, v[rows]) for n, v in more]
            # at the end of one of two that overlap nothing else would tell which of them it is
            self._pairs(*columns, extra if chosen is not overlap else [*extra, (ev.LENGTH, ends[rows] - starts[rows])])

    def _pairs(
        self, objects: Int64, starts: Int64, ends: Int64, types: Int64, values: Int64, more: Sequence[tuple[int, Int64]]
    ) -> None:
        begin: list[Any] = [INT, ":", INT, ":", INT]
        end: list[Any] = [INT, ":", INT, ":0"]
        for number, _ in more:
            begin += [f":{number}:", INT]
            end += [f":{number}:0"]
        begin, end = [TEXT, *begin, "\n"], [TEXT, *end, "\n"]
        extra = [v for _, v in more]
        long = ends > starts
        rows = np.flatnonzero(long)
        first = [objects[1][rows], starts[rows], types[rows], values[rows], *(e[rows] for e in extra)]
        self._add(("begin", *(n for n, _ in more)), begin, starts[rows], BEGIN, first)
        self._add(("end", *(n for n, _ in more)), end, ends[rows], END_FIRST, [objects[1][rows], ends[rows], types[rows]])
        rows = np.flatnonzero(~long)
        first = [objects[1][rows], starts[rows], types[rows], values[rows], *(e[rows] for e in extra)]
        columns = [*first, objects[1][rows], starts[rows], types[rows]]
        self._add(("both", *(n for n, _ in more)), [*begin, *end], starts[rows], INSTANT, columns)
        self.counts["events"] += 2 * len(starts)

    def points(self, objects: Int64, times: Int64, types: Any, values: Any, more: Sequence[tuple[Any, Any]] = ()) -> None:
        """Add n events; those of one thread that are given in the order of time keep their order."""
        columns = [objects[1], times, _column(types, len(times)), _column(values, len(times))]
        form: list[Any] = [TEXT, INT, ":", INT, ":", INT]
        for number, value in more:
            columns += [_column(number, len(times)), _column(value, len(times))]
            form += [":", INT, ":", INT]
        self._add(("point", len(more)), [*form, "\n"], times, BEGIN, columns)
        self.counts["events"] += len(times)

    def states(self, objects: Int64, starts: Int64, ends: Int64, states: Int64) -> None:
        """Add n states; `objects` are the first numbers of the threads."""
        self._add(("state",), [TEXT, INT, ":", INT, ":", INT, "\n"], starts, STATE, [objects, starts, ends, states])
        self.counts["states"] += len(starts)

    def communications(
        self, senders: Int64, sent: tuple[Int64, Int64], receivers: Int64, received: tuple[Int64, Int64], sizes: Any, tags: Any
    ) -> None:
        """Add n communications; `sent` and `received` are logical and physical times."""
        count = len(sent[0])
        form = ["3:", TEXT, INT, ":", INT, ":", TEXT, INT, ":", INT, ":", INT, ":", INT, "\n"]
        columns = [senders[2], *sent, receivers[2], *received, _column(sizes, count), _column(tags, count)]
        self._add(("communication",), form, sent[0], COMMUNICATION, columns)
        self.counts["communications"] += count

    def _add(self, key: tuple[Any, ...], form: list[Any], times: Int64, place: int, columns: Sequence[Any]) -> None:
        template = self._templates.get(key)
        if template is None:
            template = self._templates[key] = Template(self._pool, form)
        for at in range(0, len(times), _AT_ONCE):
            part: Any = slice(at, at + _AT_ONCE)
            keys = times[part] * _PLACES + place
            if np.any(keys[1:] < keys[:-1]):  # numbers are sorted in less time than lines
                order = np.argsort(keys, kind="stable")
                part, keys = at + order, keys[order]
            self._sorter.add(keys, template.records(len(keys), *(c if np.ndim(c) == 0 else c[part] for c in columns)))


def _column(values: Any, count: int) -> Int64:
    return np.full(count, values, np.int64) if np.ndim(values) == 0 else values
