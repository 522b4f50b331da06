"""How exact the clocks are that collectives give: `python -m benchmarks.accuracy_clocks` prints a table.

A job of 64 ranks on 8 hosts is simulated at the level of its collectives: tensor parallel groups of 4 within a host,
data parallel groups across hosts, none of all ranks. Hosts' clocks are off by up to 0.5 s and 5 ppm, every report's UTC
stamp by 2 ms more (standard deviation); each end is late by 2 microseconds on average (exponential), and one end in
twenty by up to 10 ms. The error is the largest difference, over the whole run, between the aligned time of a rank and
that of the first host, against the truth.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from alltrace.align.clock_sharing import PlacedRank
from alltrace.align.clocks import Solution, solve
from alltrace.align.members import Evidence


@dataclass(frozen=True)
class Job:
    """A job with known clocks; arrays by host or rank.

    Attributes:
        hosts: The number of hosts.
        per_host: Ranks of each.
        tensor: Ranks of a tensor parallel group.
        steps: Training steps.
        layers: Tensor parallel collectives of a step.
        span_s: Duration.
        offset_s: Bound of the hosts' offsets.
        drift_ppm: Bound of the hosts' drifts.
        stamp_ms: Standard deviation of the stamps' errors.
        jitter_ns: Mean lateness of an end.
        jitter_spread: Ranks' own mean lateness is between 1 and this many times that.
        outliers: Share of ends that are late by up to `outlier_ns`.
        outlier_ns: The largest.
        monotonic: The reports state their host's monotonic clock.
        seed: Everything random follows from it.
    """

    hosts: int = 8
    per_host: int = 8
    tensor: int = 4
    steps: int = 40
    layers: int = 6
    span_s: float = 60.0
    offset_s: float = 0.5
    drift_ppm: float = 5.0
    stamp_ms: float = 2.0
    jitter_ns: float = 2_000.0
    jitter_spread: float = 1.0
    outliers: float = 0.05
    outlier_ns: float = 1e7
    monotonic: bool = False
    seed: int = 0


@dataclass(frozen=True)
class Simulated:
    """The evidence of a job, its ranks, and its clocks: the stamped time is `true + offset + drift * true`."""

    evidence: Evidence
    ranks: list[PlacedRank]
    offset_ns: np.ndarray
    drift: np.ndarray
    span_ns: float


def simulate(job: Job) -> Simulated:
    """The collectives of `job` as its reports have them."""
    rng = np.random.default_rng((job.seed, 77))
    count = job.hosts * job.per_host
    host_offset = rng.uniform(-job.offset_s, job.offset_s, job.hosts) * 1e9
    host_drift = rng.uniform(-job.drift_ppm, job.drift_ppm, job.hosts) * 1e-6
    host_offset[0] = host_drift[0] = 0
    host = np.arange(count) // job.per_host
    stamp = rng.standard_normal(count) * job.stamp_ms * 1e6
    offset, drift = host_offset[host] + stamp, host_drift[host]
    lateness = job.jitter_ns * rng.uniform(1.0, job.jitter_spread, count)
    tensor = [np.arange(first, first + job.tensor) for first in range(0, count, job.tensor)]
    data = [np.arange(first, count, job.tensor) for first in range(job.tensor)]
    rows, instance = [], 0
    for step in range(job.steps):
        for layer in range(job.layers + 1):
            at = (step + (layer + 1) / (job.layers + 2)) / job.steps * job.span_s * 1e9
            groups = tensor if layer < job.layers else data
            for number, members in enumerate(groups):
                communicator = number if layer < job.layers else len(tensor) + number
                end = at + rng.uniform(0, 1e6) + rng.exponential(lateness[members])
                start = end - rng.uniform(1e4, 2e6, len(members))
                gross = rng.random(len(members)) < job.outliers
                end = end + gross * rng.uniform(1e5, job.outlier_ns, len(members))
                rows.append((np.full(len(members), instance), np.full(len(members), communicator), members, start, end))
                instance += 1
    columns = [np.concatenate(c) for c in zip(*rows, strict=True)]
    members = columns[2]
    # a report's own time begins up to 20 s before the job
    begins = rng.uniform(1e9, 20e9, count)
    stamped = [
        np.rint(t + offset[members] + drift[members] * t + begins[members]).astype(np.int64) for t in columns[3:]
    ]
    evidence = Evidence(
        columns[0].astype(np.int64),
        columns[1].astype(np.int64),
        members.astype(np.int64),
        stamped[0],
        stamped[1],
        np.ones(len(members), np.bool_),
        np.zeros(len(members), np.int8),
    )
    boots = rng.integers(10**12, 10**15, job.hosts)
    ranks = []
    for r in range(count):
        shift = -round(begins[r])
        system = round(boots[host[r]] + shift - stamp[r]) if job.monotonic else None
        ranks.append(PlacedRank(r, f"node{host[r]}", r, shift, system))
    return Simulated(evidence, ranks, offset, drift, job.span_s * 1e9)


def errors_ns(simulated: Simulated, solution: Solution) -> np.ndarray:
    """For each rank the largest error of its aligned times over the run, against the mean of the first host's ranks."""
    times = np.linspace(0, simulated.span_ns, 9)
    rate = {c.host: c.drift_ppm * 1e-6 for c in solution.clocks}
    found = []
    for placed, offset, drift in zip(simulated.ranks, simulated.offset_ns, simulated.drift, strict=True):
        shifted = times + offset + drift * times - solution.ahead_ns[placed.rank]
        found.append(shifted - rate[placed.host] * shifted - times)
    error = np.array(found)
    first = [p.host == simulated.ranks[0].host for p in simulated.ranks]
    worst: np.ndarray = np.abs(error - error[first].mean(axis=0)).max(axis=1)
    return worst


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="runs of each kind; default: 5")
    parser.add_argument("--first-seed", type=int, default=900, help="default: 900")
    seeds = parser.parse_args()
    kinds: dict[str, dict[str, Any]] = {
        "64 ranks, 8 hosts, as above": {},
        "ranks late by 2 to 6 microseconds": {"jitter_spread": 3.0},
        "monotonic clocks known": {"monotonic": True},
        "without drift": {"drift_ppm": 0.0},
        "0.5 s": {"span_s": 0.5},
        "20 % outliers": {"outliers": 0.2},
    }
    print(f"{'run':<36}{'worst rank us':>15}{'median rank us':>16}{'residual us':>13}{'CPU s':>8}")
    for name, changes in kinds.items():
        worst, middle, residual, spent = [], [], [], []
        for seed in range(seeds.first_seed, seeds.first_seed + seeds.seeds):
            simulated = simulate(Job(seed=seed, **changes))
            began = time.process_time()
            solution = solve(simulated.evidence, simulated.ranks)
            spent.append(time.process_time() - began)
            error = errors_ns(simulated, solution)
            worst.append(error.max() / 1e3)
            middle.append(float(np.median(error)) / 1e3)
            residual.append(max(c.residual_ns or 0 for c in solution.clocks) / 1e3)
        print(f"{name:<36}{max(worst):>15.2f}{np.median(middle):>16.2f}{max(residual):>13.2f}{np.median(spent):>8.2f}")


if __name__ == "__main__":
    main()
