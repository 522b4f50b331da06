"""Whether the threads that launch kernels had a CPU while they delayed a device, what they ran, and where.

Both come from what nsys records of CPUs: scheduling events of threads (`sched`) and CPU samples (`samples`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.analysis.gpu_state import Comparison, beside_peers, median, own_and_peers, typical
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Flags, Floats, Int64, integers
from alltrace.trace.intervals import (
    Merged,
    containing,
    difference,
    intersection,
    merge,
    merge_by_track,
    overlap_ns,
    union,
)
from alltrace.trace.number_text import number_ranges

READS = {"sched": ("time", "thread", "cpu", "scheduled_in"), "samples": ("time", "thread", "cpu", "symbol")}
COLLECT = (
    "To see whether the launching thread had a CPU and what it ran, profile with `nsys profile --sample=process-tree "
    "--cpuctxsw=process-tree` (`alltrace capture exec --sample`)."
)
"""What to do if no report has them."""

_LEAST_SAMPLES = 5
_MOSTLY = 0.3  # a function is named if it is at the top in this share of the samples, and there are a few of them

_BUSY, _IDLE = 0.8, 0.2
"""A thread with a CPU for the first share of the time is busy, one with less than the second waits or cannot run."""

_SETTLED = 0.25
"""A thread is at home on a CPU that has this share of its time: one that is bound to none is at home on none. As large
a share on another NUMA node is stated."""

_OFTEN, _MORE_OFTEN = 1.0, 3.0
"""A thread wanders if it comes to another CPU as often a second, and so many times as often as others' threads do."""

_SHARED = 0.5  # two ranks share their CPUs if they have this share of their time on the same ones

_ON_SOCKET = 0.5  # a thread is on a socket that has this share of its time

_TAKEN = 0.2  # others took the CPU if they had it for this share of the time in which the thread had none


@dataclass(frozen=True)
class HostState:
    """What CPUs did over some time; None if the report does not say."""

    on_cpu_share: float | None = None  # share of the time in which a launching thread was on a CPU
    # share of the rest in which another recorded thread had the CPU that a launching thread had left
    taken_share: float | None = None
    running: float | None = None  # how many recorded threads were on CPUs at once, the mean
    symbol: str = ""  # the function at the top of most CPU samples of launching threads; empty if none dominates
    symbol_share: float = 0.0  # in which share of these samples


@dataclass(frozen=True)
class CpuPlaces:
    """Where the launching threads of a rank ran over the whole recording."""

    # how often one came to another CPU, per second on CPUs; None without scheduling events
    moves_per_s: float | None = None
    # shares of the time by number of the CPU, of `_SETTLED` or more
    homes: Mapping[str, float] = field(default_factory=dict)
    sockets: Mapping[str, float] = field(default_factory=dict)  # shares of the time by socket, if the host has several
    socket_cpus: Mapping[str, str] = field(default_factory=dict)  # the CPUs of each socket, likewise
    near: str = ""  # the CPUs near the rank's GPU, as NCCL states them
    away_share: float | None = None  # the share of the time on other CPUs; None if `near` is unknown
    numa_node: int | None = None  # that of the rank's GPU, as the profiler states it

    @property
    def socket(self) -> str | None:
        """The socket that it is on for `_ON_SOCKET` of its time; None for none, or if the host has one."""
        return next((socket for socket, share in self.sockets.items() if share >= _ON_SOCKET), None)


def cpu_places(rank: Rank, threads: Int64) -> CpuPlaces | None:
    """Where launching threads ran: by their scheduling events, else by their CPU samples; None without any."""
    if rank.has("sched"):
        spells = _spells(rank)
        runs = np.flatnonzero(spells.running & np.isin(spells.thread, threads))
        runs = runs[np.lexsort((spells.begins[runs], spells.thread[runs]))]
        thread, cpu, weight = spells.thread[runs], spells.cpu[runs], spells.ends[runs] - spells.begins[runs]
    elif rank.has("samples"):
        table = rank.table("samples", READS["samples"])
        thread, cpu = (integers(table.column(c), -1) for c in ("thread", "cpu"))
        mine = np.isin(thread, threads) & (cpu >= 0)
        thread, cpu, weight = thread[mine], cpu[mine], np.ones(mine.sum(), np.int64)
    else:
        return None
    total = float(weight.sum())
    if not total:
        return None
    moves = int(((thread[1:] == thread[:-1]) & (cpu[1:] != cpu[:-1])).sum())
    shares = np.bincount(np.maximum(cpu, 0), weight) / total
    homes = {str(n): float(shares[n]) for n in np.flatnonzero(shares >= _SETTLED).tolist()}
    return replace(_nodes(rank, shares), moves_per_s=moves / (total / 1e9) if rank.has("sched") else None, homes=homes)


def _nodes(rank: Rank, shares: Floats) -> CpuPlaces:
    """What is stated of the sockets and NUMA nodes that threads with these shares of their time by CPU were on."""

    def share_of(cpus: Int64) -> float:
        return float(shares[cpus[cpus < len(shares)]].sum())

    sockets: dict[str, float] = {}
    socket_cpus: dict[str, str] = {}
    if rank.has("cpus"):
        table = rank.table("cpus", ("cpu", "socket"))
        cpu, socket = (integers(table.column(c), -1) for c in ("cpu", "socket"))
        for number in np.unique(socket).tolist() if socket.min() < socket.max() else ():
            its = cpu[socket == number]
            sockets[str(number)], socket_cpus[str(number)] = share_of(its), number_ranges(its.tolist())
    stated = rank.shared("near_cpus")
    near = integers(stated.column("cpu"), -1) if stated is not None else np.zeros(0, np.int64)
    nodes = set(rank.table("devices", ("numa_node",)).column("numa_node").to_pylist()) if rank.has("devices") else set()
    return CpuPlaces(
        sockets=sockets,
        socket_cpus=socket_cpus,
        near=number_ranges(near.tolist()) if len(near) else "",
        away_share=1 - share_of(near) if len(near) else None,
        numa_node=nodes.pop() if len(nodes) == 1 else None,
    )


def host_state(rank: Rank, threads: Int64, spans: Merged) -> HostState | None:
    """What CPUs did in `spans` for threads that launch kernels; None if the report has no such events or samples."""
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
    running: Flags

    def of(self, rows: Flags) -> tuple[Int64, Int64, Int64]:
        return self.cpu[rows], self.begins[rows], self.ends[rows]


def _spells(rank: Rank) -> _Spells:
    """The spells between scheduling events of each thread, the first and the last as long as the recording."""
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
    """The shares and the mean that `HostState` begins with; None without events of launching threads then."""
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
    mine: Flags = np.isin(thread, threads) & (containing(spans, time) >= 0)
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
    numbers, own, peers = own_and_peers(states, ranks)
    if not numbers:
        return Comparison(COLLECT, {})
    keys = {"on_cpu_share": "on_cpu_share", "taken_share": "cpu_taken_share", "running": "running_threads"}
    mine, others = typical(own, list(keys)), typical(peers, list(keys))
    if (1.0 if mine["on_cpu_share"] is None else mine["on_cpu_share"]) >= _BUSY:
        del keys["taken_share"]  # there is hardly a rest
    evidence = beside_peers(keys, mine, others)
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
        parts.append(
            f"The launching thread of {whose} was on a CPU for {100 * share:.0f} % of that time{against}{meaning}."
        )
    if taken is not None and taken >= _TAKEN:
        parts.append(
            f"Other threads of the job had the CPU that it left for {100 * taken:.0f} % of the rest: give it its own"
            " core."
        )
    if most.symbol:
        parts.append(f"{100 * most.symbol_share:.0f} % of its CPU samples there are in `{most.symbol}`.")
    return " ".join(parts)


def compared_places(
    states: Mapping[int, CpuPlaces | None], ranks: Sequence[int], hosts: Mapping[int, str]
) -> Comparison:
    """Whether launching threads of `ranks` wander between CPUs more than others, or share theirs with another rank."""
    by_rank = {r: s for r, s in states.items() if s is not None}
    own, *groups = own_and_peers(states, ranks)
    moves, usual = (typical(group, ["moves_per_s"])["moves_per_s"] for group in groups)
    evidence: dict[str, float] = {}
    parts = []
    if moves is not None and usual is not None and moves >= max(_OFTEN, _MORE_OFTEN * usual):
        evidence |= {"cpu_moves_per_s": moves, "peers_cpu_moves_per_s": usual}
        whose = f"thread of rank {own[0]}" if len(own) == 1 else f"threads of ranks {number_ranges(own)}"
        parts.append(
            f"The launching {whose} came to another CPU {moves:,.1f} times per second on CPUs, those of the others "
            f"{usual:,.1f} times: bind each rank to cores of the NUMA node of its GPU{_stated(by_rank, own)}."
        )
    common = {
        (r, o): sum(min(share, by_rank[o].homes.get(cpu, 0.0)) for cpu, share in by_rank[r].homes.items())
        for r in own
        for o in by_rank
        if o != r and hosts.get(o) == hosts.get(r)
    }
    most = max(common, key=lambda pair: common[pair], default=None)
    if most is not None and common[most] >= _SHARED:
        evidence["shared_cpu_share"] = common[most]
        shared = number_ranges([int(c) for c in by_rank[most[0]].homes if c in by_rank[most[1]].homes])
        cpus = f"CPU {shared}" if shared.isdigit() else f"CPUs {shared}"
        parts.append(
            f"Ranks {number_ranges(sorted(most))} both launch from {cpus}: bind each to its own cores of the NUMA node "
            f"of its GPU{_stated(by_rank, sorted(most))}."
        )
    share, words = max((_on_another_node(rank, by_rank, hosts) for rank in own), default=(0.0, ""))
    if share:
        evidence["other_node_share"] = share
        parts.append(words)
    return Comparison(" ".join(parts), evidence, bool(parts))


def _stated(by_rank: Mapping[int, CpuPlaces], ranks: Sequence[int]) -> str:
    """Which CPUs are of the NUMA nodes of these ranks' GPUs, as NCCL states them, in brackets; or that nothing does."""
    near = {rank: by_rank[rank].near for rank in ranks if by_rank[rank].near}
    if not near:
        return " (the reports do not state which)"
    return f" ({'; '.join(f'rank {rank}: CPUs {cpus}' for rank, cpus in sorted(near.items()))})"


def _on_another_node(rank: int, by_rank: Mapping[int, CpuPlaces], hosts: Mapping[int, str]) -> tuple[float, str]:
    """A rank's share of time on another NUMA node than its GPU, or than others' threads, and in words; 0 for none."""
    place = by_rank[rank]
    if place.away_share is not None:
        if place.away_share < _SETTLED:
            return 0.0, ""
        where = f", most on CPU {number_ranges([int(cpu) for cpu in place.homes])}" if place.homes else ""
        words = (
            f"The launching thread of rank {rank} was away from the NUMA node of its GPU for"
            f" {100 * place.away_share:.0f} % of its time{where}: bind it to CPUs {place.near}, which NCCL's log states"
            " as near that GPU."
        )
        return place.away_share, words
    others = [o for o in by_rank if o != rank and hosts.get(o) == hosts.get(rank)]
    alike = [o for o in others if place.numa_node is not None and by_rank[o].numa_node == place.numa_node]
    peers = alike or (others if place.numa_node is None else [])
    theirs = {by_rank[o].socket for o in peers}
    (usual,) = theirs if len(theirs) == 1 else (None,)
    if usual is not None and len(peers) > 1 and place.socket not in (None, usual):
        whose = f"whose GPUs are of the same NUMA node ({place.numa_node})" if alike else "of the same host"
        share = 1 - place.sockets.get(usual, 0.0)
        unknown = "" if alike else " Which socket its GPU is attached to is not stated."
        words = (
            f"The launching thread of rank {rank} spent {100 * share:.0f} % of its time away from socket {usual} (CPUs"
            f" {place.socket_cpus.get(usual)}), from which ranks {number_ranges(peers)} {whose} launch.{unknown}"
        )
        return share, words
    second, *rest = (1 - max(p.sockets.values(), default=1.0) for p in (place, *(by_rank[o] for o in others)))
    if second < max(_SETTLED, _MORE_OFTEN * (median(np.array(rest)) or 0.0)):
        return 0.0, ""
    shares = sorted(((share, socket) for socket, share in place.sockets.items() if share >= _TAKEN), reverse=True)
    where = ", ".join(
        f"{100 * share:.0f} % on socket {socket} (CPUs {place.socket_cpus.get(socket)})" for share, socket in shares
    )
    launching = f"The launching thread of rank {rank} ran on several sockets"
    return second, f"{launching}, {where} of its time: bind it to CPUs of one."
