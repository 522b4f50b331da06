import gzip
import re

import pytest
from tests.making import HOSTILE, collective, copy, kernel, make_run
from tests.paraver_checks import well_formed

from alltrace.export.paraver.writer import export_paraver
from alltrace.export.selection import select
from alltrace.readers.paraver import labels as ev
from alltrace.trace.errors import UsageError
from alltrace.trace.schema import EVENT_TABLES

CALL = {"name": "cudaLaunchKernel_v7000", "kind": "runtime"}


def exported(tmp_path, ranks, *, name="out.prv", making=None, window_ns=None, only=None, align=False, **options):
    run = make_run(tmp_path / "run", ranks, **(making or {}))
    if align:
        run.aligned()
    written = export_paraver(select(run, window_ns=window_ns, only=only), tmp_path / name, **options)
    data = (tmp_path / name).read_bytes()
    text = (gzip.decompress(data) if name.endswith(".gz") else data).decode()
    lines = text.split("\n")
    assert lines.pop() == ""
    report = well_formed(tmp_path / name)
    header, records = lines[0], [line for line in lines[1:] if not line.startswith("#")]
    assert len(records) == report.records
    return written, re.sub(r"\(../../.... at ..:..\)", "(D)", header), records


def labels(tmp_path):
    return {t: e.values for e in ev.read_pcf(tmp_path / "out.pcf") for t in e.types}


def test_every_record_byte_by_byte(tmp_path):
    rows = {
        "api": [{"start": 1000, "end": 1500, "correlation": 1, **CALL}],
        "kernels": [kernel(1400, 2000, correlation=1), kernel(2000, 2300, "other(int)")],
        "copies": [copy(2100, 2200, bytes=2**33)],
    }
    written, header, records = exported(tmp_path, {5: rows})
    assert header == "#Paraver (D):1300_ns:1(1):1:1(3:1)"
    assert (written.tasks, written.threads) == (1, 3)
    assert (written.states, written.events, written.communications) == (6, 8, 1)
    assert records == [
        "1:1:1:1:2:0:400:0",
        "1:1:1:1:3:0:1100:0",
        "1:0:1:1:1:0:1300:1",
        "2:0:1:1:1:0:63000000:1",
        "3:0:1:1:1:0:400:1:1:1:2:400:400:0:55001",
        "1:1:1:1:2:400:1300:1",
        "2:1:1:1:2:400:63000006:1",
        "2:0:1:1:1:500:63000000:0",
        "2:1:1:1:2:1000:63000006:0",
        "2:1:1:1:2:1000:63000006:2",
        "1:1:1:1:3:1100:1200:17",
        f"2:1:1:1:3:1100:63000001:1:63000002:{2**33}",
        "2:1:1:1:3:1200:63000001:0:63000002:0",
        "1:1:1:1:3:1200:1300:0",
        "2:1:1:1:2:1300:63000006:0",
    ]
    assert (
        (tmp_path / "out.row").read_text()
        == "LEVEL CPU SIZE 1\nhost0.GPU-5\n\nLEVEL NODE SIZE 1\nhost0\n\nLEVEL TASK SIZE 1\nrank 5\n\nLEVEL THREAD SIZE 3\nTHREAD 1.1.1 (main)\nCUDA-D0.S7-host0\nCUDA-D0.S30-host0\n"  # noqa: E501
    )
    assert labels(tmp_path)[ev.CALL] == {0: "End", 1: "cudaLaunchKernel"}
    assert labels(tmp_path)[ev.KERNEL] == {0: "End", 1: "gemm_kernel", 2: "other"}


def test_intervals_without_length_and_hosts_with_their_gpus(tmp_path):
    rows = {"kernels": [kernel(0, 100, "a()"), kernel(100, 100, "b()"), kernel(100, 200, "c()")]}
    _, _, records = exported(tmp_path, {0: rows})
    assert [r[10:] for r in records if r.startswith("2")] == (
        "0:63000006:1 100:63000006:0 100:63000006:2 100:63000006:0 100:63000006:3 200:63000006:0"
    ).split()
    ranks = {r: {"kernels": [kernel(0, 10 + r)]} for r in range(3)}
    _, header, records = exported(tmp_path / "2", ranks, making={"hosts": {0: "a", 1: "b", 2: "b"}})
    assert header == "#Paraver (D):12_ns:2(1,2):1:3(1:1,1:2,1:2)"
    assert [r for r in records if ":63000006:1" in r] == (
        "2:1:1:1:1:0:63000006:1 2:2:1:2:1:0:63000006:1 2:3:1:3:1:0:63000006:1"
    ).split()


def test_ranges_give_the_innermost_name_and_the_depth(tmp_path):
    spans = [(0, 100, "a"), (10, 50, "b"), (20, 50, "c"), (50, 60, "b"), (60, 60, "a")]
    rows = {"ranges": [{"start": s, "end": e, "name": n, "kind": "pushpop"} for s, e, n in spans]}
    rows["ranges"].append({"start": 5, "end": None, "name": "open", "kind": "startend"})
    rows["ranges"].append({"start": 7, "end": 8, "name": "mine", "kind": "pushpop", "domain": "Lib"})
    _, _, records = exported(tmp_path, {0: rows})
    found = [tuple(map(int, r.split(":")[5:])) for r in records if ":64100001:" in r]
    a, b, c = 1, 2, 3
    assert [(t, v, d) for t, _, v, _, d in found] == [
        (0, a, 1), (10, b, 2), (20, c, 3), (50, b, 2), (50, a, 1), (50, b, 2), (60, a, 1), (60, a, 2), (60, a, 1),
        (100, 0, 0),
    ]  # fmt: skip
    assert [r for r in records if ":9004:" in r] == ["2:0:1:1:1:5:9004:5", "2:0:1:1:1:100:9004:0"]
    names = {t: n for e in ev.read_pcf(tmp_path / "out.pcf") for t, n in e.types.items()}
    assert (names[64000000], names[64000001]) == ("NVTX Lib", "NVTX default")


def test_states_are_complete_and_the_strongest_wins(tmp_path):
    rows = {
        "api": [
            {"start": 0, "end": 30, "name": "cudaStreamSynchronize", "kind": "runtime"},
            {"start": 40, "end": 50, "name": "cudaMemcpy", "kind": "runtime"},
        ],
        "mpi": [
            {
                "start": 20,
                "end": 35,
                "name": "MPI_Allreduce",
                "kind": "collective",
                **dict.fromkeys(("sent_bytes", "recv_bytes"), 32),
                "bytes": 8,
            }
        ],
        "kernels": [collective(10, 60, stream=7), kernel(20, 30)],
        "copies": [copy(55, 70, stream=7)],
    }
    _, _, records = exported(tmp_path, {0: rows})
    states = [tuple(map(int, r.split(":")[4:])) for r in records if r.startswith("1")]
    assert [s[1:] for s in states if s[0] == 1] == [(0, 30, 5), (30, 35, 13), (35, 40, 1), (40, 50, 17), (50, 70, 1)]
    assert [s[1:] for s in states if s[0] == 2] == [(0, 10, 0), (10, 20, 13), (20, 30, 1), (30, 60, 13), (60, 70, 17)]
    assert "2:0:1:1:1:20:50000002:10:50100001:8:50100002:8" in records
    assert "2:0:1:1:1:35:50000002:0:50100001:0:50100002:0" in records


def test_messages_meet_and_waits_join_their_work(tmp_path):
    def calls(name, peer, times, **others):
        own = {"name": name, "kind": "p2p", "peer": peer, "tag": 4, "thread": 0, "communicator": 1, **others}
        return [{"start": t, "end": t + 5, "bytes": 64 + t, **own} for t in times]

    # the communicator numbers the ranks the other way round
    world = {"communicator": 1, "parent": 0, "size": 2, "process": 0}
    wait = {"start": 30, "end": 35, "name": "MPI_Wait", "kind": "start-wait", "thread": 0, "request": 7}
    received = [*calls("MPI_Irecv", 1, [3], request=7), wait, *calls("MPI_Recv", 1, [40, 90])]
    ranks = {
        rank: {"mpi": rows, "communicators": [{**world, "group_rank": 1 - rank}]}
        for rank, rows in enumerate((calls("MPI_Send", 0, [0, 10]), received))
    }
    _, _, records = exported(tmp_path, ranks, align=True)
    assert [r for r in records if r.startswith("3")] == [
        "3:0:1:1:1:0:0:0:1:2:1:35:35:64:4",  # until the call has ended that completes the receive
        "3:0:1:1:1:10:10:0:1:2:1:45:45:74:4",
    ]
    both = [{**world, "communicator": n, "uid": n} for n in (1, 2)]
    sent = calls("MPI_Send", 1, [0]) + calls("MPI_Send", 1, [10], communicator=2)
    received = calls("MPI_Recv", 0, [20], communicator=2) + calls("MPI_Recv", 0, [40])
    ranks = {
        rank: {"mpi": rows, "communicators": [{**c, "group_rank": rank} for c in both]}
        for rank, rows in enumerate((sent, received))
    }
    _, _, records = exported(tmp_path / "two", ranks, align=True)
    assert [r for r in records if r.startswith("3")] == [
        "3:0:1:1:1:0:0:0:1:2:1:45:45:64:4",
        "3:0:1:1:1:10:10:0:1:2:1:25:25:74:4",
    ]
    # a report that names no communicator, and a program of one rank, which has none with others
    ranks = {0: {"mpi": calls("MPI_Send", 1, [0])}, 1: {"mpi": calls("MPI_Recv", 0, [20])}}
    _, _, records = exported(tmp_path / "unnamed", ranks, align=True)
    assert [r for r in records if r.startswith("3")] == ["3:0:1:1:1:0:0:0:1:2:1:25:25:64:4"]
    itself = [*calls("MPI_Irecv", 0, [3], request=7), *calls("MPI_Send", 0, [10]), wait]
    _, _, records = exported(
        tmp_path / "itself", {0: {"mpi": itself, "communicators": [{**world, "size": 1, "group_rank": 0}]}}, align=True
    )
    assert [r for r in records if r.startswith("3")] == ["3:0:1:1:1:7:7:0:1:1:1:32:32:74:4"]  # from the first event on
    rows = {
        "api": [{"start": 50, "end": 210, "name": "cudaStreamSynchronize", "correlation": 9, "kind": "runtime"}],
        "kernels": [kernel(0, 100), kernel(100, 200), kernel(300, 400)],
        "syncs": [{"start": 55, "end": 205, "kind": "stream", "correlation": 9}],
    }
    _, _, records = exported(tmp_path / "2", {0: rows})
    assert [r for r in records if r.startswith("3")] == ["3:1:1:1:2:200:200:0:1:1:1:210:210:0:55003"]


def test_sends_of_nccl_meet_their_receives(tmp_path):
    def side(op, group_rank, peer, start):
        row = {
            "start": start,
            "end": start + 50,
            "communicator": "c",
            "op": op,
            "peer": peer,
            "group_rank": group_rank,
            "bytes": 1024,
        }
        return {
            "kernels": [kernel(start, start + 50, "ncclDevKernel_SendRecv()", stream=20)],
            "collectives": [{**row, "stream": 20, "sequence": 3}],
        }

    _, _, records = exported(tmp_path, {0: side("Send", 0, 1, 0), 1: side("Recv", 1, 0, 10)})
    assert [r for r in records if r.startswith("3")] == ["3:1:1:1:1:0:0:2:1:2:1:60:60:1024:55004"]
    assert "2:1:1:1:1:0:63000210:2:63000211:1024:63000212:0:63000213:3" in records
    assert "2:1:1:1:1:0:63000207:1" in records
    _, _, records = exported(tmp_path / "both", {0: side("SendRecv", 0, 1, 0), 1: side("SendRecv", 1, 0, 10)})
    assert [r for r in records if r.startswith("3")] == [
        "3:1:1:1:1:0:0:2:1:2:1:60:60:1024:55004",
        "3:2:1:2:1:10:10:1:1:1:1:50:50:1024:55004",
    ]


def test_a_receive_of_nccl_without_an_end_ends_where_it_starts(tmp_path):
    def side(op, number, ends):
        row = {"communicator": "c", "op": op, "peer": 1 - number, "group_rank": number, "bytes": 8, "stream": 20}
        return {
            "kernels": [kernel(0, 200, stream=20)],
            "collectives": [{**row, "start": s, "end": e, "sequence": s} for s, e in zip((0, 90), ends, strict=True)],
        }

    _, _, records = exported(tmp_path, {0: side("Send", 0, (50, 150)), 1: side("Recv", 1, (None, 150))})
    assert [r for r in records if r.startswith("3")] == [
        "3:1:1:1:1:0:0:2:1:2:1:0:0:8:55004",
        "3:1:1:1:1:90:90:2:1:2:1:150:150:8:55004",
    ]


def test_samples_hold_over_the_period_before_them(tmp_path):
    rows = {
        "kernels": [kernel(0, 400)],
        "gpu_metrics": [
            {"time": t, "metric": "SM Active", "value": v}
            for t, v in ((100, 80), (200, 12.34), (300, float("nan")), (350, -1))
        ],
    }
    _, _, records = exported(tmp_path, {0: rows})
    assert [r for r in records if ":66800000:" in r] == (
        "2:1:1:1:2:0:66800000:8000 2:1:1:1:2:100:66800000:1234 2:1:1:1:2:300:66800000:-100"
    ).split()
    assert "PRECISION 2" in (tmp_path / "out.pcf").read_text()
    assert "Metrics GPU0" in (tmp_path / "out.row").read_text()


@pytest.mark.parametrize("names", [HOSTILE, ("a:b:c", "1:2:3", "\u2028", "x" * 100_000)])
def test_hostile_names_are_one_line_each(tmp_path, names):
    rows = {
        "ranges": [{"start": i, "end": i + 1, "name": n, "kind": "pushpop", "domain": n} for i, n in enumerate(names)],
        "kernels": [kernel(i, i + 1, n) for i, n in enumerate(names)],
        "threads": [{"thread": 0, "process": 0, "name": names[2]}],
    }
    exported(tmp_path, {0: rows}, making={"hosts": {0: "h\nost: 核"}})
    for suffix in (".pcf", ".row"):
        text = (tmp_path / f"out{suffix}").read_text(encoding="utf-8")
        assert all(line.isprintable() for line in text.split("\n"))
    found = labels(tmp_path)[ev.KERNEL]
    assert len(found) == len(names) + 1
    assert "" not in found.values()


def test_values_past_32_bits_and_times_before_zero(tmp_path):
    rows = {"kernels": [kernel(2**52, 2**52 + 2**40)], "copies": [copy(0, 2**33, bytes=2**60)]}
    _, header, records = exported(tmp_path, {0: rows})
    assert f":{2**52 + 2**40}_ns:" in header
    assert f"2:1:1:1:2:0:63000001:1:63000002:{2**60}" in records
    _, header, records = exported(
        tmp_path / "2", {0: {"kernels": [kernel(-500, -100)]}, 1: {"kernels": [kernel(-200, 0)]}}
    )
    assert ":500_ns:" in header
    assert [r for r in records if r.endswith(":63000006:1")] == ["2:1:1:1:1:0:63000006:1", "2:2:1:2:1:300:63000006:1"]


@pytest.mark.parametrize("rows", [{}, {t: [] for t in EVENT_TABLES}])
def test_a_rank_without_events_is_a_thread(tmp_path, rows):
    written, header, records = exported(tmp_path, {0: rows})
    assert header == "#Paraver (D):1_ns:1(1):1:1(1:1)"
    assert (written.threads, records) == (1, [])


def test_too_many_threads_are_refused_or_folded(tmp_path):
    rows = {"kernels": [kernel(i, i + 1, stream=i) for i in range(300)]}
    ranks = dict.fromkeys(range(2), rows)
    run = make_run(tmp_path / "run", ranks)
    import alltrace.export.paraver.writer as resources

    monkey = pytest.MonkeyPatch()
    with monkey.context() as patch:
        patch.setattr(resources, "MOST_OBJECTS", 599)
        with pytest.raises(UsageError, match=r"600 threads; Paraver can number 599; give --fold-streams"):
            export_paraver(select(run), tmp_path / "out.prv")
        assert not list(tmp_path.glob("*out*"))
        written = export_paraver(select(run), tmp_path / "out.prv", fold_streams=True)
    assert written.threads == 2
    assert well_formed(tmp_path / "out.prv").records == 1202
    assert "CUDA-D0-host0" in (tmp_path / "out.row").read_text()
    assert resources.MOST_OBJECTS == 65_535


def test_details_numbers_and_domains_of_nsys2prv(tmp_path):
    rows = {"kernels": [collective(0, 10, correlation=8, registers=64, grid_x=3, local_memory=2**33)]}
    _, _, records = exported(tmp_path, {0: rows}, ids="nsys2prv", details=True)
    assert (
        records[1]
        == f"2:1:1:1:1:0:63000007:1:9101:3:9102:0:9103:0:9104:0:9105:0:9106:0:9107:0:9108:0:9109:{2**33}:9110:64:9200:8"
    )
    exported(tmp_path / "2", {0: {"ranges": DOMAINS}})
    kinds = [(e.types, e.values) for e in ev.read_pcf(tmp_path / "2" / "out.pcf")]
    assert kinds[:4] == [
        ({64000000: "NVTX ALIB"}, {0: "Outside", 2: "b"}),
        ({64000001: "NVTX NCCL"}, {0: "Outside", 1: "a"}),
        ({64000002: "NVTX ZLIB"}, {0: "Outside", 2: "b"}),
        ({64000003: "NVTX default"}, {0: "Outside", 2: "b", 3: "c"}),
    ]


def _range(start, name, domain=None):
    return {"start": start, "end": start + 1, "name": name, "domain": domain, "kind": "pushpop"}


DOMAINS = [_range(0, "a", "NCCL"), _range(2, "b", "ZLIB"), _range(4, "b", "ALIB"), _range(6, "c"), _range(8, "b")]


def test_domains_values_and_labels_are_those_of_nsys2prv(tmp_path):
    rows = {
        "ranges": DOMAINS,
        "graphs": [{"start": 0, "end": 5, "graph": 7, "graph_exec": 12}, {"start": 6, "end": 8, "graph": 7}],
        "gpu_metrics": [{"time": 9, "metric": "SM Active", "value": 50.0}],
    }
    _, _, records = exported(tmp_path, {0: rows}, ids="nsys2prv")
    kinds = [(e.types, e.values) for e in ev.read_pcf(tmp_path / "out.pcf")]
    assert kinds[:5] == [
        ({9600: "NVTX pushpop ranges default domain"}, {0: "Outside", 2: ":b", 3: ":c"}),
        ({9700: "NVTX pushpop ranges ALIB domain"}, {0: "Outside", 2: "ALIB:b"}),
        ({9500: "NCCL regions"}, {0: "Outside", 1: "a"}),
        ({9800: "NVTX pushpop ranges ZLIB domain"}, {0: "Outside", 2: "ZLIB:b"}),
        ({9004: "NVTX startend ranges", 9005: "NVTX mark"}, {0: "Outside", 1: "a", 2: "b", 3: "c"}),
    ]
    assert ({63000008: "CUDA Graphs Exec name"}, {0: "End", 1: "CUDA graph", 2: "Graph Exec 12"}) in kinds
    assert kinds[-1] == ({9400: "SM Active"}, {})
    begun = {r.split(":", 5)[5] for r in records if re.search(r":(9[4-9]00|63000008):[1-9]", r)}
    assert {b.split(":64100")[0] for b in begun} == {
        "0:9500:1", "2:9800:2", "4:9700:2", "6:9600:3", "8:9600:2", "0:63000008:2:63000100:7:63000101:12",
        "6:63000008:1:63000100:7:63000101:0", "9:9400:50",
    }  # fmt: skip


def test_values_are_those_of_nsys2prv_and_of_another_trace(tmp_path):
    (tmp_path / "base.pcf").write_text(
        "EVENT_TYPE\n0 9600 NVTX pushpop ranges LIB domain\nVALUES\n0 End\n2 LIB:b\n7 LIB:a\n"
    )
    ranges = [_range(i, n, "LIB") for i, n in enumerate(("a", "b", "c"))]
    exported(tmp_path, {0: {"ranges": ranges}}, ids="nsys2prv", base_pcf=tmp_path / "base.pcf")
    assert labels(tmp_path)[9600] == {0: "Outside", 1: "LIB:c", 2: "LIB:b", 7: "LIB:a"}
    exported(tmp_path / "2", {0: {"kernels": [kernel(0, 1, "b()"), kernel(1, 2, "d()")]}})
    (tmp_path / "2" / "out.pcf").rename(tmp_path / "2" / "base.pcf")
    (tmp_path / "2" / "again").mkdir()
    exported(
        tmp_path / "2" / "again",
        {0: {"kernels": [kernel(i, i + 1, f"{n}()") for i, n in enumerate("abcd")]}},
        base_pcf=tmp_path / "2" / "base.pcf",
    )
    assert labels(tmp_path / "2" / "again")[ev.KERNEL] == {0: "End", 1: "b", 2: "d", 3: "a", 4: "c"}


def test_windows_clip_what_reaches_beyond_and_wrong_names_are_refused(tmp_path):
    rows = {"kernels": [kernel(i * 100, i * 100 + 150) for i in range(5)]}
    _, header, records = exported(tmp_path, {0: rows}, name="out.prv.gz", window_ns=(100, 300))
    assert ":200_ns:" in header
    begun = [r for r in records if ":63000006:1" in r]
    assert begun == [
        "2:1:1:1:1:0:63000006:1",
        "2:1:1:1:1:0:63000006:1:63000220:150",
        "2:1:1:1:1:100:63000006:1:63000220:100",
    ]
    assert [r.split(":")[5] for r in records if r.endswith(":63000006:0")] == ["50"]
    assert max(int(t) for r in records for t in r.split(":")[5 : 7 if r[0] == "1" else 6]) == 200
    rows = [
        {"start": 0, "end": 900, "name": "a", "kind": "pushpop"},
        {"start": 50, "end": None, "name": "b", "kind": "pushpop"},
    ]
    _, header, records = exported(tmp_path / "2", {0: {"ranges": rows}}, window_ns=(40, 60))
    assert header.split(":")[1] == "20_ns"
    assert records[-1].split(":")[5] == "20"
    run = make_run(tmp_path / "3" / "run", {0: {}})
    with pytest.raises(UsageError, match=r"ends in \.prv"):
        export_paraver(select(run), tmp_path / "3" / "out.txt")
    with pytest.raises(UsageError, match="no ranks"):
        export_paraver(select(make_run(tmp_path / "3" / "empty", {})), tmp_path / "3" / "out.prv")
