"""Workers killed in each stage of a real Dask cluster: the results are those of this machine, and only their tasks ran again."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager

import pytest
from tests.engine.test_cluster import cluster
from tests.fuzz.kills import contents

from alltrace.align.store import aligned
from alltrace.engine.cluster_start import dask_engine
from alltrace.engine.tasks import using
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
    return contents(run), answer.table.to_pylist()


@contextmanager
def killing(made):
    """Kill a worker with a task in the block, as soon as it has one; yields what was counted: tasks that were started."""
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
                    pid = client.scheduler_info(n_workers=-1)["workers"][address]["nanny"] and client.run(
                        os.getpid, workers=[address], on_error="ignore"
                    ).get(address)
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
    assert all(victims), "a stage ended before its worker was killed"
    assert answer.table.to_pylist() == here[1]
    found = contents(run)
    assert found.keys() == here[0].keys()
    assert [name for name in found if found[name] != here[0][name] and not name.endswith(".json")] == []
