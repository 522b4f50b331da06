"""Where findings can be seen: the ranks to look at, a range of time, and the event that shows it most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from alltrace.tiles.view import View
from alltrace.tiles.waits import Instance, matched, worst_instance
from alltrace.tiles.window import longest_named

MOST_RANKS = 16
_LEAST_ROOM_NS = 1000
_TRANSFERS = frozenset({"slow-communicator", "exposed-communication", "serialized-communication"})
_WAITED_FOR = frozenset(
    {"straggler", "imbalance", "slow-host", "throttling", "device-stall", "low-bandwidth", "missing-rank", "jitter"}
)


class Place(NamedTuple):
    """Where to look."""

    # the culprit, a typical peer, then members of the worst instance, those that waited longest first; 16 at most
    ranks: tuple[int, ...]
    culprit: int  # the culprit with tracks to open, or the first rank of the run if no rank is responsible
    peer: int | None  # a rank that is neither among the culprits nor the first or last to arrive; None if there is none
    start: int  # where to begin, ns from the run's first event
    end: int  # where to end, likewise
    event: tuple[int, str, int] | None  # the rank, table and row of what is to be chosen; None if nothing is


class Places:
    """The places of a run's findings. `view`: the run with its pyramid."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._run = view.events.run
        self._known = [r.rank for r in self._run.ranks]
        self._matched: dict[str, Any] | None = matched(self._run)

    def of(self, kind: str, culprits: Sequence[int], where: str | None) -> Place | None:
        """The place of a finding; None of a run without ranks.

        `culprits`: its ranks; all ranks for a finding without culprits. `where`: its kernel, range,
        communicator or call. Raises `InputError`: a file of the run is damaged.
        """
        if not self._known:
            return None
        there = set(self._known)
        named = [rank for rank in culprits if rank in there]
        ranks = named or self._known
        instance = None
        if kind in _WAITED_FOR | _TRANSFERS:
            instance = worst_instance(self._run, self._matched, ranks, transfer=kind in _TRANSFERS)
        if instance is not None:
            return self._at_instance(instance, ranks)
        culprit = ranks[0]
        peer = next((rank for rank in self._known if rank not in set(ranks)), None)
        if peer is None and len(self._known) > 1:
            peer = next(rank for rank in self._known if rank != culprit)
        shown = tuple(dict.fromkeys([culprit, *([] if peer is None else [peer]), *ranks]))[:MOST_RANKS]
        event = longest_named(self._view.events, culprit, where) if where else None
        if event is None:
            return Place(shown, culprit, peer, 0, self._view.grid.span_ns, None)
        return Place(shown, culprit, peer, *_with_room(event.start, event.end), (culprit, event.table, event.row))

    def _at_instance(self, instance: Instance, ranks: Sequence[int]) -> Place:
        """The members of an instance, of which the last of `ranks` to arrive is the culprit."""
        blamed = set(ranks)
        culprit, row = next(
            ((m, r) for m, r in zip(reversed(instance.ranks), reversed(instance.rows), strict=True) if m in blamed),
            (instance.ranks[-1], instance.rows[-1]),
        )
        others = [m for m in instance.ranks if m != culprit]
        peers = [m for m in others if m not in blamed] or others
        peer = peers[len(peers) // 2] if peers else None
        shown = tuple(dict.fromkeys([culprit, *([] if peer is None else [peer]), *others]))[:MOST_RANKS]
        return Place(shown, culprit, peer, *_with_room(instance.start, instance.end), (culprit, "collectives", row))


def _with_room(start: int, end: int) -> tuple[int, int]:
    """A range of time with room around it."""
    room = max((end - start) // 2, _LEAST_ROOM_NS)
    return max(start - room, 0), end + room
