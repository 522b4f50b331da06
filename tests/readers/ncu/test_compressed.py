"""Compressed reports, by a program that prints as ncu does, and by the real one where there is one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.readers.ncu.test_text import RAW

from alltrace.readers.ncu.read import read_report
from alltrace.trace.errors import InputError


@pytest.fixture
def report(tmp_path):
    path = tmp_path / "a.ncu-repz"
    path.write_bytes(b"compressed")
    return path


def program(tmp_path, monkeypatch, body):
    folder = tmp_path / "nsight"
    folder.mkdir()
    (folder / "ncu").write_text(f"#!{sys.executable}\nimport sys\n{body}\n")
    (folder / "ncu").chmod(0o755)
    monkeypatch.setenv("ALLTRACE_NCU", str(folder))


def test_what_ncu_prints_is_read(report, tmp_path, monkeypatch):
    wanted = ["--import", str(report), "--csv", "--page", "raw", "--print-units", "base"]
    program(tmp_path, monkeypatch, f"assert sys.argv[1:] == {wanted!r}\nprint({RAW!r})")
    found = read_report(report)
    assert [x.metrics["gpu__time_duration.sum"] for x in found.launches] == [1.5e6, 1234.5e6]
    assert found.warnings == ("it was read with ncu: sections, rules and source lines are left out",)


def test_what_ncu_cannot_open_is_refused_with_its_words(report, tmp_path, monkeypatch):
    program(tmp_path, monkeypatch, "sys.exit('==ERROR== unknown file')")
    with pytest.raises(InputError, match=r"a\.ncu-repz: .*ncu could not open it: ==ERROR== unknown file"):
        read_report(report)


def test_without_ncu_it_is_said_what_to_do(report, monkeypatch):
    monkeypatch.setenv("ALLTRACE_NCU", "/nowhere/ncu")
    with pytest.raises(InputError, match=r"it is compressed, and no ncu was found to open it.*install Nsight Compute 2025\.4"):
        read_report(report)


@pytest.mark.corpus
@pytest.mark.oracle
def test_the_real_ncu_gives_what_the_report_has(corpus, tmp_path, monkeypatch):
    tool = Path(os.environ.get("ALLTRACE_NSIGHT", "")) / "ncu" / "ncu"
    if not tool.is_file():
        pytest.skip("no Nsight Compute: set ALLTRACE_NSIGHT")
    source = corpus / "ncu" / "cuda_tutorial.ncu-rep"
    # no version at hand writes compressed reports: the real program opens a plain one in the place of one
    program(tmp_path, monkeypatch, f"import os\nos.execv({str(tool)!r}, ['ncu', '--import', {str(source)!r}, *sys.argv[3:]])")
    (tmp_path / "b.ncu-repz").write_bytes(b"x")
    (theirs,), (ours,) = read_report(tmp_path / "b.ncu-repz").launches, read_report(source).launches
    assert theirs.configuration == ours.configuration
    assert theirs.metrics["gpu__time_duration.sum"] == pytest.approx(ours.metrics["gpu__time_duration.sum"], abs=0.01)
