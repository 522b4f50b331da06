"""The steps of every rank, and over all of them."""

from __future__ import annotations

from tests.making import COMPUTE_KERNEL, kernel, make_run

from alltrace.recipes.execution.ask import ask


def rows_of(shift=0, slow=None):
    ranges, api, kernels = [], [], []
    at = shift
    for step in range(4):
        length = 150 if step == slow else 100
        ranges.append({"start": at, "end": at + length, "name": f"step {step}", "depth": 0})
        api.append({"start": at + 10, "end": at + 11, "name": "cudaLaunchKernel", "correlation": step})
        kernels.append(kernel(at + 20, at + length + 5, COMPUTE_KERNEL, correlation=step))
        at += length
    return {"ranges": ranges, "api": api, "kernels": kernels}


def test_a_row_per_rank_and_step(tmp_path):
    run = make_run(tmp_path / "run", {0: rows_of(), 1: rows_of(7, slow=2)})
    rows = ask(run, "steps").table.to_pylist()
    assert [(r["rank"], r["step"]) for r in rows] == [(r, s) for r in range(2) for s in range(4)]
    assert rows[6] == {
        "rank": 1,
        "host": "host0",
        "step": 2,
        "kind": "step",
        "start_ns": 207,
        "end_ns": 357,
        "duration_ns": 150,
        "device_start_ns": 227,
        "device_end_ns": 362,
        "device_span_ns": 135,
        "source": "range",
        **dict.fromkeys(("phase", "requests", "prefill_requests", "query_tokens", "kv_tokens")),
    }


def test_a_row_per_step_over_all_ranks(tmp_path):
    run = make_run(tmp_path / "run", {0: rows_of(), 1: rows_of(7, slow=2), 2: rows_of(3)})
    rows = ask(run, "steps", {"per_step": True}).table.to_pylist()
    assert rows[2] == {
        "step": 2,
        "kind": "step",
        "ranks": 3,
        "duration_ns": 100,
        "slowest_rank": 1,
        "slowest_ns": 150,
        "spread_ns": 50,
        "device_span_ns": 85,
        "start_spread_ns": 7,
    }
    assert [r["start_spread_ns"] for r in rows] == [7, 7, 7, 57]


def test_ranks_and_steps_can_be_chosen(tmp_path):
    run = make_run(tmp_path / "run", {0: rows_of(), 1: rows_of(7)})
    rows = ask(run, "steps", ranks=[1], steps="1:3").table.to_pylist()
    assert [(r["rank"], r["step"]) for r in rows] == [(1, 1), (1, 2)]


def test_iterations_of_a_server_have_their_batch(tmp_path):
    names = [
        "execute_40_context_2(sq32sk64sqsq0sqsk0)_generation_8(sq8sk900sqsq8sqsk900)",
        "execute_8_context_0(sq0sk0sqsq0sqsk0)_generation_8(sq8sk908sqsq8sqsk908)",
    ]
    ranges = [{"start": 100 * n, "end": 100 * n + 90, "name": name, "kind": "pushpop"} for n, name in enumerate(names)]
    inner = {"start": 5, "end": 80, "name": "step[EXTEND bs=2 toks=32]", "kind": "pushpop"}
    facts = ("phase", "requests", "prefill_requests", "query_tokens", "kv_tokens")
    rows = make_run(tmp_path / "vllm", {0: {"ranges": [*ranges, inner]}}).recipe("steps").to_pylist()
    assert [tuple(r[f] for f in facts) for r in rows] == [("mixed", 10, 2, 40, 964), ("decode", 8, 0, 8, 908)]
    within = [
        {"start": 0, "end": 100, "name": "ProfilerStep#4", "kind": "pushpop"},
        {"start": 10, "end": 40, "name": "step[EXTEND bs=2 toks=32]", "kind": "pushpop"},
        {"start": 50, "end": 90, "name": "step[DECODE bs=3]", "kind": "pushpop"},
        {"start": 110, "end": 200, "name": "ProfilerStep#5", "kind": "pushpop"},
    ]
    rows = make_run(tmp_path / "sglang", {0: {"ranges": within}}).recipe("steps").to_pylist()
    assert [tuple(r[f] for f in facts) for r in rows] == [("mixed", 5, 2, 35, None), (None,) * 5]
