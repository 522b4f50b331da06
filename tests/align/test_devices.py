"""A run with a rank for each device, where processes have several."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
from tests.making import copy, kernel, make_run
from tests.several_devices import STEPS, apart, rows_of, together

from alltrace.align import devices as module
from alltrace.align.devices import by_devices
from alltrace.align.store import aligned
from alltrace.run.manifest import read_manifest, write_manifest
from alltrace.run.members import Member
from alltrace.run.store import Run

DEVICES = [{"device": n, "ordinal": n, "uuid": f"GPU-{n}", "name": "H200"} for n in range(3)]
THREADS = [{"thread": n, "process": 0, "tid": 4001 + n, "name": f"thread {n}"} for n in range(4)]


def launched(device, thread, number, start, **others):
    """A kernel, and the call that launched it."""
    call = {
        "start": start,
        "end": start + 5,
        "thread": thread,
        "name": "cudaLaunchKernel",
        "correlation": number,
        "kind": "runtime",
    }
    return kernel(start + 10, start + 20, device=device, correlation=number, **others), call


def run_of(folder, work, **tables):
    """A process with such launches: device, thread and start of each."""
    rows = [launched(device, thread, number, start) for number, (device, thread, start) in enumerate(work)]
    tables = {"kernels": [k for k, _ in rows], "api": [c for _, c in rows], **tables}
    return make_run(folder, {0: {"devices": DEVICES, "threads": THREADS, **tables}})


def column(run, rank, table, name):
    return run.rank(rank).table(table, [name]).column(name).to_pylist()


def test_each_device_has_its_work_and_what_its_threads_did(tmp_path):
    ranges = [
        {"start": 0, "end": 900, "thread": t, "name": name, "kind": "pushpop"}
        for t, name in enumerate(("one", "two", "both", "none"))
    ]
    inner = {"start": 10, "end": 20, "thread": 3, "name": "inner", "kind": "pushpop"}
    work = [(0, 0, 100), (0, 0, 200), (2, 1, 100), (2, 1, 300), (0, 2, 400), (2, 2, 500)]
    run = run_of(tmp_path / "run", work, ranges=[*ranges, inner], copies=[copy(600, 700, device=2)])
    split = by_devices(run)
    assert [split.members[n] for n in (0, 1)] == [Member(0, 0, 0, "host0"), Member(0, 2, 2, "host0")]
    assert [column(split, n, "kernels", "device") for n in (0, 1)] == [[0, 0, 0], [2, 2, 2]]
    assert [column(split, n, "copies", "start") for n in (0, 1)] == [[], [600 - split.origin_ns]]
    names = [sorted(split.rank(n).texts(split.rank(n).table("ranges").column("name")).to_pylist()) for n in (0, 1)]
    assert names == [["both", "inner", "none", "one"], ["both", "inner", "none", "two"]]
    # parents are rows of the device's own table
    for n in (0, 1):
        table = split.rank(n).table("ranges").to_pylist()
        [own] = [row for row in table if row["depth"] == 1]
        assert table[own["parent"]]["thread"] == 3
    assert [sorted(set(column(split, n, "api", "thread"))) for n in (0, 1)] == [[0, 2], [1, 2]]
    assert split.members.sharing == ((0, 1),)  # of thread 2
    assert [r.devices[0].uuid for r in split.ranks] == ["GPU-0", "GPU-2"]
    assert [column(split, n, "devices", "device") for n in (0, 1)] == [[0], [2]]


def test_threads_of_their_own_share_nothing(tmp_path):
    assert by_devices(run_of(tmp_path / "run", [(0, 0, 100), (1, 1, 100)])).members.sharing == ()


def test_a_device_that_is_only_touched_is_none_that_a_process_works_with(tmp_path):
    work = [(1, 0, 100 * n) for n in range(1, 30)]
    assert by_devices(run_of(tmp_path / "one", [*work, (0, 0, 5000)])) is None
    assert by_devices(run_of(tmp_path / "two", [*work, (0, 0, 5000), (0, 0, 6000)])) is not None
    # what is asked again is not looked at again
    run = Run(tmp_path / "one")
    assert by_devices(run) is None
    assert run.devices_run == (None,)


def test_of_two_devices_the_one_that_is_only_touched_does_not_count(tmp_path):
    rows = [launched(1, 0, n, 100 * n) for n in range(1, 30)] + [launched(0, 0, 30, 5000)]
    tables = {"kernels": [k for k, _ in rows], "api": [c for _, c in rows]}
    assert by_devices(make_run(tmp_path / "run", {0: {"devices": DEVICES[:2], "threads": THREADS, **tables}})) is None


def test_processes_with_one_device_stay_as_they_are_beside_others(tmp_path):
    several = [launched(d, d, d, 100) for d in range(2)]
    run = make_run(
        tmp_path / "run",
        {
            0: {"kernels": [kernel(100, 200)]},
            3: {
                "devices": DEVICES,
                "threads": THREADS,
                "kernels": [k for k, _ in several],
                "api": [c for _, c in several],
            },
        },
        missing=[1, 2],
    )
    split = by_devices(run)
    assert [r.rank for r in split.ranks] == [0, 1, 2]
    assert split.members.words([0]) == "rank 0"
    assert split.members.words([1, 2]) == "rank 3, GPUs 0-1"
    assert split.manifest.missing_ranks == (3, 4)
    assert split.members.words(split.manifest.missing_ranks) == "ranks 1-2"
    assert split.rank(0).table("kernels").equals(run.rank(0).table("kernels"))


def test_one_that_was_made_is_used_until_the_run_is_another(tmp_path, monkeypatch):
    run = run_of(tmp_path / "run", [(0, 0, 100), (1, 1, 100)])
    by_devices(run)
    monkeypatch.setattr(module, "_write", pytest.fail)
    assert by_devices(Run(tmp_path / "run")).path == tmp_path / "run/devices"
    monkeypatch.undo()
    manifest = read_manifest(tmp_path / "run")
    host = manifest.ranks[0]._replace(host="other")
    write_manifest(tmp_path / "run", replace(manifest, ranks=(host,)))
    assert by_devices(Run(tmp_path / "run")).ranks[0].host == "other"


def test_a_run_that_cannot_be_written_has_it_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ALLTRACE_CACHE_DIR", str(tmp_path / "cache"))
    run_of(tmp_path / "run", [(0, 0, 100), (1, 1, 100)])
    monkeypatch.setattr("os.access", lambda *_: False)
    split = by_devices(Run(tmp_path / "run"))
    assert len(split.ranks) == 2
    assert tmp_path / "cache" in split.path.parents
    assert not (tmp_path / "run/devices").exists()


@pytest.mark.parametrize("shared", [False, True])
def test_its_operations_and_steps_are_those_of_separate_processes(shared, tmp_path):
    rows = rows_of(4, shared_thread=shared)
    run = together(tmp_path / "together", rows, shared_thread=shared)
    split = by_devices(run)
    found, alone = aligned(split), aligned(apart(tmp_path / "apart", rows))
    keys = ["instance", "rank", "row", "last_rank"]
    assert found.members.num_rows == 4 * STEPS
    assert found.members.select(keys).to_pylist() == alone.members.select(keys).to_pylist()
    waits = [table.members.column("wait_ns").to_numpy() for table in (found, alone)]
    assert abs(waits[0] - waits[1]).max() < 2_000  # each process has a clock stamp of its own
    steps = found.steps
    assert steps.num_rows == 4 * STEPS  # of ranges on one thread, too
    numbers, ranks = (steps.column(c).to_pylist() for c in ("step", "rank"))
    assert set(zip(numbers, ranks, strict=True)) == {(step, rank) for step in range(STEPS) for rank in range(4)}
    ends = steps.column("device_end").to_numpy() - run.rank(0).clock.apply_one(0)
    last = [max(k["end"] for k in own["kernels"]) for own in rows]
    assert [max(ends[np.array(ranks) == n]) for n in range(4)] == last  # of the device, not of the process


def test_without_room_it_is_said(tmp_path, monkeypatch):
    run = run_of(tmp_path / "run", [(0, 0, 100), (1, 1, 100)])
    shutil.rmtree(tmp_path / "run/devices", ignore_errors=True)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "_write", full)
    with pytest.raises(Exception, match=r"the run by devices cannot be written \(No space left on device\)"):
        by_devices(run)
