"""What NCCL's names and payloads say: the operation, the element type, and the fields of a call's payload.

Payload fields differ between versions of NCCL, RCCL and the profiler (`NCCL communicator ID`, `commHash`, `Message size
[bytes]`, `bytes`, ...), so they are known by their letters and digits alone. Kernel names carry the operation, and for
reductions the type: `ncclDevKernel_AllReduce_Sum_bf16_RING_LL`, before 2.19 `ncclKernel_AllReduce_RING_LL_Sum_float`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter

import numpy as np

from alltrace.trace.arrays import Int64
from alltrace.trace.nccl_words import DATATYPES, standard_datatype

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL = "AllReduce", "AllGather", "ReduceScatter", "AllToAll"
BROADCAST, REDUCE, GATHER, SCATTER, BARRIER = "Broadcast", "Reduce", "Gather", "Scatter", "Barrier"
SEND, RECV, SEND_RECV = "Send", "Recv", "SendRecv"
POINT_TO_POINT = frozenset({SEND, RECV, SEND_RECV})
SENT = frozenset({SEND, RECV, ALL_TO_ALL, GATHER, SCATTER})
"""Operations that a kernel of sends and receives does."""
SYNCHRONISING = frozenset({ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, BARRIER})
"""Operations that no member can leave before the last has arrived."""

_OPS = {
    "allreduce": ALL_REDUCE, "allgather": ALL_GATHER, "allgatherv": ALL_GATHER, "reducescatter": REDUCE_SCATTER,
    "reducescatterblock": REDUCE_SCATTER, "alltoall": ALL_TO_ALL, "alltoallv": ALL_TO_ALL, "alltoallw": ALL_TO_ALL,
    "broadcast": BROADCAST, "bcast": BROADCAST, "reduce": REDUCE, "gather": GATHER, "gatherv": GATHER,
    "scatter": SCATTER, "scatterv": SCATTER, "barrier": BARRIER, "send": SEND, "recv": RECV, "sendrecv": SEND_RECV,
    "scan": "Scan", "exscan": "Exscan", "allgatherbase": ALL_GATHER, "reducescatterbase": REDUCE_SCATTER,
    "alltoallbase": ALL_TO_ALL, "allgatherintotensor": ALL_GATHER, "reducescattertensor": REDUCE_SCATTER,
}  # fmt: skip
NUMBERED_TYPES = tuple(name for name, _size in DATATYPES)
"""The types by NCCL's number."""
TYPE_BYTES = dict(DATATYPES)
_WORD = re.compile(r"[A-Za-z0-9]+")
_TYPE_WORDS = re.compile(r"(?:__nv_|rccl_|hip_)?[A-Za-z0-9]+(?:_t(?![A-Za-z0-9]))?")
_NOT_LETTERS = re.compile(r"[^a-z0-9]")
_ARGUMENTS = re.compile(r"[(<].*", re.DOTALL)

_FIELDS = {
    "communicator": (
        "ncclcommunicatorid",
        "communicatorid",
        "commhash",
        "communicatorhash",
        "commid",
        "communicator",
        "comm",
    ),
    "bytes": ("messagesizebytes", "bytes", "messagesize", "msgsize", "sizebytes", "nbytes"),
    "count": ("count", "elementcount", "sendcount", "numelements"),
    "datatype": ("datatype", "dtype", "type"),
    "peer": ("peer", "peerrank"),
    "root": ("root", "rootrank"),
    "group_rank": ("commrank", "rank"),
    "group_size": ("noofranks", "numranks", "nranks", "commsize", "groupsize"),
    "sequence": ("seqnumber", "sequencenumber", "seqnum", "seqno", "collsn", "sequence", "seq"),
    "operation": ("operationid", "opid"),
    "channel": ("channelid", "channel"),
}
_SMALL = frozenset({"peer", "root", "group_rank", "group_size"})
"""Fields that `collectives` has 32 bits for; a larger number is not a rank."""


def numbered(values: Sequence[str | None], more: Sequence[str] = ()) -> tuple[list[str], Int64]:
    """The distinct words, and the number of each value, -1 for None, with one -1 more for what is at no place."""
    words = sorted({*(v for v in values if v is not None), *more})
    place = {word: number for number, word in enumerate(words)}
    return words, np.array([*(-1 if v is None else place[v] for v in values), -1], np.int64)


@dataclass(frozen=True)
class Payload:
    """The fields of one payload; a communicator is written as an unsigned hexadecimal number or text."""

    communicator: str | None = None
    bytes: int | None = None
    count: int | None = None
    datatype: str | None = None
    peer: int | None = None
    root: int | None = None
    group_rank: int | None = None
    group_size: int | None = None
    sequence: int | None = None
    operation: int | None = None
    channel: int | None = None


NOTHING = Payload()


@lru_cache(maxsize=1024)
def _field(key: str) -> tuple[str, int] | None:
    """The field that a key of a payload is, and its place among the names of that field."""
    plain = _NOT_LETTERS.sub("", key.lower())
    return next(((field, names.index(plain)) for field, names in _FIELDS.items() if plain in names), None)


@lru_cache(maxsize=65_536)
def parse_payload(text: str | None) -> Payload:
    """The fields of a payload, as far as it is a JSON object and has them."""
    if not text or not text.lstrip().startswith("{"):
        return NOTHING
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return NOTHING
    known = (
        [(*place, v) for k, v in found.items() if v is not None and (place := _field(k))]
        if isinstance(found, dict)
        else []
    )
    got = {field: value for field, _, value in sorted(known, key=itemgetter(1), reverse=True)}  # the best name counts
    numbers = {f: _whole(v, 31 if f in _SMALL else 63) for f, v in got.items() if f not in ("communicator", "datatype")}
    datatype = _datatype(got.get("datatype"))
    size, count = numbers.get("bytes"), numbers.get("count")
    if size is None and count is not None and datatype in TYPE_BYTES:
        numbers["bytes"] = _whole(count * TYPE_BYTES[datatype])
    return Payload(communicator=_identity(got.get("communicator")), datatype=datatype, **numbers)


def operation_of(name: str | None) -> str | None:
    """The operation of a call or range: `ncclAllReduce`, `AllReduce`, `nccl:all_reduce`, `MPI_Allreduce`."""
    if not name:
        return None
    plain = _NOT_LETTERS.sub("", re.sub(r"^(nccl:|nccl|pnccl|MPI_)", "", name.partition(",")[0]).lower())
    return _OPS.get(plain)


def operation_of_kernel(name: str | None) -> str | None:
    """The operation in a communication kernel's name, or None."""
    if not name:
        return None
    lower = _NOT_LETTERS.sub("", name.lower())
    if "crossdevicereducescatter" in lower:
        return REDUCE_SCATTER
    if "crossdevicereduce" in lower or "quickreduce" in lower:
        return ALL_REDUCE
    words = _WORD.findall(_ARGUMENTS.sub("", name.removeprefix("void ")))
    for word in words:
        plain = re.sub(r"^nccl", "", word).lower()
        if plain in _OPS:
            return _OPS[plain]
    for key in ("allreduce", "allgather", "reducescatter", "alltoall", "sendrecv", "broadcast", "barrier"):
        if key in lower:
            return _OPS[key]
    # expert parallel kernels, which exchange tokens among all
    return ALL_TO_ALL if any(word in lower for word in ("dispatch", "combine", "a2a")) else None


def datatype_of_kernel(name: str | None, op: str | None) -> str | None:
    """The element type in a reduction kernel's name; other operations move bytes, in spite of their name."""
    if not name or op not in (ALL_REDUCE, REDUCE_SCATTER, REDUCE):
        return None
    for word in reversed(_TYPE_WORDS.findall(_ARGUMENTS.sub("", name).replace("_", " ").replace(" t ", "_t "))):
        kind = standard_datatype(word)
        if kind is not None:
            return kind
    return None


def _whole(value: object, bits: int = 63) -> int | None:
    """A whole number that fits `bits` bits and a sign, or None."""
    if isinstance(value, bool):
        return None
    try:
        number = int(value, 0) if isinstance(value, str) else int(value) if isinstance(value, (int, float)) else None
    except (ValueError, OverflowError):
        return None
    return number if number is not None and -(2**bits) <= number < 2**bits else None


def _identity(value: object) -> str | None:
    """A communicator's identity: a number, however it is written, becomes the same hexadecimal text."""
    if isinstance(value, str) and value:
        for base in (0, 16):
            try:
                return f"{int(value, base) % 2**64:#x}"
            except ValueError:
                continue
        return value.encode("utf-8", "replace").decode()  # JSON can write half of a character, which is not text
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return f"{int(value) % 2**64:#x}"
        except (ValueError, OverflowError):
            return None
    return None


def _datatype(value: object) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return NUMBERED_TYPES[value] if 0 <= value < len(NUMBERED_TYPES) else None
    if isinstance(value, str):
        return standard_datatype(value)
    return None
