import os
import sqlite3
import subprocess
import sys
from contextlib import closing

import numpy as np
import pytest

from alltrace.synth import SCENARIOS, write_run
from alltrace.trace.errors import UsageError


def test_equal_seeds_tiny_reports_and_counted_rows(tmp_path):
    for folder in ("one", "two"):
        write_run("tiny", tmp_path / folder, secrets=True, unordered=True, gpu_metrics_hz=500, ideal=True)
    for path in sorted((tmp_path / "one").iterdir()):
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
    other = write_run("tiny", tmp_path / "three", seed=9, ideal=True)
    assert other.reports[0].read_bytes() != (tmp_path / "one" / "tiny_rank0.sqlite").read_bytes()
    truth = write_run("tiny", tmp_path / "2", ideal=True)
    assert max(path.stat().st_size for path in truth.reports) < 100_000
    assert sorted(path.name for path in (tmp_path / "2").iterdir()) == [
        "tiny_rank0.sqlite",
        "tiny_rank1.sqlite",
        "truth.json",
        "truth_collectives.parquet",
    ]
    truth = write_run("tiny", tmp_path / "3", rank_source="mpi", gpu_metrics_hz=500, ideal=True)
    for rank, path in zip(truth.ranks, truth.reports, strict=True):
        with closing(sqlite3.connect(path)) as connection, connection:
            tables = [n for (n,) in connection.execute("SELECT name FROM sqlite_master WHERE name NOT LIKE 'ENUM%'")]
            found = {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables}
        connection.close()
        assert found == rank["rows"]
        assert found["CUPTI_ACTIVITY_KIND_KERNEL"] == 2 * (26 + 2)
        assert found["MPI_COLLECTIVES_EVENTS"] == 2


def test_planted_clocks_come_back_from_the_reports(tmp_path):
    """Ends of the same collective, by each report's own UTC, differ by what the truth says of the clocks."""
    truth = write_run("healthy", tmp_path, steps=2, ranks=4, ideal=True)
    ends = []
    for rank, path in zip(truth.ranks, truth.reports, strict=True):
        with closing(sqlite3.connect(path)) as connection, connection:
            (utc,) = connection.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()
            rows = connection.execute("SELECT end FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE streamId = 13 ORDER BY start")
            stamps = np.array([end for (end,) in rows])
        connection.close()
        assert utc == rank["utc_stamp_ns"]
        assert stamps.min() > 0
        ends.append(utc + stamps - truth.job_start_utc_ns)
    drift = {host["host"]: host["drift_ppm"] * 1e-6 for host in truth.hosts}
    true_ends = np.array(truth.collectives()["end_ns"]).reshape(-1, 4).T
    for rank, shown, true in zip(truth.ranks, ends, true_ends, strict=True):
        planted = rank["report_offset_ns"] + true * drift[rank["host"]]
        assert np.abs(shown - true - planted).max() <= 1
    assert abs(truth.ranks[2]["report_offset_ns"]) > 10_000_000
    assert np.ptp([rank["report_offset_ns"] for rank in truth.ranks[:2]]) > 100_000


@pytest.mark.parametrize(
    ("scenario", "options", "words"),
    [
        ("stragler", {}, "unknown scenario 'stragler'; did you mean straggler?"),
        ("tiny", {"format": "json"}, "unknown format 'json'"),
        ("tiny", {"ranks": 3}, "3 ranks cannot be spread"),
    ],
)
def test_what_cannot_be_written_is_named_and_leaves_nothing(tmp_path, scenario, options, words):
    with pytest.raises(UsageError) as error:
        write_run(scenario, tmp_path / "out", **options, ideal=True)
    assert words in str(error.value)
    assert not (tmp_path / "out").exists()


def test_a_file_is_not_a_folder_and_a_smaller_run_replaces_a_larger_one(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="is a file, and the run needs a folder"):
        write_run("tiny", tmp_path / "file", ideal=True)
    assert (tmp_path / "file").read_text() == "mine"
    write_run("tiny", tmp_path / "2", ranks=4, ideal=True)
    write_run("tiny", tmp_path / "2" / "others", ideal=True)
    (tmp_path / "2" / "mine_rank9.sqlite").write_text("mine")
    write_run("tiny", tmp_path / "2", format="parquetdir", ideal=True)
    assert sorted(path.name for path in (tmp_path / "2").iterdir()) == [
        "mine_rank9.sqlite",
        "others",
        "tiny_rank0_pqtdir",
        "tiny_rank1_pqtdir",
        "truth.json",
        "truth_collectives.parquet",
    ]
    assert len(write_run("tiny", tmp_path / "2", ideal=True).reports) == 2
    assert not (tmp_path / "2" / "tiny_rank1_pqtdir").exists()


def test_logs_of_a_former_run_do_not_lie_among_those_of_the_next(tmp_path):
    write_run("tiny", tmp_path, logs=True, ideal=True)
    (tmp_path / "logs" / "mine.log").write_text("kept")
    truth = write_run("tiny", tmp_path, logs=True, seed=2, ideal=True)
    logs = {f"nccl.{rank['host']}.{rank['pid']}.log" for rank in truth.ranks}
    assert {path.name for path in (tmp_path / "logs").iterdir()} == {*logs, "train.log", "mine.log"}
    write_run("tiny", tmp_path, ideal=True)
    assert [path.name for path in (tmp_path / "logs").iterdir()] == ["mine.log"]


@pytest.mark.parametrize(
    "name", ["../keep_rank0.sqlite", "notes.txt", "others/keep_rank0.sqlite", "/keep_rank0.sqlite"]
)
def test_a_strangers_truth_removes_nothing_else(tmp_path, name):
    folder = tmp_path / "run"
    truth = write_run("tiny", folder, ideal=True)
    (folder / "others").mkdir()
    for path in (tmp_path / "keep_rank0.sqlite", folder / "notes.txt", folder / "others" / "keep_rank0.sqlite"):
        path.write_text("mine")
    truth.ranks[0]["report"] = name
    truth.write(folder)
    write_run("tiny", folder, ideal=True)
    for path in (tmp_path / "keep_rank0.sqlite", folder / "notes.txt", folder / "others" / "keep_rank0.sqlite"):
        assert path.read_text() == "mine"


@pytest.mark.parametrize("text", ["[1, 2]", "[" * 200_000])
def test_a_truth_of_something_else_is_replaced(tmp_path, text):
    (tmp_path / "truth.json").write_text(text)
    assert write_run("tiny", tmp_path, ideal=True).scenario == "tiny"


def test_a_folder_that_cannot_be_made_and_a_scenario_of_ones_own(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match=r"cannot be written to .*file/below"):
        write_run("tiny", tmp_path / "file" / "below", ideal=True)
    truth = write_run(SCENARIOS["tiny"].override(steps=1, ideal=True), tmp_path / "2", steps=3, ideal=True)
    assert len(truth.steps_ns[0]) == 3
    step_ends = [step[1] for step in truth.steps_ns[0]]
    assert step_ends == sorted(step_ends)


def test_importing_the_package_loads_no_numpy():
    code = "import sys, alltrace.synth; print('numpy' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("values", [{"dropped_share": 1}, {"nvtx": False, "faults": ["cut-short:ranks=0,1:share=0"]}])
def test_a_report_without_events_has_no_samples_of_metrics(tmp_path, values):
    truth = write_run("tiny", tmp_path, gpu_metrics_hz=10_000, **values, ideal=True)
    for rank, path in zip(truth.ranks, truth.reports, strict=True):
        assert path.is_file()
        assert "GPU_METRICS" not in rank["rows"]


def test_what_stands_in_a_reports_place_is_named_and_leaves_nothing_beside_it(tmp_path):
    (tmp_path / "tiny_rank0.sqlite").mkdir()
    (tmp_path / "tiny_rank0_pqtdir").write_text("mine")
    kineto = write_run("tiny", tmp_path / "other", "kineto", ideal=True).ranks[0]["report"]
    (tmp_path / kineto).mkdir()
    for form in ("sqlite", "parquetdir", "kineto"):
        with pytest.raises(UsageError, match="the run cannot be written to"):
            write_run("tiny", tmp_path, form, ideal=True)
    assert {p.name for p in tmp_path.iterdir()} == {"tiny_rank0.sqlite", "tiny_rank0_pqtdir", kineto, "other"}
