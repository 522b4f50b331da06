"""What a detector finds, and how grave it is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from alltrace.trace.arrays import Floats

PARTS = 10  # a run without steps is judged in this many equal parts


def _beside_peers(name: str, meaning: str, of_peers: str = "that of the other ranks") -> dict[str, str]:
    return {name: meaning, f"peers_{name}": of_peers}


EVIDENCE = {
    "slowdown": "how many times as long as the same elsewhere",
    "work_ratio": "how many times as much work as the others, by what the same kernels take elsewhere",
    "breadth": "share of the kernels of a family, by time, that take longer, 0 to 1",
    "persistence": (
        "share of the variance between ranks and steps that is between ranks (intraclass correlation), 0 to 1"
    ),
    "affected_share": "share of the time in kernels that an opportunity is about, 0 to 1",
    "tflop_per_s": "rate of an operator, 10^12 operations a second",
    "roof_tflop_per_s": "rate of its device in that format, by data sheet",
    "moved_gb_per_s": "the least bytes it moves divided by its time, GB/s",
    "roof_gb_per_s": "rate of its device's memory, by data sheet, GB/s",
    "roof_share": "the time that it takes at the device's roof as a share of what it takes, 0 to 1",
    "flop_per_byte": "its arithmetic intensity: operations for each of the least bytes",
    "ridge_flop_per_byte": "the intensity below which the device waits for its memory",
    "tiles": "tiles that its result is divided into",
    "multiprocessors": "multiprocessors of its device, which compute a tile each",
    "since_step": "the first step that is so",
    "noise": "deviation of a rank's ratio to its peers from step to step",
    "interrupted_launches": "launches of kernels that took one or more time slices longer than usual",
    "interrupted_kernels": "different kernels that these are of",
    "slice_ns": "by how much interrupted launches took longer than usual, median: the time slice of another process",
    "excess_ns_per_step": "compute beyond the others', per step",
    "late_ns_per_step": "time of its own beyond the others', per step",
    "last_share": "share of the operations with waits at which it arrived last, 0 to 1",
    "stalled_ns_per_step": "time that the device stands still for it, per step",
    "longest_step_ns": "the most of that in one step",
    "steps_affected": "steps that have it",
    "steps": "steps judged, or of the run",
    "parts_affected": f"of a run without steps the parts that have it, of {PARTS} equal ones",
    "calls": "calls of the kind on a rank, median",
    "kernels_per_step": "compute kernels in a step",
    "mean_kernel_ns": "their mean duration",
    "launch_ns": "from one launch to the next, median",
    "gb_per_s": "rate of the copies; or of network adapters while they send",
    "link_gb_per_s": "the most that the link between host and device carries in one direction, by data sheet",
    "link_share": "share of that which the copies reach, 0 to 1",
    "bytes_per_step": "bytes of these copies in a step of one rank",
    "staged_copies_per_step": "copies between device and host that MPI makes within its calls, in a step of one rank",
    "staged_bytes_per_step": "their bytes",
    "hideable_ns_per_step": "of exposed_ns_per_step what the compute of the step could hide",
    "pinned_ns_per_step": "what the same bytes take from pinned memory",
    "peers_gb_per_s": "rate of the peers' copies, median; or of the other network adapters",
    "adapters": "names of network adapters that are slower than the others",
    **_beside_peers("sm_clock_mhz", "clock of the culprits' multiprocessors in the judged steps, median"),
    **_beside_peers("memory_clock_mhz", "clock of the culprits' memory, likewise"),
    **_beside_peers("power_w", "power that the culprits' GPUs drew, likewise"),
    **_beside_peers("temperature_c", "temperature of the culprits' GPUs, likewise"),
    **_beside_peers(
        "nic_gb_per_s",
        "what the network adapters of the culprits' hosts sent while devices waited for communication, GB/s",
        "those of the other hosts, median",
    ),
    **_beside_peers("nic_received_gb_per_s", "what they received", "those of the other hosts"),
    **_beside_peers(
        "nic_wait_ticks_per_ms",
        "how long the adapter that waited most waited to send, ticks per ms",
        "that of the other hosts",
    ),
    "switch_wait_ticks_per_ms": "how long the switch that waited most waited to send, likewise",
    **_beside_peers("on_cpu_share", "share of that time in which a launching thread of the culprits had a CPU, 0 to 1"),
    **_beside_peers(
        "cpu_taken_share", "share of the rest in which another thread of the job had the CPU that it left, 0 to 1"
    ),
    **_beside_peers("running_threads", "threads of the culprits' processes on CPUs at once, mean"),
    **_beside_peers(
        "cpu_moves_per_s", "how often a launching thread of the culprits came to another CPU, per second on CPUs"
    ),
    "shared_cpu_share": (
        "share of the culprits' time on CPUs that is on CPUs of another rank's launching thread, 0 to 1"
    ),
    "other_node_share": (
        "share of a culprit's time on CPUs of another NUMA node or socket than its GPU or other ranks, 0 to 1"
    ),
    **_beside_peers(
        "busbw_gb_per_s",
        "bus bandwidth of the slowest communicator, free of waiting",
        "bus bandwidth of communicators alike, median",
    ),
    "communicators": "slow communicators",
    "queued": "operations that another communicator's queues behind",
    "waited_ns_per_step": "time that the device waits for those, per step",
    "exposed_ns_per_step": "transfers that could be hidden or left out and are not, per step",
    "all_exposed_ns_per_step": "all time that the device waits for communication, per step",
    "operations_per_step": "exposed operations that could be hidden, per step and rank",
    "covered_share": "share of what the culprits did in the judged steps that their reports show, where it is not all",
    "together_ns": (
        "what the job would get back without this and the other finding with this number, if more than both alone"
    ),
    "together_share": "that as a share of the analyzed time, 0 to 1",
    "replay_error": "error of the replay of the unchanged run, as a share, if the basis is a replay",
    "compute_share": "share of the analyzed time in which the device computes, 0 to 1",
    "hand_overs": "times that another role began to work",
    "longest_share": "share of the run in which the role works that works longest, 0 to 1",
    "alone_share": "share of the time in which any role works that only one does, 0 to 1",
    "between_ns": "time between two roles in which none works, median",
    "missing": "missing ranks",
    "reports": "reports with the complaint",
    "without_ranges": "ranks without ranges",
    "graph_launches": "graphs traced as a whole",
    "components": "groups of hosts that no evidence connects",
    "lost_records": "launches without what they ran, or kernels without their launch",
    "suspect_rows": "rows that cannot be true, in the table `suspects`",
    "suspect_share": "their share of all rows of these ranks, 0 to 1",
    "of_records": "total number of these records",
    "first_step": "first step of the first such report",
    "first_missing_step": "first step that the first such report lacks",
}
"""The numbers in the evidence; each kind has some of them, and `basis`."""

SEVERITIES = ("high", "medium", "low")

DOUBTFUL = 0.5  # a finding with less confidence is `low`

FEWEST_PARTS = 5
"""In fewer of the equal parts of a run without steps no cause is `high`: what happened once is not what the program
does."""

FEWEST_STEPS = 3  # of fewer judged steps no finding is `high`: what happened once says nothing of the program
MANY_STEPS = 10  # of as many judged steps no finding is `high` that has most of its time in one of them
HIGH_SHARE = 0.10  # from this share of the judged time on a finding is `high`
MEDIUM_SHARE = 0.03  # from this share on it is `medium`
LEAST_SHARE = 0.005  # below this share nothing is reported
NEVER_HIGH = frozenset({"capture-fault"})  # kinds that are `medium` at most: a capture costs no time


@dataclass(frozen=True)
class Loss:
    """The wall time that the job would get back without a cause, over the judged steps."""

    estimate_ns: int  # that time, as well as it can be computed
    basis: str  # `replay` for the gain in a replay, `ceiling` for an upper bound
    # the classes of the ranks' time in it (`alltrace.recipes.questions.diagnose.gaps.CLASSES`), and those that it
    # shares: a delay of a host at one place makes it late at others too
    classes: tuple[str, ...]
    own_ns: int  # the most that its own classes let it be: what no other finding may claim
    bound_ns: int  # the most that all of its classes let it be
    unknown: str | None = None  # why the estimate is not to be stated; None if it is
    least_ns: int = 0  # of an estimate that is not stated, what the job gets back at least
    beyond_ns: int = 0  # what a replay gives back beyond a bound of the estimate: that is not lost
    # makes the run without the cause (`RecoveredTime.saved_ns`) or None; None if there is no replay
    without: Callable[[], Any] | None = field(default=None, compare=False, repr=False)
    # of each judged step the most that all of its classes let it be, and its part of the loss; None for one number for
    # all
    steps: tuple[Floats, Floats] | None = field(default=None, compare=False, repr=False)

    def taken_by(self, others: "Sequence[tuple[int, Loss]]") -> float:
        """How much of its bound losses of the same classes claim, each by its parts in the steps, ns."""
        if self.steps is None or any(o.steps is None or len(o.steps[1]) != len(self.steps[0]) for _, o in others):
            return float(sum(claim_ns for claim_ns, _ in others))
        claimed = sum(
            (claim_ns * o.steps[1] for claim_ns, o in others if o.steps is not None), np.zeros_like(self.steps[0])
        )
        return float(np.minimum(self.steps[0], claimed).sum())


AN_OPPORTUNITY = "an opportunity is not a loss; opportunity_share is the most that a change can save"

NO_LOSS = Loss(0, "ceiling", (), 0, 0)  # the loss of what costs no time


@dataclass(frozen=True)
class Finding:
    kind: str  # one of `alltrace.recipes.terms.KIND_MEANINGS`
    loss: Loss  # what it costs (`AllRankFacts.loss`)
    ranks: tuple[int, ...]  # the culprits
    where: str  # the kernel, range, communicator or call
    advice: str  # one sentence
    evidence: dict[str, float] = field(default_factory=dict)  # numbers
    confidence: float = 0.8  # 0 to 1
    hosts: tuple[str, ...] = ()  # of a finding about hosts these; else those with only culprits as ranks are stated
    severity: str | None = None  # for a finding that costs no time; otherwise it follows from the share
    # whether it is about transfers that the next kernel needs: part of the program's design, not a fault
    needed_at_once: bool = False
    told: bool = False  # whether it is reported even if its loss is small, because something else currently hides it
    # for an opportunity, the largest share of the judged time that a change can gain; None for a loss
    opportunity: float | None = None
