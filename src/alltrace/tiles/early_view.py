"""A run without its pyramid: what a view shows while the clocks are found and the levels of detail are built."""

import numpy as np

from alltrace.run.store import Run
from alltrace.tiles.build import SHARES, rank_tracks
from alltrace.tiles.files import NO_DATA
from alltrace.tiles.grid import Grid, grid_of, level_for
from alltrace.tiles.rank_tiles import TrackTiles
from alltrace.tiles.view import View


# The grid has one bin, so everything narrower is computed from events: the heat map of the ranks in view
# (`fine.fine_heat`), and the tiles of tracks. The bin itself has no data. Without an alignment, times are on each
# host's own clock.
class EarlyView(View):
    """A run that is read on demand, a rank at a time."""

    def __init__(self, run: Run) -> None:
        whole = grid_of(run.span_ns, len(run.ranks), 0)
        grid = Grid(whole.start_ns, whole.span_ns, level_for(whole.span_ns, 1))
        names = SHARES if run.overlay is not None else SHARES[:-1]
        self._show(run, grid, {}, {n: np.full((len(run.ranks), 1), NO_DATA, np.uint16) for n in names}, {})

    def devices(self, rank: int) -> int:
        return len(self.events.busy(rank, self.grid.start_ns, self.grid.start_ns + self.grid.span_ns))

    def _read_tracks(self, rank: int) -> dict[str, TrackTiles]:
        return {track.key: track for track in rank_tracks(self.events.rank(rank), self.grid)}
