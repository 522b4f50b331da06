"""Pages that Nsight Compute printed: by hand, damaged, and against the report that they are from."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.together import together

from alltrace.readers.ncu.read import read_report
from alltrace.readers.ncu.text import base_factor
from alltrace.trace.errors import InputError

FACTS = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid'
    ' Size","Device","CC"'
)
LAUNCH = '"%d","4000","train","node","void gemm<a, b>(float *)","1","7","(128, 1, 1)","(7, 8, 1)","0","8.0"'
EMPTY = ",".join(['""'] * 11)
RAW = "\n".join(
    [
        "==PROF== Connected to process 4000",
        f'{FACTS},"gpu__time_duration.sum","dram__bytes.sum.per_second","launch__func_cache_config","sm__x.pct"',
        EMPTY + ',"msecond","Gbyte/second","","%"',
        f'{LAUNCH % 0},"1.50","2.5","PreferNone","nan"',
        f'{LAUNCH % 1},"1,234.5 (1; 2)","no data","","12"',
    ]
)
DETAILS = "\n".join(
    [
        f'{FACTS},"Section Name","Metric Name","Metric Unit","Metric Value","Rule Name"',
        f'{LAUNCH % 0},"GPU Speed Of Light Throughput","Duration","usecond","1.6",',
        f'{LAUNCH % 0},"GPU Speed Of Light Throughput","Memory Throughput","%","12.5",',
        f'{LAUNCH % 0},"SpeedOfLight","","","","SOLBottleneck"',
        f'{LAUNCH % 1},"Memory Workload Analysis","Memory Throughput","Mbyte/second","3",',
        f'{LAUNCH % 1},"Something New","A Number","warp","4",',
    ]
)
PLAIN = """[4000] train@127.0.0.1
  void gemm<a, b>(float *) (7, 8, 1)x(128, 1, 1), Context 1, Stream 7, Device 0, CC 8.0
    Section: GPU Speed Of Light Throughput
    ----------------------- ------------- ------------
    Metric Name               Metric Unit Metric Value
    ----------------------- ------------- ------------
    Duration                      usecond         1.60
    Memory Throughput                   %        12.50
    ----------------------- ------------- ------------

    WRN   This kernel grid is too small, resulting in only 0.0 full
          waves across all SMs.

    Section: Launch Statistics
    -------------------------------- ---------------
    Other page                       without a unit
    -------------------------------- ---------------
"""


@pytest.fixture
def read(tmp_path):
    def made(text):
        path = tmp_path / "page.csv"
        path.write_text(text) if isinstance(text, str) else path.write_bytes(text)
        return read_report(path)

    return made


def test_a_page_raw_is_in_base_units(read):
    first, second = read(RAW).launches
    assert (first.name, first.function, first.grid, first.block) == (
        "void gemm<a, b>(float *)",
        "gemm",
        (7, 8, 1),
        (128, 1, 1),
    )
    assert (first.context, first.stream, first.process, second.number) == (1, 7, 4000, 1)
    assert first.metrics["gpu__time_duration.sum"] == 1.5e6
    assert (first.metrics["dram__bytes.sum.per_second"], first.metrics["launch__func_cache_config"]) == (
        2.5e9,
        "PreferNone",
    )
    assert first.metrics["sm__x.pct"] != first.metrics["sm__x.pct"]
    assert first.number_of("sm__x.pct") is None
    # what has no value is left out; values of instances are passed over
    assert second.metrics == {"gpu__time_duration.sum": 1234.5e6, "sm__x.pct": 12}


def test_a_page_of_details_has_the_names_of_metrics(read):
    first, second = read(DETAILS).launches
    assert first.metrics == {
        "gpu__time_duration.sum": 1600.0,
        "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": 12.5,
    }
    assert second.metrics == {"dram__bytes.sum.per_second": 3e6, "details: Something New: A Number": 4}


def test_a_page_of_details_has_what_rules_said(read):
    rule = '"Rule Name","Rule Type","Rule Description","Estimated Speedup Type","Estimated Speedup"'
    head = f'{FACTS},"Section Name","Metric Name","Metric Unit","Metric Value",{rule}'
    rows = [
        '"S","","","","R","OPT","do it","global","12.5"',
        '"S","","","","R","INF","and more","",""',
        '"S","","","","silent","INF","","",""',
        '"S","","","","","INF","of no rule","",""',
        '"S","Duration","ns","5",',
    ]
    (found,) = read("\n".join([head, *(f"{LAUNCH % 0},{row}" for row in rows)])).launches
    (rule,) = found.rules
    assert (rule.identifier, rule.section) == ("R", "S")
    assert [(m.kind, m.text, m.speedup_percent, m.speedup_of) for m in rule.messages] == [
        ("optimization", "do it", 12.5, "global"), ("ok", "and more", None, None)
    ]  # fmt: skip
    assert found.metrics == {"gpu__time_duration.sum": 5}


def test_a_page_of_plain_text(read):
    (launch,) = read(PLAIN).launches
    assert (launch.name, launch.grid, launch.block, launch.process) == (
        "void gemm<a, b>(float *)",
        (7, 8, 1),
        (128, 1, 1),
        4000,
    )
    assert launch.metrics == {
        "gpu__time_duration.sum": 1600.0,
        "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": 12.5,
    }


def test_a_configuration_is_also_found_among_the_metrics(read):
    head = '"ID","Kernel Name",' + ",".join(
        f'"launch__{what}_dim_{axis}"' for what in ("grid", "block") for axis in "xyz"
    )
    assert read(f'{head}\n"0","f","1","2","3","4","5","6"').launches[0].configuration == ("f", (1, 2, 3), (4, 5, 6))
    assert read('"ID","Kernel Name","launch__grid_size"\n"0","f","9"').launches[0].grid is None


def test_pages_behind_each_other_are_one(read):
    assert [x.number for x in read(f"{RAW}\n{RAW}").launches] == [0, 1, 2, 3]


def test_pages_of_one_launch_behind_each_other_are_two_launches(read):
    page, other = (DETAILS[: DETAILS.index(LAUNCH % 1) - 1].replace('"1.6"', f'"{time}"') for time in ("1.6", "3.2"))
    assert [x.metrics["gpu__time_duration.sum"] for x in read(f"{page}\n{other}").launches] == [1600, 3200]


def test_pages_behind_each_other_may_have_other_columns(read):
    other = RAW.replace("dram__bytes.sum.per_second", "dram__bytes.sum").replace("Gbyte/second", "Kbyte")
    found = read(f"{RAW}\n{other}\n{DETAILS}").launches
    assert [x.number for x in found] == list(range(6))
    assert [x.metrics.get("dram__bytes.sum.per_second") for x in found] == [2.5e9, None, None, None, None, 3e6]
    assert found[2].metrics["dram__bytes.sum"] == 2500


def test_a_page_that_is_cut_short_gives_what_is_whole(read):
    within_a_cell = read(RAW[:-2])
    assert len(within_a_cell.launches) == 1
    assert within_a_cell.warnings == ("the last line of the page is cut short: the lines before were read",)
    behind_a_cell = read(RAW[: -len(',"12"')])
    assert len(behind_a_cell.launches) == 1
    assert behind_a_cell.warnings == ("the page is cut short after launch 1: the launches before were read",)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a,b,c\n1,2,3\n", "its columns are 'a,b,c'"),
        ("", "it has no kernel launch"),
        ("hello\n", "it has no kernel launch"),
        (f"{FACTS}\n", "neither a column 'Metric Name' nor a column of a metric"),
        (DETAILS.replace("Metric Value", "Value"), "it has no column 'Metric Value'"),
        (f'{FACTS},"sm__x.pct"\n', "it has no kernel launch"),
        (f'{FACTS},"sm__x.p', "it has no kernel launch"),
        (b"SQLite format 3\x00 more", "it does not start like one"),
    ],
)
def test_other_text_is_refused_in_a_sentence(read, text, found):
    with pytest.raises(InputError, match=r"page\.csv") as error:
        read(text)
    assert found in str(error.value)


@together(
    ("unit", "factor"),
    [("usecond", 1e3), ("ms", 1e6), ("cycle/nsecond", 1e9), ("Ghz", 1e9), ("Tbyte/second", 1e12),
        ("sector/usecond", 1e6),
     ("Kbyte/block", 1e3), ("%/Kbyte", 1e3), ("%", None), ("", None), ("Kelvin", None)],
)  # fmt: skip
def test_units(unit, factor):
    assert base_factor(unit) == (factor if factor is None else pytest.approx(factor))


@pytest.mark.corpus
@pytest.mark.oracle
@pytest.mark.parametrize("name", ["gemm_badtile", "cuda_tutorial", "mojo_rtx"])
@pytest.mark.parametrize(
    "form", [("--csv", "--page", "raw"), ("--csv", "--page", "details"), ("--page", "raw"), ("--page", "details")]
)
def test_pages_are_read_to_what_the_report_has(corpus, tmp_path, name, form):
    tool = Path(os.environ.get("ALLTRACE_NSIGHT", "")) / "ncu" / "ncu"
    if not tool.is_file():
        pytest.skip("no Nsight Compute: set ALLTRACE_NSIGHT")
    path = corpus / "ncu" / f"{name}.ncu-rep"
    page = tmp_path / "page.txt"
    page.write_bytes(subprocess.run([str(tool), "--import", str(path), *form], capture_output=True, check=True).stdout)
    compared = 0
    for theirs, ours in zip(read_report(page).launches, read_report(path).launches, strict=True):
        assert (theirs.configuration, theirs.context, theirs.stream) == (ours.configuration, ours.context, ours.stream)
        for metric, value in theirs.metrics.items():
            if metric.startswith("details: "):
                continue
            own = ours.metrics[metric]
            compared += 1
            # a page has two decimals
            assert value == (own if isinstance(own, str) else pytest.approx(own, rel=0.006, abs=0.0051)), metric
    assert compared >= 25
