"""What GPUs, networks and CPUs say of findings: why a rank is slow, a link carries little, or a host is late."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from alltrace.recipes.analysis.gpu_state import compared, gpu_state
from alltrace.recipes.analysis.host_state import compared_hosts, host_state
from alltrace.recipes.analysis.network_state import compared_networks, network_state
from alltrace.trace.intervals import Merged, difference, intersection, merge, union

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.analysis.gpu_state import Comparison, GpuState
    from alltrace.recipes.analysis.host_state import HostState
    from alltrace.recipes.analysis.network_state import NetworkState
    from alltrace.recipes.base import RankTables
    from alltrace.recipes.questions.diagnose.all_rank_facts import AllRankFacts
    from alltrace.recipes.questions.diagnose.finding import Finding
    from alltrace.recipes.questions.diagnose.gaps import HostSets
    from alltrace.recipes.questions.diagnose.rank_facts import RankFacts

_SLOW = ("straggler", "slow-host", "jitter")
"""Kinds that a GPU's clock can be the cause of: what it was is stated, or how to find it out."""

_TRANSFERS = ("low-bandwidth", "slow-communicator")
"""Kinds that it can have a part in: it is stated where it is lower than the peers'. Of communication between hosts, what the
network did is stated, or how to find it out."""

_EXPOSED = "exposed-communication"
"""For communication that is not slow, what the network did is stated if it is unusual."""

_LATE_HOST = {"host-pause": "host-pause", "data-stall": "data", "launch-bound": "launch"}
"""Kinds that CPUs can be the cause of, with the class of the host's time that each is of: the evidence states what they did, or how
to find it out if the report shows nothing that the host does, or only some ranks have it."""

_FINE = ("_share", "gb_per_s")
"""Numbers that are stated with three decimals; others have one."""


@dataclass(frozen=True)
class MachineState:
    """What the machine of a rank did in its judged steps; None if it is unknown.

    Attributes:
        gpu: How its GPU ran.
        network: What the adapters of its host did while its device waited for communication.
        cpus: By class of the host's time, for some of them, what the CPUs did in that time.
    """

    gpu: GpuState | None = None
    network: NetworkState | None = None
    cpus: Mapping[str, HostState | None] = field(default_factory=dict)


def machine_state(rank: RankTables, facts: RankFacts, host: HostSets) -> MachineState:
    """What the machine of a rank did.

    Args:
        rank: Its tables.
        facts: Its facts.
        host: What its host did.
    """
    judged = merge(facts.regions[:, 0].copy(), facts.regions[:, 1].copy())
    waits = Merged(facts.waits[:, 0].copy(), facts.waits[:, 1].copy())
    cpus = {}
    if rank.has("sched") or rank.has("samples"):
        launching = difference(judged, union([*host.sets.values(), host.exchanges]))
        spans = {**{name: intersection(host.sets[name], judged) for name in ("host-pause", "data")}, "launch": launching}
        cpus = {name: host_state(rank, host.threads, span) for name, span in spans.items()}
    return MachineState(gpu_state(rank, facts.regions), network_state(rank, intersection(waits, judged)), cpus)


def with_machine_evidence(found: Sequence[Finding], states: Mapping[int, MachineState], all_ranks: AllRankFacts) -> list[Finding]:
    """The findings, each with what is known of the machines that it is about.

    Args:
        found: The findings.
        states: By rank what its machine did.
        all_ranks: All ranks.
    """
    gpus = {rank: state.gpu for rank, state in states.items()}
    networks: dict[str, NetworkState] = {}
    for rank, state in states.items():  # ranks of one host that sampled its adapters have the same samples
        if state.network is not None:
            networks.setdefault(all_ranks.hosts[rank], state.network)
    explained = []
    for finding in found:
        for said in _said(finding, gpus, networks, states, all_ranks) if finding.ranks else ():
            evidence = {name: round(value, 3 if name.endswith(_FINE) else 1) for name, value in said.evidence.items()}
            finding = replace(finding, evidence={**finding.evidence, **evidence}, advice=f"{finding.advice} {said.sentence}")
        explained.append(finding)
    return explained


def _said(
    finding: Finding,
    gpus: Mapping[int, GpuState | None],
    networks: Mapping[str, NetworkState],
    states: Mapping[int, MachineState],
    all_ranks: AllRankFacts,
) -> list[Comparison]:
    """What is stated with a finding."""
    said = []
    if finding.kind in (*_SLOW, *_TRANSFERS):
        clocks = compared(gpus, finding.ranks)
        said += [clocks] if finding.kind in _SLOW or clocks.slower else []
    if (
        finding.kind in (*_TRANSFERS, _EXPOSED)
        and "communication" in finding.loss.classes
        and all_ranks.meet_across_hosts(finding.ranks)
    ):
        hosts = sorted({all_ranks.hosts[rank] for rank in finding.ranks})
        network = compared_networks(networks, hosts)
        said += [network] if finding.kind in _TRANSFERS or network.slower else []
    if finding.kind in _LATE_HOST:
        cpus = compared_hosts({r: s.cpus.get(_LATE_HOST[finding.kind]) for r, s in states.items()}, finding.ranks)
        wanted = finding.kind == "host-pause" or len(finding.ranks) < len(states)
        said += [cpus] if cpus.evidence or wanted else []
    return said
