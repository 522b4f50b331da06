from __future__ import annotations

import pytest
from tests.making import make_run
from tests.recipes.work import call, launched, operator

STEP = "TSL:XlaModule:#prefix=jit(step)/jit(main),hlo_module=jit_step,program_id=3#"
MUL = "TSL:Thunk:#name=mul,hlo_op=fusion.1,unique_hlo_op_id=9#"
REDUCE = "TSL:Thunk:#hlo_op=all-reduce-start.2#"


def tables(shift=0):
    """A program of two operations and a kernel beside them, twice; and a kernel outside."""
    ranges, calls, kernels = [], [], []
    for n in (0, 1):
        at = 1000 * n
        ranges += [operator(STEP, at, at + 500), operator(MUL, at + 10, at + 100), operator(REDUCE, at + 110, at + 200)]
        for k, (when, length) in enumerate(((20, 10), (50, 20), (120, 100 + shift), (300, 5))):
            number = 10 * n + k
            calls.append(call(at + when, at + when + 5, number))
            kernels += launched([("kernel", number, at + when + 600, at + when + 600 + length)])
    calls.append(call(900, 905, 99))
    kernels += launched([("other", 99, 2900, 2907)])
    return {"ranges": ranges, "kernels": kernels, "api": calls}


def rows(run, *columns, **options):
    return [tuple(r[c] for c in columns) for r in run.recipe("xla-ops", **options).to_pylist()]


def test_gpu_time_is_that_of_the_operation_that_launched_it(tmp_path):
    run = make_run(tmp_path, {0: tables(), 1: tables(50)})
    assert rows(
        run, "program", "program_id", "op", "scope", "kind", "ranks", "executions", "kernels", "gpu_total_ns"
    ) == [
        ("jit_step", 3, "all-reduce-start.2", None, "collective", 2, 4, 4, 500),
        ("jit_step", 3, "fusion.1", "mul", "compute", 2, 4, 8, 120),
        ("jit_step", 3, None, None, None, 2, 4, 4, 20),
        (None, None, None, None, None, 2, 0, 2, 14),
    ]
    found = rows(run, "gpu_mean_ns", "share_percent", "copies")
    assert found[0] == (125.0, pytest.approx(100 * 500 / 654), 0)
    assert found[3][0] is None


def test_rows_of_programs_and_scopes_are_sums_of_operations(tmp_path):
    run = make_run(tmp_path, {0: tables()})
    assert rows(run, "program", "op", "scope", "gpu_total_ns", by="program") == [
        ("jit_step", None, None, 270),
        (None, None, None, 7),
    ]
    assert rows(run, "program", "op", "scope", "gpu_total_ns", by="scope") == [
        ("jit_step", None, None, 210), ("jit_step", None, "mul", 60), (None, None, None, 7)
    ]  # fmt: skip
    answer = run.recipe("xla-ops", top=1)
    assert (len(answer.to_pylist()), answer.notes[-1]) == (1, "1 of 4 rows are shown (--top)")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Thunk:#hlo_op=f.1,hlo_module=jit_f,program_id=4#", ("jit_f", 4, "f.1", None, "compute")),
        ("Thunk:#name=jit(f)/a,b,hlo_op=f#", (None, None, "f", "jit(f)/a,b", "compute")),
        ("TSL:Thunk:#hlo_op=recv.3#", (None, None, "recv.3", None, "collective")),
        ("Thunk:#hlo_op=send_buffer_fusion#", (None, None, "send_buffer_fusion", None, "compute")),
        ("XlaModule:#hlo_module=jit_f#", ("jit_f", None, None, None, None)),
        ("Thunk:#other=1#", (None,) * 5),
        ("my Thunk:#hlo_op=x#", (None,) * 5),
    ],
)
def test_names_are_those_that_xla_writes(tmp_path, name, found):
    one = {"ranges": [operator(name, 0, 100)], "api": [call(10, 15, 1)], "kernels": launched([("k", 1, 200, 210)])}
    assert rows(make_run(tmp_path, {0: one}), "program", "program_id", "op", "scope", "kind") == [found]


def test_without_xla_a_note_says_so(tmp_path):
    one = {"ranges": [operator("step", 0, 100)], "api": [call(10, 15, 1)], "kernels": launched([("k", 1, 200, 210)])}
    answer = make_run(tmp_path, {0: one}).recipe("xla-ops")
    assert "no range names a program of XLA" in answer.notes[0]
