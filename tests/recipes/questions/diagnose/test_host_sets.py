"""What a host is said to have done, on ranks made by hand: a gap of 4 ms between two kernels, and one thing that
happens in it."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.making import copy, kernel, make_run

from alltrace.recipes.questions.diagnose.gaps import CLASSES
from alltrace.recipes.questions.diagnose.rank_facts import gather
from alltrace.trace.host_patterns import WAITING, matching

MS = 1_000_000
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def call(start, end, name="cudaLaunchKernel", correlation=None, **others):
    return {"start": start, "end": end, "name": name, "correlation": correlation, "kind": "runtime", **others}


def row(start, end, name, **others):
    return {"start": start, "end": end, "name": name, **others}


def gap(folder, api=(), **tables):
    """The classes of a rank whose kernels run 0 to 1 and 5 to 6 ms, and its facts; the second is launched at the end of
    the gap."""
    launches = [call(-2000, -1000, correlation=1), call(5 * MS - 10, 5 * MS, correlation=2)]
    tables.setdefault(
        "kernels", [kernel(0, MS, "first(int)", correlation=1), kernel(5 * MS, 6 * MS, "first(int)", correlation=2)]
    )
    run = make_run(folder, {0: {"api": sorted([*launches, *api], key=lambda c: c["start"]), **tables}})
    facts, _ = gather(run.rank(0), None)
    found = {name: int(value) for name, value in zip(CLASSES, facts.times[0], strict=True) if value}
    assert found.pop("compute") == 2 * MS
    assert sum(found.values()) == 4 * MS
    return found, facts


def test_what_runs_inside_a_loader_belongs_to_it(tmp_path):
    inside = [call(MS + 5000, 2 * MS, "cudaMalloc"), call(2 * MS + 10, 3 * MS, "cudaStreamSynchronize")]
    found, facts = gap(tmp_path, inside, ranges=[row(MS, 4 * MS, LOADER)])
    assert found["data"] == 3 * MS
    assert facts.call_names["data"] == LOADER


def test_calls_that_block_in_a_range_of_the_users_own_are_of_their_own_kind(tmp_path):
    found, _ = gap(tmp_path, [call(MS, 3 * MS, "cudaMalloc")], ranges=[row(MS, 4 * MS, "data")])
    assert found["allocation"] == pytest.approx(2 * MS, abs=20)
    assert found["data"] == MS


@pytest.mark.parametrize(
    ("table", "name"),
    [
        ("ranges", "IteratorGetNext::DoCompute"),
        ("ranges", "multiprocessing.queue.get"),
        ("frames", "torch/utils/data/dataloader.py(628): __next__"),
        ("frames", "queue.py(154): get"),
        ("osrt", "read"),
        ("osrt", "sem_clockwait"),
    ],
)
def test_data_is_waited_for_under_many_names(tmp_path, table, name):
    found, facts = gap(tmp_path, **{table: [row(MS, 4 * MS, name)]})
    assert found["data"] == pytest.approx(3 * MS, abs=1000)
    assert facts.call_names["data"] == name


@pytest.mark.parametrize("name", ["pthread_cond_wait", "write"])
def test_calls_of_the_system_that_say_nothing_of_data_are_a_pause(tmp_path, name):
    found, _ = gap(tmp_path, osrt=[row(MS, 4 * MS, name)])
    assert "data" not in found
    assert found["host-pause"] > 3.9 * MS


@pytest.mark.parametrize(
    ("waits", "copied", "data"),
    [
        (("sem_timedwait", "pthread_cond_timedwait"), (21, 41), 2.5),
        (("sem_timedwait", "pthread_cond_timedwait"), (21,), 1),  # no copy follows
        (("sem_timedwait", "pthread_cond_timedwait"), (41,), 2.5),  # the next one is for both
        (("write", "pthread_cond_timedwait"), (21, 41), 0),  # nothing says that copies wait for data
    ],
)
def test_a_lock_is_the_loaders_where_copies_follow_it_as_they_follow_waits_for_data(tmp_path, waits, copied, data):
    copies = [call(at * MS // 10, at * MS // 10 + 1000, "cudaMemcpyAsync") for at in copied]
    osrt = [row(MS, 2 * MS, waits[0]), row(25 * MS // 10, 4 * MS, waits[1])]
    found, _ = gap(tmp_path, copies, osrt=osrt)
    assert found.get("data", 0) == pytest.approx(data * MS, abs=1000)


@pytest.mark.parametrize(("kind", "waited"), [("collective", True), ("start-wait", True), ("other", False)])
def test_a_host_in_mpi_waits_for_other_ranks(tmp_path, kind, waited):
    osrt = [row(MS, 4 * MS, "poll")]
    name = "MPI_Allreduce" if waited else "MPI_Comm_split"
    found, facts = gap(tmp_path, mpi=[row(MS, 4 * MS, name, kind=kind)], osrt=osrt)
    assert found.get("communication", 0) == waited * 3 * MS
    assert (MS + 2000, 4 * MS + 2000) in [tuple(w) for w in facts.waits.tolist()] or not waited
    assert found.get("data", 0) == pytest.approx(0 if waited else 3 * MS, abs=1000)
    assert facts.paused_ns < 2 * MS


@pytest.mark.parametrize(("begin", "named"), [(2 * MS + 40_000, False), (2 * MS + 60_000, True)])
def test_a_wait_for_what_is_then_exchanged_is_none_to_be_left_out(tmp_path, begin, named):
    wait = call(MS + 10, 2 * MS, "cudaStreamSynchronize")
    found, facts = gap(tmp_path, [wait], mpi=[row(begin, 4 * MS, "MPI_Allreduce", kind="collective")])
    assert (facts.call_counts["sync"] == 1) is named
    assert found["communication"] == 4 * MS - begin


@pytest.mark.parametrize(
    ("called", "kind", "stream", "staged"),
    [
        (2 * MS, "DtoH", 20, (1, 4096)),
        (2 * MS, "HtoD", 20, (1, 4096)),
        (2 * MS, "PtoP", 20, (0, 0)),  # from device to device
        (MS // 2, "DtoH", 20, (0, 0)),  # before the call
        (2 * MS, "DtoH", 7, (0, 0)),  # on a stream of the program, as a thread of it can do meanwhile
        (2 * MS, "DtoH", 21, (0, 0)),  # which copies outside of the call, too
    ],
)
def test_copies_of_mpi_are_told_from_those_of_the_program(tmp_path, called, kind, stream, staged):
    api = [call(called, called + 1000, "cuMemcpyAsync", 8), call(100, 1000, "cuMemcpyAsync", 9)]
    copies = [
        copy(called + 2000, called + 5000, kind, bytes=4096, stream=stream, correlation=8),
        copy(1000, 1100, "DtoH", bytes=4096, stream=21, correlation=9),
    ]
    mpi = [row(MS, 4 * MS, "MPI_Send", kind="p2p")]
    _, facts = gap(tmp_path, api, mpi=mpi, copies=sorted(copies, key=lambda c: c["start"]))
    assert (facts.staged_copies, facts.staged_bytes) == staged
    if stream == 21:  # the stream of that number on another device is another one
        copies[1]["device"] = 1
        _, facts = gap(tmp_path / "other", api, mpi=mpi, copies=sorted(copies, key=lambda c: c["start"]))
        assert facts.staged_copies == 1


def test_what_other_threads_do_counts_only_while_the_launching_one_is_silent(tmp_path):
    threads = [{"thread": n, "process": 0, "tid": 1 + n, "name": "t"} for n in range(2)]
    busy = [call(MS + n * MS // 2, MS + n * MS // 2 + 1000, "cudaEventRecord") for n in range(8)]
    loading = [row(MS, 4 * MS, LOADER, thread=1)]
    silent, _ = gap(tmp_path / "silent", ranges=loading, threads=threads)
    assert silent["data"] == 3 * MS
    launching, _ = gap(tmp_path / "busy", busy, ranges=loading, threads=threads)
    assert "data" not in launching
    # a queue that a helper waits at is what helpers do
    waiting, _ = gap(tmp_path / "queue", frames=[row(MS, 4 * MS, "queue.py(154): get", thread=1)], threads=threads)
    assert "data" not in waiting
    # and a helper that waits for the device holds nobody up
    sync, _ = gap(tmp_path / "sync", [call(MS, 4 * MS, "cudaStreamSynchronize", thread=1)], threads=threads)
    assert "sync" not in sync


def test_a_range_named_data_that_holds_the_launches_is_no_loader(tmp_path):
    found, _ = gap(tmp_path, ranges=[row(-3000, 7 * MS, "data parallel step")])
    assert "data" not in found


def test_ranges_that_never_end_or_end_before_they_begin_are_nothing(tmp_path):
    found, facts = gap(tmp_path, ranges=[row(MS, None, LOADER), row(4 * MS, 2 * MS, LOADER)])
    assert "data" not in found
    assert "data" not in facts.call_names


@pytest.mark.parametrize(
    ("kind", "api", "tables"),
    [
        ("module-loading", [call(MS, 4 * MS, "cuModuleLoadDataEx")], {}),
        ("module-loading", [call(MS, 4 * MS, "cuLibraryLoadData")], {}),
        ("module-loading", [call(MS, 4 * MS, "cudaGraphInstantiateWithFlags_v11040")], {}),
        ("module-loading", [], {"overheads": [row(MS, 4 * MS, "Lazy Function Loading")]}),
        ("compilation", [], {"ranges": [row(MS, 4 * MS, "compile_fx_inner (dynamo_timed)")]}),
        ("compilation", [], {"ranges": [row(MS, 4 * MS, "TSL:XlaCompile:#module=jit_step#")]}),
        ("compilation", [], {"frames": [row(MS, 4 * MS, "torch/_dynamo/convert_frame.py(643): _compile")]}),
        ("compilation", [call(MS, 4 * MS, "nvrtcCompileProgram")], {}),
        # a host that does nothing until it loads code has compiled it
        ("compilation", [call(MS, MS + 10, "cudaEventRecord"), call(3 * MS, 4 * MS + 10, "cuModuleLoadData")], {}),
        # compiling inside of what is loaded then, and its loading
        (
            "compilation",
            [call(3 * MS + MS // 2, 4 * MS, "cuModuleLoadData")],
            {"ranges": [row(MS, 4 * MS, "Torch-Compiled Region: 2/1")]},
        ),
    ],
)
def test_code_is_loaded_or_compiled(tmp_path, kind, api, tables):
    found, facts = gap(tmp_path, api, **tables)
    assert found[kind] == pytest.approx(3 * MS, abs=1)
    assert facts.call_counts[kind] == 1


def test_a_compiled_region_that_loads_nothing_runs_what_was_compiled(tmp_path):
    found, _ = gap(tmp_path, ranges=[row(MS, 4 * MS, "Torch-Compiled Region: 0/0")])
    assert "compilation" not in found


@pytest.mark.parametrize(("second", "kind"), [("first(int)", "launch"), ("new(int)", "module-loading")])
def test_the_first_launch_of_a_kernel_may_load_its_code(tmp_path, second, kind):
    names = ["first(int)"] * 3 + [second]
    starts = [0, MS // 4, MS // 2, 5 * MS]
    kernels = [kernel(s, s + MS // 4, n, correlation=c) for c, (s, n) in enumerate(zip(starts, names, strict=True))]
    api = [call(-4000 + c * 1000, -3500 + c * 1000, correlation=c) for c in range(3)] + [
        call(MS, 5 * MS, correlation=3)
    ]
    run = make_run(tmp_path, {0: {"api": api, "kernels": kernels}})
    facts, _ = gather(run.rank(0), None)
    assert facts.times[0][CLASSES.index(kind)] == pytest.approx(4 * MS, abs=1)


def test_frameworks_copy_from_pageable_memory_and_wait_as_one(tmp_path):
    """The wait behind a large pageable copy is that copy's; behind a small one, such as a loss, it is a wait for the
    device."""
    api = [call(MS, 2 * MS, "cudaMemcpyAsync", 9), call(2 * MS + 1000, 4 * MS, "cudaStreamSynchronize")]
    moved = {"src_kind": "device", "dst_kind": "pageable", "correlation": 9}
    found, _ = gap(tmp_path / "large", api, copies=[copy(MS, 2 * MS, "DtoH", bytes=1 << 24, **moved)])
    assert found["pageable-copy"] > 2.9 * MS
    found, _ = gap(tmp_path / "small", api, copies=[copy(MS, MS + 2000, "DtoH", bytes=4, **moved)])
    assert found["sync"] > 2.9 * MS


@pytest.mark.parametrize(("memory", "kind"), [("pinned", "transfer"), ("pageable", "pageable-copy")])
def test_a_host_that_waits_for_a_transfer_is_not_late(tmp_path, memory, kind):
    api = [call(MS - 5000, MS - 4000, "cudaMemcpyAsync", 9), call(MS + MS // 2, 4 * MS, "cudaStreamSynchronize")]
    copies = [copy(MS, 4 * MS, "HtoD", src_kind=memory, dst_kind="device", correlation=9)]
    found, _ = gap(tmp_path, api, copies=copies)
    assert found[kind] >= 2.5 * MS
    assert "sync" not in found


def test_without_calls_nothing_is_guessed_of_the_host(tmp_path):
    kernels = [kernel(0, MS, correlation=1), kernel(5 * MS, 6 * MS, correlation=2)]
    copies = [copy(2 * MS, 3 * MS, "HtoD", src_kind="pinned")]
    run = make_run(tmp_path, {0: {"kernels": kernels, "copies": copies, "ranges": [row(3 * MS, 4 * MS, LOADER)]}})
    facts, _ = gather(run.rank(0), None)
    found = {name: int(value) for name, value in zip(CLASSES, facts.times[0], strict=True) if value}
    assert found == {"compute": 2 * MS, "transfer": MS, "data": MS, "unknown": 2 * MS}
    assert not facts.calls


def test_names_with_arguments_match_nothing():
    assert matching([LOADER, LOADER + "x" * 200], WAITING) == [0]


@pytest.mark.parametrize(
    ("tables", "name"),
    [
        ({"ranges": [row(MS, 4 * MS, "save_checkpoint")]}, "save_checkpoint"),
        ({"ranges": [row(MS, 2 * MS, "log")]}, ""),  # a quarter of the pause
        ({"ranges": [row(MS, 2 * MS, "log")], "osrt": [row(2 * MS, 5 * MS - 100, "nanosleep")]}, "nanosleep"),
        # of one within another the inner one
        ({"ranges": [row(MS, 4 * MS, "save"), row(MS, 4 * MS - 1000, "write_state")]}, "write_state"),
        ({"ranges": [row(MS, 4 * MS, "write_state")], "osrt": [row(MS, 4 * MS, "write")]}, "write_state"),
        # the step's own range holds all launches
        ({"ranges": [row(-3000, 6 * MS, "step 1")]}, ""),
        ({}, ""),
    ],
)
def test_a_pause_has_the_name_of_what_fills_half_of_it(tmp_path, tables, name):
    found, facts = gap(tmp_path, **tables)
    assert found["host-pause"] > 3.9 * MS
    assert facts.call_names.get("host-pause", "") == name


def paced(folder, waits, *, step_ns=10 * MS, osrt=None):
    """What a loader takes for the batches of a step, if the host waits so long at the start of each step."""
    starts = [n * step_ns for n in range(len(waits))]
    kernels = [kernel(s + 8 * MS, s + 9 * MS, "first(int)", correlation=n) for n, s in enumerate(starts)]
    api = [call(s + 7 * MS, s + 7 * MS + 10, correlation=n) for n, s in enumerate(starts)]
    ranges = [row(s + MS, s + MS + w, LOADER) for s, w in zip(starts, waits, strict=True)]
    tables = {
        "kernels": kernels,
        "api": api,
        "ranges": ranges,
        "osrt": [row(s + MS, s + MS + w, osrt) for s, w in zip(starts, waits, strict=True)],
    }
    run = make_run(folder, {0: tables if osrt else {k: v for k, v in tables.items() if k != "osrt"}})
    steps = [
        {
            "step": n,
            "kind": "step",
            "start": s,
            "end": s + step_ns,
            "device_start": s + 8 * MS,
            "device_end": s + 9 * MS,
        }
        for n, s in enumerate(starts)
    ]
    return gather(run.rank(0), pa.Table.from_pylist(steps))[0].loader_ns


AT_ONCE = 10_000


def test_while_a_program_waits_for_batch_after_batch_its_loader_sets_the_pace(tmp_path):
    # from the last wait of one step to the last one of the next: 10 ms, less what the wait becomes shorter
    falling = [6 * MS, 5 * MS, 4 * MS, 3 * MS, AT_ONCE, AT_ONCE]
    assert paced(tmp_path / "falling", falling) == 9 * MS
    assert (
        paced(tmp_path / "called", [5 * MS, 4 * MS, 5 * MS, 4 * MS, 5 * MS], osrt="poll") == 31 * MS // 3
    )  # the first wait is before any call


@pytest.mark.parametrize(
    ("waits", "osrt"),
    [
        ([5 * MS, 4 * MS, 5 * MS, 4 * MS, 5 * MS], None),  # a host that loads by itself takes its time for each
        ([5 * MS, 4 * MS, 5 * MS, 4 * MS, 5 * MS], "read"),
        ([5 * MS, AT_ONCE, 5 * MS, AT_ONCE, 5 * MS, 4 * MS, AT_ONCE], None),  # not in three steps in a row
        # here and there, as where processes have to wait for a CPU
        ([5 * MS, 5 * MS, 5 * MS, AT_ONCE, 3 * MS, AT_ONCE, 4 * MS, *[AT_ONCE] * 3, 5 * MS, *[AT_ONCE] * 3], None),
        ([MS // 2, MS // 2, MS // 2, AT_ONCE, AT_ONCE], None),  # too short to be what limits the program
    ],
)
def test_other_waits_for_data_say_nothing_of_a_loaders_pace(tmp_path, waits, osrt):
    assert paced(tmp_path, waits, osrt=osrt) == 0
