"""The fields of a call: of a COLL line in any order and with unknown pairs among them, or of a TRACE line's call."""

from __future__ import annotations

import re
from typing import NamedTuple

from alltrace.core.nccl_log import ABSENT
from alltrace.readers.nccl_log import grammar as g
from alltrace.trace.nccl_words import OPERATIONS

CUT = 1
REJOINED = 2
FROM_CALL = 4
"""Flags of a call: the record was cut after its needed fields; joined from two pieces; from a CALL line."""

_OPCOUNT = re.compile(rb"([0-9a-f]{1,16})\s")
_POINTER = re.compile(rb"0x[0-9a-f]{1,16}|\(nil\)")
_NUMBER = re.compile(rb"-?[0-9]{1,18}")
_HEX = re.compile(rb"(?:0x)?[0-9a-f]{1,16}|\(nil\)")
_NEEDED = (b"count", b"datatype", b"op", b"root", b"comm")
_NUMBERS = frozenset({b"count", b"datatype", b"op", b"root", b"globalrank"})
_POINTERS = frozenset({b"sendbuff", b"recvbuff", b"comm", b"stream"})
_MOST_PAIRS = 32


class Coll(NamedTuple):
    """A call, sizes in elements, `ABSENT` where unknown; all but the last two are ordered as `core.nccl_log.FIELDS`."""

    operation: int
    op_count: int
    sendbuff: int
    recvbuff: int
    elements: int
    datatype: int
    redop: int
    root: int
    nranks: int
    stream: int
    global_rank: int
    comm: int
    flags: int = 0

    def row(self, line: int, token: int, communicator: int, time: int, flags: int) -> list[int]:
        """The call as a row of `core.nccl_log.FIELDS`."""
        return [line, token, communicator, *self[:-2], time, flags | self.flags]


def signed(text: bytes) -> int:
    """A hexadecimal number of at most 64 bits, or `(nil)`, as a signed one."""
    value = 0 if text == b"(nil)" else int(text, 16)
    return value - (1 << 64) if value >> 63 else value


def parse_coll(body: bytes, *, cut: bool) -> Coll | None:
    """The call of a COLL record; None if a field is missing, cut or no number. `cut`: do not trust the last value."""
    head = g.COLL.match(body)
    if head is None or head["op"].decode() not in OPERATIONS:
        return None
    fields = head["fields"]
    op_count = _OPCOUNT.match(fields)
    if op_count is None:
        return None
    values: dict[bytes, int] = {}
    nranks = ABSENT
    at = op_count.end()
    for _ in range(_MOST_PAIRS):
        pair = g.PAIR.match(fields, at)
        if pair is None:
            break
        at = pair.end()
        if pair["nranks"] is not None:
            nranks = int(pair["nranks"])
            continue
        key, value = pair["key"], pair["value"]
        # a value at the very end may be cut; only those that end a record are taken there
        if not pair["after"] and (cut or key not in (b"stream", b"globalrank")):
            break
        if key in values:
            return None
        shape = _POINTER if key in _POINTERS else _NUMBER if key in _NUMBERS else None
        if shape is None:
            continue
        if not shape.fullmatch(value):
            return None
        values[key] = signed(value) if key in _POINTERS else int(value)
    if any(key not in values for key in _NEEDED) or values[b"count"] < 0:
        return None
    return Coll(
        operation=OPERATIONS.index(head["op"].decode()),
        op_count=signed(op_count[1]),
        sendbuff=values.get(b"sendbuff", ABSENT),
        recvbuff=values.get(b"recvbuff", ABSENT),
        elements=values[b"count"],
        datatype=values[b"datatype"],
        redop=values[b"op"],
        root=values[b"root"],
        comm=values[b"comm"],
        nranks=nranks,
        stream=values.get(b"stream", ABSENT),
        global_rank=values.get(b"globalrank", ABSENT),
    )


def parse_call(body: bytes) -> Coll | None:
    """The call of a TRACE line `ncclAllReduce(send,recv,count,datatype,op,root,comm,stream)`, or None."""
    match = g.CALL.match(body)
    if match is None:
        return None
    args = [a.strip() for a in match["args"].split(b",")]
    if len(args) != 8 or not all(_HEX.fullmatch(args[n]) for n in (0, 1, 6, 7)):
        return None
    if not all(_NUMBER.fullmatch(args[n]) for n in (2, 3, 4, 5)):
        return None
    return Coll(
        operation=OPERATIONS.index(match["op"].decode()),
        op_count=ABSENT,
        sendbuff=signed(args[0]),
        recvbuff=signed(args[1]),
        elements=int(args[2]),
        datatype=int(args[3]),
        redop=int(args[4]),
        root=int(args[5]),
        comm=signed(args[6]),
        nranks=ABSENT,
        stream=signed(args[7]),
        global_rank=ABSENT,
        flags=FROM_CALL,
    )
