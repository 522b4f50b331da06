import numpy as np
import pytest
from tests.synth.faults.planting import LAYOUTS, lost_ns, run

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
