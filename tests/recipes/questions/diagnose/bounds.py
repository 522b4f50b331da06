"""The most that a finding can cost, by SQL over the run and plain sweeps: nothing here knows how `diagnose` works."""

from __future__ import annotations

import re

import numpy as np

from alltrace.recipes.questions.sql import query

CALLS = {
    "sync": r"Synchronize",
    "allocation": r"Malloc|Free|Mem(Host)?Alloc|MemCreate|MemMap|HostRegister|HostUnregister|MemPool",
    "sync-copy": r"Memcpy|Memset",
    "pageable-copy": r"Memcpy|Synchronize",
    "module-loading": r"Load|Unload|Link|Instantiate|LaunchKernel|GetFunction",
}
"""The calls of each kind of finding that names calls."""

_BLOCKING = re.compile("Synchronize|Malloc|Free|MemAlloc|HostRegister|HostUnregister|Memcpy(?!.*Async)")
_LAUNCH = re.compile("Launch")
_SILENCE_NS = 1_000_000


def _rows(run, text):
    return [tuple(row.values()) for row in query(run, text).table.to_pylist()]


def _union(spans):
    """Intervals (n, 2) without overlap, ascending."""
    merged: list[list[int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged


def _length(spans):
    return sum(end - start for start, end in spans)


def _outside(spans, holes):
    """The time of `spans` outside of `holes`; both without overlap, ascending."""
    total, at = 0, 0
    for start, end in spans:
        total += end - start
        while at < len(holes) and holes[at][1] <= start:
            at += 1
        place = at
        while place < len(holes) and holes[place][0] < end:
            total -= min(end, holes[place][1]) - max(start, holes[place][0])
            place += 1
    return total


def _of_calls(run, rank, pattern):
    """The time in calls, and from each to the next launch of its thread, up to a blocking call or 1 ms without any."""
    calls = _rows(run, f'SELECT thread, start, "end", name FROM api WHERE rank = {rank} ORDER BY thread, start')
    others = _rows(run, f'SELECT start, "end" FROM mpi WHERE rank = {rank} ORDER BY start')
    exchanges = np.array([start for start, _ in others], np.int64)
    total = 0
    for number, (thread, start, end, name) in enumerate(calls):
        if not re.search(pattern, name or ""):
            continue
        total += end - start
        latest = end
        for other, begins, ends, called in calls[number + 1 :]:
            exchange = np.searchsorted(exchanges, latest) < np.searchsorted(exchanges, begins)
            if other != thread or begins - latest >= _SILENCE_NS or exchange:
                break
            total += max(begins - latest, 0)
            if _BLOCKING.search(called or ""):
                break
            if _LAUNCH.search(called or ""):
                break
            total += max(ends - max(begins, latest), 0)
            latest = max(latest, ends)
    return total


def most_ns(run, row):
    """The most that a finding can cost, ns; None for a kind that these rules say nothing of."""
    ranks = row["ranks"]
    if row["kind"] in CALLS:
        return sum(_of_calls(run, rank, CALLS[row["kind"]]) for rank in ranks)
    work = {
        rank: _rows(run, f'SELECT start, "end", kind FROM kernels WHERE rank = {rank} AND start IS NOT NULL')
        for rank in ranks
    }
    if row["kind"] in ("exposed-communication", "serialized-communication", "slow-communicator"):
        talks = ("collective", "p2p", "exchange", "meeting")
        return sum(
            _outside(_union((s, e) for s, e, k in w if k in talks), _union((s, e) for s, e, k in w if k not in talks))
            for w in work.values()
        )
    if row["kind"] in ("launch-bound", "host-pause", "data-stall", "idle-gap", "recompilation"):
        # of short kernels the whole time counts, as fused ones would not be there
        short = 4_000 if row["kind"] == "launch-bound" else 0
        total = 0
        for rank, kernels in work.items():
            copies = _rows(run, f'SELECT start, "end" FROM copies WHERE rank = {rank} AND start IS NOT NULL')
            graphs = _rows(run, f'SELECT start, "end" FROM graphs WHERE rank = {rank} AND start IS NOT NULL')
            busy = _union([(s, e) for s, e, _ in kernels if e - s > short] + copies + graphs)
            (begins,) = _rows(
                run,
                f"SELECT (SELECT min(start) FROM api WHERE rank = {rank}), (SELECT min(start) FROM ranges WHERE rank ="
                f" {rank})",
            )
            if not kernels:  # the work of hosts is judged in their place
                return None
            total += busy[-1][1] - min(busy[0][0], *(at for at in begins if at is not None)) - _length(busy)
        return total
    if row["kind"] in ("straggler", "slow-host", "throttling", "device-stall", "imbalance", "jitter", "regression"):
        return sum(_length(_union((s, e) for s, e, _ in w)) for w in work.values()) if ranks else None
    return None
