"""The heat map where it is finer than the bins that are kept: a few ranks at a time, from their events."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alltrace.tiles.busy import Work, binned_parts
from alltrace.tiles.cancel import WANTED, Token
from alltrace.tiles.files import NO_DATA, as_shares
from alltrace.tiles.grid import MOST_SPAN_NS, TILE_BINS
from alltrace.tiles.tracks import COMMUNICATION_CODE, COPY
from alltrace.tiles.view import View
from alltrace.trace.errors import UsageError
from alltrace.trace.intervals import bin_coverage_ns, merge

MOST_RANKS = 64
"""The most ranks of a tile in one request."""


def fine_heat(
    view: View, metric: str, level: int, index: int, ranks: Sequence[int], token: Token = WANTED
) -> NDArray[np.uint16]:
    """One tile of the heat map at a level finer than the grid's."""
    # `metric`: one of `view.metrics`, but no GPU metric: its samples are on the timeline. `ranks`: the ranks, a row
    # each. `token`: checked before each rank: whether the answer is still needed. Returns uint16 array (ranks, bins) as
    # from `View.heat`; bins after the run's end are left out.
    if metric not in view.metrics or metric in view.scales:
        raise UsageError.unknown("metric with finer bins", metric, [m for m in view.metrics if m not in view.scales])
    bins = (
        min(view.grid.bins(level) - index * TILE_BINS, TILE_BINS) if 0 <= level < view.grid.level and index >= 0 else 0
    )
    if bins < 1:
        raise UsageError(f"unknown tile {index} of level {level}; expected a level from 0 to {view.grid.level - 1}")
    if len(ranks) > MOST_RANKS:
        raise UsageError(f"{len(ranks)} ranks were requested at once; expected {MOST_RANKS} at most")
    start, end = view.grid.tile_span(level, index)
    last = view.grid.start_ns + view.grid.span_ns  # the last bin counts as far as the run goes
    edges = np.minimum(start + np.minimum(np.arange(bins + 1) << level, MOST_SPAN_NS), last)
    widths = np.maximum(np.diff(edges), 1).astype(np.float64)
    shares = np.full((len(ranks), bins), NO_DATA, np.uint16)
    for row, rank in enumerate(ranks):
        token.check()
        view.events.rank(rank)
        if rank in view.broken:
            continue
        if metric == "waiting":
            waits = view.waits.get(rank)
            if waits is not None:
                shares[row] = as_shares(bin_coverage_ns(waits, edges) / widths)
        elif devices := view.devices(rank):
            did = view.events.busy(rank, start, min(end, last), token).values()
            covered = sum((_covered(parts, metric, start, level, bins) for parts in did), np.zeros(bins))
            share = covered / (widths * devices)
            shares[row] = as_shares(1 - share if metric == "idle" else share)
    return shares


def _covered(parts: Sequence[Work], metric: str, start: int, level: int, bins: int) -> Any:
    """The ns of each bin in which a device did what `metric` counts."""
    if metric in ("communication", "copy"):  # also where something else covers it
        wanted = COMMUNICATION_CODE if metric == "communication" else COPY
        starts, ends = (np.concatenate([p[i][p[2] == wanted] for p in parts]) for i in (0, 1))
        return bin_coverage_ns(merge(starts, ends), start + (np.arange(bins + 1) << level))
    sums = binned_parts(parts, start, level, bins)
    return {"compute": sums[0], "exposed": sums[1]}.get(metric, sums.sum(axis=0))
