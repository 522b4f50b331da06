"""Reports of Nsight Compute: made by hand and damaged."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.readers.ncu.building import block, double, inner, launch, metric, part, single, whole
from tests.readers.ncu.test_text import RAW

from alltrace.readers.ncu.read import read_report
from alltrace.readers.wire import WireError, fields, varint
from alltrace.trace.errors import InputError

HEADER = b"NVR\x00" + part(whole(1, 7))
FIRST = HEADER + block(["a.sum", "b.avg"], [launch(metric(0, whole(5, 2**60)), metric(1, double(3, 1.5)))], [b"code"])
NAN = double(3, float("nan"))
REPORT = FIRST + block(["c"], [launch(metric(2, inner(1, "text")), metric(1, single(2, 0.25)), metric(0, NAN), metric(9, b""))])


@pytest.fixture
def write(tmp_path):
    def made(data):
        path = tmp_path / "x.ncu-rep"
        path.write_bytes(data)
        return path

    return made


def test_launches_have_their_configuration_and_metrics(write):
    report = read_report(write(REPORT))
    first, second = report.launches
    assert (report.version, report.warnings) == (7, ())
    assert (first.name, first.function, first.grid, first.block) == ("void gemm<float>(float*)", "gemm", (7, 8, 1), (128, 1, 1))
    assert (first.context, first.stream, first.process, first.number) == (1, 7, 4000, 0)
    assert first.metrics == {"a.sum": 2**60, "b.avg": 1.5}
    # the second block's names count on from the first's; a metric without a value is left out
    assert (second.metrics["c"], second.metrics["b.avg"]) == ("text", 0.25)
    assert second.metrics["a.sum"] != second.metrics["a.sum"]
    assert len(second.metrics) == 3


def test_a_report_cut_anywhere_gives_its_whole_launches_or_an_error(write):
    for cut in range(len(REPORT)):
        path = write(REPORT[:cut])
        if cut < len(FIRST) and cut != len(HEADER):
            with pytest.raises(InputError, match=r"x\.ncu-rep"):
                read_report(path)
            continue
        report = read_report(path)
        assert len(report.launches) == (cut >= len(FIRST))
        assert len(report.warnings) == (cut > len(FIRST))


def test_another_file_is_refused(write):
    for data in (b"", b"SQLite format 3\x00", b"NVR\x00\xff\xff\xff\xff"):
        with pytest.raises(InputError):
            read_report(write(data))


def test_bytes_that_are_no_message_are_an_error():
    for data in (b"\x80" * 11, b"\x0a\x05abc", b"\x0b", b"\x09\x01"):
        with pytest.raises(WireError):
            list(fields(memoryview(data)))
    assert varint(memoryview(b"\xac\x02"), 0) == (300, 2)


NAMES = "cuda_tutorial gemm_badtile gemm_goodtile hpc_a3 hpc_a3_multi mojo_rtx power_model".split()


@pytest.mark.corpus
@pytest.mark.parametrize(("name", "launches"), list(zip(NAMES, (1, 1, 1, 4, 7, 4, 10), strict=True)))
def test_real_reports_open(corpus, name, launches):
    report = read_report(corpus / "ncu" / f"{name}.ncu-rep")
    assert len(report.launches) == launches
    assert all(x.metrics["gpu__time_duration.sum"] > 0 for x in report.launches)


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
