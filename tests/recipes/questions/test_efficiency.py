"""The POP efficiencies of runs: the model's vectors as events, conventions, regions, shared devices and scaling."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.making import collective, copy, kernel, make_run
from tests.recipes.questions.test_gpu_rates import sampled

from alltrace.recipes.execution.ask import ask
from alltrace.recipes.questions.efficiency import _regions, _Work
from alltrace.trace.errors import UsageError

RATIOS = ("parallel_efficiency", "load_balance", "communication_efficiency", "orchestration_efficiency")


def device(end, kernels=(), copies=(), talks=()):
    """A rank whose region is `[0, end)`."""
    return {
        "kernels": [*(kernel(s, e) for s, e in kernels), *(collective(s, e) for s, e in talks)],
        "copies": [copy(s, e) for s, e in copies],
        "ranges": [{"start": 0, "end": end, "name": "all"}],
    }


V1 = (device(100, [(0, 60)], [(60, 70)]), device(100, [(0, 40)], [(40, 60)]))
V2 = (device(400, [(0, 100), (50, 150)], [(140, 200), (300, 310)]), device(400, [(0, 40)], [(100, 120)], [(200, 230)]))
V3 = (device(100, [(0, 80)]), device(100, [(0, 20)], [(20, 90)]))
V4 = (device(100, [(10, 30), (30, 50)], talks=[(40, 90)]), device(100, [(10, 30), (30, 50)], talks=[(50, 90)]))
V5 = (device(100), device(100, [(0, 50)]))
V6 = (device(100), device(100))


def trees(folder, ranks, **options):
    run = make_run(folder, dict(enumerate(ranks)))
    found = ask(run, "efficiency", {"per": "range", "range": "all", **options})
    return {r["side"]: r for r in found.table.to_pylist()}, found


@pytest.mark.parametrize(
    ("ranks", "convention", "useful", "active", "expected"),
    [
        (V1, "basic", 100, 130, (0.5, 0.833333, 0.857143, 0.7)),
        (V2, "basic", 190, 300, (0.2375, 0.633333, 0.714286, 0.525)),
        (V2, "talp", 220, 300, (0.275, 0.733333, 0.714286, 0.525)),
        (V2, "extrae", 220, 300, (0.275, 0.733333, 0.714286, 0.525)),
        (V3, "basic", 100, 170, (0.5, 0.625, 0.888889, 0.9)),
        (V4, "basic", 80, 160, (0.4, 1, 0.5, 0.8)),
        (V4, "talp", 160, 160, (0.8, 1, 1, 0.8)),
        (V5, "basic", 50, 50, (0.25, 0.5, 1, 0.5)),
        (V6, "basic", 0, 0, (0, None, None, 0)),
    ],
    ids=["V1", "V2", "V2b", "V2 extrae", "V3", "V4", "V4b", "V5", "V6"],
)
def test_the_vectors_of_the_model(tmp_path, ranks, convention, useful, active, expected):
    rows, answer = trees(tmp_path / "run", ranks, convention=convention)
    row = rows["device"]
    assert (row["count"], row["useful_ns"], row["useful_ns"] + row["communication_ns"]) == (2, useful, active)
    assert row["span_ns"] == ranks[0]["ranges"][0]["end"]
    for name, wanted in zip(RATIOS, expected, strict=True):
        assert row[name] is None if wanted is None else row[name] == pytest.approx(wanted, abs=1e-6)
    assert any(n.startswith(f"convention {convention}: ") for n in answer.notes)


def test_fills_count_as_communication_but_not_for_extrae(tmp_path):
    ranks = ({**device(100, [(0, 50)]), "copies": [copy(60, 80, "memset"), copy(80, 90, "DtoH")]},)
    for convention, moved in (("basic", 30), ("talp", 30), ("extrae", 10)):
        rows, _ = trees(tmp_path / convention, ranks, convention=convention)
        assert rows["device"]["communication_ns"] == moved


def test_hosts_lose_to_mpi_and_to_the_runtime(tmp_path):
    def rank(mpi, runtime):
        return {
            "mpi": [{"start": 0, "end": mpi, "name": "MPI_Wait"}],
            "api": [
                {"start": mpi - 10, "end": mpi + runtime, "name": "cudaFree"},
                {"start": mpi, "end": mpi + 5, "name": "cuMemFree"},
            ],
            "ranges": [{"start": 0, "end": 100, "name": "all"}],
        }

    row = trees(tmp_path / "run", (rank(20, 30), rank(40, 20)))[0]["host"]
    assert (row["count"], row["useful_ns"], row["communication_ns"], row["runtime_ns"]) == (2, 90, 60, 50)
    assert row["parallel_efficiency"] == pytest.approx(0.45)
    assert row["mpi_parallel_efficiency"] == pytest.approx(0.7)
    assert (row["load_balance"], row["communication_efficiency"]) == (0.875, 0.8)
    assert row["offload_efficiency"] == pytest.approx(0.642857, abs=1e-6)


def test_a_device_of_two_ranks_is_one(tmp_path):
    one = [{"device": 0, "ordinal": 0, "uuid": "GPU-shared", "name": "H200"}]
    ranks = ({**device(100, [(0, 60)]), "devices": one}, {**device(100, [(30, 90)], [(90, 95)]), "devices": one})
    row = trees(tmp_path / "run", ranks)[0]["device"]
    assert (row["count"], row["useful_ns"], row["communication_ns"]) == (1, 90, 5)
    assert row["parallel_efficiency"] == pytest.approx(0.9)


def test_the_maxima_of_talp_are_over_processes(tmp_path):
    two = [{"device": d, "ordinal": d, "uuid": f"GPU-{d}", "name": "H200"} for d in range(2)]
    rank = {
        "kernels": [kernel(0, 60), kernel(0, 40, device=1)],
        "copies": [copy(60, 70), copy(40, 60, device=1)],
        "ranges": [{"start": 0, "end": 100, "name": "all"}],
        "devices": two,
    }
    row = trees(tmp_path / "run", (rank,), convention="talp")[0]["device"]
    assert [row[n] for n in RATIOS] == pytest.approx([0.5, 0.5, 100 / 130, 1.3])


def test_the_run_spans_the_work_of_all_devices(tmp_path):
    run = make_run(tmp_path / "run", {0: {"kernels": [kernel(1000, 1060)]}, 1: {"kernels": [kernel(1020, 1100)]}})
    row = ask(run, "efficiency").table.to_pylist()[0]
    assert (row["span_ns"], row["useful_ns"], row["parallel_efficiency"]) == (100, 140, 0.7)


def test_a_row_per_step_and_side(tmp_path):
    def rank(busy):
        starts = range(0, 300, 100)
        return {
            "ranges": [{"start": s, "end": s + 100, "name": f"step {s // 100}"} for s in starts],
            "api": [{"start": s, "end": s + 10, "name": "cudaLaunchKernel", "correlation": s} for s in starts],
            "kernels": [kernel(s + 20, s + 20 + busy, correlation=s) for s in starts],
        }

    run = make_run(tmp_path / "run", {0: rank(60), 1: rank(80)})
    rows = ask(run, "efficiency", {"per": "step"}, steps="1:3").table.to_pylist()
    assert [(r["step"], r["side"]) for r in rows] == [(1, "device"), (1, "host"), (2, "device"), (2, "host")]
    assert (rows[0]["span_ns"], rows[0]["useful_ns"], rows[0]["parallel_efficiency"]) == (80, 140, 0.875)
    assert (rows[1]["span_ns"], rows[1]["runtime_ns"], rows[1]["offload_efficiency"]) == (100, 20, 0.9)


@pytest.mark.parametrize("seed", range(5))
def test_the_steps_are_what_each_is_as_a_region_of_its_own(seed):
    draw = np.random.default_rng(seed)
    parts = []
    for rank in (0, 1, 3):
        sets = []
        for what, device in ((0, 0), (1, 0), (0, 1), (1, 1), (2, -1), (3, -1))[: 6 if rank else 2]:
            edges = np.sort(draw.choice(1000, 40, replace=False)).reshape(20, 2)
            sets.append(np.column_stack((np.full(20, what), np.full(20, device), edges)))
        columns = dict(zip(("what", "device", "start", "end"), np.concatenate(sets).T, strict=True))
        parts.append(SimpleNamespace(rank=rank, table=pa.table(columns)))
    ranks = [
        SimpleNamespace(rank=r, unrecorded=(), devices=[SimpleNamespace(device=1, identity=("h", r // 2))])
        for r in range(4)
    ]
    listed = draw.permutation([(r, s) for r in range(4) for s in range(6) if (r, s) != (1, 4)])
    start = listed[:, 1] * 150 + draw.integers(0, 40, len(listed))
    end = start + draw.integers(0, 200, len(listed))
    lacking = (draw.random(len(listed)) < 0.2) | (listed[:, 1] == 3)
    device = {"device_start": pa.array(start + 30, mask=lacking), "device_end": pa.array(end + 50, mask=lacking)}
    steps = pa.table({"rank": listed[:, 0], "step": listed[:, 1], "start": start, "end": end, **device})
    run = SimpleNamespace(ranks=ranks, alignment=SimpleNamespace(steps=steps))
    work, wanted = _Work(parts, run), []
    for step in range(6):
        its = [s for s in steps.to_pylist() if s["step"] == step and s["rank"] != 2]
        host = {s["rank"]: np.array([[s["start"], s["end"]]]) for s in its}
        shown = {
            s["rank"]: np.array([[s["device_start"], s["device_end"]]]) for s in its if s["device_start"] is not None
        }
        wanted.append(work.region(step, None, shown or host, host))
    assert list(_regions(parts, run, {"per": "step", "range": None})) == wanted


def test_each_rank_in_the_time_of_all(tmp_path):
    ranks = {
        0: {"kernels": [kernel(0, 60)], "copies": [copy(60, 80)]},
        1: {"kernels": [kernel(0, 40), kernel(90, 100)]},
    }
    answer = ask(make_run(tmp_path / "run", ranks), "efficiency", {"by": "rank"})
    rows = {(r["rank"], r["side"]): r for r in answer.table.to_pylist()}
    assert list(rows) == [(None, "device"), (None, "host"), (0, "device"), (0, "host"), (1, "device"), (1, "host")]
    found = [
        [rows[rank, "device"][n] for n in ("count", "span_ns", "useful_ns", "communication_ns")]
        for rank in (None, 0, 1)
    ]
    assert found == [[2, 100, 110, 20], [1, 100, 60, 20], [1, 100, 50, 0]]
    assert [rows[rank, "device"]["parallel_efficiency"] for rank in (None, 0, 1)] == [0.55, 0.6, 0.5]
    assert [rows[rank, "device"]["orchestration_efficiency"] for rank in (0, 1)] == [0.8, 0.5]
    assert [rows[rank, "device"]["culprit"] for rank in (None, 0, 1)] == [0, None, None]
    assert [rows[rank, "host"]["count"] for rank in (None, 0, 1)] == [2, 1, 1]
    assert {r["instructions"] for r in rows.values()} == {None}
    assert [note for note in answer.notes if "instructions are not known" in note]


def test_instructions_are_rolled_up_by_rank_and_over_all(tmp_path):
    # 100 multiprocessors issue 25 and 50 % of 4 a cycle of 1 ns for 10 us; a second rank of the first device counts it
    # once
    ranks = {0: sampled(25.0), 1: sampled(50.0, uuid="GPU-1"), 2: sampled(25.0)}
    run = make_run(tmp_path / "run", ranks)
    answer = ask(run, "efficiency", {"by": "rank"})
    rows = {r["rank"]: r for r in answer.table.to_pylist() if r["side"] == "device"}
    counts = {rank: (row["count"], row["instructions"], row["instructions_per_cycle"]) for rank, row in rows.items()}
    assert counts == {None: (2, 3_000_000, 1.5), 0: (1, 1_000_000, 1.0), 1: (1, 2_000_000, 2.0)}
    assert not [note for note in answer.notes if "instructions" in note]
    ranks[1] = sampled(50.0, multiprocessors=None, uuid="GPU-1")
    rows = ask(make_run(tmp_path / "partly", ranks), "efficiency", {"by": "rank"}).table.to_pylist()
    assert [r["instructions"] for r in rows if r["side"] == "device"] == [None, 1_000_000, None]


def test_the_instructions_of_a_step_are_those_of_the_run_in_its_time(tmp_path):
    rank = sampled(25.0)
    rank["ranges"] = [{"start": s, "end": s + 2500, "name": f"step {s // 2500}"} for s in range(0, 10_000, 2500)]
    run = make_run(tmp_path / "run", {0: rank})
    answer = ask(run, "efficiency", {"per": "step"})
    assert {r["instructions"] for r in answer.table.to_pylist()} == {None}
    assert [note for note in answer.notes if "only counted --per run" in note]


@pytest.mark.parametrize(("scaling", "ranks", "grown"), [("strong", 2, 190 / 209), ("weak", 4, 190 / 418 * 2)])
def test_scaling_against_a_reference(tmp_path, scaling, ranks, grown):
    make_run(tmp_path / "small", {0: {"kernels": [kernel(0, 100)]}, 1: {"kernels": [kernel(0, 90)]}})
    lengths = (110, 99, 110, 99)[:ranks]
    run = make_run(tmp_path / "large", {r: {"kernels": [kernel(0, n)]} for r, n in enumerate(lengths)})
    row = ask(run, "efficiency", {"reference": str(tmp_path / "small"), "scaling": scaling}).table.to_pylist()[0]
    assert row["computation_scalability"] == pytest.approx(grown)
    assert row["global_efficiency"] == pytest.approx(grown * row["parallel_efficiency"])


def test_ranges_must_be_named_and_be_there(tmp_path):
    run = make_run(tmp_path / "run", dict(enumerate(V1)))
    with pytest.raises(UsageError, match="needs --range NAME"):
        ask(run, "efficiency", {"per": "range"})
    with pytest.raises(UsageError, match="needs --per range"):
        ask(run, "efficiency", {"range": "all"})
    answer = ask(run, "efficiency", {"per": "range", "range": "none"})
    assert answer.table.num_rows == 0
    assert any("no rank has a range 'none'" in n for n in answer.notes)


def test_a_range_that_was_still_open_ends_with_the_last_one(tmp_path):
    one = device(400, [(0, 100), (300, 350)])
    one["ranges"] = [
        {"start": s, "end": e, "name": n} for s, e, n in ((0, 200, "all"), (300, None, "all"), (320, 500, "other"))
    ]
    found, _ = trees(tmp_path / "run", [one])
    assert [(found[s]["span_ns"], found[s]["parallel_efficiency"]) for s in ("device", "host")] == [
        (400, 0.375),
        (400, 1),
    ]


def test_ranges_within_one_another_are_one_and_those_that_touch_are_two(tmp_path):
    one, other = device(400, [(0, 100), (300, 350)]), device(400, [(0, 100), (300, 350)])
    one["ranges"] = [{"start": s, "end": e, "name": "all"} for s, e in ((0, 200), (50, 100), (60, 70), (200, 400))]
    other["ranges"] = [{"start": s, "end": e, "name": "all"} for s, e in ((0, 200), (210, 400), (220, 400))]
    found, answer = trees(tmp_path / "run", [one, other])
    assert (found["device"]["span_ns"], found["device"]["useful_ns"]) == (400, 300)
    assert not any("ranks have" in note for note in answer.notes)


pieces = st.lists(
    st.tuples(st.integers(0, 190), st.integers(1, 40), st.integers(1, 3), st.booleans()), min_size=1, max_size=12
)


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(pieces, st.randoms(use_true_random=False))
def test_streams_order_and_splits_do_not_matter(found, draw):
    def rows(split, permuted):
        made = []
        for start, length, stream, talks in found:
            middle = start + length // 2
            parts = [(start, middle), (middle, start + length)] if split and length > 1 else [(start, start + length)]
            make = collective if talks else kernel
            made += [make(s, e, stream=4 - stream if permuted else stream) for s, e in parts]
        draw.shuffle(made)
        return made

    with tempfile.TemporaryDirectory() as folder:
        tables = [
            ask(
                make_run(Path(folder) / name, {0: {"kernels": rows(*how)}, 1: {"kernels": rows(False, False)}}),
                "efficiency",
            ).table
            for name, how in (("plain", (False, False)), ("split", (True, False)), ("permuted", (False, True)))
        ]
    assert tables[0].equals(tables[1])
    assert tables[0].equals(tables[2])
    row = tables[0].to_pylist()[0]
    parts = [row[n] for n in RATIOS]
    assert all(p is None or 0 <= p <= 1 for p in parts)
    if None not in parts:
        assert parts[0] == pytest.approx(parts[1] * parts[2] * parts[3])
