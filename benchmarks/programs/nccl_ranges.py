"""The ranges that NCCL writes around its calls, with and without payloads, and the names of its kernels."""

from __future__ import annotations

import json
import random
import struct
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from benchmarks.programs import names
from benchmarks.programs.training import CALL_IN_GROUP_NS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.programs.model import Operation, Program
    from benchmarks.programs.names import Kernel
    from benchmarks.programs.training import Lowered

DOMAIN = 1
_SCHEMAS = {"collective": 16_777_223, "message": 16_777_226, "plain": 16_777_220, "init": 16_777_227}
_MIXED_SHARE = 0.3
"""Communicators whose members show different protocols of one operation."""

_OF_TORCH = {
    "AllReduce": ("c10d::allreduce_", "nccl:all_reduce"),
    "AllGather": ("c10d::_allgather_base_", "nccl:_all_gather_base"),
    "ReduceScatter": ("c10d::_reduce_scatter_base_", "nccl:_reduce_scatter_base"),
    "AllToAll": ("c10d::alltoall_base_", "nccl:all_to_all"),
    "Broadcast": ("c10d::broadcast_", "nccl:broadcast"),
    "Reduce": ("c10d::reduce_", "nccl:reduce"),
    "SendRecv": ("c10d::send", "nccl:coalesced"),
}


class _Call(NamedTuple):
    """A call of NCCL: its name, the hash of its communicator or 0, the message, and its peer as a member."""

    name: str
    communicator: int
    size_bytes: int
    peer: int | None = None


class _WriteRange(Protocol):
    def __call__(self, start: int, end: int, text: str, thread: int, **more: Any) -> None: ...


class NcclRanges:
    """Writes the ranges of the calls of NCCL that a process makes.

    Args:
        program: The program.
        lowered: Its instructions.
        write: Takes start and end in ns of true time, text, thread, and `domain`, `json` or `binary`.
    """

    def __init__(self, program: Program, lowered: Lowered, write: _WriteRange) -> None:
        self._program = program
        self._lowered = lowered
        self._write = write
        self._mode = program.view.nccl
        self._operations = random.Random(program.seed).randrange(900_000)

    def write(self, start: int, end: int, rank: int, calls: Sequence[tuple[int, Operation]], thread: int) -> None:
        """The ranges of a rank's call, or of several in a group; the end of a group launches all of it."""
        issued = [call for index, operation in calls for call in self._calls(rank, index, operation)]
        view, first = self._program.view, calls[0][1].name
        if view.groups and first in _OF_TORCH:  # PyTorch's own ranges around it
            self._operations += 2
            for text, margin in zip(_OF_TORCH[first], (400, 200), strict=True):
                self._write(start - margin, end + margin, f"{text}, op_id = {self._operations - margin // 400}", thread)
        grouped = len(issued) > 1 or any(self._program.communicators[index].world for index, _ in calls)
        if not grouped:
            self._range(start, end, issued[0], thread)
            return
        took = CALL_IN_GROUP_NS if view.groups else max(1, (end - start) // (4 * len(issued)))
        if view.groups:
            issued.insert(0, _Call("ncclGroupStart", 0, 0))
        at = start
        for call in issued:
            self._range(at, at + took, call, thread)
            at += took
        self._range(at, end, _Call("ncclGroupEnd", 0, 0), thread)

    def _calls(self, rank: int, index: int, operation: Operation) -> list[_Call]:
        """The calls of NCCL that issue an operation on a rank."""
        link = self._program.communicators[index]
        identifier = self.identifier(index, renewed=operation.renewed)
        messages = self._messages(link.role, link.ranks, link.world or link.ranks, rank, operation)
        if not messages:
            return [_Call(f"nccl{operation.name}", identifier, operation.size_bytes)]
        return [_Call(name, identifier, size, peer) for name, peer, size in messages]

    def identifier(self, index: int, *, renewed: bool) -> int:
        """The hash of a communicator, another one once it has been split off anew."""
        link = self._program.communicators[index]
        if renewed and self._program.special == "split":
            return random.Random(link.identifier).getrandbits(62) | 1
        return link.identifier

    @staticmethod
    def _messages(
        role: str, ranks: tuple[int, ...], members: tuple[int, ...], rank: int, operation: Operation
    ) -> list[tuple[str, int, int]]:
        """The sends and receives of an operation: (name, peer as a member, bytes); none of a call of its own."""
        place, count, size = members.index(rank), len(members), operation.size_bytes
        if operation.name == "AllToAll":
            return [(name, peer, size // count) for peer in range(count) for name in ("ncclSend", "ncclRecv")]
        if operation.name != "SendRecv":
            return []
        if role in ("forward", "backward", "exchange"):
            earlier = rank == ranks[0]
            peer = members.index(ranks[1] if earlier else ranks[0])
            direction = operation.direction or role
            sends = [("ncclSend", peer, size)] * (direction == "both" or earlier == (direction == "forward"))
            receives = [("ncclRecv", peer, size)] * (direction == "both" or earlier != (direction == "forward"))
            return sends + receives
        return [("ncclSend", (place + 1) % count, size), ("ncclRecv", (place - 1) % count, size)]

    def _range(self, start: int, end: int, call: _Call, thread: int) -> None:
        more: dict[str, Any] = {"domain": DOMAIN}
        reduces = call.name in ("ncclAllReduce", "ncclReduceScatter", "ncclReduce")
        if not call.communicator:
            pass
        elif self._mode == "json":
            told: dict[str, Any] = {"NCCL communicator ID": call.communicator, "Message size [bytes]": call.size_bytes}
            told |= (
                {"Reduction operation": "Sum"} if reduces else {"Peer rank": call.peer} if call.peer is not None else {}
            )
            more["json"] = json.dumps(told)
        elif self._mode == "binary":
            schema = _SCHEMAS["collective" if reduces else "message" if call.peer is not None else "plain"]
            body = struct.pack("<QQ", call.communicator, call.size_bytes) + struct.pack("<ii", call.peer or 0, 0)
            more["binary"] = (struct.pack("<QQQQ", DOMAIN, schema, len(body), len(body) + 32) + body).hex().upper()
        elif self._mode == "bytes":
            more["json"] = json.dumps({"Message size [bytes]": call.size_bytes})
        self._write(start, end, call.name, thread, **more)

    def inits(self, at_ns: int, rank: int, device: int, thread: int) -> None:
        """The ranges in which a rank creates its communicators, from a true time on."""
        for index, link in enumerate(self._program.communicators):
            members = link.world or link.ranks
            if rank in link.ranks:
                told = {
                    "NCCL communicator ID": link.identifier,
                    "No. of ranks": len(members),
                    "Rank": members.index(rank),
                    "CUDA device": device,
                }
                start = at_ns + index * 1_000_000
                self._write(start, start + 900_000, "ncclCommInitRank", thread, domain=DOMAIN, json=json.dumps(told))

    def kernel(self, rank: int, communicator: int, number: int) -> Kernel:
        """The kernel of an operation on a rank, by the algorithm and protocol that NCCL picks there."""
        operation = self._lowered.operations[communicator, number]
        mixed = random.Random(self._program.seed * 31 + communicator)
        other = mixed.random() < _MIXED_SHARE and random.Random(self._program.seed * 37 + rank).random() < 0.5
        return names.nccl_kernel_by_size(operation.name, self._program.style, operation.size_bytes, other=other)


def schema_entries() -> list[tuple[Any, ...]]:
    """The rows that describe the payloads."""
    rows = []
    for schema in _SCHEMAS.values():
        entries = [(18, "NCCL communicator ID", None), (22, "Message size [bytes]", 8)]
        entries += [(5, "Peer rank", 16)] if schema == _SCHEMAS["message"] else []
        entries += [(16_777_232, "Reduction operation", 16)] if schema == _SCHEMAS["collective"] else []
        if schema == _SCHEMAS["init"]:
            entries = [entries[0], (5, "No. of ranks", 8), (5, "Rank", 12), (5, "CUDA device", 16)]
        rows += [
            (DOMAIN, schema, number, None, kind, name, None, None, offset)
            for number, (kind, name, offset) in enumerate(entries)
        ]
    return rows
