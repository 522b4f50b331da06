"""What the reports have of what happened: planted faults of the capture, wrong ends, and missing events."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from alltrace.synth.faults.capture import CUPTI_TABLES
from alltrace.synth.kernels import KERNELS
from alltrace.synth.program import COMPUTE_STREAM
from alltrace.synth.scenario import Scenario
from alltrace.synth.simulate import SimulatedRun
from alltrace.synth.timeline import ALL_STREAMS, Timeline

_SHORTEST_NS = 1_000


@dataclass(frozen=True)
class Recording:
    timeline: Timeline | None  # the events that it has; None if there is no report
    complaints: tuple[str, ...] = ()  # what the profiler says about itself in it


def record(run: SimulatedRun) -> list[Recording]:
    """What each rank's report has, by rank; the run itself is not changed."""
    return [_record(run, rank) for rank in range(len(run.timelines))]


def _record(run: SimulatedRun, rank: int) -> Recording:
    scenario = run.scenario
    line: Timeline | None = _with_outliers(run.timelines[rank], scenario, rank)
    steps = [(int(begin), int(end)) for begin, end in run.steps[rank]]
    complaints = []
    for number, fault in enumerate(run.faults):
        if line is None:
            break
        if rank not in fault.ranks:
            continue
        before = _records(line)
        line = fault.record(line, steps, np.random.default_rng((scenario.seed, 11, number, rank)))
        complaint = None if line is None else fault.complaint(before - _records(line))
        if complaint:
            complaints.append(complaint)
    share = scenario.environment.dropped_share
    if line is not None and share:
        rng = np.random.default_rng((scenario.seed, 9, rank))
        line = line.keep(lambda _, rows: rng.random(len(rows)) >= share)
    if line is not None and scenario.environment.own_streams:
        line = _with_own_streams(line, np.random.default_rng((scenario.seed, 11, rank)))
    return Recording(line, tuple(complaints))


def _with_own_streams(line: Timeline, rng: np.random.Generator) -> Timeline:
    """The events with streams as the rank numbers them; the default stream keeps its number, as in all processes."""
    tables = {name: rows for name, rows in line.tables.items() if "stream" in rows.columns and len(rows)}
    used = {stream for rows in tables.values() for stream in np.unique(rows["stream"]).tolist()} - {
        ALL_STREAMS,
        COMPUTE_STREAM,
    }
    numbers = COMPUTE_STREAM + np.cumsum(rng.integers(1, 6, len(used)))
    own = dict(zip(rng.permutation(sorted(used)).tolist(), numbers.tolist(), strict=True))
    renumbered: dict[str, Any] = {
        name: rows.changed("stream", np.array([own.get(s, s) for s in rows["stream"].tolist()], np.int64))
        for name, rows in tables.items()
    }
    return dataclasses.replace(line, **renumbered)


def _records(line: Timeline) -> int:
    return sum(len(rows) for name, rows in line.tables.items() if name in CUPTI_TABLES)


def _with_outliers(line: Timeline, scenario: Scenario, rank: int) -> Timeline:
    """The events with some ends of collectives' kernels far off."""
    clocks = scenario.clocks
    if not clocks.outlier_share or not len(line.kernels):
        return line
    rng = np.random.default_rng((scenario.seed, 10, rank))
    rows = line.kernels
    starts, ends = rows["start"], rows["end"]
    wrong = (rows["kernel"] >= len(KERNELS)) & (rng.random(len(rows)) < clocks.outlier_share)
    errors = np.rint(rng.uniform(-1.0, 1.0, len(rows)) * clocks.outlier_ms * 1e6).astype(np.int64)
    moved = np.maximum(ends + errors, starts + _SHORTEST_NS)
    return dataclasses.replace(line, kernels=rows.changed("end", np.where(wrong, moved, ends)))
