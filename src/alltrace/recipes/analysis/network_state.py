"""How much the network adapters of a host carried while its devices waited, and how long they waited to send.

Both come from the adapters' and switches' counters that nsys samples (`nic_metrics`, `switch_metrics`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from alltrace.recipes.analysis.gpu_state import Comparison, beside_peers, typical
from alltrace.recipes.analysis.sampled import Traffic, traffic
from alltrace.run.rank import Rank
from alltrace.trace.intervals import Merged, overlap_ns

COLLECT = (
    "To see what the network did, record its counters with `nsys profile --nic-metrics=true` on one rank of each node "
    "(`alltrace capture exec --nic-metrics`)."
)
"""What to do if no report has them."""

_GB = 1e-6  # GB/s of bytes per millisecond, which is what the profiler samples

_LOWER, _MORE = 0.8, 2.0
"""Hosts that are alike differ by less than this: their rates by the one, their waits to send by the other."""

_FEW_TICKS = 1_000.0  # waits to send below this many ticks per millisecond are usual

_AS_MUCH, _FEWEST_ADAPTERS = 0.1, 3
"""Adapters are compared that carried the same, but for this share, if they are as many: a job uses them alike."""

_SENDING = 0.5  # an adapter sends in the samples with this share of its highest rate


@dataclass(frozen=True)
class Adapter:
    """What one adapter sent in the judged steps."""

    name: str
    gb_per_s: float  # the mean over all that time
    sending_gb_per_s: float  # the mean over the time in which it sends


class SlowAdapters(NamedTuple):
    """Adapters that carried as much as the others at a lower rate, and so for a longer time."""

    names: tuple[str, ...]
    hosts: tuple[str, ...]
    gb_per_s: float  # their rate while they send, median
    peers_gb_per_s: float  # that of the others
    rail: bool  # whether they are all adapters of their names, on several hosts


@dataclass(frozen=True)
class NetworkState:
    """Activity of a host's adapters over some time: means by time; None without samples."""

    sent_gb_per_s: float | None = None
    received_gb_per_s: float | None = None
    wait_ticks_per_ms: float | None = None  # how long the adapter that waited most waited to send
    adapter: str = ""  # the name of that adapter
    switch_wait_ticks_per_ms: float | None = None  # the same of the switch that waited most
    adapters: tuple[Adapter, ...] = ()  # each adapter that sent anything


_VALUES = {
    "sent_gb_per_s": "nic_gb_per_s",
    "received_gb_per_s": "nic_received_gb_per_s",
    "wait_ticks_per_ms": "nic_wait_ticks_per_ms",
}
"""Values of hosts, and their names in the evidence; a switch is of all hosts."""

_SWITCH = "switch_wait_ticks_per_ms"


def network_state(rank: Rank, spans: Merged, judged: Merged | None = None) -> NetworkState | None:
    """What the adapters did in `spans`; `judged`: when single adapters are described. None without a sample."""
    if not (rank.has("nic_metrics") or rank.has("switch_metrics")):
        return None
    means = [(of, mean) for of in traffic(rank) if (mean := _mean(of, spans)) is not None]
    adapters = [(of, mean) for of, mean in means if of.device == "NIC"]
    sent, received = (
        _GB * sum(rates) if (rates := [m for of, m in adapters if of.word == word]) else None
        for word in ("Bytes Sent", "Bytes Recv")
    )
    waited, adapter = max(((mean, of.name) for of, mean in adapters if of.word == "Congestion"), default=(None, ""))
    switch = max((mean for of, mean in means if of.device == "Switch" and of.word == "Congestion"), default=None)
    each = (_adapter(of, spans if judged is None else judged) for of in traffic(rank) if of.word == "Bytes Sent")
    state = NetworkState(sent, received, waited, adapter, switch, tuple(one for one in each if one is not None))
    return state if any(getattr(state, name) is not None for name in (*_VALUES, _SWITCH)) else None


def _mean(of: Traffic, spans: Merged) -> float | None:
    """The mean of samples by how long each holds in `spans`."""
    length_ns = overlap_ns(of.starts, np.maximum(of.ends, of.starts), spans)
    return float((of.values * length_ns).sum() / length_ns.sum()) if length_ns.any() else None


def _adapter(of: Traffic, judged: Merged) -> Adapter | None:
    """What an adapter sent, by its samples; None if it sent nothing in that time."""
    length_ns = overlap_ns(of.starts, np.maximum(of.ends, of.starts), judged)
    sends = (length_ns > 0) & (of.values >= _SENDING * of.values[length_ns > 0].max(initial=0.0)) & (of.values > 0)
    if of.device != "NIC" or not sends.any():
        return None
    means = (np.average(of.values[rows], weights=length_ns[rows]) for rows in (length_ns > 0, sends))
    return Adapter(of.name, *(_GB * float(mean) for mean in means))


def slow_adapters(states: Mapping[str, NetworkState]) -> SlowAdapters | None:
    """The adapters that are slow by their own counters; None without any, or if too few are alike.

    What one adapter carries less than others is no sign of a slow one: a job may use it less. One that is slow carries
    the same bytes for a longer time.
    """
    every = [(host, one) for host, state in states.items() for one in state.adapters]
    usual = float(np.median([one.gb_per_s for _, one in every])) if every else 0.0
    alike = [(host, one) for host, one in every if abs(one.gb_per_s - usual) <= _AS_MUCH * usual]
    rate = float(np.median([one.sending_gb_per_s for _, one in alike])) if alike else 0.0
    slow = [(host, one) for host, one in alike if one.sending_gb_per_s < _LOWER * rate]
    if len(alike) < _FEWEST_ADAPTERS or not slow:
        return None
    names, hosts = tuple(sorted({one.name for _, one in slow})), tuple(sorted({host for host, _ in slow}))
    peers = [one.sending_gb_per_s for of in alike if of not in slow for one in of[1:]]
    same_names = [of for of in alike if of[1].name in names]
    own_rate = float(np.median([one.sending_gb_per_s for _, one in slow]))
    rail = len(hosts) > 1 and len(same_names) == len(slow)
    return SlowAdapters(names, hosts, own_rate, float(np.median(peers)), rail)


def networks_of(states: Mapping[int, NetworkState | None], hosts: Mapping[int, str]) -> dict[str, NetworkState]:
    """The state of each host's adapters: ranks of one host that sampled them have the same samples."""
    by_host: dict[str, NetworkState] = {}
    for rank, state in states.items():
        if state is not None:
            by_host.setdefault(hosts[rank], state)
    return by_host


def compared_networks(states: Mapping[str, NetworkState], hosts: Sequence[str]) -> Comparison:
    """Activity of the adapters of `hosts` compared with those of the other hosts."""
    own = [states[h] for h in hosts if h in states]
    if not own:
        return Comparison(COLLECT, {})
    peers = [state for host, state in states.items() if host not in set(hosts)]
    mine, others = typical(own, [*_VALUES, _SWITCH]), typical(peers, list(_VALUES))
    evidence = beside_peers(_VALUES, mine, others) | beside_peers({_SWITCH: _SWITCH}, mine, {_SWITCH: None})
    waiting = max(own, key=lambda s: s.wait_ticks_per_ms or 0.0).adapter
    who = f"host {hosts[0]}" if len(hosts) == 1 else f"{len(hosts)} hosts"
    return Comparison(_sentence(who, mine, others, waiting), evidence, _stands_out(mine, others))


def _stands_out(mine: Mapping[str, float | None], others: Mapping[str, float | None]) -> bool:
    """Whether these hosts sent less than the others, or waited longer to send."""
    sent, usual = mine["sent_gb_per_s"], others["sent_gb_per_s"]
    waits, usual_waits = mine["wait_ticks_per_ms"], others["wait_ticks_per_ms"]
    less = sent is not None and usual is not None and sent < _LOWER * usual
    return less or (waits is not None and waits >= max(_FEW_TICKS, _MORE * (usual_waits or 0.0)))


def _sentence(who: str, mine: Mapping[str, float | None], others: Mapping[str, float | None], waiting: str) -> str:
    parts = []
    sent, received, usual = mine["sent_gb_per_s"], mine["received_gb_per_s"], others["sent_gb_per_s"]
    if sent is not None:
        against = f", those of the other hosts {usual:,.2f} GB/s" if usual is not None else ""
        got = f" and received {received:,.2f} GB/s" if received is not None else ""
        parts.append(f"While devices waited, the adapters of {who} sent {sent:,.2f} GB/s{got}{against}.")
    waits, usual_waits = mine["wait_ticks_per_ms"], others["wait_ticks_per_ms"]
    if waits is not None:
        against = f", elsewhere {usual_waits:,.0f}" if usual_waits is not None else ""
        name = f"Adapter {waiting}" if waiting else "An adapter"
        parts.append(f"{name} waited to send for {waits:,.0f} ticks per ms{against}.")
    switch = mine["switch_wait_ticks_per_ms"]
    if switch is not None:
        parts.append(f"The busiest switch waited to send for {switch:,.0f} ticks per ms.")
    return " ".join(parts)
