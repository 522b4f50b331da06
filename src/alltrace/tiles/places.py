"""Where findings can be seen: the ranks to look at, a time in a usual judged step, and the clearest event."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

from alltrace.tiles.rows import called, plain_row, row_of
from alltrace.tiles.usual_steps import UsualSteps
from alltrace.tiles.view import View
from alltrace.tiles.waits import Instance, matched, worst_instance
from alltrace.tiles.window import longest_named
from alltrace.trace.amounts import amount, shortened

MOST_RANKS = 16
_LEAST_ROOM_NS = 1000
_LONGEST_NAME = 60
_TRANSFERS = frozenset({"slow-communicator", "exposed-communication", "serialized-communication"})
_WAITED_FOR = frozenset(
    {"straggler", "imbalance", "slow-host", "throttling", "device-stall", "low-bandwidth", "missing-rank", "jitter"}
)


class Place(NamedTuple):
    # the culprit, a typical peer, then members of the worst instance, those that waited longest first, or others; 16 at
    # most
    ranks: tuple[int, ...]
    culprit: int  # the culprit with tracks to open, or the first rank of the run if no rank is responsible
    peer: int | None  # a rank that is neither among the culprits nor the first or last to arrive; None if there is none
    start: int  # where to begin, ns from the run's first event
    end: int  # where to end, likewise
    event: tuple[int, str, int] | None  # the rank, table and row of what is to be chosen; None if nothing is
    says: str  # what is seen there, in a sentence


class Places:
    """The places of a run's findings. `view`: the run with its pyramid."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._run = view.events.run
        self._known = [r.rank for r in self._run.ranks]
        self._matched: dict[str, Any] | None = matched(self._run)
        self._steps = UsualSteps(self._run)

    def of(self, kind: str, culprits: Sequence[int], where: str | None) -> Place | None:
        """The place of a finding; None of a run without ranks."""
        # `culprits`: its ranks; all ranks for a finding without culprits. `where`: its kernel, range, communicator or
        # call. Raises `InputError`: a file of the run is damaged.
        if not self._known:
            return None
        there = set(self._known)
        named = [rank for rank in culprits if rank in there]
        ranks = named or self._known
        instance, transfer = None, kind in _TRANSFERS
        if kind in _WAITED_FOR or transfer:
            instance = worst_instance(self._run, self._matched, ranks, self._steps, transfer=transfer)
        if instance is not None:
            return self._at_instance(instance, ranks, transfer=transfer)
        culprit = ranks[0]
        peer = next((rank for rank in self._known if rank not in set(ranks)), None)
        if peer is None and len(self._known) > 1:
            peer = next(rank for rank in self._known if rank != culprit)
        shown = tuple(dict.fromkeys([culprit, *([] if peer is None else [peer]), *ranks, *self._known]))[:MOST_RANKS]
        event = longest_named(self._view.events, culprit, where, self._steps) if where else None
        if event is None:
            return Place(shown, culprit, peer, *self._of_step(culprit))
        says = f"rank {culprit} spends {_time(event.end - event.start)} in {shortened(where or '', _LONGEST_NAME)}"
        says = self._in_step(culprit, event.start, says, device=event.table in ("kernels", "copies", "graphs"))
        return Place(shown, culprit, peer, *_with_room(event.start, event.end), (culprit, event.table, event.row), says)

    def _of_step(self, rank: int) -> tuple[int, int, None, str]:
        """A usual step of a rank as the end of a `Place`; of a run without steps all of it."""
        step = self._steps.median_of(rank)
        if step is None:
            return 0, self._view.grid.span_ns, None, f"rank {rank} over the whole run."
        start, end = (ns - self._run.span_ns[0] for ns in step[1:])
        says = f"step {step[0]} of rank {rank}, which takes {_time(end - start)}."
        return max(start, 0), end, None, says

    def _in_step(self, rank: int, start: int, says: str, *, device: bool) -> str:
        step = self._steps.of(rank, start + self._run.span_ns[0], device=device)
        return f"In step {step}, {says}." if step is not None else f"{says[0].upper()}{says[1:]}."

    def _at_instance(self, instance: Instance, ranks: Sequence[int], *, transfer: bool = False) -> Place:
        """The members of an instance, of which the last of `ranks` to arrive is the culprit."""
        blamed = set(ranks)
        last = len(instance.ranks) - 1
        at = next((n for n in range(last, -1, -1) if instance.ranks[n] in blamed), last)
        culprit, row = instance.ranks[at], instance.rows[at]
        others = [m for m in instance.ranks if m != culprit]
        peers = [m for m in others if m not in blamed] or others
        peer = peers[len(peers) // 2] if peers else None
        shown = tuple(dict.fromkeys([culprit, *([] if peer is None else [peer]), *others]))[:MOST_RANKS]
        name = self._named(culprit, row)
        arrivals = [a for m, a in zip(instance.ranks, instance.arrivals, strict=True) if m in set(peers)]
        if transfer or not arrivals:
            took = _time(instance.end - instance.arrivals[-1])
            says = f"{name} of rank {culprit} takes {took} after all have reached it"
        else:
            late = _time(round(instance.arrivals[at] - median(arrivals)))
            says = f"rank {culprit} reaches {name} {late} after {'the others' if len(others) > 1 else f'rank {peer}'}"
        says = self._in_step(culprit, instance.arrivals[at], says, device=True)
        return Place(
            shown, culprit, peer, *_with_room(instance.start, instance.end), (culprit, "collectives", row), says
        )

    def _named(self, rank: int, row: int) -> str:
        """An operation with its number on its communicator, where the profiler states it."""
        stored = self._view.events.rank(rank)
        values = plain_row(stored, "collectives", row_of(stored, "collectives", row), 0)
        number = values.get("sequence")
        return called("collectives", values) + ("" if number is None else f" #{number}")


def _with_room(start: int, end: int) -> tuple[int, int]:
    room = max((end - start) // 2, _LEAST_ROOM_NS)
    return max(start - room, 0), end + room


def _time(ns: int) -> str:
    return amount(ns, "ns")
