from __future__ import annotations

import pytest
from tests.making import kernel, make_run

from alltrace.recipes.execution.ask import ask
from alltrace.recipes.questions.mfu import Model
from alltrace.trace.errors import UsageError

S = 1_000_000_000
LLAMA = {"parameters": 7e9, "layers": 32, "hidden": 4096, "sequence": 4096}
JOB = {**LLAMA, "batch": 256.0, "peak_tflops": 989.0, "gpus": 64}


def test_operations_of_a_token():
    assert Model(7e9, 32, 4096, 4096).operations_per_token == 42e9 + 12 * 32 * 4096 * 4096 == 48.442450944e9
    assert Model(7e9, 32, 4096, 4096, causal=True).operations_per_token == 42e9 + 6 * 32 * 4096 * 4096
    assert Model(7e9, 32, 4096, 4096, passes=1).operations_per_token == 14e9 + 4 * 32 * 4096 * 4096
    assert Model(7e9, 32, 4096, 4096, passes=4).operations_per_token == 56e9 + 16 * 32 * 4096 * 4096


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two ranks with four steps of 10 s; the second rank is 2 s longer at its last one."""
    ranks = {}
    for r in range(2):
        steps = [
            {"start": i * 10 * S, "end": (i * 10 + 9) * S, "name": f"step {i}", "kind": "pushpop"} for i in range(4)
        ]
        steps[-1]["end"] += r * 2 * S
        ranks[r] = {
            "ranges": steps,
            "kernels": [kernel(i * 10 * S + 5, i * 10 * S + 50, correlation=i) for i in range(4)],
        }
    return make_run(tmp_path_factory.mktemp("mfu") / "run", ranks)


def test_each_step(run):
    answer = ask(run, "mfu", JOB)
    rows = answer.table.to_pylist()
    assert [(r["step"], r["ranks"], r["step_ns"]) for r in rows] == [
        (0, 2, 10 * S),
        (1, 2, 10 * S),
        (2, 2, 10 * S),
        (3, 2, 10 * S),
    ]
    first = rows[0]
    assert first["tokens"] == 1_048_576
    assert first["tokens_per_s"] == pytest.approx(104_857.6)
    assert first["mfu_percent"] == pytest.approx(8.0251, abs=5e-5)
    assert first["hfu_percent"] == first["mfu_percent"]
    assert first["tflops_per_gpu"] == pytest.approx(989 * 0.080251, rel=1e-5)
    assert "4.84425e+10 operations a token, 64 GPUs of 989 TFLOP/s" in answer.notes


def test_what_is_computed_again_is_the_hardwares_work(run):
    row = ask(run, "mfu", {**JOB, "recompute": True}).table.to_pylist()[0]
    assert row["mfu_percent"] == pytest.approx(8.0251, abs=5e-5)
    assert row["hfu_percent"] == pytest.approx(8.0251 * 4 / 3, abs=1e-4)


def test_the_gpus_of_the_run_are_the_jobs_by_default(run):
    given = {k: v for k, v in JOB.items() if k != "gpus"}
    answer = ask(run, "mfu", given)
    assert answer.table.to_pylist()[0]["mfu_percent"] == pytest.approx(8.0251 * 32, abs=1e-3)
    assert any("4 of 4 steps are above the peak" in n for n in answer.notes)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"parameters": 0.0}, "--parameters of mfu is 0.0; expected a number above 0"),
        ({"peak_tflops": float("nan")}, "--peak-tflops of mfu is nan"),
        ({"batch": float("inf")}, "--batch of mfu is inf"),
        ({"layers": 0}, "--layers of mfu is 0; expected 1 or more"),
        ({"work": "forward", "recompute": True}, "--recompute of mfu is about training"),
    ],
)
def test_a_description_that_cannot_be_is_refused(wrong, message, run):
    with pytest.raises(UsageError, match=message):
        ask(run, "mfu", {**JOB, **wrong})


def test_a_run_without_steps_says_so(tmp_path):
    answer = ask(make_run(tmp_path / "run", {0: {"kernels": [kernel(0, 10)]}}), "mfu", JOB)
    assert answer.table.num_rows == 0
    assert "no steps were found in the run" in answer.notes
