"""The reports on NVTX, MPI and host runtimes compared with a real nsys, every cell."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import shutil
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.nvidia.test_oracle import LONG, shorten
from tests.thorough import THOROUGH

from alltrace.cli.output import cells
from alltrace.recipes.execution.ask import ask
from alltrace.recipes.registry import find_report
from alltrace.run.importer import import_reports
from alltrace.run.store import Run

pytestmark = pytest.mark.oracle

REPORTS = (
    "nvtx_sum", "nvtx_pushpop_sum", "nvtx_pushpop_trace", "nvtx_gpu_proj_trace", "nvtx_gpu_proj_sum", "nvtx_kern_sum",
    "nvtx_kern_sum:base", "nvtx_kern_sum:mangled", "cuda_gpu_kern_sum:nvtx-name", "osrt_sum", "openacc_sum",
    "mpi_event_trace",
)  # fmt: skip
WITH_NVTX = {
    "a100x4_ddp_baseline_nsys2022.4", "a100x4_ddp_bucketcap_nsys2022.4", "dlprof_nsys2022.1", "fuser_nvtx_nsys2025.1",
    "h100x2_nccl_sendrecv_nsys2026.2", "h100x2_torchrun_nsys2026.2", "llm_nvtx_nsys2025", "no_metadata_table_2020",
    "saxpy_mpi_nsys2022.2", "schema3.1_nsys2023.1",
}  # fmt: skip
WITH_OTHERS = {
    "osrt_sum": {"cuda_graphs_nsys2024.6", "gpu_metrics_nsys2022.4", "osrt_nsys2024.6"},
    "openacc_sum": {"v100x4_mpi_openacc_one_report_nsys2022.3"},
    "mpi_event_trace": {"mpi_p2p_collectives_nsys2023.1"},
    "nvtx_gpu_proj_trace": {*WITH_NVTX, "v100x4_mpi_openacc_one_report_nsys2022.3"},
    "nvtx_kern_sum": {*WITH_NVTX, "v100x4_mpi_openacc_one_report_nsys2022.3"},
}


def theirs(nsys: Path, report: str, file: Path, form: str = "csv") -> str:
    done = subprocess.run(
        [nsys, "stats", "-q", "-r", report, "--format", form, "-o", "-", file],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip("\n")


def ours(report: str, run: Path) -> list[list[str]]:
    table = ask(Run(run), find_report(report)).table
    return [table.column_names, *(list(row) for row in zip(*cells(table), strict=True))]


def cells_of(text: str) -> list[list[str]]:
    return [row for row in csv.reader(io.StringIO(text)) if row]


def fed_by(name: str) -> list[str]:
    """The reports that nsys can make of this export."""
    return [r for r in REPORTS if name in WITH_OTHERS.get(r.partition(":")[0], WITH_NVTX)]


@pytest.fixture(scope="module", params=sorted({*WITH_NVTX, *(n for names in WITH_OTHERS.values() for n in names)}))
def asked(
    request: Any, corpus: Path, nsys: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, str]]:
    """The run made of a real export, and what nsys says of it, by report."""
    folder = tmp_path_factory.mktemp("asked")
    file = folder / f"{request.param}.sqlite"
    shutil.copyfile(corpus / "nsys" / file.name, file)
    file.chmod(0o644)
    if request.param in LONG and not THOROUGH:
        shorten(file)
    wanted = fed_by(request.param)
    command = [str(nsys), "stats", "-q", "-r", ",".join(wanted), "--format", "csv", "-o", str(folder / "r"), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C.UTF-8"})
    assert done.returncode == 0, done.stderr
    import_reports([str(file)], folder / "run", jobs=1)
    return folder / "run", {r: (folder / f"r_{r.replace(':', '_')}.csv").read_text(encoding="utf-8") for r in wanted}


@pytest.mark.sampled(23)
@pytest.mark.corpus
@pytest.mark.parametrize("report", REPORTS)
def test_corpus(report: str, asked: tuple[Path, dict[str, str]]) -> None:
    run, said = asked
    if report not in said:
        pytest.skip("nsys has nothing to report of it")
    expected = cells_of(said[report])
    assert len(expected) > 1
    assert ours(report, run) == expected


@pytest.mark.sampled(2)
@pytest.mark.corpus
@pytest.mark.parametrize("report", ["nvtx_pushpop_trace", "nvtx_gpu_proj_trace", "nvtx_kern_sum", "nvtx_sum"])
def test_json_of_the_corpus(report: str, corpus: Path, nsys: Path, tmp_path: Path) -> None:
    file = tmp_path / "llm.sqlite"
    shutil.copyfile(corpus / "nsys" / "llm_nvtx_nsys2025.sqlite", file)
    expected = json.loads(theirs(nsys, report, file, "json"))
    import_reports([str(file)], tmp_path / "run", jobs=1)
    found = ask(Run(tmp_path / "run"), find_report(report)).table.to_pylist()
    assert [list(row.values()) for row in found] == [[None if v == "" else v for v in row.values()] for row in expected]
    assert list(found[0]) == list(expected[0])


THREADS = [(1 << 48) | (pid << 24) | tid for pid, tid in ((100, 100), (100, 101), (200, 200))]
NVTX = (
    "start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER, "
    "endGlobalTid INTEGER, domainId INTEGER"
)
KERNEL = (
    "start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER,"
    " globalPid INTEGER"
)
CALL = (
    "start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER,"
    " returnValue INTEGER"
)


def random_report(path: Path, seed: int) -> None:
    """A small report whose ranges cross and touch, on two threads and a second process; no two crossing ones are of one
    length."""
    rng = random.Random(seed)
    db = sqlite3.connect(path)
    db.execute(f"CREATE TABLE NVTX_EVENTS ({NVTX})")
    names = "demangledName INTEGER, shortName INTEGER, mangledName INTEGER"
    db.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({KERNEL}, {names})")
    db.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME ({CALL})")
    db.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
    db.executemany("INSERT INTO StringIds VALUES (?, ?)", [(i, f"name{i % 5}, {i}") for i in range(1, 12)])
    events: list[tuple[Any, ...]] = [(0, None, 75, "domain", None, THREADS[0], None, 3)]
    taken: set[tuple[int, int, int]] = set()
    lengths: set[int | None] = set()
    for _ in range(60):
        thread, start = rng.choice(THREADS), rng.choice((rng.randrange(1, 200_000), events[-1][1] or 1))
        end = start + rng.choice((0, rng.randrange(1000), rng.randrange(200_000)))
        if (thread, start, end) in taken or end - start in lengths:
            continue
        taken.add((thread, start, end))
        lengths.add(end - start or None)
        kind = rng.choice((59, 59, 59, 60))
        other = rng.choice(THREADS[:2]) if kind == 60 and rng.random() < 0.3 and thread != THREADS[2] else None
        text, number = rng.choice((("a", None), ("b", None), (None, rng.randrange(1, 12))))
        events.append((start, end, kind, text, number, thread, other, rng.choice((0, 3))))
    events.sort(key=lambda e: e[0])
    db.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?, ?, ?)", events)
    for i in range(80):
        thread, start = rng.choice(THREADS), rng.randrange(0, 380_000)
        process = thread >> 24 << 24
        begin = rng.randrange(1000, 5000)
        call = (start, start + rng.choice((0, 1, 300, 700, 900, 30_000)), 0, thread, i, 1, 0)
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?, ?, ?)", call)
        kernel = (
            begin,
            begin + rng.randrange(1, 90),
            0,
            1,
            7,
            i,
            process,
            *(rng.randrange(1, 4) + k for k in (0, 3, 6)),
        )
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", kernel)
    db.commit()
    db.close()


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(6))
def test_random_reports(seed: int, nsys: Path, tmp_path: Path) -> None:
    file = tmp_path / "random.sqlite"
    random_report(file, seed)
    import_reports([str(file)], tmp_path / "run", jobs=1)
    for report in (*REPORTS[:9], "nvtx_startend_sum"):
        expected = cells_of(theirs(nsys, report, file))
        assert len(expected) > 1
        assert ours(report, tmp_path / "run") == expected, report


def test_network_congestion(nsys: Path, tmp_path: Path) -> None:
    file = tmp_path / "net.sqlite"
    db = sqlite3.connect(file)
    sample = "start INTEGER, end INTEGER, globalId INTEGER, metricsListId INTEGER, metricsIdx INTEGER, value INTEGER"
    for table in ("NET_NIC_METRIC", "NET_IB_SWITCH_METRIC"):
        db.execute(f"CREATE TABLE {table} ({sample})")
    db.execute("CREATE TABLE TARGET_INFO_NETWORK_METRICS (metricsListId INTEGER, metricsIdx INTEGER, name TEXT)")
    db.execute("CREATE TABLE TARGET_INFO_NIC_INFO (GUID INTEGER, nicId INTEGER, name TEXT, deviceId INTEGER)")
    db.execute("CREATE TABLE NIC_ID_MAP (nicId INTEGER, globalId INTEGER)")
    db.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
    db.execute("CREATE TABLE ENUM_NET_DEVICE_ID (id INTEGER PRIMARY KEY, name TEXT, label TEXT)")
    db.execute("INSERT INTO ENUM_NET_DEVICE_ID VALUES (1, 'x', 'Model 1')")
    metrics = [(1, 0, "IB: Bytes sent"), (1, 1, "IB: Send waits"), (2, 0, "IB: Send waits")]
    db.executemany("INSERT INTO TARGET_INFO_NETWORK_METRICS VALUES (?, ?, ?)", metrics)
    db.executemany(
        "INSERT INTO TARGET_INFO_NIC_INFO VALUES (?, ?, ?, ?)", [(0x1234567890ABCDEF, 3, "a", 1), (-5, 4, "b", 1)]
    )
    db.executemany("INSERT INTO NIC_ID_MAP VALUES (?, ?)", [(3, 1003), (4, 1004)])
    samples = [
        (100, 200, 1003, 1, 1, 20000),
        (100, 200, 1003, 1, 0, 20000),
        (200, 300, 1003, 1, 1, 10000),
        (300, 400, 1004, 1, 1, 10001),
    ]
    db.executemany("INSERT INTO NET_NIC_METRIC VALUES (?, ?, ?, ?, ?, ?)", samples)
    db.executemany(
        "INSERT INTO NET_IB_SWITCH_METRIC VALUES (?, ?, ?, ?, ?, ?)",
        [(150, 250, 0xABC, 2, 0, 50000), (250, 350, -7, 2, 0, 60000)],
    )
    db.commit()
    db.close()
    import_reports([str(file)], tmp_path / "run", jobs=1)
    for report, rows in (("network_congestion", 4), ("network_congestion:ticks_threshold=4", 5)):
        expected = cells_of(theirs(nsys, report, file))
        assert len(expected) == rows + 1
        assert ours(report, tmp_path / "run") == expected
