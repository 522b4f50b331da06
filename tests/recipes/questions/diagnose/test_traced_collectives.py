"""The answers about a run of which the profiler traced NCCL itself are those of the run without that trace."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing

import pytest
from tests.nccl_traced import add_nccl_trace

from alltrace.api import open_run
from alltrace.synth import SCENARIOS, write_run
from alltrace.trace.errors import InputError

CASES = [
    (
        "experts",
        {"faults": ["slow-communicator:factor=4"], "expert_parallel": 4, "grouped_all_to_all": False},
        ("slow-communicator", [0, 1, 2, 3]),
    ),
    ("tensor-data", {"faults": ["slow-rank:ranks=3:factor=1.3"]}, ("straggler", [3])),
    ("pipeline", {"faults": ["imbalance:ranks=2"]}, ("imbalance", [2])),
    ("sharded", {"faults": ["exposed-communication"]}, ("exposed-communication", list(range(8)))),
]


def simulate(folder, layout, **values):
    write_run(SCENARIOS[layout].override(ranks=8, hosts=2, steps=4, payloads=True, **values), folder)
    return folder


def traced(folder, target, **options):
    """A copy of a simulated run with NCCL's own trace, whose times on the device are off by up to 3 us."""
    shutil.copytree(folder, target)
    assert all(add_nccl_trace(export, scatter_ns=3_000, **options) for export in target.glob("*.sqlite"))
    return target


def first(answer):
    return tuple(answer.to_pylist()[0][c] for c in ("kind", "ranks", "lost_ns"))


@pytest.fixture(scope="module")
def straggler(tmp_path_factory):
    """The reports of a run with a slow rank, without the trace and with it, and a cache."""
    folder = tmp_path_factory.mktemp("straggler")
    plain = simulate(folder / "plain", "straggler")
    return plain, traced(plain, folder / "traced"), folder / "cache"


@pytest.mark.slow
def test_a_straggler_costs_the_same_with_the_trace(straggler):
    *folders, cache = straggler
    runs = [open_run(f, cache_dir=cache) for f in folders]
    plain, found = (first(run.recipe("diagnose")) for run in runs)
    assert found == plain
    assert found == ("straggler", [3], pytest.approx(24_173_343, rel=0.02))
    saved = [run.recipe("whatif", rank="3").to_pylist() for run in runs]
    assert saved[1] == saved[0]
    assert saved[1][0]["saved_ns"] == pytest.approx(24_173_343, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "values", "planted"), CASES)
def test_the_first_finding_is_the_same_with_the_trace(tmp_path, layout, values, planted):
    plain = simulate(tmp_path / "plain", layout, **values)
    alone = traced(plain, tmp_path / "alone", keeps_ranges=False)
    found = [first(open_run(f, cache_dir=tmp_path / "cache").recipe("diagnose")) for f in (plain, alone)]
    assert found[0][:2] == planted
    assert found[1] == found[0]


@pytest.mark.slow
def test_losses_are_withheld_where_no_kernel_shows_what_was_traced(straggler, tmp_path):
    target = shutil.copytree(straggler[1], tmp_path / "traced")
    with closing(sqlite3.connect(target / "straggler_rank2.sqlite")) as database:
        nccl = "CUPTI_ACTIVITY_KIND_KERNEL WHERE shortName IN (SELECT id FROM StringIds WHERE value LIKE 'ncclDev%')"
        database.execute(
            f"DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE correlationId IN (SELECT correlationId FROM {nccl})"
        )
        database.execute(f"DELETE FROM {nccl}")
        database.commit()
    run = open_run(target, cache_dir=tmp_path / "cache")
    lacking = "rank 2 has no record of the kernels or copies of 16 of 16 communication operations"
    answer = run.recipe("diagnose")
    assert [r["lost_ns"] for r in answer.to_pylist() if r["kind"] == "straggler"] == [None]
    assert any(lacking in note for note in answer.notes)
    with pytest.raises(InputError, match=lacking):
        run.recipe("whatif", rank="3")
