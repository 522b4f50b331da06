"""Who waited, and for whom, over the whole run: one row per rank, to sort ranks by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from alltrace.align.aligned import Aligned, clock_error_ns
from alltrace.run.overlay import Overlay
from alltrace.run.store import Run
from alltrace.tiles.usual_steps import UsualSteps
from alltrace.trace.intervals import NOTHING, Merged, by_track, merge_by_track

_CLOCK_FACTS = ("errors_ns", "components", "shared")


def waited_and_caused(run: Run) -> dict[int, tuple[int, int]]:
    """For each rank its ns of waiting in matched operations, and those others waited for it; empty if unaligned."""
    # Raises `InputError`: the alignment is damaged.
    members = matched(run)
    if members is None:
        return {}
    rank, last, wait = members["rank"], members["last_rank"], members["wait_ns"]
    ranks = [r.rank for r in run.ranks]
    most = max(*ranks, 0) + 1
    waited, caused = np.zeros(most, np.int64), np.zeros(most, np.int64)
    np.add.at(waited, rank, wait)
    np.add.at(caused, last, wait)
    return {r: (int(waited[r]), int(caused[r])) for r in ranks}


def waits_of(run: Run) -> dict[int, Merged]:
    """When each rank waits for others at matched operations, aligned ns; nothing without an alignment."""
    members = matched(run)
    if members is None:
        return {}
    sets = merge_by_track(members["rank"], members["wait_start"], members["wait_start"] + members["wait_ns"])
    return {r.rank: sets.get(r.rank, NOTHING) for r in run.ranks}


class Instance(NamedTuple):
    start: int  # its first arrival, ns from the run's first event
    end: int  # its last end, likewise
    ranks: tuple[int, ...]  # its members, those that waited longest first; ranks that did not wait come last
    rows: tuple[int, ...]  # the rows of the members' `collectives`, in that order
    arrivals: tuple[int, ...]  # when they arrived, in that order


def worst_instance(
    run: Run, members: Mapping[str, Any] | None, ranks: Sequence[int], steps: UsualSteps, *, transfer: bool = False
) -> Instance | None:
    """The instance of a usual step when others waited longest for `ranks`, or their longest `transfer`."""
    # `members`: the result of `matched` for it. `transfer`: whether the time from the last arrival to the end decides,
    # and not the waiting. Returns the instance; None if no operation is matched, or with `ranks` no rank waited for
    # them.
    if members is None or not len(members["instance"]):
        return None
    instance = members["instance"]
    if transfer:
        last = np.zeros(int(instance.max()) + 1, np.int64)
        np.maximum.at(last, instance, members["start"])
        mine = np.flatnonzero(np.isin(members["rank"], ranks))
        worth = (members["end"] - last[instance])[mine]
    else:
        mine = np.flatnonzero(np.isin(members["last_rank"], ranks) & (members["wait_ns"] > 0))
        worth = members["wait_ns"][mine]
    if not len(mine):
        return None
    step = np.full(len(mine), -1)
    for (number,), own in by_track(members["rank"][mine]):
        step[own] = steps.of_each(number, members["start"][mine][own], device=True)
    usual = steps.usual(step, worth)
    mine, worth = mine[usual], worth[usual]
    numbers, which = np.unique(instance[mine], return_inverse=True)
    worst = numbers[np.argmax(np.bincount(which, weights=worth))]
    rows = np.flatnonzero(instance == worst)
    rows = rows[np.argsort(members["start"][rows], kind="stable")]
    start, end, zero = members["start"][rows], members["end"][rows], run.span_ns[0]
    return Instance(
        int(start.min()) - zero,
        int(end.max()) - zero,
        tuple(members["rank"][rows].tolist()),
        tuple(members["row"][rows].tolist()),
        tuple((start - zero).tolist()),
    )


class Certainty:
    def __init__(self, overlay: Overlay) -> None:
        self._facts = [{int(r): n for r, n in overlay.facts.get(name, {}).items()} for name in _CLOCK_FACTS]

    def least_ns(self, one: int, other: int) -> int | None:
        """From when on a wait of one rank for another is a fact: their clocks' error; None if it is not known."""
        return clock_error_ns(one, other, *self._facts)

    def is_fact(self, wait_ns: int, one: int, other: int) -> bool:
        """Whether a wait is no error of the clocks."""
        least = self.least_ns(one, other)
        return least is not None and wait_ns >= least


def matched(run: Run) -> dict[str, Any] | None:
    """Instances' members, arrays of n, `instance`, `rank`, `row`, `start`, `end` (aligned), `last_rank`, `wait_ns`."""
    # A wait that the clocks' error could explain is 0; it is from `wait_start` on. `last_rank` is the rank that the
    # member waits for.
    if run.overlay is None:
        return None
    if run.overlay.facts.get("rooted"):  # who waits for whom depends on what the operations are
        table = Aligned(run).members
        fact = table.column("fact").to_numpy(zero_copy_only=False)
        named = {"last_rank": "awaited_rank", "start": "arrival_ns", "wait_start": "wait_start_ns"}
        needed = ("instance", "rank", "row", "start", "end", "wait_start", "last_rank")
        values = {name: table.column(named.get(name, name)).to_numpy().astype(np.int64) for name in needed}
        return values | {"wait_ns": np.where(fact, table.column("wait_ns").to_numpy(), 0)}
    from alltrace.run.parquet import read_parquet

    members = read_parquet(run.overlay.files.path("members.parquet"), ["instance", "rank", "row", "start", "end"])
    names = ("instance", "rank", "row", "start", "end")
    by_instance = np.lexsort([members.column(c).to_numpy() for c in ("rank", "instance")])  # they are stored by rank
    instance, rank, row, start, end = (members.column(c).to_numpy()[by_instance].astype(np.int64) for c in names)
    clocks = {r.rank: run.clock(r) for r in run.ranks}
    for (number,), own in by_track(rank):
        if number in clocks:
            start[own], end[own] = clocks[number].apply(start[own]), clocks[number].apply(end[own])
    if not len(instance):
        return dict.fromkeys(
            ("instance", "rank", "row", "start", "end", "wait_start", "last_rank", "wait_ns"), instance
        )
    firsts = np.flatnonzero(np.concatenate(([True], instance[1:] != instance[:-1])))
    counts = np.diff(np.append(firsts, len(instance)))
    arrival = np.repeat(np.maximum.reduceat(start, firsts), counts)
    last_of = np.minimum.reduceat(np.where(start == arrival, rank, np.iinfo(np.int64).max), firsts)
    last = np.repeat(last_of, counts)
    wait = np.maximum(np.minimum(arrival, end) - start, 0)
    pairs, pair = np.unique(rank << 32 | last, return_inverse=True)
    certainty = Certainty(run.overlay)
    least = [certainty.least_ns(key >> 32, key & 0xFFFFFFFF) for key in pairs.tolist()]
    error = np.array([-1 if n is None else n for n in least], np.int64)[pair]
    facts_of = {
        "instance": instance,
        "rank": rank,
        "row": row,
        "start": start,
        "end": end,
        "wait_start": start,
        "last_rank": last,
    }
    return facts_of | {"wait_ns": np.where((error >= 0) & (wait >= error), wait, 0)}
