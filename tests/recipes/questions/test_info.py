from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from tests.align.planted import planted_run
from tests.making import kernel, make_run

from alltrace.recipes.base import Part
from alltrace.recipes.registry import find
from alltrace.run.manifest import Clock


def made(folder):
    devices = [{"device": 0, "ordinal": 0, "uuid": None, "bus_id": "0000:1B:00.0"}, {"device": 1, "ordinal": 1}]
    return make_run(
        folder,
        {
            0: {"kernels": [kernel(100, 250)], "marks": [{"time": 40, "name": "begin"}]},
            1: {"kernels": [kernel(0, 90), kernel(90, 95)], "devices": devices},
            2: {},
        },
        hosts={0: "a", 1: "b", 2: "b"},
        clocks=(Clock("a"), Clock("b", offset_ns=30, drift_ppm=1.5, residual_ns=4, error_ns=7)),
        warnings=("some events were lost",),
        redactions=("3 environment variables",),
    )


def test_a_row_per_rank_and_a_column_per_table_that_any_rank_has(tmp_path):
    answer = made(tmp_path).recipe("info")
    facts = ["rank", "local_rank", "host", "process", "devices", "rank_source", "reports", "start_ns", "end_ns"]
    facts += ["session_ns", "recorded_ns"]
    assert [c.name for c in answer.answer.columns] == [*facts, "kernels", "marks"]
    zero, one, two = answer.to_pylist()
    assert zero == dict(
        zip(
            [*facts, "kernels", "marks"],
            [0, 0, "a", 4000, ["H200 (GPU-0)"], "RANK", ["rank0.sqlite"], 40, 250, None, 210, 1, 1],
            strict=True,
        )
    )
    assert one["devices"] == ["GPU (0000:1B:00.0)", "GPU (ordinal 1)"]
    assert (one["start_ns"], one["end_ns"], one["kernels"]) == (-30, 65, 2)
    assert (two["start_ns"], two["end_ns"], two["kernels"], two["marks"]) == (None, None, 0, 0)


def test_clocks_stand_beside_the_rows(tmp_path):
    assert made(tmp_path).recipe("info").answer.extra == {
        "clocks": [
            {
                "host": "a",
                "offset_ns": 0,
                "drift_ppm": 0.0,
                "error_ns": None,
                "residual_ns": None,
                "evidence": 0,
                "component": 0,
            },
            {
                "host": "b",
                "offset_ns": 30,
                "drift_ppm": 1.5,
                "error_ns": 7,
                "residual_ns": 4,
                "evidence": 0,
                "component": 0,
            },
        ],
        "communicators": [],
    }


def test_the_grid_of_communicators_stands_beside_the_rows(tmp_path):
    assert planted_run(tmp_path).recipe("info").answer.extra["communicators"] == [
        {"grid": "DP 4", "found_by": "ids", "communicators": 1, "score": 1.0, "reason": None}
    ]


def test_warnings_and_what_was_left_out_are_notes(tmp_path):
    notes = made(tmp_path).recipe("info").notes
    assert notes[-2:] == ("rank0.sqlite: some events were lost", "left out: 3 environment variables")
    assert len(notes) == 3
    assert "no collective was found on more than one rank" in notes[0]


def test_a_report_is_called_the_same_in_rows_and_notes(tmp_path):
    """Also one whose name is not UTF-8: half a surrogate is not text, which strict readers of JSON refuse."""
    run = made(tmp_path)
    reports = [r._replace(path="caf\udce9.sqlite") for r in run.manifest.reports]
    renamed = SimpleNamespace(manifest=replace(run.manifest, reports=tuple(reports)), ranks=run.ranks, alignment=None)
    answer = find("info").merge([Part(r.rank, None) for r in run.ranks], renamed, {})
    assert answer.table.column("reports").to_pylist()[0] == ["caf\\xe9.sqlite"]
    assert answer.notes[0] == "caf\\xe9.sqlite: some events were lost"


def test_clocks_without_evidence_are_warned_of(tmp_path):
    run = make_run(tmp_path, {0: {}, 1: {}}, hosts={0: "a", 1: "b"})
    assert [n for n in run.recipe("info").notes if "UTC stamps" in n]


def test_some_ranks_alone(tmp_path):
    answer = made(tmp_path).recipe("info", ranks=[2, 1])
    assert [r["rank"] for r in answer.to_pylist()] == [1, 2]
    assert "marks" not in answer.to_arrow().column_names


def test_rows_of_calls_of_the_host_are_counted(tmp_path):
    call = {"start": 0, "end": 5, "name": "x"}
    rows = {"syscalls": [call] * 3, "ucx": [call] * 2, "openacc": [call]}
    (row,) = make_run(tmp_path, {0: rows}).recipe("info").to_pylist()
    assert (row["syscalls"], row["ucx"], row["openacc"]) == (3, 2, 1)


def test_the_session_of_the_profiler_and_how_much_of_it_was_recorded(tmp_path):
    run = make_run(tmp_path, {0: {"kernels": [kernel(100, 250)]}, 1: {}}, unrecorded={0: [(150, 190)]}, session_ns=9000)
    zero, one = run.recipe("info").to_pylist()
    assert (zero["session_ns"], zero["recorded_ns"]) == (9000, 110)
    assert (one["session_ns"], one["recorded_ns"]) == (9000, None)
