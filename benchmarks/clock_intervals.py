"""Whether the intervals of clocks hold the truth: `python -m benchmarks.clock_intervals [--runs 200] [--first-seed 0]` prints a table.

Jobs are simulated at the level of their operations, with ends that scatter as measured on real machines: by kind of operation, in
part always the same for a rank and operation, in part in two modes that alternate, the rest at random and skewed; more over hosts.
No member ends before the last one has started. Hosts' clocks are off by up to two minutes and 20 ppm; in some runs one steps. One
operation in a hundred is matched wrongly. Reports have exact stamps, or stamps off by milliseconds with or without monotonic clocks.

The table has, for each layout and scatter, the share of hosts whose offset is within `error_ns` of the truth, and how wide that is.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import numpy as np

from alltrace.align.clocks import PlacedRank, solve
from alltrace.align.members import EXCHANGE, Evidence

_SPREAD_NS = {"all-gather": 20_500.0, "reduce-scatter": 12_000.0, "all-reduce": 2_000.0, "all-to-all": 16_000.0, "send": 8_000.0}
"""Median distance of the first and the last of four ends."""
_TRANSFER_NS = {"all-gather": 4e5, "reduce-scatter": 4e5, "all-reduce": 4e4, "all-to-all": 3e5, "send": 1.5e5}
_SECOND_MODE_NS, _SECOND_MODE = 208_000.0, 0.03
"""One all-reduce in ten of four devices has a member that is late by this."""
_OVER_HOSTS = 1.5
LAYOUTS = ("data", "sharded", "tensor and data", "experts", "pipeline", "pipeline, messages alone")


@dataclass(frozen=True)
class Run:
    """A simulated run.

    Attributes:
        evidence: Its matched operations.
        ranks: Its ranks.
        offset_ns: For each host how far its clock is ahead of the first one's at the run's start.
        stepped: For each host whether its clock steps.
    """

    evidence: Evidence
    ranks: list[PlacedRank]
    offset_ns: np.ndarray
    stepped: np.ndarray


class _Lateness:
    """What the members of an operation are late: `systematic` of the variance is always the same for a rank and operation."""

    def __init__(self, rng: np.random.Generator, scale: float) -> None:
        self._rng, self._scale, self._systematic = rng, scale, rng.uniform(0.2, 0.8)
        self._always: dict[tuple[str, int], np.ndarray] = {}

    def of(self, kind: str, communicator: int, members: np.ndarray, turn: int, *, over_hosts: bool) -> np.ndarray:
        rng, key = self._rng, (kind, communicator)
        if key not in self._always:
            self._always[key] = np.stack([rng.exponential(1.0, len(members)), rng.uniform(-0.7, 0.7, len(members))])
        always, mode = self._always[key]
        # of four values with this mix the median of the range is about 1.9
        late = np.sqrt(self._systematic) * (always + mode * (turn % 2)) + np.sqrt(1 - self._systematic) * rng.exponential(1.0, len(members))
        late *= self._scale * _SPREAD_NS[kind] / 1.9 * (_OVER_HOSTS if over_hosts else 1.0)
        if kind == "all-reduce":
            late += self._scale * _SECOND_MODE_NS * (rng.random(len(members)) < _SECOND_MODE)
        return late


def simulate(layout: str, scale: float, seed: int) -> Run:
    """A run of `layout`, with `scale` times the scatter as measured."""
    rng = np.random.default_rng((seed, 4_711))
    hosts = int(rng.choice([2, 3, 4, 8, 16, 32]))
    per_host = int(rng.choice([4, 8]))
    count, steps, span_ns = hosts * per_host, int(rng.integers(20, 60)), float(rng.uniform(5e9, 120e9))
    host = np.arange(count) // per_host
    within = [np.arange(h * per_host, (h + 1) * per_host) for h in range(hosts)]
    across = [np.arange(r, count, per_host) for r in range(per_host)]
    neighbours = [(host_of, r) for host_of in range(hosts - 1) for r in range(per_host)]
    everyone = [np.arange(count)]
    plan: list[tuple[str, list[np.ndarray]]] = {
        "data": [("all-reduce", everyone), ("all-reduce", everyone)],
        "sharded": [("all-gather", everyone), ("reduce-scatter", everyone), ("all-gather", everyone), ("all-reduce", everyone)],
        "tensor and data": [("all-reduce", within), ("all-reduce", within), ("reduce-scatter", across), ("all-gather", across)],
        "experts": [("all-to-all", everyone), ("all-to-all", everyone), ("all-reduce", across)],
        "pipeline": [("all-reduce", within), ("all-reduce", everyone)],
        "pipeline, messages alone": [("all-reduce", within)],
    }[layout]
    lateness = _Lateness(rng, scale)
    rows: list[tuple[np.ndarray, ...]] = []
    instance = 0

    def add(kind: str, communicator: int, members: np.ndarray, at: float, turn: int, way: np.ndarray | None = None) -> None:
        nonlocal instance
        arrival = at + rng.exponential(3e5, len(members))
        over = len(np.unique(host[members])) > 1
        transfer = _TRANSFER_NS[kind] * rng.uniform(0.9, 1.1)
        end = arrival.max() + transfer + lateness.of(kind, communicator, members, turn, over_hosts=over)
        if way is not None:  # a send ends once its data is gone
            end = np.where(way == 1, np.minimum(end, end[way != 1].min() - rng.uniform(0, 2e3)), end)
        wrong = rng.random() < 0.01
        if wrong:
            shifted = rng.integers(len(members))
            arrival[shifted] += 5e6
            end[shifted] += 5e6
        direction = np.zeros(len(members)) if way is None else way
        rows.append((np.full(len(members), instance), np.full(len(members), communicator), members, arrival, end, direction))
        instance += 1

    for step in range(steps):
        at = (step + rng.uniform(0.1, 0.3)) / steps * span_ns
        for number, (kind, groups) in enumerate(plan):
            for which, members in enumerate(groups):
                add(kind, 1_000 * len(groups) + which, members, at + number * 0.1 / steps * span_ns, number)
        if layout.startswith("pipeline"):
            for turn in range(4):
                for first, r in neighbours:
                    pair = np.array([first * per_host + r, (first + 1) * per_host + r])
                    way = np.array([1, -1]) if turn % 2 == 0 else np.array([-1, 1])
                    add("send", 500_000 + r, pair, at + (0.5 + 0.05 * turn) / steps * span_ns, turn, way)
    instances, communicator, members, start, end, direction = (np.concatenate(c) for c in zip(*rows, strict=True))
    return _recorded(rng, host, (instances, communicator, members, start, end, direction), span_ns)


def _recorded(rng: np.random.Generator, host: np.ndarray, rows: tuple[np.ndarray, ...], span_ns: float) -> Run:
    """The rows as reports have them, with clocks."""
    instances, communicator, members, start, end, direction = rows
    hosts, count = int(host.max()) + 1, len(host)
    offset, drift = rng.uniform(-120e9, 120e9, hosts), rng.uniform(-20e-6, 20e-6, hosts)
    offset[0] = drift[0] = 0.0
    stepped = np.zeros(hosts, bool)
    step = np.zeros(len(members))
    if rng.random() < 0.1:
        which = int(rng.integers(1, hosts))
        stepped[which] = True
        step = 3e6 * ((host[members] == which) & (end > span_ns * rng.uniform(0.3, 0.7)))
    kind = rng.choice(["exact", "monotonic", "stamps"])
    stamp = np.zeros(count) if kind == "exact" else np.rint(rng.normal(0, 2e6, count))
    begins = np.rint(rng.uniform(1e9, 20e9, count))
    boots = rng.integers(10**12, 10**15, hosts)
    own = [np.rint(t * (1 + drift[host[members]]) + offset[host[members]] + step + (stamp + begins)[members]) for t in (start, end)]
    ranks = []
    for r in range(count):
        system = int(boots[host[r]] - begins[r] - stamp[r]) if kind == "monotonic" else None
        ranks.append(PlacedRank(r, f"node{host[r]}", r, -int(begins[r]), system))
    # of stamps that are off, a host's offset is that of the middle one
    middle = np.array([np.median(stamp[host == h]) for h in range(hosts)]) if kind != "exact" else np.zeros(hosts)
    evidence = Evidence(
        *(c.astype(np.int64) for c in (instances, communicator, members, *own)),
        direction == 0,
        direction.astype(np.int8),
    )
    return Run(evidence, ranks, offset + middle - middle[0], stepped)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200, help="runs of each scatter, over all layouts; default: 200")
    parser.add_argument("--first-seed", type=int, default=0, help="default: 0")
    parser.add_argument("--scatter", type=float, nargs="+", default=[1.0, 3.0, 10.0], help="default: 1 3 10")
    chosen = parser.parse_args()
    print(f"{'layout':<28}{'scatter':>8}{'hosts':>7}{'within':>9}{'median us':>11}{'95 % us':>9}{'most us':>9}{'error us':>10}{'CPU s':>8}")
    for scale in chosen.scatter:
        every: list[tuple[float, float]] = []
        for number, layout in enumerate(LAYOUTS):
            found, began = [], time.process_time()
            for seed in range(chosen.first_seed + number, chosen.first_seed + chosen.runs, len(LAYOUTS)):
                run = simulate(layout, scale, seed)
                solution = solve(run.evidence, run.ranks)
                for h, clock in enumerate(solution.clocks):
                    if h and not run.stepped[h] and not run.stepped[0]:
                        found.append((abs(clock.offset_ns - run.offset_ns[h]), np.nan if clock.error_ns is None else clock.error_ns))
            every += found
            print(_row(layout, scale, found, time.process_time() - began), flush=True)
        print(_row("all", scale, every, 0.0), flush=True)


def _row(layout: str, scale: float, found: list[tuple[float, float]], spent_s: float) -> str:
    off, error = np.array(found).T
    low, high, most = np.quantile(error, [0.5, 0.95, 1.0]) / 1e3
    cells = f"{len(off):>7}{np.mean(off <= error):>9.3f}{low:>11.2f}{high:>9.2f}{most:>9.2f}{np.quantile(off, 0.95) / 1e3:>10.2f}"
    return f"{layout:<28}{scale:>8g}{cells}{spent_s:>8.1f}"


if __name__ == "__main__":
    main()
