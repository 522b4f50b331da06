from __future__ import annotations

import sqlite3
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.making import kernel, make_run
from tests.recipes.work import call

from alltrace.cli.csv_text import to_csv
from alltrace.nvidia import nvtx_kern_sum
from alltrace.recipes import sql_recipe
from alltrace.recipes.base import Part
from alltrace.recipes.execution.ask import ask
from alltrace.recipes.registry import find, find_report
from alltrace.run.importer import import_reports
from alltrace.run.store import Run

MAIN, SIDE = (1 << 48) | (100 << 24) | 100, (1 << 48) | (100 << 24) | 101
PROCESS = MAIN >> 24 << 24
TABLES = {
    "NVTX_EVENTS": (
        "start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER, "
        "endGlobalTid INTEGER, domainId INTEGER"
    ),
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, "
        "globalPid INTEGER, demangledName INTEGER, shortName INTEGER"
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER"
    ),
    "OSRT_API": "start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER, nameId INTEGER",
    "SYSCALL": "start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER",
    "OPENMP_EVENT_KIND_TASK": "start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER, eventKind INTEGER",
    "MPI_P2P_EVENTS": (
        "start INTEGER, end INTEGER, globalTid INTEGER, textId INTEGER, tag INTEGER, remoteRank INTEGER, size INTEGER"
    ),
    "MPI_COLLECTIVES_EVENTS": (
        "start INTEGER, end INTEGER, globalTid INTEGER, textId INTEGER, rootRank INTEGER, "
        "size INTEGER, recvSize INTEGER"
    ),
    "MPI_START_WAIT_EVENTS": "start INTEGER, end INTEGER, globalTid INTEGER, textId INTEGER, requestHandle INTEGER",
    "MPI_RANKS": "globalTid INTEGER, rank INTEGER",
}
NAMES = {
    1: "kernel<int>", 2: "kernel", 3: "cudaLaunchKernel_v7000", 4: "poll", 5: "MPI_Waitall", 6: "MPI_Sendrecv",
    7: "MPI_Bcast", 8: "began",
}  # fmt: skip


def asked(tmp_path: Path, report: str, rows: dict[str, list[tuple[Any, ...]]], name: str = "r") -> list[dict[str, Any]]:
    """The rows of the answer for a run made of one report."""
    made(tmp_path / f"{name}.sqlite", rows)
    import_reports([str(tmp_path / f"{name}.sqlite")], tmp_path / "run", jobs=1)
    return ask(Run(tmp_path / "run"), find_report(report)).table.to_pylist()


def made(path: Path, rows: dict[str, list[tuple[Any, ...]]]) -> None:
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
    db.executemany("INSERT INTO StringIds VALUES (?, ?)", NAMES.items())
    for table, values in rows.items():
        db.execute(f"CREATE TABLE {table} ({TABLES[table]})")
        db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values[0]))})", values)
    db.commit()
    db.close()


def pushpop(start: int, end: int | None, text: str | None, thread: int = MAIN) -> tuple[Any, ...]:
    return (start, end, 59, text, thread, None, 0)


def column(rows: list[dict[str, Any]], *titles: str) -> list[tuple[Any, ...]]:
    return [tuple(row[t] for t in titles) for row in rows]


def test_domains_styles_and_open_ranges(tmp_path: Path) -> None:
    events = [
        (0, None, 75, "lib", MAIN, None, 4),
        (10, 20, 59, "a", MAIN, None, 4),
        (20, None, 59, "a", MAIN, None, 0),
        (30, 50, 60, "a", MAIN, SIDE, 0),
        (60, None, 34, "mark", MAIN, None, 0),
    ]
    rows = asked(tmp_path, "nvtx_sum", {"NVTX_EVENTS": events})
    assert column(rows, "Range", "Style", "Total Time (ns)", "Time (%)") == [
        ("a", "PushPop", 40, 57.1),
        ("a", "StartEnd", 20, 28.6),
        ("lib:a", "PushPop", 10, 14.3),
    ]


def test_ranges_of_one_place_nest_as_they_were_pushed(tmp_path: Path) -> None:
    events = [pushpop(0, 5, "before"), pushpop(10, 100, "outer"), pushpop(10, 100, "inner"), pushpop(20, 30, "leaf")]
    rows = asked(tmp_path, "nvtx_pushpop_trace", {"NVTX_EVENTS": events})
    assert column(rows, "NameTree", "RangeStack", "ParentId", "NumChild", "DurNonChild (ns)") == [
        ("before", ":1", None, 0, 5),
        ("outer", ":2", None, 1, 0),
        ("--inner", ":2:3", 2, 1, 80),
        ("----leaf", ":2:3:4", 3, 0, 10),
    ]


def test_a_range_without_a_name_has_none_in_the_tree(tmp_path: Path) -> None:
    rows = asked(
        tmp_path,
        "nvtx_pushpop_trace",
        {"NVTX_EVENTS": [pushpop(0, 9, "outer"), pushpop(1, 8, None), pushpop(2, 3, "leaf")]},
    )
    assert column(rows, "Name", "NameTree") == [("outer", "outer"), (None, None), ("leaf", "----leaf")]


def test_an_open_range_is_around_what_follows(tmp_path: Path) -> None:
    events = [
        pushpop(10, None, "open"),
        pushpop(20, 30, "x"),
        pushpop(40, 70, "y"),
        (45, None, 34, "mark", MAIN, None, 0),
    ]
    rows = asked(tmp_path, "nvtx_pushpop_trace", {"NVTX_EVENTS": events})
    assert column(rows, "Name", "End (ns)", "Lvl", "DurChild (ns)") == [
        ("open", 70, 0, 40),
        ("x", 30, 1, 0),
        ("y", 70, 1, 0),
    ]


def test_an_open_range_that_starts_after_all_others_ended(tmp_path: Path) -> None:
    events = [pushpop(10, 30, "whole"), pushpop(50, None, "open"), pushpop(80, None, "last")]
    rows = asked(tmp_path, "nvtx_pushpop_trace", {"NVTX_EVENTS": events})
    assert column(rows, "NameTree", "End (ns)", "DurNonChild (ns)") == [
        ("whole", 30, 20),
        ("open", 80, 30),
        ("--last", 80, 0),
    ]
    (tmp_path / "gpu").mkdir()
    calls, kernels = [(60, 61, MAIN, 1, 3)], [(1000, 1010, 0, 7, 1, PROCESS, 1, 2)]
    work = {"CUPTI_ACTIVITY_KIND_KERNEL": kernels, "CUPTI_ACTIVITY_KIND_RUNTIME": calls}
    rows = asked(tmp_path / "gpu", "nvtx_gpu_proj_trace", {"NVTX_EVENTS": events, **work})
    assert column(rows, "Name", "Orig Duration (ns)", "Projected Duration (ns)") == [("open", 30, 10)]


@pytest.mark.parametrize("report", ["nvtx_pushpop_trace", "nvtx_gpu_proj_trace"])
def test_stacks_of_more_text_than_a_string_array_holds(
    report: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = asked(tmp_path, report, gpu_work())
    monkeypatch.setattr("alltrace.nvidia.cells._MOST_TEXT", 8)
    answer = ask(Run(tmp_path / "run"), find_report(report))
    assert pa.types.is_large_string(answer.table.schema.field("RangeStack").type)
    assert answer.table.to_pylist() == rows
    assert ":1" in to_csv(answer.table)


@pytest.mark.slow
def test_work_outside_of_ranges_is_counted_in_little_memory() -> None:
    row = {"first": 0, "last": 10, "PID": 1, "TID": 1, "operations": 200_000, "NumChild": 0}
    schema = pa.schema([(c, pa.int64()) for c in (*row, "start", "name", "domain")])
    ids = [np.arange(200_000) + rank for rank in range(8)]
    parts = []
    for rank, of in enumerate(ids):
        lists = pa.ListArray.from_arrays(pa.array([0, len(of)], pa.int32()), pa.array(of))
        parts.append(Part(rank, pa.Table.from_pylist([row], schema).append_column("correlations", lists)))
    tracemalloc.start()
    answer = find_report("nvtx_gpu_proj_trace").merge(parts, SimpleNamespace(ranks=()), {})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert answer.table.column("NumGPUOps").to_pylist() == [200_007]
    assert peak < 16 << 20


def test_range_numbers_of_two_reports_do_not_clash(tmp_path: Path) -> None:
    for rank in (0, 1):
        rows = {
            "NVTX_EVENTS": [pushpop(10 + rank, 100, "outer"), pushpop(20 + rank, 30, "leaf")],
            "MPI_RANKS": [(MAIN, rank)],
        }
        made(tmp_path / f"r{rank}.sqlite", rows)
    import_reports([str(tmp_path / f"r{rank}.sqlite") for rank in (0, 1)], tmp_path / "run", jobs=1)
    table = ask(Run(tmp_path / "run"), find_report("nvtx_pushpop_trace")).table
    assert table.column("RangeStack").to_pylist() == [":1", ":3", ":1:2", ":3:4"]


def gpu_work() -> dict[str, list[tuple[Any, ...]]]:
    """Two crossing ranges, one in another thread, one ended elsewhere; a call in both, in one and in none."""
    calls = [(22, 24, MAIN, 1, 3), (12, 13, MAIN, 2, 3), (90, 91, MAIN, 3, 3)]
    kernels = [(1000 + 100 * c, 1010 + 110 * c, 0, 7, c, PROCESS, 1, 2) for c in (1, 2, 3)]
    events = [
        pushpop(10, 30, "a"),
        pushpop(20, 38, "b"),
        pushpop(5, 99, "elsewhere", SIDE),
        (6, 99, 60, "handed over", MAIN, SIDE, 0),
        pushpop(21, 25, "b"),
    ]
    return {"NVTX_EVENTS": events, "CUPTI_ACTIVITY_KIND_KERNEL": kernels, "CUPTI_ACTIVITY_KIND_RUNTIME": calls}


def test_projection_of_crossing_ranges(tmp_path: Path) -> None:
    rows = asked(tmp_path, "nvtx_gpu_proj_trace", gpu_work())
    titles = ("Name", "Projected Start (ns)", "Projected Duration (ns)", "NumGPUOps", "RangeStack", "NumChild")
    assert column(rows, *titles) == [
        (None, 1300, 40, 1, None, 0),
        ("a", 1100, 130, 2, ":1", 0),
        ("b", 1100, 20, 1, ":2", 1),
        ("b", 1100, 20, 1, ":2:5", 0),
    ]
    rows = asked(tmp_path, "nvtx_gpu_proj_sum", gpu_work(), "again")
    titles = ("Range", "Total Proj Time (ns)", "Range Instances", "Avg Range Lvl", "Avg Num Child")
    assert column(rows, *titles) == [("a", 130, 1, 0.0, 0.0), ("b", 40, 2, 0.5, 0.5)]


def test_a_kernel_counts_for_every_range_around_it(tmp_path: Path) -> None:
    rows = asked(tmp_path, "nvtx_kern_sum:base", gpu_work())
    titles = ("NVTX Range", "NVTX Inst", "Kern Inst", "Total Time (ns)", "Kernel Name")
    assert column(rows, *titles) == [(None, 0, 1, 40, "kernel"), ("a", 1, 2, 50, "kernel"), ("b", 2, 1, 40, "kernel")]


def test_kernels_in_ranges_of_all_ranks_are_counted_together_some_keys_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*took: int) -> dict[str, list[dict[str, Any]]]:
        spots = [{"start": 10 * i, "end": 10 * i + 5, "correlation": i} for i in range(len(took))]
        return {
            "ranges": [
                {"start": 0, "end": 15, "name": "a", "kind": "pushpop"},
                {"start": 20, "end": 99, "name": "b", "kind": "pushpop"},
            ],
            "api": spots,
            "kernels": [{"start": 100, "end": 100 + t, "name": "k", "correlation": i} for i, t in enumerate(took)],
        }

    run = make_run(tmp_path / "run", {0: work(5, 300, 7, 1 << 40), 1: work(9, 5), 2: {**work(3, 3, 3), "ranges": []}})
    whole = ask(run, find_report("nvtx_kern_sum")).table
    monkeypatch.setattr(nvtx_kern_sum, "_PAIRS_AT_ONCE", 2)
    monkeypatch.setattr(sql_recipe, "_ROWS_AT_ONCE", 1)
    assert ask(run, find_report("nvtx_kern_sum")).table == whole
    titles = ("NVTX Range", "NVTX Inst", "Kern Inst", "Total Time (ns)", "Med (ns)", "Max (ns)")
    assert column(whole.to_pylist(), *titles) == [
        (None, 0, 3, 9, 3.0, 3),
        ("a", 2, 4, 319, 7.0, 300),
        ("b", 1, 2, (1 << 40) + 7, ((1 << 40) + 7) / 2, 1 << 40),
    ]


def test_a_kernel_in_two_ranges_without_a_name_is_one(tmp_path: Path) -> None:
    calls, kernels = [(22, 24, MAIN, 1, 3)], [(1000, 1010, 0, 7, 1, PROCESS, 1, 2)]
    events = [(0, None, 75, "lib", MAIN, None, 4), pushpop(10, 30, None), (20, 25, 59, None, MAIN, None, 4)]
    work = {"CUPTI_ACTIVITY_KIND_KERNEL": kernels, "CUPTI_ACTIVITY_KIND_RUNTIME": calls}
    rows = asked(tmp_path, "nvtx_kern_sum:base", {"NVTX_EVENTS": events, **work})
    assert column(rows, "NVTX Range", "NVTX Inst", "Kern Inst", "Total Time (ns)") == [(None, 2, 1, 20)]


def test_ranges_of_two_domains_that_are_called_the_same_are_one_row(tmp_path: Path) -> None:
    """As nsys groups them: by what is shown, `domain:text`."""
    calls = [(12, 14, MAIN, 1, 3), (32, 34, MAIN, 2, 3)]
    kernels = [(1000, 1010, 0, 7, 1, PROCESS, 1, 2), (1010, 1040, 0, 7, 2, PROCESS, 1, 2)]
    events = [(0, None, 75, "lib", MAIN, None, 4), (10, 20, 59, "x", MAIN, None, 4), pushpop(30, 40, "lib:x")]
    work = {"CUPTI_ACTIVITY_KIND_KERNEL": kernels, "CUPTI_ACTIVITY_KIND_RUNTIME": calls}
    rows = asked(tmp_path, "nvtx_kern_sum:base", {"NVTX_EVENTS": events, **work})
    titles = ("NVTX Range", "NVTX Inst", "Kern Inst", "Total Time (ns)", "Med (ns)")
    assert column(rows, *titles) == [("lib:x", 2, 2, 40, 20.0)]


@pytest.mark.parametrize(
    ("report", "events"),
    [
        ("osrt_sum", {"OSRT_API": [(0, 5, 27, MAIN, 4), (5, 12, 27, MAIN, 4), (0, 0, 31, MAIN, 8)]}),
        ("syscall_sum", {"SYSCALL": [(0, 5, MAIN, 4), (5, 12, SIDE, 4)]}),
        ("openmp_sum", {"OPENMP_EVENT_KIND_TASK": [(0, 5, MAIN, 4, 1), (5, 12, MAIN, 4, 1)]}),
    ],
)
def test_calls_of_host_runtimes(tmp_path: Path, report: str, events: dict[str, list[tuple[Any, ...]]]) -> None:
    rows = asked(tmp_path, report, events)
    assert column(rows, "Name", "Num Calls", "Total Time (ns)", "Med (ns)") == [("poll", 2, 12, 6.0)]


def mpi() -> dict[str, list[tuple[Any, ...]]]:
    return {
        "MPI_RANKS": [(MAIN, 3)],
        "MPI_P2P_EVENTS": [(10, 10, MAIN, 6, 7, 1, 2_000_000), (10, 30, MAIN, 6, 7, 2, 1_000_000)],
        "MPI_COLLECTIVES_EVENTS": [(40, 45, MAIN, 7, 0, 4_000_000, None), (50, 56, MAIN, 7, 0, None, 3_000_000)],
        "MPI_START_WAIT_EVENTS": [(60, 100, MAIN, 5, 1), (60, 100, MAIN, 5, 2)],
    }


def test_mpi_trace_shows_what_was_recorded(tmp_path: Path) -> None:
    rows = asked(tmp_path, "mpi_event_trace", mpi())
    titles = (
        "Event",
        "Duration (ns)",
        "Rank",
        "PeerRank",
        "RootRank",
        "Size (MB)",
        "CollSendSize (MB)",
        "CollRecvSize (MB)",
    )
    assert column(rows, *titles) == [
        ("MPI_Sendrecv", 0, 3, 1, None, 2.0, None, None),
        ("MPI_Sendrecv", 20, 3, 2, None, 1.0, None, None),
        ("MPI_Bcast", 5, 3, None, 0, None, 4.0, None),
        ("MPI_Bcast", 6, 3, None, 0, None, None, 3.0),
        *[("MPI_Waitall", 40, 3, None, None, None, None, None)] * 2,
    ]


def test_mpi_sums_count_calls_and_messages(tmp_path: Path) -> None:
    rows = asked(tmp_path, "mpi_event_sum", mpi())
    assert column(rows, "Source", "Name", "Instances", "Total Time (ns)") == [
        ("start_wait", "MPI_Waitall", 1, 40),
        ("p2p", "MPI_Sendrecv", 1, 20),
        ("collectives", "MPI_Bcast", 2, 11),
    ]
    rows = asked(tmp_path, "mpi_msg_size_sum", mpi(), "again")
    assert column(rows, "Source", "Name", "Instances", "Total Message Volume (MB)") == [
        ("coll_send", "MPI_Bcast", 1, 4.0),
        ("coll_recv", "MPI_Bcast", 1, 3.0),
        ("p2p", "MPI_Sendrecv", 2, 3.0),
    ]


RANGES = [
    {"start": start, "end": end, "name": name, "kind": "pushpop"}
    for start, end, name in ((0, 100, "step"), (200, 350, "step"), (220, 300, "inner"), (400, 420, "step"))
]
LAUNCHES = [
    (10, 1000, 1010),
    (210, 1100, 1120),
    (230, 1150, 1200),
    (405, 1300, 1340),
]  # when called; the kernel's start and end


def made_projected(folder):
    api = [call(at, at + 5, n) for n, (at, _, _) in enumerate(LAUNCHES, 1)]
    kernels = [kernel(start, end, correlation=n) for n, (_, start, end) in enumerate(LAUNCHES, 1)]
    return make_run(folder, {0: {"ranges": RANGES, "api": api, "kernels": kernels}})


def test_statistics_of_the_projected_ranges(tmp_path):
    rows = ask(made_projected(tmp_path / "run"), find_report("nvtx_gpu_proj_sum")).table.to_pylist()
    assert rows == [
        {
            # projected 10, 100 and 40 ns; 100, 150 and 20 ns on the CPU
            "Range": "step", "Style": "PushPop", "Total Proj Time (ns)": 150, "Total Range Time (ns)": 270,
            "Range Instances": 3, "Proj Avg (ns)": 50.0, "Proj Med (ns)": 40.0, "Proj Min (ns)": 10,
            "Proj Max (ns)": 100, "Proj StdDev (ns)": 45.8, "Total GPU Ops": 4, "Avg GPU Ops": 1.3,
            "Avg Range Lvl": 0.0, "Avg Num Child": 0.3,
        },
        {
            "Range": "inner", "Style": "PushPop", "Total Proj Time (ns)": 50, "Total Range Time (ns)": 80,
            "Range Instances": 1, "Proj Avg (ns)": 50.0, "Proj Med (ns)": 50.0, "Proj Min (ns)": 50,
            "Proj Max (ns)": 50, "Proj StdDev (ns)": 0.0, "Total GPU Ops": 1, "Avg GPU Ops": 1.0, "Avg Range Lvl": 1.0,
            "Avg Num Child": 0.0,
        },
    ]  # fmt: skip


def test_the_recipe_of_nsys_lists_each_range_with_its_own_time(tmp_path):
    rows = ask(made_projected(tmp_path / "run"), find("nvtx_gpu_proj_trace")).table.to_pylist()
    titles = ("Name", "Projected Start", "Projected Duration", "Orig Start", "Orig Duration")
    assert [tuple(r[t] for t in titles) for r in rows] == [
        ("step", 1000, 10, 0, 100),
        ("step", 1100, 100, 200, 150),
        ("inner", 1150, 50, 220, 80),
        ("step", 1300, 40, 400, 20),
    ]
