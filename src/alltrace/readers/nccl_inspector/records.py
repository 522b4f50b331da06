"""Reads the files of NCCL Inspector, NCCL's and RCCL's plugin that writes a line of JSON for each operation.

The format is defined by `plugins/profiler/inspector/inspector_json.cc` in NVIDIA/nccl, versions 4.0 (a record for each
operation), 4.1 (`dump_stats`: what the ring buffers lost), 4.2 (`coll_algo`, `coll_proto`) and later ones; records of
the proxy are left out. A record names its communicator by a hash, and its rank there. A collective's number counts the
calls of its function on its communicator (`ncclComm.seqNumber` is an array over functions); a message's number counts
the messages of its rank. Lines come in the order in which each rank drained its buffers, which is not an order of the
operations.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from alltrace.readers.text import TextLog
from alltrace.trace.errors import InputError

EXPECTED = "a file of NCCL Inspector (lines of JSON with `header` and `coll_perf`, as NCCL_INSPECTOR_DUMP_DIR has them)"
_SPELLED = {"All2All": "AllToAll"}
_MOST = 1 << 62
_MOST_RANKS = 1 << 24


class Operation(NamedTuple):
    """One operation that ended on one rank."""

    communicator: str  # the communicator's hash
    rank: int  # the rank in the communicator
    op: str  # the function, such as `AllReduce` or `Send`
    # for a collective, its number among the calls of its function on the communicator; for a message, its number among
    # the messages of the rank
    sequence: int
    bytes: int  # size of the message as NCCL counts it
    duration_us: float  # how long it took
    timing: str  # where that comes from: `kernel_gpu`, `kernel_cpu`, `collective_cpu`; empty if the file does not say
    busbw: float | None  # bus bandwidth in 1e9 bytes a second, as written; None if missing
    algorithm: str  # algorithm, protocol: those of NCCL; empty if the file does not state them
    protocol: str
    peer: int | None  # the peer of a message; None for collectives
    # start_ns, end_ns: begin of its first and end of its last channel by the host's clock, ns since 1970; None if the
    # file is not verbose
    start_ns: int | None
    end_ns: int | None
    written_ns: int | None  # when it was written, likewise
    called_ns: int | None = None  # when the program called it, likewise; None if the file is not verbose


class Communicator(NamedTuple):
    """A communicator as a file describes it: its name, its ranks, its hosts, and this process's rank in it."""

    name: str
    size: int
    nodes: int
    rank: int


@dataclass
class InspectorFile:
    """The records of one process."""

    path: str  # the file
    version: str = ""  # version of the format
    host: str = ""  # the process's host
    pid: int = 0  # its process id
    communicators: dict[str, Communicator] = field(default_factory=dict)  # those it is in, by hash
    operations: list[Operation] = field(default_factory=list)  # the operations, in the order of the file
    # collectives and messages that the ring buffers lost, by communicator; empty if the version describes none
    dropped: dict[str, tuple[int, int]] = field(default_factory=dict)
    tells_drops: bool = False  # whether the version states what was lost
    others: int = 0  # records without an operation, such as those of the proxy
    unread: int = 0  # lines that are not records
    mixed: int = 0  # records of other processes than the first of the file
    damage: str | None = None  # what is wrong with the end of a compressed file, or None


def looks_like(data: bytes) -> bool:
    """Whether the first bytes belong to such a file."""
    return data.lstrip()[:1] == b"{" and (
        b'"coll_perf"' in data or b'"p2p_perf"' in data or b"inspector_output_format" in data
    )


def read_inspector(path: str, advance: Callable[[int], None] = lambda _n: None) -> InspectorFile:
    """Read a file. Raises `InputError`: it has no record of NCCL Inspector."""
    file = InspectorFile(path)
    first = True
    with TextLog(Path(path)) as log:
        for block, _whole in log.blocks():
            for line in block.splitlines():
                if line.strip():
                    first = _take(file, line, first=first)
            advance(len(block))
        file.damage = log.damage
    if not file.operations and not file.communicators:
        raise InputError(path, found="it has no record of NCCL Inspector", expected=EXPECTED)
    return file


def _take(file: InspectorFile, line: bytes, *, first: bool) -> bool:
    """Take a line into the file's records; whether the process is still unknown."""
    try:
        raw = json.loads(line)
        header, meta = raw["header"], raw.get("metadata") or {}
        communicator, rank = str(header["id"]), _whole(header["rank"], _MOST_RANKS)
        host, pid = str(meta.get("hostname", "")), _whole(meta.get("pid", 0))
        seen = Communicator(
            str(header.get("comm_name", "")),
            _whole(header.get("n_ranks", 0), _MOST_RANKS),
            _whole(header.get("nnodes", 0)),
            rank,
        )
        operation = _operation(raw, communicator, rank, meta)
        dropped = _dropped(raw.get("dump_stats"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        file.unread += 1
        return first
    if first:
        file.host, file.pid = host, pid
    elif (host, pid) != (file.host, file.pid):
        file.mixed += 1
        return False
    file.version = max(file.version, str(meta.get("inspector_output_format_version", "")))
    file.communicators.setdefault(communicator, seen)
    if dropped is not None:
        file.tells_drops = True
        before = file.dropped.get(communicator, (0, 0))
        file.dropped[communicator] = max(before[0], dropped[0]), max(before[1], dropped[1])
    elif operation is not None:
        file.operations.append(operation)
    else:
        file.others += 1
    return False


def _operation(raw: dict[str, Any], communicator: str, rank: int, meta: dict[str, Any]) -> Operation | None:
    word = "coll" if "coll_perf" in raw else "p2p"
    perf = raw.get(f"{word}_perf")
    if perf is None:
        return None
    busbw = perf.get(f"{word}_busbw_gbs")
    start, end = _stamps(perf.get("event_trace_ts"))
    written = meta.get("dump_timestamp_us")
    return Operation(
        communicator=communicator,
        rank=rank,
        op=_SPELLED.get(str(perf[word]), str(perf[word])),
        sequence=_whole(perf[f"{word}_sn"]),
        bytes=_whole(perf[f"{word}_msg_size_bytes"]),
        duration_us=_real(perf[f"{word}_exec_time_us"]),
        timing=str(perf.get(f"{word}_timing_source", "")),
        busbw=None if busbw is None else _real(busbw),
        algorithm=_known(perf.get(f"{word}_algo")),
        protocol=_known(perf.get(f"{word}_proto")),
        peer=_whole(perf["p2p_peer"], _MOST_RANKS) if word == "p2p" and "p2p_peer" in perf else None,
        start_ns=start,
        end_ns=end,
        written_ns=None if written is None else 1000 * _whole(written, _MOST // 1000),
        called_ns=_called(perf.get("event_trace_ts"), word),
    )


def _stamps(trace: Any) -> tuple[int | None, int | None]:
    """Start of the first channel and end of the last, ns; None if the file is not verbose."""
    if not isinstance(trace, dict) or not isinstance(trace.get("kernel_events"), list):
        return None, None
    times = [
        (_whole(e["kernel_start_ts"], _MOST // 1000), _whole(e["kernel_stop_ts"], _MOST // 1000))
        for e in trace["kernel_events"]
    ]
    times = [t for t in times if all(t)]  # of a channel that was not seen, 0 is written
    return (1000 * min(s for s, _ in times), 1000 * max(e for _, e in times)) if times else (None, None)


def _called(trace: Any, word: str) -> int | None:
    """When the operation was called, ns; None if the file is not verbose."""
    at = trace.get(f"{word}_start_ts") if isinstance(trace, dict) else None
    return 1000 * _whole(at, _MOST // 1000) or None if at is not None else None


def _dropped(stats: Any) -> tuple[int, int] | None:
    if stats is None:
        return None
    return _whole(stats.get("coll_dropped_total", 0)), _whole(stats.get("p2p_dropped_total", 0))


def _known(value: Any) -> str:
    text = "" if value is None else str(value)
    return "" if text == "unknown" else text


def _whole(value: Any, most: int = _MOST) -> int:
    if type(value) is not int or not 0 <= value < most:
        raise ValueError("no number of a record")
    return value


def _real(value: Any) -> float:
    number = float(value)
    if not 0 <= number < 1e100:
        raise ValueError("no number of a record")
    return number
