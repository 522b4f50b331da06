"""Whether the intervals of clocks hold the truth: `python -m benchmarks.clock_intervals [--runs 200]` prints a table.

Jobs of every layout are simulated on several hosts, with ends that scatter by the given times what was measured on real
machines. Their operations are matched as they met. Hosts' clocks are off by up to half a second and 20 ppm. Of each
three jobs one has exact UTC stamps, one has stamps that are off by milliseconds, and one has these with the hosts'
monotonic clocks.

The table has, for each layout and scatter, the share of hosts whose offset is within `error_ns` of the truth, how wide
that interval is to each side, and how far offsets are off.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from alltrace.align.clock_sharing import PlacedRank
from alltrace.align.clocks import solve
from alltrace.align.members import EXCHANGE, Evidence
from alltrace.align.nccl_names import SYNCHRONISING
from alltrace.synth.identity import JOB_START_UTC_NS, identities
from alltrace.synth.scenario import Clocks, Layout, Links, Scenario, Work
from alltrace.synth.simulate import simulate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

LAYOUTS = {
    "data": Layout(kind="data"),
    "tensor and data": Layout(kind="data", tensor_parallel=4),
    "sharded": Layout(kind="sharded"),
    "experts": Layout(kind="expert"),
    "pipeline": Layout(kind="pipeline"),
}
_STAMPS = ("exact", "wrong", "monotonic")


@dataclass(frozen=True)
class Job:
    """A simulated job.

    Attributes:
        evidence: Its operations, matched.
        ranks: Its ranks.
        offset_ns: For each rank how far its stamped time is ahead at the run's zero.
        rate: For each host how much faster it runs than the first one's.
        seen_ns: For each host the first and the last end of its operations since the run's zero.
    """

    evidence: Evidence
    ranks: list[PlacedRank]
    offset_ns: NDArray[np.float64]
    rate: NDArray[np.float64]
    seen_ns: NDArray[np.float64]


def scenario_of(layout: str, scatter: float, seed: int) -> Scenario:
    """The job of a seed; it has two to eight hosts of four or eight ranks."""
    rng = np.random.default_rng((seed, 4_711))
    hosts, per_host = int(rng.choice([2, 3, 4, 8])), int(rng.choice([4, 8]))
    stamps = _STAMPS[int(rng.integers(len(_STAMPS)))]
    wanted = replace(
        LAYOUTS[layout], hosts=hosts, ranks_per_host=per_host, expert_parallel=per_host, pipeline_stages=2 * hosts
    )
    work = Work(
        layers=2 * hosts,
        kernels_per_layer=1,
        optimizer_kernels=1,
        microbatches=4,
        data_ns=int(rng.uniform(5e7, 1e9)),
        gradient_bytes=int(rng.uniform(5e7, 4e8)),
        nvtx=False,
    )
    return Scenario(
        name=stamps,
        about="",
        steps=int(rng.integers(20, 40)),
        seed=seed,
        layout=wanted,
        work=work,
        links=Links(scatter=scatter),
        clocks=Clocks(stamp_error_ms=0.0 if stamps == "exact" else 2.0, start_spread_s=1.0),
    )


def job_of(scenario: Scenario) -> Job:
    """The operations of a scenario as its reports have them, and the truth about its clocks."""
    run, who = simulate(scenario), identities(scenario)
    rows = [
        (
            number,
            met.group,
            rank,
            arrival,
            met.ends[rank],
            met.op in SYNCHRONISING,
            0 if met.op in SYNCHRONISING else EXCHANGE,
        )
        for number, met in enumerate(run.collectives)
        for rank, arrival in sorted(met.arrivals.items())
    ]
    instance, communicator, rank, start, end, synchronising, direction = np.array(rows, np.int64).T.copy()
    for one in who:
        own = rank == one.rank
        start[own], end[own] = one.stamps(start[own]), one.stamps(end[own])
    stamps = [i.utc_stamp_ns - JOB_START_UTC_NS for i in who]
    monotonic = scenario.name == "monotonic"
    ranks = [
        PlacedRank(i.rank, i.host_name, i.rank, stamp - min(stamps), i.system_clock_ns if monotonic else None)
        for i, stamp in zip(who, stamps, strict=True)
    ]
    offset = np.array([i.stamp_error_ns + i.offset_ns + i.drift_ppm * 1e-6 * min(stamps) for i in who])
    evidence = Evidence(
        instance, communicator, rank, start, end, synchronising.astype(np.bool_), direction.astype(np.int8)
    )
    rate = np.array([next(i.drift_ppm for i in who if i.host == host) for host in range(scenario.layout.hosts)]) * 1e-6
    host_of, shift = np.array([i.host for i in who])[rank], np.array([p.shift_ns for p in ranks])[rank]
    times = [(end + shift)[host_of == host] for host in range(scenario.layout.hosts)]
    seen = np.array([[t.min(), t.max()] for t in times], np.float64)
    return Job(evidence, ranks, offset, rate - rate[0], seen)


def errors_of(job: Job) -> list[tuple[float, float]]:
    """For each host but the first how far its offset is off in its operations, and its `error_ns`; infinite without."""
    solution = solve(job.evidence, job.ranks)
    found = []
    for host, clock in enumerate(solution.clocks[1:], 1):
        # against the first host that it is connected with; of a host's stamps the middle one counts
        at = [i for i, p in enumerate(job.ranks) if solution.components[p.rank] == clock.component]
        own, first = (
            np.median([job.offset_ns[i] for i in at if job.ranks[i].host == name])
            for name in (clock.host, job.ranks[at[0]].host)
        )
        off = clock.offset_ns - (own - first) + (clock.drift_ppm * 1e-6 - job.rate[host]) * job.seen_ns[host]
        found.append((float(np.abs(off).max()), np.inf if clock.error_ns is None else clock.error_ns))
    return found


def row(layout: str, scatter: float, found: Sequence[tuple[float, float]], spent_s: float) -> str:
    """A row of the table."""
    off, error = np.array(found).T
    middle, wide, most = np.quantile(error, [0.5, 0.95, 1.0], method="higher") / 1e3
    share, far = np.mean(off <= error), np.quantile(off, 0.95) / 1e3
    return (
        f"{layout:<20}{scatter:>8g}{len(off):>7}{share:>9.3f}{middle:>11.2f}"
        f"{wide:>9.2f}{most:>9.2f}{far:>10.2f}{spent_s:>8.1f}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200, help="jobs of each scatter, over all layouts; default: 200")
    parser.add_argument("--first-seed", type=int, default=0, help="default: 0")
    parser.add_argument("--scatter", type=float, nargs="+", default=[1.0, 3.0, 10.0], help="default: 1 3 10")
    chosen = parser.parse_args()
    head = f"{'layout':<20}{'scatter':>8}{'hosts':>7}{'within':>9}{'median us':>11}{'95 % us':>9}{'most us':>9}"
    print(f"{head}{'off, 95 %':>10}{'CPU s':>8}")
    for scatter in chosen.scatter:
        every: list[tuple[float, float]] = []
        for number, layout in enumerate(LAYOUTS):
            found, spent_s = [], 0.0
            for seed in range(chosen.first_seed + number, chosen.first_seed + chosen.runs, len(LAYOUTS)):
                job = job_of(scenario_of(layout, scatter, seed))
                begun = time.process_time()
                found += errors_of(job)
                spent_s += time.process_time() - begun
            if found:
                every += found
                print(row(layout, scatter, found, spent_s), flush=True)
        print(row("all", scatter, every, 0.0), flush=True)


if __name__ == "__main__":
    main()
