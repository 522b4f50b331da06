"""Tasks in this process and in spawned ones: outcomes, errors, progress, killed workers, interruption."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from alltrace.engine.tasks import default_jobs, run_tasks
from alltrace.trace.errors import AlltraceError, InputError


def work(item, advance):
    """Gives the square and the process; negative numbers are errors, 13 dies, 14 is a bug."""
    if item == 13:
        os.kill(os.getpid(), signal.SIGKILL)
    if item == 14:
        raise ZeroDivisionError("a bug")
    if item < 0:
        raise InputError("x.sqlite", found=f"number {item}", expected="one from 0 up", advice="count again")
    for _ in range(item):
        advance(1)
    return item * item, os.getpid()


def test_one_job_runs_here_and_in_order():
    told = []
    outcomes = list(run_tasks(work, [3, 1, 2], jobs=1, progress=told.append))
    assert [o.index for o in outcomes] == [0, 1, 2]
    assert [o.get() for o in outcomes] == [(9, os.getpid()), (1, os.getpid()), (4, os.getpid())]
    assert sum(told) == 6
    assert next(iter(run_tasks(work, [5], jobs=8))).get()[1] == os.getpid()
    assert list(run_tasks(work, [], jobs=8)) == []
    assert default_jobs() >= 1


def test_many_jobs_run_elsewhere_with_the_same_outcomes():
    items = [*range(12), -5, 500]
    told = []
    outcomes = sorted(run_tasks(work, items, jobs=2, progress=told.append), key=lambda o: o.index)
    assert [o.index for o in outcomes] == list(range(14))
    good = [o for o in outcomes if o.error is None]
    assert [o.get()[0] for o in good] == [n * n for n in items if n >= 0]
    assert os.getpid() not in {o.get()[1] for o in good}
    # what is counted in a worker arrives before its result does
    assert sum(told) == sum(n for n in items if n > 0)
    error = outcomes[12].error
    assert isinstance(error, InputError)
    assert error.path == "x.sqlite"
    assert str(error) == "x.sqlite: number -5; expected one from 0 up; count again"
    with pytest.raises(InputError, match="number -5"):
        outcomes[12].get()


class Remembering:
    """Remembers the items that it was given; `sent` counts how often it was pickled in this process."""

    sent = 0

    def __init__(self):
        self.seen = []

    def __getstate__(self):
        Remembering.sent += 1
        return {"seen": []}

    def __call__(self, item, advance):
        self.seen.append(item)
        return os.getpid(), list(self.seen)


def test_tasks_share_what_is_sent_once_and_failures_are_sentences():
    Remembering.sent = 0
    found: dict[int, list[int]] = {}
    for outcome in run_tasks(Remembering(), range(40), jobs=2):
        pid, seen = outcome.get()
        found[pid] = max(found.get(pid, []), seen, key=len)
    assert sorted(n for seen in found.values() for n in seen) == list(range(40))
    assert Remembering.sent == 2
    with pytest.raises(AlltraceError, match=r"a worker process was killed, .* run it again with a smaller --jobs"):
        list(run_tasks(work, [1, 13, 2, 3], jobs=2))
    with pytest.raises(ZeroDivisionError):
        list(run_tasks(work, [1, 14, 2, 3], jobs=2))


SCRIPT = """
import sys, time
from alltrace.engine.tasks import run_tasks
sys.path.insert(0, {folder!r})
from sleeping import sleep
print("started", flush=True)
for outcome in run_tasks(sleep, [{folder!r}] * 4, jobs=2):
    print("never")
"""
SLEEPING = """
import os, tempfile, time
from pathlib import Path
def sleep(folder, advance):
    tempfile.mkstemp()
    Path(folder, f"{os.getpid()}.pid").touch()
    time.sleep(60)
"""


def sleepers(folder: Path) -> list[int]:
    return [int(p.stem) for p in folder.glob("*.pid")]


def wait_until(condition, what):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 1), (signal.SIGKILL, -9)])
def test_nothing_goes_on_without_its_parent(tmp_path, how, code):
    (tmp_path / "sleeping.py").write_text(SLEEPING)
    # the script has no main guard: a worker must not run it again
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT.format(folder=str(tmp_path))))
    (tmp_path / "temporary").mkdir()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
        "TMPDIR": str(tmp_path / "temporary"),
    }
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    ) as parent:
        wait_until(lambda: len(sleepers(tmp_path)) == 2, "two workers sleep")
        if how == signal.SIGINT:  # as Ctrl-C does, to all of the terminal's processes
            os.killpg(parent.pid, how)
        else:
            parent.kill()
        out, err = parent.communicate(timeout=20)
        assert out == "started\n"
        assert (parent.returncode < 0 or parent.returncode == 1) if how == signal.SIGINT else parent.returncode == code
        assert err.count("Traceback") == (how == signal.SIGINT)
    wait_until(lambda: not any(map(alive, sleepers(tmp_path))), "the workers are gone")
    assert not list((tmp_path / "temporary").glob("alltrace-*"))
