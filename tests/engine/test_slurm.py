"""The cluster engine on workers that a real Slurm starts on two nodes."""

import subprocess
import sys
import time

import pytest
from tests.slurm_cluster import node_of_task, two_nodes, why_no_slurm

from alltrace.cli.main import main
from alltrace.engine.cluster_start import queue_engine
from alltrace.engine.tasks import run_tasks, using
from alltrace.synth import write_run

pytest.importorskip("dask_jobqueue")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(why_no_slurm() is not None, reason=why_no_slurm() or ""),
]
SETTINGS = {"interface": "lo", "job_cpu": 8, "memory": "1GiB"}


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    with two_nodes(tmp_path_factory.mktemp("slurm")) as environment, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", environment["SLURM_CONF"])
        yield


def test_tasks_run_on_both_nodes(slurm, tmp_path):
    with queue_engine("slurm", 2, SETTINGS, tmp_path) as engine, using(engine):
        nodes = []
        deadline = time.monotonic() + 60
        while len(set(nodes)) < 2 and time.monotonic() < deadline:  # until the second worker is there
            nodes += [o.get() for o in run_tasks(node_of_task, range(4))]
    assert set(nodes) == {"n0", "n1"}
    assert len(list(tmp_path.glob("*.out"))) == 2


def test_tasks_of_a_host_run_on_that_host_alone(slurm, tmp_path):
    hosts = ["n0", "n1", "n1", "n1", "n0", "n1"]
    with queue_engine("slurm", 2, SETTINGS, tmp_path, hosts=("n0", "n1")) as engine, using(engine):
        outcomes = sorted(run_tasks(node_of_task, range(6), hosts=hosts), key=lambda o: o.index)
    assert [o.get() for o in outcomes] == hosts


def test_fewer_jobs_than_hosts_are_refused(tmp_path, capsys):
    asked = [
        *"import n0:/scratch/job n1:/scratch/job -o".split(),
        str(tmp_path / "run"),
        "--cache-dir",
        str(tmp_path / "cache"),
    ]
    assert main([*asked, "--slurm", "1"]) == 2
    assert "--slurm 1 is fewer than the 2 hosts with reports; give --slurm 2" in capsys.readouterr().err
    assert main([*asked, "--pbs", "2"]) == 2
    assert "--pbs cannot choose nodes, and reports are on n0" in capsys.readouterr().err


def test_answers_are_those_of_this_machine(slurm, tmp_path, capsys):
    write_run("tiny", tmp_path / "reports", ideal=True)
    cluster = [part for key, value in SETTINGS.items() for part in ("--cluster", f"{key}={value}")]
    told = []
    for name, place in (("here", []), ("slurm", ["--slurm", "2", *cluster, "--cache-dir", str(tmp_path / "cache")])):
        assert main(["import", str(tmp_path / "reports"), "-o", str(tmp_path / name), *place]) == 0
        capsys.readouterr()
        assert main(["breakdown", str(tmp_path / name), *place, "--format", "csv"]) == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]
    assert told[0].count("\n") > 1


def test_a_partition_that_is_not_there_is_told(slurm, tmp_path):
    write_run("tiny", tmp_path / "reports", ideal=True)
    place = [*"--slurm 1 --cluster queue=nowhere --cluster interface=lo --cache-dir".split(), str(tmp_path / "cache")]
    command = [sys.executable, "-m", "alltrace.cli.main", "breakdown", str(tmp_path / "reports"), *place]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "invalid partition" in ended.stderr.lower()
    assert len(ended.stderr.splitlines()) == 1
