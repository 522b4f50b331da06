from __future__ import annotations

import pytest
from tests.making import copy, kernel, make_run

from alltrace.recipes.execution.ask import ask
from alltrace.recipes.execution.ask_all import ask_all, shared_rank
from alltrace.recipes.registry import find, names
from alltrace.trace.errors import UsageError

RANGES = [{"start": 0, "end": 50, "name": "step", "kind": "pushpop"}]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    ranks = {
        r: {"kernels": [kernel(10 * r, 40 + r), kernel(60, 80)], "copies": [copy(45, 50)], "ranges": RANGES}
        for r in (0, 1)
    }
    ranks[2] = {"ranges": RANGES}
    return make_run(tmp_path_factory.mktemp("all") / "run", ranks)


def test_each_answer_is_that_of_asking_alone(run):
    recipes = [find(n) for n in ("nvtx_sum", "cuda_gpu_kern_sum", "gpu_gaps", "overlap")]
    for reply in ask_all(run, [(r, {}) for r in recipes]):
        alone = ask(run, reply.recipe)
        assert reply.answer.table.equals(alone.table)
        assert reply.answer.notes == alone.notes


@pytest.mark.slow
def test_all_recipes_together_answer_as_each_alone(tmp_path):
    from tests.recipes.test_every_recipe import options_of, tables_of

    run = make_run(tmp_path / "run", {r: tables_of(r) for r in range(2)})
    questions = [(find(n), options_of(find(n))) for n in names()]
    for reply in ask_all(run, questions):
        alone = ask(run, reply.recipe, options_of(reply.recipe))
        assert reply.skipped is None, reply.recipe.name
        assert reply.answer.table.to_pylist() == alone.table.to_pylist(), reply.recipe.name


def test_nvidias_times_and_the_runs_own_stand_side_by_side(tmp_path):
    """The same run, its session started 5,000 ns before its first event: recipes of NVIDIA's names tell that, others do
    not."""
    rows = {r: {"kernels": [kernel(5000 + 10 * r, 5040), kernel(10**9, 10**9 + 20)], "ranges": []} for r in (0, 1)}
    run = make_run(tmp_path / "run", rows)
    questions = [
        ("gaps", "start_ns"),
        ("gpu_gaps", "Start"),
        ("activity", "start_ns"),
        ("stats:cuda_gpu_trace", "Start (ns)"),
    ]
    replies = ask_all(run, [(find(n), {}) for n, _ in questions])
    found = {r.recipe.name: r.answer.table.column(c).to_pylist() for r, (_, c) in zip(replies, questions, strict=True)}
    assert [ask(run, n).table.column(c).to_pylist() for n, c in questions] == list(found.values())
    firsts = [min(values) for values in found.values()]
    assert firsts == [40, 5040, 0, 5000]


def test_options_reach_their_recipe(run):
    (reply,) = ask_all(run, [(find("nvtx_sum"), {"start": 1000})])
    assert reply.answer.table.num_rows == 0


@pytest.mark.slow
def test_what_cannot_be_answered_is_skipped_with_the_reason(run):
    replies = {r.recipe.name: r for r in ask_all(run, [(find(n), {}) for n in names()])}
    assert replies["cuda_gpu_kern_sum"].skipped is None
    assert "ranks" not in (replies["nvtx_sum"].skipped or "")
    bad = ask_all(run, [(find("gpu_gaps"), {"gap": -1}), (find("gpu_gaps"), {"nvtx": "@"})])
    assert [r.answer for r in bad] == [None, None]
    assert "--gap" in bad[0].skipped
    assert "--nvtx" in bad[1].skipped


def test_ranks_are_chosen_and_unknown_ones_refused(run):
    (reply,) = ask_all(run, [(find("nvtx_sum"), {})], ranks=[2])
    assert reply.answer.further["rank_stats"].table.column("Rank").to_pylist() == [2]
    with pytest.raises(UsageError, match="rank 9"):
        ask_all(run, [(find("nvtx_sum"), {})], ranks=[9])


def test_a_table_is_read_once_for_all_recipes(run):
    questions = [
        (find(n), {}) for n in names() if find(n).clock != "aligned" and not any(o.required for o in find(n).options)
    ]
    rank = shared_rank(run, 0, [(r, {o.name: o.default for o in r.options}) for r, _ in questions])
    for recipe, _ in questions:
        recipe.map(rank, recipe.prepared({o.name: o.default for o in recipe.options}, run))
    assert {"kernels", "copies", "ranges"} <= set(rank.reads)
    assert set(rank.reads.values()) == {1}


def test_recipes_that_replay_share_the_graphs_of_ranks_and_their_joint_one(tmp_path, monkeypatch):
    from tests.recipes.test_every_recipe import tables_of

    from alltrace.recipes.analysis import run_replay
    from alltrace.recipes.base import Part
    from alltrace.recipes.execution.ask_all import each_reply
    from alltrace.recipes.simple import Recipe

    made = {"rank_graph": 0, "join": 0, "peers_of": 0}

    def counted(name):
        inner = getattr(run_replay, name)

        def call(*arguments):
            made[name] += 1
            return inner(*arguments)

        monkeypatch.setattr(run_replay, name, call)

    for name in made:
        counted(name)
    kept = []

    class Last(Recipe):
        """Asked after all that have a graph."""

        name = "last"
        tables = {"kernels": ("start",)}  # noqa: RUF012

        def map(self, rank, options):
            return rank.table("kernels", ("start",))

        def reduce(self, parts, run, options):
            assert all(isinstance(p, Part) for p in parts)
            kept.append(list(run.memo))
            return find("nvtx_sum").answer({})

    run = make_run(tmp_path / "run", {r: tables_of(r) for r in range(2)})
    replaying = [(find(n), {}) for n in ("critical-path", "diagnose", "stragglers")]
    replies = dict(each_reply(run, [(Last(), {}), *replaying, (find("whatif"), {"max_error": 100.0})]))
    assert [r.skipped for r in replies.values()] == [None] * 5
    assert made == {"rank_graph": 2, "join": 1, "peers_of": 1}
    assert kept == [[]]  # what they shared was let go
