"""What NCCL's calls look like and what they cost: ranges with payloads, and the transfer time of a ring."""

from __future__ import annotations

from collections.abc import Iterator

from alltrace.synth.program import Collective, Group
from alltrace.synth.scenario import Environment, Layout, Links

_STEP_NS = 120
_MARGIN_NS = 100


def transfer_ns(group: Group, op: Collective | None, layout: Layout, links: Links) -> int:
    """The time from the last arrival to the end, of a collective or, without `op`, of a barrier of host threads."""
    # The volume that crosses the slowest link follows the bus bandwidth factors of nccl-tests (PERFORMANCE.md).
    # `group`: the communicator. `layout`: where the ranks are. `links`: how fast the network is.
    if op is None:
        return links.latency_ns
    members = len(group.ranks)
    across = len({layout.host_of(rank) for rank in group.ranks}) > 1
    bandwidth = links.between_hosts_gb_per_s if across else links.within_host_gb_per_s
    if op.op == "AllReduce":
        volume = 2.0 * ((members - 1) / members) * op.size_bytes
    elif op.op in {"AllGather", "ReduceScatter", "AlltoAll"}:
        volume = (members - 1) * float(op.size_bytes)
    else:
        volume = float(op.size_bytes)
    return links.latency_ns + int(volume / bandwidth)


def host_ranges(
    op: Collective, group: Group, rank: int, environment: Environment, begin: int
) -> tuple[list[tuple[str, int, int, dict[str, object]]], int]:
    """The ranges of the calls before the one that launches, and the time after them."""
    # Sends and receives that belong together are between `ncclGroupStart` and `ncclGroupEnd`, and the latter launches
    # one kernel for all of them. `group`: its communicator. `environment`: determines how all-to-alls are called.
    # `begin`: when the thread begins. Returns name, start, end and payload of each range, and when the launching range
    # begins.
    if not is_grouped(op, environment):
        return [], begin
    ranges: list[tuple[str, int, int, dict[str, object]]] = []
    at = begin
    for name, payload in [("ncclGroupStart", {}), *_messages(op, group, rank)]:
        ranges.append((name, at, at + _STEP_NS, payload))
        at += _STEP_NS + _MARGIN_NS
    return ranges, at


def launching_range(op: Collective, group: Group, rank: int, environment: Environment) -> tuple[str, dict[str, object]]:
    if is_grouped(op, environment):
        return "ncclGroupEnd", {}
    if op.op == "SendRecv":
        return next(_messages(op, group, rank))
    payload = _payload(group, op.size_bytes)
    if op.op in {"AllReduce", "ReduceScatter"}:
        payload["Reduction operation"] = "Sum"
    return f"nccl{op.op}", payload


def is_grouped(op: Collective, environment: Environment) -> bool:
    return (op.op == "AlltoAll" and environment.grouped_all_to_all) or (
        op.op == "SendRecv" and op.sends and op.receives
    )


def _payload(group: Group, size_bytes: int) -> dict[str, object]:
    return {"NCCL communicator ID": group.comm_hash, "Message size [bytes]": size_bytes}


def _messages(op: Collective, group: Group, rank: int) -> Iterator[tuple[str, dict[str, object]]]:
    everyone = op.op == "AlltoAll"
    for place, peer in enumerate(group.ranks):
        if peer == rank and not everyone:
            continue
        for name, happens in (("ncclSend", op.sends or everyone), ("ncclRecv", op.receives or everyone)):
            if happens:
                yield name, {**_payload(group, op.size_bytes), "Peer rank": place}
