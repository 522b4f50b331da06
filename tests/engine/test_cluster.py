"""The cluster engine on a real Dask cluster of processes on this machine."""

import errno
import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.engine.test_tasks import Remembering

from alltrace.cli.main import main
from alltrace.engine.cluster_start import dask_engine
from alltrace.engine.tasks import remote, run_tasks, using
from alltrace.recipes.questions import sql
from alltrace.run.importer import import_reports
from alltrace.run.store import Run
from alltrace.synth import write_run
from alltrace.trace.errors import AlltraceError, InputError, UsageError

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def square(item, advance):
    advance(1)
    if item < 0:
        raise InputError("x", found="a number below 0", advice="take another")
    return item * item, os.getpid()


def slow(item, advance):
    (Path(item) / f"{os.getpid()}").touch()
    time.sleep(0.5)
    return os.getpid()


def full(item, advance):
    raise OSError(errno.ENOSPC, "No space left on device", "/scratch/x")


def deadly(item, advance):
    os.kill(os.getpid(), signal.SIGKILL)


def deadly_one(item, advance):
    """60 kills its worker."""
    if item == 60:
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def which_task(item, advance):
    time.sleep(item)
    return distributed.get_worker().get_current_task()


@contextmanager
def cluster(workers=2):
    made = distributed.LocalCluster(
        workers,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        host="127.0.0.1",
        memory_limit=0,
        silence_logs=logging.CRITICAL,
    )
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def address():
    with cluster() as made:
        yield made.scheduler_address


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    write_run("tiny", folder, ideal=True)
    return folder


def test_tasks_run_in_other_processes_with_what_they_share(address):
    told = []
    with dask_engine(address) as engine, using(engine):
        assert remote()
        outcomes = {o.index: o for o in run_tasks(square, [*range(20), -1], progress=told.append)}
        deadline = time.monotonic() + 10
        while sum(told) < 21 and time.monotonic() < deadline:
            time.sleep(0.05)
    assert not remote()
    assert [outcomes[i].get()[0] for i in range(20)] == [i * i for i in range(20)]
    assert os.getpid() not in {outcomes[i].get()[1] for i in range(20)}
    with pytest.raises(InputError, match="a number below 0"):
        outcomes[20].get()
    assert sum(told) == 21
    found = {}
    with dask_engine(address) as engine, using(engine):
        for outcome in run_tasks(Remembering(), list(range(40))):
            pid, seen = outcome.get()
            found[pid] = max(found.get(pid, []), seen, key=len)
    assert sorted(n for seen in found.values() for n in seen) == list(range(40))
    assert os.getpid() not in found


def test_a_full_disk_of_a_worker_and_one_job(address):
    with dask_engine(address) as engine, using(engine), pytest.raises(OSError, match="No space left") as caught:
        list(run_tasks(full, [1]))
    assert caught.value.errno == errno.ENOSPC
    with dask_engine(address) as engine, using(engine):
        (outcome,) = run_tasks(square, [3], jobs=1)
    assert outcome.get() == (9, os.getpid())


def test_a_killed_worker_costs_a_retry_not_the_answer(tmp_path):
    with cluster() as made, dask_engine(made.scheduler_address) as engine, using(engine):
        found = run_tasks(slow, [str(tmp_path)] * 6)
        first = next(found)
        # the worker that is busy now
        victim = next(int(p.name) for p in tmp_path.iterdir() if int(p.name) != os.getpid())
        os.kill(victim, signal.SIGKILL)
        outcomes = [first, *found]
    assert sorted(o.index for o in outcomes) == list(range(6))
    assert {o.get() for o in outcomes[1:]} <= {int(p.name) for p in tmp_path.iterdir()}


def test_a_task_that_kills_workers_is_given_up_alone():
    with cluster(1) as made, dask_engine(made.scheduler_address) as engine, using(engine):
        (outcome,) = run_tasks(deadly, [1])
    with pytest.raises(AlltraceError, match="killed several workers"):
        outcome.get()
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),  # a worker takes seconds to come back
        cluster(1) as made,
        dask_engine(made.scheduler_address) as engine,
        using(engine),
    ):
        outcomes = {o.index: o for o in run_tasks(deadly_one, list(range(200)))}
    assert sorted(outcomes) == list(range(200))
    assert [outcomes[i].get() for i in range(200) if i != 60] == [i for i in range(200) if i != 60]
    with pytest.raises(AlltraceError, match="task 60 killed several workers"):
        outcomes[60].get()


@pytest.mark.parametrize(("item_s", "items", "most_tasks"), [(0.001, 200, 60), (0.6, 12, 12)])
def test_short_items_share_tasks_and_long_ones_do_not(address, item_s, items, most_tasks):
    with dask_engine(address) as engine, using(engine):
        tasks = [o.get() for o in run_tasks(which_task, [item_s] * items)]
    assert len(tasks) == items
    if item_s > 0.5:
        assert len(set(tasks)) == most_tasks
    else:
        assert len(set(tasks)) <= most_tasks


def test_no_scheduler_is_told_in_a_sentence(capsys, reports, monkeypatch):
    monkeypatch.setattr("alltrace.engine.cluster_start._CONNECT_S", 1.0)
    assert main(["breakdown", str(reports), "--dask", "tcp://127.0.0.1:9"]) == 2
    told = capsys.readouterr().err
    assert "no scheduler answered" in told
    assert "Traceback" not in told
    assert main(["breakdown", str(reports), "--dask", "nonsense://x"]) == 2
    assert main(["breakdown", str(reports), "--dask", "tcp://127.0.0.1:9", "--jobs", "2"]) == 2
    assert "--jobs sets the number of local processes" in capsys.readouterr().err
    assert main(["breakdown", str(reports), "--cluster", "queue=x"]) == 2
    assert main(["breakdown", str(reports), "--slurm", "1", "--cluster", "queue"]) == 2


def test_a_scheduler_that_goes_away_is_told_in_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("alltrace.engine.cluster_start._CONNECT_S", 1.0)
    with cluster(1) as made:
        address = made.scheduler_address
        with dask_engine(address, wait_s=1.0) as engine, using(engine):
            found = run_tasks(slow, [str(tmp_path)] * 20)
            next(found)
            made.close()
            with pytest.raises(AlltraceError, match=r"disconnected|no worker is left"):
                list(found)


def test_answers_are_those_of_this_machine(address, reports, tmp_path, capsys):
    common = ["--cache-dir", str(tmp_path / "cache")]
    answers = []
    for place in ([], ["--dask", address]):
        run = tmp_path / f"run{len(place)}"
        assert main(["import", str(reports), "-o", str(run), *place, *common]) == 0
        capsys.readouterr()
        told = []
        for verb in (["breakdown"], ["stats", "cuda_gpu_kern_sum"], ["stragglers"], ["recipe", "nvtx_sum"]):
            assert main([*verb, str(run), *place, "--format", "csv"]) == 0
            told.append(capsys.readouterr().out)
        answers.append(told)
    assert answers[0] == answers[1]
    assert all(a.count("\n") > 1 for a in answers[0])


def test_an_import_survives_a_killed_worker(reports, tmp_path):
    with cluster() as made, dask_engine(made.scheduler_address) as engine, using(engine):
        victim = next(iter(made.workers.values())).process.process.pid
        os.kill(victim, signal.SIGKILL)
        manifest = import_reports([str(reports)], tmp_path / "run")
    assert len(manifest.ranks) == len(list(reports.glob("*.sqlite")))
    assert not list((tmp_path / "run" / "ranks").glob(".*"))


def test_a_batch_system_that_takes_no_jobs_is_told_in_a_sentence(reports, tmp_path):
    tool = tmp_path / "qsub"
    tool.write_text("#!/bin/sh\necho 'qsub: Unknown queue' >&2\nexit 170\n")
    tool.chmod(0o755)
    asked = [
        sys.executable,
        "-m",
        "alltrace.cli.main",
        "breakdown",
        str(reports),
        "--cache-dir",
        str(tmp_path / "cache"),
    ]

    def told(*more):
        ended = subprocess.run(
            [*asked, *more], env={**os.environ, "PATH": str(tmp_path)}, capture_output=True, text=True
        )
        assert ended.returncode == 2
        assert len(ended.stderr.splitlines()) == 1
        return ended.stderr

    assert "sbatch, which is not on PATH" in told("--slurm", "1")
    assert "rejected the job (qsub: Unknown queue)" in told("--pbs", "1")
    assert "PBSCluster" in told("--pbs", "1", "--cluster", "nonsense=1")


def test_the_engine_is_loaded_only_where_it_is_asked_for():
    code = "import sys, alltrace.engine.tasks; assert 'distributed' not in sys.modules and 'dask' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_query_runs_on_a_worker(address, reports, tmp_path, monkeypatch):
    import_reports([str(reports)], tmp_path / "run", jobs=1)
    run = Run(tmp_path / "run")
    text = "select rank, count(*) n from kernels group by rank order by rank"
    here = sql.query(run, text)

    def not_here(*_):
        raise AssertionError

    monkeypatch.setattr(sql, "query", not_here)
    with dask_engine(address) as engine, using(engine):
        found = sql.query_on_engine(run, text)
        with pytest.raises(UsageError, match=r"the answer has 2\d\d MiB, and a cluster sends up to 256 MiB"):
            sql.query_on_engine(run, "select repeat('x', 1000000) from range(300)")
        with pytest.raises(UsageError, match="the query cannot be answered"):
            sql.query_on_engine(run, "select nothing from kernels")
    assert found.table.num_rows > 0
    assert (found.table.to_pylist(), found.columns, found.notes) == (here.table.to_pylist(), here.columns, here.notes)
