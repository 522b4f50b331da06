"""Writes one simulated run as each recorder would have recorded it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.inspector_writing import write_job
from tests.nccl_traced import add_nccl_trace
from tests.recorded.making import write_rocpd

from alltrace.synth import write_run
from alltrace.synth.identity import identities
from alltrace.synth.recording import record
from alltrace.synth.simulate import simulate

if TYPE_CHECKING:
    from pathlib import Path

    from alltrace.synth.scenario import Scenario


@dataclass(frozen=True)
class Recorder:
    """What records a job.

    Attributes:
        name: What it is called in tables.
        format: One of `alltrace.synth.run.FORMATS`, or `rocprofv3`.
        payloads: Whether ranges of NCCL have payloads.
        ranges: Whether there are ranges of NCCL.
        traced: Whether NCCL itself was traced (`-t nccl`).
        arguments: Whether calls of process groups have arguments, of a trace of the PyTorch profiler.
        logs: Whether the job wrote logs of NCCL.
        inspector: Whether NCCL Inspector wrote verbose files.
        communicators: Whether communicators are recorded, so that a loss is to be given.
    """

    name: str
    format: str = "sqlite"
    payloads: bool = False
    ranges: bool = True
    traced: bool = False
    arguments: bool = True
    logs: bool = False
    inspector: bool = False
    communicators: bool = True


RECORDERS = (
    Recorder("nsys, payloads", payloads=True),
    Recorder("nsys, NCCL trace", payloads=True, traced=True),
    Recorder("nsys, names", communicators=False),
    Recorder("nsys, no NCCL ranges", ranges=False, communicators=False),
    Recorder("nsys, NCCL logs", logs=True),
    Recorder("nsys, Inspector", inspector=True),
    Recorder("Parquet, payloads", format="parquetdir", payloads=True),
    Recorder("Kineto, arguments", format="kineto"),
    Recorder("Kineto, no arguments", format="kineto", arguments=False, communicators=False),
    Recorder("rocprofv3", format="rocprofv3", communicators=False),
)


def write_recorded(scenario: Scenario, recorder: Recorder, folder: Path) -> tuple[Path, dict[str, Any]]:
    """Write a scenario as a recorder records it.

    Args:
        scenario: The run; equal values happen equally for every recorder.
        recorder: The recorder.
        folder: Where to; made if missing.

    Returns:
        The folder of the reports, and what is imported with them: by the parameter of `import_reports`, files next to
        it.
    """
    reports = folder / "reports"
    if recorder.format == "rocprofv3":
        _write_rocpd(scenario, reports)
        return reports, {}
    truth = write_run(scenario, reports, recorder.format, recorder.logs, payloads=recorder.payloads)
    for path in truth.reports:
        if recorder.traced:
            add_nccl_trace(path)
        if not recorder.ranges:
            with closing(sqlite3.connect(path)) as database, database:
                database.execute("DELETE FROM NVTX_EVENTS WHERE domainId > 0")
                database.execute("DELETE FROM NVTX_EVENTS WHERE text = 'NCCL'")
        if not recorder.arguments:
            _drop_arguments(path)
    if recorder.inspector:
        return reports, {"inspector_logs": write_job(folder / "inspector", scenario)}
    if not recorder.logs:
        return reports, {}
    logs = folder / "logs"
    (reports / "logs").rename(logs)
    return reports, {"nccl_logs": sorted(str(p) for p in logs.glob("nccl.*.log"))}


def _write_rocpd(scenario: Scenario, folder: Path) -> None:
    """The databases that rocprofv3 writes, one for each rank."""
    folder.mkdir(parents=True)
    run = simulate(scenario)
    for who, recording in zip(identities(scenario), record(run), strict=True):
        if recording.timeline is not None:
            path = folder / f"{who.host_name}_{who.pid}_results.db"
            write_rocpd(path, who, recording.timeline, len(run.timelines))


def _drop_arguments(path: Path) -> None:
    """Make a trace one of a profiler that records no calls of process groups, nor the groups themselves."""
    trace = json.loads(path.read_text(encoding="utf-8"))
    trace["distributedInfo"].pop("pg_config", None)
    trace["traceEvents"] = [e for e in trace["traceEvents"] if e["name"] != "record_param_comms"]
    path.write_text(json.dumps(trace), encoding="utf-8")
