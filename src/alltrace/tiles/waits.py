"""Who waited, and for whom, over the whole run: one row per rank, to sort ranks by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from alltrace.trace.intervals import NOTHING, by_track, merge_by_track

if TYPE_CHECKING:
    from alltrace.run.overlay import Overlay
    from alltrace.run.store import Run
    from alltrace.trace.intervals import Merged

_SURE_RESIDUALS = 3
"""A wait shorter than so many residuals of the clocks is not counted, as in the recipe `stragglers`."""


def waited_and_caused(run: Run) -> dict[int, tuple[int, int]]:
    """For each rank the ns that it waited in matched operations, and those that others waited for it; empty without an alignment.

    Raises:
        InputError: The alignment is damaged.
    """
    found = matched(run)
    if found is None:
        return {}
    rank, last, wait = found["rank"], found["last_rank"], found["wait_ns"]
    ranks = [r.rank for r in run.ranks]
    most = max(*ranks, 0) + 1
    waited, caused = np.zeros(most, np.int64), np.zeros(most, np.int64)
    np.add.at(waited, rank, wait)
    np.add.at(caused, last, wait)
    return {r: (int(waited[r]), int(caused[r])) for r in ranks}


def waits_of(run: Run) -> dict[int, Merged]:
    """When each rank waits for others at matched operations, aligned ns; nothing without an alignment."""
    found = matched(run)
    if found is None:
        return {}
    sets = merge_by_track(found["rank"], found["start"], found["start"] + found["wait_ns"])
    return {r.rank: sets.get(r.rank, NOTHING) for r in run.ranks}


def worst_wait(run: Run, rank: int) -> tuple[int, int] | None:
    """First arrival and last end, ns from the run's first event, of the operation at which others waited longest for `rank`."""
    found = matched(run)
    if found is None:
        return None
    mine = np.flatnonzero((found["last_rank"] == rank) & (found["wait_ns"] > 0))
    if not len(mine):
        return None
    instances, which = np.unique(found["instance"][mine], return_inverse=True)
    worst = instances[np.argmax(np.bincount(which, weights=found["wait_ns"][mine]))]
    rows = found["instance"] == worst
    zero = run.span_ns[0]
    return int(found["start"][rows].min()) - zero, int(found["end"][rows].max()) - zero


class Certainty:
    """What the clocks of an alignment can tell.

    Args:
        overlay: The alignment.
    """

    def __init__(self, overlay: Overlay) -> None:
        self._residuals, self._components = (overlay.facts.get(n, {}) for n in ("residuals_ns", "components"))

    def least_ns(self, one: int, other: int) -> int | None:
        """From how long on a wait of one rank for another is a fact: three residuals; None where nothing connects their clocks."""
        if one == other:
            return 0
        residuals = [self._residuals.get(str(r)) for r in (one, other)]
        if None in residuals or self._components.get(str(one)) != self._components.get(str(other)):
            return None
        return _SURE_RESIDUALS * max(int(r) for r in residuals)

    def is_fact(self, wait_ns: int, one: int, other: int) -> bool:
        """Whether a wait can be told from an error of the clocks."""
        least = self.least_ns(one, other)
        return least is not None and wait_ns >= least


def matched(run: Run) -> dict[str, Any] | None:
    """The members of all matched instances: arrays of n, `instance`, `rank`, `start`, `end` (aligned), `last_rank`, `wait_ns`.

    A wait that the clocks' error could explain is 0.
    """
    if run.overlay is None:
        return None
    from alltrace.run.parquet import read_parquet

    members = read_parquet(run.overlay.files.path("members.parquet"), ["instance", "rank", "start", "end"])
    names = ("instance", "rank", "start", "end")
    by_instance = np.lexsort([members.column(c).to_numpy() for c in ("rank", "instance")])  # they are stored by rank
    instance, rank, start, end = (members.column(c).to_numpy()[by_instance].astype(np.int64) for c in names)
    clocks = {r.rank: run.clock(r) for r in run.ranks}
    for (number,), own in by_track(rank):
        if number in clocks:
            start[own], end[own] = clocks[number].apply(start[own]), clocks[number].apply(end[own])
    if not len(instance):
        return {"instance": instance, "rank": rank, "start": start, "end": end, "last_rank": rank, "wait_ns": start}
    firsts = np.flatnonzero(np.concatenate(([True], instance[1:] != instance[:-1])))
    counts = np.diff(np.append(firsts, len(instance)))
    arrival = np.repeat(np.maximum.reduceat(start, firsts), counts)
    last_of = np.minimum.reduceat(np.where(start == arrival, rank, np.iinfo(np.int64).max), firsts)
    last = np.repeat(last_of, counts)
    wait = np.maximum(np.minimum(arrival, end) - start, 0)
    facts = run.overlay.facts
    most = int(max(rank.max(), max((r.rank for r in run.ranks), default=0))) + 1
    residual, component = np.full(most, -1, np.int64), np.full(most, -1, np.int64)
    for table, source in ((residual, facts.get("residuals_ns", {})), (component, facts.get("components", {}))):
        for number, value in source.items():
            if value is not None and 0 <= int(number) < most:
                table[int(number)] = value
    error = np.maximum(residual[rank], residual[last])
    sure = (residual[rank] >= 0) & (residual[last] >= 0) & (component[rank] == component[last]) & (wait >= _SURE_RESIDUALS * error)
    return {"instance": instance, "rank": rank, "start": start, "end": end, "last_rank": last, "wait_ns": np.where(sure, wait, 0)}
