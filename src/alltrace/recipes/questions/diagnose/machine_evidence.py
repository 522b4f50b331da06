"""What GPUs, networks and CPUs say of findings: why a rank is slow, a link carries little, or a host is late."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from alltrace.recipes.analysis.gpu_state import Comparison, compared
from alltrace.recipes.analysis.host_state import compared_hosts, compared_places
from alltrace.recipes.analysis.network_state import compared_networks, networks_of
from alltrace.recipes.questions.diagnose.all_rank_facts import AllRankFacts
from alltrace.recipes.questions.diagnose.finding import Finding
from alltrace.recipes.questions.diagnose.machine_state import MachineState
from alltrace.recipes.questions.diagnose.rank_facts import RankFacts

_SLOW = ("straggler", "slow-host", "throttling", "jitter")
"""Kinds that a GPU's clock can be the cause of: what it was is stated, or how to find it out."""

_TRANSFERS = ("low-bandwidth", "slow-communicator")
"""Kinds that it can have a part in: it is stated if it is lower than the peers'. Of communication between hosts, what
the network did is stated, or how to find it out."""

_EXPOSED = "exposed-communication"
"""For communication that is not slow, what the network did is stated if it is unusual."""

_STAGED = (*_TRANSFERS, _EXPOSED, "unexplained")
"""Kinds of communication of which it is stated that MPI copies what it sends through host memory, where it does."""

_LATE_HOST = {"host-pause": "host-pause", "data-stall": "data", "launch-bound": "launch"}
"""Kinds that CPUs can be the cause of, with the class of the host's time that each is of: the evidence states what they
did, or how to find it out if the report shows nothing that the host does, or only some ranks have it."""

_PLACED = (*_LATE_HOST, "straggler", "slow-host", "low-bandwidth", "pageable-copy")
"""Kinds that the CPUs on which a rank runs can be the cause of: it is stated if they are unusual."""

_FINE = ("_share", "gb_per_s")  # numbers that are stated with three decimals; others have one


def with_machine_evidence(
    findings: Sequence[Finding], states: Mapping[int, MachineState], all_ranks: AllRankFacts
) -> list[Finding]:
    explained = []
    for finding in findings:
        for said in _said(finding, states, all_ranks) if finding.ranks else ():
            evidence = {name: round(value, 3 if name.endswith(_FINE) else 1) for name, value in said.evidence.items()}
            advice = f"{finding.advice} {said.sentence}"
            finding = replace(finding, evidence={**finding.evidence, **evidence}, advice=advice)
        explained.append(finding)
    return explained


def _said(finding: Finding, states: Mapping[int, MachineState], all_ranks: AllRankFacts) -> list[Comparison]:
    said = []
    if finding.kind in (*_SLOW, *_TRANSFERS):
        clocks = compared({rank: state.gpu for rank, state in states.items()}, finding.ranks)
        said += [clocks] if finding.kind in _SLOW or clocks.slower else []
    communicates = "communication" in finding.loss.classes
    if finding.kind in (*_TRANSFERS, _EXPOSED) and communicates and all_ranks.meet_across_hosts(finding.ranks):
        networks = networks_of({rank: state.network for rank, state in states.items()}, all_ranks.hosts)
        network = compared_networks(networks, sorted({all_ranks.hosts[rank] for rank in finding.ranks}))
        said += [network] if finding.kind in _TRANSFERS or network.slower else []
    if finding.kind in _STAGED and communicates:
        said += _staged_by_mpi([f for rank in finding.ranks if (f := all_ranks.facts.get(rank)) is not None])
    if finding.kind in _LATE_HOST:
        cpus = compared_hosts({r: s.cpus.get(_LATE_HOST[finding.kind]) for r, s in states.items()}, finding.ranks)
        wanted = finding.kind == "host-pause" or len(finding.ranks) < len(states)
        said += [cpus] if cpus.evidence or wanted else []
    if finding.kind in _PLACED:
        places = compared_places({rank: state.places for rank, state in states.items()}, finding.ranks, all_ranks.hosts)
        said += [places] if places.slower else []
    return said


def _staged_by_mpi(facts: Sequence[RankFacts]) -> list[Comparison]:
    steps = max(sum(len(f.steps) for f in facts), 1)
    copies, moved = sum(f.staged_copies for f in facts), sum(f.staged_bytes for f in facts)
    sentence = (
        "MPI copies what it sends or receives through host memory; let it reach device memory itself: by CUDA IPC"
        " within a host, by GPUDirect RDMA between hosts."
    )
    evidence = {"staged_copies_per_step": copies / steps, "staged_bytes_per_step": moved / steps}
    return [Comparison(sentence, evidence)] if copies else []
