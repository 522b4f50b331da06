"""Recorded answers are right: they equal what plain Python makes of the events, or what was planted."""

from collections import defaultdict
from functools import cache

import pytest

from tests.recorded import review
from tests.recorded.asking import question
from tests.recorded.recording import read_answers
from tests.recorded.worlds import WORLDS

# whose only operations are collectives of NCCL: messages count once for each direction, and the truth has no barriers
# of MPI
COLLECTIVE = tuple("ddp ddp-slow-rank sharded sharded-slow-host host host-bound kineto kineto-exposed rocm".split())
CLOCKS_NS = 60_000
"""How far sums of waits may be off: clocks are known to about a microsecond, and shorter waits do not count."""
SHARES = {
    "AllReduce": lambda n: 2 * (n - 1) / n,
    "AllGather": lambda n: (n - 1) / n,
    "ReduceScatter": lambda n: (n - 1) / n,
}
"""The share of the buffer that crosses each link, by the documentation of nccl-tests."""
LOSSES = {
    ("ddp-slow-rank", "straggler"): 4 / 5.6,  # the first step, which is not judged, has kernels of 1.6 times the length
    ("ddp-slow-rank", "data-stall"): 1,
    ("tensor-slow-link", "slow-communicator"): 4 / 5,
    ("tensor-slow-link", "sync-copy"): 4 / 5,
    ("sharded-slow-host", "slow-host"): 4 / 5.6,
    ("host-bound", "launch-bound"): 1 / 2,
}
"""Planted faults whose loss is known, with the share of it in the steps that are judged."""
WITHOUT_LOSS = {
    ("experts-imbalance", "imbalance"), ("experts-imbalance", "host-pause"), ("experts-imbalance", "capture-fault"),
    ("sharded-slow-host", "capture-fault"), ("kineto-exposed", "exposed-communication"),
    ("kineto-exposed", "low-bandwidth"), ("host-bound", "pageable-copy"),
}  # fmt: skip
"""Planted faults that are found, with a loss that other faults of the run share."""
ON_GPUS = [name for name, world in WORLDS.items() if world.kind != "mpi"]
on_gpus = pytest.mark.parametrize("name", ON_GPUS)


REVIEWED = ("breakdown", "overlap", "kernels", "steps", "stragglers", "collectives", "diagnose")


@cache
def answers(name):
    """The recorded rows of the reviewed recipes, by name."""
    found = read_answers(name)
    return {recipe: found[question(recipe, {})]["rows"] for recipe in REVIEWED}


def recorded(name, recipe):
    """The rows of a recorded answer."""
    return answers(name)[recipe]


@on_gpus
@pytest.mark.parametrize("recipe", ["breakdown", "overlap"])
def test_classes_of_time_are_those_of_the_events(name, recipe):
    rows = recorded(name, recipe)
    assert [r["rank"] for r in rows] == review.ranks_of(name)
    for row in rows:
        wanted = getattr(review, recipe)(name, row["rank"])
        assert {k: row[k] for k in wanted} == wanted, row["rank"]
        for column in [c for c in row if c.endswith("_percent") and c.removesuffix("percent") + "ns" in wanted]:
            assert row[column] == pytest.approx(
                100 * row[column.removesuffix("percent") + "ns"] / row["span_ns"], rel=1e-11
            )


@on_gpus
def test_kernels_are_counted_and_summed(name):
    rows = {r["name"]: r for r in recorded(name, "kernels")}
    wanted = review.kernels(name)
    assert set(rows) == set(wanted)
    for kernel, values in wanted.items():
        assert {k: rows[kernel][k] for k in values} == pytest.approx(values, rel=1e-11), kernel


@on_gpus
def test_steps_are_the_ranges(name):
    found = defaultdict(dict)
    for row in recorded(name, "steps"):
        found[row["rank"]][row["step"]] = row
    for rank in review.ranks_of(name):
        wanted = review.steps(name, rank)
        if not review.launches_known(name, rank):
            wanted = {s: {"duration_ns": v["duration_ns"]} for s, v in wanted.items()}
        assert {s: {k: found[rank][s][k] for k in v} for s, v in wanted.items()} == wanted


@pytest.mark.parametrize("name", COLLECTIVE)
def test_waits_are_those_that_were_planted(name):
    waited, caused, count = review.true_waits(name)
    rows = recorded(name, "stragglers")
    for row in rows:
        rank = row["rank"]
        assert (row["waited_ns"], row["caused_ns"]) == pytest.approx((waited[rank], caused[rank]), abs=CLOCKS_NS), rank
        assert (
            row["operations"] in (count[rank], count[rank] - 1)
            if name == "kineto-exposed"
            else row["operations"] == count[rank]
        )
        assert row["caused_percent"] == pytest.approx(
            100 * row["caused_ns"] / sum(r["caused_ns"] for r in rows), rel=1e-11
        )
    assert sum(r["root_share"] for r in rows) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(
    ("name", "shares"),
    [("ddp-slow-rank", {1: 0.865, 2: 0.135}), ("host-bound", {1: 1}), ("kineto-exposed", {3: 0.99}), ("rocm", {1: 1})],
)
def test_ranks_with_a_planted_fault_are_the_root_of_all_waits(name, shares):
    """A rank with a fault is late by it alone, so that its share is that of the waits at which it came last."""
    caused = review.true_waits(name)[1]
    for row in recorded(name, "stragglers"):
        if row["rank"] in shares:
            assert row["root_rank"] == row["rank"]
            assert row["root_share"] == pytest.approx(shares[row["rank"]], abs=0.01)
            assert row["root_share"] == pytest.approx(caused[row["rank"]] / sum(caused.values()), abs=0.01)
        else:
            assert row["root_share"] < 0.01


@pytest.mark.parametrize(
    "name", ["ddp", "ddp-slow-rank", "sharded", "host", "host-bound", "tensor", "tensor-slow-link"]
)
def test_collectives_are_those_that_were_planted(name):
    rows = {(r["communicator"], r["op"], r["bytes"]): r for r in recorded(name, "collectives") if r["op"] in SHARES}
    wanted = review.collectives(name)
    assert set(rows) == set(wanted)
    for key, values in wanted.items():
        row = rows[key]
        assert row["instances"] == values["instances"]
        assert {k: row[k] for k in values if k != "instances"} == pytest.approx(
            {k: v for k, v in values.items() if k != "instances"},
            abs=CLOCKS_NS / 10 if "median" in key else CLOCKS_NS,
            rel=1e-3,
        )
        size, members = row["bytes"] * (1 if row["op"] == "AllReduce" else row["group_size"]), row["group_size"]
        assert row["algbw_gb_per_s"] == pytest.approx(
            size / row["transfer_median_ns"], rel=1 / row["transfer_median_ns"]
        )
        assert row["busbw_gb_per_s"] == pytest.approx(row["algbw_gb_per_s"] * SHARES[row["op"]](members), rel=1e-11)


@pytest.mark.parametrize(("name", "kind"), [*LOSSES, *sorted(WITHOUT_LOSS)])
def test_planted_faults_are_diagnosed(name, kind):
    planted = [f for f in review.truth_of(name)["faults"] if f["finding"] == kind]
    found = [r for r in recorded(name, "diagnose") if r["kind"] == kind]
    assert {tuple(f["ranks"]) for f in planted} <= {tuple(r["ranks"]) for r in found}
    if (name, kind) in LOSSES:
        share = LOSSES[name, kind]
        assert sum(r["lost_ns"] for r in found) == pytest.approx(share * sum(f["lost_ns"] for f in planted), rel=0.25)


@pytest.mark.parametrize(
    "name", [n for n, world in WORLDS.items() if world.kind in ("synth", "kineto") and not world.faults]
)
def test_nobody_is_blamed_in_a_healthy_run(name):
    """What all ranks do alike is a property of the program: its waits for communication, copies and batches."""
    blamed = [
        r for r in recorded(name, "diagnose") if r["severity"] != "low" and len(r["ranks"]) < len(review.ranks_of(name))
    ]
    assert {r["kind"] for r in blamed} <= {"exposed-transfer"}


def test_of_a_real_mpi_run_the_rank_that_comes_late_to_exchanges_is_the_first_finding():
    late = review.truth_of("mpi")["late_rank"]
    first = recorded("mpi", "diagnose")[0]
    assert (first["kind"], first["ranks"]) == ("straggler", [late])
    waits = {r["rank"]: r["caused_ns"] for r in recorded("mpi", "stragglers")}
    assert waits[late] > 0.8 * sum(waits.values())
