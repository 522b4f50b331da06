"""The careful path: any line with records of NCCL, with any text before it, interruptions or missing parts."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from alltrace.core.nccl_log import ABSENT, lead_hash, time_of, token_start
from alltrace.readers.nccl_log import grammar as g
from alltrace.readers.nccl_log.fields import CUT, REJOINED, Coll, parse_call, parse_coll, signed
from alltrace.readers.nccl_log.records import MOST_ENTRIES, CommunicatorEvent, Process, Records
from alltrace.readers.nccl_log.stamps import Stamp
from alltrace.trace.names import text_of_bytes
from alltrace.trace.nccl_words import ALGORITHMS, OPERATIONS, PROTOCOLS

# The messages of NCCL that are not calls: communicators, topology, transports, tuning, networks, warnings.

_ALGORITHM_NUMBERS, _PROTOCOL_NUMBERS = ({str(n) for n in range(len(words))} for words in (ALGORITHMS, PROTOCOLS))


class Log(Protocol):
    """The log that a message is of, as far as it was read, and the communicator each process began last."""

    records: Records

    def current(self, process: int) -> int:
        """The communicator that a process began last."""

    def begin(self, process: int, communicator: int) -> None:
        """A process begins a communicator."""

    def complete(self, process: int, communicator: int) -> None:
        """A communicator is there."""

    def communicator(self, process: int, pointer: int) -> int:
        """The number of a process's communicator pointer."""


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


_MOST_PENDING = 64
_LEARNED = 3
_LONGEST_HOST = 255
_DIGITS = b"0123456789"
_FRAGMENT_WORDS = (b"stream ", b"comm 0x", b"datatype ", b"recvbuff ", b"[nranks=")


@dataclass
class _Pending:
    """A COLL record of which only the first part has come; `call` is the call if all that is needed was in it."""

    line: int
    process: int
    token: int
    time: int
    body: bytes
    call: Coll | None


class CarefulPath:
    """Reads lines one by one into `records`; calls are appended to `rows` as rows of `core.nccl_log.FIELDS`.

    `register`: called with key, token and process numbers for a lead and token that the scanner may read from now on.
    `communicator`: the number of a process's communicator pointer. `stamp`: reads times in the user's format.
    """

    def __init__(
        self,
        records: Records,
        register: Callable[[int, int, int], None] | None,
        communicator: Callable[[int, int], int],
        known: Callable[[int, int], bool],
        stamp: Stamp | None = None,
    ) -> None:
        self.records = records
        self.rows: list[list[int]] = []
        self._register = register
        self._communicator = communicator
        self._known = known
        self._stamp = stamp
        self._processes: dict[tuple[bytes, int], int] = {}
        self._tokens: dict[tuple[int, bytes], int] = {}
        self._seen: dict[tuple[bytes, int], int] = {}
        self._shapes: dict[bytes, int] = {}
        self._pending: list[_Pending] = []
        self.tokens: list[tuple[int, int, int | None]] = []
        self._current: dict[int, int] = {}
        self._placeholders = 0

    def look_ahead(self, block: bytes) -> None:
        """Learn hosts and leads from clean lines of the first block, so that the first glued record is read right."""
        for raw in block.splitlines():
            head = g.HEADER.search(raw)
            if head is None:
                continue
            lead = raw[: head.start()]
            if len(lead) > 400 or not g.prefix_rank(lead)[0]:
                self._shape(lead)
                continue
            process = head["host"], int(head["pid"])
            self._seen[process] = self._seen.get(process, 0) + 1

    def line(self, raw: bytes, number: int, whole: bool = True) -> None:
        """Read one line; `whole` is False for a last line without an end."""
        text = g.ANSI.sub(b"", raw) if b"\x1b" in raw else raw
        text = text.rstrip(b"\r")
        heads = list(g.HEADER.finditer(text)) if b" NCCL " in text else []
        if not heads:
            self._headless(text, number, whole)
            return
        starts = [self._start(head) for head in heads]
        lead = text[: starts[0]]
        prefix, rank = self._lead(lead, number)
        for index, head in enumerate(heads):
            last = index + 1 == len(heads)
            body = text[head.end() : len(text) if last else starts[index + 1]]
            before = lead if index == 0 else text[heads[index - 1].end() : starts[index]]
            time = self._time(before, head)
            if not last and time != ABSENT:
                body = _without_stamp(body)
            process, token = self._process(text[starts[index] : head.end("pid")], head, rank if index == 0 else None)
            clean = len(heads) == 1 and prefix and starts[0] == head.start() and text is raw
            if clean and head["us"] is None and head["level"] == b"INFO":
                self._offer(raw, head, token, process)
            self._record(head["level"], body, number, process, token, time, cut=not (last and whole), text=text)

    def settle(self) -> None:
        """Accept the calls that only lack their last fields; called at the end of a block, to keep the order."""
        for pending in [p for p in self._pending if p.call is not None]:
            self._give_up(pending)

    def finish(self) -> None:
        """Account for first parts without a matching rest."""
        for pending in list(self._pending):
            self._give_up(pending)

    def _give_up(self, pending: _Pending) -> None:
        self._pending.remove(pending)
        if pending.call is None:
            self.records.not_understood(pending.line, pending.body)
            return
        self.records.counts["COLL"] += 1
        self._call(pending.call, pending.line, pending.process, pending.token, pending.time, CUT)

    def _start(self, head: re.Match[bytes]) -> int:
        """Where the host of a header begins: a record that was interrupted may be glued to it."""
        host, pid = head["host"], int(head["pid"])
        own = self._seen.get((host, pid), 0)
        if (host, pid) in self._processes and own == 0:
            return head.start()
        for length in range(min(len(host) - 1, _LONGEST_HOST), 0, -1):
            if self._seen.get((host[-length:], pid), 0) > own:
                return head.start() + len(host) - length
        return head.start()

    def _shape(self, lead: bytes) -> int:
        """How often a lead of this shape came."""
        shape = bytes(48 if c in _DIGITS else c for c in lead[:400])
        count = self._shapes.get(shape, 0) + 1
        if count > 1 or len(self._shapes) < 10_000:
            self._shapes[shape] = count
        return count

    def _lead(self, lead: bytes, number: int) -> tuple[bool, int | None]:
        if not lead:
            return True, None
        if len(lead) <= 400:
            prefix, rank = g.prefix_rank(lead)
            if prefix:
                return True, rank
        # a lead that comes again and again is a prefix that we did not know; another one is a piece of something
        if len(lead) <= 400 and self._shape(lead) > _LEARNED:
            return True, None
        self._fragment(lead, number, whole=False)
        return False, None

    def _time(self, lead: bytes, head: re.Match[bytes]) -> int:
        if head["us"] is not None:
            time = int(head["us"]) * 1000
            time, zoned = time if time < 1 << 63 else ABSENT, True
        elif self._stamp is not None:
            time, zoned = self._stamp.time_ns(lead), self._stamp.zoned
        else:
            time = time_of(lead)
            zoned = time != ABSENT and g.ZONED.search(lead) is not None
        if time != ABSENT:
            self.records.zoned.add(zoned)
        return time

    def _process(self, name: bytes, head: re.Match[bytes], rank: int | None) -> tuple[int, int]:
        host, pid = name.rsplit(b":", 1)[0], int(head["pid"])
        number = self._processes.get((host, pid))
        if number is None:
            number = len(self.records.processes)
            self._processes[host, pid] = number
            self.records.processes.append(Process(text_of_bytes(host), pid, rank))
        elif rank is not None and self.records.processes[number].prefix_rank is None:
            self.records.processes[number].prefix_rank = rank
        rest = head["tid"] + b" " + (head["dev"] or b"")
        token = self._tokens.get((number, rest))
        if token is None:
            token = len(self.tokens)
            self._tokens[number, rest] = token
            self.tokens.append((number, int(head["tid"]), None if head["dev"] is None else int(head["dev"])))
        return number, token

    def _offer(self, raw: bytes, head: re.Match[bytes], token: int, process: int) -> None:
        if self._register is None:
            return
        mark = raw.index(b"NCCL ", head.start())
        if raw.find(b"NCCL") != mark:
            return
        start = token_start(raw, 0, mark)
        if start <= head.start():
            self._register(lead_hash(raw, 0, start, mark), token, process)

    def _record(
        self, level: bytes, body: bytes, number: int, process: int, token: int, time: int, *, cut: bool, text: bytes
    ) -> None:
        counts = self.records.counts
        # a process writes one record after the other, so the rest of an earlier one of it will not come any more
        for pending in [p for p in self._pending if p.process == process]:
            self._give_up(pending)
        if level == b"INFO" and (b"opCount" in body[:32] or _begins_call(body)):
            coll = parse_coll(body, cut=cut)
            # the stream may be cut off: too little is left of it to be waited for
            if coll is not None and (not cut or coll.nranks != ABSENT):
                counts["COLL"] += 1
                self._call(coll, number, process, token, time, CUT if cut else 0)
                return
            if len(self._pending) >= _MOST_PENDING:
                self._give_up(self._pending[0])
            self._pending.append(_Pending(number, process, token, time, body, coll))
            return
        if level == b"CALL" or (level == b"TRACE" and body.startswith(b"nccl")):
            call = parse_call(body)
            if call is None:
                other(self.records, body, cut, number, text)
                return
            counts["CALL"] += 1
            self._call(call, number, process, token, time, 0)
            return
        read(self, level, body, number, process, cut=cut, text=text)

    def current(self, process: int) -> int:
        """The communicator that a process began last; a negative placeholder while its pointer is not known yet."""
        number = self._current.get(process)
        if number is None:
            self._placeholders -= 1
            number = self._current[process] = self._placeholders - 1
        return number

    def begin(self, process: int, communicator: int) -> None:
        """A process begins a communicator: what it says from now on is about this one."""
        self._current[process] = communicator

    def complete(self, process: int, communicator: int) -> None:
        """A communicator is there; if no line said that it begins, what came before was about it."""
        if self._current.get(process, -1) < 0:
            self.records.aliases[self.current(process)] = communicator
            del self._current[process]

    def communicator(self, process: int, pointer: int) -> int:
        """The number of a process's communicator pointer."""
        return self._communicator(process, pointer)

    def _call(self, coll: Coll, number: int, process: int, token: int, time: int, flags: int) -> None:
        communicator = self._communicator(process, coll.comm)
        self.rows.append(coll.row(number, token, communicator, time, flags))

    def _headless(self, text: bytes, number: int, whole: bool) -> None:
        version = g.VERSION.search(text) if b"CCL version" in text else None
        if version is not None:
            self.records.counts["version"] += 1
            self.records.fact("version", version["library"] + b" " + version["version"])
            return
        self._fragment(text, number, whole=whole)

    def _fragment(self, text: bytes, number: int, *, whole: bool) -> None:
        """Text that begins no record: a step's line, the rest of a record that was interrupted, or nothing of ours."""
        step = g.STEP.search(text)
        if step is not None:
            _prefix, rank = g.prefix_rank(text[: min(step.start(), 60)].split(b"Training")[0][:60])
            self.records.steps.append((number, int(next(v for v in step.groups() if v is not None)), rank))
            self.records.counts["step"] += 1
            return
        if self._pending and text.strip():
            if self._rejoin(text, whole=whole):
                return
            if not whole:
                # a piece of the rest is lost, so later text must not replace it
                self.finish()
        if b"NCCL " in text or any(word in text for word in _FRAGMENT_WORDS):
            self.records.not_understood(number, text)
        else:
            self.records.counts["foreign"] += 1

    def _rejoin(self, text: bytes, *, whole: bool) -> bool:
        """Whether `text` is the rest of just one record that was interrupted; then it is a call."""
        fits = [
            (p, c)
            for p in self._pending
            if (c := parse_coll(p.body + text, cut=not whole)) is not None and (p.call is None or c.stream != ABSENT)
        ]
        if len(fits) > 1:
            fits = [(p, c) for p, c in fits if self._known(p.process, c.comm)]
        if len(fits) != 1:
            return False
        pending, coll = fits[0]
        self._pending.remove(pending)
        self.records.counts["COLL"] += 1
        self._call(coll, pending.line, pending.process, pending.token, pending.time, REJOINED)
        return True


def _begins_call(body: bytes) -> bool:
    """Whether a body is the very first part of a COLL record, cut before its opCount."""
    op, colon, rest = body.rstrip().partition(b":")
    return bool(colon) and op.decode("latin-1") in OPERATIONS and b"opCount".startswith(rest.lstrip())


def _without_stamp(body: bytes) -> bytes:
    """A body without the time of the record that interrupts it."""
    at = max(body.rfind(b"["), len(body) - 48)
    return body[:at] if at >= 0 and g.ONLY_STAMP.fullmatch(body[at:]) else body
