"""Reads one GPU log: which GPUs it is about, and the samples of each by time.

The format is detected by the first line that is not empty:

* CSV of `nvidia-smi --query-gpu=... --format=csv`, also with `nounits`; with `noheader` if it has the columns of `QUERY`;
* `dcgmi dmon -e ...`, with lines that begin with their time, as `ts` writes it: dcgmi itself prints none;
* the metrics that DCGM's exporter serves, with lines that end with their time.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from alltrace.readers.gpu_log.dcgm import DmonLines, ExporterLines
from alltrace.readers.gpu_log.nvidia_smi import CsvLines
from alltrace.readers.gpu_log.sample import VALUES, Gpu, Sample
from alltrace.readers.text import TextLog
from alltrace.trace.arrays import Int64
from alltrace.trace.errors import InputError
from alltrace.trace.gpu_log_words import COMMAND

_MOST_BAD = 0.5
"""A file with more lines than these that are not understood is not a log."""


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
    values: dict[str, NDArray[np.float64]]  # for each name of `VALUES` a float64 array of n, NaN if the sample has none
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
            raise _no_log(path, "it is empty")
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
