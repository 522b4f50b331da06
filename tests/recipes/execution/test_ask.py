from __future__ import annotations

from typing import ClassVar

import pytest
from tests.making import kernel, make_run

import alltrace
from alltrace.align.store import aligned
from alltrace.recipes.base import Answer, Option
from alltrace.recipes.execution import part_store
from alltrace.recipes.execution.ask import ask, resolve_options
from alltrace.recipes.simple import Recipe
from alltrace.run.checksums import CheckedFiles
from alltrace.run.overlay import Overlay
from alltrace.run.rank import Rank
from alltrace.synth import write_run
from alltrace.trace.columns import Column
from alltrace.trace.errors import InputError, UsageError


class Counting(Recipe):
    """Counts kernels."""

    name = "counting"
    tables: ClassVar = {"kernels": ("start",), "copies": ("start",)}
    requires = ("kernels",)
    options = (
        Option("share", float, 0.5, "a share"),
        Option("times", int, 1, "a factor", least=1),
        Option("title", str, None, "a title", required=True),
        Option("quick", bool, False, "a flag"),
    )
    columns = (Column("rank", "any", None, "rank"), Column("count", "any", None, "kernels"))

    def map(self, rank, options):
        import pyarrow as pa

        return pa.table({"count": [rank.table("kernels", ["start"]).num_rows * options["times"]]})

    def reduce(self, parts, run, options):
        import pyarrow as pa

        counts = [p.table.column("count")[0].as_py() for p in parts]
        table = pa.table({"rank": pa.array([p.rank for p in parts], pa.int64()), "count": pa.array(counts, pa.int64())})
        return Answer(table, self.columns, ("done",))


RANKS = {
    0: {"kernels": [kernel(0, 1)]},
    1: {},
    2: {"copies": [{"start": 0, "end": 1}]},
    5: {"kernels": [kernel(0, 1), kernel(2, 3)]},
}


LEFT_OUT = "{} no `kernels`: {} reports hold no GPU kernels, so {} left out"


def test_ranks_without_what_is_required_are_left_out_and_named(tmp_path):
    run = make_run(tmp_path, RANKS, notes=("rank 3: no report",))
    done = []
    answer = ask(run, Counting(), {"title": "t", "times": 3}, progress=done.append)
    assert answer.table.to_pylist() == [{"rank": 0, "count": 3}, {"rank": 5, "count": 6}]
    assert answer.notes == ("rank 3: no report", LEFT_OUT.format("ranks 1-2 have", "their", "they are"), "done")
    assert done == [1, 1]


def test_one_rank_left_out_and_none_left(tmp_path):
    run = make_run(tmp_path, RANKS)
    assert ask(run, Counting(), {"title": "t"}, ranks=[0, 1]).notes == (
        LEFT_OUT.format("rank 1 has", "its", "it is"),
        "done",
    )
    assert ask(run, Counting(), {"title": "t"}, ranks=[1, 2]).notes == (
        "no rank has `kernels`: the reports hold no GPU kernels, so the answer is empty",
    )
    assert ask(run, Counting(), {"title": "t"}, ranks=[]).notes == ("no rank was selected, so the answer is empty",)


class Looking(Counting):
    """Looks where the parts are; it fails with `failure`."""

    failure: ClassVar = None
    folder: ClassVar = None

    def reduce(self, parts, run, options):
        self.seen = sorted(p.name for p in self.folder.rglob("*.arrow"))
        if self.failure is not None:
            raise self.failure
        return super().reduce(parts, run, options)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where parts lie, all of them in files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setattr(part_store, "HELD_BYTES", 0)
    monkeypatch.setattr(part_store, "LARGE_BYTES", 0)
    monkeypatch.setattr(Looking, "folder", folder)
    return folder


@pytest.mark.sampled(2)
@pytest.mark.parametrize("jobs", [1, 2])
def test_parts_of_several_ranks_lie_in_files_until_the_answer_is_made(tmp_path, folder, jobs):
    run, recipe = make_run(tmp_path / "run", RANKS), Looking()
    assert ask(run, recipe, {"title": "t"}, jobs=jobs).table.column("count").to_pylist() == [1, 2]
    assert recipe.seen == ["0-0.arrow", "0-5.arrow"]
    assert not list(folder.glob("alltrace-parts-*"))
    assert ask(run, recipe, {"title": "t"}, ranks=[5]).table.num_rows == 1
    assert recipe.seen == []  # memory has room for one rank


@pytest.mark.parametrize("failure", [UsageError("it cannot"), KeyboardInterrupt()])
def test_the_files_go_when_the_answer_fails_or_is_interrupted(tmp_path, folder, monkeypatch, failure):
    monkeypatch.setattr(Looking, "failure", failure)
    recipe = Looking()
    with pytest.raises(type(failure)):
        ask(make_run(tmp_path / "run", RANKS), recipe, {"title": "t"})
    assert recipe.seen == ["0-0.arrow", "0-5.arrow"]
    assert not list(folder.iterdir())


def test_a_folder_for_parts_that_is_not_there_is_a_sentence(tmp_path, folder):
    run = make_run(tmp_path / "run", RANKS)
    folder.rmdir()
    with pytest.raises(InputError, match=r"temporary: no temporary folder can be made \(No such file.*TMPDIR"):
        ask(run, Looking(), {"title": "t"})


def test_a_rank_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"rank 3 is not in the run; it has 0-2, 5"):
        ask(make_run(tmp_path, RANKS), "info", ranks=[0, 3])


def test_a_recipe_that_does_not_exist_is_refused_with_a_hint(tmp_path):
    with pytest.raises(UsageError, match="unknown recipe 'overlp'; did you mean overlap"):
        ask(make_run(tmp_path, RANKS), "overlp")


def test_defaults_fill_what_is_not_given():
    assert resolve_options(Counting(), {"title": "t"}) == {"share": 0.5, "times": 1, "title": "t", "quick": False}
    assert resolve_options(Counting(), {"title": "t", "share": 2})["share"] == 2.0


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "counting needs --title: a title"),
        ({"titel": "t"}, "unknown option of counting 'titel'; did you mean title"),
        ({"title": 3}, "--title of counting is 3; expected str"),
        ({"title": "t", "times": True}, "--times of counting is True; expected int"),
        ({"title": "t", "times": 0}, "--times of counting is 0; expected 1 or more"),
        ({"title": "t", "times": 1 << 70}, "expected a number that fits into 64 bits"),
        ({"title": "t", "quick": 1}, "--quick of counting is 1; expected bool"),
    ],
)
def test_options_that_do_not_fit_are_refused(given, says):
    with pytest.raises(UsageError, match=says):
        resolve_options(Counting(), given)


@pytest.fixture(scope="module")
def two_hosts(tmp_path_factory):
    """Four ranks on two hosts whose clocks are 400 ms apart."""
    folder = tmp_path_factory.mktemp("two hosts")
    write_run("healthy", folder / "reports", ranks=4, hosts=2, steps=3, layers=4, offset_ms=400, ideal=True)
    return folder


@pytest.mark.parametrize(("name", "options"), [("gaps", {}), ("memory-bandwidth", {}), ("launches", {"by": "stream"})])
def test_starts_on_several_hosts_are_on_the_clock_that_the_column_names(two_hosts, name, options):
    run = alltrace.open(two_hosts / "reports", cache_dir=two_hosts / "cache")
    first = {}
    for row in ask(run, name, options).table.to_pylist():
        first[row["rank"]] = min(first.get(row["rank"], row["start_ns"]), row["start_ns"])
    assert sorted(first) == [0, 1, 2, 3]
    assert max(first.values()) - min(first.values()) < 50_000_000


def test_an_alignment_that_is_there_changes_nothing_for_a_question_that_needs_none(tmp_path):
    run = make_run(tmp_path, {n: {"kernels": [kernel(100, 200)]} for n in (0, 1)})
    before = ask(run, "stats:cuda_gpu_trace", {"by_rank": True})
    run.adopt(Overlay(CheckedFiles(tmp_path / "align", {}), (), {1: 50}, {}, {}))
    assert run.in_session_time().rank(1).table("kernels", ["start"])["start"].to_pylist() == [50]
    assert ask(run, "stats:cuda_gpu_trace", {"by_rank": True}).table.equals(before.table)
    assert run.overlay is not None


@pytest.mark.parametrize("name", ["diagnose", "whatif", "critical-path"])
def test_what_asks_for_tables_again_and_again_reads_each_once(name, tmp_path, monkeypatch):
    from tests.recipes.test_every_recipe import tables_of

    run = make_run(tmp_path / "run", {r: tables_of(r) for r in range(2)})
    aligned(run)
    read: list[tuple[int, str]] = []
    inner = Rank.file_table

    def reading(rank, table, columns=None):
        # those of a host are looked through for each of its GPUs, and collectives once more for all ranks together
        if table not in ("gpu_metrics", "devices", "collectives"):
            read.append((rank.rank, table))
        return inner(rank, table, columns)

    monkeypatch.setattr(Rank, "file_table", reading)
    ask(run, name, jobs=1)
    assert {(0, "kernels"), (1, "kernels")} <= set(read)
    assert sorted(read) == sorted(set(read))
