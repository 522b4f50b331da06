from __future__ import annotations

import os
import shutil
import subprocess

import pyarrow as pa
import pytest
from tests.making import flip

from alltrace.align.store import aligned
from alltrace.engine.tasks import run_tasks
from alltrace.recipes.analysis import run_replay
from alltrace.recipes.base import Question
from alltrace.recipes.execution import kept_parts
from alltrace.recipes.execution.ask import ask
from alltrace.recipes.execution.ask_all import ask_all
from alltrace.recipes.questions import diagnose
from alltrace.recipes.registry import find
from alltrace.run import derived
from alltrace.run.importer import import_reports
from alltrace.run.store import Run
from alltrace.run.verify import remove_damaged_folders, verify
from alltrace.synth import write_run

OTHERS = ("whatif", "critical-path", "stragglers")
SMALL = {"ranks": 4, "steps": 6, "layers": 4, "kernels_per_layer": 3}


def same(one, other):
    return one.table.equals(other.table, check_metadata=True) and one.notes == other.notes


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Two jobs of four ranks: one with a slow rank on one host, so that clocks do not differ, one whose two hosts'
    clocks do."""
    folder = tmp_path_factory.mktemp("parts")
    write_run("straggler", folder / "one", hosts=1, **SMALL, ideal=True)
    write_run("straggler", folder / "two", hosts=2, drift_ppm=200.0, **{**SMALL, "steps": 20}, ideal=True)
    write_run("straggler", folder / "longer", hosts=1, **{**SMALL, "steps": 7}, ideal=True)
    return folder


@pytest.fixture
def run(reports, tmp_path):
    import_reports([str(reports / "one")], tmp_path / "run", jobs=1)
    return tmp_path / "run"


@pytest.fixture(autouse=True)
def made(monkeypatch):
    """The ranks whose contributions and graphs are made; parts of small runs are kept too."""
    monkeypatch.setattr(kept_parts, "ROWS_WORTH_KEEPING", 0)
    made = {"contribution": [], "graph": []}
    contribution, graph = diagnose._contribution, run_replay.rank_graph

    def contribute(rank):
        made["contribution"].append(rank.rank)
        return contribution(rank)

    def draw(rank, matched):
        made["graph"].append(rank.rank)
        return graph(rank, matched)

    monkeypatch.setattr(diagnose, "_contribution", contribute)
    monkeypatch.setattr(run_replay, "rank_graph", draw)
    return made


def diagnosed(run):
    """The findings, from the parts of ranks in any case."""
    (run / "findings" / "diagnose.arrow").unlink(missing_ok=True)
    return ask(Run(run), "diagnose", jobs=1)


def clocks(run):
    """The clocks of all ranks, aligned."""
    opened = Run(run)
    aligned(opened, jobs=1)
    return [opened.clock(record) for record in opened.ranks]


def fresh(run, tmp_path, name="diagnose"):
    """The answer of a copy of the run of which nothing is kept but the import."""
    copy = tmp_path / "fresh"
    shutil.copytree(run, copy, ignore=shutil.ignore_patterns("findings", "align", "operations"))
    answer = ask(Run(copy), name, jobs=1)
    shutil.rmtree(copy)
    return answer


def forget(made):
    found = {name: sorted(ranks) for name, ranks in made.items()}
    for ranks in made.values():
        ranks.clear()
    return found


@pytest.mark.slow
def test_parts_are_made_once_and_graphs_for_all_replays(run, made, tmp_path):
    first = diagnosed(run)
    assert first.table.num_rows
    assert forget(made) == {"contribution": [0, 1, 2, 3], "graph": [0, 1, 2, 3]}
    assert same(first, diagnosed(run))
    kept = {name: ask(Run(run), name, jobs=1) for name in OTHERS}
    assert forget(made) == {"contribution": [], "graph": []}
    (run / "findings" / "diagnose.arrow").unlink()
    all_at_once = ask_all(Run(run), [(find(name), {}) for name in ("diagnose", *OTHERS)], jobs=1)
    assert same(all_at_once[0].answer, first)
    assert forget(made) == {"contribution": [], "graph": []}
    for name, answer in kept.items():
        assert same(answer, fresh(run, tmp_path, name))
    assert verify(run) == []


def test_processes_use_them_too(run, made):
    first = diagnosed(run)
    forget(made)
    (run / "findings" / "diagnose.arrow").unlink()
    parts = {p: p.stat().st_mtime_ns for p in (run / "findings").rglob("*.part")}
    assert len(parts) == 8
    assert same(first, ask(Run(run), "diagnose", jobs=2))
    assert {p: p.stat().st_mtime_ns for p in parts} == parts


def asked_of_processes(run, name, monkeypatch, jobs=2):
    """The ranks that other processes were asked for."""
    sent = []

    def note(work, items, **options):
        sent.extend(item[0] for batch in items for item in batch)
        return run_tasks(work, items, **options)

    with monkeypatch.context() as patch:
        patch.setattr("alltrace.engine.tasks.run_tasks", note)
        ask(Run(run), name, jobs=jobs)
    return sent


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", OTHERS)
def test_processes_get_no_rank_whose_parts_are_kept(run, monkeypatch, name):
    aligned(Run(run), jobs=1)
    assert asked_of_processes(run, name, monkeypatch) == [0, 1, 2, 3]
    assert asked_of_processes(run, name, monkeypatch) == []
    for part in (run / "findings").rglob("rank=[12]-*.part"):
        part.unlink()
    assert asked_of_processes(run, name, monkeypatch) == [1, 2]


def test_what_a_rank_was_before_goes_to_processes_again(reports, run, monkeypatch, tmp_path):
    ask(Run(run), "whatif", jobs=1)
    others = tmp_path / "others"
    shutil.copytree(reports / "one", others)
    shutil.copyfile(sorted((reports / "longer").glob("*.sqlite"))[3], sorted(others.glob("*.sqlite"))[3])
    before = {p.name for p in (run / "findings").rglob("rank=3-*.part")}
    import_reports([str(others)], run, jobs=1)
    aligned(Run(run), jobs=1)
    assert asked_of_processes(run, "whatif", monkeypatch, jobs=2) == []  # one rank is worth no processes
    after = {p.name for p in (run / "findings").rglob("rank=3-*.part")}
    assert len(before) == len(after) == 1
    assert before != after


def test_a_question_about_some_ranks_leaves_the_parts_of_others(run, made):
    diagnosed(run)
    parts = set((run / "findings").rglob("*.part"))
    forget(made)
    ask(Run(run), "whatif", ranks=[1], jobs=1)
    assert set((run / "findings").rglob("*.part")) == parts
    assert forget(made)["graph"] == []


def test_an_interrupted_question_goes_on(run, made, monkeypatch):
    contribution = diagnose._contribution

    def stopped(rank):
        if rank.rank == 2:
            raise KeyboardInterrupt
        return contribution(rank)

    with monkeypatch.context() as patch:
        patch.setattr(diagnose, "_contribution", stopped)
        with pytest.raises(KeyboardInterrupt):
            diagnosed(run)
    forget(made)
    diagnosed(run)
    assert forget(made) == {"contribution": [2, 3], "graph": [2, 3]}


def test_drafts_of_killed_processes_are_removed_without_a_list_for_each_rank(run, made, monkeypatch):
    diagnosed(run)
    part = next((run / "findings" / "graph").glob("*.part"))
    gone = subprocess.Popen(["true"])
    gone.wait()
    draft = part.with_name(f".{part.name}.{os.uname().nodename}-{gone.pid}.tmp")
    draft.touch()
    part.unlink()
    listed = []
    monkeypatch.setattr(derived, "remove_drafts", lambda place, **_: listed.append(place.name))
    diagnosed(run)
    assert part.exists()
    assert not draft.exists()
    assert "diagnose.arrow" in listed
    assert not any(name.startswith("rank=") for name in listed)


def test_of_a_rank_anew_only_its_own_part_is_made(reports, run, made, tmp_path):
    diagnosed(run)
    forget(made)
    others = tmp_path / "others"
    shutil.copytree(reports / "one", others)
    changed = sorted(others.glob("*.sqlite"))[3]
    shutil.copyfile(sorted((reports / "longer").glob("*.sqlite"))[3], changed)
    import_reports([str(others)], run, jobs=1)
    again = diagnosed(run)
    assert forget(made) == {"contribution": [3], "graph": [3]}
    assert same(again, fresh(run, tmp_path))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("job", ["one", "two"])
def test_another_clock_makes_no_part_anew(reports, made, tmp_path, job):
    """A rank that comes later began before all others, and gives drifting hosts another rate, so that every time is
    another."""
    files = sorted((reports / job).glob("*.sqlite"))
    run = tmp_path / "run"
    import_reports([str(p) for p in files[1:]], run, jobs=1)
    diagnosed(run)
    before = clocks(run)[-3:]
    forget(made)
    import_reports([str(p) for p in files], run, jobs=1)
    again = diagnosed(run)
    after = clocks(run)[-3:]
    assert all(old != new for old, new in zip(before, after, strict=True))
    assert any(clock.drift for clock in after) == (job == "two")
    assert forget(made) == {"contribution": [0], "graph": [0]}
    assert same(again, fresh(run, tmp_path))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["diagnose", *OTHERS])
def test_parts_in_the_time_of_files_tell_what_those_on_the_clock_tell(reports, tmp_path, monkeypatch, name):
    """But for the last nanoseconds of sums, where a host's clock runs at another rate."""
    import_reports([str(reports / "two")], tmp_path / "run", jobs=1)
    kept = ask(Run(tmp_path / "run"), name, jobs=1).table.to_pylist()
    monkeypatch.setattr(kept_parts, "ROWS_WORTH_KEEPING", 1 << 60)
    shutil.rmtree(tmp_path / "run" / "findings")
    direct = ask(Run(tmp_path / "run"), name, jobs=1).table.to_pylist()
    assert any(clock.drift for clock in clocks(tmp_path / "run"))
    assert len(kept) == len(direct) > 0
    for one, other in zip(kept, direct, strict=True):
        for column, value in one.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                assert value == pytest.approx(other[column], rel=1e-3, abs=100), column
            elif column not in ("evidence", "advice"):
                assert value == other[column], column


def test_parts_of_ranks_that_are_gone_are_removed(reports, run, made):
    diagnosed(run)
    import_reports([str(p) for p in sorted((reports / "one").glob("*.sqlite"))[:2]], run, jobs=1)
    diagnosed(run)
    names = {p.name for p in (run / "findings").rglob("*.part")}
    assert {n.partition("-")[0] for n in names} == {"rank=0", "rank=1"}


def test_a_damaged_part_is_made_again(run, made):
    first = diagnosed(run)
    forget(made)
    (path,) = (run / "findings" / "graph").glob("rank=1-*.part")
    flip(path, path.stat().st_size // 2)
    assert [d.file for d in verify(run)] == [f"findings/graph/{path.name}"]
    assert same(first, diagnosed(run))
    assert forget(made) == {"contribution": [], "graph": [1]}
    assert verify(run) == []
    flip(path, path.stat().st_size // 2)
    remove_damaged_folders(run)
    assert not (run / "findings").exists()


def test_of_some_steps_nothing_is_kept(run, made):
    ask(Run(run), "diagnose", steps="2:4", jobs=1)
    assert not (run / "findings").exists()
    diagnosed(run)
    forget(made)
    ask(Run(run), "diagnose", steps="2:4", jobs=1)
    assert forget(made)["contribution"] == [0, 1, 2, 3]


def test_small_runs_keep_none(run, monkeypatch):
    monkeypatch.undo()
    diagnosed(run)
    assert [p.name for p in (run / "findings").iterdir()] == ["diagnose.arrow"]


def test_a_folder_that_cannot_be_written_to_does_not_matter(run, made, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("alltrace.run.checked_arrow.write_table", full)
    first = diagnosed(run)
    assert list((run / "findings").rglob("*.part")) == []
    assert same(first, diagnosed(run))


def test_parts_of_what_is_not_aligned_are_refused():
    with pytest.raises(TypeError, match=r'recipe busy has kept_parts.*expected clock="aligned"'):
        Question("busy", "", (), None, None, kept_parts=("busy",))


def test_matched_operations_are_the_same_whatever_the_numbers_of_their_communicators():
    def digest(row, communicator):
        return kept_parts._operations(
            pa.table({"row": pa.array(row, pa.int64()), "communicator": pa.array(communicator, pa.int64())})
        )

    assert digest([4, 5, 9], [7, 2, 7]) == digest([4, 5, 9], [0, 1, 0])
    assert digest([4, 5, 9], [7, 2, 7]) != digest([4, 5, 9], [7, 2, 2])
    assert digest([4, 5, 9], [7, 2, 7]) != digest([4, 5, 8], [7, 2, 7])
    assert digest([], []) == b""
