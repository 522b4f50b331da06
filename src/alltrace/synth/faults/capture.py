"""Faults of the capture: the run is well, but its reports are not."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from alltrace.synth.faults.base import Fault, bounded, in_layer
from alltrace.synth.program import Compute, Op
from alltrace.synth.scenario import Scenario
from alltrace.synth.timeline import Rows, Timeline
from alltrace.trace.errors import UsageError

CUPTI_TABLES = ("kernels", "copies", "memsets", "graphs", "api", "syncs")
"""The tables that CUPTI's records fill."""

_NO_RANGES = "No NVTX events collected. Does the process use NVTX?"


@dataclass(frozen=True)
class CaptureFault(Fault):
    """The base of faults in the capture."""

    finding: ClassVar[str] = "capture-fault"
    everywhere: ClassVar[bool] = False
    in_capture: ClassVar[bool] = True


@dataclass(frozen=True)
class MissingRank(CaptureFault):
    """A rank without a report."""

    kind: ClassVar[str] = "missing-rank"

    def record(self, line: Timeline, steps: Sequence[tuple[int, int]], rng: np.random.Generator) -> Timeline | None:
        return None


@dataclass(frozen=True)
class CutShort(CaptureFault):
    """A report that ends before the run does: what has not ended by then is missing."""

    kind: ClassVar[str] = "cut-short"
    share: float = bounded(0.6, 0.0, 1.0)

    def record(self, line: Timeline, steps: Sequence[tuple[int, int]], rng: np.random.Generator) -> Timeline | None:
        end = _moment(steps, self.share)
        return line.keep(lambda _, rows: rows["end"] <= end)


@dataclass(frozen=True)
class LateStart(CaptureFault):
    """A report that begins after the run did: what began before is missing."""

    kind: ClassVar[str] = "late-start"
    share: float = bounded(0.3, 0.0, 1.0)  # the share of the run that has passed by then

    def record(self, line: Timeline, steps: Sequence[tuple[int, int]], rng: np.random.Generator) -> Timeline | None:
        begin = _moment(steps, self.share)
        return line.keep(lambda _, rows: rows["start"] >= begin)


@dataclass(frozen=True)
class DroppedEvents(CaptureFault):
    """The profiler's buffers overflowed: records of the device and of API calls are missing, and the report says so."""

    kind: ClassVar[str] = "dropped-events"
    share: float = bounded(0.05, 0.0, 1.0)  # the share that is missing, drawn for each record

    def record(self, line: Timeline, steps: Sequence[tuple[int, int]], rng: np.random.Generator) -> Timeline | None:
        def kept(name: str, rows: Rows) -> NDArray[np.bool_] | None:
            return rng.random(len(rows)) >= self.share if name in CUPTI_TABLES else None

        return line.keep(kept)

    def complaint(self, lost: int) -> str | None:
        return f"CUPTI dropped {lost} records. Some CUPTI events might be missing." if lost else None


@dataclass(frozen=True)
class NoRanges(CaptureFault):
    """Ranges were not captured; without ranks, on none of them."""

    kind: ClassVar[str] = "no-nvtx"
    everywhere: ClassVar[bool] = True

    def record(self, line: Timeline, steps: Sequence[tuple[int, int]], rng: np.random.Generator) -> Timeline | None:
        return line.keep(lambda name, rows: rows["start"] < rows["start"].min() if name == "ranges" else None)

    def complaint(self, lost: int) -> str | None:
        return _NO_RANGES


@dataclass(frozen=True)
class HiddenByGraphs(CaptureFault):
    """Every layer is a CUDA graph and traced as a whole, so that its kernels are not in the report."""

    kind: ClassVar[str] = "graphs"
    everywhere: ClassVar[bool] = True

    def edit(self, rank: int, step: int, ops: list[Op], rng: np.random.Generator) -> list[Op]:
        graphs = itertools.count(1)
        return [
            dataclasses.replace(op, graph=next(graphs)) if isinstance(op, Compute) and in_layer(op) else op
            for op in ops
        ]

    def check(self, scenario: Scenario) -> None:
        super().check(scenario)
        if scenario.environment.schema == "3.7.2":
            raise UsageError(f"fault {self.kind!r} needs schema 3.25.0; 3.7.2 has no table for whole graphs")


def _moment(steps: Sequence[tuple[int, int]], share: float) -> int:
    first, last = int(steps[0][0]), int(steps[-1][1])
    return first + int((last - first) * share)
