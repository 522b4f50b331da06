"""The record of steps: what was written is read, by rank, over the end of the ring, and damage is noticed."""

from __future__ import annotations

import pytest
from tests.step_pages import put_step

import alltrace
from alltrace.capture.identity import Identity
from alltrace.capture.step_record import StepRecord
from alltrace.core.steps import StepTimes
from alltrace.readers.registry import is_report, open_report
from alltrace.trace import step_records
from alltrace.trace.errors import InputError, UsageError
from alltrace.trace.step_records import (
    INCOMPLETE,
    PAGE_BYTES,
    RECORD_BYTES,
    REGION_BYTES,
    RING_RECORDS,
    Step,
    read_ranks,
)

BEGIN_NS = 1_790_000_000_000_000_000
STEP_NS = 100_000_000


def step(number, **given):
    return Step(**{
        "step": number, "begin_ns": BEGIN_NS + number * STEP_NS, "total_us": 99_000,
        "phases_us": (20_000, 50_000, 0, 0, 0), "cpu_wait_us": 4_000, "last": 2, **given,
    })  # fmt: skip


def write(folder, rank, steps, *, local=None, page=None, names=("data", "forward")):
    who = Identity("torchrun", rank, local, 4, 2, 0, "train", f"node{rank // 2}")
    times = StepTimes(1000)
    record = StepRecord(str(folder), str(page or folder.parent / "local"), who, times)
    record.name(names, frozenset({names[0]}))
    for one in steps:
        put_step(times, one)
    return record


def test_a_file_of_a_host_has_all_its_ranks_as_a_run(tmp_path):
    records = [
        write(tmp_path / "job", rank, [step(n, flags=INCOMPLETE if n == 3 else 0) for n in range(80)], local=rank % 2)
        for rank in range(4)
    ]
    for record in records:
        record.close()
    files = sorted((tmp_path / "job").iterdir())
    assert [f.name for f in files] == ["train_on_node0.steps", "train_on_node1.steps"]
    assert all(is_report(f) for f in files)
    run = alltrace.open(tmp_path / "job", cache_dir=tmp_path / "cache")
    assert [(r.rank, r.host) for r in run.ranks] == [(0, "node0"), (1, "node0"), (2, "node1"), (3, "node1")]
    rows = run.recipe("steps").to_arrow().filter(alltrace_rank(3)).to_pylist()
    assert [r["step"] for r in rows] == list(range(80))
    assert {r["duration_ns"] for r in rows} == {99_000_000}
    sums = (
        run.connect()
        .sql("""SELECT name, count(*), sum("end" - start) FROM ranges WHERE rank = 1 AND name NOT LIKE 'step %'
        GROUP BY name ORDER BY name""")
        .fetchall()
    )
    assert sums == [("cpu wait", 80, 320_000_000), ("data (waits)", 80, 1_600_000_000), ("forward", 80, 4_000_000_000)]
    assert [str(w) for w in open_report(files[0]).report.warnings] == ["gaps in which steps were not measured: 2"]


def alltrace_rank(number):
    import pyarrow.compute as pc

    return pc.field("rank") == number


def test_ranks_that_state_no_place_or_the_same_have_files_of_their_own(tmp_path):
    records = [write(tmp_path / "job", rank, [step(0)], local=local) for rank, local in ((0, None), (1, None))]
    assert sorted(f.name for f in (tmp_path / "job").iterdir()) == [
        "train_on_node0_rank0.steps",
        "train_on_node0_rank1.steps",
    ]
    for record in records:
        record.close()


def test_the_ring_goes_on_at_its_begin(tmp_path, monkeypatch):
    monkeypatch.setattr(step_records, "RING_RECORDS", 100)
    monkeypatch.setattr("alltrace.capture.step_record.RING_RECORDS", 100)
    record = write(tmp_path / "job", 0, [step(n) for n in range(90)])
    record._write()
    for n in range(90, 170):
        put_step(record._times, step(n))
    record.close()
    (rank,) = read_ranks(tmp_path / "job" / "train_on_node0_rank0.steps")
    assert [s.step for s in rank.steps] == list(range(70, 170))
    assert rank.steps[0] == step(70)
    assert [s.step for s in read_ranks(tmp_path / "job" / "train_on_node0_rank0.steps", 65)[0].steps] == list(
        range(105, 170)
    )


def test_a_process_that_is_killed_leaves_its_page(tmp_path):
    record = write(tmp_path / "job", 1, [step(n) for n in range(70)])
    record._times.begin(70)
    record._times.turn(2)
    (page,) = (tmp_path / "local").iterdir()
    assert page.stat().st_size == PAGE_BYTES
    (rank,) = read_ranks(page)
    assert (rank.rank, rank.step, rank.phase, rank.waits, rank.recorded, rank.damaged) == (
        1,
        70,
        "forward",
        {"data"},
        70,
        0,
    )
    assert [s.step for s in rank.steps] == list(range(14, 70))
    record.close()


def test_damaged_records_are_left_out_and_counted(tmp_path):
    write(tmp_path / "job", 0, [step(n) for n in range(80)]).close()
    (file,) = (tmp_path / "job").iterdir()
    data = bytearray(file.read_bytes())
    data[PAGE_BYTES + 3 * RECORD_BYTES + 8] ^= 1
    file.write_bytes(data)
    assert [str(w) for w in open_report(file).report.warnings] == ["steps whose records are damaged, left out: 1"]
    file.write_bytes(data[: PAGE_BYTES + 10 * RECORD_BYTES])  # a copy that ended early
    (rank,) = read_ranks(file)
    assert [s.step for s in rank.steps] == [0, 1, 2, *range(4, 10), *range(24, 80)]
    assert rank.damaged == 15
    for nothing in (b"", b"ALTSTEP1", data[:PAGE_BYTES].replace(b"ALTSTEP1", b"ALTSTEP2")):
        file.write_bytes(nothing)
        assert read_ranks(file) == []
    data[24:32] = bytes(8)
    file.write_bytes(data[:PAGE_BYTES])
    with pytest.raises(InputError, match="it has no steps"):
        open_report(file)


def test_a_record_is_small():
    assert RECORD_BYTES <= 128
    assert RING_RECORDS * RECORD_BYTES + PAGE_BYTES == REGION_BYTES <= 64 << 20


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"the record of steps cannot be written: .*file: .*; give another record="):
        write(tmp_path / "file", 0, [], page=tmp_path / "local")


def test_waits_are_no_work_so_the_slow_rank_is_the_one_that_is_named(tmp_path):
    for rank in range(4):
        forward_us = 99_500 if rank == 2 else 90_000
        phases = [(100_000 - forward_us + n % 3 * 100, forward_us - n % 3 * 100, 0, 0, 0) for n in range(80)]
        steps = [step(n, total_us=100_000, cpu_wait_us=0, phases_us=its) for n, its in enumerate(phases)]
        write(tmp_path / "job", rank, steps, local=rank % 2, names=("wait", "forward")).close()
    rows = alltrace.open(tmp_path / "job", cache_dir=tmp_path / "cache").recipe("diagnose").to_arrow().to_pylist()
    (slow,) = [row for row in rows if row["kind"] != "capture-fault"]
    assert (slow["kind"], slow["ranks"], slow["where"]) == ("straggler", [2], "forward")
