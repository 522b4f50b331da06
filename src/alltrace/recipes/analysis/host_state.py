"""Whether the threads that launch kernels had a CPU while they delayed a device, and what they ran there.

Both come from what nsys records of CPUs: scheduling events of threads (`sched`) and CPU samples (`samples`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from alltrace.recipes.analysis.gpu_state import Comparison
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Int64, integers
from alltrace.trace.intervals import Merged, containing, difference, intersection, merge, merge_by_track, overlap_ns, union
from alltrace.trace.number_text import number_ranges

READS = {"sched": ("time", "thread", "cpu", "scheduled_in"), "samples": ("time", "thread", "symbol")}
COLLECT = (
    "To see whether the launching thread had a CPU and what it ran, profile with `nsys profile --sample=process-tree "
    "--cpuctxsw=process-tree` (`alltrace capture exec --sample`)."
)
"""What to do if no report has them."""

_LEAST_SAMPLES = 5
_MOSTLY = 0.3
"""A function is named if it is at the top in this share of the samples, and there are a few of them."""

_BUSY, _IDLE = 0.8, 0.2
"""A thread that has a CPU for the first share of the time is busy; one that has it for less than the second waits or cannot run."""

_TAKEN = 0.2
"""Others took the CPU if they had it for this share of the time in which the thread had none."""


@dataclass(frozen=True)
class HostState:
    """What CPUs did over some time; None if the report does not say."""

    on_cpu_share: float | None = None  # share of the time in which a launching thread was on a CPU
    # share of the rest in which another recorded thread had the CPU that a launching thread had left
    taken_share: float | None = None
    running: float | None = None  # how many recorded threads were on CPUs at once, the mean
    symbol: str = ""  # the function at the top of most CPU samples of launching threads; empty if none dominates
    symbol_share: float = 0.0  # in which share of these samples


def host_state(rank: Rank, threads: Int64, spans: Merged) -> HostState | None:
    """What the CPUs did.

    `threads`: Rows of its `threads`: those that launch kernels. `spans`: The time in question, ns. Returns none if the
    report has no scheduling events or samples in that time.
    """
    if not len(spans.starts) or not len(threads):
        return None
    scheduled = _scheduled(rank, threads, spans)
    symbol, share = _sampled(rank, threads, spans)
    if scheduled is None and not symbol:
        return None
    on_cpu, taken, running = scheduled or (None, None, None)
    return HostState(on_cpu, taken, running, symbol, share)


class _Spells(NamedTuple):
    """What threads were on: each spell is of a thread, on the CPU that it has or has left; arrays of n."""

    thread: Int64
    cpu: Int64
    begins: Int64
    ends: Int64
    running: NDArray[np.bool_]

    def of(self, rows: NDArray[np.bool_]) -> tuple[Int64, Int64, Int64]:
        """The CPU, begin and end of some of them."""
        return self.cpu[rows], self.begins[rows], self.ends[rows]


def _spells(rank: Rank) -> _Spells:
    """The spells between the scheduling events of each thread; the first one begins, and the last one ends, with the recording."""
    table = rank.table("sched", READS["sched"])
    time, thread, cpu = (integers(table.column(c), -1) for c in ("time", "thread", "cpu"))
    running = np.asarray(pc.fill_null(table.column("scheduled_in"), False).to_numpy(), np.bool_)
    order = np.lexsort((running, time, thread))
    time, thread, cpu, running = time[order], thread[order], cpu[order], running[order]
    first = np.append(True, thread[1:] != thread[:-1])
    ends = np.append(time[1:], 0)
    ends[np.append(first[1:], True)] = time.max()
    # a thread that is first seen as it leaves a CPU had it before
    had = first & ~running
    return _Spells(
        np.append(thread, thread[had]),
        np.append(cpu, cpu[had]),
        np.append(time, np.full(had.sum(), time.min())),
        np.append(ends, time[had]),
        np.append(running, np.ones(had.sum(), np.bool_)),
    )


def _scheduled(rank: Rank, threads: Int64, spans: Merged) -> tuple[float, float | None, float] | None:
    """The shares and the mean that `HostState` begins with; None if no event describes a launching thread in that time."""
    if not rank.has("sched"):
        return None
    spells = _spells(rank)
    ours = np.isin(spells.thread, threads)
    covered = intersection(spans, merge(spells.begins, spells.ends))
    if not ours.any() or not covered.total_ns:
        return None
    _, begins, ends = spells.of(spells.running)
    running = float(overlap_ns(begins, ends, covered).sum()) / covered.total_ns
    off = difference(covered, merge(*spells.of(spells.running & ours)[1:]))
    taken = None
    if off.total_ns:
        left, others = (merge_by_track(*spells.of(rows)) for rows in (~spells.running & ours, spells.running & ~ours))
        parts = [intersection(gone, others[cpu]) for cpu, gone in left.items() if cpu in others]
        taken = intersection(off, union(parts)).total_ns / off.total_ns
    return 1 - off.total_ns / covered.total_ns, taken, running


def _sampled(rank: Rank, threads: Int64, spans: Merged) -> tuple[str, float]:
    """The function at the top of most samples, and its share of them; empty if none dominates."""
    if not rank.has("samples"):
        return "", 0.0
    table = rank.table("samples", READS["samples"])
    time, thread, symbol = (integers(table.column(c), -1) for c in ("time", "thread", "symbol"))
    mine: NDArray[np.bool_] = np.isin(thread, threads) & (containing(spans, time) >= 0)
    count = Counter(symbol[mine].tolist())
    if sum(count.values()) < _LEAST_SAMPLES:
        return "", 0.0
    for ident, times in count.most_common():
        text = rank.texts(pa.array([ident], pa.int64(), mask=[ident == -1]))[0].as_py() or ""
        if text and not text.startswith(("0x", "[")):  # a sample without a symbol has no information
            share = times / sum(count.values())
            return (text, share) if share >= _MOSTLY else ("", 0.0)
    return "", 0.0


def compared_hosts(states: Mapping[int, HostState | None], ranks: Sequence[int]) -> Comparison:
    """What the launching threads of `ranks` did compared with those of the others."""
    by_rank = {r: s for r, s in states.items() if s is not None}
    numbers = sorted(r for r in set(ranks) if r in by_rank)
    if not numbers:
        return Comparison(COLLECT, {})
    own, peers = [by_rank[r] for r in numbers], [s for r, s in by_rank.items() if r not in set(ranks)]
    evidence: dict[str, float] = {}
    for name, key in (("on_cpu_share", "on_cpu_share"), ("taken_share", "cpu_taken_share"), ("running", "running_threads")):
        if name == "taken_share" and evidence.get("on_cpu_share", 1.0) >= _BUSY:
            continue  # there is hardly a rest
        for prefix, states_of in (("", own), ("peers_", peers)):
            values = [v for s in states_of if (v := getattr(s, name)) is not None]
            if values:
                evidence[f"{prefix}{key}"] = float(np.median(values))
    most = max(own, key=lambda s: s.symbol_share)
    return Comparison(_sentence(numbers, evidence, most), evidence)


def _sentence(ranks: Sequence[int], evidence: Mapping[str, float], most: HostState) -> str:
    whose = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {number_ranges(ranks)}"
    parts = []
    share, taken = evidence.get("on_cpu_share"), evidence.get("cpu_taken_share")
    if share is not None:
        peers = evidence.get("peers_on_cpu_share")
        against = f" (other ranks: {100 * peers:.0f} %)" if peers is not None else ""
        meaning = ", so it was busy" if share >= _BUSY else ", so it waited or could not run" if share <= _IDLE else ""
        parts.append(f"The launching thread of {whose} was on a CPU for {100 * share:.0f} % of that time{against}{meaning}.")
    if taken is not None and taken >= _TAKEN:
        parts.append(
            f"Other threads of the job had the CPU that it left for {100 * taken:.0f} % of the rest: give it its own core."
        )
    if most.symbol:
        parts.append(f"{100 * most.symbol_share:.0f} % of its CPU samples there are in `{most.symbol}`.")
    return " ".join(parts)
