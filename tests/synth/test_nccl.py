import pytest

from alltrace.synth.nccl import host_ranges, launching_range, transfer_ns
from alltrace.synth.program import Collective, Group
from alltrace.synth.scenario import Environment, Layout, Links

_LINKS = Links(within_host_gb_per_s=200.0, between_hosts_gb_per_s=50.0, latency_ns=1_000)
_GROUP = Group("four", (4, 5, 6, 7), 99)


@pytest.mark.parametrize(
    ("op", "volume"),
    [("AllReduce", 1.5), ("AllGather", 3), ("ReduceScatter", 3), ("AlltoAll", 3), ("SendRecv", 1), ("Broadcast", 1)],
)
def test_transfers_follow_the_bus_bandwidth_factors(op, volume):
    call = Collective(0, op, 1_000_000, 13)
    assert transfer_ns(_GROUP, call, Layout(hosts=1, ranks_per_host=8), _LINKS) == 1_000 + volume * 1_000_000 / 200
    assert transfer_ns(_GROUP, call, Layout(hosts=4, ranks_per_host=2), _LINKS) == 1_000 + volume * 1_000_000 / 50
    assert transfer_ns(_GROUP, None, Layout(), _LINKS) == 1_000


def test_calls_of_groups_and_what_a_payload_tells():
    pair = Group("pair", (2, 6), 7)
    whole = {"NCCL communicator ID": 7, "Message size [bytes]": 64, "Peer rank": 1}
    one = Collective(0, "SendRecv", 64, 13, receives=True)
    assert host_ranges(one, pair, 2, Environment(), 500) == ([], 500)
    assert launching_range(one, pair, 2, Environment()) == ("ncclRecv", whole)
    both = Collective(0, "SendRecv", 64, 13, sends=True, receives=True)
    found, begin = host_ranges(both, pair, 6, Environment(), 500)
    assert [(name, payload.get("Peer rank")) for name, _, _, payload in found] == [
        ("ncclGroupStart", None),
        ("ncclSend", 0),
        ("ncclRecv", 0),
    ]
    assert all(start < end < begin for _, start, end, _ in found)
    assert launching_range(both, pair, 6, Environment()) == ("ncclGroupEnd", {})
    assert launching_range(Collective(0, "ReduceScatter", 8, 13), _GROUP, 4, Environment()) == (
        "ncclReduceScatter",
        {"NCCL communicator ID": 99, "Message size [bytes]": 8, "Reduction operation": "Sum"},
    )
    assert "Reduction operation" not in launching_range(Collective(0, "AllGather", 8, 13), _GROUP, 4, Environment())[1]
