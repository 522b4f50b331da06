"""Every cell of the CUDA reports against a real `nsys stats`, on real exports and on one made by hand."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import re
import shutil
import sqlite3
import subprocess
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.thorough import THOROUGH

import alltrace
from alltrace.cli.csv_text import to_csv

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

SPECS = (
    "cuda_api_sum", "cuda_api_trace", "cuda_gpu_kern_sum", "cuda_gpu_kern_sum:base", "cuda_gpu_kern_sum:mangled",
    "cuda_gpu_kern_sum:nvtx-name", "cuda_gpu_kern_gb_sum", "cuda_gpu_mem_time_sum", "cuda_gpu_mem_size_sum",
    "cuda_gpu_sum", "cuda_gpu_sum:nvtx-name:base", "cuda_api_gpu_sum", "cuda_gpu_trace", "cuda_gpu_trace:nvtx-name",
    "cuda_kern_exec_sum", "cuda_kern_exec_sum:nvtx-name", "cuda_kern_exec_trace", "cuda_kern_exec_trace:base", "um_sum",
    "um_sum:rows=-1", "um_total_sum", "um_cpu_page_faults_sum",
)  # fmt: skip
FILES = (
    "a100x4_ddp_baseline_nsys2022.4", "a100x4_ddp_bucketcap_nsys2022.4", "cuda_graphs_nsys2024.6", "dlprof_nsys2022.1",
    "fuser_nvtx_nsys2025.1", "gpu_metrics_nsys2022.4", "h100x2_nccl_sendrecv_nsys2026.2", "h100x2_torchrun_nsys2026.2",
    "llm_nvtx_nsys2025", "mpi_p2p_collectives_nsys2023.1", "no_cuda_nsys2023.3", "no_metadata_table_2020",
    "osrt_nsys2024.6", "saxpy_mpi_nsys2022.2", "schema3.1_nsys2023.1", "v100x4_mpi_openacc_one_report_nsys2022.3",
)  # fmt: skip
LONG = ("a100x4_ddp_baseline_nsys2022.4", "a100x4_ddp_bucketcap_nsys2022.4")
PART = 0.2
"""The share of the kernels of a long report up to which it is compared: nsys takes a minute for a whole one."""
NO_CUDA = ("mpi_p2p_collectives_nsys2023.1", "no_cuda_nsys2023.3")
JSON_FILES = ("a100x4_ddp_baseline_nsys2022.4", "saxpy_mpi_nsys2022.2", "v100x4_mpi_openacc_one_report_nsys2022.3")
COPY_WORDS = (
    "Unknown", "Host-to-Device", "Device-to-Host", "Host-to-Array", "Array-to-Host", "Array-to-Array",
    "Array-to-Device", "Device-to-Array", "Device-to-Device", "Host-to-Host", "Peer-to-Peer", "Unified Host-to-Device",
    "Unified Device-to-Host", "Unified Device-to-Device",
)  # fmt: skip
MEMORY_WORDS = ("Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static", "Unknown")


def answers(nsys: Path, export: Path, out: Path, kind: str) -> dict[str, str]:
    """What nsys says for each of SPECS, empty where it refuses."""
    out.mkdir()
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    command = [str(nsys), "stats", "-q", "-r", ",".join(SPECS), "--format", kind, "-o", str(out / "r"), str(export)]
    subprocess.run(command, capture_output=True, check=False, env=environment, timeout=600)
    found = {}
    for spec in SPECS:
        file = out / f"r_{spec.replace(':', '_')}.{kind}"
        found[spec] = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    return found


def nsys_rows(text: str) -> list[list[str]]:
    """The rows of nsys' CSV, which puts quotes around a field with a comma or a quote and does not double the quotes
    inside."""
    fields = re.compile(r'(?:^|,)(?:"(.*?)"(?=,|$)|([^,]*))')
    return [[quoted or plain for quoted, plain in fields.findall(line)] for line in text.splitlines() if line]


def complete(export: Path) -> None:
    """Give an old or cut-down export the tables and columns without which nsys refuses; no fact about the events is
    added."""
    with closing(sqlite3.connect(export)) as database, database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        for name, words in (("ENUM_CUDA_MEMCPY_OPER", COPY_WORDS), ("ENUM_CUDA_MEM_KIND", MEMORY_WORDS)):
            if name not in tables:
                database.execute(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, name TEXT, label TEXT)")
                database.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", [(i, w, w) for i, w in enumerate(words)])
        if "TARGET_INFO_GPU" not in tables:
            database.execute("CREATE TABLE TARGET_INFO_GPU (vmId INTEGER, id INTEGER, name TEXT, cuDevice INTEGER)")
        for kind in ("KERNEL", "MEMCPY", "MEMSET"):
            table = f"CUPTI_ACTIVITY_KIND_{kind}"
            columns = {row[1] for row in database.execute(f"PRAGMA table_info({table})")}
            if columns and "greenContextId" not in columns:
                database.execute(f"ALTER TABLE {table} ADD COLUMN greenContextId INTEGER")


def compare(spec: str, ours: Any, theirs: str) -> None:
    """Assert that our table prints nsys' CSV; rows that tie in nsys' order may come in any order among themselves."""
    mine = list(csv.reader(io.StringIO(to_csv(ours))))
    wanted = nsys_rows(theirs)
    assert mine[0] == wanted[0]
    if mine == wanted:
        return
    assert Counter(map(tuple, mine[1:])) == Counter(map(tuple, wanted[1:]))
    key = order_key(spec, mine[0])
    assert [key(row) for row in mine[1:]] == [key(row) for row in wanted[1:]]


def order_key(spec: str, header: list[str]) -> Any:
    """What nsys orders a report's rows by, where that leaves rows equal; a report without such ties is to be equal as
    it is."""
    name = spec.partition(":")[0]
    if name == "cuda_api_sum":  # then by the ids of strings
        return lambda row: row[header.index("Total Time (ns)")]
    if name in ("cuda_api_trace", "cuda_gpu_trace", "cuda_kern_exec_trace"):  # then by the order of the file
        return lambda row: row[0]
    if name == "cuda_kern_exec_sum":
        return lambda row: row[header.index("TAvg (ns)")]
    if name == "um_cpu_page_faults_sum":  # then by the ids of strings
        return lambda row: row[0]
    return tuple


def differences(run: Any, said: dict[str, str], check: Any) -> tuple[list[str], int]:
    """The reports whose cells differ from nsys', with the first difference; and how many reports nsys gave."""
    found, given = [], 0
    for spec, theirs in said.items():
        if not theirs.strip():
            continue  # nsys refuses: a table is missing
        given += 1
        try:
            check(spec, run.recipe(f"stats:{spec}").to_arrow(), theirs)
        except AssertionError as error:
            found.append(f"{spec}: {error}")
    return found, given


def check_csv(spec: str, table: Any, theirs: str) -> None:
    """Assert that our table prints nsys' CSV."""
    if spec == "um_total_sum" and not table.num_rows:  # an export with empty tables: nsys prints a row of nothing
        assert nsys_rows(theirs)[1] == ["", "", "0", "", "", ""]
    else:
        compare(spec, table, theirs)


def check_json(spec: str, table: Any, theirs: str) -> None:
    """Assert that our rows are nsys' JSON, whose empty cells are empty strings."""
    wanted = json.loads(theirs)
    mine = [{k: "" if v is None else v for k, v in row.items()} for row in table.to_pylist()]
    if spec == "um_total_sum" and not mine:
        assert [v for v in wanted[0].values() if v] == []
        return
    key = order_key(spec, list(table.column_names))
    assert [key([str(v) for v in row.values()]) for row in mine] == [
        key([str(v) for v in row.values()]) for row in wanted
    ]
    assert Counter(json.dumps(row) for row in mine) == Counter(json.dumps(row) for row in wanted)


def shorten(export: Path) -> None:
    """Take away what began after the first PART of the kernels."""
    with closing(sqlite3.connect(export)) as database, database:
        ((count,),) = database.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL")
        last = f"SELECT start FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY start LIMIT 1 OFFSET {int(count * PART)}"
        ((end,),) = database.execute(last)
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            columns = {row[1] for row in database.execute(f"PRAGMA table_info({table})")}
            if table == "NVTX_EVENTS" or (table.startswith("CUPTI_ACTIVITY_KIND") and "start" in columns):
                database.execute(f"DELETE FROM {table} WHERE start > ?", (end,))


def copied(source: Path, folder: Path) -> Path:
    """A copy of a report that nsys may write beside, completed; of a long one its first part, unless all is to be
    tested."""
    if not source.is_file():
        pytest.skip(f"the corpus has no {source.name}")
    export = folder / source.name
    shutil.copyfile(source, export)
    export.chmod(0o644)
    complete(export)
    if export.stem in LONG and not THOROUGH:
        shorten(export)
    return export


@pytest.mark.sampled(4)
@pytest.mark.corpus
@pytest.mark.parametrize("name", FILES)
def test_csv_of_real_reports(name: str, corpus: Path, nsys: Path, tmp_path: Path) -> None:
    export = copied(corpus / "nsys" / f"{name}.sqlite", tmp_path)
    run = alltrace.open(export, cache_dir=tmp_path / "cache")
    different, given = differences(run, answers(nsys, export, tmp_path / "csv", "csv"), check_csv)
    assert different == []
    assert given >= (0 if name in NO_CUDA else 8)


@pytest.mark.sampled(4)
@pytest.mark.corpus
@pytest.mark.parametrize("name", JSON_FILES)
def test_json_of_real_reports(name: str, corpus: Path, nsys: Path, tmp_path: Path) -> None:
    export = copied(corpus / "nsys" / f"{name}.sqlite", tmp_path)
    run = alltrace.open(export, cache_dir=tmp_path / "cache")
    different, given = differences(run, answers(nsys, export, tmp_path / "json", "json"), check_json)
    assert different == []
    assert given >= 8


SCHEMA = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
CREATE TABLE TARGET_INFO_GPU (vmId INTEGER, id INTEGER, name TEXT, cuDevice INTEGER);
CREATE TABLE ThreadNames (nameId INTEGER, priority INTEGER, globalTid INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER,
correlationId INTEGER,
  nameId INTEGER, returnValue INTEGER, callchainId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,
streamId INTEGER,
  correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER, gridX INTEGER, gridY INTEGER,
  gridZ INTEGER,
  blockX INTEGER, blockY INTEGER, blockZ INTEGER, registersPerThread INTEGER, staticSharedMemory INTEGER,
  dynamicSharedMemory INTEGER, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,
streamId INTEGER,
  correlationId INTEGER, globalPid INTEGER, value INTEGER, bytes INTEGER, graphNodeId INTEGER, memKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,
streamId INTEGER,
  correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER, srcKind INTEGER, dstKind INTEGER,
  virtualAddress INTEGER);
CREATE TABLE CUDA_UM_CPU_PAGE_FAULT_EVENTS (start INTEGER, globalPid INTEGER, address INTEGER, originalFaultPc INTEGER,
  CpuInstruction INTEGER, module INTEGER, unresolvedFaultPc INTEGER);
CREATE TABLE CUDA_UM_GPU_PAGE_FAULT_EVENTS (start INTEGER, end INTEGER, globalPid INTEGER, deviceId INTEGER,
address INTEGER,
  numberOfPageFaults INTEGER, faultAccessType INTEGER);
"""
NAMES = (
    "m",
    "B",
    "a<int>",
    "Z",
    "k, l",
    "f",
    "cudaLaunchKernel_v7000",
    "cudaMemcpy_v3020",
    "cudaMemcpy",
    "main+0x10",
    "cuInit_v2",
)


def handmade(path: Path) -> None:
    """An export with ties, halves to round, sizes around 500 bytes, unified memory, and times near each other."""
    rng = random.Random(7)
    process, base = 5 << 24, 0x7F0000000000
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(SCHEMA)
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(NAMES))
        database.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 0, 'GPU A', 0)")
        durations = [
            (0, 6),
            (0, 6),
            (1, 12),
            (2, 4),
            (2, 4),
            (2, 4),
            (3, 3),
            (3, 9),
            (4, 1),
            (4, 1),
            (4, 1),
            (4, 2),
            (5, 0),
            (5, 1),
        ]
        for i, (name, took) in enumerate(durations):
            start, grid = 10_000 + 1000 * i, 1 + i % 3
            launch = start - rng.choice((1, 300, 990))
            database.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL"
                " VALUES (?, ?, 0, 1, 7, ?, ?, ?, ?, ?, 1, 1, 12345, 1, 1, 16, 500, 1500, NULL)",
                (start, start + took, i, process, name, name, grid),
            )
            row = (launch, launch + 250 + i % 2, process + 5, i, 6)
            database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, ?, ?, ?, 0, NULL)", row)
        for i, name in enumerate((7, 8, 8, 10)):
            row = (100 + i, 200 + 2 * i, process + 6, 900 + i, name)
            database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 1, ?, ?, ?, 0, NULL)", row)
        for i, size in enumerate((1, 499, 500, 501, 1500, 2500, 3500, 12_345_500)):
            row = (30_000 + 100 * i, 30_000 + 100 * i + i % 3, process, size)
            database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (?, ?, 0, 1, 7, 0, ?, 0, ?, NULL, 2)", row)
        for i in range(30):
            kind = rng.choice((1, 11, 12, 13))
            start = 40_000 + 100 * i
            address = None if kind == 1 else base + 4096 * rng.randrange(8)
            row = (
                start,
                start + rng.choice((7, 11, 90)),
                i,
                process,
                rng.choice((500, 4096, 2_097_152)),
                kind,
                address,
            )
            database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, 0, 1, 7, ?, ?, ?, ?, 4, 4, ?)", row)
            page = base + 4096 * rng.randrange(14)
            row = (start, process, page, rng.choice((3, 9, 9)))
            database.execute("INSERT INTO CUDA_UM_CPU_PAGE_FAULT_EVENTS VALUES (?, ?, ?, 100, ?, 5, 0)", row)
            row = (start, start + 5, process, base + 4096 * rng.randrange(10, 18), rng.choice((1, 30)))
            database.execute("INSERT INTO CUDA_UM_GPU_PAGE_FAULT_EVENTS VALUES (?, ?, ?, 0, ?, ?, 2)", row)


def test_csv_of_a_handmade_report(nsys: Path, tmp_path: Path) -> None:
    export = tmp_path / "handmade.sqlite"
    handmade(export)
    complete(export)
    run = alltrace.open(export, cache_dir=tmp_path / "cache")
    different, given = differences(run, answers(nsys, export, tmp_path / "csv", "csv"), check_csv)
    assert different == []
    assert given == sum("nvtx-name" not in spec for spec in SPECS)  # the export has no ranges
