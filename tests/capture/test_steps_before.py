"""How long steps took before a window: warm-up, hosts that run ahead, a checkpoint among them, and memory."""

import pytest

from alltrace.capture import steps as steps_module
from alltrace.capture.steps import StepsBefore


def told(monkeypatch, times_ms, before=None):
    now = 0

    def clock():
        return now * 1_000_000

    monkeypatch.setattr(steps_module, "perf_counter_ns", clock)
    before = before or StepsBefore()
    for took in times_ms:
        now += took
        before.ended()
    return before


def test_first_steps_and_too_few_say_nothing(monkeypatch):
    assert told(monkeypatch, [900] * 3 + [100] * 8).mark() is None
    mark = told(monkeypatch, [900] * 4 + [100] * 8).mark()
    assert (mark.steps, mark.each_ns, mark.error_ns) == (8, 100_000_000, 0)


def test_a_checkpoint_among_them_does_not_count(monkeypatch):
    assert told(monkeypatch, [100] * 30 + [5000] + [100] * 30).mark().each_ns == 100_000_000


def test_a_host_that_runs_ahead_and_then_waits(monkeypatch):
    """Nine launches of 10 ms and a wait of 910 ms for the device, which takes 100 ms a step."""
    mark = told(monkeypatch, ([10] * 9 + [910]) * 16).mark()
    assert mark.each_ns == pytest.approx(100e6, rel=0.03)


def test_memory_is_bounded_and_the_last_steps_count(monkeypatch):
    before = told(monkeypatch, [300] * 5000 + [100] * 1100)
    assert before.mark().each_ns == 100_000_000
    assert before.mark().steps == 1023


def test_steps_before_a_window_are_forgotten_behind_it(monkeypatch):
    before = told(monkeypatch, [300] * 50)
    before.forget()
    assert before.mark() is None
