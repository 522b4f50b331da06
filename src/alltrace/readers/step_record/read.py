"""Opens a record of steps as `ranges`: a range for each step, and within it one for each phase.

A record has the durations of a step's phases only, so they are drawn one after the other, in the order in which it
names them. The names of those in which a rank waits for others say so, because such time is no work.
"""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from alltrace.readers.base import HeldReader, Report, ReportProcess, ReportWarning
from alltrace.readers.spool import record_batch
from alltrace.trace.errors import InputError
from alltrace.trace.names import name_id
from alltrace.trace.schema import TABLES
from alltrace.trace.step_records import INCOMPLETE, Step, read_ranks

_TABLE = "ranges"
_SECOND_NS = 10**9
_MOST_NS = 1 << 62
_STEPS = 1 << 13
_EXPECTED = "a record of steps that `alltrace.instrument.step_report` wrote"
CPU_WAIT = "cpu wait"


class StepRecordReader(HeldReader):
    """A record of steps, opened; see `alltrace.readers.base.ReportReader`."""

    def __init__(self, path: Path) -> None:
        self._ranks = [rank for rank in read_ranks(path) if rank.steps]
        begins = [step.begin_ns for rank in self._ranks for step in rank.steps]
        if not begins or not 0 <= min(begins) <= max(begins) < _MOST_NS:
            raise InputError(
                path, found="it has no steps" if not begins else "its times are impossible", expected=_EXPECTED
            )
        self._zero_ns = min(begins) // _SECOND_NS * _SECOND_NS
        self._names: dict[int, str] = {}
        damaged = sum(rank.damaged for rank in self._ranks)
        lost = sum(step.flags & INCOMPLETE != 0 for rank in self._ranks for step in rank.steps)
        texts = (
            ("steps whose records are damaged, left out", damaged),
            ("gaps in which steps were not measured", lost),
        )
        self.report = Report(
            path=str(path),
            format="step-record",
            profiler="alltrace step_report",
            host=self._ranks[0].host or None,
            utc_ns=self._zero_ns,
            processes=tuple(
                ReportProcess(process=n, pid=0, rank_hint=rank.rank, rank_hint_source="the record")
                for n, rank in enumerate(self._ranks)
            ),
            world_size=max(rank.world for rank in self._ranks) or None,
            tables=(_TABLE,),
            warnings=tuple(ReportWarning(text, (_TABLE,), number) for text, number in texts if number),
        )

    def stream(self, tables: Collection[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows of `ranges`; see `ReportReader.stream`."""
        for number, rank in enumerate(self._ranks if _TABLE in tables else ()):
            names = tuple(f"{name} (waits)" if name in rank.waits else name for name in rank.phases)
            for first in range(0, len(rank.steps), _STEPS):
                steps = rank.steps[first : first + _STEPS]
                # two clocks say when a step begins and how long it takes, so it may end some us after the next one
                # begins
                limits = [step.begin_ns for step in rank.steps[first + 1 : first + _STEPS + 1]] + [_MOST_NS]
                rows = [
                    row for step, limit in zip(steps, limits, strict=False) for row in self._rows(step, limit, names)
                ]
                count = len(rows)
                columns: dict[str, Any] = {
                    "start": [start for start, _, _ in rows],
                    "end": [end for _, end, _ in rows],
                    "process": [number] * count,
                    "thread": [number] * count,
                    "name": [name for _, _, name in rows],
                    "kind": pa.array(["pushpop"] * count).dictionary_encode(),
                }
                yield _TABLE, record_batch(_TABLE, columns)

    def _rows(self, step: Step, limit_ns: int, phases: tuple[str, ...]) -> Iterator[tuple[int, int, int]]:
        start = step.begin_ns - self._zero_ns
        end = min(start + 1000 * step.total_us, limit_ns - self._zero_ns)
        yield start, end, self._name(f"step {step.step}")
        for name, us in zip((*phases, CPU_WAIT), (*step.phases_us[: len(phases)], step.cpu_wait_us), strict=True):
            if us:
                yield start, min(start + 1000 * us, end), self._name(name)
                start = min(start + 1000 * us, end)

    def _name(self, text: str) -> int:
        key = name_id(text)
        self._names[key] = text
        return key

    def dictionaries(self) -> dict[str, pa.Table]:
        """The dictionaries of what was streamed; see `ReportReader.dictionaries`."""
        numbers = range(len(self._ranks))
        rows: dict[str, list[dict[str, Any]]] = {
            "processes": [{"process": n, "pid": 0} for n in numbers],
            "threads": [{"thread": n, "process": n, "tid": 0} for n in numbers],
            "names": [{"id": key, "value": text} for key, text in self._names.items()],
        }
        return {name: pa.Table.from_pylist(its, schema=TABLES[name].arrow_schema()) for name, its in rows.items()}

    def rows_estimate(self, tables: Collection[str]) -> int:
        """How many rows `stream` will give."""
        return sum(len(rank.steps) * (len(rank.phases) + 1) for rank in self._ranks) if _TABLE in tables else 0


def open_report(path: Path) -> StepRecordReader:
    """Open a record of steps. Raises `InputError`: it cannot be read, or has no step."""
    try:
        return StepRecordReader(path)
    except OSError as error:
        raise InputError.cannot_be("read", path, error, expected=_EXPECTED) from error
