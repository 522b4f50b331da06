"""Opens a verbose file of NCCL Inspector as the table `collectives`: questions about collectives need no profiler then.

An operation ends with its last channel by the host's clock, and begins as long before as the GPU took for it. The rank
is that in the largest communicator of the process, which is the job's if the program makes one of all ranks.
"""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from alltrace.readers.base import HeldReader, Report, ReportProcess, ReportWarning
from alltrace.readers.nccl_inspector.records import EXPECTED, read_inspector
from alltrace.readers.spool import NameIds, dictionary_tables, record_batch
from alltrace.trace.errors import InputError

_TABLE = "collectives"
_SECOND_NS = 10**9
_ROWS = 1 << 16


class InspectorReader(HeldReader):
    """A file of NCCL Inspector, opened; see `alltrace.readers.base.ReportReader`."""

    def __init__(self, path: Path) -> None:
        file = read_inspector(str(path))
        self._timed = [o for o in file.operations if o.end_ns is not None]
        if not self._timed:
            raise InputError(
                path,
                found="its operations have no times",
                expected="a file written with NCCL_INSPECTOR_DUMP_VERBOSE=1",
                advice="run `alltrace logs inspector`, which does not need them",
            )
        self._communicators = file.communicators
        starts = [int(o.end_ns or 0) - round(1000 * o.duration_us) for o in self._timed]
        self._zero_ns = min(starts) // _SECOND_NS * _SECOND_NS
        self._names = NameIds()
        world = max(file.communicators.values(), key=lambda c: c.size)
        process = ReportProcess(
            process=0,
            pid=file.pid,
            gpu=True,
            rank_hint=world.rank,
            rank_hint_source="the largest communicator",
            host=None,
        )
        lost = sum(map(sum, file.dropped.values()))
        untimed = len(file.operations) - len(self._timed)
        counts = (
            ("records that NCCL Inspector's buffers lost", lost),
            ("operations without times, left out", untimed),
            ("lines that are not records, left out", file.unread),
            ("records of other processes than the first of the file, left out", file.mixed),
        )
        warnings = [ReportWarning(text, (_TABLE,), number) for text, number in counts if number]
        if file.damage:
            warnings.append(ReportWarning(file.damage, (_TABLE,)))
        self.report = Report(
            path=str(path),
            format="nccl-inspector",
            profiler="NCCL Inspector",
            schema_version=file.version or None,
            host=file.host or None,
            utc_ns=self._zero_ns,
            processes=(process,),
            world_size=world.size or None,
            tables=(_TABLE,),
            warnings=tuple(warnings),
        )

    def stream(self, tables: Collection[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows of `collectives`; see `ReportReader.stream`."""
        for first in range(0, len(self._timed), _ROWS) if _TABLE in tables else ():
            its = self._timed[first : first + _ROWS]
            end = [int(o.end_ns or 0) - self._zero_ns for o in its]
            columns: dict[str, Any] = {
                "start": [e - round(1000 * o.duration_us) for e, o in zip(end, its, strict=True)],
                "end": end,
                "process": [0] * len(its),
                "device": [0] * len(its),
                "communicator": [self._names.add(o.communicator) for o in its],
                "op": [self._names.add(o.op) for o in its],
                # a message's number counts those of its rank alone
                "sequence": [o.sequence if o.peer is None else None for o in its],
                "bytes": [o.bytes for o in its],
                "peer": [o.peer for o in its],
                "group_rank": [o.rank for o in its],
                "group_size": [self._communicators[o.communicator].size or None for o in its],
                "evidence": pa.array(["trace"] * len(its)).dictionary_encode(),
            }
            yield _TABLE, record_batch(_TABLE, columns)

    def dictionaries(self) -> dict[str, pa.Table]:
        """The dictionaries of what was streamed; see `ReportReader.dictionaries`."""
        process = self.report.processes[0]
        return dictionary_tables(
            {"processes": [{"process": 0, "pid": process.pid}], "devices": [{"device": 0}]}, self._names
        )

    def rows_estimate(self, tables: Collection[str]) -> int:
        """How many rows `stream` will give."""
        return len(self._timed) if _TABLE in tables else 0


def open_report(path: Path) -> InspectorReader:
    """Open a verbose file of NCCL Inspector. Raises `InputError`: it is none, unreadable, or without times."""
    try:
        return InspectorReader(path)
    except OSError as error:
        raise InputError.cannot_be("read", path, error, expected=EXPECTED) from error
