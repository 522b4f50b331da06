from __future__ import annotations

import json

import pytest
from tests.making import make_run
from tests.recipes.work import MEGA, call, frame, launched, module, operator


def by_name(run, **options):
    return {r["name"]: r for r in run.recipe("operators", **options).to_pylist()}


def dims(*shapes, kind="float"):
    return json.dumps({"Input Dims": [list(s) for s in shapes], "Input type": [kind] * len(shapes)})


def step():
    """A linear layer of a module: a product in 100 ns on the device, and a copy of 20 outside of all operators.

    0 ........................ 1000 Model
      100 ............... 500      Model/Linear_0
        110 ......... 400           aten::linear
           120 ... 300              aten::addmm, which launches at 150
                        600 650     aten::add, which launches at 610
                                900 a copy
    """
    ranges = [
        module("Model_0", 0, 1000),
        module("Linear_0", 100, 500),
        operator("aten::linear", 110, 400, payload=dims((4, 2), (3, 2), (3,))),
        operator("aten::addmm", 120, 300, payload=dims((3,), (4, 2), (2, 3))),
        operator("aten::add", 600, 650, payload=dims((4, 3), (4, 3))),
        {"start": 0, "end": 2000, "name": "step", "kind": "pushpop"},
    ]
    kernels = launched([("gemm", 1, 200, 300), ("add", 2, 700, 740)])
    copies = [{"start": 950, "end": 970, "kind": "HtoD", "bytes": 8, "correlation": 3}]
    return {
        "ranges": ranges,
        "kernels": kernels,
        "copies": copies,
        "api": [call(150, 160, 1), call(610, 615, 2), call(900, 905, 3)],
    }


def test_times_are_of_what_is_launched_inside_and_self_of_the_innermost(tmp_path):
    found = by_name(make_run(tmp_path, {0: step(), 1: step()}))
    facts = ("ranks", "calls", "cpu_total_ns", "cpu_self_ns", "gpu_total_ns", "gpu_self_ns", "gpu_operations")
    assert {n: tuple(r[c] for c in facts) for n, r in found.items()} == {
        "aten::linear": (2, 2, 580, 220, 200, 0, 2),
        "aten::addmm": (2, 2, 360, 360, 200, 200, 2),
        "aten::add": (2, 2, 100, 100, 80, 80, 2),
    }
    assert found["aten::addmm"]["gpu_self_percent"] == pytest.approx(100 * 200 / 320)


def test_work_outside_of_operators_is_noted(tmp_path):
    answer = make_run(tmp_path, {0: step()}).recipe("operators", top=1)
    assert answer.notes == (
        "12.5 % of the GPU time was launched outside of all operators, or its call is not known",
        "1 of 3 rows are shown (--top)",
    )
    assert [r["name"] for r in answer.to_pylist()] == ["aten::linear"]


def test_operations_bytes_and_rates(tmp_path):
    found = by_name(make_run(tmp_path, {0: step(), 1: step()}))
    flops, least = 2 * 4 * 2 * 3, 4 * (8 + 6 + 12)
    for name in ("aten::linear", "aten::addmm"):
        row = found[name]
        assert (row["flops"], row["least_bytes"]) == (2 * flops, 2 * least)
        assert row["tflop_per_s"] == pytest.approx(flops / 100e-9 / 1e12)
        assert row["flop_per_byte"] == pytest.approx(flops / least)
    assert [found["aten::add"][c] for c in ("flops", "tflop_per_s", "least_bytes", "flop_per_byte")] == [None] * 4


def test_modules_are_paths_and_have_the_work_of_the_outermost_operators_inside(tmp_path):
    found = by_name(make_run(tmp_path, {0: step()}), by="module")
    facts = ("cpu_total_ns", "cpu_self_ns", "gpu_total_ns", "gpu_self_ns", "flops")
    assert {n: tuple(r[c] for c in facts) for n, r in found.items()} == {
        "Model_0": (1000, 600, 160, 60, 48),
        "Model_0/Linear_0": (400, 400, 100, 100, 48),
    }


def test_ranges_have_all_that_is_launched_inside(tmp_path):
    (row,) = make_run(tmp_path, {0: step()}).recipe("operators", by="range").to_pylist()
    assert (row["name"], row["gpu_total_ns"], row["gpu_self_ns"], row["gpu_operations"], row["flops"]) == (
        "step",
        160,
        160,
        3,
        48,
    )


def test_an_operator_with_the_shapes_of_its_tensors(tmp_path):
    other = operator("aten::add", 700, 720, payload=dims((8, 3), (8, 3)))
    tables = step()
    rows = make_run(tmp_path, {0: {**tables, "ranges": [*tables["ranges"], other]}}).recipe(
        "operators", by="operator-shape"
    )
    assert {(r["name"], r["shapes"]): r["calls"] for r in rows.to_pylist()} == {
        ("aten::linear", "4x2 3x2 3"): 1,
        ("aten::addmm", "3 4x2 2x3"): 1,
        ("aten::add", "4x3 4x3"): 1,
        ("aten::add", "8x3 8x3"): 1,
    }


def test_stacks_are_the_functions_around_the_operators(tmp_path):
    frames = [frame("train.py(3): main", 0, 1000), frame("model.py(8): forward", 90, 550)]
    found = by_name(make_run(tmp_path, {0: {**step(), "frames": frames}}), by="stack")
    assert {n: (r["calls"], r["gpu_total_ns"], r["gpu_self_ns"]) for n, r in found.items()} == {
        "train.py(3): main;model.py(8): forward": (2, 100, 100),
        "train.py(3): main": (1, 40, 40),
    }


def test_stacks_and_modules_that_operators_state_themselves(tmp_path):
    said = json.dumps(
        {"Call stack": "b.py(2): g;a.py(1): f", "Module Hierarchy": "top.fc1"}
    )  # PyTorch writes the innermost first
    tables = {
        "ranges": [operator("aten::mm", 0, 100, payload=said)],
        "kernels": launched([("k", 1, 50, 90)]),
        "api": [call(10, 20, 1)],
    }
    run = make_run(tmp_path, {0: tables})
    assert by_name(run, by="stack")["a.py(1): f;b.py(2): g"]["gpu_total_ns"] == 40
    assert by_name(run, by="module")["top.fc1"]["gpu_total_ns"] == 40


def test_an_operator_within_one_of_its_name_counts_once(tmp_path):
    ranges = [operator("aten::to", 0, 100), operator("aten::to", 10, 90), operator("aten::to", 20, 30)]
    tables = {"ranges": ranges, "kernels": launched([("k", 1, 200, 260)]), "api": [call(22, 24, 1)]}
    (row,) = make_run(tmp_path, {0: tables}).recipe("operators").to_pylist()
    assert (row["calls"], row["cpu_total_ns"], row["cpu_self_ns"]) == (3, 100, 100)
    assert (row["gpu_total_ns"], row["gpu_self_ns"], row["gpu_operations"]) == (60, 60, 1)


def test_a_driver_call_within_its_runtime_call_launches_once(tmp_path):
    tables = {
        "ranges": [operator("aten::mm", 0, 100)],
        "kernels": launched([("k", 1, 200, 260)]),
        "api": [call(10, 50, 1), call(20, 30, 1, name="cuLaunchKernel")],
    }
    (row,) = make_run(tmp_path, {0: tables}).recipe("operators").to_pylist()
    assert (row["gpu_total_ns"], row["gpu_operations"]) == (60, 1)


def test_threads_do_not_mix(tmp_path):
    threads = [{"thread": n, "process": 0, "tid": 4001 + n, "name": f"t{n}"} for n in range(2)]
    tables = {
        "threads": threads,
        "ranges": [operator("aten::mm", 0, 100), operator("aten::add", 0, 100, thread=1)],
        "kernels": launched([("k", 1, 200, 260)]),
        "api": [call(10, 50, 1, thread=1)],
    }
    found = by_name(make_run(tmp_path, {0: tables}))
    assert {n: r["gpu_total_ns"] for n, r in found.items()} == {"aten::mm": 0, "aten::add": 60}


def test_the_backward_belongs_to_the_innermost_forward_operator_of_its_number(tmp_path):
    back = "autograd::engine::evaluate_function: AddmmBackward0"
    ranges = [
        module("Model_0", 0, 500),
        operator("aten::linear", 100, 400, sequence=7),
        operator("aten::addmm", 120, 300, sequence=7),
        operator("aten::relu", 410, 450, sequence=8),
        operator(back, 1000, 1200, sequence=7, thread=1),
        operator("AddmmBackward0", 1010, 1190, sequence=7, thread=1),
        operator("aten::mm", 1020, 1100, thread=1),
    ]
    tables = {
        "threads": [{"thread": n, "process": 0, "tid": 4001 + n, "name": f"t{n}"} for n in range(2)],
        "ranges": ranges,
        "kernels": launched([("f", 1, 200, 230), ("b", 2, 1100, 1170)]),
        "api": [call(150, 160, 1), call(1030, 1040, 2, thread=1)],
    }
    run = make_run(tmp_path, {0: tables})
    found = by_name(run)
    assert {n: r["backward_gpu_ns"] for n, r in found.items() if r["backward_gpu_ns"]} == {
        "aten::linear": 70,
        "aten::addmm": 70,
    }
    (row,) = run.recipe("operators", by="module").to_pylist()
    assert (row["gpu_total_ns"], row["backward_gpu_ns"]) == (30, 70)


def test_times_do_not_depend_on_the_order_of_rows(tmp_path):
    tables = step()
    turned = {**tables, "ranges": [{**r, "source_row": n} for n, r in enumerate(reversed(tables["ranges"]))]}
    runs = [make_run(tmp_path / name, {0: rows}) for name, rows in (("a", tables), ("b", turned))]
    for by in ("operator", "module", "range"):
        assert by_name(runs[0], by=by) == by_name(runs[1], by=by)


def test_operators_that_overlap_within_another_are_named(tmp_path):
    ranges = [operator("outer", 0, 100), operator("a", 0, 60), operator("b", 40, 100)]
    answer = make_run(tmp_path, {0: {"ranges": ranges}}).recipe("operators")
    assert {r["name"]: r["cpu_self_ns"] for r in answer.to_pylist()} == {"outer": 0, "a": 60, "b": 60}
    assert answer.notes == (
        "1 call has others of the kind inside that overlap and together last longer: no time of its own is left",
    )


def test_without_numbers_the_backward_is_not_known(tmp_path):
    assert {r["backward_gpu_ns"] for r in make_run(tmp_path, {0: step()}).recipe("operators").to_pylist()} == {None}


def test_products_beyond_any_whole_number_are_counted(tmp_path):
    big = dims((MEGA, MEGA), (MEGA, 8))
    ranges = [operator("aten::mm", 10 * n, 10 * n + 5, payload=big) for n in range(1000)]
    (row,) = make_run(tmp_path, {0: {"ranges": ranges}}).recipe("operators").to_pylist()
    assert row["flops"] == pytest.approx(1000 * 16 * MEGA**2)
    assert row["tflop_per_s"] is None


def test_a_run_of_nsys_says_that_it_has_no_operators(tmp_path):
    tables = {"ranges": [{"start": 0, "end": 9, "name": "step", "kind": "pushpop"}]}
    answer = make_run(tmp_path, {0: tables}).recipe("operators")
    assert answer.notes == ("no rank has operators (a trace of the PyTorch profiler has them)",)


def test_operators_and_ranges_count_together_whatever_number_their_names_have(tmp_path):
    rows = [operator(f"aten::mm, seq = {n}, op_id = {7 * n}", 100 * n, 100 * n + 50) for n in range(3)]
    rows += [{"start": 100 * n, "end": 100 * n + 90, "name": f"iteration {n}", "kind": "pushpop"} for n in range(3)]
    run = make_run(tmp_path / "run", {0: {"ranges": rows}})
    assert {n: r["calls"] for n, r in by_name(run).items()} == {"aten::mm": 3}
    assert {n: r["calls"] for n, r in by_name(run, by="range").items()} == {"iteration": 3}
