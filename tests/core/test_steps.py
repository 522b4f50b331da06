"""The times of a training's steps: phases add up, waits for a processor are of none, and records hold what was put
in."""

from __future__ import annotations

import os
import random
import threading
import time
import zlib
from pathlib import Path

import pytest

from alltrace.core.steps import AT_LAST, PAGE_BYTES, RECORD_BYTES, TIMED_PHASES, Phase, StepTimes

MS = 1_000_000


class Clock:
    """A clock that a test moves, and how long the thread waited for a processor."""

    now = waited = 0

    def __call__(self):
        return self.now, self.waited

    def go(self, ms, waited=0.0):
        self.now += round((ms + waited) * MS)
        self.waited += round(waited * MS)


def window(times, every):
    """Of each step of a window in ms: the wait for a processor, the time in no phase, and those in phases."""
    rows, width = times.taken_window(), TIMED_PHASES + 2
    return [[round(1000 * s, 6) for s in rows[n * width : (n + 1) * width]] for n in range(every)]


def test_phases_of_random_programs_add_up_to_their_steps():
    chance = random.Random(5)
    clock = Clock()
    times = StepTimes(50, clock)
    places = [Phase(times, n + 1) for n in range(TIMED_PHASES)]
    expected = []
    for _ in range(50):
        sums = [0] * (TIMED_PHASES + 1)

        def inside(depth, current, sums=sums):
            for _ in range(chance.randrange(4)):
                ms = chance.randrange(5)
                clock.go(ms)
                sums[current] += ms
                if depth < 4:
                    number = chance.randrange(TIMED_PHASES)
                    with places[number]:
                        inside(depth + 1, number + 1)

        inside(0, 0)
        times.end()
        expected.append([0, *sums])
    assert window(times, 50) == expected


def test_a_wait_for_a_processor_is_told_from_the_phase_that_it_is_in_where_it_is_notable():
    clock = Clock()
    times = StepTimes(2, clock)
    for _ in range(2):  # nothing is known in the first window, so all is read
        times.turn(1)
        clock.go(50, 20)
        times.turn(2)
        clock.go(30)
        times.end()
    assert [row[:4] for row in window(times, 2)] == [[20, 0, 50, 30]] * 2
    for _ in range(2):  # waits were notable: they are read where a phase takes longer than before
        times.turn(1)
        clock.go(50, 0.1)
        times.turn(2)
        clock.go(30, 7)
        times.end()
    assert [row[:4] for row in window(times, 2)] == [[7.1, 0, 50.1, 29.9]] * 2
    for _ in range(2):
        times.turn(1)
        clock.go(50)
        times.end()
    window(times, 2)
    times.turn(1)
    clock.go(60, 5)  # they were not, so they are read once a step, and cut to what the last phase took
    times.turn(2)
    clock.go(3)
    times.end()
    times.end()
    assert window(times, 2)[0][:4] == [3, 0, 65, 0]


def test_the_system_tells_time_and_waits():
    times = StepTimes(1)
    began = time.perf_counter()
    times.turn(3)
    until = time.perf_counter() + 0.02
    while time.perf_counter() < until:
        pass
    assert times.end()
    took_ms = 1000 * (time.perf_counter() - began)
    (row,) = window(times, 1)
    assert 20 <= row[0] + row[4] <= took_ms
    assert abs(times.begin_ns - time.time_ns()) < 1_000_000_000


@pytest.mark.skipif(not Path("/proc/thread-self/schedstat").exists(), reason="no schedstat")
def test_waits_of_the_calling_thread_are_counted():
    """Two threads that compute with one processor each wait half of the time."""
    cores = os.sched_getaffinity(0)
    results = []

    def compute(seconds):
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            zlib.crc32(bytes(1 << 20))  # without the lock of the interpreter

    def measured():
        os.sched_setaffinity(0, {min(cores)})
        times = StepTimes(1)
        compute(0.3)
        times.end()
        results.append(window(times, 1)[0])

    threads = [threading.Thread(target=measured) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(row[0] > 50 for row in results), results


def test_records_hold_what_was_put_in_and_cannot_overflow():
    page = bytearray(PAGE_BYTES)
    times = StepTimes(10)
    times.write_to(page)
    times.set_gpu(1 << 20, 4, 79)
    times.put(7, 1 << 60, [0, 1 << 50, -5 * MS, *[MS] * (TIMED_PHASES - 2)], 2 * MS, 3, 1)
    record = times.taken_records()
    assert len(record) == RECORD_BYTES
    assert record == page[AT_LAST : AT_LAST + RECORD_BYTES]
    assert int.from_bytes(record[-4:], "little") == zlib.crc32(record[:-4])
    numbers = [int.from_bytes(record[at : at + 4], "little") for at in range(16, 44, 4)]
    assert numbers == [0xFFFFFFFF, 0xFFFFFFFF, 0, 1000, 1000, 1000, 2000]
    assert record[46:48] == b"\xff\xff"
    assert times.taken_records() == b""


def test_what_cannot_be_is_an_error():
    times = StepTimes(2)
    for phase in (-1, TIMED_PHASES + 1):
        with pytest.raises(ValueError, match=f"phase {phase} is none of 0 to {TIMED_PHASES}"):
            times.turn(phase)
        with pytest.raises(ValueError, match="is none of"), Phase(times, phase):
            pass
    with pytest.raises(ValueError, match=f"a page has {PAGE_BYTES} bytes, not 64"):
        times.write_to(bytearray(64))
    with pytest.raises(ValueError, match="phases are too many"):
        times.put(0, 0, [0] * (TIMED_PHASES + 2))
    assert [times.end(), times.end()] == [False, True]
    with pytest.raises(ValueError, match="the window is full"):
        times.end()
    times.taken_window()
    times.end()
