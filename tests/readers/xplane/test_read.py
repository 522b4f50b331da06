"""Traces of XProf made by hand: what they are read into, and damage."""

from __future__ import annotations

import random

import pytest
from tests.readers.ncu.building import inner, whole

import alltrace
from alltrace.readers.registry import is_report, open_report
from alltrace.readers.xplane.read import FILLED, planes_of
from alltrace.trace.errors import InputError

STATS = ["correlation_id", "kernel_details", "memcpy_details", "hlo_op", "hlo_module", "program_id", "name", "step_num",
         "device_vendor", "core_count", "clock_rate", "profile_start_time", "memset_details", "mul",
         "fusion.1"]  # fmt: skip
UTC = 1_779_266_702_889_805_563


def stat(name, value):
    if isinstance(value, int):
        return inner(4, whole(1, STATS.index(name) + 1) + whole(3 if value >= 0 else 4, value % 2**64))
    of_name = value in STATS
    return inner(
        4, whole(1, STATS.index(name) + 1) + (whole(7, STATS.index(value) + 1) if of_name else inner(5, value))
    )


def plane(name, lines=(), stats=(), names=()):
    """A plane: lines are (id, name, timestamp, events), events (name, start ps, duration ps, stats)."""
    of_name = {n: k for k, n in enumerate(names, 1)}
    body = inner(2, name)
    for number, called, timestamp, events in lines:
        parts = (
            whole(1, of_name[n]) + whole(2, s) + whole(3, d) + b"".join(stat(*p) for p in about)
            for n, s, d, about in events
        )
        body += inner(
            3, whole(1, number) + inner(2, called) + whole(3, timestamp) + b"".join(inner(4, p) for p in parts)
        )
    entries = (inner(4, whole(1, k) + inner(2, whole(1, k) + inner(2, n))) for n, k in of_name.items())
    words = (inner(5, whole(1, k) + inner(2, whole(1, k) + inner(2, n))) for k, n in enumerate(STATS, 1))
    return inner(1, body + b"".join(entries) + b"".join(words) + b"".join(inner(6, stat(*p)[2:]) for p in stats))


XLA = (("hlo_op", "fusion.1"), ("hlo_module", "jit_f"), ("program_id", 17), ("name", "mul"))
NVIDIA = "regs:32 static_shared:16 dynamic_shared:8 grid:4,2,1 block:128,1,1 occ_pct:100"
DEVICE = plane(
    "/device:GPU:1",
    [
        (7, "Stream #7(Kernel)", 5000, [
            ("void k<int>(int)", 1_500_600, 2_000_999, (("correlation_id", 11), ("kernel_details", NVIDIA), *XLA)),
            ("plain.kd", 9_000_000, 1_000_000, (("correlation_id", 12),)),
        ]),
        (8, "Stream #8(MemcpyH2D)", 5000, [
            ("MemcpyH2D", 0, 3_000_000, (("correlation_id", 13), ("memcpy_details",
                "kind:HtoD size:512 dest:0 async:1"))),
            ("Memset", 4_000_000, 1_000_000, (("memset_details", "kind:device size:64"), ("correlation_id", -1))),
        ]),
        (9, "XLA Ops", 5000, [("plain.kd", 0, 1000, ())]),
    ],
    (("device_vendor", "Nvidia"), ("core_count", 132), ("clock_rate", 1_980_000)),
    ["void k<int>(int)", "plain.kd", "MemcpyH2D", "Memset"],
)  # fmt: skip
HOST = plane(
    "/host:CPU",
    [
        (77, "python3", 4000, [
            ("train", 0, 10_000_000, (("step_num", 3),)),
            ("$train.py:7 step", 1000, 9_000_000, ()),
            ("cuLaunchKernel", 500_000, 100_000, (("correlation_id", 11),)),
            ("cudaMemcpyAsync", 700_000, 100_000, (("correlation_id", 13),)),
        ]),
    ],
    (),
    ["train", "$train.py:7 step", "cuLaunchKernel", "cudaMemcpyAsync"],
)  # fmt: skip
TASK = plane("Task Environment", (), (("profile_start_time", UTC),))
TRACE = plane("/device:GPU:0") + DEVICE + HOST + TASK + inner(4, "node7")


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "node7.xplane.pb"
    path.write_bytes(TRACE)
    return path


def rows(reader, *tables):
    found = [row for _, batch in reader.stream(tables) for row in batch.to_pylist()]
    names = dict(zip(*(c.to_pylist() for c in reader.dictionaries()["names"].columns), strict=True))
    return [
        {k: names.get(v, v) if k in ("name", "short_name", "domain") else v for k, v in row.items()} for row in found
    ]


def picked(row, *columns):
    return tuple(row[c] for c in columns)


def test_work_on_devices(trace):
    assert is_report(trace)
    reader = open_report(trace)
    kernels = rows(reader, "kernels")
    assert [picked(k, "start", "end", "device", "stream", "correlation", "name", "short_name") for k in kernels] == [
        (6500, 8501, 0, 7, 11, "void k<int>(int)", "k"), (14_000, 15_000, 0, 7, 12, "plain", "plain")
    ]  # fmt: skip
    sizes = ("grid_x", "grid_y", "block_x", "registers", "static_shared_memory", "dynamic_shared_memory")
    assert [picked(k, *sizes) for k in kernels] == [(4, 2, 128, 32, 16, 8), (None,) * 6]
    copies = rows(reader, "copies")
    assert [picked(c, "start", "end", "kind", "bytes", "correlation") for c in copies] == [
        (5000, 8000, "HtoD", 512, 13), (9000, 10_000, "memset", 64, -1)
    ]  # fmt: skip
    (device,) = reader.dictionaries()["devices"].to_pylist()
    assert picked(device, "ordinal", "sm_count", "clock_hz") == (1, 132, 1_980_000_000)


def test_calls_and_annotations_of_the_host(trace):
    reader = open_report(trace)
    calls = rows(reader, "api")
    assert [picked(c, "start", "end", "correlation", "name", "kind") for c in calls] == [
        (4500, 4600, 11, "cuLaunchKernel", "driver"), (4700, 4800, 13, "cudaMemcpyAsync", "runtime")
    ]  # fmt: skip
    ranges = rows(reader, "ranges")
    # what the kernel says of its operation stands at the call that launched it
    assert [picked(r, "start", "end", "name", "domain") for r in ranges] == [
        (4000, 14_000, "train#step_num=3#", None),
        (4500, 4600, "Thunk:#name=mul,hlo_op=fusion.1,hlo_module=jit_f,program_id=17#", "TSL"),
    ]
    assert [picked(f, "start", "name") for f in rows(reader, "frames")] == [(4001, "train.py:7 step")]
    (thread,) = reader.dictionaries()["threads"].to_pylist()
    assert thread["tid"] == 77


def test_the_identity_of_a_trace(trace):
    report = open_report(trace).report
    assert (report.format, report.host, report.utc_ns, report.tables) == ("xplane", "node7", UTC, FILLED)
    assert picked(report.processes[0]._asdict(), "gpu", "device_ordinal") == (True, 1)
    assert "experimental" in report.warnings[0].text


def test_numbers_have_a_sign():
    (found,) = planes_of(memoryview(plane("p", (), (("core_count", -5), ("clock_rate", 5)))))
    assert found.stats == {"core_count": -5, "clock_rate": 5}


def test_times_of_the_epoch_count_from_the_first(tmp_path):
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(plane("/device:GPU:0", [(1, "Stream #1", UTC, [("k", 2_000_000, 1_000_000, ())])], (), ["k"]))
    reader = open_report(path)
    assert reader.report.utc_ns == UTC
    assert picked(rows(reader, "kernels")[0], "start", "end") == (2000, 3000)
    assert reader.report.host is None


def test_a_run_answers_by_program_and_operation(trace):
    found = alltrace.open(str(trace)).recipe("xla-ops").to_pylist()
    columns = ("program", "program_id", "op", "scope", "kernels", "copies", "gpu_total_ns")
    assert [picked(r, *columns) for r in found] == [
        (None, None, None, None, 1, 2, 5000), ("jit_f", 17, "fusion.1", "mul", 1, 0, 2001)
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_damage_is_an_error_or_an_answer(tmp_path, seed):
    draw = random.Random(seed)
    path = tmp_path / "x.xplane.pb"
    answered = 0
    for n in range(120):
        data = bytearray(TRACE)
        if n % 3 == 0:
            del data[draw.randrange(1, len(data)) :]
        else:
            for _ in range(draw.randint(1, 4)):
                data[draw.randrange(len(data))] = draw.randrange(256)
        path.write_bytes(bytes(data))
        try:
            reader = open_report(path)
            rows(reader, *FILLED)
        except InputError as error:
            if "x.xplane.pb" not in str(error):
                raise
            continue
        answered += 1
    assert answered > 10


def test_another_file_is_not_taken_for_one(tmp_path):
    for name, data in (("a.xplane.pb", b"x"), ("a.pb", TRACE), ("b.xplane.pb", b"")):
        path = tmp_path / name
        path.write_bytes(data)
        assert not is_report(path)
    assert not is_report(tmp_path / "absent.xplane.pb")


def test_annotated_steps_are_steps(trace):
    found = alltrace.open(str(trace)).recipe("steps").to_pylist()
    assert [picked(r, "step", "kind", "duration_ns") for r in found] == [(3, "step", 10_000)]
