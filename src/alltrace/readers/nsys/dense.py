"""Numbers rows densely by a key, in the order of first sight; and the distinct ones of pairs of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np


class DenseRows:
    """Maps int64 keys to rows 0, 1, 2, ... in the order of first sight."""

    def __init__(self) -> None:
        self.keys: list[int] = []
        self._sorted: Any = np.empty(0, np.int64)
        self._rows: Any = np.empty(0, np.int32)

    def row(self, key: int) -> int:
        """The row of one key."""
        return int(self.rows(np.array([key], np.int64))[0])

    def rows(self, keys: Any) -> Any:
        """The rows of an int64 array of keys, as int32."""
        if not len(keys):
            return np.empty(0, np.int32)
        if (keys == keys[0]).all():
            return np.full(len(keys), self._rows_of(keys[:1])[0], np.int32)
        # neighbours often have the same key: look up one of each run
        starts = np.flatnonzero(keys[1:] != keys[:-1]) + 1
        if len(starts) * 4 > len(keys):
            return self._rows_of(keys)
        starts = np.concatenate((np.zeros(1, starts.dtype), starts))
        return np.repeat(self._rows_of(keys[starts]), np.diff(starts, append=len(keys)))

    def _rows_of(self, keys: Any) -> Any:
        if len(self._sorted):
            at = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
            hit = self._sorted[at] == keys
            if hit.all():
                return self._rows[at]
            self._add(keys[~hit])
        else:
            self._add(keys)
        return self._rows[np.searchsorted(self._sorted, keys)]

    def _add(self, keys: Any) -> None:
        fresh, first = np.unique(keys, return_index=True)
        self.keys.extend(fresh[np.argsort(first, kind="stable")].tolist())
        every = np.array(self.keys, np.int64)
        order = np.argsort(every, kind="stable")
        self._sorted = every[order]
        self._rows = order.astype(np.int32)


def unique_pairs(first: Any, second: Any) -> tuple[list[tuple[int, int]], Any]:
    """The distinct pairs of two int64 arrays, ascending, and which of them each row has."""
    if (first == first[0]).all() and (second == second[0]).all():
        return [(int(first[0]), int(second[0]))], np.zeros(len(first), np.int64)
    ones, first_at = np.unique(first, return_inverse=True)
    twos, second_at = np.unique(second, return_inverse=True)
    joined, inverse = np.unique(first_at * len(twos) + second_at, return_inverse=True)
    return [(int(ones[j // len(twos)]), int(twos[j % len(twos)])) for j in joined.tolist()], inverse
