from __future__ import annotations

from typing import ClassVar

import pytest
from tests.making import kernel, make_run

import alltrace
from alltrace.recipes.base import Answer, AnswerColumn, Option, Recipe
from alltrace.recipes.execution.ask import ask, resolve_options
from alltrace.run.overlay import Overlay
from alltrace.synth import write_run
from alltrace.trace.errors import UsageError


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
    columns = (AnswerColumn("rank", None, "rank"), AnswerColumn("count", None, "kernels"))

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
        "no rank has `kernels`: the reports hold no GPU kernels, so there is nothing to answer",
    )
    assert ask(run, Counting(), {"title": "t"}, ranks=[]).notes == ("no rank was asked, so there is nothing to answer",)


def test_a_rank_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"rank 3 is not in the run; it has 0-2, 5"):
        ask(make_run(tmp_path, RANKS), "info", ranks=[0, 3])


def test_a_recipe_that_does_not_exist_is_refused_with_a_hint(tmp_path):
    with pytest.raises(UsageError, match="there is no recipe 'overlp'; did you mean overlap"):
        ask(make_run(tmp_path, RANKS), "overlp")


def test_defaults_fill_what_is_not_given():
    assert resolve_options(Counting(), {"title": "t"}) == {"share": 0.5, "times": 1, "title": "t", "quick": False}
    assert resolve_options(Counting(), {"title": "t", "share": 2})["share"] == 2.0


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "counting needs --title: a title"),
        ({"titel": "t"}, "there is no option of counting 'titel'; did you mean title"),
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
    write_run("healthy", folder / "reports", ranks=4, hosts=2, steps=3, layers=4, offset_ms=400)
    return folder


@pytest.mark.parametrize("name", ["gaps", "memory-bandwidth", "queue-length"])
def test_starts_on_several_hosts_are_on_the_clock_that_the_column_names(two_hosts, name):
    run = alltrace.open(two_hosts / "reports", cache_dir=two_hosts / "cache")
    first = {}
    for row in ask(run, name).table.to_pylist():
        first[row["rank"]] = min(first.get(row["rank"], row["start_ns"]), row["start_ns"])
    assert sorted(first) == [0, 1, 2, 3]
    assert max(first.values()) - min(first.values()) < 50_000_000


def test_an_alignment_that_is_there_changes_nothing_for_a_question_that_needs_none(tmp_path):
    run = make_run(tmp_path, {n: {"kernels": [kernel(100, 200)]} for n in (0, 1)})
    before = ask(run, "stats:cuda_gpu_trace", {"by_rank": True})
    run.adopt(Overlay(tmp_path / "align", (), {1: 50}, {}, {}))
    assert run.rank(1).table("kernels", ["start"])["start"].to_pylist() == [50]
    assert ask(run, "stats:cuda_gpu_trace", {"by_rank": True}).table.equals(before.table)
    assert run.overlay is not None
