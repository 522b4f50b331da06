from __future__ import annotations

import pytest

from alltrace.synth import SCENARIOS
from alltrace.synth.faults import SlowRank
from alltrace.trace.errors import UsageError


def test_override_reaches_every_part_and_leaves_the_original():
    healthy = SCENARIOS["healthy"]
    changed = healthy.override(ranks=6, hosts=3, steps=2, layers=5, schema="3.7.2", drift_ppm=1.0, latency_ns=7)
    assert (changed.layout.ranks, changed.layout.ranks_per_host, changed.steps) == (6, 2, 2)
    assert (changed.work.layers, changed.environment.schema, changed.clocks.drift_ppm, changed.links.latency_ns) == (
        5,
        "3.7.2",
        1.0,
        7,
    )
    assert (healthy.layout.ranks, healthy.steps) == (16, 8)


def test_faults_move_to_ranks_that_exist():
    assert SCENARIOS["straggler"].override(ranks=4).faults == (SlowRank(ranks=(3,), factor=1.25),)
    assert SCENARIOS["straggler"].override(steps=1).faults == (SlowRank(ranks=(11,), factor=1.25),)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ranks": 5}, "5 ranks cannot be spread evenly over 2 hosts"),
        ({"ranks": 0}, "ranks_per_host must be at least 1; 0 was given"),
        ({"hosts": 0}, "hosts must be at least 1; 0 was given"),
        ({"step": 3}, "there is no scenario value 'step'; did you mean steps"),
        ({"steps": 0}, "steps must be at least 1; 0 was given"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"buckets": 13}, "buckets must be 1 to the 12 layers; 13 was given"),
        ({"tensor_parallel": 3}, "must divide the 8 ranks of a host; 3 was given"),
        ({"schema": "9"}, "there is no schema '9'"),
        ({"rank_source": "guess"}, "there is no rank source 'guess'"),
        ({"kind": "pipe"}, "there is no layout 'pipe'"),
        ({"host_gap_ns": 5}, "host_gap_ns must be at least 1000"),
        ({"page_bytes": 1000}, "page_bytes must be a power of two"),
        ({"faults": (SlowRank(ranks=(16,)),)}, "fault 'slow-rank' names rank 16, but the run has ranks 0 to 15"),
    ],
)
def test_values_that_do_not_fit_are_named(changes, words):
    with pytest.raises(UsageError) as error:
        SCENARIOS["healthy"].override(**changes)
    assert words in str(error.value)
