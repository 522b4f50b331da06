"""Every launcher and every way to fail: which reports come home, what is said of those that do not, and the exit
code."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.capture.launching import NODES, PROGRAM, find_hydra, find_mpirun, find_torch, launch, processes
from tests.slurm_cluster import two_names, two_nodes, why_no_slurm

from alltrace.capture.check import report_fault

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="profilers are wrapped on Linux"),
]
ROOT = Path(__file__).resolve().parents[2]
ALLTRACE = [sys.executable, "-m", "alltrace.cli.main"]
ALL, PAIR = (0, 1, 2, 3), (0, 1)
SAID = re.compile(r"alltrace(?: capture)?: (.*?)(?=alltrace: |alltrace capture: |$)", re.MULTILINE)
STEPS = ("steps",)
WAIT = ("wait", "30")


@dataclass(frozen=True)
class Case:
    """One line of the table.

    `reports` are the ranks whose report comes home; `code` is the launcher's exit code, None where it has a way of its
    own to end; `said` is everything that the ranks say, without the folder; `lost` is what `info` notes of missing
    ranks; `ranges` are the NVTX ranges of each rank; `ran` are the ranks whose program started, None for all. Where it
    is `unsure`, each rank leaves a report or says that there is none. `older`: rank 1's report is there already.
    `ended` is the exit code of each rank's wrapper, None where it is not looked at.
    """

    name: str
    launcher: str
    options: tuple[str, ...] = ()
    program: tuple[str, ...] = STEPS
    ranks: int = 4
    reports: tuple[int, ...] = ALL
    code: int | None = 0
    said: tuple[str, ...] = ()
    lost: str | None = None
    ranges: int | None = None
    ran: tuple[int, ...] | None = None
    shell: bool = False
    harm: str | None = None
    older: bool = False
    unsure: bool = False
    ended: int | None = None


def whole(name, launcher, **more):
    return Case(name, launcher, ranges=13, **more)  # six of the program, seven of steps


def missing(rank, *why):
    return "; ".join([f"rank {rank}: no complete report REPORT {rank}", *why])


NOTES_CODE = 'trap : TERM USR1; "$0" "$@"; c=$?; echo $c >"ended.$SLURM_PROCID"; exit $c'
ALONE = (
    "rank 0: no launcher variables are set, so this process is rank 0 of 1; start it under srun, mpiexec, torchrun,"
    " jsrun or flux"
)
OUTSIDE = "--ranks names only 8-9, but the world has the ranks 0-1; nothing would be profiled"
NEVER = "the recording never started, because the program did not reach step 70 of `alltrace.instrument.steps`"
NEVER += "; record programs without steps with --delay and --duration"
ABSENT = "./no-such-program: there is no such program; nothing was run"
PLAIN = "./plain: it cannot be executed; nothing was run"
EMPTY = "capture exec needs a program after a lone --, such as `alltrace capture exec -- python train.py`"
KILLED = "rank 1: the profiler was ended by SIGKILL"
RAW = "a raw capture was left at tmp/alltrace-{0}-.../nsys-report-....qdstrm; "
RAW += "`alltrace capture recover tmp/alltrace-{0}-...` may save it"
FULL, FULL_TMP = "only N bytes are free in reports", "only N bytes are free in tmp/alltrace-0-..."
UNSTARTED = "the profiler ended with 1 before the program started (Failed to probe the process (sync))"
READ_ONLY = "reports: no report can be written there (Read-only file system); give another --output"
RUNS = f"{READ_ONLY}; the program runs unprofiled"
NO_FOLDER = "job/x: no report can be written there (Not a directory); give another --output"
EXISTS = "REPORT 1: the report already exists; give another --output or --job, or --force to replace it"
NO_NSYS = "--nsys is no/nsys, which cannot be run; expected the program nsys or its folder"

CASES = [
    # launchers
    whole("Slurm", "srun"),
    whole("Open MPI", "openmpi"),
    whole("MPICH", "mpich"),
    whole("Open MPI in a Slurm batch job", "sbatch+openmpi"),
    whole("torchrun in a Slurm batch job", "sbatch+torchrun-like"),
    whole("PALS", "pals"),
    whole("JSM", "jsm", ranks=2, reports=PAIR),
    whole("Flux", "flux", ranks=2, reports=PAIR),
    whole("MVAPICH2", "mvapich2", ranks=2, reports=PAIR),
    whole("torchrun with gloo", "torchrun", program=("gloo",)),
    whole("Slurm, shell form", "srun", shell=True),
    whole("Open MPI, shell form", "openmpi", shell=True, ranks=2, reports=PAIR),
    whole("MPICH, shell form", "mpich", shell=True, ranks=2, reports=PAIR),
    whole("PALS, shell form", "pals", shell=True, ranks=2, reports=PAIR),
    whole("no launcher", "none", ranks=1, reports=(0,), said=(ALONE,)),
    # which ranks
    whole("some ranks", "srun", options=("--ranks", "1,3"), reports=(1, 3), lost="ranks 0, 2: no report"),
    whole("the first of each node", "openmpi", options=("--ranks", "first-local"), reports=(0, 2),
        lost="ranks 1, 3: no report"),
    whole("one of each node, shell form", "mpich", options=("--per-node", "1"), reports=(0, 2), shell=True,
        lost="ranks 1, 3: no report"),
    whole("ranks below a number", "pals", options=("--cutoff", "1"), reports=(0,), lost="ranks 1, 2, 3: no report"),
    Case("ranks outside the world", "srun", options=("--ranks", "8-9"), ranks=2, reports=(), code=2, ran=(),
        said=(OUTSIDE, OUTSIDE)),
    # when
    Case("delay and duration", "pals", ("--delay", "0.3", "--duration", "0.5"), ("wait", "2.5"), ranks=2, reports=PAIR,
        code=6),
    Case("a window of steps", "mpich", ("--steps", "2:4", "--steps-by", "nvtx"), ranks=2, reports=PAIR, ranges=5),
    Case("steps that did not come", "srun", ("--steps", "70:75", "--steps-by", "nvtx"), ranks=2, reports=(),
        said=(missing(0, NEVER), missing(1, NEVER))),
    # the program
    Case("it fails", "srun", program=("exit", "3"), ranks=2, reports=PAIR, code=3),
    Case("one rank fails, Slurm", "srun", program=("exit", "3", "1"), ranks=2, reports=PAIR, code=3),
    Case("one rank fails, Open MPI", "openmpi", program=("exit", "3", "1"), ranks=2, reports=PAIR, code=3),
    Case("one rank fails, MPICH", "mpich", program=("exit", "3", "1"), ranks=2, reports=PAIR, code=3),
    Case("it crashes", "srun", program=("kill", "11"), ranks=2, reports=PAIR, code=139),
    Case("it leaves a daemon", "none", program=("fork",), ranks=1, reports=(0,), said=(ALONE,)),
    Case("it does nothing", "none", program=("nothing",), ranks=1, reports=(0,), said=(ALONE,), ran=()),
    Case("it is not there", "srun", program=("no such",), ranks=2, reports=(), code=127, ran=(), said=(ABSENT, ABSENT)),
    Case("it cannot be executed", "pals", program=("not executable",), ranks=2, reports=(), code=126, ran=(),
        said=(PLAIN, PLAIN)),
    Case("there is none", "pals", program=(), ranks=2, reports=(), code=2, ran=(), said=(EMPTY, EMPTY)),
    # signals
    Case("SIGTERM to Open MPI", "openmpi", program=WAIT, ranks=2, reports=PAIR, code=None, harm="term"),
    Case("SIGTERM to PALS, shell form", "pals", program=WAIT, ranks=2, reports=PAIR, code=7, harm="term", shell=True),
    Case("SIGINT to MPICH", "mpich", program=WAIT, ranks=2, reports=PAIR, code=None, harm="int"),
    Case("scancel", "sbatch+srun", program=WAIT, ranks=2, reports=PAIR, code=None, harm="scancel", ended=7),
    Case("scancel, killed by it", "sbatch+srun", program=("sleep",), ranks=2, reports=PAIR, code=None, harm="scancel",
        ended=143),
    Case("scancel --signal=USR1", "sbatch+srun", program=WAIT, ranks=2, reports=PAIR, code=8, harm="scancel USR1",
        ended=8),
    Case("scancel, shell form", "sbatch+srun", program=WAIT, ranks=2, reports=PAIR, code=None, harm="scancel", ended=7,
        shell=True),
    Case("SIGKILL of nsys' front end", "srun", ("--grace", "5"), WAIT, 2, PAIR, 6, harm="kill front end",
        said=(KILLED, "rank 1: report REPORT 1, N bytes")),
    Case("SIGKILL of nsys' front end, Open MPI", "openmpi", ("--grace", "5"), WAIT, 2, PAIR, 6, harm="kill front end",
        said=(KILLED, "rank 1: report REPORT 1, N bytes")),
    Case("SIGKILL of nsys' front end, Open MPI, shell form", "openmpi", (), WAIT, 2, PAIR, 6, harm="kill front end",
        shell=True),
    Case("SIGKILL of nsys' agent", "srun", ("--grace", "5"), WAIT, 2, (0,), 6, harm="kill agent",
        said=(missing(1, RAW.format(1)),)),
    Case("SIGKILL of nsys' agent, shell form", "openmpi", (), WAIT, 2, (0,), 6, harm="kill agent",
        said=(missing(1, "what is left is in tmp/alltrace-1-..."),), shell=True),
    Case("SIGKILL of nsys' launcher", "pals", ("--grace", "3"), WAIT, 2, PAIR, 6, harm="kill launcher", unsure=True),
    Case("SIGKILL of the program", "pals", (), WAIT, 2, PAIR, 137, harm="kill program"),
    Case("SIGKILL of nsys' agent, an older report", "pals", ("--force",), WAIT, 2, (0,), 6, harm="kill agent",
        older=True, said=(missing(1, RAW.format(1)),)),
    # where it is written
    Case("a full disk", "pals", (), ("big",), 2, (), 0,
        said=(missing(0, FULL, RAW.format(0)), missing(1, FULL, RAW.format(1))), harm="small disk"),
    Case("a full disk, --strict", "none", ("--strict",), ("big",), 1, (), 4,
        said=(ALONE, missing(0, FULL, RAW.format(0))), harm="small disk"),
    Case("a full temporary folder", "none", (), ("big",), 1, (), 1, ran=(),
        said=(ALONE, missing(0, UNSTARTED, FULL_TMP)), harm="small tmp"),
    Case("a read-only folder", "pals", (), STEPS, 2, (), 3, ran=(), said=(READ_ONLY, READ_ONLY), harm="read-only"),
    Case("a read-only folder, run all the same", "pals", ("--on-error", "run"), STEPS, 2, (), 0, said=(RUNS, RUNS),
        harm="read-only"),
    Case("a file in the folder's place", "srun", ("-o", "job/x"), STEPS, 2, (), 3, ran=(), said=(NO_FOLDER, NO_FOLDER),
        harm="file"),
    Case("a report of that name exists", "pals", (), STEPS, 2, (0,), 3, ran=(0,), said=(EXISTS,), older=True),
    Case("a report of that name is replaced", "pals", ("--force",), STEPS, 2, PAIR, 0, older=True),
    Case("no nsys", "mpich", ("--nsys", "no/nsys"), STEPS, 2, (), 2, ran=(), said=(NO_NSYS, NO_NSYS)),
]  # fmt: skip


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """Gives the variable with which Slurm's commands find the cluster."""
    why = why_no_slurm()
    if why is not None:
        yield lambda: pytest.skip(why)
        return
    running = two_nodes(tmp_path_factory.mktemp("slurm"))
    found = []

    def start():
        found[:] = found or [running.__enter__()["SLURM_CONF"]]
        return found[0]

    yield start
    if found:
        running.__exit__(None, None, None)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def why_not(launcher):
    """Why there is no such launcher here; None where there is."""
    lacking = {
        "openmpi": find_mpirun() is None and "no mpirun on this machine",
        "mpich": find_hydra() is None and "no mpiexec.hydra on this machine",
        "torchrun": find_torch() is None and "no PyTorch: set ALLTRACE_TORCH_PYTHON",
    }
    return lacking.get(launcher.rpartition("+")[2]) or None


@contextmanager
def prepared(case, folder):
    """Makes the disk that the case needs."""
    reports = folder / "reports"
    mounts = {
        "small disk": (reports, "size=64k"),
        "small tmp": (folder / "tmp", "size=64k"),
        "read-only": (reports, "ro"),
    }
    if case.older:
        reports.mkdir(exist_ok=True)
        (reports / f"j_rank1_on_{host(case, 1)}.nsys-rep").write_bytes(b"older")
    if case.harm == "file":
        (folder / "job").write_text("")
    if case.harm not in mounts:
        yield
        return
    at, options = mounts[case.harm]
    at.mkdir(exist_ok=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", at], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", at], check=True)


def host(case, rank):
    """The node that a rank is on."""
    here = socket.gethostname().split(".")[0]
    if case.launcher == "none" or not (two_names() or case.launcher.endswith("srun")):
        return here
    return NODES[rank >= case.ranks // 2]


def do_harm(case, folder, started):
    """What happens while every program runs; rank 1 is the one that is hit."""
    until = time.monotonic() + 60
    while len(list((folder).glob("ready.*[0-9]"))) < case.ranks:
        assert time.monotonic() < until, "the programs did not start"
        if started.poll() is not None:
            return
        time.sleep(0.05)
    if case.harm in ("term", "int"):
        started.send_signal(signal.SIGTERM if case.harm == "term" else signal.SIGINT)
    elif case.harm == "scancel":
        subprocess.run(["scancel", "--state=RUNNING", "--name=job.sbatch"], check=True)
    elif case.harm == "scancel USR1":
        subprocess.run(["scancel", "--signal=USR1", "--state=RUNNING", "--name=job.sbatch"], check=True)
    else:
        who = case.harm.removeprefix("kill ")
        parts = {**processes(1, folder / "tmp"), "program": int((folder / "ready.1").read_text())}
        os.kill(parts[who], signal.SIGKILL)
        time.sleep(0.3)
        (folder / "go").write_text("")


@pytest.fixture
def run(bare_environment, nsys, slurm, cache, tmp_path, monkeypatch):
    """Runs one case and gives its exit code and what was said."""
    pytest.importorskip("nvtx")
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "plain").write_text("")
    for name, value in {
        "ALLTRACE_CACHE_DIR": str(cache),
        "ALLTRACE_NSYS": str(nsys),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PYTHONPATH": f"{os.environ['PYTHONPATH']}:{ROOT}",
    }.items():
        monkeypatch.setenv(name, value)

    def call(case):
        why = why_not(case.launcher)
        if why:
            pytest.skip(why)
        if "srun" in case.launcher or "sbatch" in case.launcher:
            monkeypatch.setenv("SLURM_CONF", slurm())
        wrapper = [*ALLTRACE, "capture", "exec", "--trace", "nvtx", "--job", "j", *case.options]
        if case.shell:
            text = subprocess.run([*wrapper, "--emit-sh"], capture_output=True, text=True, check=True).stdout
            (tmp_path / "capture.sh").write_text(text)
            wrapper = ["sh", "capture.sh"]
        else:
            wrapper.append("--")
        programs = {
            (): [],
            ("nothing",): ["true"],
            ("no such",): ["./no-such-program"],
            ("not executable",): ["./plain"],
        }
        python = find_torch() if case.launcher == "torchrun" else sys.executable
        program = programs.get(case.program, [python, "train.py", *case.program])
        wrapped = [*wrapper, *program]
        if case.ended is not None:
            wrapped = ["sh", "-c", NOTES_CODE, *wrapped]
        command = launch(case.launcher, case.ranks, wrapped, tmp_path)
        with prepared(case, tmp_path):
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": tmp_path}
            started = subprocess.Popen(command, **pipes)
            if case.program in (WAIT, ("sleep",)):
                do_harm(case, tmp_path, started)
            try:
                _, err = started.communicate(timeout=120)
            except subprocess.TimeoutExpired:
                started.kill()  # else it is another test that is told of a process and pipes that nobody closed
                started.communicate()
                raise
            if case.launcher.startswith("sbatch"):
                until = time.monotonic() + 120  # as long as other launchers have
                while subprocess.run(["squeue", "-h"], capture_output=True, check=True).stdout:
                    assert time.monotonic() < until, "the job did not end"
                    time.sleep(0.2)
                err = (tmp_path / "batch.err").read_text()
            found = {p.name: report_fault(p) for p in (tmp_path / "reports").glob("*.nsys-rep")}
        return started.returncode, found, err

    return call


def said(case, text, folder):
    """The lines of alltrace, without what differs from one time to the next."""
    lines = []
    for line in SAID.findall(text):
        plain = line.strip().replace(f"{folder}/", "")
        plain = re.sub(
            r"reports/j_rank(\d)_on_([\w-]+)\.nsys-rep",
            lambda m: f"REPORT {m[1]}" if host(case, int(m[1])) == m[2] else m[0],
            plain,
        )
        plain = re.sub(r"\b\d+ bytes", "N bytes", plain)
        lines.append(re.sub(r"(alltrace-\d+-|nsys-report-)\w+", r"\1...", plain))
    return sorted(lines)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_what_comes_home_and_what_is_said_of_the_rest(run, case, nsys, tmp_path):
    code, found, err = run(case)
    lines = said(case, err, tmp_path)
    names = {rank: f"j_rank{rank}_on_{host(case, rank)}.nsys-rep" for rank in range(case.ranks)}
    home = {name for name, fault in found.items() if fault is None}
    if case.unsure:
        lost = {rank for rank in names if any(line.startswith(missing(rank)) for line in lines)}
        assert home == {name for rank, name in names.items() if rank not in lost}
    else:
        assert home == {names[rank] for rank in case.reports}
        assert lines == sorted(case.said)
    assert case.code is None or code == case.code
    ran = {int(p.name[4:]) for p in tmp_path.glob("ran.[0-9]")}
    assert ran == set(range(case.ranks) if case.ran is None else case.ran)
    if case.ended is not None:
        codes = {p.name: int(p.read_text()) for p in tmp_path.glob("ended.*")}
        assert codes == {f"ended.{rank}": case.ended for rank in range(case.ranks)}
    if case.ranges is not None:
        info(case, nsys, tmp_path)


def info(case, nsys, folder):
    """Asks `alltrace info` of the reports."""
    asked = [*ALLTRACE, "info", "reports", "--jobs", "1", "--format", "json"]
    told = json.loads(subprocess.run(asked, cwd=folder, capture_output=True, text=True, check=True).stdout)
    each = max(1, case.ranks // 2)
    assert [r["rank"] for r in told["rows"]] == list(case.reports)
    assert [r["ranges"] for r in told["rows"]] == [case.ranges] * len(case.reports)
    assert [r["host"] for r in told["rows"]] == [host(case, r) for r in case.reports]
    assert [r["local_rank"] for r in told["rows"]] == [r % each for r in case.reports]
    assert [n for n in told["notes"] if "no report" in n] == ([case.lost] if case.lost else [])


def test_the_manual_has_this_table():
    lines = [
        "| case | started by | options | reports of ranks | exit code | what is said |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for case in CASES:
        told = "a report or that there is none" if case.unsure else "; ".join(dict.fromkeys(case.said)) or "nothing"
        home = "those that say nothing" if case.unsure else ", ".join(map(str, case.reports)) or "none"
        code = "the launcher's" if case.code is None else case.code
        options = f"`{' '.join(case.options)}`" if case.options else ""
        lines.append(f"| {case.name} | {case.launcher} by {case.ranks} | {options} | {home} | {code} | {told} |")
    text = (ROOT / "docs" / "capture.md").read_text()
    table = "\n".join(lines)
    assert table in text, table
