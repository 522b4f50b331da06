"""What network adapters did while devices waited: against the same sums in plain Python, and in words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.making import make_run

from alltrace.recipes.analysis.network_state import (
    COLLECT,
    Adapter,
    NetworkState,
    compared_networks,
    network_state,
    slow_adapters,
)
from alltrace.trace.intervals import Merged

SPANS = Merged(np.array([100, 300], np.int64), np.array([200, 400], np.int64))


def sample(start, end, metric, value, nic="mlx5_0", guid=1):
    return {"start": start, "end": end, "nic": nic, "guid": guid, "metric": metric, "value": float(value)}


def state_of(folder, adapters, switches=()):
    tables = {
        "nic_metrics": list(adapters),
        "switch_metrics": [{k: v for k, v in s.items() if k != "nic"} for s in switches],
    }
    return network_state(make_run(folder, {0: tables, 1: {"ranges": []}}).in_session_time().rank(0), SPANS)


@settings(max_examples=15)
@given(
    st.lists(
        st.tuples(st.integers(0, 500), st.integers(0, 200), st.integers(0, 10**7), st.booleans()),
        min_size=1,
        max_size=12,
    )
)
def test_rates_are_means_by_time_and_adapters_add_up(tmp_path_factory, samples):
    rows = [sample(s, s + n, "IB: Bytes sent", v, *(("mlx5_1", 2) if other else ())) for s, n, v, other in samples]
    state = state_of(tmp_path_factory.mktemp("run") / "run", rows)
    total, known = 0.0, False
    for nic in ("mlx5_0", "mlx5_1"):
        held = {t: [] for t in (*range(100, 200), *range(300, 400))}
        for row in rows:
            if row["nic"] == nic:
                for t in range(row["start"], row["end"]):
                    if t in held:
                        held[t].append(row["value"])
        values = [v for found in held.values() for v in found]
        known |= bool(values)
        total += sum(values) / len(values) * 1000 / 1e9 if values else 0.0
    assert (state is not None) == known
    if known:
        assert state.sent_gb_per_s == pytest.approx(total)
        assert (state.received_gb_per_s, state.wait_ticks_per_ms, state.switch_wait_ticks_per_ms) == (None, None, None)


def test_waits_are_of_the_adapter_and_the_switch_that_wait_most(tmp_path):
    state = state_of(
        tmp_path / "run",
        [
            sample(100, 200, "IB: Send waits", 40),
            sample(100, 200, "IB: Send waits", 900, "mlx5_3", 4),
            sample(200, 300, "IB: Send waits", 10**6),
            sample(150, 200, "IB: Bytes received", 5_000_000),
        ],
        [sample(0, 150, "IB: Send waits", 70, guid=99), sample(0, 150, "IB: Send waits", 80, guid=98)],
    )
    assert state == NetworkState(None, 5.0, 900.0, "mlx5_3", 80.0)


def test_an_adapter_is_told_by_what_it_sends_while_it_sends(tmp_path):
    # 24 GB/s for 25 ns, 12 GB/s for 50 ns, and one that sends nothing; what is sent behind the judged time does not
    # count
    rows = [sample(100, 125, "IB: Bytes sent", 24e6), sample(125, 200, "IB: Bytes sent", 1e6)]
    rows += [
        sample(100, 150, "IB: Bytes sent", 12e6, "mlx5_1", 2),
        sample(150, 200, "IB: Bytes sent", 1e6, "mlx5_1", 2),
    ]
    rows += [sample(100, 200, "IB: Bytes sent", 0, "mlx5_9", 9), sample(200, 300, "IB: Bytes sent", 90e6)]
    one, other = state_of(tmp_path / "run", rows).adapters
    assert (one.name, one.sending_gb_per_s, one.gb_per_s) == ("mlx5_0", 24.0, pytest.approx(6.75))
    assert (other.name, other.sending_gb_per_s, other.gb_per_s) == ("mlx5_1", 12.0, pytest.approx(6.5))


def adapters(**rates):
    """A host's adapters: each carries 4 GB/s in the mean, at its own rate."""
    return NetworkState(adapters=tuple(Adapter(name, 4.0, rate) for name, rate in rates.items()))


@pytest.mark.parametrize(
    ("states", "names", "hosts", "rail"),
    [
        ({"a": adapters(m0=24, m1=24), "b": adapters(m0=24, m1=12)}, ("m1",), ("b",), False),
        ({"a": adapters(m0=24, m1=12, m2=24), "b": adapters(m0=24, m1=12, m2=24)}, ("m1",), ("a", "b"), True),
        ({"a": adapters(m0=24, m1=12, m2=10, m3=24, m4=24)}, ("m1", "m2"), ("a",), False),
    ],
)
def test_slow_adapters_are_named_and_so_is_a_rail(states, names, hosts, rail):
    slow = slow_adapters(states)
    assert (slow.names, slow.hosts, slow.rail, slow.peers_gb_per_s) == (names, hosts, rail, 24.0)


@pytest.mark.parametrize(
    "states",
    [
        {},
        {"a": adapters(m0=24, m1=12)},  # two say nothing of what is usual
        {"a": adapters(m0=24, m1=24, m2=20)},  # as links differ
        # one that carries less is used less
        {"a": NetworkState(adapters=(*adapters(m0=24, m1=24, m2=24).adapters, Adapter("m3", 1.0, 12.0)))},
    ],
)
def test_adapters_that_are_used_otherwise_or_too_few_are_not_slow(states):
    assert slow_adapters(states) is None


def test_a_report_without_counters_tells_nothing(tmp_path):
    run = make_run(tmp_path / "run", {0: {"ranges": []}, 1: {"nic_metrics": [sample(200, 300, "IB: Bytes sent", 5)]}})
    assert network_state(run.in_session_time().rank(0), SPANS) is None
    assert network_state(run.in_session_time().rank(1), SPANS) is None  # none of its samples is of that time


PEER = NetworkState(11.8, 11.7, 40.0, "mlx5_0")


@pytest.mark.parametrize(
    ("states", "hosts", "sentence", "stands_out"),
    [
        (
            {"n3": NetworkState(3.1, 3.0, 12_000.0, "mlx5_2"), "n1": PEER, "n2": PEER},
            ["n3"],
            (
                "While devices waited, the adapters of host n3 sent 3.10 GB/s and received 3.00 GB/s, those of the"
                " other hosts 11.80 GB/s. Adapter mlx5_2 waited to send for 12,000 ticks per ms, elsewhere 40."
            ),
            True,
        ),
        (
            {"n3": NetworkState(11.0, None, 50.0, "", 5_000.0), "n1": PEER},
            ["n3"],
            (
                "While devices waited, the adapters of host n3 sent 11.00 GB/s, those of the other hosts 11.80 GB/s. An"
                " adapter waited to send for 50 ticks per ms, elsewhere 40. The busiest switch waited to send for 5,000"
                " ticks per ms."
            ),
            False,
        ),
        (
            {"n1": PEER, "n2": PEER},
            ["n1", "n2"],
            "While devices waited, the adapters of 2 hosts sent 11.80 GB/s and rec",
            False,
        ),
        (
            {"n1": NetworkState(wait_ticks_per_ms=2e3)},
            ["n1"],
            "An adapter waited to send for 2,000 ticks per ms.",
            True,
        ),
        ({"n1": PEER}, ["n3"], COLLECT, False),
        ({}, ["n3"], COLLECT, False),
    ],
)
def test_sentences(states, hosts, sentence, stands_out):
    said = compared_networks(states, hosts)
    assert said.sentence.startswith(sentence)
    assert said.slower == stands_out
    assert bool(said.evidence) == (sentence != COLLECT)


def test_numbers():
    assert compared_networks({"n3": NetworkState(3.1, 3.0, 12e3, "a", 7.0), "n1": PEER}, ["n3"]).evidence == {
        "nic_gb_per_s": 3.1,
        "peers_nic_gb_per_s": 11.8,
        "nic_received_gb_per_s": 3.0,
        "peers_nic_received_gb_per_s": 11.7,
        "nic_wait_ticks_per_ms": 12e3,
        "peers_nic_wait_ticks_per_ms": 40.0,
        "switch_wait_ticks_per_ms": 7.0,
    }
