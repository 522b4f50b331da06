"""The cells of the heat maps against the real `nsys recipe`, on simulated ranks."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.nsight_recipes import ask_nsight, twin

import alltrace
from alltrace.recipes.execution.ask import ask
from alltrace.synth import write_run

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

BINS = 1200
# the capture lasts from 0 to its last event, or nsys finds no bin for the last events; some calls of MPI, within each
# process
PREPARATION = """
UPDATE ANALYSIS_DETAILS SET duration = stopTime, startTime = 0;
INSERT INTO StringIds VALUES (99990, 'MPI_Allreduce');
CREATE TABLE MPI_COLLECTIVES_EVENTS (start INTEGER, end INTEGER, globalTid INTEGER, textId INTEGER);
INSERT INTO MPI_COLLECTIVES_EVENTS
  SELECT start + 1000000, end + 300000, globalTid, 99990 FROM NVTX_EVENTS WHERE eventType = 59 AND end > start + 900000;
"""
# samples of a GPU and of a network adapter, every 100 us, as an older and a newer report hold them
SAMPLES = """
CREATE TABLE GENERIC_EVENTS (rawTimestamp INTEGER, timestamp INTEGER, typeId INTEGER, data TEXT);
CREATE TABLE GPU_METRICS (timestamp INTEGER, typeId INTEGER, metricId INTEGER, value INTEGER);
CREATE TABLE TARGET_INFO_GPU_METRICS (typeId INTEGER, sourceId INTEGER, typeName TEXT, metricId INTEGER,
metricName TEXT);
CREATE TABLE NET_NIC_METRIC (
  start INTEGER, end INTEGER, globalId INTEGER, metricsListId INTEGER, metricsIdx INTEGER, value INTEGER);
CREATE TABLE NIC_ID_MAP (nicId INTEGER, globalId INTEGER);
CREATE TABLE TARGET_INFO_NETWORK_METRICS (metricsListId INTEGER, metricsIdx INTEGER, name TEXT, description TEXT,
unit TEXT);
CREATE TABLE TARGET_INFO_NIC_INFO (
  GUID INTEGER, stateName TEXT, nicId INTEGER, name TEXT, deviceId INTEGER, vendorId INTEGER, linkLayer INTEGER);
INSERT INTO NIC_ID_MAP VALUES (0, 77);
INSERT INTO TARGET_INFO_NIC_INFO VALUES (255, 'up', 0, 'mlx5_0', 1, 1, 1);
INSERT INTO TARGET_INFO_NETWORK_METRICS VALUES (1, 0, 'IB: Bytes sent', '', ''), (1, 1, 'IB: Bytes received', '', '');
INSERT INTO TARGET_INFO_NETWORK_METRICS VALUES (1, 2, 'IB: Send waits', '', '');
"""
GPU_TYPE = (1 << 48) | (1 << 32)
METRICS = ("SM Active", "SM Issue", "Tensor Active")
QUESTIONS = {
    "cuda_gpu_time_util_map": ("cuda_gpu_time_util_map", "--bins", str(BINS)),
    "cumulative": ("cuda_gpu_time_util_map", "--bins", str(BINS), "--cumulative"),
    "mpi_gpu_time_util_map": ("mpi_gpu_time_util_map", "--bins", str(BINS)),
    "nccl_gpu_time_util_map": ("nccl_gpu_time_util_map", "--bins", str(BINS)),
    "gpu_metric_util_map": ("gpu_metric_util_map", "--bins", str(BINS)),
    "nic_metric_map": ("nic_metric_map", "--bins", str(BINS)),
}
VALUES = ("Kernel", "MPI", "Overlap", "All", "NCCL", "Compute")


def sample(database: sqlite3.Connection, end: int) -> int:
    """Add samples up to the end of the capture; returns the time of the first."""
    (first,) = database.execute("SELECT min(start) FROM CUPTI_ACTIVITY_KIND_RUNTIME").fetchone()
    database.executemany(
        "INSERT INTO TARGET_INFO_GPU_METRICS VALUES (?, ?, '', ?, ?)",
        [(GPU_TYPE, GPU_TYPE, n, m) for n, m in enumerate(METRICS)],
    )
    for i, time in enumerate(range(first, end - 200_000, 100_000)):
        values = dict(zip(METRICS, ((i * 7) % 101, (i * 3) % 101, (i * i) % 101), strict=True))
        texts = json.dumps({m: str(v) for m, v in values.items()})
        database.execute("INSERT INTO GENERIC_EVENTS VALUES (?, ?, ?, ?)", (time, time, GPU_TYPE, texts))
        rows = [(time, GPU_TYPE, n, v) for n, v in enumerate(values.values())]
        database.executemany("INSERT INTO GPU_METRICS VALUES (?, ?, ?, ?)", rows)
        traffic = [(time, time + 100_000, n, v) for n, v in enumerate((1_000_000 + i, 50_000_000 + 7 * i, i % 5))]
        database.executemany("INSERT INTO NET_NIC_METRIC VALUES (?, ?, 77, 1, ?, ?)", traffic)
    return int(first)


@pytest.fixture(scope="module")
def simulated(nsys: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A simulated rank: our run, the end of its capture, and what nsys answers."""
    folder = tmp_path_factory.mktemp("heat maps")
    write_run("healthy", folder / "reports", ranks=2, hosts=1, steps=3, schema="3.7.2", ideal=True)
    report = min((folder / "reports").glob("*.sqlite"))
    with closing(sqlite3.connect(report)) as database, database:
        database.executescript(PREPARATION)
        (end,) = database.execute("SELECT duration FROM ANALYSIS_DETAILS").fetchone()
        database.executescript(SAMPLES)
        first = sample(database, end)
    twin(report, folder / "twins")
    run = alltrace.open(report, cache_dir=folder / "cache")
    return run, first, end, ask_nsight(nsys, folder / "twins", folder / "answers", QUESTIONS)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("question", [q for q in QUESTIONS if "metric" not in q])
def test_every_whole_bin_of_a_simulated_rank(question: str, simulated: Any) -> None:
    run, _, end, theirs = simulated
    recipe = QUESTIONS[question][0]
    answer = ask(
        run, recipe, {"bins": BINS, "start": 0, "end": end} | ({"cumulative": True} if question == "cumulative" else {})
    )
    wanted = {(r["Duration"], r["PID"]): r for r in theirs[question]["analysis"].to_pylist()}
    rows = answer.table.to_pylist()
    assert {r["File"] for r in rows} == {r["File"] for r in wanted.values()}
    assert {r["Duration"] for r in rows} <= {start for start, _ in wanted}
    first, last = run.ranks[0].start_ns, run.ranks[0].end_ns
    length = rows[1]["Duration"] - rows[0]["Duration"]
    titles = [t for t in VALUES if t in answer.table.column_names and t in theirs[question]["analysis"].column_names]
    compared = 0
    for row in rows:
        start = row["Duration"]
        if first <= start and start + length <= last:
            other = wanted[start, row["PID"]]
            for title in titles:
                assert row[title] == pytest.approx(other[title], abs=0.1001), (title, row, other)
                compared += 1
        elif start + length <= first or start >= last:
            assert all(row[title] is None for title in titles)
    assert compared >= 60 * len(titles)


def whole_bins(
    sampled: int, end: int, rows: list[dict[str, Any]], theirs: Any
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Our rows and theirs of the bins that hold samples all along."""
    wanted = {r["Duration"]: r for r in theirs.to_pylist()}
    length = rows[1]["Duration"] - rows[0]["Duration"]
    return [(r, wanted[r["Duration"]]) for r in rows if sampled <= r["Duration"] <= end - length - 400_000]


def test_samples_of_a_gpu(simulated: Any) -> None:
    run, sampled, end, theirs = simulated
    rows = ask(run, "gpu_metric_util_map", {"bins": BINS, "start": 0, "end": end}).table.to_pylist()
    pairs = whole_bins(sampled, end, rows, theirs["gpu_metric_util_map"]["analysis"])
    assert len(pairs) >= 60
    for row, other in pairs:
        assert {k: row[k] for k in (*METRICS, "GPU", "File")} == {k: other[k] for k in (*METRICS, "GPU", "File")}


def test_network_traffic_is_theirs_once_sent_and_received_change_places(simulated: Any) -> None:
    run, sampled, end, theirs = simulated
    rows = ask(run, "network_traffic_map", {"bins": BINS, "start": 0, "end": end}).table.to_pylist()
    pairs = whole_bins(sampled, end, rows, theirs["nic_metric_map"]["analysis"])
    assert len(pairs) >= 60
    for row, other in pairs:
        # theirs are per ms, times 100
        assert row["Bytes Sent"] == pytest.approx(other["Bytes Recv"] / 100 * 1000 / 2**20, abs=0.06)
        assert row["Bytes Recv"] == pytest.approx(other["Bytes Sent"] / 100 * 1000 / 2**20, abs=0.06)
        assert row["Congestion"] == pytest.approx(other["Congestion"] / 100 * 1000, abs=0.6)
