from __future__ import annotations

import json

from tests.making import make_run
from tests.recipes.work import call, frame, launched, module, operator

KEYS = ("name", "operator", "module", "source")
LINEAR = "torch/nn/modules/linear.py(114): forward"


def step():
    """A module that multiplies, its backward on another thread, and a kernel whose call is not known."""
    return {
        "threads": [{"thread": n, "process": 0, "tid": 4001 + n, "name": f"t{n}"} for n in range(2)],
        "ranges": [
            module("Model_0", 0, 500),
            module("Linear_0", 10, 300),
            operator("aten::linear", 20, 200, sequence=7),
            operator("aten::addmm", 30, 150, sequence=7),
            operator("autograd::engine::evaluate_function: AddmmBackward0", 600, 900, sequence=7, thread=1),
            operator("aten::mm", 650, 700, thread=1),
            operator("aten::sum", 520, 540),
        ],
        "frames": [frame("train.py(3): step", 0, 560), frame("model.py(8): forward", 5, 310), frame(LINEAR, 15, 250)],
        "kernels": launched(
            [("gemm", 1, 200, 230), ("gemm", 2, 700, 770), ("reduce", 3, 800, 805), ("lone", 99, 900, 901)]
        ),
        "api": [call(40, 45, 1), call(660, 665, 2, thread=1), call(525, 530, 3)],
    }


def test_a_kernel_has_what_is_around_its_launch_and_the_backward_what_is_around_the_forward(tmp_path):
    answer = make_run(tmp_path, {0: step(), 1: step()}).recipe("kernel-origins")
    assert [tuple(r[k] for k in (*KEYS, "ranks", "count", "total_ns")) for r in answer.to_pylist()] == [
        ("gemm", "aten::mm", "Model_0/Linear_0", "model.py(8): forward", 2, 2, 140),
        ("gemm", "aten::addmm", "Model_0/Linear_0", "model.py(8): forward", 2, 2, 60),
        ("reduce", "aten::sum", None, "train.py(3): step", 2, 2, 10),
        ("lone", None, None, None, 2, 2, 2),
    ]
    assert sum(r["time_percent"] for r in answer.to_pylist()) == 100


def test_only_lines_of_libraries_are_better_than_none(tmp_path):
    tables = {**step(), "frames": [frame(LINEAR, 15, 250), frame("<built-in method addmm>", 25, 160)]}
    rows = make_run(tmp_path, {0: tables}).recipe("kernel-origins").to_pylist()
    assert [r["source"] for r in rows if r["operator"] == "aten::addmm"] == [LINEAR]


def test_stacks_that_come_with_operators_give_the_line(tmp_path):
    said = json.dumps({"Call stack": f"{LINEAR};model.py(8): forward;train.py(3): step"})
    tables = {
        "ranges": [operator("aten::addmm", 30, 150, payload=said)],
        "kernels": step()["kernels"][:1],
        "api": [call(40, 45, 1)],
    }
    (row,) = make_run(tmp_path, {0: tables}).recipe("kernel-origins").to_pylist()
    assert (row["source"], row["module"]) == ("model.py(8): forward", None)


def test_rows_are_cut_and_a_run_without_operators_says_so(tmp_path):
    answer = make_run(tmp_path / "a", {0: step()}).recipe("kernel-origins", top=1)
    assert (len(answer.to_pylist()), answer.notes) == (1, ("1 of 4 rows are shown (--top)",))
    answer = make_run(tmp_path / "b", {0: {"kernels": step()["kernels"]}}).recipe("kernel-origins")
    assert answer.notes == ("no launch is in an operator or module (a trace of the PyTorch profiler has them)",)
