"""The folder by which the ranks of a job know of each other."""

import threading
import time

from alltrace.capture.job_folder import JobFolder


def test_the_first_rank_does_not_wait_for_a_folder_that_the_last_one_removed(tmp_path):
    first, last = (JobFolder(tmp_path / "job", rank, 2) for rank in range(2))
    first.begin(first=True)
    last.begin(first=False)
    stops = []

    def stop(seconds):
        """The other rank leaves, finishes the run and removes the folder between two looks of this one."""
        stops.append(seconds)
        last.remove()
        return False

    began = time.monotonic()
    assert first.missing() == ["0", "1"]
    first.wait(60.0, stop)
    assert time.monotonic() - began < 30
    assert len(stops) == 1
    assert not first.may_finish()


def test_the_first_rank_waits_for_one_that_is_not_done(tmp_path):
    first = JobFolder(tmp_path / "job", 0, 2)
    first.begin(first=True)
    assert first.wait(0.2, threading.Event().wait) == ["0", "1 that did not begin"]
    assert first.may_finish()
