"""Whether a Paraver trace is well formed: its header, records, order, labels and rows."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from alltrace.readers.paraver import labels as ev
from alltrace.readers.paraver.identity import Header, parse_header
from alltrace.readers.paraver.parsing import Lines, read_lines
from alltrace.trace.arrays import Int64
from alltrace.trace.errors import InputError

_MOST_FAULTS = 20


@dataclass
class Report:
    faults: list[str] = field(default_factory=list)  # what is wrong, each one sentence; at most twenty are kept
    count: int = 0  # how many faults there are
    records: int = 0  # records read

    def add(self, fault: str, times: int = 1) -> None:
        self.count += times
        if len(self.faults) < _MOST_FAULTS:
            self.faults.append(fault)


def check(path: Path) -> Report:
    """Check a trace: `.prv` or `.prv.gz`, with the `.pcf` and `.row` next to it if they exist."""
    # The rules: a header with consistent numbers; whole numbers; objects that the header has, and CPUs of the thread's
    # node; states and communications that do not end before they start; times from 0 to the end in the header, in
    # order; each begin of an event type with `End` as value 0 has an end; every type has a label; values with labels
    # are below 2^31, their labels are not empty and differ; the `.row` has as many labels as the header has objects.
    report = Report()
    header_line, blocks = read_lines(path)
    try:
        header = parse_header(header_line)
    except ValueError as error:
        report.add(f"line 1: {error}")
        return report
    stem = path.with_name(path.name.removesuffix(".gz").removesuffix(".prv"))
    labelled, balanced = _check_pcf(stem.with_name(stem.name + ".pcf"), report)
    _check_row(stem.with_name(stem.name + ".row"), header, report)
    records = _Records(header, report, balanced)
    for lines in blocks:
        records.check(lines)
    records.finish(labelled)
    return report


def _check_pcf(path: Path, report: Report) -> tuple[set[int] | None, set[int]]:
    """The types with a label (None without a file), and those with value 0 as the end of an interval."""
    if not path.is_file():
        return None, set()
    events = ev.read_pcf(path)
    for event in events:
        name = ", ".join(map(str, event.types))
        if any(not label for label in (*event.types.values(), *event.values.values())):
            report.add(f"{path.name}: type {name} has an empty label")
        if any(abs(v) > ev.LARGEST_LABELLED for v in event.values):
            report.add(f"{path.name}: type {name} labels a value above 2^31 - 1, which Paraver drops")
        if len(set(event.values.values())) < len(event.values):
            report.add(f"{path.name}: type {name} has one label for two values")
    return {t for e in events for t in e.types}, {t for e in events if e.values.get(0) == ev.END for t in e.types}


def _check_row(path: Path, header: Header, report: Report) -> None:
    if not path.is_file():
        return
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError as error:
        raise InputError.cannot_be("read", path, error, expected="a .row file") from error
    sizes = header.sizes()
    at = 0
    while at < len(lines):
        match = re.fullmatch(r"LEVEL ([A-Z]+) SIZE ([0-9]{1,18})\s*", lines[at])
        at += 1
        if match is None:
            if lines[at - 1].strip() and not lines[at - 1].startswith("#"):
                report.add(f"{path.name}: line {at} is not a level and does not belong to one")
            continue
        level, size = match[1], int(match[2])
        if sizes.get(level) != size:
            report.add(f"{path.name}: level {level} has {size} labels, the header {sizes.get(level, 'no such level')}")
        if any(not label.strip() for label in lines[at : at + size]) or at + size > len(lines):
            report.add(f"{path.name}: level {level} has an empty label, or too few")
        at += size


class _Records:
    def __init__(self, header: Header, report: Report, balanced: set[int]) -> None:
        self._report = report
        self._end = header.end
        self._appls = len(header.tasks)
        self._first = np.cumsum([0, *(len(a) for a in header.tasks)])
        flat = [t for a in header.tasks for t in a]
        self._threads = np.array([n for n, _ in flat], np.int64)
        self._nodes = np.array([n for _, n in flat], np.int64)
        self._cpu_ends = np.cumsum([0, *header.cpus])
        self._balanced = np.array(sorted(balanced), np.int64)
        self._last = -1
        self._types: set[int] = set()
        self._open: dict[tuple[int, int], int] = {}

    def check(self, lines: Lines) -> None:
        self._fault(lines, np.flatnonzero(lines.wrong), "is not made of whole numbers")
        sizes = np.diff(lines.offsets)
        fine = (sizes > 0) & ~lines.wrong
        self._report.records += int(np.count_nonzero(sizes))
        kinds = np.zeros(len(sizes), np.int64)
        kinds[fine] = lines.values[lines.offsets[:-1][fine]]
        self._fault(lines, np.flatnonzero(fine & ((kinds < 1) | (kinds > 4))), "is not a state, event or communication")
        rows = {1: fine & (kinds == 1), 2: fine & (kinds == 2), 3: fine & (kinds == 3)}
        right = {1: sizes == 8, 2: (sizes >= 8) & (sizes % 2 == 0), 3: sizes == 15}
        for kind, mine in rows.items():
            self._fault(lines, np.flatnonzero(mine & ~right[kind]), "has too few or too many numbers")
            rows[kind] = np.flatnonzero(mine & right[kind])
        times = np.full(len(sizes), -1, np.int64)
        for kind, mine in rows.items():
            self._objects(lines, mine, 1)
            times[mine] = self._get(lines, mine, 5)
            if kind == 3:
                self._objects(lines, mine, 7)
        self._states(lines, rows[1])
        self._communications(lines, rows[3])
        self._order(lines, times, np.sort(np.concatenate(list(rows.values()))))
        self._events(lines, rows[2], sizes)

    @staticmethod
    def _get(lines: Lines, rows: Int64, field_: int) -> Any:
        return lines.values[lines.offsets[rows] + field_]

    def _fault(self, lines: Lines, rows: Int64, what: str) -> None:
        if len(rows):
            more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
            self._report.add(f"line {lines.first + int(rows[0])}{more}: {what}", len(rows))

    def _objects(self, lines: Lines, rows: Int64, at: int) -> None:
        cpu, appl, task, thread = (self._get(lines, rows, at + n) for n in range(4))
        valid = (appl >= 1) & (appl <= self._appls)
        appl = np.where(valid, appl, 1)
        row = self._first[appl - 1] + task - 1
        valid &= (task >= 1) & (row < self._first[appl])
        row = np.where(valid, row, 0)
        valid &= (thread >= 1) & (thread <= self._threads[row])
        self._fault(lines, rows[~valid], "is of a thread that is not in the header")
        node = np.searchsorted(self._cpu_ends, cpu, side="left")
        on = (cpu == 0) | ((cpu > 0) & (cpu <= self._cpu_ends[-1]) & (node == self._nodes[row]))
        self._fault(lines, rows[valid & ~on], "is on a CPU of another node than its thread")

    def _states(self, lines: Lines, rows: Int64) -> None:
        begin, end = (self._get(lines, rows, n) for n in (5, 6))
        self._fault(lines, rows[(end < begin) & (end != -1)], "is a state that ends before it begins")
        self._fault(lines, rows[end > self._end], "is a state that ends after the trace")

    def _communications(self, lines: Lines, rows: Int64) -> None:
        sent, gone, received, arrived = (self._get(lines, rows, n) for n in (5, 6, 11, 12))
        self._fault(lines, rows[(gone < sent) | (arrived > received)], "moves data outside of its send and receive")
        self._fault(lines, rows[(received < 0) | (arrived < 0)], "is received before time 0")
        self._fault(lines, rows[received > self._end], "is received after the trace")

    def _order(self, lines: Lines, times: Int64, rows: Int64) -> None:
        own = times[rows]
        self._fault(lines, rows[own < 0], "is before time 0")
        self._fault(lines, rows[own > self._end], "is after the end given in the header")
        if len(own):
            before = np.append(self._last, own[:-1])
            self._fault(lines, rows[own < before], "is not in time order")
            self._last = max(self._last, int(own[-1]))

    def _events(self, lines: Lines, rows: Int64, sizes: Int64) -> None:
        pairs = (sizes[rows] - 6) // 2
        owner = np.repeat(rows, pairs)
        nth = np.arange(len(owner)) - np.repeat(np.cumsum(pairs) - pairs, pairs)
        at = lines.offsets[owner] + 6 + 2 * nth
        types, values = lines.values[at], lines.values[at + 1]
        self._fault(lines, owner[(types < 0) | (types >= 1 << 32)], "has an event type that is not a 32-bit number")
        self._types.update(np.unique(types).tolist())
        mine = np.isin(types, self._balanced)
        if not mine.any():
            return
        # threads the header lacks are a fault already; here a number for each suffices
        threads = (
            self._get(lines, owner[mine], 2) << 40
            | self._get(lines, owner[mine], 3) << 20
            | self._get(lines, owner[mine], 4)
        )
        keys, which = np.unique(np.stack((threads, types[mine])), axis=1, return_inverse=True)
        sums = np.bincount(which.reshape(-1), weights=np.where(values[mine] != 0, 1.0, -1.0), minlength=keys.shape[1])
        for (thread, kind), change in zip(keys.T.tolist(), sums.astype(np.int64).tolist(), strict=True):
            self._open[thread, kind] = self._open.get((thread, kind), 0) + change

    def finish(self, labelled: set[int] | None) -> None:
        for (thread, kind), left in sorted(self._open.items()):
            if left:
                where = f"{thread >> 40}.{(thread >> 20) & 0xFFFFF}.{thread & 0xFFFFF}"
                self._report.add(
                    f"thread {where}, type {kind}: {abs(left)} {'begins' if left > 0 else 'ends'} too many"
                )
        for kind in sorted(self._types - labelled) if labelled is not None else ():
            self._report.add(f"type {kind} has no label")
