import numpy as np
import pytest

from alltrace.synth import SCENARIOS
from alltrace.synth.faults import FAULTS, Fault, NeedlessSync, SlowCommunicator, SlowHost, SlowRank
from alltrace.synth.faults.parse import describe_faults, parse_fault
from alltrace.synth.program import Pop
from alltrace.synth.scenario import Layout
from alltrace.trace.errors import UsageError

_RNG = np.random.default_rng(0)


def test_the_base_of_faults_and_their_kinds():
    ops = [Pop()]
    assert Fault(ranks=(0,)).edit(0, 0, ops, _RNG) is ops
    assert Fault().transfer_ns(None, None, 0, 17) == 17
    fault = SlowRank(ranks=(9, 5), factor=2.0)
    assert fault.truth() == {"kind": "slow-rank", "ranks": (9, 5), "factor": 2.0}
    assert fault.moved(Layout(hosts=1, ranks_per_host=4)).ranks == (1,)
    assert {name: fault.kind for name, fault in FAULTS.items()} == {name: name for name in FAULTS}
    planted = {fault.kind for scenario in SCENARIOS.values() for fault in scenario.faults}
    assert planted <= set(FAULTS)
    fault = SlowRank(ranks=(2,), steps=(3, 4))
    assert [step for step in range(8) if fault.hits(2, step)] == [3, 4]
    assert not fault.hits(1, 3)


def test_the_findings_are_those_of_a_diagnosis():
    assert {fault.finding for fault in FAULTS.values()} == {
        "straggler",
        "slow-host",
        "imbalance",
        "slow-communicator",
        "exposed-communication",
        "serialized-communication",
        "launch-bound",
        "sync",
        "host-pause",
        "data-stall",
        "idle-gap",
        "allocation",
        "pageable-copy",
        "sync-copy",
        "low-bandwidth",
        "capture-fault",
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("slow-rank", "fault 'slow-rank' needs ranks, such as slow-rank:ranks=0"),
        ("sync:steps=5-3", "fault 'sync' has the steps 5 to 3"),
        ("sync:steps=8-9", "fault 'sync' begins at step 8, but the run has steps 0 to 7"),
        ("slow-rank:ranks=1:factor=-2", "factor of fault 'slow-rank' must be at least 0.01; -2 was given"),
        ("cut-short:ranks=1:share=2", "share of fault 'cut-short' must be at most 1; 2 was given"),
        ("slow-host:hosts=2", "fault 'slow-host' names host 2, but the run has hosts 0 to 1"),
        ("slow-host:ranks=2", "fault 'slow-host' takes hosts, not ranks"),
        ("slow-communicator:communicators=wold", "unknown communicator 'wold'; did you mean world"),
        ("low-bandwidth:ranks=1:direction=up", "unknown direction 'up'"),
        ("serialized-communication", "needs a layout in which a rank has several communicators"),
    ],
)
def test_faults_that_do_not_fit_are_named(text, words):
    with pytest.raises(UsageError) as error:
        SCENARIOS["healthy"].override(faults=(text,), ideal=True)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("slow-rank:ranks=3,4:factor=1.5", SlowRank(ranks=(3, 4), factor=1.5)),
        ("slow-rank:ranks=0:steps=2-5:rotate_every=2", SlowRank(ranks=(0,), steps=(2, 5), rotate_every=2)),
        ("slow-host:hosts=1:steps=3", SlowHost(hosts=(1,), steps=(3, 3))),
        ("sync", NeedlessSync()),
        ("sync:device=true:host_ns=5", NeedlessSync(device=True, host_ns=5)),
        ("slow-communicator:communicators=data 0,data 1", SlowCommunicator(communicators=("data 0", "data 1"))),
    ],
)
def test_texts_are_faults(text, fault):
    assert parse_fault(text) == fault


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("slow-rnak", "unknown fault 'slow-rnak'; did you mean slow-rank"),
        ("sync:ranks", "has the part 'ranks'; expected FIELD=VALUE"),
        ("sync:rank=3", "'rank'; did you mean ranks"),
        ("sync:ranks=a", "ranks of fault 'sync' is 'a'; expected whole numbers with commas between them"),
        ("sync:device=1", "device of fault 'sync' is '1'; expected true or false"),
        ("sync:steps=1:3", "has the part '3'; expected FIELD=VALUE"),
        ("sync:steps=1-", "steps of fault 'sync' is '1-'; expected a step or two with a hyphen"),
        ("slow-rank:factor=x", "factor of fault 'slow-rank' is 'x'; expected a number"),
    ],
)
def test_what_cannot_be_read_is_named(text, words):
    with pytest.raises(UsageError) as error:
        parse_fault(text)
    assert words in str(error.value)


def test_every_fault_is_described_with_defaults_that_can_be_read():
    lines = describe_faults()
    assert len(lines) == 2 * len(FAULTS)
    for first, second in zip(lines[::2], lines[1::2], strict=True):
        kind = first.split()[0]
        given = [part for part in second.split() if not part.endswith("=")]
        assert parse_fault(":".join((kind, *given))) == FAULTS[kind]()
