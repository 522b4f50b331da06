"""At which clocks GPUs ran: what is stated against the samples that it was stated of."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.making import make_run

from alltrace.recipes.analysis.gpu_state import COLLECT, GpuState, compared, gpu_state, state_of_log
from alltrace.run.gpu_logs import GPU_LOG
from alltrace.trace.gpu_log_words import REASONS, reason_names

SPANS = np.array([[100, 200], [300, 400]], np.int64)
PEER = GpuState(1980.0, 2619.0, 640.0, 61.0, 0, 10)


def log_of(rows):
    """A table of samples: (time, MHz, memory MHz, W, C, reasons)."""
    names = ("time", "sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c", "event_reasons")
    columns = dict(zip(names, zip(*rows, strict=True), strict=True)) if rows else {n: [] for n in names}
    return (
        pa.table({**columns, "rank": [0] * len(rows), "device": [0] * len(rows)})
        .select(GPU_LOG.column_names)
        .cast(GPU_LOG.arrow_schema())
    )


@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(200, 2000), st.sampled_from([0, 1, 4, 5, 0x44])), max_size=40)
)
def test_medians_are_those_of_the_samples_in_the_spans_that_are_not_idle(samples):
    state = state_of_log(log_of([(t, mhz, 2 * mhz, mhz / 10, 50, bits) for t, mhz, bits in sorted(samples)]), SPANS)
    mine = [(mhz, bits) for t, mhz, bits in samples if any(s <= t < e for s, e in SPANS.tolist()) and not bits & 1]
    if not mine:
        assert state is None
        return
    clocks = sorted(m for m, _ in mine)
    middle = len(clocks) // 2
    median = clocks[middle] if len(clocks) % 2 else (clocks[middle - 1] + clocks[middle]) / 2
    assert (state.sm_clock_mhz, state.memory_clock_mhz, state.samples) == (median, 2 * median, len(mine))
    for bit in (4, 0x40):
        assert bool(state.reasons & bit) == (2 * sum(1 for _, b in mine if b & bit) >= len(mine))


def test_what_a_sample_lacks_does_not_count():
    state = state_of_log(log_of([(110, 1000.0, None, None, None, None), (120, None, None, 500.0, None, 4)]), SPANS)
    assert state == GpuState(1000.0, None, 500.0, None, 4, 2)


@pytest.mark.parametrize(
    ("states", "ranks", "sentence"),
    [
        (
            {11: GpuState(1215.0, reasons=4), 1: PEER},
            [11],
            "Rank 11's GPU ran at 1,215 MHz (power cap), its peers at 1,980.",
        ),
        (
            {11: GpuState(1215.0, 2619.0, 412.0, 83.0, 0x20), 1: PEER, 2: PEER},
            [11],
            (
                "Rank 11's GPU ran at 1,215 MHz (software thermal slowdown), its peers at 1,980. It drew 412 W at 83"
                " °C, its peers 640 W at 61 °C."
            ),
        ),
        (
            {3: GpuState(1215.0, reasons=0x48), 4: GpuState(1225.0, reasons=0x48), 5: PEER},
            [3, 4],
            (
                "The GPUs of ranks 3-4 ran at 1,220 MHz (hardware slowdown, hardware thermal slowdown), their peers at"
                " 1,980."
            ),
        ),
        ({0: GpuState(1965.0), 1: PEER}, [0], "Rank 0's GPU ran at 1,965 MHz, its peers at 1,980."),
        (
            {0: GpuState(1980.0, 1593.0), 1: PEER},
            [0],
            "Rank 0's GPU ran at 1,980 MHz, its peers at 1,980. Its memory ran at 1,593 MHz, its peers' at 2,619.",
        ),
        ({0: GpuState(1980.0), 1: None}, [0], "Rank 0's GPU ran at 1,980 MHz."),
        (
            {0: GpuState(None, power_w=300.0, reasons=0x80), 1: PEER},
            [0],
            "Rank 0's GPU ran at an unknown clock (power brake).",
        ),
        ({0: None, 1: PEER}, [0], COLLECT),
        ({}, [0], COLLECT),
    ],
)
def test_sentences(states, ranks, sentence):
    said = compared(states, ranks)
    assert said.sentence.startswith(sentence)
    assert said.sentence == sentence or states[ranks[0]].power_w is not None
    assert bool(said.evidence) == (sentence != COLLECT)


def test_numbers_and_whether_the_clock_is_lower():
    said = compared({3: GpuState(1215.0, 2619.0, 412.0, 83.0), 5: PEER, 6: None, 7: GpuState(1990.0)}, [3])
    assert said.slower
    assert said.evidence == {
        "sm_clock_mhz": 1215.0,
        "peers_sm_clock_mhz": 1985.0,
        "memory_clock_mhz": 2619.0,
        "peers_memory_clock_mhz": 2619.0,
        "power_w": 412.0,
        "peers_power_w": 640.0,
        "temperature_c": 83.0,
        "peers_temperature_c": 61.0,
    }
    assert not compared({3: GpuState(1940.0), 5: PEER}, [3]).slower


@given(st.integers(0, (1 << 32) - 1))
def test_every_bit_has_a_name(bits):
    names = reason_names(bits)
    assert len(names) == bits.bit_count()
    assert {n for b, n in REASONS.items() if bits & b} <= set(names)


def test_without_a_log_the_clock_is_that_of_nsys_metrics(tmp_path):
    """In Hz by versions up to 2022, in MHz since."""
    for name, scale in (("GPC Clock Frequency", 1e6), ("GPC Clock Frequency [MHz]", 1)):
        samples = [
            {"time": t, "device": 0, "metric": name, "value": v * scale}
            for t, v in ((110, 1300), (310, 1200), (350, 1250))
        ]
        samples += [
            {"time": 250, "device": 0, "metric": name, "value": 9.0},
            {"time": 120, "metric": "SM Active", "device": 0, "value": 5.0},
        ]
        run = make_run(tmp_path / name, {0: {"gpu_metrics": samples}, 1: {"ranges": []}})
        assert gpu_state(run.in_session_time().rank(0), SPANS) == GpuState(1250.0, samples=3)
        assert gpu_state(run.rank(1), SPANS) is None
