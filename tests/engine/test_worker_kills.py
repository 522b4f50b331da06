"""Workers killed in each stage of a real Dask cluster: the results equal local ones, and only the killed tasks ran
again."""

import os
import signal
import time
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from zlib import crc32

import pytest
from tests.dask_nodes import dask_nodes, why_no_nodes
from tests.engine.test_cluster import cluster
from tests.fuzz.kills import contents

from alltrace.align.store import aligned
from alltrace.engine.cluster import ClusterEngine
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
pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.filterwarnings("ignore")]
RANKS = 6
AHEAD = 4  # tasks that one worker has at once


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    write_run("straggler", folder, ranks=RANKS, hosts=2, steps=4, ideal=True)
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


class Dying:
    """Does the work, and the first time of all kills its worker before the result is there; leaves a file for each
    time."""

    def __init__(self, function, folder, call):
        self.function, self.folder, self.call = function, folder, call

    def __call__(self, item, advance):
        (self.folder / f"{self.call}.{crc32(str(item).encode())}-{os.getpid()}-{time.monotonic_ns()}").touch()
        result = self.function(item, advance)
        try:
            (self.folder / "killed").touch(exist_ok=False)
        except FileExistsError:
            return result
        (self.folder / "killed").write_text(str(os.getpid()))
        return os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def one_killed(folder):
    """A block of which a worker is killed: the task that it was at is done again, and no more than it was given."""
    folder.mkdir()
    plain, calls = ClusterEngine.run_tasks, count()

    def run_tasks(self, function, items, *rest, **more):
        return plain(self, Dying(function, folder, next(calls)), items, *rest, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClusterEngine, "run_tasks", run_tasks)
        yield
    ran = [p.name.partition("-")[0] for p in folder.iterdir() if p.name != "killed"]
    assert 0 < len(ran) - len(set(ran)) <= AHEAD


def test_a_worker_killed_in_each_stage_changes_nothing(reports, here, tmp_path):
    run = tmp_path / "run"
    with cluster() as made, dask_engine(made.scheduler_address) as engine, using(engine):
        with one_killed(tmp_path / "import"):
            import_reports([str(reports)], run)
        opened = Run(run)
        with one_killed(tmp_path / "align"):
            aligned(opened)
        with one_killed(tmp_path / "diagnose"):
            answer = ask(opened, "diagnose")
        with one_killed(tmp_path / "tiles"):
            pyramid(opened)
        with one_killed(tmp_path / "export"):
            exported = exports(opened, tmp_path / "exports")
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


def quickly(item, advance):
    """Leaves a file each time that an item is worked on; the process that did it."""
    folder, number = item
    (Path(folder) / f"{number}-{time.monotonic_ns()}").touch()
    return os.getpid()


def test_tasks_that_have_ended_do_not_run_again_for_a_killed_worker(tmp_path):
    with cluster() as made, dask_engine(made.scheduler_address) as engine, using(engine):
        found = run_tasks(quickly, [(str(tmp_path), n) for n in range(12)])
        first = next(found)
        time.sleep(2)  # others end, and their results wait until they are asked for
        os.kill(first.get(), signal.SIGKILL)
        time.sleep(1)
        outcomes = [first, *found]
    assert sorted(o.index for o in outcomes) == list(range(12))
    ran = [p.name.partition("-")[0] for p in tmp_path.iterdir()]
    assert sorted(ran, key=int) == [str(n) for n in range(12)]


def forever(item, advance):
    """Takes memory until there is none."""
    if item == 1:
        held = []
        while True:
            held.append(bytearray(os.urandom(1 << 20)))
    return item


def test_a_worker_out_of_memory_costs_its_task_alone(tmp_path):
    import distributed

    options = {
        "threads_per_worker": 1,
        "processes": True,
        "dashboard_address": None,
        "host": "127.0.0.1",
        "silence_logs": 50,
    }
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
