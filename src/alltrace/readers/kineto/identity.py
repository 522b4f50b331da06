"""Who a trace is about: rank, host, process, time and devices, from its head and its tail."""

import os
import re
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import numpy as np

from alltrace.core.kineto import IDENTITIES, NOTHING, next_event
from alltrace.readers.base import Report, ReportProcess, ReportWarning
from alltrace.readers.kineto import categories
from alltrace.readers.kineto.entities import MOST_DEVICES
from alltrace.readers.kineto.events import Block, Scan, Scanner
from alltrace.readers.kineto.names import Names
from alltrace.readers.text import PIECE, Text
from alltrace.trace.errors import InputError, printable

EXPECTED = "a PyTorch profiler trace (Kineto)"
TABLES = (
    "kernels",
    "copies",
    "api",
    "syncs",
    "ranges",
    "frames",
    "collectives",
    "allocations",
    "kernel_counters",
    "overheads",
)
"""The canonical tables that a trace can fill."""

OF_CAPTURE = ("api", "ranges", "frames")
"""What is read of a trace of the capture of CUDA graphs: which call launched what; its own work is not the run's."""

_CAPTURES = "capture_traces"  # the folder where inference servers put traces of captures, next to those of the run
_HEAD_BYTES = 2 << 20
_LONG_HEAD_BYTES = 32 << 20
_TAIL_BYTES = 1 << 20
_ALL_RANKS = ("0", "default_pg")  # names of the group that the program starts with
_SECOND_NS = 10**9
_DAY_NS = 86_400 * 10**9
_EPOCH_NS = 10**18  # times above it, which is 2001, count from 1970
_LATEST_NS = (
    1 << 62
)  # the year 2116; later values are not times, and the difference of two of them would not fit 64 bits
_FEWEST_OF_A_PROCESS = 10
_LABELS_SHOWN = 4
_PROCESS_BEHIND = re.compile(r"[-_ ]*(\d{1,18})$")
_RANK = "rank "
_RANKED = re.compile(r"\brank[-_ ]?(\d{1,7})|(?<![A-Za-z])(?:TP|DP|PP|EP)-?\d{1,7}", re.IGNORECASE)
"""What a merged trace puts before processes' ids, or calls them: `[TP00-DP00-PP00-EP00] 1000`, `rank 3 (node1)`."""
_MERGED = ("pid", "merged_pid", "merged_rank")
_HANDLER_NAME = re.compile(r"^(?P<host>.+)_(?P<pid>\d+)\.(?:\d+\.)?pt\.trace\.json", re.IGNORECASE)


@dataclass
class Facts:
    """The content of the parts of a trace that were read."""

    metadata: dict[str, Any] = field(default_factory=dict)  # the members of its top level
    pids: Counter[int] = field(default_factory=Counter)  # process ids of events on the host, by how often
    devices: Counter[int] = field(default_factory=Counter)  # ordinals of events on a GPU, by how often
    roles: Counter[int] = field(default_factory=Counter)  # roles of events, by how often
    # ranks in the group of all ranks that communication calls state, by how often
    group_ranks: Counter[int] = field(default_factory=Counter)
    # what the trace's clock shows at time 0 of the report: a whole second, not after the first event read
    zero_ns: int = 0
    first_ns: int | None = None  # what it shows at the first event of the file that has a time
    last_ns: int | None = None  # what it shows when all but a hundredth of the last events read have begun
    whole: bool = False  # whether the trace ends as it should
    events: int = 0  # events read
    correlated: int = 0  # kernels with a correlation
    external: int = 0  # kernels without one, but with the id of the call that launched them
    gpu_pids: Counter[int] = field(default_factory=Counter)  # process ids of events on a GPU, by how often
    # for process ids of a trace that may be merged the rank that their events name, such as `rank 3` or `TP00-DP01`
    labels: dict[int, str] = field(default_factory=dict)
    called: dict[int, str] = field(default_factory=dict)  # what such processes are called
    # for such ids the one that the process had itself; `NOTHING` if it is not a number
    own_pids: dict[int, int] = field(default_factory=dict)

    @property
    def merged(self) -> bool:
        """Whether tools may have merged it from the traces of several ranks."""
        return len(set(self.labels.values())) > 1 or len(self.launching) > 1

    @property
    def launching(self) -> list[int]:
        """The processes with more than a few events on the host."""
        return [
            pid for pid, count in self.pids.items() if (pid > 0 or pid <= IDENTITIES) and count >= _FEWEST_OF_A_PROCESS
        ]

    @property
    def first_time_ns(self) -> int | None:
        """The trace's time before which no event can be, if it counts from 1970: a day after; None if not."""
        base = self.number("baseTimeNanoseconds") or 0
        return _DAY_NS - base if base + self.zero_ns >= _EPOCH_NS else None

    @property
    def by_external(self) -> bool:
        """Whether `External id` is what joins kernels with their launches, as in traces of PyTorch for ROCm."""
        return self.external > 0 and not self.correlated

    def number(self, *names: str) -> int | None:
        """The whole number in the metadata under the names, one inside the other; None if there is none."""
        value: Any = self.metadata
        for name in names:
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
            return int(value)
        return value if isinstance(value, int) and not isinstance(value, bool) else None


class Process(NamedTuple):
    """A process of a trace."""

    label: str  # the rank that a merged trace names for it, such as `rank 3`; empty for the only one
    pid: int
    pids: tuple[int, ...]  # the ids that a merged trace has for it; none for the only one
    ordinal: int | None  # the lowest ordinal of its devices
    gpu: bool

    @property
    def rank(self) -> int | None:
        """The rank that its label states by its number."""
        return (
            int(self.label[len(_RANK) :])
            if self.label.startswith(_RANK) and self.label[len(_RANK) :].isdecimal()
            else None
        )


class _Bytes(Text):
    def __init__(self, data: bytes) -> None:
        self.cut = False
        self._data = data

    def read(self, count: int = PIECE) -> bytes:
        part, self._data = self._data[:count], self._data[count:]
        return part

    def close(self) -> None:
        self._data = b""


def look_at_head(path: Path, most: int | None = _HEAD_BYTES) -> Facts:
    """The facts from the first `most` bytes, or all. Raises `InputError`: it is empty, or no trace of this tool."""
    facts = Facts()
    with closing(Text(path)) as text:
        reader = Scanner(text, most)
        _take(facts, reader, first=True)
        done = reader.scan.whole and not text.cut
    facts.whole = done
    if not reader.scan.found and not reader.scan.metadata and not facts.events:
        problem = "it is empty" if path.stat().st_size == 0 else "it does not start with a list of events"
        raise InputError(path, found=problem, expected=EXPECTED)
    kineto = {"deviceProperties", "distributedInfo", "baseTimeNanoseconds", "trace_id"} & facts.metadata.keys()
    if not kineto and not any(role != categories.OTHER for role in facts.roles):
        problem = "it is another tool's trace: it has no events of the PyTorch profiler"
        raise InputError(path, found=problem if facts.events else "it has no event", expected=EXPECTED)
    return facts


def look_at_all(path: Path, head: Facts) -> Facts:
    """The facts from 32 MiB and the end, with metadata behind the events; of all, where the trace may be merged."""
    if head.whole:
        return head
    facts = look_at_head(path, _LONG_HEAD_BYTES)
    if not facts.whole:
        _look_at_tail(path, facts)
        if facts.merged:
            facts = look_at_head(path, None)
    facts.zero_ns, facts.first_ns = head.zero_ns, head.first_ns
    return facts


def _look_at_tail(path: Path, facts: Facts) -> None:
    data, whole = _tail(path)
    at = next_event(data, 0, len(data))
    if at < 0:  # no event in sight: metadata as long as that is read from the beginning
        with closing(Text(path)) as text:
            reader = Scanner(text)
            _take(facts, reader, first=False)
            facts.whole = reader.scan.whole and not text.cut
        return
    reader = Scanner(_Bytes(b'{"traceEvents":[' + data[at:]))
    _take(facts, reader, first=False)
    # what was a bare list from its beginning is one from here as well, less its bracket
    facts.whole = whole and (reader.scan.whole or reader.array_closed)


def _tail(path: Path) -> tuple[bytes, bool]:
    """The last bytes, and whether the stream got to its end."""
    with closing(Text(path)) as text:
        if not text.packed:
            with path.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
                return file.read(), True
        last, before = b"", b""
        while piece := text.read():
            before, last = last, piece
        return (before + last)[-_TAIL_BYTES:], not text.cut


def _take(facts: Facts, reader: Scanner, *, first: bool) -> None:
    scan: Scan = reader.scan
    known = Names(scan.texts)
    for block in reader.blocks():
        role = known.classes("role", categories.role_of, block["cat"], categories.OTHER)
        facts.events += len(role)
        facts.roles.update(role.tolist())
        kernels = role == categories.KERNEL
        correlated = kernels & (block["correlation"] != NOTHING)
        facts.correlated += int(np.count_nonzero(correlated))
        facts.external += int(np.count_nonzero(kernels & ~correlated & (block["external"] != NOTHING)))
        for roles_of, column, counter in (
            (categories.ON_HOST, "pid", facts.pids),
            (categories.ON_GPU, "device", facts.devices),
            (categories.ON_GPU, "pid", facts.gpu_pids),
        ):
            values = block[column][np.isin(role, roles_of)]
            counter.update(values[values != NOTHING].tolist())
        _note_labels(facts, block, known)
        stated = block["rank"][known.classes("all", lambda text: int(text in _ALL_RANKS), block["group"]) == 1]
        facts.group_ranks.update(stated[stated >= 0].tolist())
        times = block["ts"][(block["ts"] != NOTHING) & (role != categories.OTHER)]
        # events that lost their time have 0, or 0 less the base
        times = times[times > 0] if (times > 0).any() else times
        if len(times):
            most = len(times) * 99 // 100
            last_ns = int(np.partition(times, most)[most])
            facts.last_ns = last_ns if facts.last_ns is None else max(facts.last_ns, last_ns)
        if first and len(times):
            facts.zero_ns = int(times.min()) // _SECOND_NS * _SECOND_NS
            facts.first_ns = int(times[0])
            first = False
    facts.metadata.update(scan.metadata)


def is_of_capture(path: Path) -> bool:
    """Whether a trace is of the capture of CUDA graphs, which a rank replays in another trace."""
    return PurePath(path).parent.name == _CAPTURES


def _note_labels(facts: Facts, block: Block, known: Names) -> None:
    """Take the ranks that events name: in a text as process id, in the name of their process, or as an argument."""
    pids = block["pid"]
    with_label = (block["label"] != NOTHING) & (block["name"] != NOTHING)
    labelled = (block[f][with_label].tolist() for f in ("name", "pid", "label"))
    called = {
        pid: known.text(label) for name, pid, label in zip(*labelled, strict=True) if known.text(name) == "process_name"
    }
    for pid in np.unique(pids[(pids <= IDENTITIES) & (pids != NOTHING)]).tolist():
        text = known.text(IDENTITIES - pid)
        behind = _PROCESS_BEHIND.search(text)
        facts.own_pids[pid], facts.called[pid] = int(behind[1]) if behind else NOTHING, text
        called[pid] = text[: behind.start()] if behind and _RANKED.search(text[: behind.start()]) else text
    facts.labels |= {pid: label for pid, text in called.items() if (label := _rank_named(text))}
    merged = block["merged_pid"] != NOTHING
    if merged.any():
        for pid, own, rank in np.unique(np.stack([block[f][merged] for f in _MERGED]), axis=1).T.tolist():
            if rank >= 0:
                facts.labels[pid], facts.own_pids[pid] = f"{_RANK}{rank}", own


def _rank_named(text: str) -> str:
    """The rank that a text names, in words that are the same for all processes of it; empty if it names none."""
    return "-".join(m[0].upper() if m[1] is None else f"{_RANK}{int(m[1])}" for m in _RANKED.finditer(text))


def processes_of(path: Path, facts: Facts) -> list[Process]:
    """The processes of a trace: one, or one for each rank of a merged one. Raises `InputError`: one names no rank."""
    working = {*facts.launching, *facts.gpu_pids}
    if not facts.merged:
        pid = next((pid for pid, _ in facts.pids.most_common() if pid > IDENTITIES), 0)
        ordinal = min((d for d in facts.devices if d >= 0), default=None)
        return [Process("", pid, (), ordinal, any(facts.roles[r] for r in categories.ON_GPU))]
    if working <= facts.labels.keys():
        labels = {facts.labels[pid] for pid in working}
        return [
            _labelled(facts, label)
            for label in sorted(labels, key=lambda label: [int(n) for n in re.findall(r"\d+", label)])
        ]
    named = sorted(set(facts.labels.values())) or [
        f"process {facts.called.get(pid, pid)}" for pid in sorted(facts.launching, key=abs)
    ]
    shown = ", ".join(map(printable, named[:_LABELS_SHOWN])) + (", ..." if len(named) > _LABELS_SHOWN else "")
    raise InputError(
        path,
        found=f"it holds {len(named)} processes ({shown}), as a trace does that was merged from those of several ranks",
        expected="the trace of one process",
        advice="give the traces from before they were merged",
    )


def _labelled(facts: Facts, label: str) -> Process:
    """The process of a rank that a merged trace names."""
    pids = tuple(sorted(pid for pid, own in facts.labels.items() if own == label))
    own = {pid: facts.own_pids.get(pid, pid) for pid in pids}
    pid = max(pids, key=lambda pid: facts.pids[pid])
    ordinals = [own[p] for p in pids if facts.gpu_pids[p] and 0 <= own[p] < MOST_DEVICES]
    return Process(label, max(0, own[pid]), pids, min(ordinals, default=None), any(facts.gpu_pids[p] for p in pids))


def report_of(path: Path, facts: Facts) -> Report:
    """The identity of the trace. Raises `InputError`: it holds several processes, and some name no rank."""
    processes = processes_of(path, facts)
    base = facts.number("baseTimeNanoseconds")
    warnings = []
    if not facts.whole:
        warnings.append(
            ReportWarning("the trace is cut short: the complete part was read, the rest is missing", TABLES)
        )
    if base is None and 0 < facts.zero_ns < _EPOCH_NS:
        warnings.append(
            ReportWarning(
                "the trace has no baseTimeNanoseconds: its times are on the machine's own clock, not absolute"
            )
        )
    absolute = base is not None or facts.zero_ns >= _EPOCH_NS
    utc_ns = (base or 0) + facts.zero_ns
    if absolute and not 0 <= utc_ns < _LATEST_NS:
        absolute = False
        warnings.append(ReportWarning("the trace's start time is implausible: its times are not absolute"))
    one = processes[0] if len(processes) == 1 else None
    rank, source = facts.number("distributedInfo", "rank"), "distributedInfo"
    if rank is None and len(facts.group_ranks) == 1:
        rank, source = next(iter(facts.group_ranks)), "record_param_comms"
    stated, named = facts.metadata.get("host_name"), _HANDLER_NAME.match(PurePath(path).name)
    host = stated if isinstance(stated, str) and stated else None
    if one is None:
        host, source = None, "label"
    elif host is None and named and int(named["pid"]) == one.pid:
        host = named["host"]
    # if two are on one ordinal, they are on two hosts
    apart = len({p.ordinal for p in processes}) < len(processes)
    return Report(
        path=str(path),
        format="kineto",
        profiler="PyTorch profiler",
        schema_version=None if facts.number("schemaVersion") is None else str(facts.number("schemaVersion")),
        host=host,
        utc_ns=utc_ns if absolute else None,
        start_ns=None if facts.first_ns is None else facts.first_ns - facts.zero_ns,
        last_ns=None if facts.last_ns is None else facts.last_ns - facts.zero_ns,
        processes=tuple(
            ReportProcess(
                process=number,
                pid=process.pid,
                name=process.label,
                gpu=process.gpu,
                device_ordinal=process.ordinal,
                rank_hint=hint,
                rank_hint_source=source if hint is not None else None,
                host=f"host-{number}" if apart else None,
                source_id=None if one else number,
            )
            for number, process in enumerate(processes)
            for hint in [rank if one else process.rank]
        ),
        world_size=facts.number("distributedInfo", "world_size"),
        tables=OF_CAPTURE if is_of_capture(path) else TABLES,
        warnings=tuple(warnings),
        companion=is_of_capture(path),
    )
