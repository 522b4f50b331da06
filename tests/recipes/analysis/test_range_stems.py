"""Recipes that add up ranges do so by stems: counters in names do not distinguish ranges."""

from __future__ import annotations

import numpy as np
import pytest
from tests.making import collective, kernel, make_run

from alltrace.recipes.analysis.lateness import host_range
from alltrace.recipes.analysis.range_sums import stems_of
from alltrace.recipes.execution.ask import ask
from alltrace.recipes.questions.sql import query
from alltrace.trace.names import name_id

NAMES = ("aten::mm, seq = 5, op_id = 9", "aten::mm, seq = 6, op_id = 11", "aten::mm, seq = 7, op_id = 13")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Three calls of an operator, each of which launches three kernels of 50 ns, with samples of a metric."""
    tables = {"ranges": [], "api": [], "kernels": [], "gpu_metrics": []}
    for n, name in enumerate(NAMES):
        at = 1000 * n
        tables["ranges"].append(
            {"start": at, "end": at + 200, "name": name, "kind": "pushpop", "depth": 0, "source_row": n}
        )
        for k in range(3):
            correlation = 10 * n + k
            tables["api"].append(
                {"start": at + 10 * k, "end": at + 10 * k + 5, "name": "cudaLaunchKernel", "correlation": correlation}
            )
            tables["kernels"].append(kernel(at + 300 + 60 * k, at + 350 + 60 * k, f"k{k}", correlation=correlation))
    tables["gpu_metrics"] = [{"time": 100 * n, "metric": "SM Active", "value": 50.0} for n in range(1, 31)]
    tables["kernels"].append(collective(2900, 2950))
    return make_run(tmp_path_factory.mktemp("run"), {0: tables})


def test_names_without_counters_are_numbered(run):
    ids = np.array([name_id(NAMES[0]), 0, name_id(NAMES[2]), name_id("k0")], np.int64)
    rows, stems = stems_of(run.rank(0), ids)
    assert [stems[n] for n in rows.tolist()] == ["aten::mm", None, "aten::mm", "k0"]
    assert len(stems) == 3


def test_names_that_were_asked_for_before_have_the_same_stems(run):
    ids = np.array([name_id("k1"), name_id(NAMES[1])], np.int64)
    for _ in range(2):
        rows, stems = stems_of(run.rank(0), ids)
        assert [stems[n] for n in rows.tolist()] == ["k1", "aten::mm"]
        stems.clear()  # they are the caller's
        rows += 1
    rows, stems = stems_of(run.rank(0), ids[::-1])
    assert [stems[n] for n in rows.tolist()] == ["aten::mm", "k1"]


def test_many_names(tmp_path):
    names = [f"range {chr(97 + n % 26)}{chr(97 + n // 26 % 26)}{chr(97 + n // 676)}, op_id = {n}" for n in range(1_500)]
    run = make_run(
        tmp_path / "run", {0: {"ranges": [{"start": n, "end": n + 1, "name": name} for n, name in enumerate(names)]}}
    )
    rows, stems = stems_of(run.rank(0), np.array([name_id(n) for n in names], np.int64))
    assert [stems[n] for n in rows.tolist()] == [n.partition(",")[0] for n in names]


def test_each_recipe_has_the_operator_once(run):
    asked = {
        "durations": ({"what": "range"}, "name", "count"),
        "operators": ({"by": "range"}, "name", "calls"),
        "kernel-sequences": ({}, "operator", "count"),
        "metric-attribution": ({"by": "range"}, "name", "work_ns"),
    }
    found = {
        recipe: [(r[name], r[number]) for r in ask(run, recipe, options).table.to_pylist()]
        for recipe, (options, name, number) in asked.items()
    }
    assert found == {
        "durations": [("aten::mm", 3)],
        "operators": [("aten::mm", 3)],
        "kernel-sequences": [("aten::mm", 3)],
        "metric-attribution": [("aten::mm", 450)],
    }


def test_a_range_is_asked_for_by_its_stem_or_by_its_whole_name(run):
    spans = [
        ask(run, "efficiency", {"per": "range", "range": name}).table.to_pylist()[0]["span_ns"]
        for name in ("aten::mm", NAMES[1])
    ]
    assert spans[0] > spans[1] > 0


def test_where_the_host_was_is_a_stem(run):
    begin, end = np.array([0, 1000, 2000], np.int64), np.array([190, 1190, 2190], np.int64)
    assert host_range(run.rank(0), begin, end) == "aten::mm"


def test_sql_has_the_stem_too(run):
    answer = query(run, "SELECT stem_of(name) AS stem, count(*) AS n FROM ranges GROUP BY ALL")
    assert answer.table.to_pylist() == [{"stem": "aten::mm", "n": 3}]
