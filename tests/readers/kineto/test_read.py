"""A trace as canonical tables and as an identity."""

from __future__ import annotations

import gzip
import json
import tempfile
import tracemalloc
import zlib
from contextlib import closing

import pytest
from tests.readers.reading import rows_of

import alltrace
from alltrace.readers.kineto import is_report
from alltrace.readers.registry import open_report
from alltrace.run.importer import import_reports
from alltrace.trace.errors import InputError
from alltrace.trace.schema import EVENT_TABLES, TABLES

from .conftest import BASE_NS, EVENTS, GROUP, RANK_1, event, gpu, trace

ZERO_US = 1_000_000


def us(moment):
    """ns since the report's 0, which is the whole second before the first event."""
    return round((moment - ZERO_US) * 1000)


def test_kernels_have_every_field(write):
    gemm, nccl = rows_of(write(), "kernels")
    assert gemm == {
        **dict.fromkeys(TABLES["kernels"].column_names),
        "start": 30_123, "end": 40_124, "process": 0, "device": 0, "context": 1, "stream": 7, "correlation": 77,
        "name": "void ns::gemm<float, (int)4>(float const*)", "short_name": "gemm", "registers": 40,
        "shared_memory": 512, "grid_x": 3, "grid_y": 2, "grid_z": 1, "block_x": 128, "block_y": 1, "block_z": 1,
    }  # fmt: skip
    assert (nccl["short_name"], nccl["stream"], nccl["grid_x"]) == ("ncclDevKernel_AllGather_RING_LL", 20, None)


def test_copies_fills_waits_and_calls(write):
    path = write()
    copy, fill = rows_of(path, "copies")
    assert (copy["kind"], copy["bytes"], copy["src_kind"], copy["dst_kind"]) == ("HtoD", 4096, "pinned", "device")
    assert (fill["kind"], fill["bytes"], fill["src_kind"], fill["dst_kind"]) == ("memset", 64, None, "device")
    (wait,) = rows_of(path, "syncs")
    assert (wait["kind"], wait["start"], wait["end"], wait["stream"]) == (
        "stream-wait",
        us(1_000_056),
        us(1_000_058),
        7,
    )
    calls = [(r["name"], r["kind"], r["correlation"], r["start"], r["end"]) for r in rows_of(path, "api")]
    assert calls == [
        ("cudaLaunchKernel", "runtime", 77, 12_001, 18_000),
        ("cuLaunchKernelEx", "driver", 90, 110_000, 115_000),
    ]


def test_a_wait_for_an_event_tells_the_call_that_recorded_it(write):
    of = {"wait_on_stream": 20, "wait_on_cuda_event_record_corr_id": 79, "wait_on_cuda_event_id": 5}
    unknown = dict.fromkeys(of, -1)
    events = [gpu("cuda_sync", "Stream Wait Event", 1_000_000 + n, 2, 80 + n, **a) for n, a in enumerate((of, unknown))]
    found = [(r["event"], r["record_correlation"], r["record_stream"]) for r in rows_of(write(trace(events)), "syncs")]
    assert found == [(5, 79, 20), (None, None, None)]


def test_ranges_are_annotations_operators_and_modules(write):
    found = [(r["name"], r["domain"], r["start"], r["end"], r["source_row"]) for r in rows_of(write(), "ranges")]
    assert found == [
        ("ProfilerStep#3", None, 500, 900_750, 3),
        ("aten::mm", "cpu_op", 10_000, 30_000, 4),
        ("record_param_comms", "cpu_op", 100_000, 140_000, 11),
        ("nn.Module: Linear_0", "python_function", 5_000, 55_000, 16),
    ]
    payload = json.loads(rows_of(write(), "ranges")[1]["payload"])
    assert payload == {"Input Dims": [[8, 16], [16, 4]], "Input type": ["float", "float"]}


def test_a_collective_is_its_call_and_its_kernel(write):
    (row,) = rows_of(write(), "collectives")
    assert row == {
        **dict.fromkeys(TABLES["collectives"].column_names),
        "start": 120_000, "end": 170_000, "api_start": 100_000, "api_end": 140_000, "process": 0, "thread": 0,
        "device": 0, "stream": 20, "communicator": "pg 0 [0, 1]", "op": "AllGather", "sequence": 12, "bytes": 200,
        "count": 100, "datatype": "bfloat16", "group_rank": 1, "group_size": 2, "evidence": "trace",
    }  # fmt: skip


@pytest.mark.parametrize("how", ["kernel", "external", "launch", "inside"])
def test_a_kernel_finds_its_call_by_every_trail(write, how):
    meta = {
        "Collective name": "reduce_scatter_tensor_coalesced",
        "dtype": "Float",
        "In msg nelems": 80,
        "Out msg nelems": 40,
        **GROUP,
    }
    call = event(
        "cpu_op", "record_param_comms", 1_000_010, 50, **{"External id": 3}, **({} if how == "kernel" else meta)
    )
    launch = event(
        "cuda_runtime",
        "cudaLaunchKernelExC",
        1_000_020,
        5,
        correlation=8,
        **({"External id": 3} if how == "launch" else {}),
    )
    own = meta if how == "kernel" else {"External id": 3} if how == "external" else {}
    kernel = gpu("kernel", "ncclDevKernel_Generic(x)", 1_000_040, 30, 8, **own)
    (row,) = rows_of(write(trace([kernel, launch, call])), "collectives")
    assert (row["op"], row["bytes"], row["communicator"], row["api_start"] is None) == (
        "ReduceScatter",
        160,
        "pg 0 [0, 1]",
        False,
    )
    assert (row["start"], row["end"]) == (us(1_000_040), us(1_000_070))


def test_a_receive_has_its_peer_within_the_group_and_no_sequence(write):
    meta = {
        "Collective name": "recv",
        "dtype": "Int",
        "In msg nelems": 7,
        "Out msg nelems": 7,
        "Src Rank": 6,
        "Dst Rank": 1,
        "Seq": 4,
    }
    group = {"Process Group Name": "pp", "Process Group Ranks": "[1, 6]", "Group size": 2}
    kernel = gpu("kernel", "ncclDevKernel_SendRecv(x)", 1_000_040, 30, 8, **meta, **group)
    (row,) = rows_of(write(trace([kernel])), "collectives")
    assert (row["op"], row["peer"], row["group_rank"], row["sequence"], row["bytes"]) == ("Recv", 1, 0, None, 28)


def test_without_arguments_the_names_of_kernels_are_left_to_tell(write):
    kernel = gpu("kernel", "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", 1_000_040, 30, 8)
    assert rows_of(write(trace([kernel])), "collectives") == []


def test_the_report_says_who_it_is_about(write):
    reader = open_report(write())
    report = reader.report
    dictionaries = {n: t.to_pylist() for n, t in (list(reader.stream(EVENT_TABLES)) and reader.dictionaries()).items()}
    reader.close()
    (process,) = report.processes
    assert (process.pid, process.rank_hint, process.rank_hint_source, process.gpu) == (4000, 1, "distributedInfo", True)
    assert (report.format, report.world_size, report.warnings) == ("kineto", 2, ())
    assert report.utc_ns == BASE_NS + ZERO_US * 1000
    assert [(t["tid"], t["process"]) for t in dictionaries["threads"]] == [(4001, 0)]
    (device,) = dictionaries["devices"]
    assert (device["ordinal"], device["sm_count"], device["memory_bytes"], device["compute_major"]) == (
        0,
        132,
        2**37,
        9,
    )


def test_a_process_of_kernels_alone_is_of_a_gpu_and_of_a_text_has_no_number(write):
    kernel = gpu("kernel", "gemm", 1_000_030, 10, 77)
    with closing(open_report(write(trace([{**kernel, "pid": "GPU"}])))) as reader:
        (process,) = reader.report.processes
    assert (process.pid, process.gpu) == (0, True)


@pytest.mark.parametrize(
    ("written", "called"),
    [("thread 4001 (pt_main)", "pt_main"), ("thread 9 (pt_main)", "thread 9 (pt_main)"), ("main ", "main")],
)
def test_threads_are_called_what_the_system_calls_them(write, written, called):
    about = {"ph": "M", "name": "thread_name", "pid": 4000, "tid": 4001, "args": {"name": written}}
    reader = open_report(write(trace([about, EVENTS[2]])))
    list(reader.stream(EVENT_TABLES))
    dictionaries = {n: t.to_pylist() for n, t in reader.dictionaries().items()}
    reader.close()
    texts = {n["id"]: n["value"] for n in dictionaries["names"]}
    assert [texts[t["name"]] for t in dictionaries["threads"]] == [called]


@pytest.mark.parametrize("name", ["a.json.gz", "a.json.zst", "a.pt.trace.json"])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_compressed_minified_and_reordered_traces_are_the_same(write, name, separators):
    plain = rows_of(write(), "kernels")
    turned = dict(reversed(trace([{k: e[k] for k in reversed(e)} for e in EVENTS]).items()))
    path = write(json.dumps(turned, separators=separators), name)
    assert rows_of(path, "kernels") == plain
    reader = open_report(path)
    assert reader.report.processes[0].rank_hint == 1
    reader.close()


def test_events_in_any_order_give_the_same_rows(write):
    given = rows_of(write(), "collectives") + sorted(rows_of(write(), "kernels"), key=lambda r: r["start"])
    path = write(trace(EVENTS[::-1]))
    assert rows_of(path, "collectives") + sorted(rows_of(path, "kernels"), key=lambda r: r["start"]) == given


def test_a_bare_list_is_read(write):
    assert len(rows_of(write(EVENTS), "kernels")) == 2


def test_the_rank_may_stand_in_the_calls_of_process_groups(write):
    call = event("cpu_op", "record_param_comms", 1, 2, Rank=3, **GROUP)
    reader = open_report(write(trace([call], distributedInfo={"backend": "nccl"})))
    process = reader.report.processes[0]
    reader.close()
    assert (process.rank_hint, process.rank_hint_source) == (3, "record_param_comms")


def test_the_host_is_in_the_name_that_the_profilers_handler_gives(write):
    for name, host in (("node-3_4000.1700000000.pt.trace.json", "node-3"), ("node-3_4001.17.pt.trace.json", None)):
        reader = open_report(write(name=name))
        assert reader.report.host == host
        reader.close()


@pytest.mark.parametrize("name", ["cut.json", "cut.json.gz"])
def test_a_trace_cut_short_gives_what_is_whole_and_says_so(write, name):
    text = json.dumps(trace())
    path = write(text[: text.index("Memcpy")], name)
    assert [r["short_name"] for r in rows_of(path, "kernels")] == ["gemm"]
    reader = open_report(path)
    assert [w for w in reader.report.warnings if "cut short" in w.text]
    reader.close()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["a.json.gz", "a.json.zst"])
def test_a_compressed_stream_cut_short_gives_what_is_whole(write, name):
    path = write(trace([gpu("kernel", f"k{i * 7919 % 10007}", i, 0.5, i) for i in range(1, 20_000)]), name)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    found = rows_of(path, "kernels")
    assert 5_000 < len(found) < 15_000
    reader = open_report(path)
    assert [w for w in reader.report.warnings if "cut short" in w.text]
    reader.close()


def test_a_small_compressed_trace_cut_short_gives_what_is_whole(write):
    path = write(trace([gpu("kernel", f"k{i}", i, 0.5, i) for i in range(1, 20)]), "a.json.gz")
    path.write_bytes(path.read_bytes()[:-40])
    assert len(rows_of(path, "kernels")) >= 10
    reader = open_report(path)
    assert [w for w in reader.report.warnings if "cut short" in w.text]
    reader.close()


def test_zeros_behind_a_compressed_trace_are_no_damage(write):
    path = write(trace([gpu("kernel", f"k{i}", i, 0.5, i) for i in range(1, 20)]), "a.json.gz")
    path.write_bytes(path.read_bytes() + bytes(1000))
    assert len(rows_of(path, "kernels")) == 19
    reader = open_report(path)
    assert not [w for w in reader.report.warnings if "cut short" in w.text]
    reader.close()


def test_a_large_trace_is_known_whole_by_its_end(write, monkeypatch):
    monkeypatch.setattr("alltrace.readers.kineto.identity._HEAD_BYTES", 2_000)
    monkeypatch.setattr("alltrace.readers.kineto.identity.look_at_head.__defaults__", (2_000,))
    monkeypatch.setattr("alltrace.readers.kineto.identity._LONG_HEAD_BYTES", 4_000)
    events = [gpu("kernel", "k", i, 0.5, i) for i in range(1, 5_000)]
    behind = {"traceEvents": events, "distributedInfo": RANK_1, "baseTimeNanoseconds": BASE_NS}
    for content, whole in (
        (behind, True),
        (json.dumps(behind)[:-200], False),
        (events, True),
        (json.dumps(events)[:-9], False),
    ):
        reader = open_report(write(content))
        assert any("cut short" in w.text for w in reader.report.warnings) == (not whole)
        if content is behind:
            assert (reader.report.processes[0].rank_hint, reader.report.utc_ns) == (1, BASE_NS)
        reader.close()


def test_broken_numbers_do_no_harm(write):
    text = json.dumps(trace()).replace(
        '"registers per thread": 40', '"registers per thread": NaN, "blocks per SM": Infinity'
    )
    assert rows_of(write(text), "kernels")[0]["registers"] is None


def warnings_of(path):
    """What is said of a trace before and after its rows were read."""
    reader = open_report(path)
    for _ in reader.stream(("kernels",)):
        pass
    found = tuple(tuple(map(str, warnings)) for warnings in (reader.report.warnings, reader.warnings()))
    reader.close()
    return found


def test_a_broken_event_is_named_once_the_whole_trace_was_read(write):
    path = write(json.dumps(trace()).replace("aten::mm", 'aten::"mm'))
    assert "aten::mm" not in [r["name"] for r in rows_of(path, "ranges")]
    assert len(rows_of(path, "kernels")) == 2
    assert warnings_of(path) == (
        (),
        ("events left out because they are not valid JSON (an escape or a quote may be at fault): 1",),
    )


def test_events_without_a_time_are_counted_and_left_out(write):
    text = json.dumps(trace())
    for moment in ('"ts": 1000030.123', '"dur": 50, "args": {"device": 0'):
        assert moment in text
        text = text.replace(moment, moment.replace("1000030.123", "NaN").replace("50,", "-Infinity,"))
    path = write(text)
    assert rows_of(path, "kernels") == []
    many = "events left out because their start or duration is missing, 0 or not a number: 2"
    assert warnings_of(path) == ((), (many,))


def test_a_trace_cut_short_has_no_broken_event(write):
    text = json.dumps(trace())
    before, after = warnings_of(write(text[: text.index("Memcpy")]))
    assert [w.partition(":")[0] for w in before] == ["the trace is cut short"]
    assert after == ()


def test_shapes_arguments_sequence_and_stack_of_operators(write):
    operator = event(
        "cpu_op", "aten::conv2d", 1_000_000, 5,
        **{"Input Dims": [[1, 3, 8, 8], [4, 3, 3, 3], []], "Input type": ["float", "float", "ScalarList"],
            "Sequence number": 41,
           "Input Strides": [[192, 64, 8, 1], [27, 9, 3, 1], []], "Concrete Inputs": ["", "", "[2, 2]"],
           "Module Hierarchy": 'top.c"1', "Call stack": "a.py(1): f;b.py(2): g"},
    )  # fmt: skip
    plain = event("cpu_op", "aten::add", 1_000_010, 5, **{"Input Dims": [[1]], "Concrete Inputs": ["1"]})
    first, second = rows_of(write(trace([operator, plain])), "ranges")
    assert json.loads(first["payload"]) == {k: v for k, v in operator["args"].items() if k != "Sequence number"}
    assert (first["sequence"], second["sequence"]) == (41, None)
    assert json.loads(second["payload"]) == {"Input Dims": [[1]]}


def test_frames_of_the_interpreter_have_a_table_of_their_own(write):
    (frame,) = rows_of(write(), "frames")
    assert (frame["name"], frame["start"], frame["end"], frame["thread"]) == ("train.py(3): step", 1_000, 101_000, 0)


def test_a_trace_of_rocm_is_read_alike(write):
    events = [
        event("hip_runtime", "hipLaunchKernel", 1_000_012, 5, correlation=7),
        gpu("kernel", "Cijk_Ailk_Bljk_BBS_BH", 1_000_030, 10, 7, stream=0, grid=[3, 1, 1], block=[256, 1, 1]),
        event("cuda_runtime", "hipMemcpyWithStream", 1_000_040, 5, correlation=8),
        gpu("gpu_memcpy", "CopyHostToDevice", 1_000_050, 4, 8, stream=0, bytes=64),
        gpu("gpu_memset", "FillBuffer", 1_000_060, 4, 9, stream=0),
    ]
    path = write(trace(events, deviceProperties=[{"id": 0, "name": "AMD Instinct MI300X"}]))
    (kernel,) = rows_of(path, "kernels")
    assert (kernel["short_name"], kernel["stream"], kernel["correlation"]) == ("Cijk_Ailk_Bljk_BBS_BH", 0, 7)
    assert [(r["kind"], r["bytes"]) for r in rows_of(path, "copies")] == [("HtoD", 64), ("memset", None)]
    assert [(r["name"], r["kind"]) for r in rows_of(path, "api")] == [
        ("hipLaunchKernel", "runtime"),
        ("hipMemcpyWithStream", "runtime"),
    ]


def test_memory_is_bounded_whatever_the_size_of_the_trace(write):
    import tracemalloc

    many = [gpu("kernel", "k" * 200, i, 0.5, i, grid=[1, 1, 1]) for i in range(1, 20_000)]
    body = json.dumps(many)[1:-1]
    path = write('{"traceEvents": [' + ",".join([body] * 12) + "]}")
    assert path.stat().st_size > 80 << 20
    reader = open_report(path)
    tracemalloc.start()
    try:
        rows = sum(b.num_rows for _, b in reader.stream(("kernels",)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        reader.close()
    assert rows == 12 * len(many)
    assert peak < 40 << 20


def test_launches_leave_the_disk_with_the_last_operation_that_is_joined_with_one(write, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with closing(open_report(write())) as reader:
        assert [name for name, _ in reader.stream(("collectives",))] == ["collectives"]
        spooled = {path.stem for path in tmp_path.glob("alltrace-rows-*/*.arrows")}
    assert "kernels" in spooled
    assert spooled <= set(EVENT_TABLES)


def test_times_without_a_base_are_absolute_only_where_they_count_from_1970(write):
    for ts, utc in ((1_669_783_687_464_181, 1_669_783_687_000_000_000), (5_000_000, None)):
        content = trace([gpu("kernel", "k", ts, 5, 1)])
        del content["baseTimeNanoseconds"]
        reader = open_report(write(content))
        assert reader.report.utc_ns == utc
        assert rows_of(write(content), "kernels")[0]["start"] == ts * 1000 % 10**9
        reader.close()


def test_only_traces_are_taken_for_reports(write, tmp_path):
    assert is_report(write())
    assert is_report(write(EVENTS))
    assert not is_report(write({"rank": 1}))
    assert not is_report(write([1, 2, 3]))
    of_nccl = {"name": "AllReduce", "cat": "COLL", "ph": "b", "id": 0, "pid": 1, "tid": 1, "ts": 1.5}
    assert not is_report(write([of_nccl]))
    assert is_report(write([{**of_nccl, "cat": "kernel", "ph": "X"}]))
    assert not is_report(write(trace(), "trace.txt"))
    assert not is_report(tmp_path / "missing.json")


def test_a_trace_of_another_tool_is_refused(write):
    path = write({"traceEvents": [{"ph": "X", "cat": "blink", "name": "paint", "ts": 1, "dur": 2}]})
    with pytest.raises(InputError, match="another tool"):
        open_report(path)


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_a_compressed_trace_that_breaks_off_early_is_read_as_far(write, kind):
    """Nearly all events whose bytes are there are read, also where they are less than a first large piece."""
    events = [
        event("cpu_op", f"aten::op{n * 7919 % 100_003}", 1_000_000 + n, 1, **{"External id": n * 31 % 8192})
        for n in range(4000)
    ]
    path = write(trace(events), f"a.json.{kind}")
    packed = path.read_bytes()
    path.write_bytes(packed[: len(packed) // 2])
    reader = open_report(path)
    read = sum(b.num_rows for _, b in reader.stream(("ranges",)))
    assert [w.text for w in reader.report.warnings] == [
        "the trace is cut short: the complete part was read, the rest is missing"
    ]
    reader.close()
    if kind == "gz":
        there = zlib.decompressobj(47).decompress(packed[: len(packed) // 2]).count(b"External id")
        assert there - 150 < read <= there  # an event has some 130 bytes, and up to 16 KiB are lost
        assert there < 3000


def test_metadata_that_no_profiler_writes_does_no_harm(write):
    odd = [{"id": 0, "name": "H\ud800", "uuid": "GPU-\udfff"}, {"id": True, "name": "no number"}]
    reader = open_report(write(json.dumps(trace(deviceProperties=odd))))
    assert list(reader.stream(("kernels",)))
    assert [(d["ordinal"], d["uuid"]) for d in reader.dictionaries()["devices"].to_pylist()] == [(0, "GPU-?")]
    assert "H?" in reader.dictionaries()["names"].column("value").to_pylist()
    reader.close()


def test_members_nested_without_end_are_none(write):
    given = {
        "Collective name": "allreduce",
        "Process Group Name": "0",
        "Process Group Ranks": "[" * 100_000,
        "Group size": 2,
    }
    (row,) = rows_of(
        write(json.dumps(trace([gpu("kernel", "ncclDevKernel_AllReduce", 10, 5, 1, **given)]))), "collectives"
    )
    assert (row["op"], row["group_size"], row["group_rank"]) == ("AllReduce", 2, None)


def test_members_of_a_group_are_looked_at_once_and_not_for_each_operation(write, monkeypatch):
    from alltrace.readers.kineto import communication

    looks = []

    class Members(tuple):
        __slots__ = ()

        def __contains__(self, rank):
            looks.append(rank)
            return super().__contains__(rank)

        def __hash__(self):
            looks.append("hash")
            return super().__hash__()

    monkeypatch.setattr(communication, "_ranks", lambda listed: Members(json.loads(listed)) if listed else ())
    given = {"Collective name": "broadcast", "dtype": "Int", "In msg nelems": 1, "Root": 1, **GROUP}
    events = [gpu("kernel", "ncclDevKernel_Broadcast", 10 + 5 * i, 5, i + 1, **given) for i in range(50)]
    rows = rows_of(write(json.dumps(trace(events))), "collectives")
    assert [(r["root"], r["group_rank"], r["group_size"]) for r in rows] == [(1, 1, 2)] * 50
    assert len(looks) < 10


@pytest.mark.parametrize("base", [10**30, -(10**19), 2**63 - 1])
def test_a_base_that_is_no_time_makes_times_relative(write, base):
    reader = open_report(write(json.dumps(trace(baseTimeNanoseconds=base))))
    assert reader.report.utc_ns is None
    assert "the trace's start time is implausible: its times are not absolute" in map(str, reader.report.warnings)
    reader.close()


def memory(ts, size, **args):
    about = {
        "Device Type": 1,
        "Device Id": 0,
        "Addr": 4096,
        "Bytes": size,
        "Total Allocated": 512,
        "Total Reserved": 2048,
        **args,
    }
    about = {k: v for k, v in about.items() if v is not None}
    return {
        "ph": "i",
        "s": "t",
        "cat": "cpu_instant_event",
        "name": "[memory]",
        "pid": 4000,
        "tid": 4001,
        "ts": ts,
        "args": about,
    }


def test_blocks_of_the_allocator_are_allocations(write):
    old = dict.fromkeys(("Addr", "Total Allocated", "Total Reserved"))  # PyTorch 1.8 had none of these
    events = [
        *EVENTS,
        memory(1_000_200.5, 512),
        memory(1_000_201, -512, **{"Total Allocated": 0}),
        memory(1_000_202, 64, **{"Device Type": 0, "Device Id": -1}),
        memory(1_000_203, 8, **{"Device Type": 40, "Device Id": 2, **old}),
        {**memory(0, 8), "ts": "soon"},
    ]
    path = write(trace(events))
    facts = tuple("time thread device memory kind bytes address allocated_bytes reserved_bytes source_row".split())
    assert [tuple(r[f] for f in facts) for r in rows_of(path, "allocations")] == [
        (200_500, 0, 0, "cuda", "allocate", 512, 4096, 512, 2048, 17),
        (201_000, 0, 0, "cuda", "free", 512, 4096, 0, 2048, 18),
        (202_000, 0, None, "cpu", "allocate", 64, 4096, 512, 2048, 19),
        (203_000, 0, 1, "device 40", "allocate", 8, None, None, None, 20),
    ]
    assert warnings_of(path)[1] == ("events left out because their start or duration is missing, 0 or not a number: 1",)


@pytest.mark.parametrize(
    ("category", "table"),
    [
        ("xpu_runtime", "api"),
        ("mtia_runtime", "api"),
        ("hpu_op", "api"),
        ("xpu_driver", "api"),
        ("mtia_ccp_events", "kernels"),
    ],
)
def test_events_of_other_backends_are_calls_and_kernels(write, category, table):
    path = write(trace([gpu(category, "work", 1_000_000, 5, 1)]))
    assert [r["name"] for r in rows_of(path, table)] == ["work"]
    assert warnings_of(path)[1] == ()


def test_device_work_of_a_category_that_is_not_known_is_kept_and_named(write):
    events = [*EVENTS, gpu("npu_kernel", "matmul", 1_000_300, 7, 5), event("npu_counter", "range", 1_000_301, 7)]
    path = write(trace([*events, *[event("npu_counter", "range", 1_000_301, 7)]]))
    assert [(r["name"], r["start"], r["stream"]) for r in rows_of(path, "kernels")][2:] == [
        ("matmul", us(1_000_300), 7)
    ]
    assert warnings_of(path)[1] == (
        "events of the unknown category `npu_counter`, left out because they have no device and no stream: 2",
        "events of the unknown category `npu_kernel`, read as kernels because they have a device and a stream: 1",
    )


@pytest.mark.parametrize(
    ("stated", "name", "host"),
    [
        ("n7", "rank_1.json", "n7"),
        ("n7", "other_4000.1.pt.trace.json", "n7"),
        ("", "other_4000.1.pt.trace.json", "other"),
        (3, "rank_1.json", None),
    ],
)
def test_the_host_is_the_one_that_the_trace_states(write, stated, name, host):
    reader = open_report(write(trace(host_name=stated), name))
    assert reader.report.host == host
    reader.close()


def gloo(name, ts, dims="[[8, 4]]", **others):
    types = {"Input Dims": json.loads(dims), "Input type": ["float"]}
    return event("user_annotation", f"gloo:{name}", ts, 30, tid=4002, **{**types, **others})


def test_collectives_of_a_backend_on_the_host_are_its_ranges(write):
    group = {"pg_name": "0", "backend_config": "cpu:gloo,cuda:nccl", "pg_size": 2, "ranks": [0, 1]}
    events = [
        gloo("all_reduce", 1_000_010), gloo("reduce_scatter", 1_000_050), gloo("barrier", 1_000_090, "[]"),
        gloo("send", 1_000_130), gloo("all_gather", 1_000_170, "[[-3]]"),
        event("user_annotation", "gloomy:all_reduce", 1_000_200, 5),
    ]  # fmt: skip
    facts = ("op", "start", "end", "api_start", "communicator", "group_size", "bytes", "count", "datatype", "device")
    path = write(trace(events, distributedInfo={**RANK_1, "pg_config": [group]}))
    whole = ("pg 0 [0, 1]", 2)
    assert [tuple(r[f] for f in facts) for r in rows_of(path, "collectives")] == [
        ("AllReduce", us(1_000_010), us(1_000_040), us(1_000_010), *whole, 128, 32, "float32", None),
        ("ReduceScatter", us(1_000_050), us(1_000_080), us(1_000_050), *whole, None, None, "float32", None),
        ("Barrier", us(1_000_090), us(1_000_120), us(1_000_090), *whole, None, None, "float32", None),
        ("AllGather", us(1_000_170), us(1_000_200), us(1_000_170), *whole, None, None, "float32", None),
    ]
    two = {**RANK_1, "pg_config": [group, {**group, "pg_name": "1"}]}
    assert {
        r["communicator"] for r in rows_of(write(trace(events, distributedInfo=two), "two.json"), "collectives")
    } == {None}
    assert rows_of(write(trace([*events, gpu("kernel", "gemm", 1_000_300, 5, 1)]), "gpu.json"), "collectives") == []


def test_a_trace_of_how_graphs_were_captured_tells_of_its_rank_and_has_no_work_of_its_own(write, tmp_path):
    (tmp_path / "capture_traces").mkdir()
    path = write(trace(), "capture_traces/graph_capture_rank_1.json")
    reader = open_report(path)
    assert (reader.report.companion, reader.report.tables) == (True, ("api", "ranges", "frames"))
    assert {table for table, _ in reader.stream(tuple(TABLES))} == {"api", "ranges", "frames"}
    reader.close()
    assert not open_report(write(trace())).report.companion


def test_work_without_arguments_is_of_the_device_and_stream_of_its_ids(write):
    bare = {"ph": "X", "cat": "kernel", "name": "k", "pid": 2, "tid": 9, "ts": 1_000_050, "dur": 3}
    (kernel,) = rows_of(write(trace([bare])), "kernels")
    other = [gpu("kernel", "k", 1_000_050, 3, 5), bare | {"pid": 0, "tid": 7, "ts": 1_000_060}]
    both = rows_of(write(trace(other), name="other.pt.trace.json"), "kernels")
    of_process = [event("cpu_op", "o", 1_000_000, 1), bare | {"pid": 4000}]  # as other backends may write it
    assert rows_of(write(trace(of_process), name="process.pt.trace.json"), "kernels")[0]["device"] is None
    assert (kernel["device"], kernel["stream"], kernel["correlation"]) == (0, 9, None)
    assert [(r["device"], r["stream"]) for r in both] == [(0, 7), (0, 7)]


def test_kernels_with_the_id_of_their_call_alone_are_joined_by_it(write):
    """As PyTorch for ROCm writes them. Where kernels have correlations too, the id is that of an operator."""
    events = [
        {
            "ph": "X",
            "cat": "cuda_runtime",
            "name": "hipExtModuleLaunchKernel",
            "pid": 9,
            "tid": 9,
            "ts": 1_000_010,
            "dur": 3,
            "args": {"External id": 26},
        },
        {
            "ph": "X",
            "cat": "kernel",
            "name": "Cijk",
            "pid": 2,
            "tid": 0,
            "ts": 1_000_050,
            "dur": 5,
            "args": {"External id": 26},
        },
    ]
    path = write(trace(events))
    assert [r["correlation"] for table in ("api", "kernels") for r in rows_of(path, table)] == [26, 26]
    path = write(trace([*events, gpu("kernel", "k", 1_000_060, 3, 5)]), name="mixed.pt.trace.json")
    assert [r["correlation"] for table in ("api", "kernels") for r in rows_of(path, table)] == [None, None, 5]


def merged(label, count=12):
    return [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": "o",
            "pid": label(rank),
            "tid": 1,
            "ts": 1_000_000 + n,
            "dur": 1,
            "args": {},
        }
        for rank in range(2)
        for n in range(count)
    ]


@pytest.mark.parametrize(
    ("events", "shown"),
    [
        (merged(lambda rank: 1000 + rank), "2 processes .process 1000, process 1001."),
        (merged(lambda rank: f"[host{rank}] 1000"), r"2 processes .process \[host0\] 1000, process \[host1\] 1000."),
        ([*merged(lambda rank: f"rank{rank} 17"), *merged(lambda _: 5)], "2 processes .rank 0, rank 1."),
        ([*merged(lambda rank: f"rank{rank} 17"), gpu("kernel", "k", 1_000_000, 3, 5)], "2 processes .rank 0, rank 1."),
    ],
)
def test_a_trace_that_was_merged_and_does_not_name_the_ranks_of_all_is_refused(write, events, shown):
    reader = open_report(write(trace(events)))
    with pytest.raises(
        InputError,
        match=f"it holds {shown}, as a trace does that was merged.*give the traces from before they were merged",
    ):
        _ = reader.report


def of_sglang(rank, event):
    return {**event, "pid": f"[TP{rank:02}-DP00-PP00-EP00] {event['pid']}"}


def of_tracefusion(rank, event):
    own = {"pid_raw": event["pid"], "rank": rank}
    return {**event, "pid": event["pid"] + 10**6 * rank, "args": {**event.get("args", {}), **own}}


def of_named_processes(rank, event):
    return {**event, "pid": event["pid"] + 10**6 * rank}


def of_one_rank(rank):
    """A rank's own trace: calls on two threads, and what they launched on a device of its own."""
    events = []
    for n in range(12):
        call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 900 + rank, "tid": 1 + n % 2}
        work = gpu("kernel", f"k{rank}", 1_000_010 + 100 * n, 30 + rank, n + 1)
        events.append({**call, "ts": 1_000_000 + 100 * n, "dur": 5, "args": {"correlation": n + 1}})
        events.append({**work, "pid": rank, "args": {**work["args"], "device": rank}})
    return events


@pytest.mark.parametrize("form", [of_sglang, of_tracefusion, of_named_processes])
def test_a_trace_that_was_merged_of_several_ranks_is_split(write, tmp_path, form):
    ranks = (0, 1, 10)
    names = [
        {"ph": "M", "name": "process_name", "pid": pid + 10**6 * rank, "args": {"name": f"{what} of rank {rank}"}}
        for rank in ranks
        for pid, what in ((900 + rank, "python"), (rank, "GPU"))
    ]
    events = [form(rank, event) for rank in ranks for event in of_one_rank(rank)]
    whole = trace(events + (names if form is of_named_processes else []), distributedInfo={"rank": 1, "world_size": 3})
    import_reports([str(write(whole))], tmp_path / "run", jobs=1)
    run = alltrace.open(tmp_path / "run")
    assert tuple(r.rank for r in run.ranks) == ranks
    for own, rank in zip(ranks, run.ranks, strict=True):
        assert rank.pids == (900 + own + (10**6 * own if form is of_named_processes else 0),)
        assert [d.ordinal for d in rank.devices] == [own]
        stored = run.rank(rank.rank)
        kernels = stored.table("kernels", ["correlation", "short_name"])
        assert stored.texts(kernels.column("short_name")).to_pylist() == [f"k{own}"] * 12
        assert kernels.column("correlation").to_pylist() == list(range(1, 13))
        assert sorted(stored.table("threads", ["tid"]).column("tid").to_pylist()) == [1, 2]
        assert rank.rows["api"] == 12


def test_ranks_of_a_merged_trace_on_one_ordinal_are_of_several_hosts(write, tmp_path):
    events = [of_sglang(rank, event) for rank in (0, 1) for event in of_one_rank(0)]
    import_reports([str(write(trace(events)))], tmp_path / "run", jobs=2)
    assert [(r.rank, r.host, r.rows["kernels"]) for r in alltrace.open(tmp_path / "run").ranks] == [
        (0, "host-0", 12), (1, "host-1", 12),
    ]  # fmt: skip


def test_few_events_of_another_process_are_no_second_rank(write):
    events = merged(lambda _: 7)
    events += [
        {"ph": "X", "cat": "cpu_op", "name": "o", "pid": 0, "tid": 1, "ts": 1_000_000 + n, "dur": 1, "args": {}}
        for n in range(20)
    ]
    events += [{"ph": "X", "cat": "cpu_op", "name": "o", "pid": 8, "tid": 1, "ts": 1_000_000, "dur": 1, "args": {}}]
    events += [{"ph": "M", "name": "process_name", "pid": 7, "args": {"name": "worker_TP1"}}]
    assert open_report(write(trace(events))).report.processes[0].pid == 7


@pytest.mark.parametrize(
    ("behind", "said"),
    [("", False), ("\n\n", False), ("\0\0", False), (" {}", True), (json.dumps(trace(EVENTS)), True)],
)
def test_a_second_document_in_a_file_is_said(write, behind, said):
    texts = warnings_of(write(json.dumps(trace(EVENTS)) + behind))[1]
    assert any("the file goes on after the end of its JSON" in text for text in texts) == said


SECOND = json.dumps(trace([gpu("kernel", "other", 1_000_000, 5, 1)], distributedInfo={**RANK_1, "rank": 0})).encode()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.json", json.dumps(trace()).encode() + b"\r\n" + SECOND[: len(SECOND) // 2]),
        ("a.json", json.dumps(EVENTS).encode() + json.dumps([gpu("kernel", "other", 1_000_000, 5, 1)]).encode()),
        ("a.json", json.dumps(trace()).encode() + b"\n]}"),
        ("a.json.gz", json.dumps(trace()).encode() + SECOND),
        ("a.json.zst", json.dumps(trace()).encode() + SECOND),
    ],
    ids=["cut", "lists", "brackets", "gzip", "zstd"],
)
def test_what_stands_behind_a_trace_changes_nothing_of_it_and_is_said(write, name, data):
    path = write(data, name)
    assert [r["short_name"] for r in rows_of(path, "kernels")] == ["gemm", "ncclDevKernel_AllGather_RING_LL"]
    assert [text for text in warnings_of(path)[1] if "goes on after the end of its JSON" in text]


def test_a_second_member_of_a_gzip_file_is_said(write):
    path = write(name="a.json.gz")
    path.write_bytes(path.read_bytes() + gzip.compress(SECOND))
    assert len(rows_of(path, "kernels")) == 2
    assert [text for text in warnings_of(path)[1] if "goes on after the end of its JSON" in text]


@pytest.mark.parametrize("base", [None, BASE_NS])
def test_events_at_time_0_are_left_out_and_the_others_keep_theirs(write, base):
    """As PyTorch 2.12 writes: from the middle on all times are 0, or 0 less the base of the trace."""
    epoch_us = 0 if base else BASE_NS // 1000
    zero_us = -BASE_NS // 1000 if base else 0
    events = [gpu("kernel", "k", epoch_us + 1_000_000 + 10 * n, 5, n + 1) for n in range(4)]
    events += [gpu("kernel", "k", zero_us, duration, 9) for duration in (0, 5, 0, 0, 0, 5)]
    path = write(trace(events, **({"baseTimeNanoseconds": base} if base else {"baseTimeNanoseconds": 0})))
    assert [(r["start"], r["end"]) for r in rows_of(path, "kernels")] == [
        (10_000 * n, 10_000 * n + 5_000) for n in range(4)
    ]
    assert warnings_of(path)[1] == ("events left out because their start or duration is missing, 0 or not a number: 6",)


def test_times_that_count_from_the_start_of_the_machine_may_begin_at_0(write):
    events = [gpu("kernel", "k", 10.0 * n, 5, n + 1) for n in range(4)]
    path = write(trace(events, baseTimeNanoseconds=0))
    assert len(rows_of(path, "kernels")) == 4


def test_events_that_only_begin_are_left_out_and_counted(write):
    begun = {"ph": "B", "cat": "cpu_op", "name": "aten::add", "pid": 7, "tid": 1, "ts": 1_000_000, "args": {}}
    path = write(trace([gpu("kernel", "k", 1_000_000, 5, 1), begun, begun, {**begun, "cat": "fwdbwd"}]))
    assert rows_of(path, "ranges") == []
    assert "events left out because they begin and do not end (`ph` is B): 2" in warnings_of(path)[1]


def test_a_name_of_null_is_no_name(write):
    path = write(trace([gpu("kernel", "k", 1_000_000, 5, 1), {**gpu("kernel", "k", 1_000_010, 5, 2), "name": None}]))
    assert [(r["name"] is None, r["kind"]) for r in rows_of(path, "kernels")] == [(False, None), (True, None)]


def test_groups_of_size_0_have_the_size_of_their_list(write):
    args = {"Collective name": "allreduce", "In msg nelems": 4, "Out msg nelems": 4, "dtype": "Float", "Group size": 0}
    kernel = gpu("kernel", "ncclDevKernel_AllReduce", 1_000_000, 5, 1)
    kernel["args"] |= {**args, "Process Group Name": "0", "Process Group Ranks": "[0, 1, 2]"}
    path = write(trace([kernel]))
    assert [r["group_size"] for r in rows_of(path, "collectives")] == [3]
    assert "events that name a group of size 0; its size is that of its list of ranks: 1" in warnings_of(path)[1]


def test_launches_are_held_only_if_communication_is_joined_with_them(write):
    """A trace has several launches for each kernel: they wait on disk, and are no rows of a table."""
    count = 30_000
    calls = [event("cuda_runtime", "cudaLaunchKernel", 1_000_200 + n, 1, correlation=100 + n) for n in range(count)]
    path, rows = write(trace([*EVENTS, *calls])), []
    with closing(open_report(path)) as reader:
        reader.report  # noqa: B018
        reader.advance = rows.append
        tracemalloc.start()
        try:
            (batch,) = [batch for _, batch in reader.stream(["collectives"])]
            size, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert sum(rows) == sum(b.num_rows for table, b in reader.stream(EVENT_TABLES) if table != "collectives")
    assert batch.column("api_start").to_pylist() == [us(1_000_100)]
    assert size < 16 * count
