"""Windows requested while the job runs: the same steps on all ranks, also if files appear late."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.thorough import cases
from tests.together import together

from alltrace.capture import armed
from alltrace.capture.armed import Watch, Window, parse_rule
from alltrace.capture.control import read_control, write_control
from alltrace.capture.now import ask, find_armed, name_steps, seen
from alltrace.capture.variables import ARMED_FOLDER, REQUEST, WINDOW
from alltrace.trace.errors import InputError, UsageError

SOURCE = Path(armed.__file__).parents[2]


@pytest.fixture
def clock(monkeypatch, bare_environment):
    """A clock that stands still until it is set."""

    class Clock:
        now = 100.0

        def __call__(self):
            return self.now

    found = Clock()
    monkeypatch.setattr(armed, "monotonic", found)
    return found


def test_the_first_rank_answers_with_a_step_that_is_far_enough_ahead_for_all(clock, tmp_path, monkeypatch):
    leader = Watch(str(tmp_path), leads=True)
    monkeypatch.setenv("PMI_RANK", "5")
    other = Watch(str(tmp_path), leads=False)
    for at in range(20):
        clock.now += 0.5
        assert leader.step(at) is None
        assert other.step(at) is None
    write_control(str(tmp_path / REQUEST), {"id": 1, "steps": 4, "ranks": None, "lead_s": 3})
    found = []
    for at in range(20, 30):
        clock.now += 0.5
        found += [
            (at, w, w_of) for w, w_of in ((leader.step(at), "leader"), (other.step(at), "other")) if w is not None
        ]
    (at, window, _), (_, same, _) = found
    assert window == same
    assert window.end - window.first == 4
    assert (window.first - at) * 0.5 >= 3
    assert at <= 22  # it looks once a second


def test_steps_that_take_long_lead_by_two(clock, tmp_path):
    leader = Watch(str(tmp_path), leads=True)
    write_control(str(tmp_path / REQUEST), {"id": 1, "steps": 1, "ranks": None, "lead_s": 3})
    leader._look_at = 1e9
    for at in range(3):
        clock.now += 60
        leader.step(at)
    leader._look_at = 0
    clock.now += 60
    assert leader.step(3) == Window(1, 5, 6)


def test_no_more_than_one_look_a_second(clock, tmp_path, monkeypatch):
    looks = []
    monkeypatch.setattr(armed, "read_control", lambda path: looks.append(path))
    watch = Watch(str(tmp_path), leads=False)
    for at in range(1000):
        clock.now += 0.01
        watch.step(at)
    assert 9 <= len(looks) <= 11


def test_only_the_ranks_that_are_named_and_a_late_one_records_what_is_left(clock, tmp_path, monkeypatch, capsys):
    write_control(str(tmp_path / WINDOW), {"id": 3, "first": 10, "end": 20, "ranks": [[0, 1], [7, 7]]})
    monkeypatch.setenv("PMI_RANK", "2")
    assert Watch(str(tmp_path), leads=False).step(4) is None
    monkeypatch.setenv("PMI_RANK", "7")
    assert Watch(str(tmp_path), leads=False).step(4) == Window(3, 10, 20)
    assert Watch(str(tmp_path), leads=False).step(15) == Window(3, 15, 20)
    assert "rank 7 received window 3, steps 10 to 19, at step 15; it is recorded from here" in capsys.readouterr().err
    assert Watch(str(tmp_path), leads=False).step(20) is None


def test_nodes_that_share_no_folder_are_told_the_same_steps(clock, tmp_path, monkeypatch):
    watches, told, asking = {}, {}, []
    for rank in range(4):
        node = tmp_path / f"node{rank // 2}"
        node.mkdir(exist_ok=True)
        (node / f"armed.{rank}").write_text("4\n")
        monkeypatch.setenv("PMI_RANK", str(rank))
        watches[rank] = Watch(str(node), leads=rank == 0)
    assert seen(tmp_path / "node1") == ([2, 3], 4)

    def ask_on(node):
        told[node] = name_steps(tmp_path / node, 500, 5, [(0, 2)], wait_s=20)

    for node in ("node0", "node1"):
        asking.append(threading.Thread(target=ask_on, args=[node]))
        asking[-1].start()
    found = {}
    for at in range(500):  # the nodes' ranks are not at the same step
        time.sleep(0.005)
        clock.now += 0.5
        for rank, watch in watches.items():
            window = watch.step(at + rank)
            if window is not None:
                found[rank] = window
        if not any(one.is_alive() for one in asking):
            break
    for one in asking:
        one.join()
    assert found == dict.fromkeys((0, 1, 2), Window(1, 500, 505))
    assert told == {"node0": (Window(1, 500, 505), [0, 1]), "node1": (Window(1, 500, 505), [2])}


def test_steps_that_cannot_be_named(clock, tmp_path):
    with pytest.raises(InputError, match="none of the chosen ranks"):
        name_steps(tmp_path, 9, 1, None, wait_s=0)
    for rank in (0, 1):
        (tmp_path / f"armed.{rank}").write_text("0\n")
    with pytest.raises(InputError, match="none of the chosen ranks"):
        name_steps(tmp_path, 9, 1, [(2, 3)], wait_s=0)
    write_control(str(tmp_path / "heard.0"), {"id": 2, "at": 3})
    write_control(str(tmp_path / "heard.1"), {"id": 1, "at": 3})  # of the window before
    write_control(str(tmp_path / WINDOW), {"id": 1})
    with pytest.raises(InputError, match=r"rank 1 did not answer within 0\.1 s"):
        name_steps(tmp_path, 9, 1, None, wait_s=0.1)
    write_control(str(tmp_path / "heard.1"), {"id": 3, "at": 10})
    with pytest.raises(InputError, match="1 of 2 ranks received step 9 too late, at step 10"):
        name_steps(tmp_path, 9, 1, None, wait_s=0.1)


WRONG_RANKS = '{"id": 5, "first": 1, "end": 9, "ranks": [["a", 9]]}'


@pytest.mark.parametrize(
    "text", ["", "{", '{"id": 1', "[]", '{"id": "x"}', '{"id": 5}', '{"id": 5, "first": "a", "end": 3}', WRONG_RANKS]
)
def test_files_that_say_nothing_or_a_part_ask_for_nothing(clock, tmp_path, text):
    for name in (REQUEST, WINDOW):
        (tmp_path / name).write_text(text)
    watch = Watch(str(tmp_path), leads=True)
    for at in range(5):
        clock.now += 2
        assert watch.step(at) is None


@pytest.mark.parametrize(
    ("rule", "slow"), [("step_time > 1.3 * median", 0.14), ("step_time > 200 ms", 0.21), ("step_time > 2 s", 2.1)]
)
def test_a_rule_asks_by_itself_as_often_as_it_may(clock, tmp_path, rule, slow):
    watch = Watch(str(tmp_path), leads=True, rule=f"5 2 {rule}")
    windows = []
    for at in range(300):
        clock.now += slow if at % 60 == 30 else 0.1
        window = watch.step(at)
        windows += [(at, window)] if window else []
    assert [at for at, _ in windows] == [30, 90]
    assert [(w.id, w.end - w.first) for _, w in windows] == [(1, 5), (2, 5)]


@together("text", ["", "step_time", "step_time > x", "loss > 3", "step_time > 1.3 * mean", "__import__('os')"])
def test_rules_that_are_none(text):
    with pytest.raises(UsageError, match="--when is"):
        parse_rule(text)


def test_who_is_asked(tmp_path):
    with pytest.raises(InputError, match="no job was armed"):
        find_armed(tmp_path, None)
    for job in ("a", "b"):
        (tmp_path / ARMED_FOLDER / job).mkdir(parents=True)
    with pytest.raises(UsageError, match="several jobs were armed"):
        find_armed(tmp_path, None)
    with pytest.raises(UsageError, match="unknown armed job 'c'"):
        find_armed(tmp_path, "c")
    with pytest.raises(InputError, match=r"did not answer within 0\.3 s"):
        ask(find_armed(tmp_path, "a"), 5, None, lead_s=3, wait_s=0.3)
    assert read_control(str(tmp_path / ARMED_FOLDER / "a" / REQUEST))["steps"] == 5


TRAINING = """
import os, sys, time
from alltrace.capture import cuda_profiler
from alltrace.instrument import steps
cuda_profiler.switch = lambda what: True
began, until = float(sys.argv[1]), float(sys.argv[2])
seen = []
with steps() as window:
    n = 0
    while time.time() < until:
        time.sleep(max(0, began + n * 0.25 - time.time()))
        if window.recording: seen.append(n)
        window.step()
        n += 1
print(os.environ["PMI_RANK"], *seen)
"""


@pytest.mark.slow
def test_processes_that_see_files_late_record_the_same_steps(tmp_path):
    """Each rank has a folder of its own, into which what the others see is copied 1.2 s late, as caches of file systems
    do."""
    ranks = cases(16, 64)
    folders = [tmp_path / f"seen-{rank}" for rank in range(ranks)]
    for folder in folders:
        folder.mkdir()
    (tmp_path / "train.py").write_text(TRAINING)
    began = time.time() + 2 + ranks / 5
    until = began + 14
    base = {
        **os.environ,
        "PYTHONPATH": str(SOURCE),
        "ALLTRACE_CAPTURE": "nsys",
        "PMI_SIZE": str(ranks),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    running = []
    for rank, folder in enumerate(folders):
        own = {"PMI_RANK": str(rank), "ALLTRACE_ARMED": str(folder), "TMPDIR": str(folder)}
        own.update({"ALLTRACE_ARMED_LEADS": "1"} if rank == 0 else {})
        command = [sys.executable, "-S", tmp_path / "train.py", str(began), str(until)]
        running.append(
            subprocess.Popen(command, env={**base, **own}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )

    def copies():
        told = None
        while time.time() < until:
            now = read_control(str(folders[0] / WINDOW))
            if now != told:
                told = now
                time.sleep(1.2)
                for folder in folders[1:]:
                    write_control(str(folder / WINDOW), now)
            time.sleep(0.05)

    copier = threading.Thread(target=copies)
    copier.start()
    time.sleep(max(0, began + 3 - time.time()))
    asked_at = (time.time() - began) / 0.25
    write_control(str(folders[0] / REQUEST), {"id": 1, "steps": 4, "ranks": None, "lead_s": 3})
    told = [one.communicate(timeout=120) for one in running]
    copier.join()
    assert [err for _, err in told if err] == []
    window = json.loads((folders[0] / WINDOW).read_text())
    expected = list(range(window["first"], window["end"]))
    assert {out.split()[0]: [int(n) for n in out.split()[1:]] for out, _ in told} == {
        str(r): expected for r in range(ranks)
    }
    assert window["first"] - asked_at < (1 + 3) / 0.25 + 3  # a look a second, three seconds ahead


@pytest.mark.slow
def test_an_armed_rank_is_asked_twice_and_names_its_reports_by_window(capture, fake_nsys, tmp_path):
    program = f"""
import os, sys, time
sys.path.insert(0, {str(SOURCE)!r})
from alltrace.capture import cuda_profiler
cuda_profiler.switch = lambda what: what == "Start" and open(os.environ["TMPDIR"] + "/opened", "a").write("x")
from alltrace.instrument import steps
with steps() as window:
    while not os.path.exists("enough"):
        time.sleep(0.01)
        window.step()
"""
    world = {"OMPI_COMM_WORLD_RANK": 0, "OMPI_COMM_WORLD_LOCAL_RANK": 0, "OMPI_COMM_WORLD_SIZE": 2}
    options = ["arm", "--job", "j", "--nsys", fake_nsys, "--", sys.executable, "-c", program]
    started = capture(*options, wait=False, FAKE="windows", **world)
    until = time.monotonic() + 30
    while not (tmp_path / "reports" / ARMED_FOLDER / "j" / REQUEST).exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    said = [capture("now", "reports", "--steps", n, "--lead", "0.1") for n in (3, 4)]
    time.sleep(2)
    late = capture("now", "reports", "--at", "0")
    assert late.returncode == 3
    assert "1 of 1 ranks received step 0 too late, at step " in late.stderr
    ahead = capture("now", "reports", "--at", 10**9, "--steps", 2)
    assert (ahead.stdout, ahead.stderr) == ("window 4: steps 1000000000 to 1000000001, ranks 0\n", "")
    assert "give one of them" in capture("now", "reports", "--at", 10**9, "--lead", 2).stderr
    (tmp_path / "enough").write_text("")
    _, err = started.communicate(timeout=60)
    assert started.returncode == 0
    assert re.fullmatch(r"alltrace: rank 0 received window 3, steps 0 to 9, at step \d+; nothing is recorded\n", err)
    assert [one.returncode for one in said] == [0, 0]
    assert all("only 1 of 2 armed ranks see reports; the others record nothing" in one.stderr for one in said)
    names = sorted(p.name.partition("_window")[2] for p in (tmp_path / "reports").glob("*.nsys-rep"))
    assert [n[:7] for n in names] == ["1_steps", "2_steps"]
    for one, name in zip(said, names, strict=True):
        first, last = name.removesuffix(".nsys-rep")[7:].split("-")
        assert f"steps {first} to {last}, ranks all" in one.stdout


def test_an_armed_rank_that_is_not_asked_leaves_nothing_and_says_nothing(capture, fake_nsys, tmp_path):
    done = capture(
        "arm", "--job", "j", "--nsys", fake_nsys, "--", "sh", "-c", "exit 5", FAKE="none", PMI_RANK=0, PMI_SIZE=1
    )
    assert (done.returncode, done.stderr) == (5, "")
    assert not list((tmp_path / "reports").glob("*.nsys-rep"))
    assert not list((tmp_path / "tmp").glob("alltrace-*"))


@pytest.mark.parametrize(
    ("options", "said"),
    [(["--profiler", "ncu"], "works with nsys and torch"), (["--when", "loss > 3"], "--when is 'loss > 3'")],
)
def test_what_cannot_be_armed(capture, options, said):
    done = capture("arm", *options, "--", "true")
    assert done.returncode == 2
    assert said in done.stderr
