"""Who a trace is about: rank, host, process, time and devices, from its head and its tail."""

from __future__ import annotations

import os
import re
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from alltrace.core.kineto import NOTHING, next_event
from alltrace.readers.base import Report, ReportProcess, ReportWarning
from alltrace.readers.kineto import categories
from alltrace.readers.kineto.events import Scan, Scanner, decoded
from alltrace.readers.kineto.text import PIECE, Text
from alltrace.trace.errors import InputError, printable

EXPECTED = "a PyTorch profiler trace (Kineto)"
TABLES = ("kernels", "copies", "api", "syncs", "ranges", "frames", "collectives", "allocations", "kernel_counters", "overheads")
"""The canonical tables that a trace can fill."""

OF_CAPTURE = ("api", "ranges", "frames")
"""What is read of a trace of the capture of CUDA graphs: which call launched what; its own work does not belong to the run."""

_CAPTURES = "capture_traces"
"""The folder where inference servers put traces of captures, next to those of the run."""
_HEAD_BYTES = 2 << 20
_LONG_HEAD_BYTES = 32 << 20
_TAIL_BYTES = 1 << 20
_ALL_RANKS = (b"0", b"default_pg")  # names of the group that the program starts with
_SECOND_NS = 10**9
_DAY_NS = 86_400 * 10**9
_EPOCH_NS = 10**18  # times above it, which is 2001, count from 1970
_LATEST_NS = 1 << 62  # the year 2116; later values are not times, and the difference of two of them would not fit 64 bits
_FEWEST_OF_A_PROCESS = 10
_LABELS_SHOWN = 4
_LABEL = re.compile(rb'"pid"\s*:\s*"([^"\\]{1,200})"|"process_name"[^{}]{0,200}"args"\s*:\s*\{\s*"name"\s*:\s*"([^"\\]{1,200})"')
_PROCESS_BEHIND = re.compile(r"[-_ ]*\d+$")
_RANKED = re.compile(r"(?:\brank[-_ ]?\d+|\b(?:TP|DP|PP|EP)-?\d+)", re.IGNORECASE)
"""What a merged trace puts before the ids of processes, or calls processes: `[TP00-DP00-PP00-EP00] 1000`, `rank 3 (node1)`."""
_HANDLER_NAME = re.compile(r"^(?P<host>.+)_(?P<pid>\d+)\.(?:\d+\.)?pt\.trace\.json", re.IGNORECASE)


@dataclass
class Facts:
    """The content of the parts of a trace that were read.

    Attributes:
        metadata: The members of its top level.
        pids: Process ids of events on the host, by how often.
        devices: Ordinals of events on a GPU, by how often.
        roles: Roles of events, by how often.
        group_ranks: Ranks in the group of all ranks that communication calls state, by how often.
        zero_ns: What the trace's clock shows at time 0 of the report: a whole second, not after the first event read.
        whole: Whether the trace ends as it should.
        events: Events read.
        correlated: Kernels with a correlation.
        external: Kernels without one, but with the id of the call that launched them.
        labels: What events call their processes, of those that name a rank.
    """

    metadata: dict[str, Any] = field(default_factory=dict)
    pids: Counter[int] = field(default_factory=Counter)
    devices: Counter[int] = field(default_factory=Counter)
    roles: Counter[int] = field(default_factory=Counter)
    group_ranks: Counter[int] = field(default_factory=Counter)
    zero_ns: int = 0
    whole: bool = False
    events: int = 0
    correlated: int = 0
    external: int = 0
    labels: set[str] = field(default_factory=set)

    @property
    def first_time_ns(self) -> int | None:
        """The trace's time before which no event can be: a day after 1970 began, if its times count from there; None if not."""
        base = self.number("baseTimeNanoseconds") or 0
        return _DAY_NS - base if base + self.zero_ns >= _EPOCH_NS else None

    @property
    def by_external(self) -> bool:
        """Whether `External id` is what joins kernels with their launches, as in traces of PyTorch for ROCm."""
        return self.external > 0 and not self.correlated

    def number(self, *names: str) -> int | None:
        """The whole number in the metadata under the names, one inside the other; None if there is none."""
        found: Any = self.metadata
        for name in names:
            found = found.get(name) if isinstance(found, dict) else None
        if isinstance(found, str) and found.isascii() and found.isdigit() and len(found) < 20:
            return int(found)
        return found if isinstance(found, int) and not isinstance(found, bool) else None


class _Bytes(Text):
    """Bytes in memory, read like a file."""

    def __init__(self, data: bytes) -> None:
        self.cut = False
        self._data = data

    def read(self, count: int = PIECE) -> bytes:
        part, self._data = self._data[:count], self._data[count:]
        return part

    def close(self) -> None:
        self._data = b""


def look_at_head(path: Path, most: int = _HEAD_BYTES) -> Facts:
    """The facts from the first `most` bytes.

    Raises:
        InputError: It is empty, not such a trace, or a trace of another tool.
    """
    facts = Facts()
    with closing(Text(path)) as text:
        reader = Scanner(text, most)
        _take(facts, reader, first=True)
        done = reader.scan.whole and not text.cut
    facts.whole = done
    with closing(Text(path)) as text:
        facts.labels |= _labels(text.read(most))
    if not reader.scan.found and not reader.scan.metadata and not facts.events:
        found = "it is empty" if path.stat().st_size == 0 else "it does not start with a list of events"
        raise InputError(path, found=found, expected=EXPECTED)
    kineto = {"deviceProperties", "distributedInfo", "baseTimeNanoseconds", "trace_id"} & facts.metadata.keys()
    if not kineto and not any(role != categories.OTHER for role in facts.roles):
        found = "it is another tool's trace: it has no events of the PyTorch profiler"
        raise InputError(path, found=found if facts.events else "it has no event", expected=EXPECTED)
    return facts


def look_at_all(path: Path, head: Facts) -> Facts:
    """The facts from 32 MiB and the end: also metadata written after the events, and whether the trace is complete and valid."""
    if head.whole:
        return head
    facts = look_at_head(path, _LONG_HEAD_BYTES)
    facts.zero_ns = head.zero_ns
    if not facts.whole:
        _look_at_tail(path, facts)
    return facts


def _look_at_tail(path: Path, facts: Facts) -> None:
    data, whole = _tail(path)
    facts.labels |= _labels(data)
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
    for block in reader.blocks():
        roles = np.array([categories.role_of(decoded(t)) for t in scan.texts] + [categories.OTHER])
        codes = block["cat"]
        role = roles[np.where(codes == NOTHING, len(scan.texts), codes)]
        facts.events += len(role)
        facts.roles.update(role.tolist())
        kernels = role == categories.KERNEL
        correlated = kernels & (block["correlation"] != NOTHING)
        facts.correlated += int(np.count_nonzero(correlated))
        facts.external += int(np.count_nonzero(kernels & ~correlated & (block["external"] != NOTHING)))
        for roles_of, column, counter in (
            (categories.ON_HOST, "pid", facts.pids),
            (categories.ON_GPU, "device", facts.devices),
        ):
            values = block[column][np.isin(role, roles_of)]
            counter.update(values[values != NOTHING].tolist())
        stated = block["rank"][np.isin(block["group"], [n for n, t in enumerate(scan.texts) if t in _ALL_RANKS])]
        facts.group_ranks.update(stated[stated >= 0].tolist())
        times = block["ts"][(block["ts"] != NOTHING) & (role != categories.OTHER)]
        if first and len(times):
            times = times[times > 0] if (times > 0).any() else times  # events that lost their time have 0, or 0 less the base
            facts.zero_ns = int(times.min()) // _SECOND_NS * _SECOND_NS
            first = False
    facts.metadata.update(scan.metadata)


def is_of_capture(path: Path) -> bool:
    """Whether a trace is of the capture of CUDA graphs, which a rank replays in another trace."""
    return PurePath(path).parent.name == _CAPTURES


def _check_one_process(path: Path, facts: Facts) -> None:
    """Refuse a trace that tools have merged from those of several ranks."""
    launching = [pid for pid, count in facts.pids.items() if pid > 0 and count >= _FEWEST_OF_A_PROCESS]
    if len(facts.labels) < 2 and len(launching) < 2:
        return
    named = sorted(facts.labels) if len(facts.labels) > 1 else [f"process {pid}" for pid in sorted(launching)]
    shown = ", ".join(map(printable, named[:_LABELS_SHOWN])) + (", ..." if len(named) > _LABELS_SHOWN else "")
    raise InputError(
        path,
        found=f"it holds {len(named)} processes ({shown}), as a trace does that was merged from those of several ranks",
        expected="the trace of one process",
        advice="give the traces from before they were merged; for a trace that alltrace exported, its run",
    )


def _labels(text: bytes) -> set[str]:
    """What process ids, or the names of processes, say of ranks."""
    labels = {m[1] or m[2] for m in _LABEL.finditer(text)}
    return {
        label
        for raw in labels
        if (label := _PROCESS_BEHIND.sub("", raw.decode("utf-8", "replace")).strip()) and _RANKED.search(label)
    }


def report_of(path: Path, facts: Facts) -> Report:
    """The identity of the trace.

    Raises:
        InputError: It holds several processes.
    """
    _check_one_process(path, facts)
    base = facts.number("baseTimeNanoseconds")
    warnings = []
    if not facts.whole:
        warnings.append(ReportWarning("the trace is cut short: the complete part was read, the rest is missing", TABLES))
    if base is None and 0 < facts.zero_ns < _EPOCH_NS:
        warnings.append(
            ReportWarning("the trace has no baseTimeNanoseconds: its times are on the machine's own clock, not absolute")
        )
    absolute = base is not None or facts.zero_ns >= _EPOCH_NS
    utc_ns = (base or 0) + facts.zero_ns
    if absolute and not 0 <= utc_ns < _LATEST_NS:
        absolute = False
        warnings.append(ReportWarning("the trace's start time is implausible: its times are not absolute"))
    pid = facts.pids.most_common(1)[0][0] if facts.pids else 0
    rank, source = facts.number("distributedInfo", "rank"), "distributedInfo"
    if rank is None and len(facts.group_ranks) == 1:
        rank, source = next(iter(facts.group_ranks)), "record_param_comms"
    named = _HANDLER_NAME.match(PurePath(path).name)
    stated = facts.metadata.get("host_name")
    host = stated if isinstance(stated, str) and stated else named["host"] if named and int(named["pid"]) == pid else None
    process = ReportProcess(
        process=0,
        pid=pid,
        rank_hint=rank,
        rank_hint_source=source if rank is not None else None,
        gpu=any(facts.roles[r] for r in categories.ON_GPU),
        device_ordinal=min((d for d in facts.devices if d >= 0), default=None),
    )
    return Report(
        path=str(path),
        format="kineto",
        profiler="PyTorch profiler",
        schema_version=None if facts.number("schemaVersion") is None else str(facts.number("schemaVersion")),
        host=host,
        utc_ns=utc_ns if absolute else None,
        processes=(process,),
        world_size=facts.number("distributedInfo", "world_size"),
        tables=OF_CAPTURE if is_of_capture(path) else TABLES,
        warnings=tuple(warnings),
        companion=is_of_capture(path),
    )
