"""The messages of NCCL that are not calls: communicators, topology, transports, tuning, networks, warnings."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from alltrace.readers.nccl_log import grammar as g
from alltrace.readers.nccl_log.fields import signed
from alltrace.readers.nccl_log.records import MOST_ENTRIES, CommunicatorEvent, Records
from alltrace.trace.names import text_of_bytes
from alltrace.trace.nccl_words import ALGORITHMS, PROTOCOLS

_ALGORITHM_NUMBERS, _PROTOCOL_NUMBERS = ({str(n) for n in range(len(words))} for words in (ALGORITHMS, PROTOCOLS))


class Log(Protocol):
    """The log that a message is of, as far as it was read, and the communicator each process began last."""

    records: Records

    def current(self, process: int) -> int:
        """The communicator that a process began last."""
        ...

    def begin(self, process: int, communicator: int) -> None:
        """A process begins a communicator."""
        ...

    def complete(self, process: int, communicator: int) -> None:
        """A communicator is there."""
        ...

    def communicator(self, process: int, pointer: int) -> int:
        """The number of a process's communicator pointer."""
        ...


def read(log: Log, level: bytes, body: bytes, line: int, process: int, *, cut: bool, text: bytes) -> None:
    """Read a record that is not a call; `cut`: whether the message is known to continue after `body`."""
    records = log.records
    if level in (b"WARN", b"ABORT"):
        records.counts["warning"] += 1
        records.fact("warning", body.strip())
        return
    for kind, needle, shape, take in _MESSAGES:
        if needle not in body:
            continue
        match = shape.search(body)
        # at a cut, a number may lack its last digits; a message that ends before the cut is whole
        if match is not None and not (cut and match.end() >= len(body.rstrip())):
            records.counts[kind] += 1
            take(log, match, process, line)
            return
    other(records, body, cut, line, text)


def other(records: Records, body: bytes, cut: bool, line: int, text: bytes) -> None:
    """Account for a message of which only the process is known, or which is cut."""
    if cut or not body.strip():
        records.not_understood(line, text)
    else:
        records.counts["other"] += 1


def _text(value: bytes | None) -> str:
    return "" if value is None else text_of_bytes(value)


def _fields(match: re.Match[bytes]) -> dict[str, str]:
    return {k: _text(v) for k, v in match.groupdict().items() if v is not None}


def _event(log: Log, match: re.Match[bytes], process: int, line: int) -> None:
    number = log.communicator(process, signed(match["comm"][:18]))
    fields = _fields(match)
    what = fields.get("what", "placement")
    if what == "Init START":
        log.begin(process, number)
    elif what == "Init COMPLETE":
        log.complete(process, number)
    log.records.events.append(CommunicatorEvent(line, number, what, fields))


def _timings(log: Log, match: re.Match[bytes], process: int, line: int) -> None:
    log.records.events.append(CommunicatorEvent(line, log.current(process), "timings", _fields(match)))


def _edge(log: Log, match: re.Match[bytes], process: int, line: int) -> None:  # noqa: ARG001
    records = log.records
    via = _text(match["via"])
    direction = _text(match["direction"]) or "send"
    receiver = int(match["to"] if match["to"] is not None else match["from"])
    key = (process, log.current(process), int(match["channel"]), int(match["from"]), receiver, via, direction)
    if key in records.edges or len(records.edges) < MOST_ENTRIES:
        records.edges[key] += 1
    else:
        records.dropped += 1


def _ring_list(log: Log, match: re.Match[bytes], process: int, line: int) -> None:  # noqa: ARG001
    ranks = " ".join(_text(match["ranks"]).split())
    key = (process, log.current(process), int(match["channel"]))
    if len(log.records.rings) < MOST_ENTRIES:
        log.records.rings[key] = (ranks, match["more"] is not None)


def _trees(log: Log, match: re.Match[bytes], process: int, line: int) -> None:  # noqa: ARG001
    for tree in g.TREE.finditer(match["trees"]):
        key = (process, log.current(process), int(tree["channel"]), int(tree["me"]))
        if len(log.records.trees) < MOST_ENTRIES:
            log.records.trees[key] = (int(tree["up"]), _text(tree["down"]))


def _tuning(log: Log, match: re.Match[bytes], process: int, line: int) -> None:  # noqa: ARG001
    algorithm, protocol = _text(match["algo"]), _text(match["proto"])
    if algorithm in _ALGORITHM_NUMBERS:
        algorithm = ALGORITHMS[int(algorithm)]
    if protocol in _PROTOCOL_NUMBERS:
        protocol = PROTOCOLS[int(protocol)]
    channels = int(match["channels"]) if match["channels"] else None
    if match["hi"] is not None:
        channels = int(match["hi"]) - int(match["lo"]) + 1
    if not algorithm:
        algorithm = _text(match["kernel"])
    operation = _text(match["op"]) + (f" [{_text(match['variant'])}]" if match["variant"] else "")
    key = (process, log.current(process), operation, int(match["bytes"]), algorithm, protocol, channels)
    records = log.records
    if key in records.tuning or len(records.tuning) < MOST_ENTRIES:
        records.tuning[key] += 1
    else:
        records.dropped += 1


def _fact(kind: str) -> Callable[[Log, re.Match[bytes], int, int], None]:
    def take(log: Log, match: re.Match[bytes], process: int, line: int) -> None:  # noqa: ARG001
        log.records.fact(kind, match[0].strip())

    return take


def _environment(log: Log, match: re.Match[bytes], process: int, line: int) -> None:  # noqa: ARG001
    log.records.fact("environment", match["name"] + b"=" + match["value"].rstrip().removesuffix(b"."))


def _version(log: Log, match: re.Match[bytes], process: int, line: int) -> None:  # noqa: ARG001
    log.records.fact("version", match["library"] + b" " + match["version"])


def _affinity(log: Log, match: re.Match[bytes], process: int, line: int) -> None:  # noqa: ARG001
    cpus = _cpus(_text(match["near"] or match["set"]))
    if cpus:
        log.records.near_cpus[process] = log.records.near_cpus.get(process, frozenset()) | cpus


def _cpus(text: str) -> frozenset[int]:
    """The CPUs of ranges or a mask; none for text that can be either, such as `12`, or neither."""
    parts = text.split(",")
    if "-" in text or (len(parts) > 1 and any(len(p) != 8 for p in parts[1:])):
        ranges = [p.split("-") for p in parts]
        if any(len(r) > 2 or not all(n.isdigit() and len(n) < 5 for n in r) for r in ranges):
            return frozenset()
        return frozenset(n for first, *last in ranges for n in range(int(first), int((last or [first])[0]) + 1))
    if text.isdigit() and len(text) < 4:
        return frozenset()
    mask = int("".join(parts), 16) if len(text) < 2000 else 0
    return frozenset(n for n in range(mask.bit_length()) if mask >> n & 1)


_MESSAGES: tuple[tuple[str, bytes, re.Pattern[bytes], Callable[[Log, re.Match[bytes], int, int], None]], ...] = (
    ("transport", b" via ", g.EDGE, _edge),
    ("tuning", b" Bytes -> ", g.TUNING_CHOICE, _tuning),
    ("init", b" - ", g.INIT, _event),
    ("timings", b"Init timings", g.TIMINGS, _timings),
    ("placement", b" localRanks ", g.PLACEMENT, _event),
    ("tree", b"Trees ", g.TREES, _trees),
    ("ring", b"Channel ", g.RING_LIST, _ring_list),
    ("graph", b"Ring ", g.RING, _fact("ring")),
    ("graph", b"Tree ", g.GRAPH_TREE, _fact("tree")),
    ("graph", b"Pattern ", g.PATTERN, _fact("pattern")),
    ("channels", b" coll channels", g.CHANNELS, _fact("channels")),
    ("affinity", b"ffinity for GPU ", g.AFFINITY, _affinity),
    ("nvls", b"NVLS", g.NVLS, _fact("nvls")),
    ("connected", b"Connected all ", g.CONNECTED, _fact("connected")),
    ("environment", b" set by environment to ", g.ENV, _environment),
    ("version", b"CCL version", g.VERSION, _version),
    ("network", b"Using network ", g.NET, _fact("network")),
    ("network", b"NET/", g.NET, _fact("network")),
)
