"""What a detector finds, and how grave it is."""

from __future__ import annotations

from dataclasses import dataclass, field

KINDS = (
    "straggler",
    "slow-communicator",
    "slow-host",
    "imbalance",
    "exposed-communication",
    "serialized-communication",
    "launch-bound",
    "sync",
    "host-pause",
    "data-stall",
    "pageable-copy",
    "sync-copy",
    "allocation",
    "idle-gap",
    "low-bandwidth",
    "capture-fault",
)
"""All kinds of findings."""

EVIDENCE = {
    "slowdown": "how many times as long as the same elsewhere",
    "work_ratio": "how many times as much work as the others, by what the same kernels take elsewhere",
    "excess_ns_per_step": "compute beyond the others', per step",
    "late_ns_per_step": "time of its own beyond the others', per step",
    "last_share": "share of the operations with waits at which it arrived last, 0 to 1",
    "stalled_ns_per_step": "time that the device stands still for it, per step",
    "longest_step_ns": "the most of that in one step",
    "steps_affected": "steps that have it",
    "steps": "steps judged, or of the run",
    "calls": "calls of the kind on a rank, median",
    "kernels_per_step": "compute kernels in a step",
    "mean_kernel_ns": "their mean duration",
    "launch_ns": "from one launch to the next, median",
    "gb_per_s": "rate of the copies",
    "peers_gb_per_s": "rate of the peers' copies, median",
    "sm_clock_mhz": "clock of the culprits' multiprocessors in the judged steps, median",
    "peers_sm_clock_mhz": "that of the other ranks",
    "memory_clock_mhz": "clock of the culprits' memory, likewise",
    "peers_memory_clock_mhz": "that of the other ranks",
    "power_w": "power that the culprits' GPUs drew, likewise",
    "peers_power_w": "that of the other ranks",
    "temperature_c": "temperature of the culprits' GPUs, likewise",
    "peers_temperature_c": "that of the other ranks",
    "busbw_gb_per_s": "bus bandwidth of the slowest communicator, free of waiting",
    "peers_busbw_gb_per_s": "bus bandwidth of communicators alike, median",
    "communicators": "slow communicators",
    "queued": "operations that another communicator's queues behind",
    "waited_ns_per_step": "time that the device waits for those, per step",
    "exposed_ns_per_step": "transfers that could be hidden and are not, per step",
    "all_exposed_ns_per_step": "all time that the device waits for communication, per step",
    "operations_per_step": "exposed operations that could be hidden, per step and rank",
    "replay_error": "share by which the replay of the unchanged run is away from it, where the basis is a replay",
    "missing": "missing ranks",
    "reports": "reports with the complaint",
    "without_ranges": "ranks without ranges",
    "graph_launches": "graphs traced as a whole",
    "components": "groups of hosts that no evidence connects",
    "first_step": "first step of the first such report",
    "first_missing_step": "first step that the first such report lacks",
}
"""The numbers that evidence is made of; each kind has some of them, and `basis`."""

HIGH_SHARE = 0.10
"""From this share of the judged time on a finding is `high`."""

MEDIUM_SHARE = 0.03
"""From this share on it is `medium`."""

LEAST_SHARE = 0.005
"""Below this share nothing is reported."""

NEVER_HIGH = frozenset({"exposed-communication", "capture-fault"})
"""Kinds that are `medium` at most: what could be hidden is a guess of the program's dependencies; a capture costs no time."""


@dataclass(frozen=True)
class Finding:
    """One finding.

    Attributes:
        kind: One of `KINDS`.
        lost_ns: Wall time that the job would get back over the judged steps.
        ranks: The culprits.
        where: The kernel, range, communicator or call.
        advice: One sentence.
        evidence: Numbers.
        confidence: 0 to 1.
        hosts: Hosts all of whose ranks are culprits.
        basis: `replay` for what a replay gave back, `ceiling` for the most that it can be.
        severity: Of a finding that costs no time; else it follows from the share.
        told: Whether it is told even where its loss is small, because something else hides it for now.
    """

    kind: str
    lost_ns: int
    ranks: tuple[int, ...]
    where: str
    advice: str
    evidence: dict[str, float] = field(default_factory=dict)
    confidence: float = 0.8
    hosts: tuple[str, ...] = ()
    basis: str = "ceiling"
    severity: str | None = None
    told: bool = False


def severity_of(finding: Finding, share: float) -> str:
    """`high`, `medium` or `low`, from the share of the judged time that is lost."""
    if finding.severity is not None:
        return finding.severity
    if share >= HIGH_SHARE and finding.kind not in NEVER_HIGH:
        return "high"
    return "medium" if share >= MEDIUM_SHARE else "low"
