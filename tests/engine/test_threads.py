"""Calls made by threads: their results and errors, in which order and how many at once, and nothing left behind."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref

import pytest

from alltrace.engine.threads import Threads


def test_results_errors_and_named_arguments():
    with Threads(1, "test-calls") as threads:
        calls = [threads.submit(divmod, n, 3) for n in range(5)]
        named = threads.submit(int, "ff", base=16)
        broken = threads.submit(lambda: 1 // 0)
        after = threads.submit(str, 7)
        assert [c.result() for c in calls] == [divmod(n, 3) for n in range(5)]
        assert named.result() == 255
        with pytest.raises(ZeroDivisionError):
            broken.result()
        with pytest.raises(ZeroDivisionError):  # as often as it is asked
            broken.result()
        assert after.result() == "7"


def test_one_thread_makes_calls_in_their_order_and_closing_waits_for_all():
    made = []
    with Threads(1, "test-calls") as threads:
        for n in range(200):
            threads.submit(made.append, n)
    assert made == list(range(200))
    assert not [t for t in threading.enumerate() if t.name == "test-calls"]


def test_no_thread_without_a_call_and_never_more_than_wanted():
    with Threads(3, "test-calls") as threads:
        assert not [t for t in threading.enumerate() if t.name == "test-calls"]
        together = threading.Barrier(3)
        calls = [threads.submit(together.wait, 10) for _ in range(3)]  # a single thread would wait for itself
        assert sorted(c.result() for c in calls) == [0, 1, 2]
        idents = {c.result() for c in [threads.submit(threading.get_ident) for _ in range(50)]}
        assert len(idents) <= 3
        assert threading.get_ident() not in idents


def test_a_call_that_was_cancelled_in_time_is_not_made():
    made = []
    begin = threading.Event()
    with Threads(1, "test-calls") as threads:
        threads.submit(begin.wait, 10)
        cancelled, other = threads.submit(made.append, "cancelled"), threads.submit(made.append, "other")
        cancelled.cancel()
        begin.set()
        other.wait()
        cancelled.wait()
    assert made == ["other"]


def test_what_a_call_was_given_is_let_go_of_once_it_has_ended():
    class Given:
        pass

    given = Given()
    gone = weakref.ref(given)
    with Threads(1, "test-calls") as threads:
        call = threads.submit(id, given)
        del given
        call.wait()
        threads.submit(int).wait()  # the thread has gone on
        gc.collect()
        assert gone() is None


def test_no_log_is_loaded():
    code = (
        "import sys; from alltrace.engine.threads import Threads\n"
        "with Threads(2, 'x') as threads: print(threads.submit(int).result(), 'logging' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "False"]
