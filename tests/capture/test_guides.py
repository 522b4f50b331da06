"""The commands of every guide, in its order, on what the guide begins with: launchers and profilers are real, jobs
smaller.

Others run what the guides have `capture script` write: `scripts/test_under_launchers.py` (Slurm, PBS, mpirun, torchrun)
and `scripts/test_mounts.py` (Pyxis and Kubernetes); `test_ray_actors.py` has the actors of Ray,
`test_launcher_matrix.py` every way that a job can end.
"""

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from tests.capture.launching import find_hydra, find_mpirun, find_torch
from tests.hang_writing import HangFault, Job, Layout, write_job
from tests.share.test_files import dump
from tests.slurm_cluster import two_nodes, why_no_slurm

from alltrace.capture.check import report_fault
from alltrace.cli.main import main
from alltrace.synth import write_run

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="profilers are wrapped on Linux")]
ROOT = Path(__file__).resolve().parents[2]
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
LAUNCHERS = ("srun", "mpiexec", "mpirun", "torchrun")

SMALLER = {
    "-N64 --ntasks-per-node=8": "-N2 --ntasks-per-node=1",
    "-N64 --ntasks-per-node=1": "-N2 --ntasks-per-node=1",
    "srun alltrace": "srun -N2 -n2 alltrace",
    "-n 16 --ppn 4": "-n 2 --ppn 2",
    "mpirun -np 16": "mpirun --oversubscribe -np 2",
    "--nproc-per-node 8": "--nproc-per-node 2",
    "--rank 11": "--rank 1",
}
MEANT = {
    "RUN": "run",
    "/shared/reports": "reports",
    '"select ..."': '"select count(1) from kernels"',
    "report.nsys-rep": "report.sqlite",
}
NOT_HERE = {
    "vllm": "an engine for inference, which needs a GPU",
    "sglang": "likewise",
    "/shared/reports -- python": "the value of a runtime_env: tests/capture/test_ray_actors.py",
}

PROGRAM = """
import time
from pathlib import Path
from alltrace.instrument import annotate, steps
with steps() as window:
    for n in range(6 if not Path("until").exists() else 10_000):
        with annotate(f"step {n}"): time.sleep(0.02)
        window.step()
        if Path("stop").exists(): break
"""


def commands(page):
    """The command lines of a guide, in its order: of blocks without a language, and of code in sentences and tables."""
    text = page.read_text(encoding="utf-8")
    lines = []
    for language, block, code in re.findall(r"^```(\w*)\n(.*?)^```$|`([^`\n]+)`", text, re.MULTILINE | re.DOTALL):
        if block and not language:
            lines += block.replace("\\\n", " ").splitlines()
        elif code.startswith(("alltrace ", *(f"{name} " for name in LAUNCHERS))) and not re.fullmatch(
            r"alltrace capture \w+", code
        ):
            lines.append(code)  # and not the name of a verb
    lines = [line.partition(" #")[0].strip() for line in lines]
    runnable = [line for line in lines if len(line.split()) > 2 and "..." not in line.replace("select ...", "")]
    for pair in (SMALLER | MEANT).items():
        runnable = [line.replace(*pair) for line in runnable]
    return [line for line in runnable if not any(word in line for word in NOT_HERE)]


def begin(page, folder):
    """What there is before the first command."""
    write_run("tiny", folder / "reports", ranks=12, hosts=2, steps=13)
    shutil.copy(folder / "reports/tiny_rank0.sqlite", folder / "report.sqlite")
    write_run("tiny", folder / "traces", ranks=8, hosts=2, steps=13, ideal=True, format="kineto")
    for name, seed in (("before", 1), ("after", 2)):
        write_run("tiny", folder / name, seed=seed)
    (folder / "dumps").mkdir()
    for rank in range(2):
        dump(folder / f"dumps/nccl_trace_rank_{rank}", rank)
    write_job(folder / "job", Job(Layout(), HangFault("stuck", (3,), 4, 1)))
    shutil.copy(ROOT / "tests/recorded/nccl_tests.txt", folder / "all_reduce.out")
    (folder / "train.py").write_text(PROGRAM)
    for budget in re.findall(r"^```toml\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        (folder / "budget.toml").write_text(budget)


@pytest.fixture
def here(tmp_path, monkeypatch, bare_environment):
    """An empty folder with the programs of a login node on the path."""
    tools, folder = tmp_path / "tools", tmp_path / "here"
    folder.mkdir()
    tools.mkdir()
    programs = {
        "alltrace": f"{sys.executable} -m alltrace.cli.main", "python": sys.executable, "mpiexec": find_hydra(),
        "mpirun": find_mpirun(),
        "torchrun": find_torch() and f"{find_torch()} -m torch.distributed.run",
    }  # fmt: skip
    for name, command in programs.items():
        if command:
            (tools / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
            (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr("os.sched_getaffinity", lambda _process: {0}, raising=False)
    monkeypatch.chdir(folder)
    return folder


def launches(page):
    return any(line.split()[0] in LAUNCHERS for line in commands(page))


@pytest.mark.parametrize(
    "page", [pytest.param(page, id=page.stem, marks=() if launches(page) else pytest.mark.nightly) for page in GUIDES]
)
def test_every_command_of_a_guide_runs_in_its_order(page, here, tmp_path, request, monkeypatch):
    lines = commands(page)
    begin(page, here)
    if not next((line for line in lines if re.search(r"\brun\b", line)), "").startswith("alltrace import"):
        assert main(["import", "reports/", "-o", "run"]) == 0
    with contextlib.ExitStack() as cluster:
        if launches(page):
            pytest.importorskip("nvtx")
            monkeypatch.setenv("ALLTRACE_NSYS", str(request.getfixturevalue("nsys")))
            if why_no_slurm() is None and any(line.startswith("srun ") for line in lines):
                monkeypatch.setenv("SLURM_CONF", cluster.enter_context(two_nodes(tmp_path / "slurm"))["SLURM_CONF"])
        armed = None
        for line in lines:
            program = line.split()[0]
            if program in LAUNCHERS:
                armed = launched(line, here)
            elif line.startswith("alltrace capture now"):
                windowed(line, armed, here)
            elif line.startswith("alltrace ui "):
                opened(line)
            elif program == "alltrace":
                words = [file for word in shlex.split(line)[1:] for file in matching(word, here)]
                if words[0] == "import":
                    shutil.rmtree(words[words.index("-o") + 1], ignore_errors=True)
                assert main(words) in ((0, 1) if words[0] == "check" else (0,)), line
            elif program == "export":
                write_run("tiny", here / "simulated", logs=True)
                (here / "simulated/logs").rename(here / "logs")


def matching(word, folder):
    """What a shell makes of a word."""
    return sorted(str(path.relative_to(folder)) for path in folder.glob(word)) if "*" in word else [word]


def launched(line, folder):
    """Run a command under its launcher, to the reports of both ranks; one that is armed goes on."""
    if line.startswith("srun ") and why_no_slurm() is not None:
        pytest.skip(why_no_slurm())
    if shutil.which(line.split()[0]) is None:
        pytest.skip(f"no {line.split()[0]} on this machine")
    if " capture exec " in line or " capture arm " in line:
        shutil.rmtree(folder / "reports", ignore_errors=True)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "cwd": folder}
    if " capture arm " in line:
        (folder / "until").touch()
        return subprocess.Popen(line, shell=True, **pipes)
    done = subprocess.run(line, shell=True, check=False, timeout=180, **pipes)
    if " capture doctor" in line:  # it says what this machine lacks
        assert "nsys" in done.stdout
        return None
    assert done.returncode == 0, done.stdout
    # `--output` has a default, as in the guides that give none
    left = [*folder.glob("*/*.nsys-rep"), *folder.glob("*.nsys-rep")]
    assert [report_fault(report) for report in left] == [None, None], done.stdout
    return None


def windowed(line, armed, folder):
    """Ask an armed job for a window, and end it."""
    assert armed is not None
    until = time.monotonic() + 120
    while (asked := subprocess.run(line, shell=True, capture_output=True, text=True, check=False)).returncode:
        if armed.poll() is not None or time.monotonic() > until:
            armed.kill()
            pytest.fail(
                f"the job cannot be asked: {asked.stderr}\nThe job's words:\n{armed.communicate(timeout=60)[0]}"
            )
        time.sleep(0.5)
    time.sleep(5)
    (folder / "stop").touch()
    told, _ = armed.communicate(timeout=120)
    assert armed.returncode == 0, told
    reports = list(
        (folder / "reports").glob("*.nsys-rep")
    )  # of this window, and of one that the rule asks for on a busy machine
    assert {re.search(r"_rank(\d)", report.name)[1] for report in reports} == {"0", "1"}, told
    assert {report_fault(report) for report in reports} == {None}, told


def opened(line):
    """Open the page, as a browser would."""
    command = [*shlex.split(line), "--no-browser", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True) as server:
        address = next(found[0] for text in server.stdout if (found := re.search(r"http://\S+token=\S+", text)))
        with urllib.request.urlopen(address, timeout=60) as answer:
            assert b"<title>alltrace" in answer.read()
        server.send_signal(signal.SIGTERM)


def test_every_guide_has_commands_that_are_run():
    assert [page.name for page in GUIDES if not commands(page)] == []
