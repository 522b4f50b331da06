"""Writes a whole simulated run: a report for every rank, and its truth."""

from __future__ import annotations

import dataclasses
import re
import shutil
import sqlite3
from os import PathLike
from pathlib import Path
from typing import Any

from alltrace.synth.identity import identities
from alltrace.synth.nsys_facts import Report
from alltrace.synth.nsys_tables import build_tables
from alltrace.synth.operators import operator_truth
from alltrace.synth.recording import record
from alltrace.synth.scenario import Scenario
from alltrace.synth.scenarios import scenario_named
from alltrace.synth.simulate import SimulatedRun, simulate
from alltrace.synth.truth import TRUTH_FILE, Truth, describe, write_collectives
from alltrace.synth.write_kineto import file_name as kineto_name
from alltrace.synth.write_kineto import write_kineto
from alltrace.synth.write_logs import TRAINING_LOG, write_logs
from alltrace.synth.write_nsys import write_parquetdir, write_sqlite
from alltrace.trace.errors import UsageError

FORMATS = {"sqlite": ".sqlite", "parquetdir": "_pqtdir", "kineto": ".pt.trace.json"}
"""How reports of each format are named at the end."""

_REPORT_NAME = re.compile(r"[\w.-]+_rank\d+(\.sqlite|_pqtdir)|[\w.-]+_\d+\.\d+\.pt\.trace\.json")
_LOG_NAME = re.compile(r"nccl\.node\d+\.\d+\.log")


def write_run(
    scenario: str | Scenario,
    folder: str | PathLike[str],
    format: str = "sqlite",  # noqa: A002
    logs: bool = False,
    **overrides: Any,
) -> Truth:
    """Simulates a run and writes its reports and its truth.

    `scenario`: a scenario or the name of one in `SCENARIOS`. `folder`: where to write; made if missing. The reports
    and logs of a run that was written there before are removed. `format`: `sqlite` for `<scenario>_rank<r>.sqlite`,
    `parquetdir` for `<scenario>_rank<r>_pqtdir/`, `kineto` for `<host>_<process>.<time>.pt.trace.json` as the
    PyTorch profiler writes it. `logs`: whether to write what the job prints too, into `logs/`: a log of NCCL for
    each rank, `nccl.<host>.<process>.log`, and `train.log`. `**overrides`: values of the scenario to change, see
    `Scenario.override`. Returns the truth, as written to `truth.json` and `truth_collectives.parquet`. Raises
    `UsageError`: the scenario, format or value does not exist, or the values do not fit together, or `folder`
    cannot be written.
    """
    if isinstance(scenario, str):
        scenario = scenario_named(scenario)
    if format not in FORMATS:
        raise UsageError.unknown("format", format, FORMATS)
    scenario = scenario.override(**overrides)
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise UsageError(f"{target} is a file, and the run needs a folder; give another name")
    run = simulate(scenario)
    people = identities(scenario)
    truth = describe(run, people)
    for number, planted in enumerate(truth.faults):
        planted["lost_ns"] = 0 if run.faults[number].in_capture else _lost_ns(run, number)
    truth.folder = target
    recordings = record(run)
    try:
        target.mkdir(parents=True, exist_ok=True)
        _remove_former(target)
        for identity, facts in zip(people, truth.ranks, strict=True):
            recording = recordings[identity.rank]
            if recording.timeline is None:
                facts["rows"], facts["report"] = {}, None
                continue
            report = Report(run, identity, f"{scenario.name}_rank{identity.rank}{FORMATS[format]}", recording)
            if format == "kineto":
                report.file_name = kineto_name(report)
            if scenario.environment.operators:
                facts["operators"] = operator_truth(recording.timeline)
            facts["rows"] = _write_report(report, target, format)
            facts["report"] = report.file_name
            truth.secrets += report.secrets.values()
        write_collectives(run, recordings, target)
        if logs:
            write_logs(run, people, target / "logs")
        truth.write(target)
    except (OSError, sqlite3.OperationalError) as error:
        raise UsageError(
            f"the run cannot be written to {target}: {error}; give a writable folder with enough space"
        ) from error
    return truth


def _write_report(report: Report, target: Path, format: str) -> dict[str, int]:  # noqa: A002
    if format == "kineto":
        return write_kineto(report, target / report.file_name)
    environment = report.environment
    tables = build_tables(report)
    if format == "sqlite":
        write_sqlite(tables, target / report.file_name, environment.schema, environment.page_bytes)
    else:
        write_parquetdir(tables, target / report.file_name, environment.schema)
    return {name: table.rows for name, table in tables.items() if not name.startswith("ENUM_")}


def _remove_former(target: Path) -> None:
    """Removes reports and logs of the run of a truth file in the folder, so that the folder has only one run."""
    try:
        truth = Truth.read(target)
        former = truth.reports
        logs = [f"nccl.{rank['host']}.{rank['pid']}.log" for rank in truth.ranks]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return
    (target / TRUTH_FILE).unlink()
    for path in former:
        # the file is not trusted: only names that this module gives, and only in this folder
        if path.parent == target and _REPORT_NAME.fullmatch(path.name):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    written_logs = [
        target / "logs" / name for name in logs if _LOG_NAME.fullmatch(name) and (target / "logs" / name).is_file()
    ]
    for path in [*written_logs, target / "logs" / TRAINING_LOG] if written_logs else ():
        path.unlink(missing_ok=True)


def _lost_ns(run: SimulatedRun, number: int) -> int:
    """How much later the run ends than the same run without one of its faults."""
    faults = list(run.scenario.faults)
    # the others keep their places, from which their random numbers follow
    faults[number] = run.faults[number].cured()
    without = simulate(dataclasses.replace(run.scenario, faults=tuple(faults)))
    return int(run.steps[:, -1, 1].max() - without.steps[:, -1, 1].max())
