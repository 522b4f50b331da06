"""The log of NCCL next to a report: only records of calls in the recorded steps are kept."""

import os
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alltrace.capture import nccl_log
from alltrace.capture.nccl_log import limit, window_times
from alltrace.run.nccl_logs import read_nccl_logs

SOURCE = Path(nccl_log.__file__).parents[2]
T0 = 1_777_000_000_000_000_000
INIT = "ncclCommInitRank comm 0x55 rank 1 nranks 2 cudaDev 1 nvmlDev 1 busId 1b000 commId 0x77 - Init COMPLETE"
OTHERS = (INIT, "Channel 02/0 : 0[3] -> 1[0] [send] via NET/IB/0", "NET/IB : Using [0]mlx5_0:1/IB ; OOB eth0:ip")
CHOICE = "AllReduce: 1024 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}"


def call(number):
    tail = f"sendbuff 0x1 recvbuff 0x2 count {number + 1} datatype 7 op 0 root 0 comm 0x55 [nranks=2] stream 0x9"
    return f"AllReduce: opCount {number:x} {tail}"


def line(at_ns, text):
    stamp = f"{datetime.fromtimestamp(at_ns // 10**9):%F %T}.{at_ns % 10**9 // 1000:06d}"
    return f"[{stamp}] node7:41:43 [1] NCCL INFO {text}\n"


@given(
    texts=st.lists(st.sampled_from((*OTHERS, CHOICE, "call")), max_size=40),
    windows=st.lists(st.tuples(st.integers(0, 45), st.integers(1, 9)), max_size=3),
    open_end=st.booleans(),
)
def test_calls_outside_the_windows_are_dropped_and_all_else_is_kept(tmp_path_factory, texts, windows, open_end):
    path = tmp_path_factory.mktemp("log") / "a.log"
    lines = [line(T0 + n * 10_000, call(n) if text == "call" else text) for n, text in enumerate(texts)]
    path.write_text("".join(lines))
    spans = [(T0 + first * 10_000 - 4000, T0 + (first + count) * 10_000 - 4000) for first, count in windows]
    if open_end and spans:
        spans[-1] = (spans[-1][0], None)
    inside = {
        n
        for n in range(len(texts))
        if any(b < T0 + n * 10_000 and (e is None or T0 + n * 10_000 < e) for b, e in spans)
    }
    kept = [text for n, text in enumerate(lines) if n in inside or texts[n] in OTHERS]
    dropped = limit(path, spans)
    assert dropped == len(lines) - len(kept)
    note = [f"alltrace: {dropped} records of calls outside the recorded steps are left out\n"] if dropped else []
    assert path.read_text() == "".join(kept + note)
    assert [p.name for p in path.parent.iterdir()] == ["a.log"]


def test_a_log_that_was_cut_is_read_as_the_rest_of_it(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("".join([line(T0, INIT), *(line(T0 + n * 10**6, call(n)) for n in range(1, 9))]))
    limit(path, [(T0 + 3 * 10**6 - 1000, T0 + 5 * 10**6 + 1000)])
    (tmp_path / "calls").mkdir()
    logs = read_nccl_logs([path], calls_to=tmp_path / "calls", jobs=1)
    assert sorted(n for _, batch in logs.calls() for n in batch["count"].to_pylist()) == [4, 5, 6]
    assert [(member.rank, member.nranks) for member in logs.members] == [(1, 2)]


def test_a_log_without_times_stays_whole(tmp_path):
    path = tmp_path / "a.log"
    text = line(T0, INIT) + f"node7:41:43 [1] NCCL INFO {call(1)}\n"
    path.write_text(text)
    with pytest.raises(nccl_log._UnlimitedError, match=r"NCCL 2\.26"):
        limit(path, [(T0, None)])
    with pytest.raises(nccl_log._UnlimitedError, match="set back"):
        limit(path, [(T0, T0 - 10**9)])
    assert path.read_text() == text
    assert [p.name for p in tmp_path.iterdir()] == ["a.log"]


def test_times_of_windows_that_are_cut_or_wrong(tmp_path):
    path = tmp_path / "times"
    assert window_times(path) == []
    path.write_text("end 3\nbegin 5\nend 9\nbegin 11\n")
    assert window_times(path) == [(5, 9), (11, None)]


TRAINING = f"""
import os, sys, time
sys.path.insert(0, {str(SOURCE)!r})
from datetime import datetime
from alltrace.capture import cuda_profiler, instrument
cuda_profiler.switch = lambda what: True
instrument._torch_profiler = lambda *a: instrument._NoProfile()
from alltrace.instrument import steps
pattern, stamp = os.environ["NCCL_DEBUG_FILE"], os.environ["NCCL_DEBUG_TIMESTAMP_FORMAT"]
assert os.environ["NCCL_DEBUG_TIMESTAMP_LEVELS"] == "ALL" and os.environ["NCCL_DEBUG"] == "INFO"
assert stamp == "[%F %T.%6f] "
name = pattern.replace("%%", "\\0").replace("%h", os.uname().nodename).replace("%p", str(os.getpid())).replace("\\0", "%")
with open(name, "w") as log, steps() as window:
    def say(text):
        now = datetime.now().strftime("%Y-%m-%d %H:%M:%S.%f")
        log.write(f"[{{now}}] n:1:2 [0] NCCL INFO {{text}}\\n")
    say("NCCL_DEBUG set by environment to INFO")
    for n in range(9):
        say(f"AllReduce: opCount {{n}} sendbuff 0x1")
        time.sleep(0.002)
        window.step()
"""  # noqa: E501


def numbers(path):
    return [
        int(text.split("opCount ")[1].split()[0], 16) for text in path.read_text().splitlines() if "opCount" in text
    ]


@pytest.mark.parametrize("profiler", ["nsys", "torch"])
def test_the_wrapper_asks_for_the_log_and_cuts_it(capture, fake_nsys, tmp_path, profiler):
    job = "a%hb" if profiler == "torch" else "ab"  # what plays nsys does not know %
    options = [
        "--profiler",
        profiler,
        "--job",
        job,
        "--nccl-log",
        *(["--nsys", fake_nsys] if profiler == "nsys" else []),
    ]
    run = [*options, "--", sys.executable, "-c", TRAINING]
    rank = {"PMI_RANK": 1, "PMI_SIZE": 2, "NCCL_DEBUG": "WARN"}
    (tmp_path / "reports").mkdir()
    older = tmp_path / "reports" / f"{job}_rank1_nccl.n.1.log"
    older.write_text(line(T0, call(77)))
    done = capture("exec", "--steps", "3:5", *run, **rank)
    assert (done.returncode, done.stderr) == (0, "")
    (log,) = set((tmp_path / "reports").glob("*_nccl.*.log")) - {older}
    assert log.name.startswith(f"{job}_rank1_nccl.{os.uname().nodename}.")
    assert numbers(log) == [3, 4]
    assert "set by environment" in log.read_text()
    assert numbers(older) == [77]
    assert not list((tmp_path / "tmp").glob("alltrace-*"))
    log.unlink()
    whole = capture("exec", "--force", *run, **rank)
    assert whole.returncode == 0
    (log,) = set((tmp_path / "reports").glob("*_nccl.*.log")) - {older}
    assert numbers(log) == list(range(9))
    log.unlink()
    never = capture("exec", "--force", "--steps", "70:75", *run, **rank)
    assert "is kept whole: the program reached no step of the window" in never.stderr
    (log,) = set((tmp_path / "reports").glob("*_nccl.*.log")) - {older}
    assert numbers(log) == list(range(9))


def test_an_armed_rank_that_is_not_asked_keeps_no_calls(capture, fake_nsys, tmp_path):
    run = ["--nsys", fake_nsys, "--", sys.executable, "-c", TRAINING]
    done = capture("arm", "--job", "j", "--nccl-log", *run, FAKE="none", PMI_RANK=0, PMI_SIZE=1)
    assert (done.returncode, done.stderr) == (0, "")
    (log,) = (tmp_path / "reports").glob("*_nccl.*.log")
    assert log.read_text().endswith("INFO\nalltrace: 9 records of calls outside the recorded steps are left out\n")


def test_a_log_in_another_zone_of_time(tmp_path, monkeypatch):
    monkeypatch.setenv("TZ", "America/St_Johns")
    time.tzset()
    try:
        path = tmp_path / "a.log"
        path.write_text(line(T0, call(1)) + line(T0 + 10**9, call(2)))
        assert limit(path, [(T0 - 1000, T0 + 1000)]) == 1
        assert numbers(path) == [1]
    finally:
        monkeypatch.undo()
        time.tzset()
