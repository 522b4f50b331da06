"""Reads one GPU log: which GPUs it is about, and the samples of each by time.

The format is detected by the first line that is not empty:

* CSV of `nvidia-smi --query-gpu=... --format=csv`, also with `nounits`; with `noheader` if it has the columns of
  `QUERY`;
* `dcgmi dmon -e ...`, with lines that begin with their time, as `ts` writes it: dcgmi itself prints none;
* the metrics that DCGM's exporter serves, with lines that end with their time.
"""

import re
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Protocol

import numpy as np

from alltrace.readers.gpu_log.sample import VALUES, Gpu, Sample, gpu_of, since_1970, stamp_of, value_of
from alltrace.readers.text import TextLog
from alltrace.trace.arrays import Floats, Int64
from alltrace.trace.errors import InputError
from alltrace.trace.gpu_log_words import COMMAND, QUERY

# Output of DCGM: `dcgmi dmon -e ...`, and the metrics that its exporter serves.

_SHORT = {
    "SMCLK": "sm_clock_mhz", "MMCLK": "memory_clock_mhz", "POWER": "power_w", "TMPTR": "temperature_c",
    "GPUTMP": "temperature_c", "DVCCTR": "event_reasons", "CLEVT": "event_reasons",
}  # fmt: skip
"""The short names of fields 100, 101, 155, 150 and 112 in the header of `dcgmi dmon` (dcgmlib/src/dcgm_fields.cpp)."""

_FIELDS = {
    "DCGM_FI_DEV_SM_CLOCK": "sm_clock_mhz",
    "DCGM_FI_DEV_MEM_CLOCK": "memory_clock_mhz",
    "DCGM_FI_DEV_POWER_USAGE": "power_w",
    "DCGM_FI_DEV_POWER_USAGE_INSTANT": "power_w",
    "DCGM_FI_DEV_GPU_TEMP": "temperature_c",
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": "event_reasons",
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": "event_reasons",
}
DMON_ADVICE = "dcgmi does not print times; record with `dcgmi dmon -d 100 -e 100,101,155,150,112 | ts %.s`"
EXPORTER_ADVICE = "the exporter does not send times; append them, in ms, to each line, as Prometheus writes them"

_HEADER = re.compile(r"(?:\S+ +){0,2}?# ?Entity +(?P<columns>.*)")
_ROW = re.compile(r"(?:(?P<time>\S+(?: \S+)?) +)?GPU +(?P<index>[0-9]{1,4}) +(?P<cells>.*)")
_METRIC = re.compile(r"(?P<field>DCGM_FI_\w+)\{(?P<labels>.*)\} +(?P<value>\S+)(?: +(?P<ms>[0-9]{12,14}))?", re.ASCII)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class DmonLines:
    """Samples of the lines of `dcgmi dmon`."""

    format = "dcgmi dmon"

    def __init__(self) -> None:
        self._columns: list[str] = []

    @staticmethod
    def begins(line: str) -> bool:
        """Whether a log begins so: with the header."""
        return _HEADER.fullmatch(line) is not None

    def missing(self) -> str | None:
        """What the columns lack to be of any use, in words; None if they suffice."""
        return None if any(c in _SHORT for c in self._columns) else "no clock, power, temperature or event reasons"

    def sample(self, line: str) -> Sample | None:
        """The sample of a line; None for a header, which repeats. Raises `ValueError`: no time, or no sample."""
        header = _HEADER.fullmatch(line)
        if header:
            self._columns = header["columns"].split()
            return None
        if line.split()[-1] == "ID":
            return None
        row = _ROW.fullmatch(line)
        if row is None:
            raise ValueError("it is not a sample of a GPU")
        if row["time"] is None:
            raise ValueError(DMON_ADVICE)
        time, local = stamp_of(row["time"])
        cells = row["cells"].split()
        if len(cells) != len(self._columns):
            raise ValueError(f"it has {len(cells)} columns, not {len(self._columns)}")
        values: dict[str, float] = {}
        for column, cell in zip(self._columns, cells, strict=True):
            name = _SHORT.get(column)
            value = value_of(name, cell) if name else None
            if name and value is not None:
                values[name] = value
        return Sample(Gpu(number=int(row["index"])), time, local, values)


class ExporterLines:
    """Samples of the lines of DCGM's exporter, each with one value."""

    format = "DCGM exporter"

    @staticmethod
    def begins(line: str) -> bool:
        """Whether a log begins so: with a metric of DCGM, or a comment on one."""
        return line.startswith(("# HELP DCGM_FI_", "# TYPE DCGM_FI_", "DCGM_FI_"))

    def missing(self) -> str | None:
        """Nothing: metrics that are of no use are passed over."""
        return None

    def sample(self, line: str) -> Sample | None:
        """The sample of a line; None for a comment or another metric. Raises `ValueError`: no time, or no metric."""
        if line.startswith("#"):
            return None
        match = _METRIC.fullmatch(line)
        if match is None:
            raise ValueError("it is not a metric of DCGM")
        name = _FIELDS.get(match["field"])
        if name is None:
            return None
        if match["ms"] is None:
            raise ValueError(EXPORTER_ADVICE)
        labels = dict(_LABEL.findall(match["labels"]))
        text = match["value"]
        if name == "event_reasons" and text.endswith(".0"):
            text = text[:-2]
        value = value_of(name, text)
        gpu = Gpu(host=labels.get("Hostname"))
        for label in ("UUID", "pci_bus_id", "gpu"):
            if labels.get(label):
                gpu = gpu_of(labels[label], gpu)
        return Sample(gpu, since_1970(int(match["ms"]) * 1_000_000), False, {} if value is None else {name: value})


# CSV of `nvidia-smi --query-gpu=...`; column names as `nvidia-smi --help-query-gpu` has them, and as its header spells
# them.

_TIME = "timestamp"
_IDENTITIES = ("uuid", "gpu_uuid", "index", "pci.bus_id", "gpu_bus_id")
_VALUES = {
    "clocks.sm": "sm_clock_mhz", "clocks.current.sm": "sm_clock_mhz", "clocks.mem": "memory_clock_mhz",
    "clocks.current.memory": "memory_clock_mhz", "power.draw": "power_w", "power.draw.instant": "power_w",
    "power.draw.average": "power_w", "temperature.gpu": "temperature_c", "clocks_event_reasons.active": "event_reasons",
    "clocks_throttle_reasons.active": "event_reasons",
}  # fmt: skip


class CsvLines:
    """Samples of the lines of a CSV."""

    format = "nvidia-smi"

    def __init__(self) -> None:
        self._columns = QUERY.split(",")

    @staticmethod
    def begins(line: str) -> bool:
        """Whether a log begins so: with a header, or with a sample that has the columns of `QUERY`."""
        if _TIME in line and _TIME in _header(line):
            return True
        try:
            return CsvLines().sample(line) is not None
        except ValueError:
            return False

    def missing(self) -> str | None:
        """What the columns lack to be of any use, in words; None if they suffice."""
        if not any(c in _IDENTITIES for c in self._columns):
            return "no uuid, index or pci.bus_id"
        return None if any(c in _VALUES for c in self._columns) else "no clock, power, temperature or event reasons"

    def sample(self, line: str) -> Sample | None:
        """The sample of a line; None for a header. Raises `ValueError`: other columns than it has, or no values."""
        if _TIME in line and _TIME in (header := _header(line)):
            self._columns = header
            return None
        cells = [c.strip() for c in line.split(",")]
        if len(cells) != len(self._columns):
            raise ValueError(f"it has {len(cells)} columns, not {len(self._columns)}")
        gpu, time, local = Gpu(), 0, False
        values: dict[str, float] = {}
        for column, cell in zip(self._columns, cells, strict=True):
            if column == _TIME:
                time, local = stamp_of(cell)
            elif column in _IDENTITIES:
                gpu = gpu_of(cell, gpu)
            elif (name := _VALUES.get(column)) is not None and name not in values:
                value = value_of(name, cell)
                if value is not None:
                    values[name] = value
        return Sample(gpu, time, local, values)


def _header(line: str) -> list[str]:
    """The columns that a header names, without their units."""
    return [c.partition("[")[0].strip().lower() for c in line.split(",")]


_MOST_BAD = 0.5  # a file with more lines than these that are not understood is not a log


class _Lines(Protocol):
    """Makes samples of a format's lines."""

    format: str

    def missing(self) -> str | None: ...

    def sample(self, line: str) -> Sample | None: ...


@dataclass(frozen=True)
class GpuLog:
    """A GPU log."""

    path: str  # the file
    format: str  # the program that wrote it
    gpus: list[Gpu]  # its GPUs
    gpu: Int64  # for each of n samples, which are by GPU and time, its row of `gpus`
    time_ns: Int64  # when each was taken, ns since 1970; of local times, as if they were UTC
    local: bool  # whether some of them are local times without their zone
    values: dict[str, Floats]  # for each name of `VALUES` a float64 array of n, NaN if the sample has none
    bad_lines: int  # lines that are not understood
    first_bad: str  # the first of them in words, with its number; empty without any
    damage: str | None  # what is wrong with the end of a compressed file, or None


def read_gpu_log(path: str, advance: Callable[[int], None] = lambda _n: None) -> GpuLog:
    """Read a GPU log. Raises `InputError`: the file cannot be read, or is not a GPU log."""
    reading: _Reading | None = None
    number = 0
    with TextLog(Path(path)) as text:
        for block, whole in text.blocks():
            # a line without an end may lack the last digits of a number
            for raw in block.splitlines() if whole else []:
                number += 1
                line = raw.decode("utf-8", "replace").removeprefix("\ufeff").strip()
                if line:
                    reading = reading or _Reading(path, line)
                    reading.line(line, number)
            advance(len(block))
        if reading is None:
            raise _no_log(path, text.damage or "it is empty")
        return reading.close(text.damage)


def _no_log(path: str, problem: str) -> InputError:
    return InputError(path, found=problem, expected="a GPU log", advice=f"record one with `{COMMAND}`")


class _Reading:
    def __init__(self, path: str, first: str) -> None:
        kinds = (ExporterLines, DmonLines, CsvLines)
        kind = next((k for k in kinds if k.begins(first)), None)
        if kind is None:
            raise _no_log(path, "its first line is not from nvidia-smi's CSV, `dcgmi dmon` or DCGM's exporter")
        self._path = path
        self._lines: _Lines = kind()
        self._rows: dict[Gpu, int] = {}
        self._gpu, self._time = array("q"), array("q")
        self._values = {name: array("d") for name in VALUES}
        self._local = False
        self._bad, self._first_bad = 0, ""

    def line(self, line: str, number: int) -> None:
        try:
            sample = self._lines.sample(line)
        except ValueError as error:
            self._bad += 1
            self._first_bad = self._first_bad or f"line {number}: {error}"
            return
        if sample is None:
            return
        self._gpu.append(self._rows.setdefault(sample.gpu, len(self._rows)))
        self._time.append(sample.time_ns)
        self._local = self._local or sample.local
        for name, values in self._values.items():
            values.append(sample.values.get(name, nan))

    def close(self, damage: str | None) -> GpuLog:
        missing = self._lines.missing()
        if missing:
            raise _no_log(self._path, f"its columns have {missing}")
        if self._bad > _MOST_BAD * (self._bad + len(self._gpu)):
            raise _no_log(self._path, f"most of its lines are not samples ({self._first_bad})")
        if not self._gpu:
            raise _no_log(self._path, "it has no sample")
        gpu, time = np.array(self._gpu, np.int64), np.array(self._time, np.int64)
        order = np.lexsort((time, gpu))
        gpu, time = gpu[order], time[order]
        first = np.flatnonzero(np.concatenate(([True], (np.diff(gpu) != 0) | (np.diff(time) != 0))))
        # the exporter has one line for each value of a moment
        values = {name: np.fmax.reduceat(np.array(v, np.float64)[order], first) for name, v in self._values.items()}
        columns = gpu[first], time[first], self._local, values
        return GpuLog(self._path, self._lines.format, list(self._rows), *columns, self._bad, self._first_bad, damage)
