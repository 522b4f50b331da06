import pytest

from alltrace.synth.faults import FAULTS, NeedlessSync, SlowCommunicator, SlowHost, SlowRank
from alltrace.synth.faults.parse import describe_faults, parse_fault
from alltrace.trace.errors import UsageError


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
