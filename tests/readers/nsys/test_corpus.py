"""Every real export opens, returns every row, and states its rank."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from alltrace.readers.nsys.mapping import COPY_KINDS, sources_of
from alltrace.readers.registry import open_report
from alltrace.trace.errors import InputError
from alltrace.trace.schema import EVENT_TABLES

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.corpus

NAMES = """
a100x4_ddp_baseline_nsys2022.4 a100x4_ddp_bucketcap_nsys2022.4 cuda_graphs_nsys2024.6 dlprof_nsys2022.1
fuser_nvtx_nsys2025.1 gpu_metrics_nsys2022.4 h100x2_nccl_sendrecv_nsys2026.2 h100x2_torchrun_nsys2026.2
llm_nvtx_nsys2025 mpi_p2p_collectives_nsys2023.1 no_cuda_nsys2023.3 no_metadata_table_2020 osrt_nsys2024.6
saxpy_mpi_nsys2022.2 schema3.1_nsys2023.1 v100x4_mpi_openacc_one_report_nsys2022.3
""".split()


def path_of(corpus: Path, name: str) -> Path:
    path = corpus / "nsys" / f"{name}.sqlite"
    if not path.is_file():
        pytest.skip(f"{path.name} is not there")
    return path


def ask(path: Path, query: str):
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", NAMES)
def test_every_row_arrives(corpus, read, name):
    path = path_of(corpus, name)
    got = read(path)
    there = {t for (t,) in ask(path, "select name from sqlite_master where type = 'table'")}
    expected = {}
    for table in EVENT_TABLES:
        expected[table] = sum(ask(path, f"select count(*) from {raw}")[0][0] for raw, _ in sources_of(table, there))
    if "NVTX_EVENTS" in there:
        expected["ranges"] = ask(path, "select count(*) from NVTX_EVENTS where eventType in (59, 60, 70, 71)")[0][0]
        expected["marks"] = ask(path, "select count(*) from NVTX_EVENTS where eventType = 34")[0][0]
    if "OSRT_API" in there:  # other classes tell when recording began and ceased
        expected["osrt"] = ask(path, "select count(*) from OSRT_API where eventClass = 27")[0][0]
    for table, raw in (("gpu_metrics", "GPU_METRICS"), ("samples", "COMPOSITE_EVENTS")):
        if raw in there:
            expected[table] = ask(path, f"select count(*) from {raw}")[0][0]
    assert {t: got.tables[t].num_rows for t in got.tables} == {t: n for t, n in expected.items() if n}
    assert sum(expected.values()) * 0.8 <= got.estimate
    rows = {
        k: got.dictionaries[f"{k}es" if k == "process" else f"{k}s"].num_rows for k in ("process", "thread", "device")
    }
    for table in got.tables.values():
        for column, count in rows.items():
            if column in table.column_names:
                assert all(v is None or 0 <= v < count for v in table.column(column).unique().to_pylist())


@pytest.mark.sampled(16)
@pytest.mark.parametrize("name", NAMES)
def test_names_and_times_are_those_of_the_export(corpus, read, name):
    path = path_of(corpus, name)
    got = read(path, ("kernels", "copies", "api", "ranges", "osrt"))
    queries = {
        "kernels": (
            "select start, end, value from CUPTI_ACTIVITY_KIND_KERNEL k left join StringIds s on s.id = k.demangledName"
        ),
        "api": "select start, end, value from CUPTI_ACTIVITY_KIND_RUNTIME k left join StringIds s on s.id = k.nameId",
        "osrt": (
            "select start, end, value from OSRT_API k left join StringIds s on s.id = k.nameId where eventClass = 27"
        ),
        "ranges": (
            "select start, end, coalesce(text, value) from NVTX_EVENTS k left join StringIds s on s.id = k.textId "
            "where eventType in (59, 60, 70, 71)"
        ),
    }
    for table, query in queries.items():
        if table in got.tables:
            mine = sorted((r["start"], r["end"] or -1, r["name"] or "") for r in got.rows(table))
            assert mine == sorted((s, e or -1, n or "") for s, e, n in ask(path, query)), table
    if "copies" in got.tables:
        there = ask(path, "select 1 from sqlite_master where name = 'CUPTI_ACTIVITY_KIND_MEMCPY'")
        labels = dict(
            ask(path, "select copyKind, sum(bytes) from CUPTI_ACTIVITY_KIND_MEMCPY group by 1") if there else []
        )
        mine = {}
        for row in got.rows("copies"):
            mine[row["kind"]] = mine.get(row["kind"], 0) + row["bytes"]
        mine.pop("memset", None)
        assert mine == {COPY_KINDS[k]: v for k, v in labels.items()}


IDENTITIES = {
    # name: (host, world size, [(pid, MPI rank, GPU, lowest ordinal)])
    "a100x4_ddp_baseline_nsys2022.4": ("nid001164", 4, [(79184, None, True, 0)]),
    "h100x2_nccl_sendrecv_nsys2026.2": ("modal", None, [(144, None, True, 0), (145, None, True, 1)]),
    "h100x2_torchrun_nsys2026.2": ("modal", None, [(111, None, True, 0), (112, None, True, 1)]),
    "mpi_p2p_collectives_nsys2023.1": ("lucas-ms7c35", 2, [(771888, 0, False, None), (771889, 1, False, None)]),
    "no_metadata_table_2020": (None, None, [(137893, None, True, 0)]),
    "saxpy_mpi_nsys2022.2": ("nid001608", None, [(1230493, 0, True, 0)]),
    "v100x4_mpi_openacc_one_report_nsys2022.3": (
        "p9login1",
        4,
        [(60666, 0, True, 0), (60668, 1, True, 1), (60670, 2, True, 2), (60672, 3, True, 3)],
    ),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_who_it_is_about(corpus, name):
    reader = open_report(path_of(corpus, name))
    report = reader.report
    reader.close()
    host, size, processes = IDENTITIES[name]
    assert (report.host, report.world_size) == (host, size)
    assert [(p.pid, p.mpi_rank, p.gpu, p.device_ordinal) for p in report.processes] == processes


def test_environment_of_a_ddp_rank(corpus):
    reader = open_report(path_of(corpus, "a100x4_ddp_baseline_nsys2022.4"))
    report = reader.report
    reader.close()
    assert report.environment["RANK"] == "0"
    assert report.environment["SLURM_PROCID"] == "0"
    assert not {"MASTER_PORT", "HOSTNAME", "NCCL_SOCKET_IFNAME"} & set(report.environment)
    assert (report.start_ns, report.stop_ns) == (0, 1_837_074_135)


def test_domains_created_long_before_the_capture_and_samples_before_its_start(corpus, read):
    got = read(path_of(corpus, "schema3.1_nsys2023.1"), ("ranges",))
    assert set(got.column("ranges", "domain")) == {"TensorRT"}
    metrics = read(path_of(corpus, "gpu_metrics_nsys2022.4"), ("gpu_metrics",))
    assert min(metrics.column("gpu_metrics", "time")) == -42_125
    assert set(metrics.column("devices", "name")) == {"NVIDIA GeForce RTX 3090"}


def test_malformed_files(corpus):
    for name in ("zero_bytes", "cp1251_metadata"):
        path = corpus / "malformed" / f"{name}.sqlite"
        if not path.is_file():
            continue
        if name == "zero_bytes":
            with pytest.raises(InputError, match=r"zero_bytes\.sqlite"):
                open_report(path)
        else:
            reader = open_report(path)
            assert sum(b.num_rows for _, b in reader.stream(EVENT_TABLES)) * 0.8 <= reader.rows_estimate(EVENT_TABLES)
            reader.close()
