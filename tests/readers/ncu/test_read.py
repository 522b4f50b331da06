"""Reports of Nsight Compute: made by hand and damaged."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.readers.ncu.building import block, double, inner, launch, metric, part, single, whole
from tests.readers.ncu.test_text import RAW

from alltrace.readers.ncu.read import plain_text, read_report, rule_of, section_of
from alltrace.readers.wire import WireError, fields, varint
from alltrace.trace.errors import InputError

HEADER = b"NVR\x00" + part(whole(1, 7))
FIRST = HEADER + block(["a.sum", "b.avg"], [launch(metric(0, whole(5, 2**60)), metric(1, double(3, 1.5)))], [b"code"])
NAN = double(3, float("nan"))
REPORT = FIRST + block(
    ["c"], [launch(metric(2, inner(1, "text")), metric(1, single(2, 0.25)), metric(0, NAN), metric(9, b""))]
)


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
    assert (first.name, first.function, first.grid, first.block) == (
        "void gemm<float>(float*)",
        "gemm",
        (7, 8, 1),
        (128, 1, 1),
    )
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
    with pytest.raises(
        InputError, match=r"it is compressed, and no ncu was found to open it.*install Nsight Compute 2025\.4"
    ):
        read_report(report)


@pytest.mark.corpus
@pytest.mark.oracle
def test_the_real_ncu_gives_what_the_report_has(corpus, tmp_path, monkeypatch):
    tool = Path(os.environ.get("ALLTRACE_NSIGHT", "")) / "ncu" / "ncu"
    if not tool.is_file():
        pytest.skip("no Nsight Compute: set ALLTRACE_NSIGHT")
    source = corpus / "ncu" / "cuda_tutorial.ncu-rep"
    # no version at hand writes compressed reports: the real program opens a plain one in the place of one
    program(
        tmp_path,
        monkeypatch,
        f"import os\nos.execv({str(tool)!r}, ['ncu', '--import', {str(source)!r}, *sys.argv[3:]])",
    )
    (tmp_path / "b.ncu-repz").write_bytes(b"x")
    (theirs,), (ours,) = read_report(tmp_path / "b.ncu-repz").launches, read_report(source).launches
    assert theirs.configuration == ours.configuration
    assert theirs.metrics["gpu__time_duration.sum"] == pytest.approx(ours.metrics["gpu__time_duration.sum"], abs=0.01)


# Sections and results of rules of reports made by hand.


def shown(name, label="", *others):
    return inner(1, name) + (inner(2, label) if label else b"") + b"".join(inner(7, inner(1, o)) for o in others)


def section(*body):
    header = inner(
        4, whole(1, 2) + inner(2, shown("a", "A")) + inner(2, shown("b", "B", "b", "c")) + inner(2, shown(""))
    )
    return memoryview(
        inner(1, "Id") + inner(2, "Name") + whole(3, 70) + header + inner(5, b"".join(inner(1, i) for i in body))
    )


def body_of(*items):
    return [m.name for m in section_of(section(*items)).metrics if m.part == "body"]


def test_a_section_has_what_its_table_shows():
    found = section_of(section())
    assert (found.identifier, found.name, found.order) == ("Id", "Name", 70)
    assert [(m.name, m.label, m.part, m.others) for m in found.metrics] == [
        ("a", "A", "header", ()),
        ("b", "B", "header", ("c",)),
    ]


def test_charts_and_tables_of_a_section_name_metrics():
    table, bars, histogram = (
        inner(1, inner(5, shown("t"))),
        inner(2, inner(5, shown("bar"))),
        inner(3, inner(4, shown("h"))),
    )
    line = inner(4, inner(4, shown("l")) + inner(5, inner(1, shown("own"))))
    row = inner(5, inner(1, bars) + inner(1, inner(7, inner(3, shown("s")))))
    assert body_of(table, bars, histogram, line, row) == ["t", "bar", "h", "l", "own", "bar", "s"]
    suffixes = inner(2, inner(1, inner(1, ".avg")) + inner(1, inner(1, ".max")))
    assert body_of(inner(8, suffixes + inner(3, inner(1, shown("x"))))) == ["x.avg", "x.max"]
    assert body_of(inner(101, b""), inner(104, b"")) == ["group:memory__shared_table", "group:memory__dram_table"]


def test_a_roofline_names_the_metrics_of_its_roofs_and_points():
    product = inner(3, inner(1, shown("per cycle")) + inner(1, shown("more")) + inner(2, shown("clock")))
    roof = inner(4, inner(1, product) + inner(2, inner(2, shown("bandwidth"))))
    point = inner(5, inner(1, product))
    work = ["per cycle", "more", "clock"]
    assert body_of(inner(6, roof + point)) == [*work, "bandwidth", *work]


def test_rows_in_rows_without_end_are_left_alone():
    item = inner(2, inner(5, shown("deep")))
    for _ in range(50):
        item = inner(5, inner(1, item))
    assert body_of(item) == []


def test_a_rule_has_its_messages_with_what_they_promise():
    said = (
        inner(1, "@section:Occupancy:the section@ and @url:a page:https://x/y#z@")
        + whole(2, 4)
        + whole(3, 1)
        + inner(4, "Title")
    )
    first = inner(1, inner(1, said) + inner(10, whole(1, 2) + double(2, 12.5)))
    second = inner(1, inner(1, inner(1, "plain") + whole(2, 2)))
    table = inner(1, inner(2, b""))
    rule = rule_of(memoryview(inner(1, "R") + inner(2, "A rule") + inner(3, first + second + table) + inner(4, "Sec")))
    assert (rule.identifier, rule.name, rule.section) == ("R", "A rule", "Sec")
    one, two = rule.messages
    assert (one.kind, one.title, one.text) == ("optimization", "Title", "the section and a page (https://x/y#z)")
    assert (one.speedup_percent, one.speedup_of) == (12.5, "global")
    assert (two.kind, two.title, two.text, two.speedup_percent, two.speedup_of) == ("warning", "", "plain", None, None)
    assert rule_of(memoryview(inner(1, "R"))).messages == ()


def test_text_with_at_signs_stays():
    assert plain_text("mail a@b.c at 3:4 @ 5") == "mail a@b.c at 3:4 @ 5"
