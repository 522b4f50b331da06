"""Reports of Nsight Compute: made by hand, damaged, and against the real tool."""

from __future__ import annotations

import csv
import os
import struct
import subprocess
from pathlib import Path

import pytest

from alltrace.readers.ncu.read import read_report
from alltrace.readers.ncu.wire import WireError, fields, varint
from alltrace.trace.errors import InputError


def number(value):
    parts = []
    while True:
        parts.append(value & 0x7F | (0x80 if value > 0x7F else 0))
        value >>= 7
        if not value:
            return bytes(parts)


def whole(key, value):
    return number(key << 3) + number(value)


def inner(key, data):
    data = data.encode() if isinstance(data, str) else data
    return number(key << 3 | 2) + number(len(data)) + data


def double(key, value):
    return number(key << 3 | 1) + struct.pack("<d", value)


def single(key, value):
    return number(key << 3 | 5) + struct.pack("<f", value)


def metric(name, value):
    return inner(13, whole(1, name) + inner(2, value))


def launch(*metrics, name="void gemm<float>(float*)"):
    sizes = inner(10, whole(1, 7) + whole(2, 8) + whole(3, 1)) + inner(11, whole(1, 128) + whole(2, 1) + whole(3, 1))
    return inner(6, "gemm") + inner(7, name) + sizes + whole(22, 1) + whole(23, 7) + inner(99, b"unknown") + b"".join(metrics)


def part(data):
    return struct.pack("<I", len(data)) + data


def block(strings, launches, sources=()):
    header = whole(1, len(sources)) + whole(2, len(launches)) + inner(4, b"".join(inner(1, s) for s in strings))
    return part(header + inner(6, whole(1, 4000))) + b"".join(map(part, (*sources, *launches)))


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


@pytest.mark.corpus
@pytest.mark.oracle
@pytest.mark.parametrize("name", NAMES)
def test_every_metric_is_what_nsight_compute_prints(corpus, name):
    tool = Path(os.environ.get("ALLTRACE_NSIGHT", "")) / "ncu" / "ncu"
    if not tool.is_file():
        pytest.skip("no Nsight Compute: set ALLTRACE_NSIGHT")
    path = corpus / "ncu" / f"{name}.ncu-rep"
    command = [str(tool), "--import", str(path), "--csv", "--page", "raw", "--print-units", "base", "--print-fp"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    table = [row for row in csv.reader(lines) if row]
    head = next(n for n, row in enumerate(table) if row[0] == "ID")
    columns, body = table[head], table[head + 2 :]
    launches = read_report(path).launches
    assert [row[4] for row in body] == [x.name for x in launches]
    compared = 0
    for row, x in zip(body, launches, strict=True):
        for column, text in list(zip(columns, row, strict=True))[11:]:
            if column not in x.metrics:
                assert text in ("", "no data"), column
                continue
            found = x.metrics[column]
            compared += 1
            if isinstance(found, str):
                assert text == found, column
            else:
                decimals = len(text.partition(".")[2])
                assert abs(float(text.replace(",", "")) - found) <= 0.50001 * 10**-decimals, column
    assert compared > 200 * len(launches)
