"""What GPUs, networks and CPUs say of findings: why a rank is slow, a link carries little, or a host is late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from alltrace.recipes.analysis.gpu_state import Comparison, GpuState, compared
from alltrace.recipes.analysis.host_state import compared_hosts, compared_places
from alltrace.recipes.analysis.network_state import NetworkState, compared_networks, networks_of
from alltrace.recipes.questions.diagnose.all_rank_facts import AllRankFacts
from alltrace.recipes.questions.diagnose.finding import Finding
from alltrace.recipes.questions.diagnose.machine_state import MachineState

_SLOW = ("straggler", "slow-host", "throttling", "jitter")
"""Kinds that a GPU's clock can be the cause of: what it was is stated, or how to find it out."""

_TRANSFERS = ("low-bandwidth", "slow-communicator")
"""Kinds that it can have a part in: it is stated if it is lower than the peers'. Of communication between hosts, what
the network did is stated, or how to find it out."""

_EXPOSED = "exposed-communication"
"""For communication that is not slow, what the network did is stated if it is unusual."""

_LATE_HOST = {"host-pause": "host-pause", "data-stall": "data", "launch-bound": "launch"}
"""Kinds that CPUs can be the cause of, with the class of the host's time that each is of: the evidence states what they
did, or how to find it out if the report shows nothing that the host does, or only some ranks have it."""

_PLACED = (*_LATE_HOST, "straggler", "slow-host", "low-bandwidth", "pageable-copy")
"""Kinds that the CPUs on which a rank runs can be the cause of: it is stated if they are unusual."""

_FINE = ("_share", "gb_per_s")
"""Numbers that are stated with three decimals; others have one."""


def with_machine_evidence(
    found: Sequence[Finding], states: Mapping[int, MachineState], all_ranks: AllRankFacts
) -> list[Finding]:
    """The findings, each with what is known of the machines that it is about."""
    gpus = {rank: state.gpu for rank, state in states.items()}
    networks = networks_of({rank: state.network for rank, state in states.items()}, all_ranks.hosts)
    explained = []
    for finding in found:
        for said in _said(finding, gpus, networks, states, all_ranks) if finding.ranks else ():
            evidence = {name: round(value, 3 if name.endswith(_FINE) else 1) for name, value in said.evidence.items()}
            finding = replace(
                finding, evidence={**finding.evidence, **evidence}, advice=f"{finding.advice} {said.sentence}"
            )
        explained.append(finding)
    return explained


def _said(
    finding: Finding,
    gpus: Mapping[int, GpuState | None],
    networks: Mapping[str, NetworkState],
    states: Mapping[int, MachineState],
    all_ranks: AllRankFacts,
) -> list[Comparison]:
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
    if finding.kind in _PLACED:
        places = compared_places({rank: state.places for rank, state in states.items()}, finding.ranks, all_ranks.hosts)
        said += [places] if places.slower else []
    return said
