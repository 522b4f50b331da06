"""The JSON that DLB's TALP writes, so that tools for it (talp-pages) read a run: efficiencies of hosts and GPUs.

Definitions are those of TALP: on a device, kernels are useful (including NCCL's), copies outside of them are
communication, the rest is inactive; on the host a rank is one CPU; its time in MPI and, outside of that, in the CUDA
runtime is not useful. The GPU's efficiencies follow the same paper (Rahimi et al., arXiv 2603.26576): parallel
efficiency = load balance x communication efficiency x orchestration efficiency, with maxima over processes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from alltrace.export.atomic_output import Draft
from alltrace.export.columns import numbers
from alltrace.export.selection import Selection, SentSelection
from alltrace.export.tasks import results_of
from alltrace.run.manifest import RankRecord
from alltrace.trace.arrays import Int64
from alltrace.trace.intervals import Merged, intersection, merge

REGION = "Global"


@dataclass(frozen=True)
class RankTimes:
    """What one rank spent, in ns."""

    gpus: int  # its devices
    useful: int  # time of its devices in kernels
    communication: int  # time of its devices in copies alone
    mpi: int  # time of the host in MPI
    runtime: int  # time of the host in CUDA calls outside of MPI
    mpi_calls: int  # MPI calls that start in the time
    runtime_calls: int  # CUDA calls that do


def export_talp(selection: Selection, path: Path, *, jobs: int | None = None) -> dict[str, Any]:
    """Write the file; returns what it holds. `jobs` is the most processes; None lets the number of rows decide."""
    # Raises `InputError`: the run is damaged, or the file cannot be written; nothing is left then.
    facts = summary(selection, jobs=jobs)
    with Draft(path) as draft:
        draft.file(path).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return facts


def summary(selection: Selection, *, jobs: int | None = None) -> dict[str, Any]:
    """The content of the file; times in ns, efficiencies between 0 and 1 with two decimals."""
    start = selection.zero_ns
    end = selection.run.span_ns[1] if selection.window_ns is None else selection.window_ns[1]
    elapsed = end - start
    sent = SentSelection(selection)
    ranks = [r.rank for r in selection.ranks]
    times = dict(zip(ranks, results_of(partial(_times_of, sent, start, end), ranks, sent, jobs), strict=True))
    hosts = list(dict.fromkeys(r.host for r in selection.ranks))
    members = [[r for r in selection.ranks if r.host == h] for h in hosts]
    nodes = [[times[r.rank] for r in own] for own in members]
    gpus = [_gpus(own, times) for own in members]
    return {
        "dlbVersion": "alltrace",
        "timestamp": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "resources": {
            "numCpus": len(times),
            "numAvailableCpus": len(times),
            "numNodes": len(hosts),
            "numMpiRanks": len(times),
            "numGpus": sum(gpus),
        },
        "Application": {REGION: region(nodes, elapsed, sum(gpus))},
        "node": [
            {"id": n, "hostname": h, REGION: region([own], elapsed, there)}
            for n, (h, own, there) in enumerate(zip(hosts, nodes, gpus, strict=True))
        ],
        "Process": {
            REGION: [
                {
                    "rank": r.rank,
                    "pid": r.pids[0] if r.pids else 0,
                    "nodeId": hosts.index(r.host),
                    "hostname": r.host,
                    "elapsedTime": elapsed,
                    **_times([times[r.rank]], elapsed),
                }
                for r in selection.ranks
            ]
        },
    }


def _times_of(sent: SentSelection, start: int, end: int, number: int, advance: Callable[[int], None]) -> RankTimes:
    times = rank_times(sent.selection, sent.selection.run.rank(number).record, start, end)
    advance(1)
    return times


def _gpus(ranks: list[RankRecord], times: Mapping[int, RankTimes]) -> int:
    """The devices of a host: those known, shared ones once, and others that work describes."""
    return len({d.identity for r in ranks for d in r.devices}) + sum(times[r.rank].gpus - len(r.devices) for r in ranks)


def region(nodes: list[list[RankTimes]], elapsed: int, gpus: int) -> dict[str, Any]:
    """The fields of a region."""
    # `nodes`: for each node its ranks. `elapsed`: the length of the region, ns. `gpus`: the devices.
    ranks = [t for n in nodes for t in n]
    wall = elapsed * len(ranks)
    outside = [elapsed - t.mpi for t in ranks]
    useful = sum(o - t.runtime for o, t in zip(outside, ranks, strict=True))
    means = [float(np.mean([elapsed - t.mpi for t in n])) for n in nodes if n]
    device = sum(t.useful for t in ranks)
    most_useful = max((t.useful for t in ranks), default=0)
    most_active = max((t.useful + t.communication for t in ranks), default=0)
    each = gpus / len(ranks) if ranks else 0.0
    parallel = _ratio(useful, wall)
    fields: dict[str, Any] = {
        "numCpus": len(ranks),
        "numMpiRanks": len(ranks),
        "numNodes": len(nodes),
        "avgCpus": float(len(ranks)),
        "numGpus": gpus,
        "numMeasurements": 1,
        "numMpiCalls": sum(t.mpi_calls for t in ranks),
        "numGpuRuntimeCalls": sum(t.runtime_calls for t in ranks),
        "elapsedTime": elapsed,
        **_times(ranks, elapsed),
        "maxGpuUsefulTime": most_useful,
        "maxGpuActiveTime": most_active,
    }
    efficiencies = {
        "parallelEfficiency": parallel,
        "mpiParallelEfficiency": _ratio(sum(outside), wall),
        "mpiCommunicationEfficiency": _ratio(max(outside, default=0), elapsed),
        "mpiLoadBalance": _ratio(sum(outside), max(outside, default=0) * len(ranks)),
        "mpiLoadBalanceIn": _ratio(max(means, default=0.0) * len(ranks), max(outside, default=0) * len(ranks)),
        "mpiLoadBalanceOut": _ratio(sum(outside), max(means, default=0.0) * len(ranks)),
        "deviceOffloadEfficiency": _ratio(useful, sum(outside)),
        "gpuParallelEfficiency": _ratio(device, gpus * elapsed),
        "gpuLoadBalance": _ratio(device, most_useful * len(ranks)),
        "gpuCommunicationEfficiency": _ratio(most_useful, most_active),
        "gpuOrchestrationEfficiency": _ratio(most_active, elapsed * each),
    }
    return {**fields, **{name: round(value, 2) for name, value in efficiencies.items()}}


def _times(ranks: list[RankTimes], elapsed: int) -> dict[str, int]:
    return {
        "usefulTime": sum(elapsed - t.mpi - t.runtime for t in ranks),
        "mpiTime": sum(t.mpi for t in ranks),
        "gpuRuntimeTime": sum(t.runtime for t in ranks),
        "gpuUsefulTime": sum(t.useful for t in ranks),
        "gpuCommunicationTime": sum(t.communication for t in ranks),
        "gpuInactiveTime": sum(t.gpus * elapsed - t.useful - t.communication for t in ranks),
    }


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def rank_times(selection: Selection, rank: RankRecord, start: int, end: int) -> RankTimes:
    """What one rank spent between two times, ns on the run's aligned clock; what reaches in counts in part."""
    useful = communication = 0
    whole = replace(selection, window_ns=None)  # which takes also what began before
    kernels, copies = (_by_device(whole, rank, tables) for tables in (("kernels", "graphs"), ("copies",)))
    for device in {*kernels, *copies}:
        work, moves = (_cut(t.get(device, []), start, end) for t in (kernels, copies))
        useful += work.total_ns
        communication += moves.total_ns - intersection(work, moves).total_ns
    calls, mpi = (_by_device(whole, rank, (t,), None) for t in ("api", "mpi"))
    in_calls, in_mpi = (_cut(t.get(0, []), start, end) for t in (calls, mpi))
    bounds = selection.window_ns or (-(1 << 63), (1 << 63) - 1)
    counts = [sum(int(((p[0] >= bounds[0]) & (p[0] < bounds[1])).sum()) for p in t.get(0, [])) for t in (mpi, calls)]
    runtime = in_calls.total_ns - intersection(in_mpi, in_calls).total_ns
    gpus = max(len(rank.devices), len({*kernels, *copies}))
    return RankTimes(gpus, useful, communication, in_mpi.total_ns, runtime, *counts)


_Parts = list[tuple["Int64", "Int64"]]


def _by_device(
    selection: Selection, rank: RankRecord, tables: tuple[str, ...], column: str | None = "device"
) -> dict[int, _Parts]:
    """Starts and ends of the rows of each device; all are of device 0 without a column. Without an end, no time."""
    by_device: dict[int, _Parts] = {}
    for table in tables:
        for batch in selection.batches(rank, table, ["start", "end", *([column] if column else [])]):
            starts, ends = numbers(batch, "start"), numbers(batch, "end", -(1 << 63))
            devices = numbers(batch, column) if column else np.zeros(len(starts), np.int64)
            for device in np.unique(devices).tolist():
                mine = devices == device
                by_device.setdefault(device, []).append((starts[mine], ends[mine]))
    return by_device


def _cut(parts: _Parts, start: int, end: int) -> Merged:
    empty = np.empty(0, np.int64)
    starts, ends = (np.clip(np.concatenate([empty, *(p[i] for p in parts)]), start, end) for i in (0, 1))
    longer = ends > starts
    return merge(starts[longer], ends[longer])
