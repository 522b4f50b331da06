"""How jobs end, and which reports come home: `python -m tests.capture.endings [--only TEXT] [--write docs/capture.md]`.

Runs every ending with a real Nsight Systems under real launchers, measures what came home, how long the job took to end
after the harm was done, and whether a process was left, and writes the table of the manual. Slurm's shortest time limit
is a minute, so all of it takes some ten minutes; the tests run two of them.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.capture.launching import RANK_VARIABLES, find_hydra, find_mpirun, find_torch, launch
from tests.slurm_cluster import two_nodes, why_no_slurm

from alltrace.capture.check import report_fault

ROOT = Path(__file__).resolve().parents[2]
BEGIN, END = "<!-- endings, by python -m tests.capture.endings -->", "<!-- end of endings -->"
LIMIT_S = 75.0
LAUNCHERS = {"srun": "Slurm", "openmpi": "Open MPI", "mpich": "MPICH", "torchrun": "torchrun"}

# rank 1 is the one that something happens to; the others wait for it, as in a collective
PROGRAM = f"""
import os, signal, sys, time
from pathlib import Path
import nvtx
rank = next((os.environ[n] for n in {RANK_VARIABLES!r} if n in os.environ), "0")
what = sys.argv[1]
if "saves" in sys.argv:
    def saves(*_):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with nvtx.annotate("save"): time.sleep(3)
        os._exit(7)
    signal.signal(signal.SIGTERM, saves)
Path(f"ready.{{rank}}.new").write_text(str(os.getpid()))
os.rename(f"ready.{{rank}}.new", f"ready.{{rank}}")
began = time.monotonic()
while time.monotonic() - began < (1.5 if what == "ends" else 300):
    with nvtx.annotate("step"): time.sleep(0.01)
    if time.monotonic() - began < 1.5: continue
    if what == "exit": sys.exit(3)
    if rank != "1": continue
    if what == "exits": sys.exit(3)
    if what == "crashes": os.kill(os.getpid(), signal.SIGSEGV)
"""
BLOCKED = """
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int c, char **v) {
  int rank;
  char name[20];
  MPI_Init(&c, &v);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  sprintf(name, "ready.%d", rank);
  fclose(fopen(name, "w"));
  sleep(2);
  if (rank == 1) exit(3);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
}
"""


@dataclass(frozen=True)
class Ending:
    """One way for a job to end.

    Attributes:
        name: What happens.
        launchers: Under which it is tried.
        home: The reports that must come home, of four.
        lost: The launchers under which none can: they kill everything at once.
        program: What the program does.
        harm: What is done while it runs.
        aborts: Whether srun is told to end the job where a rank fails, as the launchers of MPI do.
    """

    name: str
    launchers: tuple[str, ...]
    home: int = 4
    program: tuple[str, ...] = ("waits",)
    harm: str = ""
    aborts: bool = False
    lost: tuple[str, ...] = ()


EVERY = tuple(LAUNCHERS)
ENDINGS = (
    Ending("it ends", EVERY, program=("ends",)),
    Ending("every rank exits with 3", EVERY, program=("exit",)),
    Ending("a rank crashes (SIGSEGV)", ("srun", "openmpi", "mpich"), program=("crashes",), aborts=True),
    Ending("a rank is killed (SIGKILL of what the launcher started)", EVERY, harm="kill rank", aborts=True),
    Ending("a rank's program is killed (SIGKILL)", EVERY, harm="kill program", aborts=True),
    Ending("scancel", ("srun",), harm="scancel"),
    Ending("scancel, the program saves its work", ("srun",), program=("waits", "saves"), harm="scancel"),
    Ending("scancel twice", ("srun",), program=("waits", "saves"), harm="scancel twice"),
    Ending("the time limit", ("srun",), program=("waits", "saves"), harm="limit"),
    Ending("srun -K, a rank exits with 3", ("srun",), program=("exits",), aborts=True),
    Ending("a rank exits with 3, the others are in a barrier", ("openmpi", "mpich"), program=("blocked",)),
    Ending("a rank crashes (SIGSEGV), the launcher ends the others", ("torchrun",), program=("crashes",)),
    Ending("the reports' disk is full", EVERY, home=0, program=("ends",), harm="small disk"),
    Ending("Ctrl-C, twice within a second", ("srun", "openmpi", "mpich"), harm="control c", lost=("srun",)),
)


@dataclass(frozen=True)
class Result:
    """What was measured: whole reports, seconds from the harm to the end of all processes, those left, the code, what
    was said."""

    home: int
    seconds: float
    left: tuple[str, ...]
    code: int
    said: str


def lacking(launcher: str) -> str | None:
    """Why there is no such launcher here; None where there is."""
    found = {"srun": why_no_slurm() is None, "openmpi": find_mpirun(), "mpich": find_hydra(), "torchrun": find_torch()}
    return None if found[launcher] else f"{LAUNCHERS[launcher]} is not installed here"


def play(ending: Ending, launcher: str, folder: Path, nsys: Path) -> Result:
    """Run one ending under one launcher, in an empty folder."""
    (folder / "train.py").write_text(PROGRAM)
    (folder / "tmp").mkdir()
    environment = {
        **os.environ,
        "ALLTRACE_NSYS": str(nsys),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "TMPDIR": str(folder / "tmp"),
    }
    ranks = [*_wrapper(), *_program(ending, launcher, folder)]
    if launcher == "torchrun":  # of one node: another node's would not hear of a rank that fails until its own ranks do
        command = [
            str(find_torch()),
            *"-m torch.distributed.run --standalone --nproc-per-node=4 --no-python".split(),
            *ranks,
        ]
    else:
        command = launch(launcher, 4, ranks, folder)
    if launcher == "openmpi":  # the kill a second after SIGTERM, as it is without being told otherwise
        at = command.index("odls_base_sigkill_timeout")
        del command[at - 1 : at + 2]
    if launcher == "srun":
        command[1:1] = [
            *(["--kill-on-bad-exit=1"] if ending.aborts else []),
            *(["--time=1"] if ending.harm == "limit" else []),
        ]
    with _disk(ending, folder):
        process, terminal = _started(command, folder, environment, in_terminal=ending.harm == "control c")
        began = _harm(ending, process, terminal, folder, environment)
        code, said = _ended(process, terminal, folder)
        left = _left(folder)
        while left and time.monotonic() < began + 60:
            time.sleep(0.1)
            left = _left(folder)
        seconds = time.monotonic() - began
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        home = sum(report_fault(p) is None for p in (folder / "reports").glob("*.nsys-rep"))
    return Result(home, seconds, tuple(left.values()), code, said)


def _wrapper() -> list[str]:
    return [sys.executable, "-m", "alltrace.cli.main", "capture", "exec", "--trace", "nvtx", "--job", "j", "--"]


def _program(ending: Ending, launcher: str, folder: Path) -> list[str]:
    if ending.program != ("blocked",):
        return [sys.executable, "train.py", *ending.program]
    (folder / "blocked.c").write_text(BLOCKED)
    compiler = shutil.which(f"mpicc.{launcher}") or "mpicc"
    subprocess.run([compiler, "blocked.c", "-o", "blocked"], cwd=folder, check=True)
    return ["./blocked"]


@contextmanager
def _disk(ending: Ending, folder: Path) -> Iterator[None]:
    """Makes the disk that the ending needs."""
    if ending.harm != "small disk":
        yield
        return
    (folder / "reports").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder / "reports"], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder / "reports"], check=True)


def _started(
    command: list[str], folder: Path, environment: dict[str, str], *, in_terminal: bool
) -> tuple[subprocess.Popen[bytes], int | None]:
    if not in_terminal:
        with (folder / "said").open("wb") as out:
            return (
                subprocess.Popen(
                    command, cwd=folder, env=environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL
                ),
                None,
            )
    outer, inner = pty.openpty()
    with_terminal = ["setsid", "--ctty", "--wait", *command]
    process = subprocess.Popen(with_terminal, cwd=folder, env=environment, stdin=inner, stdout=inner, stderr=inner)
    os.close(inner)
    return process, outer


def _harm(
    ending: Ending, process: subprocess.Popen[bytes], terminal: int | None, folder: Path, environment: dict[str, str]
) -> float:
    """Do what the ending says, and give the time at which it was done."""
    until = time.monotonic() + 60
    while len(list(folder.glob("ready.[0-9]"))) < 4:
        if time.monotonic() > until or process.poll() is not None:
            raise RuntimeError(f"the programs did not start: {(folder / 'said').read_text()}")
        time.sleep(0.05)
    time.sleep(1)

    def slurm(*arguments: str) -> None:
        subprocess.run(["scancel", "--state=RUNNING", *arguments], env=environment, check=True)

    doing: dict[str, Callable[[], object]] = {
        "kill rank": lambda: os.kill(_wrapper_of(folder), signal.SIGKILL),
        "kill program": lambda: os.kill(int((folder / "ready.1").read_text()), signal.SIGKILL),
        "scancel": slurm,
        "scancel twice": lambda: (slurm(), time.sleep(0.5), slurm()),
        "control c": lambda: (os.write(terminal or 0, b"\x03"), time.sleep(0.4), os.write(terminal or 0, b"\x03")),
        "limit": lambda: time.sleep(60),
    }
    doing.get(ending.harm, lambda: None)()
    return time.monotonic()


def _wrapper_of(folder: Path) -> int:
    """The process of rank 1 that the launcher has started."""
    pid = int((folder / "ready.1").read_text())
    found = pid
    while pid > 1:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        found = pid if words[1:3] == [b"-m", b"alltrace.cli.main"] else found
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return found


def _ended(process: subprocess.Popen[bytes], terminal: int | None, folder: Path) -> tuple[int, str]:
    if terminal is None:
        try:
            code = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        return code, (folder / "said").read_text(errors="replace")
    shown = b""
    with suppress(OSError):  # the terminal is closed by the last one
        while piece := os.read(terminal, 4096):
            shown += piece
    os.close(terminal)
    return process.wait(), shown.decode(errors="replace")


def _left(folder: Path) -> dict[int, str]:
    """Processes of the job that are there, by their ids."""
    found = {}
    mark = f"TMPDIR={folder}/tmp".encode()
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and mark in (entry / "environ").read_bytes():
                found[int(entry.name)] = shlex.join(
                    w.decode(errors="replace") for w in (entry / "cmdline").read_bytes().split(b"\0")
                )
    return found


@contextmanager
def cluster(folder: Path) -> Iterator[None]:
    """Slurm's two nodes, where it is installed, found by the commands that run meanwhile."""
    if why_no_slurm() is not None:
        yield
        return
    with two_nodes(folder) as environment:
        os.environ["SLURM_CONF"] = environment["SLURM_CONF"]
        yield


def table(results: dict[tuple[str, str], Result]) -> str:
    """The table of the manual."""
    lines = [
        "| ending | launcher | reports home, of 4 | seconds to the end of all processes | processes left |",
        "| --- | --- | --- | --- | --- |",
    ]
    for ending in ENDINGS:
        for launcher in ending.launchers:
            got = results.get((ending.name, launcher))
            if got is not None:
                lines.append(
                    f"| {ending.name} | {LAUNCHERS[launcher]} | {got.home} | {got.seconds:.0f} | {len(got.left)} |"
                )
    return "\n".join(lines)


def main() -> int:
    """Run the endings and show them, and write them into the manual where that is wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nsys", type=Path, default=os.environ.get("ALLTRACE_NSYS") or shutil.which("nsys"))
    parser.add_argument("--only", default="", help="a regular expression of `ending launcher`")
    parser.add_argument("--write", type=Path, help="the manual")
    parser.add_argument("--say", action="store_true", help="show what the jobs said")
    arguments = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as name, cluster(Path(name) / "slurm"):
        for ending in ENDINGS:
            for launcher in ending.launchers:
                if not re.search(arguments.only, f"{ending.name} {launcher}") or lacking(launcher):
                    continue
                folder = Path(name) / f"job{len(results)}"
                folder.mkdir()
                got = play(ending, launcher, folder, arguments.nsys)
                results[ending.name, launcher] = got
                least = 0 if launcher in ending.lost else ending.home
                fault = "" if got.home >= least and not got.left and got.seconds < 30 else "  <-- "
                told = f"{got.home} home, {got.seconds:.1f} s, {len(got.left)} left, code {got.code}{fault}"
                more = [got.said, *got.left] if arguments.say or fault else []
                print(f"{ending.name}, {launcher}: {told}", *more, sep="\n", flush=True)  # noqa: T201
    if arguments.write:
        text = arguments.write.read_text()
        head, _, rest = text.partition(BEGIN)
        arguments.write.write_text(f"{head}{BEGIN}\n\n{table(results)}\n\n{END}{rest.partition(END)[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
