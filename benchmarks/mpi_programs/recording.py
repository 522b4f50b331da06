"""Runs `calls.c` under Nsight Systems, with Open MPI or MPICH, one report per rank."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("calls.c")
IMPLEMENTATIONS = ("openmpi", "mpich")
_LAUNCH = {"openmpi": ("mpirun", "--allow-run-as-root", "--oversubscribe", "-np"), "mpich": ("mpiexec.hydra", "-n")}
_RANK = {"openmpi": "%q{OMPI_COMM_WORLD_RANK}", "mpich": "%q{PMI_RANK}"}
_MARK = "ALLTRACE_MPI_RECORDING"
_LIMIT_S = 180
DONE = "recording.json"
"""Written last: the plan, and how busy the machine was."""


@dataclass(frozen=True)
class Plan:
    """A recording: what the program is called with, and the number of `busy` processes that compute meanwhile."""

    implementation: str
    ranks: int
    seed: int = 1
    each: int = 8
    sleep_us: int = 20_000
    features: str = "halves"
    busy: int = 0

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"{self.implementation}-{self.ranks}" + ("-busy" if self.busy else "")


def lacking(plan: Plan) -> str | None:
    """The program that is not installed; None if all are."""
    return next(
        (p for p in (f"mpicc.{plan.implementation}", _LAUNCH[plan.implementation][0]) if shutil.which(p) is None), None
    )


def record(plan: Plan, folder: Path, nsys: Path, attempts: int = 3) -> None:
    """Record into `folder`: `rank<r>.sqlite` and `record.<r>.json` of each rank, and `recording.json`.

    Raises:
        RuntimeError: It failed `attempts` times.
    """
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "calls"
    subprocess.run([f"mpicc.{plan.implementation}", "-O1", "-o", program, SOURCE], check=True)
    for _attempt in range(attempts):
        if _recorded(plan, folder, program, nsys):
            program.unlink()
            return
    raise RuntimeError(f"{plan.name}: the program or nsys failed {attempts} times; see {folder / 'output.txt'}")


def _recorded(plan: Plan, folder: Path, program: Path, nsys: Path) -> bool:
    for old in (*folder.glob("rank*"), *folder.glob("record.*")):
        old.unlink()
    command = [
        *_LAUNCH[plan.implementation], str(plan.ranks), str(nsys), "profile", "-t", "mpi,nvtx",
        f"--mpi-impl={plan.implementation}", "-s", "none", "--cpuctxsw=none", "-f", "true", "-o",
        str(folder / f"rank{_RANK[plan.implementation]}"), str(program), str(plan.seed), str(plan.each),
        str(plan.sleep_us), str(folder / "record"), plan.features,
    ]  # fmt: skip
    mark = uuid.uuid4().hex
    load_before = os.getloadavg()[0]
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(plan.busy)]
    started = time.monotonic()
    try:
        with (folder / "output.txt").open("w") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, _MARK: mark}
            )
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LIMIT_S)
    finally:
        for one in busy:
            one.kill()
        _end_marked(mark)
    facts = {
        **asdict(plan),
        "load_before": load_before,
        "load_after": os.getloadavg()[0],
        "wall_s": time.monotonic() - started,
    }
    reports = sorted(folder.glob("rank*.nsys-rep"))
    if process.returncode or len(reports) < plan.ranks or len(list(folder.glob("record.*.json"))) < plan.ranks:
        return False
    if not all(_exported(report, nsys) for report in reports):
        return False
    (folder / DONE).write_text(json.dumps(facts | {"machine": platform.machine(), "cores": os.cpu_count()}))
    return True


def _exported(report: Path, nsys: Path) -> bool:
    target = report.with_suffix(".sqlite")
    command = [str(nsys), "export", "-t", "sqlite", "-f", "true", "-o", str(target), str(report)]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=_LIMIT_S, check=False)
    return done.returncode == 0 and target.is_file()


def _end_marked(mark: str) -> None:
    """End what is left of a run: ranks and nsys' agents outlive a launcher that was stopped."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{_MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)
