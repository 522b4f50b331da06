"""Rendered scripts with a real launcher and a real Nsight Systems, to what alltrace says of the reports."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from tests.capture.launching import NODES, find_hydra, find_torch, remote
from tests.slurm_cluster import two_nodes, why_no_slurm

from alltrace.capture.scripts.registry import render
from alltrace.capture.scripts.settings import Job

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="profilers are wrapped on Linux"),
]
PROGRAM = """import sys, time, nvtx
from alltrace.instrument import annotate, steps
assert sys.argv[1:] == ["a b", "$HOME", "it's"], sys.argv
with steps() as window:
    for n in range(6):
        with annotate(f"step {n}"): time.sleep(0.01)
        window.step()
"""


@pytest.fixture
def start(bare_environment, nsys, tmp_path, monkeypatch):
    """Renders a script, runs it, and gives what `info` says of the folder of reports."""
    pytest.importorskip("nvtx")
    tools = tmp_path / "bin"
    tools.mkdir()
    alltrace = tools / "alltrace"
    alltrace.write_text(f'#!/bin/sh\nexec {sys.executable} -m alltrace.cli.main "$@"\n')
    alltrace.chmod(0o755)
    (tmp_path / "train.py").write_text(PROGRAM)
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("JOB_ID", "77")

    def run(target, submit=("bash",), **changes):
        values = {
            "job.nodes": 1,
            "job.ranks_per_node": 2,
            "job.output": "all reports",
            "workload.command": [sys.executable, "train.py"],
            "workload.arguments": ["a b", "$HOME", "it's"],
            "profiler.trace": "nvtx",
            "profiler.path": str(nsys),
            "environment": {"PYTHONPATH": os.environ["PYTHONPATH"]},
            **{name.replace("__", "."): value for name, value in changes.items()},
        }
        script = tmp_path / "job.sh"
        script.write_text(render(target, Job(values)))
        done = subprocess.run([*submit, script], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=180)
        assert done.returncode == 0, done.stderr
        (folder,) = (tmp_path / "all reports").iterdir()
        info = [alltrace, "info", folder, "--jobs", "1", "--format", "json"]
        found = subprocess.run(
            info, env={**os.environ, "ALLTRACE_NSYS": str(nsys)}, capture_output=True, text=True, check=True
        )
        return [(r["rank"], r["local_rank"], r["ranges"]) for r in json.loads(found.stdout)["rows"]]

    return run


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun on this machine")
@pytest.mark.parametrize("wrapper", ["alltrace", "shell"])
def test_mpirun(start, wrapper):
    ranks = start("mpi", mpi__arguments=["--oversubscribe"], profiler__wrapper=wrapper)
    assert ranks == [(0, 0, 13), (1, 1, 13)]  # six of the program, seven of steps


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun on this machine")
def test_the_window_of_steps_by_an_nvtx_range(start):
    changes = {"profiler__capture_range": "nvtx:step 3@alltrace", "mpi__arguments": ["--oversubscribe"]}
    assert start("mpi", **changes) == [(0, 0, 2), (1, 1, 2)]  # that of steps, and the one of the same name in it


def test_torchrun(start, tmp_path):
    python = find_torch()
    if python is None:
        pytest.skip("no PyTorch: set ALLTRACE_TORCH_PYTHON")
    (tmp_path / "bin" / "torchrun").write_text(f'#!/bin/sh\nexec {python} -m torch.distributed.run "$@"\n')
    (tmp_path / "bin" / "torchrun").chmod(0o755)
    assert start("torchrun", workload__command=[python, "train.py"]) == [
        (0, 0, 13),
        (1, 1, 13),
    ]  # six of the program, seven of steps


def test_sbatch(start, tmp_path, monkeypatch):
    why = why_no_slurm()
    if why is not None:
        pytest.skip(why)
    with two_nodes(tmp_path / "slurm") as environment:
        monkeypatch.setenv("SLURM_CONF", environment["SLURM_CONF"])
        ranks = start("slurm", ("sbatch", "--wait"), job__nodes=2, job__ranks_per_node=1, job__minutes=2)
    assert ranks == [(0, 0, 13), (1, 0, 13)]


QSUB = """#!/bin/bash
# Starts a job on two nodes as PBS does: in the home folder, with what the script itself sets and the variables of PBS
set -euo pipefail
grep -qx '#PBS -l select=2' "$1" && grep -qx '#PBS -l walltime=01:00:00' "$1"
! grep '^#PBS' "$1" | grep -vE '^#PBS (-N [^ ]+|-l [a-z]+=[^ ]+|-j oe)$'
printf '%s\\n' NODES >"$HERE/nodes"
mkdir -p "$HERE/home" && cd "$HERE/home"
export PBS_JOBID=7.server PBS_O_WORKDIR="$HERE" PBS_NODEFILE="$HERE/nodes"
exec env -i HOME="$PWD" PATH=/usr/bin:/bin $(env | grep -E '^(PBS|TMPDIR)') bash "$1"
"""


def test_qsub(start, tmp_path, monkeypatch):
    hydra = find_hydra()
    if hydra is None:
        pytest.skip("no mpiexec.hydra on this machine")
    tools = tmp_path / "bin"
    (tools / "qsub").write_text(QSUB.replace("NODES", " ".join(NODES)))
    (tools / "mpiexec").write_text(
        f'#!/bin/sh\nexec {hydra} -launcher ssh -launcher-exec {remote(tmp_path)} -localhost 127.0.0.1 "$@"\n'
    )
    for name in ("qsub", "mpiexec"):
        (tools / name).chmod(0o755)
    monkeypatch.setenv("HERE", str(tmp_path))
    ranks = start("pbs", ("qsub",), job__nodes=2, job__ranks_per_node=1, job__setup=f'export PATH="{tools}:$PATH"')
    assert ranks == [(0, 0, 13), (1, 0, 13)]
    assert sorted(p.name for p in (tmp_path / "all reports").iterdir()) == ["7"]
