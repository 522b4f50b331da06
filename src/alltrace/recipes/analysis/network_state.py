"""How much the network adapters of a host carried while its devices waited for communication, and how long they waited to send.

Both come from the adapters' and switches' counters that nsys samples (`nic_metrics`, `switch_metrics`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from alltrace.recipes.analysis.gpu_state import Comparison
from alltrace.recipes.analysis.traffic import Traffic, traffic
from alltrace.run.rank import Rank
from alltrace.trace.intervals import Merged, overlap_ns

COLLECT = (
    "To see what the network did, record its counters with `nsys profile --nic-metrics=true` on one rank of each node "
    "(`alltrace capture exec --nic-metrics`)."
)
"""What to do if no report has them."""

_GB = 1e-6
"""GB/s of bytes per millisecond, which is what the profiler samples."""

_LOWER, _MORE = 0.8, 2.0
"""Hosts that are alike differ by less than this: their rates by the one, their waits to send by the other."""

_FEW_TICKS = 1_000.0
"""Waits to send below this many ticks per millisecond are usual."""


@dataclass(frozen=True)
class NetworkState:
    """Activity of a host's adapters over some time: means by time; None without samples."""

    sent_gb_per_s: float | None = None
    received_gb_per_s: float | None = None
    wait_ticks_per_ms: float | None = None  # how long the adapter that waited most waited to send
    adapter: str = ""  # the name of that adapter
    switch_wait_ticks_per_ms: float | None = None  # the same of the switch that waited most


_VALUES = ("sent_gb_per_s", "received_gb_per_s", "wait_ticks_per_ms", "switch_wait_ticks_per_ms")


def network_state(rank: Rank, spans: Merged) -> NetworkState | None:
    """What the adapters did that the rank's report has samples of.

    `spans`: The time in question, ns. Returns none if no sample describes that time.
    """
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
    state = NetworkState(sent, received, waited, adapter, switch)
    return state if any(getattr(state, name) is not None for name in _VALUES) else None


def _mean(of: Traffic, spans: Merged) -> float | None:
    """The mean of samples by how long each holds in `spans`."""
    length_ns = overlap_ns(of.starts, np.maximum(of.ends, of.starts), spans)
    return float((of.values * length_ns).sum() / length_ns.sum()) if length_ns.any() else None


def compared_networks(states: Mapping[str, NetworkState], hosts: Sequence[str]) -> Comparison:
    """Activity of the adapters of `hosts` compared with those of the other hosts."""
    own = [states[h] for h in hosts if h in states]
    if not own:
        return Comparison(COLLECT, {})
    mine, others = _typical(own), _typical([s for h, s in states.items() if h not in set(hosts)])
    named = ("nic_gb_per_s", "nic_received_gb_per_s", "nic_wait_ticks_per_ms", "switch_wait_ticks_per_ms")
    evidence: dict[str, float] = {}
    for name, value in zip(named, _VALUES, strict=True):
        pairs = ((name, mine[value]), (f"peers_{name}", None if value == "switch_wait_ticks_per_ms" else others[value]))
        evidence |= {key: number for key, number in pairs if number is not None}
    waiting = max(own, key=lambda s: s.wait_ticks_per_ms or 0.0).adapter
    who = f"host {hosts[0]}" if len(hosts) == 1 else f"{len(hosts)} hosts"
    return Comparison(_sentence(who, mine, others, waiting), evidence, _stands_out(mine, others))


def _typical(states: Sequence[NetworkState]) -> dict[str, float | None]:
    """The median over hosts of each value."""
    medians: dict[str, float | None] = {}
    for name in _VALUES:
        values = [v for s in states if (v := getattr(s, name)) is not None]
        medians[name] = float(np.median(values)) if values else None
    return medians


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
