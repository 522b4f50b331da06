"""Counts of pairs of a name and a small number, as rows come piece by piece: no hash table, no sort, little memory touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Int64 = NDArray[np.int64]

_MOST_IDS = 1 << 12
_MOST_CELLS = 1 << 20
SLOTS = 1 << 16


class Slots:
    """Places of ids in a table of 65,536, by 16 of their 64 bits: ids of names are hashes, so that some 16 bits tell a few apart.

    Attributes:
        ids: The ids that came, in the order in which they did.
        places: The slot of each of these.
    """

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.places: NDArray[np.intp] = np.empty(0, np.intp)
        self._part = 0
        self._id: Int64 = np.empty(0, np.int64)
        self._usable = self._fill()

    def of(self, ids: Int64) -> NDArray[np.intp] | None:
        """The slot of each id; None where no 16 bits tell them all apart, now and from then on."""
        if not self._usable:
            return None
        slots = self._slots(ids)
        unknown = self._id.take(slots) != ids
        if not unknown.any():
            return slots
        self.ids += pc.dictionary_encode(pa.array(ids[unknown])).dictionary.to_pylist()
        self._usable = len(self.ids) <= _MOST_IDS and any(self._fill() for self._part in range(self._part, 4))
        return self._slots(ids) if self._usable else None

    def _slots(self, ids: Int64) -> NDArray[np.intp]:
        return np.ascontiguousarray(ids).view(np.uint16)[self._part :: 4].astype(np.intp)

    def _fill(self) -> bool:
        """Put each id into its slot; False where two have the same."""
        ids = np.array(self.ids, np.int64)
        self.places = self._slots(ids)
        # an id that belongs elsewhere marks a slot as empty
        self._id = np.zeros(SLOTS, np.int64)
        self._id[0] = -1
        self._id[self.places] = ids
        return len(set(self.places.tolist())) == len(ids)


class Cells:
    """How often each pair of a number and a value stands, in a table with a cell for each pair, as long as it is small."""

    def __init__(self) -> None:
        self._count: Int64 = np.zeros((0, 0), np.int64)
        self._number: NDArray[np.uint32] | None = None
        self._base: Int64 = np.empty(0, np.int64)

    def add(self, slots: NDArray[np.intp], number: NDArray[np.uint32], numbers: int, values: Int64, highest: int) -> bool:
        """Count pairs; False, and nothing is counted, where that takes too many cells.

        Args:
            slots: A slot for each value.
            number: The number in each slot.
            numbers: How many numbers there are.
            values: The values, none below 0.
            highest: The largest of them.
        """
        rows, width = self._count.shape
        if numbers > rows or highest >= width:
            wider = width if highest < width else highest + 1 + highest // 8
            if numbers * wider > _MOST_CELLS:
                return False
            larger = np.zeros((numbers, wider), np.int64)
            larger[:rows, :width] = self._count
            self._count, self._number = larger, None
        if number is not self._number:
            self._number, self._base = number, number.astype(np.int64) * self._count.shape[1]
        cells = self._base.take(slots)
        cells += values
        np.add.at(self._count.reshape(-1), cells, 1)
        return True

    def take(self) -> tuple[Int64, Int64, Int64]:
        """Number, value and count of the pairs that were counted, sorted by both; they are forgotten."""
        counts = self._count.reshape(-1)
        found = np.flatnonzero(counts != 0)  # of truths NumPy finds them ten times as fast as of numbers
        owner, value = np.divmod(found, max(self._count.shape[1], 1))
        count = counts.take(found)
        self._count, self._number = np.zeros((0, 0), np.int64), None
        return owner, value, count
