import csv
import io
import sqlite3
import subprocess
from collections import Counter

import numpy as np
import pyarrow.parquet as pq
import pytest

from alltrace.synth import write_run
from alltrace.synth.nsys_tables import Table
from alltrace.synth.write_nsys import write_parquetdir, write_sqlite

_REPORTS = (
    "cuda_gpu_kern_sum", "cuda_api_sum", "nvtx_sum", "nvtx_gpu_proj_trace", "cuda_gpu_trace", "cuda_kern_exec_sum",
    "cuda_gpu_mem_time_sum", "osrt_sum",
)  # fmt: skip


def _query(path, statement):
    connection = sqlite3.connect(path)
    rows = connection.execute(statement).fetchall()
    connection.close()
    return rows


@pytest.mark.parametrize("version", ["3.7.2", "3.25.0"])
def test_both_forms_hold_the_same(tmp_path, version):
    options = {"schema": version, "gpu_metrics_hz": 2_000, "secrets": True, "rank_source": "mpi"}
    files = write_run("tiny", tmp_path / "files", **options, ideal=True)
    folders = write_run("tiny", tmp_path / "folders", format="parquetdir", **options, ideal=True)
    for file, folder in zip(files.reports, folders.reports, strict=True):
        tables = {name for (name,) in _query(file, "SELECT name FROM sqlite_master WHERE type = 'table'")}
        assert {path.stem for path in folder.iterdir()} == tables - {"META_DATA_CAPTURE"}
        assert folder.name == file.stem + "_pqtdir"
        for path in folder.iterdir():
            table = pq.read_table(path)
            assert _query(file, f"SELECT * FROM {path.stem}") == [tuple(row.values()) for row in table.to_pylist()]


def test_parquet_looks_like_the_exporters(tmp_path):
    truth = write_run("tiny", tmp_path, format="parquetdir", gpu_metrics_hz=50_000, ideal=True)
    file = pq.ParquetFile(truth.reports[0] / "GPU_METRICS.parquet")
    groups = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
    assert set(groups[:-1]) == {2_048}
    assert file.metadata.row_group(0).column(0).compression == "UNCOMPRESSED"
    assert str(file.schema_arrow.field("typeId").type) == "uint64"
    assert not file.schema_arrow.field("typeId").nullable


def test_pages_and_chunks(tmp_path):
    rows = 70_000
    table = Table(rows, {"id": np.arange(rows), "value": [f"it's {i}" for i in range(rows)]})
    fixed = Table(2, {"name": "it's", "value": None})
    write_sqlite({"StringIds": table, "META_DATA_EXPORT": fixed}, tmp_path / "a.sqlite", "3.7.2", 8192)
    assert _query(tmp_path / "a.sqlite", "PRAGMA page_size") == [(8192,)]
    assert _query(tmp_path / "a.sqlite", "SELECT * FROM StringIds WHERE id >= 69999") == [(69_999, "it's 69999")]
    assert _query(tmp_path / "a.sqlite", "SELECT count(*) FROM StringIds") == [(rows,)]
    assert _query(tmp_path / "a.sqlite", "SELECT * FROM META_DATA_EXPORT") == [("it's", None)] * 2


@pytest.mark.parametrize("write", [write_sqlite, write_parquetdir])
def test_a_failed_write_leaves_what_was_there(tmp_path, write):
    target = tmp_path / "report"
    write({"META_DATA_EXPORT": Table(1, {"name": "a", "value": "b"})}, target, "3.7.2")
    with pytest.raises((sqlite3.Error, ValueError, TypeError)):
        write({"META_DATA_EXPORT": Table(2, {"name": ["a", object()], "value": "b"})}, target, "3.7.2")
    assert [path.name for path in tmp_path.iterdir()] == ["report"]
    if target.is_file():
        assert _query(target, "SELECT * FROM META_DATA_EXPORT") == [("a", "b")]
    else:
        assert pq.read_table(target / "META_DATA_EXPORT.parquet").to_pylist() == [{"name": "a", "value": "b"}]


@pytest.mark.oracle
@pytest.mark.parametrize(
    "options",
    [{"schema": "3.7.2"}, {"schema": "3.25.0", "unordered": True}, {"schema": "3.25.0", "visible_devices": True}],
)
def test_the_real_stats_count_what_was_planted(nsys, tmp_path, options):
    truth = write_run("tensor-data", tmp_path, ranks=4, hosts=1, steps=2, layers=4, **options, ideal=True)
    path = truth.reports[1]
    found = {name: _stats(nsys, name, path) for name in _REPORTS}
    rows = truth.ranks[1]["rows"]

    kernels = {row["Name"]: (int(row["Instances"]), int(row["Total Time (ns)"])) for row in found["cuda_gpu_kern_sum"]}
    assert sum(count for count, _ in kernels.values()) == rows["CUPTI_ACTIVITY_KIND_KERNEL"]
    (nccl,) = [value for name, value in kernels.items() if name.startswith("ncclDevKernel_AllReduce")]
    collectives = truth.collectives().to_pylist()
    mine = [one for one in collectives if one["rank"] == 1]
    assert nccl == (len(mine), sum(one["end_ns"] - one["arrival_ns"] for one in mine))
    assert sum(total for name, (_, total) in kernels.items() if "nccl" not in name) == truth.ranks[1]["compute_ns"]

    assert sum(int(row["Num Calls"]) for row in found["cuda_api_sum"]) == rows["CUPTI_ACTIVITY_KIND_RUNTIME"]
    ranges = Counter({row["Range"]: int(row["Instances"]) for row in found["nvtx_sum"]})
    assert ranges.total() == rows["NVTX_EVENTS"] - 1
    assert (ranges["step 0"], ranges["NCCL:ncclAllReduce"], ranges["layer 3"]) == (1, len(mine), 2)

    copies = rows["CUPTI_ACTIVITY_KIND_MEMCPY"] + rows["CUPTI_ACTIVITY_KIND_MEMSET"]
    assert sum(int(row["Count"]) for row in found["cuda_gpu_mem_time_sum"]) == copies
    assert len(found["cuda_gpu_trace"]) == rows["CUPTI_ACTIVITY_KIND_KERNEL"] + copies
    assert sum(int(row["Count"]) for row in found["cuda_kern_exec_sum"]) == rows["CUPTI_ACTIVITY_KIND_KERNEL"]
    assert sum(int(row["Num Calls"]) for row in found["osrt_sum"]) == rows["OSRT_API"]

    projected = {(row["Name"], int(row["Orig Start (ns)"])): row for row in found["nvtx_gpu_proj_trace"]}
    reduces = [row for (name, _), row in projected.items() if name == "NCCL:ncclAllReduce"]
    assert {int(row["NumGPUOps"]) for row in reduces} == {1}
    assert sum(int(row["Projected Duration (ns)"]) for row in reduces) == nccl[1]


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("scenario", "options"),
    [
        ("pipeline", {"ranks": 4, "faults": ("allocation:ranks=1",)}),
        ("experts", {"ranks": 4, "expert_parallel": 4, "grouped_all_to_all": True}),
        ("sharded", {"ranks": 4, "schema": "3.7.2", "faults": ("pageable-copy", "sync")}),
        ("healthy", {"ranks": 4, "faults": ("dropped-events:ranks=1", "low-bandwidth:ranks=1")}),
    ],
)
def test_the_real_stats_count_what_was_planted_in_every_layout(nsys, tmp_path, scenario, options):
    truth = write_run(scenario, tmp_path, hosts=1, steps=2, layers=4, buckets=1, **options, ideal=True)
    path, rows = truth.reports[1], truth.ranks[1]["rows"]
    kernels = {row["Name"]: int(row["Instances"]) for row in _stats(nsys, "cuda_gpu_kern_sum", path)}
    assert sum(kernels.values()) == rows["CUPTI_ACTIVITY_KIND_KERNEL"]
    mine = [one for one in truth.collectives().to_pylist() if one["rank"] == 1 and one["recorded"]]
    assert sum(count for name, count in kernels.items() if name.startswith("nccl")) == len(mine)
    calls = {row["Name"]: int(row["Num Calls"]) for row in _stats(nsys, "cuda_api_sum", path)}
    assert sum(calls.values()) == rows["CUPTI_ACTIVITY_KIND_RUNTIME"]
    ranges = Counter({row["Range"]: int(row["Instances"]) for row in _stats(nsys, "nvtx_sum", path)})
    assert ranges.total() == rows["NVTX_EVENTS"] - 1
    copies = rows["CUPTI_ACTIVITY_KIND_MEMCPY"] + rows["CUPTI_ACTIVITY_KIND_MEMSET"]
    assert sum(int(row["Count"]) for row in _stats(nsys, "cuda_gpu_mem_time_sum", path)) == copies
    # one of four: the calls that each layout is about
    expected = {
        "pipeline": ("NCCL:ncclSend", 2 * 8 * 2),
        "experts": ("NCCL:ncclRecv", 2 * 4 * 16),
        "sharded": ("NCCL:ncclAllGather", 2 * 8),
        "healthy": ("NCCL:ncclAllReduce", 2),
    }[scenario]
    assert ranges[expected[0]] == expected[1]


def _stats(nsys, name, path):
    command = [nsys, "stats", "-q", "-r", name, "--format", "csv", path]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    assert len(lines) > 1, (name, done.stdout, done.stderr)
    return list(csv.DictReader(io.StringIO("\n".join(lines))))
