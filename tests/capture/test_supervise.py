"""What the program and the profiler get of signals, and how often the program is started."""

import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from alltrace.capture.processes import descendants, started_at
from alltrace.capture.program_shell import ProgramShell
from alltrace.capture.supervise import MANNERS

WORLD = {"OMPI_COMM_WORLD_RANK": 1, "OMPI_COMM_WORLD_LOCAL_RANK": 1, "OMPI_COMM_WORLD_SIZE": 2}
# its own blocked signals, and those of the profiler, which is the parent of the shell around it
SHOWS = """import os, signal, sys
mine = sorted(int(n) for n in signal.pthread_sigmask(signal.SIG_BLOCK, ()))
parent = lambda pid: open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1]
blocked = next(l.split()[1] for l in open(f"/proc/{parent(os.getppid())}/status") if l.startswith("SigBlk"))
print(mine, [n for n in range(1, 65) if int(blocked, 16) >> (n - 1) & 1])
"""
# not a shell, which may unblock what it is started with
KEEPS = """#!{python}
import subprocess, sys
if "--version" in sys.argv:
    sys.exit(print("NVIDIA Nsight Systems version 2023.4.4.54-0"))
if "--help" in sys.argv:
    sys.exit(print("--trace= --output= --force-overwrite= --sample= --cpuctxsw="))
words = [w for w in sys.argv[2:] if not w.startswith("--")]
code = subprocess.call(words)
with open(next(w[9:] for w in sys.argv if w.startswith("--output=")), "w") as file:
    file.write("NVIDIA Tegra Profiler Report 2023 body [END]")
sys.exit(code)
"""
HELD = sorted(int(n) for n in MANNERS["nsys"].held)
COUNTS = 'echo ran >> "$0"; exit 5'
TRAPS = (
    'trap "echo got; n=1" INT; trap "" TERM; echo ready; i=0; while [ $i -lt 15 ]; do sleep 0.1; i=$((i+1)); done;'
    " exit 5"
)


def lines(path):
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize("blocked", [[], [signal.SIGUSR2, signal.SIGRTMIN]])
def test_the_profiler_has_signals_blocked_and_the_program_those_of_before(capture, tmp_path, blocked):
    fake_nsys = tmp_path / "nsys"
    fake_nsys.write_text(KEEPS.format(python=sys.executable))
    fake_nsys.chmod(0o755)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        started = capture("exec", "--nsys", fake_nsys, "--", sys.executable, "-c", SHOWS, wait=False, **WORLD)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    out, err = started.communicate(timeout=60)
    mine = sorted(map(int, blocked))
    assert (out, err) == (f"{mine} {sorted({*mine, *HELD})}\n", "")
    assert signal.SIGTERM in HELD
    assert signal.SIGUSR1 in HELD
    assert signal.SIGQUIT not in HELD


def test_a_profiler_that_fails_before_the_program_starts_is_started_once_more(capture, fake_nsys, tmp_path):
    ran, options = tmp_path / "ran", ["exec", "--nsys", fake_nsys, "--verbose", "--job", "j"]
    done = capture(*options, "--", "sh", "-c", COUNTS, ran, FAKE="once", **WORLD)
    assert (done.returncode, lines(ran)) == (5, ["ran"])
    assert "the profiler ended with 1 before the program started; it is started again" in done.stderr
    assert len(list((tmp_path / "reports").iterdir())) == 1
    assert not list((tmp_path / "tmp").glob("alltrace-*"))


def test_it_is_started_twice_at_most(capture, fake_nsys, tmp_path):
    ran = tmp_path / "ran"
    done = capture(
        "exec", "--on-error", "stop", "--nsys", fake_nsys, "--", "sh", "-c", COUNTS, ran, FAKE="fails", **WORLD
    )
    assert (done.returncode, lines(ran)) == (1, [])
    assert "the profiler ended with 1 before the program started" in done.stderr
    assert lines(tmp_path / "starts") == ["started"] * 2
    plain = capture("exec", "--nsys", fake_nsys, "--", sys.executable, "-c", MASK, FAKE="fails", **WORLD)
    assert (plain.returncode, plain.stdout) == (0, "set()\n")
    assert plain.stderr.endswith("the profiler ended with 1 before the program started, which now runs unprofiled\n")


MASK = "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))"


def test_the_program_is_not_started_again_by_what_a_failed_profiler_left(capture, fake_nsys, tmp_path):
    ran = tmp_path / "ran"
    # the first attempt tries to start it half a second after the second one has
    done = capture(
        "exec", "--nsys", fake_nsys, "--", "sh", "-c", 'echo ran >> "$0"; sleep 1; exit 5', ran, FAKE="late", **WORLD
    )
    assert (done.returncode, lines(ran)) == (5, ["ran"])
    time.sleep(1)
    assert lines(ran) == ["ran"]


def test_a_shell_that_is_revoked_starts_nothing_and_one_that_began_cannot_be_revoked(tmp_path):
    revoked, began = ProgramShell(tmp_path, "a-"), ProgramShell(tmp_path, "b-")
    assert revoked.revoke()
    done = subprocess.run(revoked.around(["echo", "ran"], ()), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    done = subprocess.run(
        began.around(["sh", "-c", "echo ran; exit 5"], ()), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (5, "ran\n")
    assert not began.revoke()
    assert began.code() == 5
    began.forget()
    assert [p.name for p in tmp_path.iterdir()] == ["a-shell"]  # what is revoked stays so


def test_a_second_sigterm_ends_the_profiler(capture, fake_nsys, tmp_path):
    started = capture("exec", "--nsys", fake_nsys, "--", "sh", "-c", TRAPS, wait=False, FAKE="quits", **WORLD)
    assert started.stdout.readline() == "ready\n"
    for _ in range(2):
        time.sleep(0.2)
        started.send_signal(signal.SIGTERM)
    began = time.monotonic()
    started.communicate(timeout=60)
    assert time.monotonic() - began < 30
    assert len(list((tmp_path / "reports").iterdir())) == 1


def started_and(capture, fake_nsys, fake, program, *options):
    """A wrapped program that has said that it is ready."""
    started = capture("exec", *options, "--nsys", fake_nsys, "--", "sh", "-c", program, wait=False, FAKE=fake, **WORLD)
    assert started.stdout.readline() == "ready\n"
    return started


STAYS = 'trap "echo got" TERM; echo ready; i=0; while [ $i -lt 30 ]; do sleep 0.1; i=$((i+1)); done; exit 5'


def test_signals_do_not_disturb_a_report_that_is_being_written(capture, fake_nsys, tmp_path):
    started = started_and(capture, fake_nsys, "slow", 'trap "exit 7" TERM; echo ready; while :; do sleep 0.1; done')
    started.send_signal(signal.SIGTERM)
    until = time.monotonic() + 30
    while not (tmp_path / "writing").exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        started.send_signal(number)
    _, err = started.communicate(timeout=60)
    assert (started.returncode, err) == (7, "")
    assert len(list((tmp_path / "reports").iterdir())) == 1


@pytest.mark.parametrize(("signals", "options"), [(2, ()), (1, ("--end-after", "0.3"))])
def test_a_program_that_runs_on_after_a_signal_to_end_gets_it_and_its_report_is_written(
    capture, fake_nsys, tmp_path, signals, options
):
    started = started_and(capture, fake_nsys, "recorded", STAYS, *options)
    for _ in range(signals):
        time.sleep(0.3)
        started.send_signal(signal.SIGTERM)
    until = time.monotonic() + 2
    while not list((tmp_path / "reports").iterdir()):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert started.poll() is None
    out, err = started.communicate(timeout=60)
    assert (started.returncode, out, err) == (5, "got\n" * signals, "")


def gone(pids):
    """Whether all of these processes end within some seconds."""
    until = time.monotonic() + 10
    while any(started_at(pid) is not None for pid in pids) and time.monotonic() < until:
        time.sleep(0.02)
    return [pid for pid in pids if started_at(pid) is not None] == []


def test_where_the_launcher_kills_the_rank_the_report_is_written_and_nothing_stays(capture, fake_nsys, tmp_path):
    program = 'trap "" TERM; (trap "" TERM; sleep 60) & echo ready; wait; sleep 60'
    started = started_and(capture, fake_nsys, "whole", program)
    below = descendants(started.pid)
    assert len(below) >= 5
    started.kill()
    assert gone(below)
    _, err = started.communicate(timeout=60)
    assert "the launcher killed the rank, and the program was ended" in err
    assert len(list((tmp_path / "reports").iterdir())) == 1


def test_a_launcher_that_is_gone_hears_nothing_and_the_rank_is_tidied_up(capture, fake_nsys, tmp_path):
    started = started_and(capture, fake_nsys, "whole", "echo ready; sleep 60")
    below = descendants(started.pid)
    started.stdout.close()
    started.stderr.close()
    started.kill()
    assert gone(below)
    started.wait()
    assert len(list((tmp_path / "reports").iterdir())) == 1
    assert list((tmp_path / "tmp").iterdir()) == []


def test_where_the_supervisor_is_killed_nothing_stays(capture, fake_nsys):
    started = started_and(capture, fake_nsys, "whole", "echo ready; sleep 60")
    below = descendants(started.pid)
    os.kill(below[0], signal.SIGKILL)
    started.communicate(timeout=60)
    assert started.returncode == -signal.SIGKILL
    assert gone(below)


GUARDED = """
import signal
from alltrace.capture.guard import SupervisorError, guarded
from alltrace.trace.errors import UsageError
def fails(_):
    raise UsageError("no such thing")
def has_a_defect(_):
    raise ZeroDivisionError
before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
try:
    guarded(fails)
except SupervisorError as error:
    print(error, error.exit_code)
print(guarded(has_a_defect), guarded(lambda _: 7))
signal.pthread_sigmask(signal.SIG_SETMASK, before)
print(guarded(lambda _: None), signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before)
"""


def test_a_supervisor_that_fails_says_so_by_its_guard(bare_environment):
    done = subprocess.run([sys.executable, "-c", GUARDED], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "no such thing 2\n70 7\nNone True\n"
    assert done.stderr.rstrip().endswith("ZeroDivisionError")


@pytest.mark.parametrize("fake", ["whole", "session"])
def test_control_c_reaches_the_program_once_also_in_a_session_of_its_own(bare_environment, fake_nsys, tmp_path, fake):
    command = [
        sys.executable,
        *"-m alltrace.cli.main capture exec --nsys".split(),
        str(fake_nsys),
        "--",
        "sh",
        "-c",
        TRAPS,
    ]
    environment = {**os.environ, "FAKE": fake, **{k: str(v) for k, v in WORLD.items()}}
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(tmp_path)
        os.execve(sys.executable, command, environment)
    shown = b""
    while b"ready" not in shown:
        shown += os.read(terminal, 1000)
    os.write(terminal, b"\x03")
    while True:
        try:
            shown += os.read(terminal, 1000)
        except OSError:  # the terminal is closed by the last one
            break
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    assert shown.count(b"got") == 1


def test_a_program_whose_name_the_kernel_cuts_within_a_letter_is_told_of_signals(capture, fake_nsys, tmp_path):
    program = tmp_path / ("ä" * 10)  # the kernel keeps 15 bytes
    program.write_text('#!/bin/sh\ntrap "exit 7" USR1\necho ready\nwhile :; do sleep 0.1; done\n')
    program.chmod(0o755)
    started = capture("exec", "--nsys", fake_nsys, "--", program, wait=False, **WORLD)
    assert started.stdout.readline() == "ready\n"
    started.send_signal(signal.SIGUSR1)
    _, err = started.communicate(timeout=60)
    assert (started.returncode, err) == (7, "")
