"""What the wrapper wrote next to a report becomes a note of the data from it."""

from __future__ import annotations

import json

import pytest

import alltrace
from alltrace.readers.base import ReportWarning
from alltrace.run.importer import import_reports
from alltrace.run.side_files import side_file_of
from alltrace.synth import write_run

TOLD = {
    "alltrace_capture": 1,
    "left_out": [
        {"option": "--gpu-metrics", "reason": "nsys says: Illegal\x1b arguments"},
        {"option": "--profiler-arg=x", "reason": "x" * 9000},
    ],
}


@pytest.mark.parametrize("name", ["r.nsys-rep", "r.sqlite", "r_pqtdir", "r.2.nsys-rep", "r_window1_steps10-19.sqlite"])
def test_a_report_its_exports_and_those_of_its_windows_lack_what_was_left_out(tmp_path, name):
    (tmp_path / "r.nsys-rep.capture.json").write_text(json.dumps(TOLD))
    first, second = side_file_of(tmp_path / name).left_out
    assert first == ReportWarning(
        "Recorded without --gpu-metrics: nsys says: Illegal\\x1b arguments.", ("gpu_metrics",)
    )
    assert (len(second.text) < 400, second.tables) == (True, ())
    assert side_file_of(tmp_path / "other.nsys-rep") == ((), None)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"alltrace_capture": 1}', '{"alltrace_capture": 1, "left_out": [3]}', "[" * 30000]
)
def test_a_damaged_side_file_is_said(tmp_path, text):
    (tmp_path / "r.nsys-rep.capture.json").write_text(text)
    (warning,) = side_file_of(tmp_path / "r.nsys-rep").left_out
    assert (
        warning.text
        == "The file r.nsys-rep.capture.json next to the report, which lists what the report lacks, is damaged."
    )


def test_an_import_takes_it_over(tmp_path):
    write_run("healthy", tmp_path / "reports", ranks=2, steps=2, ideal=True)
    export = next((tmp_path / "reports").glob("*rank1.sqlite"))
    export.with_name(f"{export.stem}.nsys-rep.capture.json").write_text(json.dumps(TOLD))
    manifest = import_reports([str(tmp_path / "reports")], tmp_path / "run", jobs=1)
    (rank,) = [r for r in manifest.ranks if r.rank == 1]
    assert "Recorded without --gpu-metrics" in str(manifest.reports[rank.reports[0]].warnings)
    (other,) = [r for r in manifest.ranks if r.rank == 0]
    assert "Recorded without" not in str(manifest.reports[other.reports[0]].warnings)


@pytest.mark.parametrize(
    ("told", "role"), [("actor", "actor"), ("a b", None), (3, None), ("x" * 65, None), (None, None)]
)
def test_the_role_of_a_rank_is_a_plain_word(tmp_path, told, role):
    (tmp_path / "r.pt.trace.json.gz.capture.json").write_text(
        json.dumps({"alltrace_capture": 1, "left_out": [], "role": told})
    )
    assert side_file_of(tmp_path / "r.pt.trace.json.gz").role == role


def with_roles(folder, roles):
    """Reports of ranks 0 and 1 of each role, whose variables number them within it."""
    for role in roles:
        write_run("healthy", folder / role, ranks=2, steps=2, ideal=True)
        for export in (folder / role).glob("*.sqlite"):
            export.with_name(f"{export.stem}.nsys-rep.capture.json").write_text(
                json.dumps({"alltrace_capture": 1, "left_out": [], "role": role})
            )


def test_ranks_that_each_role_numbers_by_itself_follow_each_other(tmp_path):
    with_roles(tmp_path / "reports", ["critic", "actor"])
    manifest = import_reports([str(tmp_path / "reports")], tmp_path / "run", jobs=1)
    assert [(r.rank, manifest.role_of(r)) for r in manifest.ranks] == [
        (0, "actor"),
        (1, "actor"),
        (2, "critic"),
        (3, "critic"),
    ]
    assert all("actor" in manifest.reports[r.reports[0]].path for r in manifest.ranks[:2])
    assert any("each role has its own rank numbers" in note for note in manifest.notes)
    run = alltrace.open(str(tmp_path / "run"))
    assert [row["role"] for row in run.recipe("info").to_pylist()] == ["actor", "actor", "critic", "critic"]
    each = run.recipe("breakdown").to_pylist()
    rows = run.recipe("breakdown", by="role").to_pylist()
    assert [(row["role"], row["ranks"], row["devices"]) for row in rows] == [("actor", 2, 2), ("critic", 2, 2)]
    for role, row in zip(("actor", "critic"), rows, strict=True):
        mine = [one for one in each if manifest.role_of(manifest.ranks[one["rank"]]) == role]
        for column in ("span_ns", "compute_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns"):
            assert row[column] == sum(one[column] for one in mine)
        assert (
            row["compute_ns"] + row["exposed_communication_ns"] + row["exposed_copy_ns"] + row["idle_ns"]
            == row["span_ns"]
        )


def test_without_roles_there_is_nothing_by_role(tmp_path):
    write_run("healthy", tmp_path / "reports", ranks=2, steps=2, ideal=True)
    run = alltrace.open(str(tmp_path / "reports"))
    assert "role" not in run.recipe("info").to_pylist()[0]
    answer = run.recipe("breakdown", by="role")
    assert [(row["role"], row["ranks"]) for row in answer.to_pylist()] == [(None, 2)]
    assert "no rank of this run has a role" in " ".join(answer.notes)
