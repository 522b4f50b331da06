"""The scanner of plain COLL lines, as machine code: one pass over a block of whole lines, no memory of its own.

It takes only lines that it knows to the last byte: a lead (what a launcher put before the line) and a process token
(`host:pid:tid [device]`) that the careful path of `lines.py` has seen and registered, and fields in NCCL's own order. Every other
line of interest is handed to the careful path by its bounds; foreign lines are only counted. So the fast path never has to judge.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from alltrace.trace.jit import plain_kernel
from alltrace.trace.nccl_words import OPERATIONS

FIELDS = (
    "line",
    "token",
    "communicator",
    "operation",
    "op_count",
    "sendbuff",
    "recvbuff",
    "count",
    "datatype",
    "redop",
    "root",
    "nranks",
    "stream",
    "global_rank",
    "time_ns",
    "flags",
)
ABSENT = -(1 << 63)
"""The value of a field that the record does not have."""

# unsigned: the compiler takes for granted that signed numbers do not overflow
_FNV = np.uint64(1099511628211)
_SEED = np.uint64(14695981039346656037)
_LONGEST_DECIMAL = 18

_WORDS = tuple(
    np.frombuffer(w, np.uint8)
    for w in (b": opCount ", b" sendbuff ", b" recvbuff ", b" count ", b" datatype ", b" op ", b" root ", b" comm ", b" [nranks=")
)
_W_OPCOUNT, _W_SEND, _W_RECV, _W_COUNT, _W_TYPE, _W_OP, _W_ROOT, _W_COMM, _W_NRANKS = _WORDS
_W_STREAM = np.frombuffer(b" stream ", np.uint8)
_W_TASK = np.frombuffer(b" task ", np.uint8)
_W_GLOBAL = np.frombuffer(b" globalrank ", np.uint8)
_W_ACC = np.frombuffer(b" acc ", np.uint8)
_W_INFO = np.frombuffer(b"NCCL INFO ", np.uint8)
_W_NIL = np.frombuffer(b"(nil)", np.uint8)


def fnv(data: bytes) -> int:
    """The 64-bit hash of bytes that the scanner uses for tokens and operations, as a signed number."""
    value = int(_SEED)
    for byte in data:
        value = ((value ^ byte) * int(_FNV)) & 0xFFFFFFFFFFFFFFFF
    return value - (1 << 64) if value >> 63 else value


_OP_HASHES = np.array([fnv(name.encode()) for name in OPERATIONS], np.int64)

_LINE = "Array(uint8, 1, 'C', readonly=True)"
_I64 = "int64[::1]"
_I64S = "int64[:, ::1]"


def _starts(buf: Any, at: Any, end: Any, word: Any) -> Any:
    if at + word.size > end:
        return False
    same = True
    for k in range(word.size):
        same = same and buf[at + k] == word[k]
    return same


def _decimal(buf: Any, at: Any, end: Any) -> Any:
    """The number at `at` and where it ends; no digits, or too many, end where they began."""
    value = np.int64(0)
    k = at
    while k < end and 48 <= buf[k] <= 57:
        value = value * 10 + (np.int64(buf[k]) - 48)
        k += 1
    if k - at > _LONGEST_DECIMAL:
        return value, at
    return value, k


def _hexadecimal(buf: Any, at: Any, end: Any) -> Any:
    value = np.uint64(0)
    four = np.uint64(4)
    k = at
    while k < end:
        c = buf[k]
        if 48 <= c <= 57:
            value = (value << four) | np.uint64(c - 48)
        elif 97 <= c <= 102:
            value = (value << four) | np.uint64(c - 87)
        else:
            break
        k += 1
    if k - at > 16:
        return np.int64(0), at
    return np.int64(value), k


def _pointer(buf: Any, at: Any, end: Any) -> Any:
    if at + 2 < end and buf[at] == 48 and buf[at + 1] == 120:
        value, k = _hexadecimal(buf, at + 2, end)
        return (value, k) if k > at + 2 else (np.int64(0), at)
    if _starts(buf, at, end, _W_NIL):
        return np.int64(0), at + 5
    return np.int64(0), at


def _lead_hash(buf: Any, begin: Any, start: Any, stop: Any) -> Any:
    """The hash of a lead, in which each run of digits counts as one, and of the token after it, in full."""
    value = _SEED
    digits = False
    for k in range(begin, start):
        c = np.uint64(buf[k])
        if 48 <= c <= 57:
            if digits:
                continue
            digits = True
            c = np.uint64(48)
        else:
            digits = False
        value = (value ^ c) * _FNV
    value = (value ^ np.uint64(255)) * _FNV
    for k in range(start, stop):
        value = (value ^ np.uint64(buf[k])) * _FNV
    return np.int64(value) if value != 0 else np.int64(1)


@plain_kernel(f"int64({_LINE}, int64, int64, int64)")
def lead_hash(buf: Any, begin: Any, start: Any, stop: Any) -> Any:
    """The key under which the lead `buf[begin:start]` with the token `buf[start:stop]` is registered."""
    return _lead_hash(buf, begin, start, stop)


@plain_kernel(f"int64({_LINE}, int64, int64)")
def token_start(buf: Any, begin: Any, mark: Any) -> Any:
    """Where the process token `host:pid:tid [device] ` before `NCCL` at `mark` begins: after a space, or at the line's begin."""
    k = mark - 2
    if k > begin and buf[k] == 93:
        while k > begin and buf[k] != 32:
            k -= 1
        k -= 1
    while k >= begin and buf[k] != 32:
        k -= 1
    return k + 1


def _two(buf: Any, at: Any) -> Any:
    return (np.int64(buf[at]) - 48) * 10 + np.int64(buf[at + 1]) - 48


def _epoch(buf: Any, at: Any, end: Any) -> Any:
    """`1621500728.783688`, seconds since the epoch, in ns."""
    seconds, k = _decimal(buf, at, end)
    ns = seconds * 1_000_000_000
    if k < end and buf[k] == 46:
        k += 1
        unit = np.int64(100_000_000)
        while k < end and 48 <= buf[k] <= 57:
            ns += (np.int64(buf[k]) - 48) * unit
            unit //= 10
            k += 1
    return ns


def _time(buf: Any, begin: Any, end: Any) -> Any:
    """The first `2026-05-05 06:16:47.123` in the bytes, in ns since the epoch as if in UTC; `ABSENT` where there is none."""
    at = begin
    while at + 10 <= end:
        if not (48 <= buf[at] <= 57):
            at += 1
            continue
        k = at
        while k < end and 48 <= buf[k] <= 57:
            k += 1
        if k - at == 10 and (k == end or buf[k] == 46 or buf[k] == 93 or buf[k] == 32) and (at == begin or buf[at - 1] != 46):
            return _epoch(buf, at, end)
        if k - at != 4 or at + 19 > end or (buf[at + 4] != 45 and buf[at + 4] != 47) or buf[at + 13] != 58 or buf[at + 16] != 58:
            at = k
            continue
        for n in (5, 6, 8, 9, 11, 12, 14, 15, 17, 18):
            if not (48 <= buf[at + n] <= 57):
                return ABSENT
        year = _two(buf, at) * 100 + _two(buf, at + 2)
        month = _two(buf, at + 5)
        day = _two(buf, at + 8)
        # days from a civil date, counted in years that begin in March
        y = year - 1 if month <= 2 else year
        era = y // 400
        yoe = y - era * 400
        doy = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
        days = era * 146097 + yoe * 365 + yoe // 4 - yoe // 100 + doy - 719468
        ns = ((days * 24 + _two(buf, at + 11)) * 60 + _two(buf, at + 14)) * 60 + _two(buf, at + 17)
        ns *= 1_000_000_000
        k = at + 19
        if k < end and (buf[k] == 46 or buf[k] == 44):
            k += 1
            unit = np.int64(100_000_000)
            while k < end and 48 <= buf[k] <= 57:
                ns += (np.int64(buf[k]) - 48) * unit
                unit //= 10
                k += 1
        if k + 5 < end and (buf[k] == 43 or buf[k] == 45) and 48 <= buf[k + 1] <= 57:
            minutes = _two(buf, k + 1) * 60 + _two(buf, k + 4 if buf[k + 3] == 58 else k + 3)
            ns -= minutes * 60_000_000_000 if buf[k] == 43 else -minutes * 60_000_000_000
        return ns
    return ABSENT


@plain_kernel(f"int64({_LINE})")
def time_of(lead: Any) -> Any:
    """The time in a lead, as `scan` reads it: ns since 1970, by the lead's zone or as if in UTC; `ABSENT` where there is none."""
    return _time(lead, 0, lead.size)


def _slot(keys: Any, key: Any) -> Any:
    """Where `key` is in the table `keys`, or the empty place where it belongs."""
    mask = keys.size - 1
    at = (key ^ (key >> 29)) & mask
    while keys[at] != 0 and keys[at] != key:
        at = (at + 1) & mask
    return at


def _comm_key(process: Any, comm: Any) -> Any:
    key = (_SEED ^ np.uint64(process)) * _FNV
    key = (key ^ np.uint64(comm)) * _FNV
    key = (key ^ (np.uint64(comm) >> np.uint64(32))) * _FNV
    return np.int64(key) if key != 0 else np.int64(1)


@plain_kernel(f"void({_I64}, {_I64}, int64, int64)")
def put(keys: Any, values: Any, key: Any, value: Any) -> Any:
    """Put `value` under `key` into an open table."""
    at = _slot(keys, key)
    keys[at] = key
    values[at] = value


@plain_kernel(f"void({_I64}, {_I64}, int64, int64, int64)")
def put_communicator(keys: Any, values: Any, process: Any, comm: Any, value: Any) -> Any:
    """Put the number of a process's communicator into an open table."""
    key = _comm_key(process, comm)
    at = _slot(keys, key)
    keys[at] = key
    values[at] = value


def _fields(buf: Any, at: Any, end: Any, row: Any) -> Any:  # noqa: C901
    """The fields of a COLL record into `row`; where its line ends, or -1 unless they are all there, in order."""
    value = _SEED
    k = at
    while k < end and (65 <= buf[k] <= 90 or 97 <= buf[k] <= 122):
        value = (value ^ np.uint64(buf[k])) * _FNV
        k += 1
    if not _starts(buf, k, end, _W_OPCOUNT):
        return -1
    row[3] = -1
    for n in range(_OP_HASHES.size):
        if _OP_HASHES[n] == np.int64(value):
            row[3] = n
            break
    if row[3] < 0:
        return -1
    at = k + _W_OPCOUNT.size
    row[4], k = _hexadecimal(buf, at, end)
    if k == at or not _starts(buf, k, end, _W_SEND):
        return -1
    at = k + _W_SEND.size
    row[5], k = _pointer(buf, at, end)
    if k == at or not _starts(buf, k, end, _W_RECV):
        return -1
    at = k + _W_RECV.size
    row[6], k = _pointer(buf, at, end)
    if k == at:
        return -1
    if _starts(buf, k, end, _W_ACC):
        at = k + _W_ACC.size
        _ignored, k = _pointer(buf, at, end)
        if k == at:
            return -1
    if not _starts(buf, k, end, _W_COUNT):
        return -1
    at = k + _W_COUNT.size
    row[7], k = _decimal(buf, at, end)
    if k == at or not _starts(buf, k, end, _W_TYPE):
        return -1
    at = k + _W_TYPE.size
    row[8], k = _decimal(buf, at, end)
    if k == at or not _starts(buf, k, end, _W_OP):
        return -1
    at = k + _W_OP.size
    row[9], k = _decimal(buf, at, end)
    if k == at or not _starts(buf, k, end, _W_ROOT):
        return -1
    at = k + _W_ROOT.size
    row[10], k = _decimal(buf, at, end)
    if k == at or not _starts(buf, k, end, _W_COMM):
        return -1
    at = k + _W_COMM.size
    row[2], k = _pointer(buf, at, end)
    if k == at:
        return -1
    row[11] = ABSENT
    if _starts(buf, k, end, _W_NRANKS):
        at = k + _W_NRANKS.size
        row[11], k = _decimal(buf, at, end)
        if k == at or k >= end or buf[k] != 93:
            return -1
        k += 1
    if not _starts(buf, k, end, _W_STREAM):
        return -1
    at = k + _W_STREAM.size
    row[12], k = _pointer(buf, at, end)
    if k == at:
        return -1
    row[13] = ABSENT
    if _starts(buf, k, end, _W_TASK):
        at = k + _W_TASK.size
        _ignored, k = _decimal(buf, at, end)
        if k == at or not _starts(buf, k, end, _W_GLOBAL):
            return -1
        at = k + _W_GLOBAL.size
        row[13], k = _decimal(buf, at, end)
        if k == at:
            return -1
    if k < end and buf[k] == 13:
        k += 1
    return k if k < end and buf[k] == 10 else -1


def _watched(buf: Any, at: Any, end: Any) -> Any:
    """Whether a line without `NCCL` may still be one of ours: a step, or the rest of a record that another one interrupted."""
    for k in range(at, end - 5):
        c = buf[k]
        if c == 105 or c == 73:  # iteration, Iteration
            if (buf[k + 1] | 32) == 116 and (buf[k + 2] | 32) == 101 and (buf[k + 3] | 32) == 114 and (buf[k + 4] | 32) == 97:
                return True
        elif c == 115 or c == 83:  # step:, global_step, stream
            if (buf[k + 1] | 32) == 116 and (buf[k + 2] | 32) == 101 and (buf[k + 3] | 32) == 112:
                return True
            if buf[k + 1] == 116 and buf[k + 2] == 114 and buf[k + 3] == 101 and buf[k + 4] == 97:
                return True
        elif c == 99 and buf[k + 1] == 111 and buf[k + 2] == 109 and buf[k + 3] == 109 and buf[k + 4] == 32:
            return True
    return False


_SIX = "UniTuple(int64, 6)"


@plain_kernel(f"{_SIX}({_LINE}, int64, boolean, {_I64}, {_I64}, {_I64}, {_I64}, {_I64}, {_I64S}, int64, {_I64S}, {_I64S})")
def scan(
    buf: Any,
    first_line: Any,
    times: Any,
    lead_keys: Any,
    lead_tokens: Any,
    token_process: Any,
    comm_keys: Any,
    comm_values: Any,
    comms: Any,
    comm_count: Any,
    calls: Any,
    careful: Any,
) -> Any:
    """Scan a block of whole lines.

    Args:
        buf: The block.
        first_line: The number of its first line.
        times: Whether to read the time in a line's lead.
        lead_keys: The open table of known leads and tokens, by `lead_hash`.
        lead_tokens: The token number of each place of it.
        token_process: The process number of each token.
        comm_keys: The open table of communicators, by process and pointer.
        comm_values: The number of each place of it.
        comms: Process and pointer of each communicator.
        comm_count: How many there are.
        calls: Out: a row of `FIELDS` for each COLL line taken.
        careful: Out: begin, end and number of each line that the careful path must read.

    Returns:
        Rows of `calls`, rows of `careful`, communicators, lines in all, foreign lines, and where it stopped: before the block's end
        when an output is full.
    """
    n_calls = 0
    n_careful = 0
    lines = 0
    foreign = 0
    at = 0
    size = buf.size
    while at < size:
        if n_calls >= calls.shape[0] or n_careful >= careful.shape[0] or comm_count >= comms.shape[0]:
            break
        begin = at
        mark = -1
        end = at
        while end < size and buf[end] != 10:
            if buf[end] == 78 and mark < 0 and end + 4 < size and buf[end + 1] == 67 and buf[end + 2] == 67 and buf[end + 3] == 76:
                mark = end
                if end > begin and _starts(buf, end, size, _W_INFO):
                    break
            end += 1
        taken = False
        if mark >= 0 and end < size and buf[end] != 10:
            start = token_start(buf, begin, mark)
            slot = _slot(lead_keys, _lead_hash(buf, begin, start, mark))
            if lead_keys[slot] != 0:
                row = calls[n_calls]
                last = _fields(buf, end + _W_INFO.size, size, row)
                if last >= 0:
                    end = last
                    taken = True
                    token = lead_tokens[slot]
                    process = token_process[token]
                    comm = row[2]
                    key = _comm_key(process, comm)
                    place = _slot(comm_keys, key)
                    if comm_keys[place] == 0:
                        comm_keys[place] = key
                        comm_values[place] = comm_count
                        comms[comm_count, 0] = process
                        comms[comm_count, 1] = comm
                        comm_count += 1
                    row[0] = first_line + lines
                    row[1] = token
                    row[2] = comm_values[place]
                    row[14] = _time(buf, begin, start) if times else ABSENT
                    row[15] = 0
                    n_calls += 1
        if not taken:
            while end < size and buf[end] != 10:
                end += 1
            if mark >= 0 or _watched(buf, begin, end):
                careful[n_careful, 0] = begin
                careful[n_careful, 1] = end
                careful[n_careful, 2] = first_line + lines
                n_careful += 1
            else:
                foreign += 1
        lines += 1
        at = end + 1
    return n_calls, n_careful, comm_count, lines, foreign, at
