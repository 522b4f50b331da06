"""What the devices of a rank did in a window, without names, tracks or lanes: all that a folded rank shows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alltrace.core import tiles as core
from alltrace.run.clock import ClockMap
from alltrace.run.rank import Rank
from alltrace.tiles.grid import MOST_SPAN_NS
from alltrace.tiles.tracks import COMMUNICATION_CODE, COPY, SOURCES, codes_of, integers, intervals

Work = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]

_RUN_BYTES = 700  # memory of a `Run` in addition to its arrays


@dataclass(frozen=True)
class Run:
    """Work of one device with ascending starts: n rows."""

    device: int  # the device, -1 if not known
    clock: ClockMap  # the map from the times of the rank's files to aligned ones
    start: NDArray[Any]  # int64 array, ns in the time of the rank's files: only the rows of a window are aligned
    end: NDArray[Any]  # int64 array
    reach: NDArray[Any]  # the latest end of a row and all before it; the ends themselves where they ascend
    code: NDArray[Any]  # int8 array, see `alltrace.tiles.tracks.CLASSES`

    @property
    def nbytes(self) -> int:
        shared = 0 if self.reach is self.end else self.reach.nbytes
        return self.start.nbytes + self.end.nbytes + self.code.nbytes + shared + _RUN_BYTES

    def within(self, start: int, end: int) -> Work:
        """Starts, ends (aligned) and codes of all rows that overlap [start, end), and perhaps of some near it."""
        low, high = (self.clock.invert_one(t) for t in (start, end))  # right to a nanosecond
        rows = slice(
            int(np.searchsorted(self.reach, low - 2, "right")), int(np.searchsorted(self.start, high + 2, "left"))
        )
        return self.clock.apply(self.start[rows]), self.clock.apply(self.end[rows]), self.code[rows]


def runs_of(stored: Rank, table: str, group: int) -> Iterator[Run]:
    """The work in one piece of a table of the group `gpu`."""
    # A table is sorted by track and start, so a track is an ascending run, or a part of one if the next begins later.
    alone = stored.constant(table, group, "device")
    columns = ["start", "end", *(["device"] if alone is None else []), *(["kind"] if table == "kernels" else [])]
    rows = stored.file_piece(table, group, columns)
    starts, ends = intervals(rows)
    codes = codes_of(SOURCES[table], rows)
    new = starts[1:] < starts[:-1]
    devices = integers(rows, "device") if alone is None else None
    if devices is not None:
        new |= devices[1:] != devices[:-1]
    bounds = [0, *(np.flatnonzero(new) + 1).tolist(), len(starts)] if len(starts) else []
    for low, high in pairwise(bounds):
        end = ends[low:high]
        reach = end if (end[1:] >= end[:-1]).all() else np.maximum.accumulate(end)
        device = int(devices[low]) if devices is not None else -1 if alone is None else alone
        yield Run(device, stored.clock, starts[low:high], end, reach, codes[low:high])


def binned_parts(parts: Sequence[Work], start: int, level: int, bins: int) -> NDArray[Any]:
    """What a device did in each bin: compute, communication that no compute covers, copies that nothing else covers."""
    # The same as `rank_tiles.parts_of` and `bin_coverage_ns`, for the few events of a window and in one pass. `parts`:
    # starts, ends and codes of the device's work, each part in any order. `start`: where the first bin begins, aligned
    # ns. `level`: bins are two to this power of ns wide. `bins`: how many. Returns int64 array (3, bins), ns.
    starts, ends, codes = (np.concatenate([part[i] for part in parts]) for i in range(3))
    if (starts[1:] < starts[:-1]).any():
        order = np.argsort(starts, kind="stable")
        starts, ends, codes = starts[order], ends[order], codes[order]
    kinds = np.where(codes == COMMUNICATION_CODE, 1, np.where(codes == COPY, 2, 0)).astype(np.int8)
    out = np.zeros((3, bins), np.int64)
    last = start + min(bins << level, MOST_SPAN_NS)
    core.add_exclusive_time(starts, ends, kinds, start, last, level, np.empty(3, np.int64), out)
    return out
