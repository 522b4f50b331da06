"""What a program of `calls.c` wrote about itself: its calls, the operations they form, who waited, how much was sent.

Nothing here knows how alltrace matches or measures. Operations follow from the order of calls on each communicator,
which MPI demands to be the same on all of its ranks, and from the tags of messages.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

TYPE_BYTES = {"MPI_DOUBLE": 8, "MPI_FLOAT": 4, "MPI_INT": 4, "MPI_CHAR": 1, "pair of MPI_DOUBLE": 16}
FROM_ROOT = frozenset({"Broadcast", "Scatter"})
TO_ROOT = frozenset({"Reduce", "Gather"})
FROM_LOWER = frozenset({"Scan", "Exscan"})
_OPERATIONS = {
    "allreduce": "AllReduce", "bcast": "Broadcast", "barrier": "Barrier", "reduce": "Reduce", "gather": "Gather",
    "gatherv": "Gather", "scatter": "Scatter", "scatterv": "Scatter", "allgather": "AllGather",
    "allgatherv": "AllGather", "alltoall": "AllToAll", "alltoallv": "AllToAll", "alltoallw": "AllToAll",
    "reduce_scatter": "ReduceScatter", "reduce_scatter_block": "ReduceScatter", "scan": "Scan", "exscan": "Exscan",
}  # fmt: skip
_SENDS = frozenset({"MPI_Send", "MPI_Ssend", "MPI_Isend", "MPI_Issend", "MPI_Sendrecv", "MPI_Send_init"})
_RECEIVES = frozenset({"MPI_Recv", "MPI_Irecv", "MPI_Sendrecv", "MPI_Recv_init"})
_SYNCHRONOUS = frozenset({"MPI_Ssend", "MPI_Issend"})
_HELD_BYTES = {"Open MPI": (256, 4096), "MPICH": (8255, 8255)}
"""The largest message that each library always, and ever, holds for a receiver on the same host.

It was found by sends to a rank that sleeps. In between Open MPI holds what the receiver's next call of MPI takes.
"""
_ANY_SOURCE, _NOBODY = -2, -3

Key = frozenset[tuple[int, int, int]]


@dataclass(frozen=True)
class Call:
    """One call of one rank, the `number`-th of its record.

    What it lacks is None or -1; its root and peers are ranks of the communicator.
    """

    rank: int
    number: int
    name: str
    communicator: str | None
    root: int
    count: int
    type: str | None
    in_place: bool
    peer: int
    receive_peer: int
    tag: int
    requests: tuple[int, ...]
    sleep_us: int
    start_ns: int
    end_ns: int

    @property
    def operation(self) -> str | None:
        """The collective that it is or begins."""
        plain = self.name.removeprefix("MPI_").lower()
        return _OPERATIONS.get(plain) or (_OPERATIONS.get(plain[1:]) if plain.startswith("i") else None)

    @property
    def begins_only(self) -> bool:
        """Whether it returns before its operation has ended."""
        return bool(self.requests) and self.name.startswith("MPI_I")


@dataclass(frozen=True)
class Record:
    """What one rank wrote: `communicators` has the world ranks of each, in the order of the communicator."""

    rank: int
    size: int
    library: str
    communicators: dict[str, tuple[int, ...]]
    calls: tuple[Call, ...]


@dataclass
class Instance:
    """One operation of all its ranks: `members` has the call of each, `waits` the call that waited for its end."""

    kind: str
    communicator: str
    ranks: tuple[int, ...]
    members: dict[int, Call] = field(default_factory=dict)
    waits: dict[int, Call] = field(default_factory=dict)
    library: str = ""
    before_ns: dict[int, int] = field(default_factory=dict)
    """Until when each waited in the same call for operations whose last needed rank arrived before that of this one."""
    unclear: set[int] = field(default_factory=set)
    """The ranks of which it is unknown whether they waited in their call for a receiver."""

    @property
    def key(self) -> Key:
        """The (rank, number of the call, way) of all members: 1 is a sender, -1 a receiver."""
        way = {self.ranks[0]: 1, self.ranks[1]: -1} if self.message else {}
        return frozenset((rank, call.number, way.get(rank, 0)) for rank, call in self.members.items())

    @property
    def begins_only(self) -> bool:
        """Whether its calls return before it has ended."""
        return any(call.begins_only for call in self.members.values())

    @property
    def message(self) -> bool:
        """Whether it is a send and its receive."""
        return self.kind == "Message"

    def wait_ns(self, rank: int) -> int:
        """How long a rank waited for others: in its call, or in the call that waits for the operation to end, ns.

        Where all need all, they wait for the last to arrive. Where there is a root the direction decides: leaves of a
        broadcast and a scatter wait for the root, the root of a reduce and a gather waits for the leaves; a rank of a
        scan waits for lower ones. A receiver waits for its sender, and a sender for its receiver, unless the library
        holds the message for it. Of operations that one call completes, each has the part of the wait that begins when
        the rank needs no more for those before.
        """
        return max(0, self.until_ns(rank) - max(self._begin_ns(rank), self.before_ns.get(rank, 0)))

    def until_ns(self, rank: int) -> int:
        """Until when a rank waited for others, if it did."""
        arrivals = {r: call.start_ns for r, call in self.members.items()}
        return min(max((arrivals[r] for r in self._needed(rank) & arrivals.keys()), default=0), self._end_ns(rank))

    def sometimes_held(self, rank: int) -> bool:
        """Whether a rank sends a message that the library may hold or not, and left after the receive began."""
        if not self.message or rank != self.ranks[0] or self.members[rank].name in _SYNCHRONOUS:
            return False
        always, ever = self._held_bytes
        size = message_bytes(self.members[rank], self.ranks) or ever
        return always < size <= ever and self._end_ns(rank) >= self.members[self.ranks[1]].start_ns >= self._begin_ns(
            rank
        )

    @property
    def _held_bytes(self) -> tuple[int, int]:
        return _HELD_BYTES.get(self.library, (sys.maxsize, sys.maxsize))

    def _needed(self, rank: int) -> set[int]:
        """The ranks without which `rank` cannot leave."""
        if self.message:
            sent = self.members[self.ranks[0]]
            held = sent.name not in _SYNCHRONOUS and (message_bytes(sent, self.ranks) or 0) <= self._held_bytes[1]
            return {self.ranks[0]} if rank == self.ranks[1] else set() if held else {self.ranks[1]}
        place, root = self.ranks.index(rank), self.members[rank].root
        if self.kind in FROM_ROOT:
            return {self.ranks[root]} - {rank}
        if self.kind in TO_ROOT:
            return set(self.ranks) - {rank} if place == root else set()
        if self.kind in FROM_LOWER:
            return set(self.ranks[:place])
        return set(self.ranks) - {rank}

    def _begin_ns(self, rank: int) -> int:
        return self.waits.get(rank, self.members[rank]).start_ns

    def _end_ns(self, rank: int) -> int:
        return self.waits.get(rank, self.members[rank]).end_ns


def read_record(path: Path) -> Record:
    """The record of one rank."""
    found = json.loads(path.read_text())
    columns = found["columns"]
    calls = []
    for number, values in enumerate(found["calls"]):
        row: dict[str, Any] = dict(zip(columns, values, strict=True))
        row |= {"name": row.pop("call"), "in_place": bool(row["in_place"]), "requests": tuple(row["requests"])}
        for unused in ("wtime_begun", "wtime_ended"):
            row.pop(unused)
        calls.append(Call(rank=found["rank"], number=number, **row))
    groups = {name: tuple(ranks) for name, ranks in found["communicators"].items()}
    return Record(found["rank"], found["size"], found["library"], groups, tuple(calls))


def read_records(folder: Path) -> dict[int, Record]:
    """The records in `folder`, by rank."""
    return {r.rank: r for r in map(read_record, folder.glob("record.*.json"))}


def instances(records: dict[int, Record]) -> list[Instance]:
    """All operations of two ranks and more: collectives by their order, messages by sender, receiver and tag."""
    groups = {name: ranks for record in records.values() for name, ranks in record.communicators.items()}
    found: dict[tuple[str, int], Instance] = {}
    sent: dict[tuple[str, int, int, int], list[tuple[Call, Call]]] = defaultdict(list)
    received: dict[tuple[str, int, int, int], list[tuple[Call, Call]]] = defaultdict(list)
    for record in records.values():
        ordinals: dict[str, int] = defaultdict(int)
        for place, call in enumerate(record.calls):
            name = call.communicator
            if name is None or len(groups[name]) < 2:
                continue
            kind = call.operation
            if kind is not None:
                instance = found.setdefault((name, ordinals[name]), Instance(kind, name, groups[name]))
                if instance.kind != kind:
                    raise ValueError(
                        f"rank {record.rank}: operation {ordinals[name]} of {name} is {kind}, others have"
                        f" {instance.kind}"
                    )
                ordinals[name] += 1
                instance.members[record.rank] = call
                if call.begins_only:
                    instance.waits[record.rank] = _waiting(record, place, call)
                continue
            for member, wait in _transfers(record, place, call):
                if call.name in _SENDS:
                    sent[name, record.rank, groups[name][call.peer], call.tag].append((member, wait))
                if call.name in _RECEIVES:
                    peer = call.receive_peer if call.receive_peer >= 0 else call.peer
                    source = groups[name][peer] if peer != _ANY_SOURCE else _ANY_SOURCE
                    received[name, source, record.rank, call.tag].append((member, wait))
    every = [*found.values(), *_messages(sent, received)]
    _share_waits(every, records)
    return every


def _share_waits(every: list[Instance], records: dict[int, Record]) -> None:
    """Note of each operation until when its call waits for others before."""
    library = next((name for name in _HELD_BYTES for record in records.values() if record.library.startswith(name)), "")
    by_call: dict[tuple[int, int], list[Instance]] = defaultdict(list)
    for instance in every:
        instance.library = library
        for rank in instance.members:
            by_call[rank, instance.waits.get(rank, instance.members[rank]).number].append(instance)
    for (rank, _call), together in by_call.items():
        together.sort(key=lambda i: (i.until_ns(rank), i.message and rank == i.ranks[0]))
        for earlier, later in pairwise(together):
            later.before_ns[rank] = earlier.until_ns(rank)
        if any(i.sometimes_held(rank) for i in together):
            for instance in together:
                instance.unclear.add(rank)


def _messages(sent: Any, received: Any) -> list[Instance]:
    """Sends with their receives, in the order of their starts; a receive from any rank goes by its tag alone."""
    found = []
    for (name, sender, receiver, tag), sends in sent.items():
        if sender == receiver:
            continue
        receives = received.get((name, sender, receiver, tag)) or received.get((name, _ANY_SOURCE, receiver, tag), [])
        if len(receives) != len(sends):
            raise ValueError(f"{len(sends)} messages with tag {tag} on {name} and {len(receives)} receives")
        for (send, send_wait), (receive, receive_wait) in zip(sends, receives, strict=True):
            instance = Instance("Message", name, (sender, receiver), {sender: send, receiver: receive})
            instance.waits = {sender: send_wait, receiver: receive_wait}
            found.append(instance)
    return found


def _transfers(record: Record, place: int, call: Call) -> list[tuple[Call, Call]]:
    """The transfers of a call, each with the call that starts it and the one that waits: a persistent one has many."""
    if call.name not in _SENDS | _RECEIVES or call.peer == _NOBODY:
        return []
    if not call.requests:
        return [(call, call)]
    if not call.name.endswith("_init"):
        return [(call, _waiting(record, place, call))]
    starts = [
        (n, c) for n, c in enumerate(record.calls) if c.name.startswith("MPI_Start") and call.requests[0] in c.requests
    ]
    return [(start, _waiting(record, n, call)) for n, start in starts]


def _waiting(record: Record, place: int, call: Call) -> Call:
    """The call after `place` in which a rank waits for the request of `call`."""
    later = (
        c
        for c in record.calls[place + 1 :]
        if c.name.startswith(("MPI_Wait", "MPI_Test")) and call.requests[0] in c.requests
    )
    return next(later)


def message_bytes(call: Call, ranks: tuple[int, ...]) -> int | None:
    """The size of a message; None for a barrier.

    It is the vector of a reduction or broadcast, a rank's own part of a gather, scatter and reduce-scatter, and all
    that a rank sends in an all-to-all.
    """
    if call.count < 0 or call.type is None:
        return None
    size = call.count * TYPE_BYTES[call.type]
    if call.operation != "AllToAll":
        return size
    if call.name == "MPI_Alltoallv":  # one element more to each further rank
        return sum(call.count + r for r in range(len(ranks))) * TYPE_BYTES[call.type]
    return size * len(ranks)


def looks_like_another(call: Call, size: int, ranks: int) -> bool:
    """Whether nsys counts the same bytes for a call in place as for one of another size that is not in place."""
    return call.in_place and call.operation in ("AllReduce", "AllGather") and size * (ranks - 1) % ranks == 0
