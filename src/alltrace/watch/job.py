"""The state of a running job, from its record of steps.

Times are those at which this process sees a change, because the clocks of hosts differ.
"""

from __future__ import annotations

from array import array
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from alltrace.capture.gpu_state import GpuState
from alltrace.capture.step_record import BLOCK_S
from alltrace.capture.step_verdict import CPU_WAIT, OTHER, Finding, RankTimes, judge, median, times_of
from alltrace.trace.step_records import PAGE_BYTES, SUFFIX, RankSteps, read_ranks

_STEPS = 50
_LEAST_STEPS = 10
_LEAST_LATE_S, _MOST_LATE_S = 0.1, 1.0
"""How much later than each 5 s a rank may write, at least and at most."""


class State(NamedTuple):
    job: str
    ranks: int  # that have written
    world: int  # that the job has
    step: int  # the last that some rank is in
    step_s: float  # the median time of its last steps; 0 without steps
    shares: dict[str, float]  # the share of each phase in these steps, the mean over all ranks
    slow: tuple[Finding, ...]  # the ranks that are slow
    stopped_s: float  # for how long no step ended
    stopped: tuple[int, ...]  # the ranks for which the others wait, if no step ends
    places: dict[int, RankSteps]  # what each rank did when it wrote last
    silent_s: dict[int, float]  # for how long each rank wrote nothing


class Job:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[Path, tuple[int, list[RankSteps]]] = {}
        self._seen: dict[int, tuple[int, float]] = {}  # of each rank: when it wrote, and when that was seen
        self._progress = (-1, 0.0)  # the steps that ended in all, and when that was seen to change

    def look(self) -> State:
        """The state now."""
        # Raises `OSError`: the folder or a file in it cannot be read.
        ranks: dict[int, RankSteps] = {}
        for path in sorted(self.folder.rglob(f"*{SUFFIX}")):
            facts = path.stat()
            if facts.st_size <= PAGE_BYTES:
                continue  # a page changes without a trace in its file's time
            if self._read.get(path, (None,))[0] != facts.st_mtime_ns:
                self._read[path] = facts.st_mtime_ns, read_ranks(path, _STEPS)
            for rank in self._read[path][1]:
                if rank.rank not in ranks or rank.written_ns > ranks[rank.rank].written_ns:
                    ranks[rank.rank] = rank
        now = monotonic()
        for number, rank in ranks.items():
            if self._seen.get(number, (0, 0.0))[0] != rank.written_ns:
                self._seen[number] = rank.written_ns, now
        ended = sum(rank.recorded for rank in ranks.values())
        if ended != self._progress[0]:
            self._progress = ended, now
        silent = {number: now - self._seen[number][1] for number in ranks}
        totals = [step.total_us / 1e6 for rank in ranks.values() for step in rank.steps[-_STEPS:]]
        step_s = median(totals) if totals else 0.0
        return State(
            next((rank.job for rank in ranks.values()), ""),
            len(ranks),
            max((rank.world for rank in ranks.values()), default=0),
            max((rank.step for rank in ranks.values()), default=0),
            step_s,
            _shares(ranks),
            _slow(ranks),
            now - self._progress[1],
            _stopped(ranks, silent, step_s),
            ranks,
            silent,
        )


def _shares(ranks: dict[int, RankSteps]) -> dict[str, float]:
    sums: dict[str, float] = {}
    total = 0.0
    for rank in ranks.values():
        for step in rank.steps[-_STEPS:]:
            total += step.total_us
            for phase, us in zip(
                (*rank.phases, CPU_WAIT), (*step.phases_us[: len(rank.phases)], step.cpu_wait_us), strict=True
            ):
                sums[phase] = sums.get(phase, 0.0) + us
    if not total:
        return {}
    return {**{phase: us / total for phase, us in sums.items()}, OTHER: max(0.0, 1 - sum(sums.values()) / total)}


def _slow(ranks: dict[int, RankSteps]) -> tuple[Finding, ...]:
    """The ranks that are slow in the last steps that all of them have."""
    names = {(rank.phases, rank.waits) for rank in ranks.values()}
    if len(names) != 1 or len(ranks) < 2:
        return ()
    ((phases, waits),) = names
    common = set.intersection(*({step.step for step in rank.steps} for rank in ranks.values()))
    last = set(sorted(common)[-_STEPS:])
    if len(last) < _LEAST_STEPS:
        return ()
    rows: list[RankTimes] = []
    columns_names = [CPU_WAIT, OTHER, *phases]
    numbers = sorted(ranks)
    for number in numbers:
        steps = [step for step in ranks[number].steps if step.step in last]
        times = [(s.cpu_wait_us, *s.phases_us[: len(phases)]) for s in steps]
        other = array("d", (max(0.0, (s.total_us - sum(its)) / 1e6) for s, its in zip(steps, times, strict=True)))
        measured = [array("d", (us / 1e6 for us in column)) for column in zip(*times, strict=True)]
        gpu = GpuState(steps[-1].clock_mhz, 0, steps[-1].throttle, steps[-1].xid)
        rows.append(times_of([measured[0], other, *measured[1:]], columns_names, waits, min(last), 0, gpu))
    slow = judge(rows, sorted(columns_names), waits).slow
    return tuple(one._replace(rank=numbers[one.rank]) for one in slow)


def _stopped(ranks: dict[int, RankSteps], silent_s: dict[int, float], step_s: float) -> tuple[int, ...]:
    """The ranks that stopped: half of the ranks wait for longer than two steps, these write nothing or do not wait."""
    least_ns = 2e9 * step_s
    waiting = {
        n for n, rank in ranks.items() if rank.phase in rank.waits and rank.written_ns - rank.since_ns > least_ns
    }
    if not ranks or 2 * len(waiting) < len(ranks):
        return ()
    late_s = BLOCK_S + min(max(step_s, _LEAST_LATE_S), _MOST_LATE_S)
    named = {
        n
        for n, rank in ranks.items()
        if n not in waiting
        and (silent_s[n] > late_s or (rank.phase not in rank.waits and rank.written_ns - rank.since_ns > least_ns))
    }
    return tuple(sorted(named)) if 2 * len(named) <= len(ranks) else ()
