"""Which call launched which work, and which call waited: rows of a rank that have a correlation in common, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from alltrace.export.columns import call_keys
from alltrace.export.sorted_rows import RowSorter
from alltrace.trace.arrays import Int64

_WORK, _WAIT = 1 << 60, 1 << 61  # later than any call starts
_REMAINDERS = 1 << 22  # correlations count up, so this many are distinct


class CallJoin:
    """Takes work and waits for work, and then calls, and joins them by process and correlation: which call launched, which waited.

    Calls come last, as many launch nothing, and those are dropped at once. Correlation 0 belongs to work without a launch. Of
    nested calls of one correlation the outermost is used.
    `rows`: where to sort, of five columns.
    """

    def __init__(self, rows: RowSorter) -> None:
        self._rows = rows
        self._wanted = np.zeros(_REMAINDERS, np.bool_)  # which remainders of keys some work or wait has

    def calls(self, processes: Int64, correlations: Int64, starts: Int64, ends: Int64, tracks: Int64) -> None:
        """Add n calls; the work and the waits were added before."""
        keys = call_keys(processes, correlations)
        rows = np.flatnonzero(self._wanted[keys & _REMAINDERS - 1] & (correlations > 0) & (tracks >= 0))
        self._rows.add(keys[rows], starts[rows], ends[rows], tracks[rows], 0)

    def work(self, processes: Int64, correlations: Int64, starts: Int64, tracks: Int64, sizes: Int64, tag: int) -> None:
        """Add n pieces of work, with the size and the tag of their communication."""
        rows = np.flatnonzero((correlations > 0) & (tracks >= 0))
        self._rows.add(self._keys(processes, correlations, rows), _WORK + tag, starts[rows], tracks[rows], sizes[rows])

    def waits(self, processes: Int64, correlations: Int64, tracks: Int64) -> None:
        """Add n waits for what is on these tracks."""
        rows = np.flatnonzero((correlations > 0) & (tracks >= 0))
        self._rows.add(self._keys(processes, correlations, rows), _WAIT, 0, tracks[rows], 0)

    def _keys(self, processes: Int64, correlations: Int64, rows: Int64) -> Int64:
        keys = call_keys(processes[rows], correlations[rows])
        self._wanted[keys & _REMAINDERS - 1] = True
        return keys

    def pairs(self) -> Iterator[tuple[tuple[Int64, ...], tuple[Int64, ...]]]:
        """What was joined, block by block, as int64 arrays.

        Yields for launches the starts, ends and tracks of the calls, starts, tracks, sizes and tags of the
        work; for waits the starts, ends and tracks of the calls, and the tracks that they waited for.
        """
        for keys, kinds, times, tracks, sizes in self._rows.blocks():
            number = np.arange(len(keys))
            calls = np.maximum.accumulate(np.where(np.append(True, keys[1:] != keys[:-1]), number, 0))
            known = kinds[calls] < _WORK
            launched = np.flatnonzero(known & (kinds >= _WORK) & (kinds < _WAIT))
            waited = np.flatnonzero(known & (kinds >= _WAIT))
            launching, waiting = calls[launched], calls[waited]
            work = (times[launched], tracks[launched], sizes[launched], kinds[launched] - _WORK)
            yield (
                (kinds[launching], times[launching], tracks[launching], *work),
                (kinds[waiting], times[waiting], tracks[waiting], tracks[waited]),
            )
