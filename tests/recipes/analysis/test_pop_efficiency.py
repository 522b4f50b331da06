"""The POP efficiencies against the vectors of the model's own tools, and what holds for any times."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alltrace.recipes.analysis.pop_efficiency import DeviceTree, device_tree, host_tree, scalability

VECTORS = {
    "V1": (100, (60, 40), (70, 60), (0.5, 0.833333, 0.857143, 0.7)),
    "V2": (400, (150, 40), (210, 90), (0.2375, 0.633333, 0.714286, 0.525)),
    "V2b": (400, (150, 70), (210, 90), (0.275, 0.733333, 0.714286, 0.525)),
    "V3": (100, (80, 20), (80, 90), (0.5, 0.625, 0.888889, 0.9)),
    "V4": (100, (40, 40), (80, 80), (0.4, 1, 0.5, 0.8)),
    "V4b": (100, (80, 80), (80, 80), (0.8, 1, 1, 0.8)),
    "V5": (100, (0, 50), (0, 50), (0.25, 0.5, 1, 0.5)),
    "V6": (100, (0,), (0,), (0, None, None, 0)),
}


@pytest.mark.parametrize("name", VECTORS)
def test_devices(name):
    span, useful, active, expected = VECTORS[name]
    tree = device_tree(useful, active, span)
    found = (tree.parallel, tree.load_balance, tree.communication, tree.orchestration)
    for value, wanted in zip(found, expected, strict=True):
        assert value is None if wanted is None else value == pytest.approx(wanted, abs=1e-6)


def test_maxima_over_processes_with_two_devices_in_one():
    tree = device_tree((60, 40), (70, 60), 100, processes=(0, 0))
    assert (tree.parallel, tree.load_balance, tree.orchestration) == (0.5, 0.5, 1.3)
    assert tree.communication == pytest.approx(0.769231, abs=1e-6)


def test_hosts():
    tree = host_tree((20, 40), (30, 20), 100)
    assert (tree.parallel, tree.mpi_parallel, tree.load_balance, tree.communication) == (0.45, 0.7, 0.875, 0.8)
    assert tree.offload == pytest.approx(0.642857, abs=1e-6)


def test_scaling():
    assert scalability(190, 2, 209, 2, weak=False) == pytest.approx(0.909091, abs=1e-6)
    assert scalability(190, 2, 418, 4, weak=True) == pytest.approx(0.909091, abs=1e-6)
    assert scalability(190, 2, 0, 4, weak=True) is None


def test_nothing_is_undefined():
    assert device_tree((), (), 100) == DeviceTree(None, None, None, None)
    assert device_tree((1,), (1,), 0).parallel is None
    assert host_tree((), (), 100).parallel is None


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1, max_size=8), st.integers(0, 500))
def test_the_product_of_the_parts_is_the_whole(devices, idle):
    useful = [u for u, _ in devices]
    active = [u + e for u, e in devices]
    span = max(active) + idle + 1
    tree = device_tree(useful, active, span)
    parts = (tree.load_balance, tree.communication, tree.orchestration)
    if None not in parts:
        assert tree.parallel == pytest.approx(parts[0] * parts[1] * parts[2])
    assert all(0 <= p <= 1 + 1e-12 for p in (tree.parallel, *parts) if p is not None)
    again = device_tree(useful[::-1], active[::-1], span)
    assert again.parallel == pytest.approx(tree.parallel)
    assert again.load_balance == pytest.approx(tree.load_balance)
