"""Reads the files of NCCL's example profiler plugin: a JSON list of events, a line each, a file for each communicator and rank.

The format is defined by `plugins/profiler/example/print_event.cc` in NVIDIA/nccl (before 2.29 `ext-profiler/example`). Times are
microseconds since the plugin's start in the process, by a clock that never goes back. Lines are nested: an operation (`COLL`,
`P2P`) holds its proxy operations (`PROXY`: one channel, one peer, sending or receiving), these hold the steps that the proxy
thread took through the network (`NET`), and steps hold what the network plugin did (`NET_IB`, `NET_SOCK`). Ids count the events of
one category and name no parent, so only the order of lines says what belongs to what. A file with its lines in another order is
refused.

The plugin keeps events in pools of a fixed size, so a file has the last operations only, and of a proxy operation its last 32
steps. Slots are used again: steps that began before their proxy operation are left from an earlier one, and are not counted.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alltrace.readers.text import TextLog
from alltrace.trace.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

EXPECTED = "a file of NCCL's example profiler plugin (a JSON list of events, as NCCL_PROFILE_DUMP_FILE names it)"
SEND_PHASES = ("SendGpuWait", "SendPeerWait", "SendWait")
RECV_PHASES = ("RecvWait", "RecvFlushWait", "RecvGpuWait")
_PHASES = frozenset((*SEND_PHASES, *RECV_PHASES))
_OPERATIONS = frozenset({"COLL", "P2P"})
_NETWORKS = {"NET_IB": ("ib", "device"), "NET_SOCK": ("socket", "sock")}
_COPIES = frozenset({"CE_COLL", "CE_SYNC", "CE_BATCH"})
_CALLS = frozenset({"GROUP_API", "COLL_API", "P2P_API", "GROUP"})
_CATEGORIES = frozenset((*_OPERATIONS, *_NETWORKS, *_COPIES, *_CALLS, "KERNEL_LAUNCH", "GPU", "PROXY", "NET"))
_LEVELS = 7
"""Events that a line can belong to: the rest of a file without its beginning has at most this many ends without a begin."""

_BARE = re.compile(rb"(: ?)(0x[0-9a-fA-F]+|\(nil\)|nccl\w+)(?=[,}])")
"""Pointers and types that NCCL 2.28 writes without quotes."""

_NAMED = re.compile(r"_(\d{1,20})_(\d{1,9})\.json(?:\.gz|\.zst)?$")
_MOST = 1 << 62
_MOST_US = 1e15
_MOST_RANKS = 1 << 24

Span = tuple[int, int]
"""Start and end, ns since the plugin's start."""


@dataclass
class ProxyOperation:
    """What the proxy thread did for an operation on one channel with one peer.

    Attributes:
        send: Whether it sends.
        channel: The channel.
        peer: The peer's rank in the communicator.
        steps: How many steps it has, of which `spans` may hold the last alone.
        bytes: What it moved, in all of its steps.
        start: When the proxy thread began with it, ns since the plugin's start.
        end: When it ended, None if that is not known.
        spans: By phase (`SEND_PHASES` or `RECV_PHASES`) the spans of its steps.
        network: What the network plugin did: kind (`ib`, `socket`), device or socket, bytes, span.
    """

    send: bool
    channel: int
    peer: int
    steps: int
    bytes: int
    start: int
    end: int | None = None
    spans: dict[str, list[Span]] = field(default_factory=dict)
    network: list[tuple[str, int, int, Span]] = field(default_factory=list)


@dataclass
class Operation:
    """A collective or message on one rank.

    Attributes:
        op: The function, such as `AllReduce` or `Send`.
        sequence: Of a collective its number among the calls of its function on the communicator; else None.
        peer: The peer of a message.
        count: Elements; likewise `datatype`, `algorithm`, `protocol` ("" if not known), `channels`.
        start: When it was enqueued, ns since the plugin's start.
        kernel_ns: From the first start of a channel on the GPU to the last end, by the GPU's clock; None if not known.
        proxies: What the proxy thread did for it.
        ready_ns: Of an operation by copy engines: how long the GPU waited for the other ranks before the copies; likewise
            `copies_ns` (in copies), `complete_ns` (for the others afterwards).
        copied_bytes: What these copies moved.
    """

    op: str
    sequence: int | None
    peer: int | None
    count: int
    datatype: str
    algorithm: str
    protocol: str
    channels: int
    start: int
    kernel_ns: int | None = None
    proxies: list[ProxyOperation] = field(default_factory=list)
    ready_ns: int | None = None
    copies_ns: int | None = None
    complete_ns: int | None = None
    copied_bytes: int | None = None


@dataclass
class ProfilerFile:
    """The events of one communicator on one rank.

    Attributes:
        path: The file.
        communicator: The communicator's hash, as a hexadecimal number; "" if it is unknown.
        rank: The rank in the communicator, or None.
        pid: The process.
        operations: In the order of the file.
        detached: Proxy operations for other processes of the host (PXN), of which no operation is known.
        unread: Lines that are not events.
        stale: Steps left over from an earlier operation in the same slot, not counted.
        orphans: Steps without the line that begins their proxy operation, not counted.
        whole: Whether the file has its end.
        damage: What is wrong with the end of a compressed file, or None.
    """

    path: str
    communicator: str = ""
    rank: int | None = None
    pid: int = 0
    operations: list[Operation] = field(default_factory=list)
    detached: list[ProxyOperation] = field(default_factory=list)
    unread: int = 0
    stale: int = 0
    orphans: int = 0
    whole: bool = False
    damage: str | None = None


def read_profiler(path: str, advance: Callable[[int], None] = lambda _n: None) -> ProfilerFile:
    """Read a file.

    Raises:
        InputError: It has no event of the plugin, or its lines are not in the order in which the plugin writes them.
    """
    parser = _Parser(ProfilerFile(path))
    with TextLog(Path(path)) as log:
        for block, _whole in log.blocks():
            for line in block.splitlines():
                parser.take(line)
            advance(len(block))
        parser.file.damage = log.damage
    if not parser.events:
        raise InputError(path, found="it has no event of NCCL's example profiler plugin", expected=EXPECTED)
    if parser.unmatched > parser.file.unread + (0 if parser.begun else _LEVELS):
        raise InputError(
            path,
            found=f"{parser.unmatched:,} events end before they begin, so its lines are not in their order",
            expected="the lines in the order in which the plugin wrote them, which alone tells what belongs to what",
            advice="copy the file again",
        )
    return parser.finished()


class _Parser:
    """The state while the lines of a file are read."""

    def __init__(self, file: ProfilerFile) -> None:
        self.file = file
        self.events = 0
        self.unmatched = 0
        self.begun = False
        self._open: dict[tuple[str, str, int], tuple[int, dict[str, Any]]] = {}
        self._operation: Operation | None = None
        self._copies: Operation | None = None
        self._proxy: ProxyOperation | None = None
        self._clocks: list[tuple[int, int]] = []

    def take(self, line: bytes) -> None:
        """Take a line."""
        text = line.strip().rstrip(b",")
        if not text:
            return
        if text == b"[":
            self.begun = True
            return
        if text in (b"{}]", b"{}", b"]"):
            self.file.whole = text != b"{}"
            return
        try:
            event = _parsed(text)
            category, phase, name = str(event["cat"]), event["ph"], str(event["name"])
            number, pid, at = _whole(event["id"]), _whole(event["pid"]), _time(event["ts"])
            if category not in _CATEGORIES or phase not in ("b", "e"):
                self.file.unread += 1
                return
            args = event.get("args") or {}
            if phase == "b":
                self._begin(category, name, number, at, args)
            else:
                self._end(category, name, number, at)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
            self.file.unread += 1
            return
        self.events += 1
        self.file.pid = pid

    def _begin(self, category: str, name: str, number: int, at: int, args: dict[str, Any]) -> None:
        file = self.file
        if category in _OPERATIONS:
            self._operation = _operation(category, name, at, args)
            file.communicator = f"{_whole(args['CommHash'], 1 << 64):#x}"
            file.rank = _whole(args["Rank"], _MOST_RANKS)
            file.operations.append(self._operation)
            self._proxy, self._clocks = None, []
        elif category == "CE_COLL":
            count, strategy = _whole(args.get("count", 0)), str(args.get("strategy", ""))
            self._copies = Operation(name, None, None, count, _datatype(args.get("datatype")), "CE", strategy, 0, at)
            file.operations.append(self._copies)
        elif category in ("CE_SYNC", "CE_BATCH") and self._copies is not None:
            _add_copy_engine(self._copies, category, args)
        elif category == "PROXY" and name.startswith("Progress"):
            self._proxy = ProxyOperation(
                name == "ProgressSend", _whole(args["Channel"]), _whole(args["Peer"], _MOST_RANKS), _whole(args["Steps"]),
                _whole(args["transSize"]), at,
            )  # fmt: skip
            (self._operation.proxies if self._operation is not None else file.detached).append(self._proxy)
        elif category == "GPU":
            first, last = _whole(args["StartGpuClk"], 1 << 64), _whole(args["StopGpuClk"], 1 << 64)
            if 0 < first < last:
                self._clocks.append((first, last))
        elif category == "NET" and self._proxy is None and name in (SEND_PHASES[0], RECV_PHASES[0]):
            file.orphans += 1
        self._open[category, name, number] = at, args

    def _end(self, category: str, name: str, number: int, at: int) -> None:
        if category in _CALLS:  # which holds the operation, if that has lost its end
            self._operation = self._proxy = None
        begun = self._open.pop((category, name, number), None)
        if begun is None:
            self.unmatched += 1
            return
        start, args = begun
        if category in _OPERATIONS:
            if self._operation is not None and self._clocks:
                self._operation.kernel_ns = max(e for _, e in self._clocks) - min(s for s, _ in self._clocks)
            self._operation = self._proxy = None
        elif category == "CE_COLL":
            self._copies = None
        elif category == "PROXY":
            if name.startswith("Progress") and self._proxy is not None:
                self._proxy.end = at if at >= self._proxy.start else None
                self._proxy = None
        elif self._proxy is not None and (name in _PHASES or category in _NETWORKS):
            if start < self._proxy.start and start:
                self.file.stale += category == "NET"
            elif start and at >= start:  # a state that was not reached has time 0
                if category == "NET":
                    self._proxy.spans.setdefault(name, []).append((start, at))
                else:
                    kind, device = _NETWORKS[category]
                    self._proxy.network.append((kind, _whole(args[device]), _whole(args["size"]), (start, at)))

    def finished(self) -> ProfilerFile:
        """The file; its rank is in its name if no operation states it."""
        told = _NAMED.search(Path(self.file.path).name)
        if told and self.file.rank is None:
            self.file.communicator = f"{int(told[1]) % 2**64:#x}"
            self.file.rank = int(told[2])
        return self.file


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = json.loads(_BARE.sub(rb'\1"\2"', text))
    if not isinstance(found, dict):
        raise TypeError("no event")
    return found


def _operation(category: str, name: str, at: int, args: dict[str, Any]) -> Operation:
    message = category == "P2P"
    return Operation(
        op=name,
        sequence=None if message else _whole(args["SeqNum"]),
        peer=_whole(args["Peer"], _MOST_RANKS) if message else None,
        count=_whole(args["Count"]),
        datatype=_datatype(args.get("Datatype")),
        algorithm=str(args.get("Algorithm", "")),
        protocol=str(args.get("Protocol", "")),
        channels=_whole(args["nChannels"]),
        start=at,
    )


def _add_copy_engine(operation: Operation, category: str, args: dict[str, Any]) -> None:
    """Add a wait or a batch of copies; only the GPU's time says how long it took, if the plugin timed by events."""
    took = args.get("duration_gpu_us")
    ns = None if took is None or not 0 <= float(took) < _MOST_US else round(1000 * float(took))
    if category == "CE_BATCH":
        operation.copied_bytes = (operation.copied_bytes or 0) + _whole(args["totalBytes"])
    which = "copies_ns" if category == "CE_BATCH" else "ready_ns" if args.get("type") == "Ready" else "complete_ns"
    if ns is not None:
        setattr(operation, which, (getattr(operation, which) or 0) + ns)


def _datatype(value: Any) -> str:
    return "" if value is None else str(value).removeprefix("nccl")


def _whole(value: Any, most: int = _MOST) -> int:
    if type(value) is not int or not 0 <= value < most:
        raise ValueError("no number of an event")
    return value


def _time(value: Any) -> int:
    """A time in ns of one in microseconds."""
    number = float(value)
    if isinstance(value, str) or not math.isfinite(number) or not 0 <= number < _MOST_US:
        raise ValueError("no time")
    return round(1000 * number)
