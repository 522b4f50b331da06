"""The statement that a recipe shows computes, in `alltrace sql`, the answer of the recipe."""

from __future__ import annotations

import pytest
from tests.making import make_run
from tests.recipes.test_every_recipe import options_of, tables_of

from alltrace.cli.main import main
from alltrace.recipes import sql_recipe
from alltrace.recipes.analysis.sql_engine import PartRows, run_statement
from alltrace.recipes.base import Part, of
from alltrace.recipes.execution import ask as ask_module
from alltrace.recipes.execution import part_store
from alltrace.recipes.execution.ask import resolve_options
from alltrace.recipes.questions.sql import query
from alltrace.recipes.registry import REPORTS, find, names
from alltrace.trace.errors import InputError, UsageError

SQL = [n for n in (*names(), *(f"stats:{r}" for r in REPORTS)) if find(n).statements is not None]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("sql") / "run", {rank: with_waits(tables_of(rank)) for rank in range(3)})


def with_waits(tables):
    """The tables with a call that waits, and with copies and a fill of each kind that a rule looks for."""
    call, copy = tables["api"][0], tables["copies"][0]
    calls = ("cudaStreamSynchronize", "cudaMemcpyAsync", "cudaMemcpy", "cudaMemset")
    tables["api"] += [{**call, "name": name, "correlation": 900 + n, "process": 0} for n, name in enumerate(calls)]
    tables["kernels"].append({**tables["kernels"][0], "short_name": "a"})
    tables["ranges"].append({**tables["ranges"][0], "name": "a"})
    of = {"bytes": 1 << 20, "process": 0, "src_kind": "pageable", "dst_kind": "pinned", "src_device": None}
    kinds = ("DtoH", "DtoH", "memset")
    tables["copies"] += [{**copy, **of, "kind": kind, "correlation": 901 + n} for n, kind in enumerate(kinds)]
    return tables


def test_there_are_such_recipes():
    assert len(SQL) > 15


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", SQL)
def test_the_statement_that_is_shown_gives_what_is_computed(name, run):
    recipe = find(name)
    options = resolve_options(recipe, options_of(recipe))
    if of(recipe.statements.computed, options) is not None:
        with pytest.raises(UsageError, match="which SQL does not compute"):
            recipe.shown_statement(options)
        return
    parts = [Part(r.rank, recipe.map(run.rank(r.rank), options)) for r in run.ranks]
    computed = recipe.statements.over_parts(parts, run, options)
    shown = query(run, recipe.shown_statement(options)).table
    assert computed.num_rows
    assert shown.column_names == computed.column_names
    assert _rows(shown) == _rows(computed)


@pytest.mark.parametrize("left", [None, 300])
def test_a_file_that_is_removed_or_cut_off_meanwhile_is_a_sentence(left, run, monkeypatch):
    monkeypatch.setattr(sql_recipe, "_ROWS_AT_ONCE", 1)
    monkeypatch.setattr(part_store, "LARGE_BYTES", 0)
    with part_store.PartFiles(held_bytes=0) as files:
        recipe = find("kernels")
        options = resolve_options(recipe, {})
        parts = [files.stored(Part(r.rank, recipe.map(run.rank(r.rank), options))) for r in run.ranks]
        rows = PartRows(parts)
        if left is None:
            parts[1].path.unlink()
        else:
            parts[1].path.write_bytes(parts[1].path.read_bytes()[:left])
        with pytest.raises(Exception, match="parts"):
            run_statement("SELECT sum(value) FROM parts", {"parts": rows})
        assert isinstance(rows.failure, InputError)
        with pytest.raises(InputError, match=r"0-1.arrow: a temporary file was removed or truncated .*; run it again"):
            recipe.statements.over_parts(parts, run, options)


def test_a_statement_over_rows_that_cannot_be_read_gives_their_error(run, monkeypatch):
    class Lost(Part):
        def batches(self):
            raise InputError("0-1.arrow", found="it is gone")

    monkeypatch.setattr(sql_recipe, "_ROWS_AT_ONCE", 1)
    recipe = find("kernels")
    options = resolve_options(recipe, {})
    parts = [Lost(r.rank, recipe.map(run.rank(r.rank), options)) for r in run.ranks]
    with pytest.raises(InputError, match="it is gone"):
        recipe.statements.over_parts(parts, run, options)


@pytest.mark.parametrize(
    "name", [n for n in (*names(), *(f"stats:{r}" for r in REPORTS)) if find(n).map_ranks is not None]
)
def test_ranks_that_are_asked_together_contribute_what_each_does_alone(name, run):
    recipe = find(name)
    ranks = [run.rank(record.rank) for record in run.ranks]
    for changed in recipe.option_sets():
        options = resolve_options(recipe, {**options_of(recipe), **{k: v for k, v in changed.items() if v is not None}})
        rows = recipe.map_ranks(ranks, options)
        if rows is None:
            continue
        parts = ask_module.parted(rows, [rank.rank for rank in ranks])
        if recipe.statements is not None and of(recipe.statements.together, options):
            alone = [Part(rank.rank, recipe.map(rank, options)) for rank in ranks]
            most = max(count for part in alone for count in part.table.column("count").to_pylist())
            assert max(rows.column("count").to_pylist()) > most, (name, options)
            whole = recipe.statements.over_parts(alone, run, options)
            assert recipe.statements.over_parts(parts, run, options).equals(whole), (name, options)
            continue
        together = {part.rank: part.table for part in parts}
        for rank in ranks:
            alone = recipe.map(rank, options)
            assert together[rank.rank].column_names == alone.column_names, (name, options)
            assert _rows(together[rank.rank]) == _rows(alone), (name, options)


@pytest.mark.parametrize("name", ["kernels", "launches", "durations"])
def test_rows_that_ranks_have_in_common_are_merged_before_the_statistics(name, run, monkeypatch):
    recipe, statements, merged = find(name), [], []
    options = {**resolve_options(recipe, {}), **({"by": "kernel"} if name == "launches" else {})}
    parts = [Part(r.rank, recipe.map(run.rank(r.rank), options)) for r in run.ranks]

    def watched(statement, tables, parameters=None):
        statements.append(statement)
        if statement == of(recipe.statements.merge, options):
            merged.append(tables["parts"].num_rows)
        return run_statement(statement, tables, parameters)

    monkeypatch.setattr(sql_recipe, "run_statement", watched)
    whole = recipe.statements.over_parts(parts, run, options)
    assert len(statements) == 1  # few rows are not worth it
    monkeypatch.setattr(sql_recipe, "_WORTH_MERGING", 0)
    assert recipe.statements.over_parts(parts, run, options).equals(whole)
    assert merged == [sum(part.table.num_rows for part in parts)]


def _rows(table):
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=str)


def test_the_command_line_prints_it_without_a_run(capsys):
    assert main(["stats", "cuda_api_sum", "--show-sql"]) == 0
    assert capsys.readouterr().out == find("stats:cuda_api_sum").shown_statement({"by_rank": False}) + "\n"


def test_options_choose_among_expressions_of_ours(capsys):
    assert main(["stats", "cuda_gpu_kern_sum", "--base", "--show-sql"]) == 0
    assert "coalesce(short_name, name) AS kernel" in capsys.readouterr().out


def test_what_loops_compute_has_no_statement():
    with pytest.raises(UsageError, match="breakdown is computed by compiled loops"):
        find("breakdown").shown_statement({})
    with pytest.raises(UsageError, match="the NVTX range around each launch"):
        find("stats:cuda_gpu_kern_sum").shown_statement({"nvtx_name": True})


@pytest.mark.parametrize(
    ("name", "option", "said"),
    [
        ("cuda_gpu_kern_sum", {"start": 5}, "which rows pass --start 5"),
        ("nvtx_sum", {"filter_nvtx": "a"}, "which rows pass --filter-nvtx a"),
        ("cuda_memcpy_sync", {"nvtx": "a"}, "which rows pass --nvtx a"),
        ("cuda_memcpy_sync", {"rows": 3}, "the first rows of each rank"),
    ],
)
def test_what_a_statement_lacks_is_never_left_out_in_silence(name, option, said):
    recipe = find(name)
    with pytest.raises(UsageError, match=f"{said}, which SQL does not compute"):
        recipe.shown_statement(resolve_options(recipe, option))


@pytest.mark.parametrize("more", [["--steps", "2:4"], ["--ranks", "0"], ["--skip-warmup"], ["--bse"]])
def test_the_command_line_prints_no_statement_of_another_question(more, capsys):
    assert main(["stats", "cuda_gpu_kern_sum", "--show-sql", *more]) == 2
    assert not capsys.readouterr().out
