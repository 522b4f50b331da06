"""Starts the programs: timed without a profiler, and recorded by `alltrace capture`."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from alltrace.capture.profilers.tool import locate
from alltrace.trace.errors import AlltraceError
from benchmarks.processes_truth.blocks import Blocks, error_of
from benchmarks.processes_truth.causes import RANKS, Cause
from benchmarks.processes_truth.machine import ADDRESS, placed, prepared

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).with_name("program.c")
WARMUP = 8
_LIMIT_S = 240
_ATTEMPTS = 3
_LAUNCH = ("mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1", "-np", str(RANKS))
_RANK = {"torch": "RANK", "mpi": "OMPI_COMM_WORLD_RANK"}


class ProgramError(AlltraceError):
    """A program, or its recording, that ended with an error; the message says which one, and its last words."""


@dataclass(frozen=True)
class Gain:
    """What taking the cause away gains.

    Attributes:
        with_ns: The median step of each block with the cause.
        without_ns: That of the block without it that was measured next to it.
        cpu_ns_per_step: CPU time of rank 0 in a step without the cause.
    """

    with_ns: tuple[int, ...]
    without_ns: tuple[int, ...]
    cpu_ns_per_step: int = 0

    @property
    def gains_ns(self) -> list[int]:
        """The gain in a step of each pair of blocks."""
        return [a - b for a, b in zip(self.with_ns, self.without_ns, strict=True)]

    @property
    def share(self) -> float:
        """The gain as a share of a step with the cause."""
        return sum(self.gains_ns) / sum(self.with_ns)

    @property
    def error(self) -> float:
        """The standard error of that share."""
        return error_of(self.gains_ns) * len(self.with_ns) / sum(self.with_ns)


@dataclass(frozen=True)
class Program:
    """One of the two programs.

    Attributes:
        name: `torch` or `mpi`.
        python: A Python that has PyTorch.
        folder: Where the compiled program is.
    """

    name: str
    python: str
    folder: Path

    def lacking(self) -> str | None:
        """What it needs and this machine does not have; None if it has all."""
        if self.name == "mpi":
            return next((f"{p} is not installed" for p in ("mpicc", "mpirun") if shutil.which(p) is None), None)
        done = subprocess.run([self.python, "-c", "import torch.distributed"], capture_output=True, check=False)
        return f"{self.python} has no PyTorch" if done.returncode else None

    def command(self, cause: Cause, asked: dict[str, int], output: Path) -> list[str]:
        """What a rank runs."""
        culprit = str(cause.culprits[0] if cause.culprits else -1)
        if self.name == "torch":
            said = ["--cause", cause.name, "--culprit", culprit, "--blocks", json.dumps(asked), "--output", str(output)]
            return [self.python, "-m", "benchmarks.processes_truth.program", *said]
        # the numbers in the order in which the program reads them
        record = asked.get("record", 0)
        numbers = [asked.get(n, 0) for n in ("seed", "steps", "unmeasured", "least", "most")]
        return [
            str(self._compiled()),
            cause.name,
            culprit,
            str(output),
            *map(str, numbers),
            str(record),
            str(asked.get("warmup", 0)),
        ]

    def launch(self, cause: Cause, command: Sequence[str]) -> list[str]:
        """The command that starts all ranks."""
        culprit = cause.culprits[0] if cause.culprits else None
        ranks = [*placed(_RANK[self.name], culprit, cause.needs), *command]
        if self.name == "mpi":
            return [*_LAUNCH, *ranks]
        address = ADDRESS if cause.needs == "link" else "127.0.0.1"
        where = [
            "--nnodes",
            "1",
            "--nproc-per-node",
            str(RANKS),
            "--master-addr",
            address,
            "--master-port",
            str(_free_port()),
        ]
        return [self.python, "-m", "torch.distributed.run", *where, "--no-python", *ranks]

    def _compiled(self) -> Path:
        target = self.folder / "program"
        if not target.is_file():
            self.folder.mkdir(parents=True, exist_ok=True)
            ranges = locate("nsys").resolve().parent / "nvtx/include"
            command = [
                *"mpicc -O1 -pthread -rdynamic".split(),
                f"-I{ranges}",
                "-o",
                str(target),
                str(SOURCE),
                "-lm",
                "-ldl",
            ]
            subprocess.run(command, check=True)
        return target


def time_both(program: Program, cause: Cause, blocks: Blocks, folder: Path) -> Gain:
    """Alternate blocks with and without the cause in one start, without a profiler.

    Raises:
        ProgramError: The program ended with an error.
    """
    output = folder / "gain.json"
    if not output.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        _run(program, cause, program.command(cause, asdict(blocks), output), folder / "timed.txt")
    times = json.loads(output.read_text(encoding="utf-8"))
    return Gain(tuple(times["with_ns"]), tuple(times["without_ns"]), times["cpu_ns_per_step"])


def record(program: Program, cause: Cause, profiler: str, steps: int, folder: Path) -> Path:
    """Record steps with the cause; the folder of the reports, one of each rank.

    Raises:
        ProgramError: The program or the profiler ended with an error.
    """
    reports = folder / profiler
    wrapper = [sys.executable, *"-m alltrace.cli.main capture exec --profiler".split(), profiler, "--strict", "--force"]
    if profiler == "nsys":
        wrapper += ["--trace", "mpi,nvtx"]
    if program.name == "torch":
        wrapper += ["--steps", f"{WARMUP}:{WARMUP + steps}"]
    inner = program.command(cause, {"record": steps, "warmup": WARMUP}, folder / "none")
    command = [*wrapper, "--job", "truth", "--output", str(reports), "--", *inner]
    for _ in range(_ATTEMPTS):  # nsys may lose its connection on a busy machine; the rank then runs without it
        if len(list(reports.glob("*rank*"))) == RANKS:
            return reports
        shutil.rmtree(reports, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        _run(program, cause, command, folder / f"{profiler}.txt")
    if len(list(reports.glob("*rank*"))) != RANKS:
        raise ProgramError(
            f"{program.name}, {cause.name}: not all {RANKS} ranks were recorded in {_ATTEMPTS} attempts; see {reports}"
        )
    return reports


def _run(program: Program, cause: Cause, command: Sequence[str], output: Path) -> None:
    with prepared(cause.needs) as variables, output.open("w", encoding="utf-8") as file:
        environment = {**os.environ, **variables, "TRUTH_DISK": str(output.parent)}
        path = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        environment |= {"PYTHONPATH": os.pathsep.join(p for p in path if p), "OMP_NUM_THREADS": "1"}
        with subprocess.Popen(
            program.launch(cause, command), stdout=file, stderr=subprocess.STDOUT, env=environment
        ) as process:
            try:
                code = process.wait(_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.terminate()
                raise ProgramError(
                    f"{program.name}, {cause.name}: not ended after {_LIMIT_S} s; see {output}"
                ) from None
    if code:
        lines = [line for line in output.read_text(encoding="utf-8").splitlines() if line.strip()]
        raise ProgramError(
            f"{program.name}, {cause.name}: ended with {code}: {lines[-1] if lines else 'no message'}; see {output}"
        )


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("", 0))
        port: int = one.getsockname()[1]
        return port
