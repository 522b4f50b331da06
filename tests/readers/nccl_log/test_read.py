"""Files of any kind: compressed, cut, full of garbage, glued; and real ones, with every record accounted for."""

from __future__ import annotations

import gc
import gzip
import random
import time
import tracemalloc
from pathlib import PurePath
from pkgutil import resolve_name

import pyarrow as pa
import pytest
from tests.nccl_writing import write_log
from tests.together import together

from alltrace.readers.nccl_log.read import Wanted, read_log
from alltrace.readers.nccl_log.stamps import Stamp
from alltrace.recipes.logs import NCCL_VIEWS, NEEDS_CALLS
from alltrace.recipes.logs.nccl import NcclOptions
from alltrace.run.log_files import expand
from alltrace.run.nccl_logs import read_nccl_logs
from alltrace.trace.errors import InputError, UsageError

CALL = (
    "AllReduce: opCount 1 sendbuff 0x1 recvbuff 0x2 count 5 datatype 7 op 0 root 0 comm 0x1 [nranks=2] stream 0x3"
    " task 0 globalrank 1"
)


def read(tmp_path, data, name="a.log", **options):
    path = tmp_path / name
    path.write_bytes(data)
    return read_log(Wanted(str(path), **options))


@pytest.mark.parametrize("pack", [gzip.compress, lambda data: pa.compress(data, "zstd", asbytes=True)])
def test_compressed_logs(tmp_path, pack):
    written = write_log(calls=30)
    part = read(tmp_path, pack(written.text))
    assert part.calls == len(written.calls)
    assert part.damage is None


def test_a_compressed_log_that_breaks_off(tmp_path):
    rng = random.Random(1)
    written = write_log(calls=4000, seed=2)
    packed = gzip.compress(written.text + rng.randbytes(100_000))
    part = read(tmp_path, packed[: len(packed) // 2])
    assert 0 < part.calls < len(written.calls)
    assert "ends early" in part.damage


def test_binary_garbage_between_records(tmp_path):
    rng = random.Random(7)
    written = write_log(calls=50)
    lines = written.text.splitlines(keepends=True)
    noisy = b"".join(line + rng.randbytes(200).replace(b"NCCL", b"") + b"\n" for line in lines)
    part = read(tmp_path, noisy)
    assert part.calls == len(written.calls)


def test_garbage_alone(tmp_path):
    path = tmp_path / "x.bin"
    path.write_bytes(random.Random(3).randbytes(3 << 20).replace(b"\n", b"x"))
    with pytest.raises(InputError, match="is an NCCL record"):
        read_nccl_logs([path], calls_to=None)


@pytest.mark.slow
def test_every_cut_of_a_log(tmp_path):
    """Whatever byte a log ends at: the calls before it are right, and the last one is right, null in what is cut, or
    not there."""
    written = write_log(ranks=2, calls=2, prefix="srun")
    text = written.text
    whole = [read(tmp_path, text[: n + 1]).calls for n in range(len(text)) if text[n : n + 1] == b"\n"]
    for cut in range(0, len(text), 3):
        part = read(tmp_path, text[:cut])
        done = text[:cut].count(b"\n")
        before = whole[done - 1] if done else 0
        assert part.calls - before in (0, 1)
        assert part.lines == done + (cut > 0 and text[cut - 1 : cut] != b"\n")


def test_memory_is_that_of_one_log_however_seldom_python_looks_for_garbage(tmp_path):
    written = write_log(ranks=2, calls=2)
    path = tmp_path / "a.log"
    path.write_bytes(written.text)
    read_log(Wanted(str(path)))
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(20):
            read_log(Wanted(str(path)))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert after - before < 2 << 20


def test_a_glued_host_is_told_by_the_others(tmp_path):
    first = b"gpu-dev-1:17:17 [2] NCCL INFO Using network IB\n"
    glued = (
        b"gpu-dev-1:18:18 [3] NCCL INFO comm 0x1 rank 3 nranks 4 cudaDev 3 busId 97gpu-dev-1:17:17 [2] NCCL INFO Using"
        b" network IB\n"
    )
    part = read(tmp_path, first + glued)
    assert [(p.host, p.pid) for p in part.records.processes] == [("gpu-dev-1", 17), ("gpu-dev-1", 18)]
    assert part.records.counts["not understood"] == 1
    assert part.records.counts["network"] == 2


def test_crlf_and_ansi(tmp_path):
    written = write_log(calls=5, prefix="ansi")
    part = read(tmp_path, written.text.replace(b"\n", b"\r\n"))
    assert part.calls == len(written.calls)


LONG = [
    b"a" * 300_000 + b" NCCL INFO x",
    b"a" * 1_000_000 + b"h:1:1 [0] NCCL INFO x",
    b"h:1:1 [0] NCCL INFO NET/" + b" " * 20_000 + b"x\x00",
    b"h:1:1 [0] NCCL INFO Channel 00 : 0[0] -> 1[0] via P2P" + b" " * 300_000 + b"x",
    b"h:1:1 [0] NCCL INFO NCCL_X set by environment to 1" + b" " * 300_000 + b"x",
    b"h:1:1 [0] NCCL INFO " + b"1" * 300_000 + b" coll channels, ",
    b"step: 1 " * 30_000,
]


@pytest.mark.parametrize("line", LONG, ids=range(len(LONG)))
def test_a_long_line_does_not_take_the_square_of_its_length(tmp_path, line):
    began = time.process_time()
    assert read(tmp_path, line + b"\n").records.counts.total() == 1
    assert time.process_time() - began < 10  # was minutes to hours


def test_a_header_right_behind_a_cut_level(tmp_path):
    part = read(
        tmp_path,
        b"a:1:1 [0] NCCL INFO Connected all rings\na:1:1 [0] NCCL INFOa:2:2 [0] NCCL INFO Connected all trees\n",
    )
    assert len(part.records.processes) == 2
    assert part.records.counts["connected"] == 2


NUMBERS = [
    "comm 0x1 rank 1 nranks 2 cudaDev @ busId 1 commId 0x2 - Init COMPLETE",
    "comm 0x1 rank @ nRanks @ nNodes @ localRanks @ localRank @ MNNVL 0",
    "Channel 00/0 : @[0] -> @[0] [send] via NET/x/0",
    "Channel @/@ : 0 1",
    "Trees [@] @/@/-1->@->-1",
    "AllReduce: 8 Bytes -> Algo @ proto @ channel{Lo..Hi}={@..@}",
    "AllReduce: 8 Bytes -> Kernel x nchannels @ nthreads 1",
]


@pytest.mark.parametrize("digits", [17, 25, 5000])
def test_numbers_that_are_too_long_end_nothing(tmp_path, digits):
    lines = [f"h:1:1 [0] NCCL INFO {line}" for line in NUMBERS]
    lines += ["h:1:1 [0] @ NCCL INFO Connected all rings", "[1,@]<stdout>: h:1:2 [0] NCCL INFO Connected all rings"]
    lines += [f"h:1:1 [0] @ NCCL INFO {CALL}", f"h:1:1 [0] NCCL INFO {CALL}"]
    (tmp_path / "a.log").write_text("\n".join(lines).replace("@", "9" * digits) + "\n")
    logs = read_nccl_logs([tmp_path / "a.log"], calls_to=None, times=True)
    for view in NCCL_VIEWS:
        if view not in NEEDS_CALLS:
            resolve_name(NCCL_VIEWS[view]).answer(logs, NcclOptions())


def test_a_split_by_a_color_of_ten_digits(tmp_path):
    line = (
        b"h:1:1 [0] NCCL INFO ncclCommSplit comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1 parent 0x2 color 2147483646 key"
        b" 0 commId 0x3"
    )
    part = read(tmp_path, line + b" - Init COMPLETE\n")
    assert [(i.comm_id, i.parent) for i in part.instances] in ([("0x3", "0x2")], [])
    assert part.records.counts["init"] == 1


def test_time_formats_that_are_none(tmp_path):
    with pytest.raises(UsageError, match="--time-format has the unknown directive %Q"):
        read(tmp_path, b"", times=True, time_format="%Q")
    with pytest.raises(UsageError, match="--time-format is '%Y %Y', which repeats a directive"):
        read(tmp_path, b"", times=True, time_format="%Y %Y")


@together(
    ("form", "text"),
    [
        ("%b %e %H:%M:%S %Y", b"May  5 06:16:47 2026"),
        ("%b %d %H:%M:%S %Y", b"May  5 06:16:47 2026"),
        ("%b %e %H:%M:%S %Y", b"May 05 06:16:47 2026"),
        ("%e/%m/%Y %T", b"x 5/05/2026 06:16:47"),
        ("%e/%m/%Y %T", b" 5/05/2026 06:16:47"),
        ("[%d/%b/%Y:%T]", b"[05/May/2026:06:16:47]"),
    ],
)
def test_days_of_one_digit(form, text):
    assert Stamp(form).time_ns(text) == 1_777_961_807_000_000_000


def test_files_folders_and_patterns(tmp_path):
    for name in ("b.log", "a.log"):
        (tmp_path / name).write_text("x")
    assert [p.name for p in expand([str(tmp_path)])] == ["a.log", "b.log"]
    assert [p.name for p in expand([str(tmp_path / "*.log"), str(tmp_path / "a.log")])] == ["a.log", "b.log"]
    with pytest.raises(InputError, match="no such file"):
        expand([str(tmp_path / "c.log")])
    for name in ("x" * 300, "x" * 300 + "*", f"{tmp_path}/{'x/' * 3000}"):
        with pytest.raises(InputError, match="cannot be accessed"):
            expand([name])
    assert [p.name for p in expand([f"{tmp_path}/[{'a' * 300}].log"])] == ["a.log"]


def test_the_logs_of_many_ranks_are_not_compared_with_each_other(tmp_path, monkeypatch):
    for n in range(100):
        (tmp_path / f"{n}.log").touch()
    compared = []
    equal = PurePath.__eq__
    monkeypatch.setattr(PurePath, "__eq__", lambda a, b: compared.append(a) or equal(a, b))
    assert len(expand([str(tmp_path), str(tmp_path / "*.log")])) == 100
    assert len(compared) <= 200


@pytest.mark.slow
def test_files_in_parallel_are_as_one_by_one(tmp_path):
    paths = []
    for seed in range(3):
        path = tmp_path / f"{seed}.log"
        path.write_bytes(write_log(seed=seed, hosts=1).text)
        paths.append(path)
    alone, both = (read_nccl_logs(paths, calls_to=None, jobs=jobs) for jobs in (1, 2))
    assert alone.account == both.account
    assert alone.members == both.members


@pytest.mark.corpus
def test_every_record_of_real_logs_is_accounted_for(corpus):
    totals = {}
    for path in sorted((corpus / "nccl").iterdir()):
        part = read_log(Wanted(str(path)))
        lines = path.read_bytes().splitlines()
        assert part.records.counts.total() == len(lines) == part.lines
        assert part.records.counts["not understood"] == sum(
            b"NCCL" in line and b"[nranks" not in line and b"opCount" in line for line in lines
        )
        assert part.calls == sum(b"opCount" in line and b" comm 0x" in line for line in lines)
        totals[path.name] = part.calls
    assert sum(totals.values()) == 44


@pytest.mark.parametrize(
    ("message", "cpus"),
    [
        ("Setting affinity for GPU 4 to ff,00000000,80000001", {0, 31, *range(64, 72)}),
        ("Setting affinity for GPU 0 to 0fffff", set(range(20))),
        ("Setting affinity for GPU 0 to 24-46,72", {*range(24, 47), 72}),
        ("Setting affinity for GPU 0 to 3,17", {3, 17}),
        (
            (
                "ncclTopoGetCpuAffinity: Affinity for GPU 1 is 24-46,72. (GPU affinity = 24-47,72-73 ; CPU affinity ="
                " 24-46,72)."
            ),
            {*range(24, 48), 72, 73},
        ),
        ("Setting affinity for GPU 0 to 12", None),  # CPU 12, or CPUs 1 and 4
        ("Setting affinity for GPU 0 to 1-2-3", None),
        ("Setting affinity for GPU 0 to ,", None),
    ],
)
def test_cpus_near_a_gpu(tmp_path, message, cpus):
    part = read(tmp_path, f"node7:8:9 [4] NCCL INFO {message}\n".encode())
    assert part.records.near_cpus == ({} if cpus is None else {0: cpus})


def test_of_more_choices_than_there_is_room_for_the_others_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr("alltrace.readers.nccl_log.lines.MOST_ENTRIES", 1)
    head = b"node-0:10:10 [0] NCCL INFO "
    choices = [b"%d Bytes -> Algo 1 proto 2 time 12.5\n" % size for size in (1024, 1024, 2048, 4096)]
    log = read(tmp_path, b"".join(head + choice for choice in choices))
    assert list(log.records.tuning.values()) == [2]
    assert log.records.dropped == 2
