"""How sure it is which ranks communicate: of each communicator and of the whole run, from 0 to 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from alltrace.align.disjoint_sets import DisjointSets
from alltrace.align.schema import LEAST_MATCHING_SCORE
from alltrace.trace.distinct import distinct_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from alltrace.align.coarse_clocks import Timing
    from alltrace.align.operations import Operations

_DOUBTFUL = 0.75


def explained(
    operations: Operations, timing: Timing, number: NDArray[np.int64], confidence: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """How well each operation is explained, from 0 to 1, and which count: those that could have a partner.

    An operation is explained by its confidence, times the share of its communicator's members that were captured at the time and
    are in its instance. One that ends while no other rank was captured has no partner to be found.

    Args:
        operations: The operations.
        timing: Their times on one clock.
        number: The instance of each, -1 without one.
        confidence: How sure each is of it.
    """
    ranks, begins = np.unique(operations.rank, return_index=True)
    stops = np.append(begins[1:], len(operations))
    place = np.searchsorted(ranks, operations.rank)
    first, last = np.minimum.reduceat(timing.end, begins), np.maximum.reduceat(timing.end, begins)
    component = timing.component[begins]
    seen = np.bincount(number + 1, minlength=1)[number + 1]
    expected = np.zeros(len(operations), np.int64)
    pairs = distinct_rows(operations.communicator, place)[0]
    by_group = np.split(pairs[1], np.flatnonzero(np.diff(pairs[0])) + 1)
    known = {int(c): m for c, m in zip(np.unique(pairs[0]).tolist(), by_group, strict=True)}
    for group, members in known.items():
        others = np.arange(len(ranks)) if group < 0 else members
        opens, shuts = {}, {}
        for part in np.unique(component[others]).tolist():
            own = others[component[others] == part]
            opens[part], shuts[part] = np.sort(first[own]), np.sort(last[own])
        for i in members.tolist():
            rows = np.arange(begins[i], stops[i])
            rows = rows[operations.communicator[rows] == group]
            part, ends = int(component[i]), timing.end[rows]
            expected[rows] = np.searchsorted(opens[part], ends, "right") - np.searchsorted(shuts[part], ends, "left")
    several = len(np.unique(component)) > 1
    counts = (expected >= 2) | (several & (operations.communicator < 0))
    share = np.minimum(seen / np.maximum(expected, 1), 1.0)
    return np.where((number >= 0) & (seen >= 2), confidence * np.where(counts, share, 1.0), 0.0), counts


def connected(communicator: NDArray[np.int64], rank: NDArray[np.int64], every: NDArray[np.int64]) -> tuple[float, int]:
    """The share of pairs of ranks that a chain of communicators connects, and how many parts of the run none connects.

    Args:
        communicator: The communicator of each matched operation.
        rank: Its rank.
        every: All ranks.
    """
    place = {int(r): n for n, r in enumerate(every.tolist())}
    parts = DisjointSets(len(place))
    first: dict[int, int] = {}
    for group, member in distinct_rows(communicator, rank)[0].T.tolist():
        parts.join(first.setdefault(group, place[member]), place[member])
    sizes = np.unique(parts.labels(), return_counts=True)[1]
    return float((sizes * (sizes - 1)).sum() / max(len(place) * (len(place) - 1), 1)) if len(place) > 1 else 1.0, len(sizes)


def reason_of(score: float | None, unnamed: float, certainty: Mapping[int, float], apart: int) -> str | None:
    """Why a score is too low to rely on; None if it is not.

    Args:
        score: The score of the run.
        unnamed: The share of operations with an unknown communicator.
        certainty: How sure the clock of each rank is by which operations were matched.
        apart: Parts of the run that no communicator connects.
    """
    if score is None or score >= LEAST_MATCHING_SCORE:
        return None
    why = [f"{1 - score:.0%} of the communication is not explained"]
    if unnamed:
        why.append(f"for {unnamed:.0%} the communicator is known neither from the reports nor from the times")
    doubtful = sum(c < _DOUBTFUL for c in certainty.values())
    if apart > 1:
        why.append(f"the clocks of {apart} groups of ranks could not be related: no communicator connects them")
    elif doubtful:
        why.append(f"the clocks of {doubtful} of {len(certainty)} ranks are related to the others' with little certainty")
    return "; ".join(why)
