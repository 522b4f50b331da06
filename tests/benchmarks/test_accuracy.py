"""What the table of simulated faults counts as right."""

from __future__ import annotations

import pytest

from benchmarks.accuracy import own_communication_ns, right_first

STRAGGLER = {"finding": "straggler", "ranks": [3], "lost_ns": 100}


def row(kind, *ranks, opportunity=None):
    return {"kind": kind, "ranks": list(ranks), "hosts": [], "opportunity_share": opportunity}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("found", "own_ns", "good"),
    [
        ([row("straggler", 3)], 0, True),
        ([row("straggler", 3)], 200, False),
        ([row("exposed-communication"), row("straggler", 3)], 200, True),
        ([row("exposed-communication"), row("straggler", 3)], 50, False),
        ([row("exposed-communication"), row("straggler", 3)], 95, True),
        ([row("straggler", 3), row("exposed-communication")], 105, True),
        ([row("exposed-communication"), row("straggler", 2)], 200, False),
        ([row("straggler", 2), row("straggler", 3)], 0, False),
        ([row("sync"), row("straggler", 3)], 200, False),
        ([row("exposed-communication")], 200, False),
        ([], 0, False),
    ],
)
def test_the_costliest_comes_first_and_the_fault_is_named(found, own_ns, good):
    assert right_first(found, STRAGGLER, own_ns) is good


def test_a_fault_that_costs_nothing_comes_behind_what_the_run_waits_for():
    fault = {"finding": "capture-fault", "ranks": [1], "lost_ns": 0}
    assert right_first([row("exposed-communication"), row("capture-fault", 1)], fault, 7)
    assert right_first([row("capture-fault", 1), row("exposed-communication")], fault, 7)
    assert right_first([row("capture-fault", 1)], fault, 7)
    assert not right_first([row("capture-fault", 1), row("straggler", 3)], fault, 7)
    assert not right_first([row("exposed-communication")], fault, 7)


def test_a_pipeline_waits_more_for_its_messages_than_one_with_fast_links():
    values = {"ranks": 8, "hosts": 2, "steps": 3, "kernels_per_layer": 3}
    slow = own_communication_ns("pipeline", 1, {**values, "between_hosts_gb_per_s": 1.0})
    assert slow > own_communication_ns("pipeline", 1, values) > 0
