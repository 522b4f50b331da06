import sqlite3
from contextlib import closing

import pytest

from alltrace.synth import SCENARIOS, write_run
from alltrace.synth.recording import record
from alltrace.synth.simulate import simulate
from alltrace.trace.errors import UsageError


def _recorded(*faults, name="healthy", **changes):
    run = simulate(SCENARIOS[name].override(**{"steps": 4, "ranks": 4, "faults": faults, **changes}, ideal=True))
    return run, record(run)


def test_a_missing_rank_has_no_report(tmp_path):
    truth = write_run("healthy", tmp_path, steps=2, ranks=4, faults=("missing-rank:ranks=2",), ideal=True)
    assert [path.name for path in truth.reports] == [f"healthy_rank{rank}.sqlite" for rank in (0, 1, 3)]
    assert sorted(path.name for path in tmp_path.glob("*.sqlite")) == [path.name for path in truth.reports]
    assert truth.ranks[2]["report"] is None
    assert truth.ranks[2]["compute_ns"] > 0
    table = truth.collectives().to_pydict()
    assert {r for r, seen in zip(table["rank"], table["recorded"], strict=True) if not seen} == {2}
    (fault,) = truth.faults
    assert (fault["finding"], fault["ranks"], fault["lost_ns"]) == ("capture-fault", (2,), 0)


def test_a_report_cut_short_and_one_that_starts_late():
    run, recordings = _recorded("cut-short:ranks=1:share=0.5", "late-start:ranks=3:share=0.25")
    for rank, name in ((1, "end"), (3, "start")):
        whole, part = run.timelines[rank], recordings[rank].timeline
        steps = run.steps[rank]
        span = steps[-1, 1] - steps[0, 0]
        if rank == 1:
            assert part.bounds[1] <= steps[0, 0] + span // 2
            assert part.bounds[0] == whole.bounds[0]
        else:
            assert part.bounds[0] >= steps[0, 0] + span // 4
            assert part.bounds[1] == whole.bounds[1]
        share = len(part.kernels) / len(whole.kernels)
        assert share == pytest.approx(0.5 if name == "end" else 0.75, abs=0.08)
    assert recordings[0].timeline is run.timelines[0]


def test_dropped_records_leave_gaps_in_the_correlations_and_a_complaint(tmp_path):
    run, recordings = _recorded("dropped-events:ranks=0:share=0.1")
    whole, part = run.timelines[0], recordings[0].timeline
    for name in ("kernels", "api"):
        assert len(part.tables[name]) / len(whole.tables[name]) == pytest.approx(0.9, abs=0.02)
    assert len(part.ranges) == len(whole.ranges)
    kernels = set(part.kernels["correlation"].tolist())
    assert kernels - set(part.api["correlation"].tolist())
    (complaint,) = recordings[0].complaints
    names = ("kernels", "copies", "memsets", "api", "syncs")
    lost = sum(len(whole.tables[n]) - len(part.tables[n]) for n in names)
    assert complaint.startswith(f"CUPTI dropped {lost} records.")
    truth = write_run("tiny", tmp_path, faults=("dropped-events:ranks=0:share=0.3",), ideal=True)
    with closing(sqlite3.connect(truth.reports[0])) as connection, connection:
        rows = connection.execute("SELECT severity, source, text FROM DIAGNOSTIC_EVENT").fetchall()
    connection.close()
    assert [(severity, source) for severity, source, _ in rows] == [(2, 3)]
    assert "dropped" in rows[0][2]
    assert "DIAGNOSTIC_EVENT" not in truth.ranks[1]["rows"]
    # the older exporter keeps it to itself
    assert (
        "DIAGNOSTIC_EVENT"
        not in write_run("tiny", tmp_path, faults=("dropped-events:ranks=0",), schema="3.7.2", ideal=True).ranks[0][
            "rows"
        ]
    )


def test_no_ranges_and_graphs_that_hide_kernels(tmp_path):
    truth = write_run("tiny", tmp_path, faults=("no-nvtx",), ideal=True)
    assert all("NVTX_EVENTS" not in rank["rows"] and rank["rows"]["DIAGNOSTIC_EVENT"] == 1 for rank in truth.ranks)
    assert truth.faults[0]["ranks"] == (0, 1)
    truth = write_run("tiny", tmp_path, faults=("no-nvtx:ranks=1",), ideal=True)
    assert ["NVTX_EVENTS" in rank["rows"] for rank in truth.ranks] == [True, False]
    run, _ = _recorded("graphs")
    line = run.timelines[2]
    assert len(line.graphs) == 4 * 24
    # the optimizer's and the collectives' remain
    assert len(line.kernels) == 4 * (8 + 4)
    launches = dict(zip(line.api["correlation"].tolist(), line.api["name"].tolist(), strict=True))
    assert {line.names.texts[launches[c]] for c in line.graphs["correlation"].tolist()} == {"cudaGraphLaunch_v10000"}
    truth = write_run("tiny", tmp_path / "2", faults=("graphs",), ideal=True)
    well = write_run("tiny", tmp_path / "2" / "well", ideal=True)
    assert truth.ranks[0]["rows"]["CUPTI_ACTIVITY_KIND_GRAPH_TRACE"] == 2 * 4
    assert truth.ranks[0]["compute_ns"] == pytest.approx(well.ranks[0]["compute_ns"], rel=0.05)
    with pytest.raises(UsageError, match=r"needs schema 3\.25\.0"):
        write_run("tiny", tmp_path / "2", faults=("graphs",), schema="3.7.2", ideal=True)
