"""Which ranks are compared with no other: those with a file whose clock steps or runs at another rate, but no whole
hosts."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import numpy as np
import pytest
from tests.making import make_run

from alltrace.align.run_matching import _most_off
from alltrace.align.store import aligned
from alltrace.recipes.execution.ask import ask
from alltrace.run.importer import import_reports
from alltrace.run.store import Run
from alltrace.synth import write_run

TABLES = ("KERNEL", "RUNTIME", "MEMCPY", "MEMSET", "SYNCHRONIZATION")
EVENTS = ("NVTX_EVENTS", "OSRT_API", *(f"CUPTI_ACTIVITY_KIND_{name}" for name in TABLES))
MS = 10**6


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """A run of four ranks on two hosts; rank 2 computes slowly."""
    folder = tmp_path_factory.mktemp("reports")
    write_run("sharded", folder, ranks=4, hosts=2, steps=4, ideal=True, faults=("slow-rank:ranks=2:factor=1.4",))
    return folder


def stepped(by_ns):
    """All that begins in the second half of the run, moved."""
    middle = "(SELECT (min(start) + max(end)) / 2 FROM CUPTI_ACTIVITY_KIND_KERNEL)"

    def change(db):
        (at,) = db.execute(f"SELECT {middle}").fetchone()
        for table in EVENTS:
            db.execute(f"UPDATE {table} SET start = start + {by_ns}, end = end + {by_ns} WHERE start >= {at}")

    return change


def faster(ratio):
    def change(db):
        for table in EVENTS:
            db.execute(
                f"UPDATE {table} SET start = cast(start * {ratio} AS INTEGER), end = cast(end * {ratio} AS INTEGER)"
            )

    return change


def run_of(reports, folder, change, *ranks):
    """The run with a change to the reports of some ranks."""
    changed = folder / "changed"
    changed.mkdir()
    for n, path in enumerate(sorted(reports.glob("*.sqlite"))):
        (changed / path.name).write_bytes(path.read_bytes())
        if n in ranks:
            with closing(sqlite3.connect(changed / path.name)) as db, db:
                change(db)
    import_reports([str(changed)], folder / "run", jobs=1)
    return Run(folder / "run")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (stepped(500 * MS), "its clock steps by 500.0 ms against the others'"),
        (stepped(-40 * MS), "its clock steps back by "),
        (faster(1.98), "its clock runs 1.98 times as fast as the others'"),
        (faster(0.5), "its clock runs 0.50 times as fast as the others'"),
    ],
    ids=["forward", "back", "ticks", "half"],
)
def test_a_file_with_another_time_hides_nothing_of_the_others(reports, tmp_path, change, why):
    run = run_of(reports, tmp_path, change, 1)
    alignment = aligned(run)
    assert list(alignment.doubted) == [1]
    assert alignment.doubted[1].startswith(why)
    assert set(alignment.members.column("rank").to_pylist()) == {0, 2, 3}
    answer = ask(run, "diagnose")
    rows = answer.table.to_pylist()
    (tmp_path / "before").mkdir()
    before = ask(run_of(reports, tmp_path / "before", stepped(0)), "diagnose").table.to_pylist()[0]
    assert (rows[0]["kind"], rows[0]["ranks"]) == ("straggler", [2]) == (before["kind"], before["ranks"])
    assert rows[0]["lost_share"] == pytest.approx(before["lost_share"], rel=0.01)
    (fault,) = [r for r in rows if r["where"] == "times in doubt"]
    assert fault["ranks"] == [1]
    assert why in fault["advice"]
    assert any(n.startswith(f"rank 1: {why}") and n.endswith("compared with no other rank") for n in answer.notes)
    blamed = ask(run, "stragglers").table.to_pylist()
    assert next(row["rank"] for row in blamed if row["caused_ns"]) == 2
    assert 1 not in {row["rank"] for row in blamed}


def test_of_pairs_the_rank_that_is_off_in_both_is_in_doubt():
    true = np.arange(-50.0, 50.0) * 100 * MS
    off, sound = 2.0 * true, true
    pairs = [(np.array([0, 1]), np.stack([off, sound])), (np.array([0, 2]), np.stack([off, sound]))]
    assert _most_off(pairs) is None  # of two it is not known which
    whole = [*pairs, (np.array([1, 2]), np.stack([sound, sound]))]
    assert _most_off(whole) == (0, "its clock runs 2.00 times as fast as the others'")


def test_a_clock_that_all_ranks_of_a_host_share_may_step_and_sound_files_are_in_no_doubt(reports, tmp_path):
    (tmp_path / "sound").mkdir()
    assert aligned(run_of(reports, tmp_path / "sound", stepped(0), 1)).doubted == {}
    assert aligned(run_of(reports, tmp_path, stepped(3 * MS), 2, 3)).doubted == {}


def test_an_operation_that_a_rank_asks_for_later_says_nothing_of_its_clock(tmp_path):
    # from the middle on rank 1 asks 4 ms later for the end of what the others wait for
    def calls(rank):
        rows = []
        for n in range(64):
            at, late = 20 * MS * n, 4 * MS if rank == 1 and n >= 32 else 0
            own = {"thread": 0, "communicator": 1}
            rows.append(
                {
                    "start": at,
                    "end": at + MS // 100,
                    "name": "MPI_Iallreduce",
                    "kind": "collective",
                    "request": 5,
                    **own,
                }
            )
            wait = {"name": "MPI_Wait", "kind": "start-wait", "request": 5, "thread": 0}
            rows.append({"start": at + MS + late, "end": at + 2 * MS + late, **wait})
            if n % 2:
                rows.append(
                    {"start": at + 9 * MS, "end": at + 10 * MS, "name": "MPI_Barrier", "kind": "collective", **own}
                )
        return rows

    world = {"communicator": 1, "parent": 0, "size": 3, "process": 0}
    tables = {rank: {"mpi": calls(rank), "communicators": [{**world, "group_rank": rank}]} for rank in range(3)}
    alignment = aligned(make_run(tmp_path, tables))
    assert alignment.doubted == {}
    assert alignment.members.num_rows == 3 * (64 + 32)
