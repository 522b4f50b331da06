import pytest

from alltrace.capture.recover import recover
from alltrace.trace.errors import InputError, UsageError

IMPORTER = """#!/bin/sh
[ "$(head -c 4 "$2")" = good ] || exit 1
printf 'NVIDIA Tegra Profiler Report [END]' > "$4"
"""


@pytest.fixture
def tools(tmp_path):
    for folder in ("target-linux-x64", "host-linux-x64"):
        (tmp_path / "ns" / folder).mkdir(parents=True)
    nsys = tmp_path / "ns/target-linux-x64/nsys"
    nsys.touch()
    importer = tmp_path / "ns/host-linux-x64/QdstrmImporter"
    importer.write_text(IMPORTER)
    importer.chmod(0o755)
    return nsys


def test_finished_ones_become_reports_and_cut_ones_are_named(tools, tmp_path):
    raw = tmp_path / "raw" / "deep"
    raw.mkdir(parents=True)
    for name, content in {"a": "good", "b": "bad", "c": "", "d": "good", "e": "good"}.items():
        (raw / f"{name}.qdstrm").write_text(content)
    (raw / "d.nsys-rep").write_text("NVIDIA Tegra Profiler Report [END]")
    (raw / "e.nsys-rep").write_text("")
    found = recover(tmp_path / "raw", tools)
    assert [(one.raw.stem, one.report and one.report.name) for one in found] == [
        ("a", "a.nsys-rep"),
        ("b", None),
        ("c", None),
        ("d", "d.nsys-rep"),
        ("e", None),
    ]
    assert [one.fault for one in found] == [
        None,
        "it is incomplete: the recording was killed before it ended",
        "it is empty; nothing was recorded",
        None,
        "e.nsys-rep already exists, and it is empty; move it away",
    ]
    assert len(list(raw.iterdir())) == 8
    assert recover(tools.parent, tools) == []


def test_what_is_not_there(tools, tmp_path):
    with pytest.raises(InputError, match="there is no such folder"):
        recover(tmp_path / "none", tools)
    with pytest.raises(UsageError, match="QdstrmImporter was not found next to"):
        recover(tmp_path, tmp_path / "nsys")


@pytest.mark.oracle
@pytest.mark.corpus
def test_real_ones(nsys, corpus, capture, tmp_path):
    samples = [p for p in corpus.rglob("*.qdstrm") if p.stat().st_size < 1 << 24]
    if not samples:
        pytest.skip("no raw captures among the reports")
    for n, sample in enumerate(samples[:3]):
        (tmp_path / f"{n}.qdstrm").write_bytes(sample.read_bytes())
    done = capture("recover", tmp_path, "--nsys", nsys)
    assert done.stdout.count("\n") == min(3, len(samples))
    assert done.returncode == (3 if "incomplete" in done.stdout else 0)


def test_what_capture_exec_has_left_becomes_the_report_that_it_would_have_been(tools, tmp_path):
    (tmp_path / "reports").mkdir()
    raw = tmp_path / "alltrace-7-x"
    raw.mkdir()
    (raw / "nsys-report-1.qdstrm").write_text("good")
    (raw / "report").write_text(f"{tmp_path}/reports/j_rank7_on_n1.nsys-rep\n")
    (found,) = recover(raw, tools)
    assert found.report == tmp_path / "reports" / "j_rank7_on_n1.nsys-rep"
    (elsewhere,) = recover(raw, tools, tmp_path / "else" / "where")
    assert elsewhere.report == tmp_path / "else" / "where" / "j_rank7_on_n1.nsys-rep"
    (raw / "nsys-report-2.qdstrm").write_text("good")
    names = {one.report.name for one in recover(raw, tools, tmp_path / "several")}
    assert names == {"j_rank7_on_n1_nsys-report-1.nsys-rep", "j_rank7_on_n1_nsys-report-2.nsys-rep"}
    (raw / "report").write_text("/no/such/folder/j.nsys-rep\n")
    (raw / "nsys-report-2.qdstrm").unlink()
    assert recover(raw, tools)[0].report == raw / "nsys-report-1.nsys-rep"
