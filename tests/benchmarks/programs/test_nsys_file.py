"""What the writers write is what alltrace imports: ranks, hosts, events, clocks."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

import alltrace
from alltrace.run.importer import import_reports
from benchmarks.programs.draw import plant
from benchmarks.programs.machine import execute
from benchmarks.programs.model import Clock
from benchmarks.programs.nsys_file import write_reports
from benchmarks.programs.training import Lowered


def written(program, folder):
    lowered = Lowered(program)
    timeline = execute(lowered.code, lowered.members, record=True)
    return timeline, write_reports(program, lowered, timeline, folder)


def query(file, statement):
    with closing(sqlite3.connect(file)) as database:
        return database.execute(statement).fetchall()


WORK = """
    SELECT s.value, k.gridX, k.blockX, count(*), sum(k.end - k.start)
    FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.demangledName
    WHERE s.value NOT LIKE 'nccl%' GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
"""


def whole(program):
    """The program, captured from the start on all ranks, and launched kernel by kernel."""
    return replace(program, view=replace(program.view, late=(), graphs="none"))


def test_a_straggler_does_the_same_work_as_others_and_takes_longer(tmp_path):
    program = whole(plant(10, "straggler"))
    slow = program.causes[0].ranks[0]
    work = [query(file, WORK) for file in written(program, tmp_path)[1]]
    other = (slow + 1) % program.grid.ranks
    assert [row[:4] for row in work[slow]] == [row[:4] for row in work[other]]
    ratio = sum(row[4] for row in work[slow]) / sum(row[4] for row in work[other])
    assert ratio == pytest.approx(program.causes[0].amount, rel=0.05)


@pytest.mark.parametrize("variant", ["static", "launches"])
def test_a_rank_with_more_work_has_larger_grids_or_more_launches(variant, tmp_path):
    program = whole(plant(10, "imbalance"))
    cause = replace(program.causes[0], variant=variant, ranks=(0,), amount=1.5)
    work = [query(file, WORK) for file in written(replace(program, causes=(cause,)), tmp_path)[1]]
    blocks = [sum(row[1] * row[3] for row in rows) for rows in work]
    launches = [sum(row[3] for row in rows) for rows in work]
    assert blocks[0] > 1.2 * blocks[1]
    assert (launches[0] > 1.2 * launches[1]) == (variant == "launches")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("kind", "memory", "call"),
    [
        ("pageable-copy", 0, "cudaMemcpyAsync_v3020"),
        ("sync-copy", 1, "cudaMemcpy_v3020"),
        ("exposed-transfer", 1, "cudaMemcpyAsync_v3020"),
    ],
)
def test_copies_tell_the_memory_and_the_call_that_made_them(kind, memory, call, tmp_path):
    program = plant(10, kind)
    host = "dstKind" if program.causes[0].variant == "DtoH" else "srcKind"
    file = written(whole(program), tmp_path)[1][program.causes[0].ranks[0] if program.causes[0].ranks else 0]
    largest = query(
        file,
        f"""
        SELECT m.{host}, s.value, r.end - r.start, m.end - r.start FROM CUPTI_ACTIVITY_KIND_MEMCPY m
        JOIN CUPTI_ACTIVITY_KIND_RUNTIME r USING (correlationId) JOIN StringIds s ON s.id = r.nameId ORDER BY m.bytes
        DESC LIMIT 1
        """,
    )[0]
    assert largest[:2] == (memory, call)
    assert (largest[2] >= largest[3]) == (kind != "exposed-transfer")  # whether the call returns when the copy is done


def test_stamps_are_off_by_the_clock_of_the_host(tmp_path):
    program = whole(plant(4, "slow-host"))
    clocks = (Clock(5_000_000, 2e-5, 0), Clock(-3_000_000_000, -1e-5, 7_000_000))
    program = replace(program, view=replace(program.view, clocks=clocks, missing=()))
    timeline, files = written(program, tmp_path)
    begun = []
    for rank, file in enumerate(files):
        [(stamp,)] = query(file, "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME")
        starts = [row[0] for row in query(file, "SELECT start FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY 1")]
        true = sorted(k[0] for k in timeline.recorded[rank].kernels)
        clock = clocks[program.grid.host_of(rank)]
        jump = clock.jump_ns if rank % 2 else 0
        off = [stamp + s - t * (1 + clock.drift) - clock.offset_ns - jump for s, t in zip(starts, true, strict=True)]
        assert max(off) - min(off) < 1_000
        begun.append(off[0])
    assert max(begun) - min(begun) < 1_000


def imported(program, folder):
    (folder / "reports").mkdir()
    timeline, files = written(program, folder / "reports")
    import_reports([str(folder / "reports")], folder / "run", jobs=1)
    return timeline, files, alltrace.open(folder / "run")


def rows(run, table, rank):
    return run.connect().execute(f"SELECT count(*) FROM {table} WHERE rank = {rank}").fetchone()[0]


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", [4, 7, 10])
def test_a_run_has_the_ranks_and_events_of_the_program(seed, tmp_path):
    program = plant(seed)
    program = replace(program, view=replace(program.view, late=(), missing=(), graphs="none"))
    timeline, files, run = imported(program, tmp_path)
    assert [r.rank for r in run.ranks] == list(range(program.grid.ranks))
    assert len(files) == program.grid.ranks
    hosts = [r.host for r in run.ranks]
    assert len(set(hosts)) == program.grid.hosts
    assert [hosts.index(h) for h in hosts] == [
        next(s for s in range(program.grid.ranks) if program.grid.host_of(s) == program.grid.host_of(r))
        for r in range(program.grid.ranks)
    ]
    for rank, recorded in enumerate(timeline.recorded):
        assert rows(run, "kernels", rank) == len(recorded.kernels)
        assert rows(run, "api", rank) == len(recorded.calls)
        assert rows(run, "copies", rank) == len(recorded.copies)
        assert rows(run, "osrt", rank) == len(recorded.osrt)
        durations = run.connect().execute(f'SELECT sum("end" - start) FROM kernels WHERE rank = {rank}').fetchone()[0]
        assert durations == pytest.approx(sum(k[1] - k[0] for k in recorded.kernels), rel=1e-3)


def test_graphs_traced_as_a_whole_hide_their_kernels(tmp_path):
    program = next(p for p in (plant(seed, "none") for seed in range(400)) if p.view.graphs == "whole")
    program = replace(program, view=replace(program.view, late=()))
    timeline, _, run = imported(program, tmp_path)
    assert rows(run, "graphs", 0) == len(timeline.recorded[0].graphs) > 0
    assert rows(run, "kernels", 0) == sum(not k[7] for k in timeline.recorded[0].kernels)


@pytest.mark.slow
def test_calls_of_mpi_replace_those_of_nccl(tmp_path):
    program = next(p for p in (plant(seed, "none") for seed in range(400)) if p.mpi)
    program = replace(program, view=replace(program.view, late=()))
    timeline, _, run = imported(program, tmp_path)
    assert {r.rank_source for r in run.ranks} == {"MPI_RANKS"}
    assert rows(run, "mpi", 0) == len(timeline.recorded[0].mpi) > 0
    assert run.connect().execute("SELECT count(*) FROM kernels WHERE kind = 'collective'").fetchone()[0] == 0


@pytest.mark.slow
def test_a_rank_that_is_captured_late_and_one_without_a_report(tmp_path):
    program = plant(9, "missing-rank")
    late = next(r for r in range(program.grid.ranks) if r not in program.view.missing)
    program = replace(program, view=replace(program.view, late=((late, 1.5),)))
    timeline, files, run = imported(program, tmp_path)
    assert len(files) == program.grid.ranks - 1
    assert len(run.ranks) == program.grid.ranks - 1
    recorded = timeline.recorded[late]
    first, second = (max(ends[step] for ends in timeline.ends) for step in (0, 1))
    begins = first + (second - first) / 2
    kept = sum(k[0] >= begins for k in recorded.kernels)
    counts = [rows(run, "kernels", r.rank) for r in run.ranks]
    assert kept in counts
    assert kept < len(recorded.kernels)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("nccl", ["json", "binary"])
def test_payloads_tell_the_communicator_and_the_size(nccl, tmp_path):
    program = next(
        p for p in (plant(seed, "none") for seed in range(400)) if p.communicators and not p.mpi and p.grid.tp > 1
    )
    program = replace(program, view=replace(program.view, nccl=nccl, late=()))
    _, _, run = imported(program, tmp_path)
    found = (
        run.connect()
        .execute("SELECT DISTINCT payload FROM ranges WHERE name = 'ncclAllReduce' AND payload IS NOT NULL")
        .fetchall()
    )
    told = {(p["NCCL communicator ID"], p["Message size [bytes]"]) for p in (json.loads(text) for (text,) in found)}
    wanted = {c.identifier for c in program.communicators if c.role in ("tp", "dp", "norm")}
    assert {identifier for identifier, _ in told} == wanted
    tensor = {c.identifier for c in program.communicators if c.role == "tp"}
    assert {size for identifier, size in told if identifier in tensor} == {program.activation_bytes}
