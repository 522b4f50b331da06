"""Times and kinds of the operations of all ranks in temporary files, where operations do not fit into memory at once."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from alltrace.align.all_collectives import TABLES_AT_ONCE, AllCollectives
from alltrace.align.operations import flatten
from alltrace.align.timelines import RankTimes, with_inferred
from alltrace.trace.arrays import integers
from alltrace.trace.distinct import distinct_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import Any

    from alltrace.align.operations import Operations
    from alltrace.trace.arrays import Int64

_ALIKE = ("stream", "communicator", "op", "datatype", "peer", "group_rank", "group_size")
"""The columns that are equal for operations of one kind, in addition to the size."""
_SIZES, _OTHER_SIZES = 128, 17
"""How many sizes are kept as they are, and a prime number: all others count as their remainders by it."""
_LEAST_RANKS = 64


class _Place(NamedTuple):
    """Where the operations of a rank begin in the files, and how many there are."""

    first: int
    many: int


class TimelinesWriter:
    """Writes the operations of one rank after another.

    Args:
        file: The file for the times, which must not exist; the kinds have files next to it.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._numbers = _numbers_file(file, 0)
        for path in (self._file, self._numbers):
            path.touch(exist_ok=False)
        self._places: dict[int, _Place] = {}
        self._many: dict[int, int] = {}
        self._kinds: list[pa.Table] = []
        self._counts: list[Int64] = []
        self._sizes: dict[int, int] = {}

    def add(self, rank: int, operations: pa.Table, start: Int64, end: Int64, sequence: Int64) -> None:
        """Write the operations of a rank, at least one.

        Args:
            rank: The rank.
            operations: A table with `MATCHED_COLUMNS`.
            start: The start of each, ascending.
            end: The end of each.
            sequence: The sequence number of each, -1 without one.
        """
        sizes = self._coarse(integers(operations.column("bytes"), -1))
        rows, number = distinct_rows(
            sizes, (sequence >= 0).astype(np.int64), *(integers(operations.column(name), -1) for name in _ALIKE)
        )
        first = np.zeros(rows.shape[1], np.int64)
        first[number[::-1]] = np.arange(len(number))[::-1]
        kinds = operations.take(pa.array(first))
        at = kinds.column_names.index("bytes")
        self._many[rank] = kinds.num_rows
        self._kinds.append(kinds.set_column(at, kinds.schema.field(at), pa.array(rows[0])))
        if len(self._kinds) > TABLES_AT_ONCE:
            self._kinds = [pa.concat_tables(self._kinds).combine_chunks()]
        self._counts.append(np.bincount(number))
        done = next(reversed(self._places.values()), _Place(0, 0))
        self._places[rank] = _Place(done.first + done.many, len(number))
        with self._file.open("ab") as out:
            for column in (start, end, sequence):
                out.write(column.tobytes())
        with self._numbers.open("ab") as out:
            out.write(number.astype(np.int32).tobytes())

    def _coarse(self, sizes: Int64) -> Int64:
        """The sizes; where a run has many, those that come late are put together."""
        values, place = np.unique(sizes, return_inverse=True)
        for size in values.tolist():
            if size not in self._sizes and len(self._sizes) < _SIZES:
                self._sizes[size] = size
        return np.array([self._sizes.get(s, -2 - s % _OTHER_SIZES) for s in values.tolist()], np.int64)[place.reshape(-1)]

    def written(self, texts: Callable[[Any], Any], extents: Mapping[int, tuple[int, int]], most: int) -> SpilledTimelines:
        """What was written, of at least one rank.

        Args:
            texts: The strings of an Arrow array of name ids.
            extents: For each rank the first and the last end.
            most: How many operations are to be in memory at once.
        """
        many = self._many
        kinds = flatten(AllCollectives(pa.concat_tables(self._kinds).combine_chunks(), many), texts, {})
        counts = np.concatenate(self._counts)
        begins = dict(zip(many, np.cumsum([0, *many.values()]).tolist(), strict=False))
        given = np.array([begins[r] for r in kinds.rank.tolist()]) + kinds.row  # they are in another order now
        row_of = np.empty(len(counts), np.int64)
        row_of[given] = np.arange(len(given))
        rows = {rank: row_of[begins[rank] : begins[rank] + n] for rank, n in many.items()}
        at_once = max(most * len(many) // max(int(counts.sum()), 1), _LEAST_RANKS)
        return SpilledTimelines(self._file, self._places, kinds, counts[given], extents, at_once, rows, 0)

    def remove(self) -> None:
        """Remove all files."""
        for version in count():
            path = _numbers_file(self._file, version)
            if not path.exists():
                break
            path.unlink()
        self._file.unlink()


class SpilledTimelines:
    """Operations whose times and kinds are in files; see `alltrace.align.timelines.Timelines`.

    Args:
        file: The file with the times.
        places: Where each rank's are.
        kinds: The kinds.
        counts: How many operations each has.
        extents: For each rank the first and the last end.
        ranks_at_once: How many ranks' times may be in memory at once.
        rows: For each rank the rows of its kinds in `kinds`, by their numbers in the file of kinds.
        version: The number of this file, of which each change of the kinds makes another.
    """

    def __init__(
        self,
        file: Path,
        places: Mapping[int, _Place],
        kinds: Operations,
        counts: Int64,
        extents: Mapping[int, tuple[int, int]],
        ranks_at_once: int,
        rows: Mapping[int, Int64],
        version: int,
    ) -> None:
        self.kinds, self.counts, self.extents = kinds, counts, extents
        self.ranks_at_once: int | None = ranks_at_once
        self._file, self._places, self._at_once, self._rows, self._version = file, places, ranks_at_once, rows, version

    def of(self, rank: int) -> RankTimes:
        """The operations of a rank."""
        start, end, sequence = self._times(rank)
        order = np.argsort(end, kind="stable")
        first, many = self._places[rank]
        number = np.fromfile(_numbers_file(self._file, self._version), np.int32, many, offset=4 * first)
        return RankTimes(start[order], end[order], sequence[order], self._rows[rank][number[order]])

    def _times(self, rank: int) -> Int64:
        """Start and end, ns, and sequence number of a rank's operations, by their start: an int64 array of (3, n)."""
        first, many = self._places[rank]
        return np.fromfile(self._file, np.int64, 3 * many, offset=24 * first).reshape(3, many)

    def by_start(self, rank: int, values: Int64) -> Int64:
        """Values of the operations of a rank as `of` has them, in the order in which they were written."""
        found = np.empty_like(values)
        found[np.argsort(self._times(rank)[1], kind="stable")] = values
        return found

    def named(self, found: Callable[[int], Int64], count: int) -> SpilledTimelines:
        """The same operations with communicators that were inferred; they have another file of kinds."""
        version = self._version + 1
        rows: dict[int, Int64] = {}
        parts: list[Int64] = []
        total = 0
        with _numbers_file(self._file, version).open("wb") as out:
            for rank in self._places:
                pairs, number = distinct_rows(self.of(rank).kind, found(rank))
                parts.append(np.stack((*pairs, np.bincount(number))))
                rows[rank] = total + np.arange(pairs.shape[1])
                total += pairs.shape[1]
                out.write(self.by_start(rank, number).astype(np.int32).tobytes())
        of, inferred, counts = np.concatenate(parts, axis=1)
        kinds = with_inferred(self.kinds.take(of), inferred, count)
        return SpilledTimelines(self._file, self._places, kinds, counts, self.extents, self._at_once, rows, version)


def _numbers_file(times: Path, version: int) -> Path:
    return times.with_name(f"{times.name}.kinds{version}")
