"""Sums over all ranks are exact beyond 64 bits, as for thousands of ranks over days."""

from __future__ import annotations

from decimal import Decimal

import pytest
from tests.making import kernel, make_run

from alltrace.charts import draw, figure
from alltrace.charts.text_table import to_text
from alltrace.cli.output import to_json
from alltrace.recipes.execution.ask import ask
from alltrace.recipes.questions.diff import compare
from alltrace.report.content import gather

LONG = 1 << 57
RANKS = 40
SIZES = {f"{what}_{axis}": 1 for what in ("grid", "block") for axis in "xyz"}
TOTAL = RANKS * (4 * LONG - 10)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Ranks with four ranges, calls and kernels of 4.5 years each."""
    tables = {"ranges": [], "api": [], "kernels": []}
    for n in range(4):
        at = n * LONG
        end = at + LONG - (10 if n == 3 else 0)
        tables["ranges"].append(
            {"start": at, "end": end, "name": "part", "kind": "pushpop", "depth": 0, "source_row": n}
        )
        tables["api"].append({"start": at, "end": end, "name": "cudaLaunchKernel", "correlation": n})
        tables["kernels"].append(kernel(at, end, "gemm", correlation=n, **SIZES))
    return make_run(tmp_path_factory.mktemp("run"), dict.fromkeys(range(RANKS), tables))


@pytest.mark.sampled(16)
@pytest.mark.parametrize(
    ("name", "options", "column"),
    [
        ("kernels", {}, "total_ns"),
        ("launch-configurations", {}, "total_ns"),
        ("durations", {"what": "range"}, "total_ns"),
        ("operators", {"by": "range"}, "cpu_total_ns"),
        ("operators", {"by": "range"}, "gpu_total_ns"),
        ("kernel-sequences", {"min_length": 1}, "gpu_total_ns"),
        ("occupancy", {}, "duration_ns"),
        ("efficiency", {"per": "run"}, "useful_ns"),
        ("stats:cuda_gpu_kern_sum", {}, "Total Time (ns)"),
        ("stats:cuda_api_sum", {}, "Total Time (ns)"),
        ("stats:nvtx_sum", {}, "Total Time (ns)"),
        ("stats:nvtx_kern_sum", {}, "Total Time (ns)"),
        ("stats:nvtx_gpu_proj_sum", {}, "Total Proj Time (ns)"),
        ("stats:nvtx_gpu_proj_sum", {}, "Total Range Time (ns)"),
        ("nvtx_gpu_proj_sum", {}, "Sum"),
        ("cuda_gpu_kern_sum", {}, "Total Time"),
    ],
)
def test_a_sum_over_all_ranks_is_exact(run, name, options, column):
    answer = ask(run, name, options, jobs=1)
    assert answer.table.column(column)[0].as_py() == Decimal(TOTAL) > 2**63
    assert str(TOTAL) in to_json(name, answer, answer.table, run.facts())
    assert to_text(answer, answer.table)
    if answer.chart is not None:
        figure(draw(answer))


def test_two_runs_with_such_sums_are_compared(run):
    row = compare(run, run, what="kernel").table.to_pylist()[0]
    assert (row["total_a_ns"], row["total_b_ns"], row["total_change_ns"]) == (Decimal(TOTAL), Decimal(TOTAL), 0)


@pytest.mark.slow
def test_a_report_has_them(run):
    kernels = next(s.answer for s in gather(run, "large", jobs=1).sections if s.ask.recipe == "kernels")
    assert kernels is not None
    assert kernels.table.column("total_ns")[0].as_py() == TOTAL
