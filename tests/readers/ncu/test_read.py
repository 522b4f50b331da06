"""Reports of Nsight Compute: made by hand and damaged."""

from __future__ import annotations

import pytest
from tests.readers.ncu.building import block, double, inner, launch, metric, part, single, whole

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
