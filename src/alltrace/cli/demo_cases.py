"""What `alltrace demo --case` simulates: a run for each kind of trouble, and jobs that hang or died; with what to look at."""

from __future__ import annotations

from typing import NamedTuple


class Case(NamedTuple):
    scenario: str  # the scenario that is simulated; see `alltrace.synth.SCENARIOS`
    faults: tuple[str, ...]  # what is planted, as `alltrace synth --fault` takes it
    about: str  # what the first finding says, in one sentence
    look: tuple[str, ...]  # further commands to try, with `{run}` where the run directory goes


_HOST = ("alltrace gaps {run}", "alltrace recipe launches {run} --limit 10", "alltrace recipe idle {run} --limit 10")
_NETWORK = ("alltrace collectives {run}", "alltrace stragglers {run}", "alltrace overlap {run}")

CASES: dict[str, Case] = {
    "slow-rank": Case(
        "straggler",
        (),
        "One rank computes longer than all others, and they wait for it. The first finding names it.",
        ("alltrace stragglers {run}", "alltrace whatif {run}", "alltrace kernels {run} --names short --by-rank --limit 20"),
    ),
    "slow-host": Case(
        "healthy",
        ("slow-host:hosts=1:factor=1.3",),
        "All ranks of one host compute longer than those of the other host. The first finding names the host.",
        ("alltrace stragglers {run}", "alltrace whatif {run}", "alltrace breakdown {run}"),
    ),
    "imbalance": Case(
        "experts",
        ("imbalance:ranks=3:extra=1.5",),
        "One rank has more work than its peers. Its device is as fast as theirs, so replacing the device would not help.",
        ("alltrace stragglers {run}", "alltrace recipe launch-configurations {run} --limit 10", "alltrace whatif {run}"),
    ),
    "slow-communicator": Case(
        "tensor-data",
        ("slow-communicator:factor=12",),
        "The transfers of one communicator take longer than those of similar communicators. No rank is late.",
        _NETWORK,
    ),
    "exposed-communication": Case(
        "sharded",
        ("exposed-communication",),
        "Every kernel waits for the collective before it, so compute hides no communication.",
        _NETWORK,
    ),
    "data-stall": Case(
        "healthy",
        ("data-stall:stall_ns=25000000",),
        "At the start of each step the devices wait until the host has the next batch.",
        ("alltrace gaps {run}", "alltrace stats nvtx_sum {run}", "alltrace steps {run} --per-step"),
    ),
    "launch-bound": Case(
        "healthy",
        ("launch-bound",),
        "The kernels are so small that the device runs them faster than the host can launch them.",
        _HOST,
    ),
    "sync": Case(
        "healthy",
        ("sync:host_ns=150000",),
        "The host waits for the device after every layer, and the device then waits for the host.",
        (*_HOST, "alltrace stats cuda_api_sum {run}"),
    ),
    "host-pause": Case(
        "healthy",
        ("host-pause",),
        "In some steps the host launches nothing for tens of milliseconds, as during garbage collection.",
        (*_HOST, "alltrace steps {run} --per-step"),
    ),
    "allocation": Case(
        "healthy",
        ("allocation",),
        "Device memory is allocated and freed in every layer, which stops the device each time.",
        (*_HOST, "alltrace stats cuda_api_sum {run}"),
    ),
    "pageable-copy": Case(
        "healthy",
        ("pageable-copy",),
        "Batches are copied from memory that is not pinned, which is slow and makes the host wait.",
        ("alltrace recipe memory-bandwidth {run}", "alltrace overlap {run}", "alltrace stats cuda_gpu_mem_time_sum {run}"),
    ),
    "missing-rank": Case(
        "healthy",
        ("missing-rank:ranks=5",),
        "The report of one rank is missing (`capture-fault`), so it is unknown whether the others wait for it.",
        ("alltrace info {run}", "alltrace collectives {run}"),
    ),
    "healthy": Case(
        "healthy",
        (),
        "No fault was simulated. The findings show what such a run always loses, above all communication that cannot be hidden.",
        ("alltrace efficiency {run}", "alltrace overlap {run}", "alltrace critical-path {run}"),
    ),
}


class HangCase(NamedTuple):
    fault: str  # what is planted: a kind of `alltrace.synth.hanging_jobs.FAULTS`
    ranks: tuple[int, ...]  # the culprits
    about: str  # what the verdict says, in one sentence


HANG_CASES: dict[str, HangCase] = {
    "hang": HangCase("stuck", (9, 14), "Two ranks of a pipeline stop before a collective, and the other 14 wait for them."),
    "mismatch": HangCase("size", (5,), "One rank enters a collective with another size, and no rank completes it."),
    "dead-rank": HangCase("killed", (7,), "One rank is killed, and leaves no dump; the launcher's log says so."),
}
