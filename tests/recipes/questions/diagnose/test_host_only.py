"""Programs without device work: what their hosts do is judged, and a planted cause is found with its rank."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.making import make_run

from alltrace.api import OpenRun
from alltrace.recipes.questions.diagnose.headlines import headline
from alltrace.run.importer import import_reports

MS = 1_000_000
STEPS, RANKS = 10, 4
WORK_NS, LOAD_NS, OPERATION_NS = 10 * MS, 2 * MS, MS
THREADS = {"threads": [{"thread": n, "process": 0, "tid": 4001 + n, "name": f"thread {n}"} for n in range(2)]}
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def program(work=None, load=None, pause=None, late_return=None, alone=None):
    """Ranks that load a batch, compute, and reduce with Gloo; each cause is what one rank, 2, takes more in each
    step."""
    tables = {rank: {**THREADS, "ranges": [], "collectives": []} for rank in range(RANKS)}
    begin = 0
    for step in range(STEPS):
        done = {}
        for rank in range(RANKS):
            late = rank == 2
            loading = (
                begin + (late_return or 0) * late
            )  # from what it communicated, which nothing on the main thread follows
            loaded = loading + LOAD_NS + (load or 0) * late
            started = loaded + (pause or 0) * late
            computed = started + WORK_NS + (work or alone or 0) * late
            done[rank] = (loading, loaded, started, computed)
        end = max(its[-1] for its in done.values()) + OPERATION_NS
        for rank, (loading, loaded, started, computed) in done.items():
            named = [
                ("cpu_op", LOADER, loading, loaded),
                ("cpu_op", "aten::mm", started, computed - (alone or 0) * (rank == 2)),
                *([("cpu_op", "write_log", computed - alone, computed)] if alone and rank == 2 else []),
                *([("cpu_op", "aten::add_", end, end + MS)] if late_return is None else []),
            ]
            rows = [{"start": s, "end": e, "name": n, "domain": d, "kind": "pushpop"} for d, n, s, e in named]
            tables[rank]["ranges"] += [
                {"start": begin, "end": end + MS, "name": f"ProfilerStep#{step}", "kind": "pushpop"},
                *rows,
            ]
            times = {"start": computed, "end": end, "api_start": computed, "api_end": end}
            group = {"communicator": "pg 0 [0-3]", "group_size": RANKS, "group_rank": rank, "sequence": step}
            about = {
                "op": "AllReduce",
                "bytes": 1 << 20,
                "evidence": "trace",
                "thread": 1,
                "device": None,
                "stream": None,
            }
            tables[rank]["collectives"].append({**times, **group, **about})
        begin = end + MS
    return tables


@pytest.mark.parametrize(
    ("cause", "kinds"),
    [
        ("load", {"data-stall"}),
        ("work", {"imbalance", "straggler"}),
        ("pause", {"host-pause"}),
        ("late_return", {"host-pause"}),
    ],
)
def test_the_rank_and_what_its_delay_costs(tmp_path, cause, kinds):
    run = make_run(tmp_path / "run", program(**{cause: 8 * MS}))
    first = run.recipe("diagnose").to_pylist()[0]
    step = LOAD_NS + WORK_NS + 8 * MS + OPERATION_NS + MS
    assert first["kind"] in kinds
    assert first["ranks"] == [2]
    assert first["severity"] == "high"
    assert first["evidence"]["basis"] == "replay"
    # a loader's finding costs all loading, also what every rank has to load
    expected = 8 * MS + (LOAD_NS if cause == "load" else 0)
    assert first["lost_share"] == pytest.approx(expected / step, abs=0.04)


def test_a_host_that_does_what_its_peers_do_not_is_no_uneven_work(tmp_path):
    run = make_run(tmp_path / "run", program(alone=8 * MS))
    first = run.recipe("diagnose").to_pylist()[0]
    assert (first["kind"], first["ranks"], first["where"], first["severity"]) == ("straggler", [2], "write_log", "high")
    assert first["lost_share"] == pytest.approx(8 * MS / (LOAD_NS + WORK_NS + 8 * MS + OPERATION_NS + MS), abs=0.04)
    assert headline(first, RANKS) == "Others wait for write_log of rank 2, which they do not do"


def test_questions_of_devices_answer_for_hosts(tmp_path):
    run = make_run(tmp_path / "run", program(work=8 * MS))
    times = {row["rank"]: row for row in run.recipe("breakdown").to_pylist()}
    assert times[2]["compute_ns"] == STEPS * (WORK_NS + 8 * MS + MS)
    assert times[0]["compute_ns"] == STEPS * (WORK_NS + MS)
    assert times[0]["exposed_communication_ns"] == STEPS * (8 * MS + OPERATION_NS)
    assert run.recipe("overlap").to_pylist()[0]["overlap_percent"] == 0
    stragglers = run.recipe("stragglers").to_pylist()
    assert (stragglers[0]["rank"], stragglers[0]["cause"]) == (2, "compute")
    saved = {row["rank"]: row["saved_ns"] for row in run.recipe("whatif").to_pylist() if row["what"] == "rank"}
    assert saved[2] == pytest.approx(STEPS * 8 * MS, rel=0.02)
    note = "ranks 0-3: nothing ran on a device, so the work of the main thread is judged in place of a device's"
    assert note in run.recipe("breakdown").notes


def test_a_healthy_program_has_no_finding(tmp_path):
    rows = make_run(tmp_path / "run", program()).recipe("diagnose").to_pylist()
    assert [r["kind"] for r in rows if r["severity"] == "high" and r["kind"] != "data-stall"] == []


def test_a_training_without_a_gpu_that_was_recorded(tmp_path):
    """Four ranks with Gloo (`tests/gloo_training.py`): loading takes 50 ms on three of them and 250 ms on rank 2."""
    import_reports([str(Path(__file__).with_name("gloo"))], tmp_path / "run", jobs=1)
    run = OpenRun(tmp_path / "run")
    first = run.recipe("diagnose").to_pylist()[0]
    assert (first["kind"], first["ranks"], first["severity"]) == ("data-stall", [2], "high")
    assert "DataLoader" in first["where"]
    steps_ns = [row["duration_ns"] for row in run.recipe("steps").to_pylist() if row["kind"] == "step"]
    usual_ns = sorted(steps_ns)[len(steps_ns) // 2]
    assert 200 * MS / usual_ns - 0.02 < first["lost_share"] < 250 * MS / usual_ns + 0.05
    assert run.recipe("stragglers").to_pylist()[0]["root_rank"] == 2
    slowest = run.recipe("stragglers", by_time=True).to_pylist()[0]
    assert (slowest["rank"], slowest["when"]) == (2, "always")
    assert slowest["slowdown"] > 2
