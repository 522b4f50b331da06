"""What the wrapper left beside a report becomes a note of what is read from it."""

from __future__ import annotations

import json

import pytest

from alltrace.readers.base import ReportWarning
from alltrace.run.importer import import_reports
from alltrace.run.side_files import left_out_of
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
    first, second = left_out_of(tmp_path / name)
    assert first == ReportWarning("Recorded without --gpu-metrics: nsys says: Illegal\\x1b arguments.", ("gpu_metrics",))
    assert (len(second.text) < 400, second.tables) == (True, ())
    assert left_out_of(tmp_path / "other.nsys-rep") == ()


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"alltrace_capture": 1}', '{"alltrace_capture": 1, "left_out": [3]}', "[" * 30000]
)
def test_a_damaged_side_file_is_said(tmp_path, text):
    (tmp_path / "r.nsys-rep.capture.json").write_text(text)
    (warning,) = left_out_of(tmp_path / "r.nsys-rep")
    assert warning.text == "The file r.nsys-rep.capture.json beside the report, which tells what it lacks, is damaged."


def test_an_import_takes_it_over(tmp_path):
    write_run("healthy", tmp_path / "reports", ranks=2, steps=2)
    export = next((tmp_path / "reports").glob("*rank1.sqlite"))
    export.with_name(f"{export.stem}.nsys-rep.capture.json").write_text(json.dumps(TOLD))
    manifest = import_reports([str(tmp_path / "reports")], tmp_path / "run", jobs=1)
    (rank,) = [r for r in manifest.ranks if r.rank == 1]
    assert "Recorded without --gpu-metrics" in str(manifest.reports[rank.reports[0]].warnings)
    (other,) = [r for r in manifest.ranks if r.rank == 0]
    assert "Recorded without" not in str(manifest.reports[other.reports[0]].warnings)
