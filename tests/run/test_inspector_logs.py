"""NCCL Inspector's files joined with simulated runs with known truth, and questions that use only these files."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.inspector_writing import write_job

from alltrace.align.store import aligned
from alltrace.api import open_run
from alltrace.cli.main import main
from alltrace.recipes.execution.ask import ask
from alltrace.recipes.questions.sql import query
from alltrace.run.importer import import_reports
from alltrace.run.store import Run
from alltrace.synth import write_run
from alltrace.synth.scenarios import scenario_named
from alltrace.trace.errors import InputError


def job(folder, name="straggler", *, changes=None, **form):
    """A simulated run imported with its Inspector files; the true collectives."""
    changes = {"ranks": 4, "hosts": 2, "steps": 3, **(changes or {})}
    write_run(name, folder / "reports", **changes, ideal=True)
    files = write_job(folder / "inspector", scenario_named(name).override(**changes, ideal=True), **form)
    import_reports([str(folder / "reports")], folder / "run", jobs=1, inspector_logs=files)
    return open_run(str(folder / "run")), pq.read_table(folder / "reports" / "truth_collectives.parquet")


@pytest.fixture(scope="module")
def straggling(tmp_path_factory):
    return job(tmp_path_factory.mktemp("straggling"), changes={"nvtx": False})


def test_reports_of_kernels_alone_get_sizes_and_communicators(straggling):
    run, truth = straggling
    alignment = aligned(Run(run.path))
    for record in run.ranks:
        own = alignment.collectives(record.rank)
        own = own.filter(pc.is_valid(own["start"])).sort_by("start")
        mine = truth.filter(pc.and_(pc.equal(truth["rank"], record.rank), truth["recorded"])).sort_by("arrival_ns")
        assert own.num_rows == mine.num_rows
        for found, size in zip(own["bytes"].to_pylist(), mine["bytes"].to_pylist(), strict=True):
            assert found in (size, None)
            assert (found is None) <= (size < 8192)
    assert all(g.name.startswith("0x") and g.found_by == "logs" for g in alignment.groups if len(g.ranks) > 1)
    assert [(m.found_by, m.reason) for m in alignment.run.manifest.log_matches] == [("process", None)] * 4


def test_the_record_names_the_straggler_with_the_waits_of_the_truth(straggling):
    run, truth = straggling
    by_name = {r["rank"]: r for r in ask(run, "stragglers", {"source": "inspector"}, jobs=1).table.to_pylist()}
    waits = dict.fromkeys(range(4), 0)
    caused = dict.fromkeys(range(4), 0)
    whole = [row for row in truth.to_pylist() if row["bytes"] >= 8192]
    instances = {}
    for row in whole:
        instances.setdefault((row["group"], row["sequence"]), []).append(row)
    for its in instances.values():
        last = max(its, key=lambda r: r["arrival_ns"])
        for row in its:
            waits[row["rank"]] += last["arrival_ns"] - row["arrival_ns"]
            caused[last["rank"]] += last["arrival_ns"] - row["arrival_ns"]
    for rank, row in by_name.items():
        assert row["waited_ns"] == pytest.approx(waits[rank], abs=2_000 * len(instances))
        assert row["caused_ns"] == pytest.approx(caused[rank], rel=0.02, abs=4_000 * len(instances))
        assert row["operations"] == len(instances)
    (row,) = ask(run, "collectives", {"source": "inspector"}, jobs=1).table.to_pylist()
    assert row["wait_ns"] - row["wait_certain_ns"] < 3_000 * 4 * len(instances)
    assert row["wait_certain_ns"] > 0.9 * row["wait_ns"]
    assert max(by_name.values(), key=lambda r: r["caused_ns"])["rank"] == max(caused, key=caused.get)


def test_both_sources_tell_of_the_same_collectives(straggling):
    run, _truth = straggling
    told = {
        (r["op"], r["bytes"]): r for r in ask(run, "collectives", {"source": "inspector"}, jobs=1).table.to_pylist()
    }
    traced = {(r["op"], r["bytes"]): r for r in ask(run, "collectives", jobs=1).table.to_pylist()}
    assert told
    for key, row in told.items():
        other = traced[key]
        assert (row["group_size"], row["ranks"], row["instances"], row["incomplete"]) == (
            4,
            "0-3",
            other["instances"],
            0,
        )
        assert row["transfer_median_ns"] == pytest.approx(other["transfer_median_ns"], abs=60_000)
        assert row["communicator"] == other["communicator"]


def test_bandwidth_is_held_against_nccl_tests(straggling, tmp_path):
    run, _truth = straggling
    plain = ask(run, "collectives", {"source": "inspector"}, jobs=1).table.to_pylist()[0]
    size, time = plain["bytes"], plain["transfer_median_ns"] / 2e3
    (tmp_path / "tests.txt").write_text(
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1"
        " graph: 0\n# Collective test starting: all_reduce_perf\n# Using devices\n"
        + "".join(f"#  Rank  {r} Group  0 Pid  {9 + r} on  n0 device  {r} [0x1a] NVIDIA H100\n" for r in range(4))
        + "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw  "
        f" busbw #wrong\n  {size}  {size // 4}  float  sum  -1  {time:.2f}  1.0  1.5  0  {time:.2f}  1.0  1.5  0\n"
    )
    row = ask(
        run, "collectives", {"source": "inspector", "nccl_tests": str(tmp_path / "tests.txt")}, jobs=1
    ).table.to_pylist()[0]
    assert row["expected_percent"] == pytest.approx(50, abs=0.5)
    assert row["expected_busbw_gb_per_s"] == pytest.approx(2 * row["busbw_gb_per_s"], rel=0.01)
    assert 0 <= row["zero_skew_percent"] <= 100


def test_sql_has_the_operations_on_the_runs_clock(straggling):
    run, _truth = straggling
    (row,) = query(
        run, 'SELECT count(*) AS n, min(rank) AS low, max(rank) AS high, min("end" - start) AS least FROM inspector'
    ).table.to_pylist()
    assert (row["low"], row["high"]) == (0, 3)
    assert row["least"] > 0
    kernels = query(run, 'SELECT min(start) AS a, max("end") AS b FROM kernels').table.to_pylist()[0]
    times = query(run, 'SELECT min(start) AS a, max("end") AS b FROM inspector').table.to_pylist()[0]
    assert kernels["a"] < times["a"] < times["b"] <= kernels["b"] + 1_000_000


def test_files_without_times_answer_but_are_not_joined(tmp_path):
    run, _truth = job(tmp_path, changes={"nvtx": False}, verbose=False)
    assert not aligned(Run(run.path)).run.manifest.log_matches
    assert ask(run, "stragglers", {"source": "inspector"}, jobs=1).table.num_rows == 4
    assert query(run, "SELECT count(start) AS n FROM inspector").table.to_pylist() == [{"n": 0}]


def test_lost_records_make_instances_incomplete_and_nothing_else(tmp_path):
    run, _truth = job(tmp_path, drop=lambda rank, number: rank == 2 and number % 3 == 0)
    rows = ask(run, "collectives", {"source": "inspector"}, jobs=1).table.to_pylist()
    whole = ask(run, "collectives", jobs=1).table.to_pylist()
    assert sum(r["instances"] for r in rows) == sum(r["instances"] for r in whole if r["bytes"] >= 8192)
    assert 0 < sum(r["incomplete"] for r in rows) < sum(r["instances"] for r in rows)
    answer = ask(run, "stragglers", {"source": "inspector"}, jobs=1)
    assert any("lack a rank" in n for n in answer.notes)


@pytest.mark.slow
def test_messages_of_pipelines_are_joined_with_their_kernels(tmp_path):
    run, _truth = job(tmp_path, "pipeline", changes={"nvtx": False, "steps": 2})
    alignment = aligned(Run(run.path))
    matches = alignment.run.manifest.log_matches
    assert [(m.reason, m.matched) for m in matches] == [(None, m.operations) for m in matches]
    peers = alignment.collectives(0)
    assert pc.count(peers["peer"]).as_py() > 0


def test_files_of_processes_that_the_run_does_not_know_are_matched_by_rank(tmp_path):
    write_run("straggler", tmp_path / "reports", ranks=4, hosts=2, steps=2, ideal=True)
    files = write_job(tmp_path / "files", scenario_named("straggler").override(ranks=4, hosts=2, steps=2, ideal=True))
    for path in map(Path, files):  # as in containers
        path.write_text(path.read_text().replace('"pid": ', '"pid": 9'))
    import_reports([str(tmp_path / "reports")], tmp_path / "run", jobs=1, inspector_logs=files)
    run = open_run(str(tmp_path / "run"))
    rows = ask(run, "stragglers", {"source": "inspector"}, jobs=1).table.to_pylist()
    assert rows[0]["rank"] == ask(run, "stragglers", jobs=1).table.to_pylist()[0]["rank"]
    assert any("matched by rank" in note for note in run.manifest.notes)


def test_files_of_another_job_are_refused(tmp_path):
    write_run("healthy", tmp_path / "reports", ranks=2, hosts=1, steps=2, ideal=True)
    other = write_job(tmp_path / "other", scenario_named("healthy").override(ranks=2, hosts=1, steps=2, ideal=True))
    for path in map(Path, other):
        path.write_text(path.read_text().replace('"pid": ', '"pid": 9').replace('"rank": ', '"rank": 7'))
    with pytest.raises(InputError, match="no process in it is one of the run"):
        import_reports([str(tmp_path / "reports")], tmp_path / "run", jobs=1, inspector_logs=other)


def test_what_the_source_cannot_tell_is_said(tmp_path, straggling, capsys):
    write_run("healthy", tmp_path / "reports", ranks=2, hosts=1, steps=2, ideal=True)
    import_reports([str(tmp_path / "reports")], tmp_path / "run", jobs=1)
    for question in ("collectives", "stragglers"):
        answer = ask(open_run(str(tmp_path / "run")), question, {"source": "inspector"}, jobs=1)
        assert answer.table.num_rows == 0
        assert "--inspector-log" in answer.notes[0]
    assert main(["collectives", str(straggling[0].path), "--source", "inspector", "--instances"]) == 2
    assert "logs inspector --view operations" in capsys.readouterr().err


def test_the_option_is_one_of_import(tmp_path, capsys):
    write_run("healthy", tmp_path / "reports", ranks=2, hosts=1, steps=2, ideal=True)
    files = write_job(tmp_path / "files", scenario_named("healthy").override(ranks=2, hosts=1, steps=2, ideal=True))
    assert main(["import", str(tmp_path / "reports"), "-o", str(tmp_path / "run"), "--inspector-log", *files]) == 0
    assert "100.0 %" in capsys.readouterr().err
    assert (
        main(
            ["import", str(tmp_path / "reports"), "-o", str(tmp_path / "b"), "--inspector-log", str(tmp_path / "none")]
        )
        == 3
    )
    assert "there is no such file" in capsys.readouterr().err
