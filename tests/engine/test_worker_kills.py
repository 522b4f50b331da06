"""Workers killed in each stage of a real Dask cluster: the results are those of this machine, and only their tasks ran again."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.dask_nodes import dask_nodes, why_no_nodes
from tests.engine.test_cluster import cluster
from tests.fuzz.kills import contents

from alltrace.align.store import aligned
from alltrace.engine.cluster_start import dask_engine
from alltrace.engine.tasks import run_tasks, using
from alltrace.export.chrome import export_chrome
from alltrace.export.paraver.writer import export_paraver
from alltrace.export.perfetto import export_perfetto
from alltrace.export.selection import select
from alltrace.export.tables import export_tables
from alltrace.recipes.execution.ask import ask
from alltrace.run.importer import import_reports
from alltrace.run.store import Run
from alltrace.synth import write_run
from alltrace.tiles.build import pyramid

pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("ignore")
RANKS = 6


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    write_run("straggler", folder, ranks=RANKS, hosts=2, steps=4)
    return folder


@pytest.fixture(scope="module")
def here(reports, tmp_path_factory):
    """What this machine makes of the reports, stage by stage, and what it answers."""
    run = tmp_path_factory.mktemp("here") / "run"
    import_reports([str(reports)], run, jobs=1)
    opened = Run(run)
    aligned(opened, jobs=1)
    answer = ask(opened, "diagnose", jobs=1)
    pyramid(opened, jobs=1)
    return contents(run), answer.table.to_pylist(), exports(opened, run.parent / "exports")


def exports(run, folder):
    """The bytes of the exports of a run, by name."""
    folder.mkdir(parents=True)
    chosen = select(run)
    export_perfetto(chosen, folder / "out.pftrace", aligned=run.alignment)
    export_chrome(chosen, folder / "out.json", aligned=run.alignment)
    export_tables(chosen, folder / "tables", "parquet")
    export_paraver(chosen, folder / "out.prv")
    found = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
    return {**found, "out.prv": found["out.prv"].partition(b"):")[2]}  # without the time of writing


@contextmanager
def killing(made):
    """Kill a worker that has a task as soon as there is one; yields the tasks that it had."""
    from distributed import Client

    started: list[str] = []
    done = threading.Event()

    def kill():
        with Client(made.scheduler_address, set_as_default=False) as client:
            while not done.is_set():
                busy = [(a, keys) for a, keys in client.processing().items() if keys]
                if busy:
                    address, keys = busy[0]
                    started.extend(map(str, keys))
                    pid = client.run(os.getpid, workers=[address], on_error="ignore").get(address)
                    if pid:
                        os.kill(pid, signal.SIGKILL)
                        return
                done.wait(0.005)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield started
    finally:
        done.set()
        thread.join()


def test_a_worker_killed_in_each_stage_changes_nothing(reports, here, tmp_path):
    run = tmp_path / "run"
    with cluster() as made, dask_engine(made.scheduler_address) as engine, using(engine):
        victims = []
        with killing(made) as hit:
            import_reports([str(reports)], run)
        victims.append(hit)
        opened = Run(run)
        with killing(made) as hit:
            aligned(opened)
        victims.append(hit)
        with killing(made) as hit:
            answer = ask(opened, "diagnose")
        victims.append(hit)
        with killing(made) as hit:
            pyramid(opened)
        victims.append(hit)
        with killing(made) as hit:
            exported = exports(opened, tmp_path / "exports")
        victims.append(hit)
    assert all(victims), "a stage ended before its worker was killed"
    assert answer.table.to_pylist() == here[1]
    assert exported == here[2]
    found = contents(run)
    assert found.keys() == here[0].keys()
    assert [name for name in found if found[name] != here[0][name] and not name.endswith(".json")] == []


def counted(item, advance):
    """Leaves a file each time that an item is worked on."""
    folder, number = item
    (Path(folder) / f"{number}-{time.monotonic_ns()}").touch()
    time.sleep(0.2)
    return number


def forever(item, advance):
    """Takes memory until there is none."""
    if item == 1:
        held = []
        while True:
            held.append(bytearray(os.urandom(1 << 20)))
    return item


def test_a_worker_out_of_memory_costs_its_task_alone(tmp_path):
    import distributed

    options = {"threads_per_worker": 1, "processes": True, "dashboard_address": None, "host": "127.0.0.1", "silence_logs": 50}
    with (
        distributed.LocalCluster(2, memory_limit="300MB", **options) as made,
        dask_engine(made.scheduler_address) as engine,
        using(engine),
    ):
        outcomes = sorted(run_tasks(forever, range(4)), key=lambda o: o.index)
    assert [o.result for o in outcomes] == [0, None, 2, 3]
    assert "task 1 killed several workers" in str(outcomes[1].error)


@pytest.mark.skipif(why_no_nodes() is not None, reason=why_no_nodes() or "")
def test_a_scheduler_that_is_started_again_costs_the_tasks_that_had_not_ended(tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    told = []
    with dask_nodes(tmp_path / "nodes") as nodes, dask_engine(nodes.address) as engine, using(engine):
        found = run_tasks(counted, [(str(marks), n) for n in range(12)], progress=told.append, hosts=["n0", "n1"] * 6)
        ended = [next(found).get() for _ in range(4)]
        nodes.kill_all()
        nodes.start()
        rest = [outcome.get() for outcome in found]
    assert sorted([*ended, *rest]) == list(range(12))
    runs = [int(p.name.partition("-")[0]) for p in marks.iterdir()]
    assert [n for n in ended if runs.count(n) != 1] == []
    assert max(map(runs.count, range(12))) <= 2
