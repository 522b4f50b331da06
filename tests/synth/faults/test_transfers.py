import numpy as np
import pytest
from tests.synth.faults.planting import LAYOUTS, STEPS, calls, lost_ns, run

from alltrace.synth import SCENARIOS
from alltrace.synth.truth import _device_times
from alltrace.trace.errors import UsageError


def _transfers(simulated, name):
    return np.array(
        [
            min(one.ends.values()) - max(one.arrivals.values())
            for one in simulated.collectives
            if simulated.groups[one.group].name == name
        ]
    )


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("name", "communicator", "ranks"),
    [
        ("healthy", "world", tuple(range(16))),
        ("tensor-data", "data 0", (0, 4, 8, 12)),
        ("pipeline", "pipe 0-4", (0, 4)),
        ("experts", "expert 0", tuple(range(8))),
        ("sharded", "gather", tuple(range(16))),
    ],
)
def test_one_communicator_is_slower(name, communicator, ranks):
    slow, well = run(name, "slow-communicator:factor=4"), run(name)
    assert (slow.faults[0].communicators, slow.faults[0].ranks) == ((communicator,), ranks)
    ratio = _transfers(slow, communicator) / _transfers(well, communicator)
    assert ratio == pytest.approx(4.0, rel=0.1)
    for group in slow.groups[2:]:
        if group.name != communicator and len(_transfers(well, group.name)):
            assert _transfers(slow, group.name) == pytest.approx(_transfers(well, group.name), abs=2_001)
    assert lost_ns(name, "slow-communicator:factor=4") > 0


def test_a_link_has_two_ends_and_may_be_slow_for_some_steps():
    slow = run("tensor-data", "slow-communicator:ranks=1,5")
    assert slow.faults[0].communicators == ("world", "data 1")
    assert slow.faults[0].ranks == (1, 5)
    slow, well = run("healthy", "slow-communicator:steps=2-2"), run("healthy")
    ratio = _transfers(slow, "world") / _transfers(well, "world")
    assert ratio.round().tolist() == [1] * 8 + [3] * 4 + [1] * 4


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", LAYOUTS)
def test_nothing_overlaps_with_exposed_communication(name):
    bare, well = run(name, "exposed-communication"), run(name)
    hidden = []
    for one in (bare, well):
        times = _device_times(one.timelines[5])
        hidden.append(times["communication_ns"] - times["exposed_ns"])
    assert hidden[0] < 0.05 * hidden[1] if name != "pipeline" else hidden[0] < 0.9 * hidden[1]
    assert lost_ns(name, "exposed-communication") > 1_000_000


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["pipeline", "experts", "sharded"])
def test_serialized_collectives_share_a_stream(name):
    serial, well = run(name, "serialized-communication"), run(name)
    streams = []
    for one in (serial, well):
        rows = one.timelines[5].kernels
        communication = np.isin(rows["stream"], (13, 17, 21, 25, 29, 33))
        streams.append(len(np.unique(rows["stream"][communication])))
    assert streams[0] == 1 < streams[1]
    assert lost_ns(name, "serialized-communication") > 5_000_000


def test_two_stages_of_one_rank_have_nothing_to_serialize():
    pair = SCENARIOS["pipeline"].override(hosts=1, ranks=2, pipeline_stages=2, ideal=True)
    with pytest.raises(UsageError, match="needs a layout in which a rank has several communicators"):
        pair.override(faults=["serialized-communication"])
    SCENARIOS["pipeline"].override(hosts=1, ranks=4, pipeline_stages=2, ideal=True).override(
        faults=["serialized-communication"], ideal=True
    )


def test_pageable_and_synchronous_copies_stop_the_host():
    line = run("healthy", "pageable-copy:ranks=2").timelines[2]
    rows = line.copies
    batch = rows["kind"] == 1
    assert set(rows["source"][batch].tolist()) == {0}
    lengths = (rows["end"] - rows["start"])[batch]
    assert rows["bytes"][batch] / lengths == pytest.approx(3.0, rel=0.01)
    ends = dict(zip(line.api["correlation"].tolist(), line.api["end"].tolist(), strict=True))
    assert all(
        ends[c] > end for c, end in zip(rows["correlation"][batch].tolist(), rows["end"][batch].tolist(), strict=True)
    )
    # 8 MiB at 3 instead of 25 GB/s
    assert lost_ns("healthy", "pageable-copy:ranks=2") == pytest.approx(STEPS * (8 << 20) * (1 / 3 - 1 / 25), rel=0.1)
    fetching, well = run("healthy", "sync-copy:ranks=2"), run("healthy")
    line = fetching.timelines[2]
    starts, lengths = calls(line, "cudaMemcpy_v3020")
    assert len(starts) == STEPS * 12
    # 4 MiB at 25 GB/s, after the layer's kernels of 10 times 60 microseconds
    assert 500_000 < np.median(lengths) < 900_000
    assert (line.copies["kind"] == 2).sum() - (well.timelines[2].copies["kind"] == 2).sum() == STEPS * 12
    assert lost_ns("healthy", "sync-copy:ranks=2") == pytest.approx(STEPS * 12 * (168_000 + 50_000), rel=0.1)


@pytest.mark.parametrize(("direction", "kind"), [("to-device", 1), ("to-host", 2)])
def test_one_direction_is_slow_on_one_rank(direction, kind):
    slow = run("healthy", f"low-bandwidth:ranks=9:direction={direction}:factor=8")
    rates = []
    for line in slow.timelines:
        mine = line.copies["kind"] == kind
        rates.append(float(np.median((line.copies["bytes"] / (line.copies["end"] - line.copies["start"]))[mine])))
    assert rates[9] == pytest.approx(rates[8] / 8, rel=0.01)
    assert np.ptp([rate for rank, rate in enumerate(rates) if rank != 9]) == pytest.approx(0, abs=1e-9)
    if kind == 1:
        assert lost_ns("healthy", f"low-bandwidth:ranks=9:direction={direction}:factor=8") == pytest.approx(
            STEPS * 7 * (8 << 20) / 25, rel=0.2
        )


def test_a_slow_link_is_slow_for_everyone_on_it():
    slow, well = run("tensor-data", "low-bandwidth:ranks=5:direction=link:factor=3"), run("tensor-data")
    for group in slow.groups[1:]:
        took = [
            np.mean(
                [
                    min(i.ends.values()) - max(i.arrivals.values())
                    for i in one.collectives
                    if one.groups[i.group] == group
                ]
            )
            for one in (slow, well)
        ]
        assert took[0] / took[1] == pytest.approx(3.0 if 5 in group.ranks else 1.0, rel=0.08)
    assert lost_ns("tensor-data", "low-bandwidth:ranks=5:direction=link:factor=3") > 1_000_000
