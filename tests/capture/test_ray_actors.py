"""Actors of Ray, each of which the wrapper is put around: who they are, also where one was started again."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.capture.conftest import SOURCE, agents
from tests.capture.launching import find_torch

from alltrace.capture.identity import find_identity
from alltrace.capture.plan import Request
from alltrace.capture.ray_actors import ray_variables
from alltrace.capture.selection import NAME, report_name
from alltrace.capture.variables import RAY_NUMBER
from alltrace.run.importer import import_reports

PROGRAM = ["python", "default_worker.py", "--session-name=session_2026-11-25_16-59-25_463205_30101"]
WORKER = {
    "RAY_RAYLET_PID": "7",
    "RAY_JOB_ID": "01000000",
    "SLURM_PROCID": "0",
    "SLURM_NTASKS": "1",
    "SLURM_JOB_ID": "9",
}


def place(tmp_path, *, program=PROGRAM, **variables):
    environment = {**WORKER, **variables}
    return find_identity({**environment, **ray_variables(Request(output=str(tmp_path)), program, environment)}, "n0")


def test_an_actor_has_the_rank_of_its_own_variables_also_started_again(tmp_path):
    who = place(tmp_path, RANK="3", WORLD_SIZE="4", RAY_LOCAL_RANK="1", RAY_LOCAL_WORLD_SIZE="2")
    assert (who.launcher, who.rank, who.local_rank, who.world_size, who.local_size) == ("Ray", 3, 1, 4, 2)
    assert who.job == "2026-11-25_16-59-25_463205_30101-01000000"
    jobs = [place(tmp_path / "2", RANK="3", WORLD_SIZE="4").job for _ in range(3)]
    assert [re.sub(".*01000000", "", job) for job in jobs] == ["", "-restart1", "-restart2"]
    assert place(tmp_path / "2", RANK="2", WORLD_SIZE="4").restart == ""
    assert place(tmp_path / "2", RANK="3", WORLD_SIZE="4", ALLTRACE_ROLE="critic").restart == ""


def test_workers_that_do_not_know_their_rank_and_other_processes(tmp_path):
    assert [place(tmp_path).rank for _ in range(3)] == [0, 1, 2]
    for template, name in ((NAME, "job_worker1_on_n0"), ("x{rank}", "x1_worker1")):
        who = place(tmp_path / "2")._replace(rank=1)
        assert report_name(template, who, {RAY_NUMBER: "1"}, "job") == name
    assert place(tmp_path / "3", program=["python", "train.py"], RANK="3", WORLD_SIZE="4").launcher == "Slurm"
    assert ray_variables(Request(output=str(tmp_path / "3")), PROGRAM, {"RANK": "3"}) == {}


@pytest.fixture
def actors(bare_environment, tmp_path):
    """Runs four actors of a real Ray; gives what the driver prints."""
    python = os.environ.get("ALLTRACE_RAY_PYTHON")
    if python is None:
        pytest.skip("no Ray: set ALLTRACE_RAY_PYTHON to a Python that has it")
    (tmp_path / "reports").mkdir()

    def call(way, *options, ending=".nsys-rep", also=()):
        alltrace = shlex.join([sys.executable, "-m", "alltrace.cli.main"])
        command = [
            python,
            str(Path(__file__).with_name("ray_job.py")),
            way,
            alltrace,
            *options,
            "-o",
            str(tmp_path / "reports"),
        ]
        # the path of a socket may have 107 letters, and Ray's own take 60 of them
        folder = Path("/tmp") / f"ray-{os.getpid()}"
        paths = [str(SOURCE), *also]
        variables = {
            "RAY_AUTH_MODE": "disabled",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_FOLDER": str(folder),
            "PYTHONPATH": os.pathsep.join(paths),
        }
        try:
            done = subprocess.run(
                command,
                cwd=tmp_path,
                env={**os.environ, **variables},
                capture_output=True,
                text=True,
                timeout=150,
                check=False,
            )
        finally:
            subprocess.run(["rm", "-rf", str(folder)], check=True)
        assert "[0, 1, 2, 3]\n" in done.stdout, done.stderr
        assert agents(tmp_path) == []
        return sorted(
            re.sub(r".*01000000|_on_.*|-of-.*", "", p.name) for p in (tmp_path / "reports").glob(f"*{ending}")
        )

    return call


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "names"),
    [
        ("told", ["_rank0", "_rank1", "_rank2", "_rank3"]),
        ("later", ["_rank0", "_rank1", "_rank2", "_rank3"]),
        ("roles", ["_actor_rank0", "_actor_rank1", "_critic_rank2", "_critic_rank3"]),
        ("dies", ["-restart1_rank2", "_rank0", "_rank1", "_rank2", "_rank3"]),
    ],
)
def test_every_actor_leaves_a_report_of_its_rank(actors, nsys, tmp_path, monkeypatch, way, names):
    monkeypatch.setenv("ALLTRACE_NSYS", str(nsys))
    assert actors(way, "--trace", "nvtx") == names
    manifest = import_reports([str(tmp_path / "reports")], tmp_path / "run", jobs=1)
    assert [(r.rank, len(r.reports)) for r in manifest.ranks] == [(n, 1 + (way == "dies" and n == 2)) for n in range(4)]


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.skipif(find_torch() is None, reason="no PyTorch: set ALLTRACE_TORCH_PYTHON")
def test_every_actor_leaves_a_trace_of_pytorch_of_its_rank(actors, tmp_path):
    asked = [
        str(find_torch()),
        "-c",
        "import torch; print(torch.__path__[0])",
    ]  # for the Python of Ray, where it is of one version
    torch = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()).parent
    options = ["--profiler", "torch", "--steps", "1:3"]
    assert actors("later", *options, ending=".gz", also=[str(torch)]) == ["_rank0", "_rank1", "_rank2", "_rank3"]
    manifest = import_reports([str(tmp_path / "reports")], tmp_path / "run", jobs=1)
    assert [r.rank for r in manifest.ranks] == [0, 1, 2, 3]
