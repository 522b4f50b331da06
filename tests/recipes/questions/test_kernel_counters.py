from __future__ import annotations

import pytest
from tests.making import make_run
from tests.recipes.work import operator


def counter(number, name, value, time=0, thread=0, metric="flops"):
    return {
        "time": time, "process": 0, "device": 0, "thread": thread, "correlation": number, "number": number,
        "name": name, "metric": metric, "value": value,
    }  # fmt: skip


def tables(*counters):
    return {
        "threads": [{"thread": 0, "process": 0, "tid": 4001, "name": "t"}],
        "ranges": [operator("aten::linear", 0, 100), operator("aten::mm", 10, 50)],
        "kernel_counters": list(counters),
    }


RANKS = {
    0: tables(
        counter(1, "gemm", 8.0, 20), counter(2, "gemm", 2.0, 30), counter(3, "copy", 1.0, 60),
        counter(1, "gemm", 0.5, 20, metric="hit"),
    ),
    1: tables(counter(1, "gemm", 4.0, 20), counter(2, "copy", 0.0, 200)),
}  # fmt: skip
FACTS = ("name", "metric", "ranks", "count", "total", "mean", "min", "max")


def rows(answer):
    return [tuple(r[f] for f in FACTS) for r in answer.to_pylist()]


def test_counters_are_added_up_by_kernel(tmp_path):
    run = make_run(tmp_path, RANKS)
    assert rows(run.recipe("kernel-counters")) == [
        ("gemm", "flops", 2, 3, 14.0, pytest.approx(14 / 3), 2.0, 8.0),
        ("copy", "flops", 2, 2, 1.0, 0.5, 0.0, 1.0),
        ("gemm", "hit", 1, 1, 0.5, 0.5, 0.5, 0.5),
    ]
    few = run.recipe("kernel-counters", top=1)
    assert [r[:2] for r in rows(few)] == [("gemm", "flops"), ("gemm", "hit")]
    assert few.notes == ("2 of 3 rows are shown (--top)",)


def test_counters_are_added_up_by_the_innermost_operator_around_the_launch(tmp_path):
    assert rows(make_run(tmp_path, RANKS).recipe("kernel-counters", by="operator"))[:3] == [
        ("aten::mm", "flops", 2, 3, 14.0, pytest.approx(14 / 3), 2.0, 8.0),
        ("aten::linear", "flops", 1, 1, 1.0, 1.0, 1.0, 1.0),
        (None, "flops", 1, 1, 0.0, 0.0, 0.0, 0.0),
    ]


def test_without_launches_no_operator_is_guessed(tmp_path):
    answer = make_run(tmp_path, {0: tables(counter(1, "gemm", 8.0, 20, thread=None))}).recipe(
        "kernel-counters", by="operator"
    )
    assert [r[0] for r in rows(answer)] == [None]
    assert answer.notes == (
        "no operator is known: there are not as many launches as measured kernels, or several devices",
    )
