"""Stragglers, the critical path and what-if, on simulated runs with planted faults."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import pytest
from tests.making import kernel, make_run

import alltrace
from alltrace.synth import write_run
from alltrace.synth.faults import FAULTS
from alltrace.synth.scenarios import SCENARIOS
from alltrace.trace.errors import InputError, UsageError

SLOW = 5
SMALL = {"layers": 6, "kernels_per_layer": 12, "optimizer_kernels": 10}


def simulated(folder, kind, layout=(), **fault):
    base = SCENARIOS["healthy"]
    scenario = dataclasses.replace(
        base,
        layout=dataclasses.replace(base.layout, hosts=2, ranks_per_host=4, **dict(layout)),
        work=dataclasses.replace(base.work, **SMALL),
        faults=(FAULTS[kind](ranks=(SLOW,), **fault),) if kind else (),
        steps=6,
        seed=4711,
    )
    truth = write_run(scenario, folder / "reports", ideal=True)
    return truth, alltrace.open(folder / "reports", cache_dir=folder / "cache")


@pytest.fixture(
    scope="module", params=[{}, {"tensor_parallel": 4}, {"kind": "sharded"}], ids=["data", "tensor", "sharded"]
)
def slow(request, tmp_path_factory):
    return simulated(tmp_path_factory.mktemp("slow"), "slow-rank", request.param.items())


@pytest.mark.sampled(3)
def test_the_slow_rank_causes_the_waits(slow):
    _, run = slow
    rows = run.recipe("stragglers").to_pylist()
    assert [r["rank"] for r in rows].count(SLOW) == 1
    first = rows[0]
    assert (first["rank"], first["cause"], first["pattern"]) == (SLOW, "compute", "recurring")
    assert first["compute_excess_ns"] > 20 * abs(first["host_excess_ns"])
    assert max(rows, key=lambda r: r["path_blame_ns"])["rank"] == SLOW
    # its mates in other groups arrive last too, but only it would have to change
    assert first["root_share"] > 0.95
    assert {r["root_rank"] for r in rows if r["caused_percent"] > 5} == {SLOW}
    assert min(rows, key=lambda r: r["waited_ns"])["rank"] == SLOW
    assert first["waited_ns"] <= 0.001 * first["caused_ns"]


def test_what_is_waited_is_what_is_caused(slow):
    _, run = slow
    rows = run.recipe("stragglers").to_pylist()
    assert sum(r["waited_ns"] for r in rows) == sum(r["caused_ns"] for r in rows) > 0
    assert sum(r["caused_percent"] for r in rows) == pytest.approx(100)
    assert 0.99 <= sum(r["root_share"] for r in rows) <= 1 + 1e-9  # the rest is of transfers
    assert all(0 <= r["exposed_wait_ns"] <= r["waited_ns"] for r in rows)


def test_fixing_the_slow_rank_gives_back_what_was_planted(slow):
    truth, run = slow
    rows = run.recipe("whatif").to_pylist()
    (lost,) = (f["lost_ns"] for f in truth.faults)
    assert (rows[0]["what"], rows[0]["rank"]) == ("rank", SLOW)
    assert rows[0]["saved_ns"] == pytest.approx(lost, rel=0.02)
    assert rows[0]["after_ns"] == rows[0]["before_ns"] - rows[0]["saved_ns"]
    assert all(abs(r["saved_ns"]) < 0.05 * lost for r in rows[1:])
    blame = next(r["path_blame_ns"] for r in run.recipe("stragglers").to_pylist() if r["rank"] == SLOW)
    assert blame >= 0.98 * lost


def test_the_critical_path_is_as_long_as_the_run_was(slow):
    _, run = slow
    shares, pieces = run.recipe("critical-path").to_pylist(), run.recipe("critical-path", segments=True).to_pylist()
    before = run.recipe("whatif").to_pylist()[0]["before_ns"]
    assert sum(r["time_ns"] for r in shares) == sum(r["duration_ns"] for r in pieces) == before
    assert sum(r["share_percent"] for r in shares) == pytest.approx(100)
    assert all(a["start_ns"] + a["duration_ns"] == b["start_ns"] for a, b in pairwise(pieces))
    assert (shares[0]["rank"], shares[0]["class"], shares[0]["slack_ns"]) == (SLOW, "compute", 0)
    assert any(p["class"] == "transfer" and p["what"] and p["what"].startswith("All") for p in pieces)


def test_steps_sum_to_the_run(slow):
    _, run = slow
    rows = run.recipe("whatif", rank=str(SLOW), per_step=True).to_pylist()
    assert [r["step"] for r in rows] == [None, *range(6)]
    assert sum(r["saved_ns"] for r in rows[1:]) == pytest.approx(rows[0]["saved_ns"], rel=0.02)
    assert all(0 < r["after_ns"] < r["before_ns"] for r in rows[1:])


@pytest.mark.parametrize(("kind", "cause", "range_"), [("data-stall", "host", "data"), ("low-bandwidth", "copy", None)])
def test_the_cause_is_named_and_its_time_comes_back(kind, cause, range_, tmp_path):
    truth, run = simulated(tmp_path, kind)
    first = run.recipe("stragglers").to_pylist()[0]
    assert (first["rank"], first["cause"], first["range"]) == (SLOW, cause, range_)
    saved = run.recipe("whatif", rank=str(SLOW)).to_pylist()[0]["saved_ns"]
    assert saved == pytest.approx(truth.faults[0]["lost_ns"], rel=0.05)


@pytest.mark.parametrize(
    ("kind", "layout", "values", "share"),
    [
        ("sync", {}, {"host_ns": 120_000}, 0.1),
        ("host-pause", {"tensor_parallel": 4}, {}, 0.02),
        ("host-pause", {"kind": "pipeline"}, {}, 0.05),
    ],
)
def test_waits_and_pauses_that_no_peer_has_come_back(kind, layout, values, share, tmp_path):
    truth, run = simulated(tmp_path, kind, layout.items(), **values)
    first = run.recipe("whatif").to_pylist()[0]
    assert (first["what"], first["rank"]) == ("rank", SLOW)
    assert first["saved_ns"] == pytest.approx(truth.faults[0]["lost_ns"], rel=share)


def test_pauses_that_each_rank_makes_elsewhere_come_back_too(tmp_path):
    base = SCENARIOS["sharded"].override(ranks=8, hosts=2, steps=6, warmup_steps=0, faults=("host-pause",), ideal=True)
    truth = write_run(base, tmp_path / "reports", ideal=True)
    run = alltrace.open(tmp_path / "reports", cache_dir=tmp_path / "cache")
    saved = run.recipe("whatif", rank="0-7").to_pylist()[0]["saved_ns"]
    assert saved == pytest.approx(truth.faults[0]["lost_ns"], rel=0.1)


def test_a_healthy_run_has_nobody_to_fix(tmp_path):
    _, run = simulated(tmp_path, None)
    rows = run.recipe("whatif").to_pylist()
    assert all(abs(r["saved_percent"]) < 2 for r in rows)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"rank": "99"}, "rank 99"),
        ({"rank": "x"}, "expected numbers"),
        ({"rank": "4-2"}, "lower number first"),
        ({"kernel": "("}, "not a valid regular expression"),
        ({"kernel": "no such kernel"}, "no kernel's name"),
        ({"op": "Gossip"}, "no matched operation"),
        ({"communicator": "nobody"}, "no communicator"),
        ({"rank": "1", "op": "AllReduce"}, "does not go with"),
        ({"scale": -1.0}, "^scale is -1.0"),
    ],
)
def test_what_cannot_be_changed_is_refused(slow, options, error):
    with pytest.raises(UsageError, match=error):
        slow[1].recipe("whatif", **options)


def test_a_replay_that_is_too_far_from_the_run_is_refused(tmp_path):
    run = make_run(tmp_path / "run", {0: {"kernels": [kernel(0, 1_000), kernel(101_000, 102_000)]}})
    with pytest.raises(InputError, match=r"93\.1 %; expected at most 5 %"):
        run.recipe("whatif")
    (row,) = run.recipe("whatif", max_error=95.0).to_pylist()
    assert (row["before_ns"], row["saved_ns"]) == (102_000, 0)
    assert any("the replay error is 93.14 %" in n for n in run.recipe("critical-path").notes)


@pytest.mark.parametrize(
    ("named", "saved"), [({"kernel": "gemm"}, 500_000), ({"rank": "0"}, 1_000_000), ({"kernel": "add"}, 500_000)]
)
def test_what_is_named_is_scaled(tmp_path, named, saved):
    names = ("void gemm_kernel(int)", "void add_kernel(int)")
    kernels = [kernel(n * 1_001_000, n * 1_001_000 + 1_000_000, name) for n, name in enumerate(names)]
    run = make_run(tmp_path / "run", {0: {"kernels": kernels}})
    (row,) = run.recipe("whatif", scale=0.5, **named).to_pylist()
    assert row["saved_ns"] == saved


def test_operations_that_are_named_are_scaled(slow):
    _, run = slow
    op = next(
        r["what"].removeprefix("op ") for r in run.recipe("whatif", scale=0).to_pylist() if r["what"].startswith("op ")
    )
    half, none = (run.recipe("whatif", op=op, scale=scale).to_pylist()[0] for scale in (0.5, 0))
    assert 0 < half["saved_ns"] < none["saved_ns"]


@pytest.mark.parametrize("number", range(4))  # ids of some names are negative, as those of copies are
def test_kernels_on_the_critical_path_have_their_names(tmp_path, number):
    name = f"void kernel_{number}(int)"
    run = make_run(tmp_path / "run", {0: {"kernels": [kernel(n * 2_000, n * 2_000 + 1_500, name) for n in range(3)]}})
    rows = run.recipe("critical-path", segments=True).to_pylist()
    assert {r["what"] for r in rows if r["class"] == "compute"} == {name}
