"""What NCCL's proxy threads and the network did, from the files of its example profiler plugin: what is slow below the collective.

A step of a proxy operation has phases, each of which waits for somebody else. A send waits for its own GPU to fill the buffer
(`SendGpuWait`), for a free buffer of the receiver (`SendPeerWait`), and for the network (`SendWait`). A receive waits for the data
(`RecvWait`), for it to be visible to the GPU (`RecvFlushWait`), and for the GPU to take it (`RecvGpuWait`).

Most of these waits are passed on around a ring, so the longest is not the cause. Two are not passed on: how long the network takes
for a link, and how long data that has arrived waits until the GPU takes it. The first shows a slow link, the second a GPU that came
late or computes slowly; but a slow link out of a rank holds its buffers, so that its GPU takes what arrives late too, and the link
comes first. Links and ranks are compared within operations of the same function, size and type. No clock of another process is
needed.
"""

from __future__ import annotations

from collections import defaultdict
from math import ceil
from statistics import median, median_low
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from alltrace.recipes.base import Answer, AnswerColumn, Chart, answer_schema
from alltrace.trace.errors import path_text
from alltrace.trace.intervals import merge
from alltrace.trace.number_text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

VIEWS = ("ranks", "links", "network", "operations")
SLOW = 1.5
"""An operation is slow on a link or a GPU if it takes this many times the usual."""

SLOW_OPERATIONS = 0.2
"""A link or a GPU is slow if this share of its operations is, at least two of several (a single one can be an accident),"""

SLOW_SHARE = 0.05
"""and if all together take longer than usual by this share of the time of the rank's operations."""

_GROUP = AnswerColumn("communicator", None, "The communicator's hash")
_RANK = AnswerColumn("rank", None, "The rank in the communicator")
_WAITS = (
    AnswerColumn("send_gpu_wait_us", "us", "Sends that wait for the rank's GPU to fill a buffer, summed over steps that overlap"),
    AnswerColumn("send_peer_wait_us", "us", "Sends that wait for a free buffer of the receiver, likewise"),
    AnswerColumn("send_wait_us", "us", "Sends on the network, likewise"),
    AnswerColumn("recv_wait_us", "us", "Receives that wait for data, likewise"),
    AnswerColumn("recv_flush_us", "us", "Receives that wait until the GPU can see the data, likewise"),
    AnswerColumn("recv_gpu_wait_us", "us", "Data that has arrived and that the rank's GPU has not taken, likewise"),
)
COLUMNS: dict[str, tuple[AnswerColumn, ...]] = {
    "ranks": (
        _GROUP,
        _RANK,
        AnswerColumn("pid", None, "Its process id"),
        AnswerColumn("slow", None, "`link`: a link out of the rank is slow; `gpu`: its GPU takes data late; null: neither"),
        AnswerColumn("excess_us", "us", "Time above the usual, summed over operations; null if nothing is slow"),
        AnswerColumn("operations", None, "Operations in its file"),
        AnswerColumn("steps", None, "Steps through the network in its file"),
        *_WAITS,
        AnswerColumn("peers_waited_us", "us", "Sends of others that wait for a free buffer of this rank, likewise"),
        AnswerColumn("ready_us", "us", "Collectives by copy engines: the GPU's wait for the other ranks before the copies"),
        AnswerColumn("copies_us", "us", "Collectives by copy engines: copies; null if the plugin did not time with GPU events"),
    ),
    "links": (
        _GROUP,
        AnswerColumn("rank", None, "The rank that sends"),
        AnswerColumn("peer", None, "The rank that receives"),
        AnswerColumn("slow", None, "Whether the link is slow: `yes` or `no`"),
        AnswerColumn("slow_operations", None, "Operations that took 1.5 times the usual time or more on it"),
        AnswerColumn("operations", None, "Operations with steps on it"),
        AnswerColumn("steps", None, "Sends in the file"),
        AnswerColumn("bytes", "bytes", "Bytes that these sends moved"),
        AnswerColumn("network_us", "us", "Time in an operation with a send on the network: median"),
        AnswerColumn("usual_us", "us", "Median over the communicator's links, in operations of the same function and size"),
        AnswerColumn("times_usual", None, "Total time on the network divided by the usual time for these operations"),
        AnswerColumn("excess_us", "us", "Total time on the network above the usual"),
        AnswerColumn("network_gb_per_s", "GB/s", "Bytes divided by the time with a send on the network"),
        AnswerColumn("peer_wait_us", "us", "Sends that wait for a free buffer of the receiver, summed over steps"),
    ),
    "network": (
        _GROUP,
        _RANK,
        AnswerColumn("network", None, "`ib` or `socket`"),
        AnswerColumn("device", None, "Number of the network device; for sockets the file descriptor"),
        AnswerColumn("transfers", None, "Transfers that the network plugin reports"),
        AnswerColumn("bytes", "bytes", "Their size, summed"),
        AnswerColumn("median_us", "us", "The median of their durations"),
        AnswerColumn("max_us", "us", "The longest"),
        AnswerColumn("network_gb_per_s", "GB/s", "Bytes divided by the time with a transfer under way"),
    ),
    "operations": (
        _GROUP,
        _RANK,
        AnswerColumn("op", None, "The operation"),
        AnswerColumn("sequence", None, "For a collective, its number for the operation on the communicator"),
        AnswerColumn("peer", None, "The peer of a message"),
        AnswerColumn("count", None, "Elements"),
        AnswerColumn("datatype", None, "Their type"),
        AnswerColumn("algorithm", None, "Algorithm and protocol; `CE` by copy engines"),
        AnswerColumn("channels", None, "Channels"),
        AnswerColumn("start_us", "us", "Time of the enqueue, since the plugin's start in the process"),
        AnswerColumn("proxy_us", "us", "From the proxy thread's first work for it to its last"),
        AnswerColumn("kernel_us", "us", "From its first start on the GPU to its last end, by the GPU's clock"),
        AnswerColumn("steps", None, "Steps through the network in the file"),
        *_WAITS,
        AnswerColumn("ready_us", "us", "By copy engines: the GPU's wait for the other ranks before the copies"),
        AnswerColumn("copies_us", "us", "By copy engines: in copies"),
        AnswerColumn("copied_bytes", "bytes", "By copy engines: bytes that the copies moved"),
    ),
}
CHARTS = {
    "ranks": Chart("bars", "rank", ("send_wait_us", "recv_wait_us", "recv_gpu_wait_us"), detail="communicator"),
    "links": Chart("bars", "rank", ("times_usual",), detail="communicator"),
}
_TEXTS = ("communicator", "slow", "network", "op", "datatype", "algorithm")
_PHASES = {
    "send_gpu_wait_us": "SendGpuWait",
    "send_peer_wait_us": "SendPeerWait",
    "send_wait_us": "SendWait",
    "recv_wait_us": "RecvWait",
    "recv_flush_us": "RecvFlushWait",
    "recv_gpu_wait_us": "RecvGpuWait",
}


class _Excess(NamedTuple):
    """What something took in all operations, and what is usual for these, ns; the operations, and the slow ones of them."""

    took_ns: int
    usual_ns: int
    operations: int
    slow_ones: int

    @property
    def extra_ns(self) -> int:
        return self.took_ns - self.usual_ns

    def slow(self, of_ns: int) -> bool:
        """Whether it is slow, in operations of some length together."""
        least = max(min(2, self.operations), ceil(SLOW_OPERATIONS * self.operations))
        return self.slow_ones >= least and self.extra_ns >= max(SLOW_SHARE * of_ns, 1)


class _Times(NamedTuple):
    """By communicator: the links by sender and receiver, and the ranks' GPUs, each with its times per operation and its excess."""

    links: dict[tuple[str, int, int], list[tuple[tuple[Any, ...], int]]]
    usual_of_links: dict[tuple[str, tuple[Any, ...]], int]
    link_excess: dict[tuple[str, int, int], _Excess]
    gpu_excess: dict[tuple[str, int], _Excess]
    length_ns: dict[tuple[str, int], int]


def answer(files: Sequence[Any], view: str) -> Answer:
    """The answer of a view.

    Args:
        files: The files of all ranks and communicators (`alltrace.readers.nccl_profiler.records.ProfilerFile`).
        view: One of `VIEWS`.
    """
    groups, notes = _grouped(files)
    times = _times(groups)
    judged = _Judged(groups, times, _verdicts(groups, times))
    notes = [*_file_notes(files), *notes, *_verdict_notes(judged.verdicts, times)]
    make = {"ranks": _ranks, "links": _links, "network": _network, "operations": _operations}[view]
    rows = list(make(judged))
    columns = COLUMNS[view]
    decimals = {c.name: 3 if c.unit == "GB/s" else 1 for c in columns if c.unit is not None and c.unit != "bytes"}
    if view == "links":
        decimals["times_usual"] = 2
    schema = answer_schema(columns, _TEXTS, decimals)
    return Answer(pa.Table.from_pylist([_plain(r) for r in rows], schema), columns, tuple(notes), chart=CHARTS.get(view))


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """JSON can write half of a character, which is not text."""
    return {k: v.encode("utf-8", "replace").decode() if isinstance(v, str) else v for k, v in row.items()}


_Groups = dict[str, dict[int, list[Any]]]
"""Files by communicator and rank."""

_Verdicts = dict[tuple[str, int], tuple[str, int, list[int]]]
"""By communicator and rank: `link` or `gpu`, what it takes longer, ns, and the peers of slow links."""


class _Judged(NamedTuple):
    groups: _Groups
    times: _Times
    verdicts: _Verdicts


def _grouped(files: Sequence[Any]) -> tuple[_Groups, list[str]]:
    """The files by communicator and rank, and what is to be said of ranks without one."""
    groups: _Groups = defaultdict(lambda: defaultdict(list))
    unknown = 0
    for file in files:
        if file.rank is None:
            unknown += 1
        else:
            groups[file.communicator][file.rank].append(file)
    notes = []
    if unknown:
        notes.append(f"{counted(unknown, 'file')} with no operation, under a name that the plugin does not give, left out")
    for name, ranks in sorted(groups.items()):
        peers = {p.peer for its in ranks.values() for f in its for o in f.operations for p in o.proxies}
        absent = sorted(peers - set(ranks))
        if absent:
            shown = ", ".join(map(str, absent[:8])) + (" and others" if len(absent) > 8 else "")
            notes.append(f"communicator {name} has no file of rank {shown}; what these ranks sent is not seen")
    return groups, notes


def _file_notes(files: Sequence[Any]) -> list[str]:
    operations = sum(len(f.operations) for f in files)
    notes = [f"{counted(len(files), 'file')} of NCCL's example profiler plugin: {counted(operations, 'operation')}"]
    for text, number, touched in (
        ("lines that are not events", sum(f.unread for f in files), [f for f in files if f.unread]),
        (
            "steps left from earlier operations in the same slot of the plugin's memory, not counted",
            sum(f.stale for f in files),
            [f for f in files if f.stale],
        ),
        (
            "steps without the line that begins their proxy operation, not counted",
            sum(f.orphans for f in files),
            [f for f in files if f.orphans],
        ),
        (
            "proxy operations for other processes of the host, which belong to no operation of the file and are left out",
            sum(len(f.detached) for f in files),
            [f for f in files if f.detached],
        ),
    ):
        if number:
            notes.append(f"{_named(touched)}: {number:,} {text}")
    cut = [f for f in files if not f.whole]
    if cut:
        more = f" and {len(cut) - 1} more" if len(cut) > 1 else ""
        notes.append(f"{path_text(cut[0].path)}{more}: the file has no end, as of a process that was killed while it wrote")
    if min((o.sequence for f in files for o in f.operations if o.sequence is not None), default=0):
        notes.append(
            "the plugin keeps the last operations only, so the files begin at a later one; NCCL_PROFILE_COLL_POOL_SIZE and "
            "its like give it more room"
        )
    if not any(p.spans for f in files for o in f.operations for p in o.proxies):
        notes.append(
            "no file has steps through the network: either nothing went over it, or the plugin did not record them; "
            "NCCL_PROFILE_EVENT_MASK needs the bits 8 and 16, and 128 for what the network plugin reports"
        )
    notes += [f"{path_text(f.path)}: {f.damage}" for f in files if f.damage]
    return notes


def _named(files: Sequence[Any]) -> str:
    return path_text(files[0].path) + (f" and {len(files) - 1} more" if len(files) > 1 else "")


def _covered(spans: Iterable[tuple[int, int]]) -> int:
    found = np.array(sorted(spans), np.int64).reshape(-1, 2)
    return merge(found[:, 0].copy(), found[:, 1].copy()).total_ns if len(found) else 0


def _class(operation: Any) -> tuple[Any, ...]:
    return operation.op, operation.count, operation.datatype


def _times(groups: _Groups) -> _Times:
    links: dict[tuple[str, int, int], list[tuple[tuple[Any, ...], int]]] = defaultdict(list)
    gpus: dict[tuple[str, int], list[tuple[tuple[Any, ...], int]]] = defaultdict(list)
    length: dict[tuple[str, int], int] = defaultdict(int)
    for name, ranks in groups.items():
        for rank, files in ranks.items():
            for operation in (o for f in files for o in f.operations):
                length[name, rank] += _proxy_ns(operation) or 0
                sends: dict[int, list[tuple[int, int]]] = defaultdict(list)
                for proxy in operation.proxies:
                    sends[proxy.peer] += proxy.spans.get("SendWait", ())
                for peer, spans in sends.items():
                    if spans:
                        links[name, rank, peer].append((_class(operation), _covered(spans)))
                waits = [e - s for p in operation.proxies for s, e in p.spans.get("RecvGpuWait", ())]
                if waits:
                    gpus[name, rank].append((_class(operation), max(waits)))
    usual_links, usual_gpus = _usual(links), _usual(gpus)
    return _Times(
        links,
        usual_links,
        {k: _excess(v, k[0], usual_links) for k, v in links.items()},
        {k: _excess(v, k[0], usual_gpus) for k, v in gpus.items()},
        length,
    )


def _usual(times: Mapping[Any, Sequence[tuple[tuple[Any, ...], int]]]) -> dict[tuple[str, tuple[Any, ...]], int]:
    """By communicator and class of operation the time of the middle one of those that are compared, each by its median."""
    of: dict[tuple[str, tuple[Any, ...]], list[float]] = defaultdict(list)
    for key, its in times.items():
        by_class: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        for kind, took in its:
            by_class[kind].append(took)
        for kind, values in by_class.items():
            of[key[0], kind].append(median(values))
    return {key: round(median_low(values)) for key, values in of.items()}


def _excess(its: Sequence[tuple[tuple[Any, ...], int]], name: str, usual: Mapping[tuple[str, tuple[Any, ...]], int]) -> _Excess:
    pairs = [(took, usual[name, kind]) for kind, took in its]
    slow = sum(took >= SLOW * of and took > of for took, of in pairs)
    return _Excess(sum(took for took, _ in pairs), sum(of for _, of in pairs), len(pairs), slow)


def _proxy_ns(operation: Any) -> int | None:
    ended = [p for p in operation.proxies if p.end is not None]
    return max(p.end for p in ended) - min(p.start for p in ended) if ended else None


def _verdicts(groups: _Groups, times: _Times) -> _Verdicts:
    found: _Verdicts = {}
    for name, ranks in groups.items():
        for rank in ranks:
            of_ns = times.length_ns.get((name, rank), 0)
            slow = {k[2]: e.extra_ns for k, e in times.link_excess.items() if k[:2] == (name, rank) and e.slow(of_ns)}
            gpu = times.gpu_excess.get((name, rank))
            if slow:
                found[name, rank] = "link", sum(slow.values()), sorted(slow)
            elif gpu is not None and gpu.slow(of_ns):
                found[name, rank] = "gpu", gpu.extra_ns, []
    return found


def _verdict_notes(verdicts: _Verdicts, times: _Times) -> list[str]:
    notes = []
    for (name, rank), (what, extra, peers) in sorted(verdicts.items(), key=lambda v: -v[1][1])[:4]:
        if what == "link":
            worst = max(peers, key=lambda p: times.link_excess[name, rank, p].extra_ns)
            excess = times.link_excess[name, rank, worst]
            notes.append(
                f"communicator {name}: the link from rank {rank} to rank {worst} is slow in {excess.slow_ones} of "
                f"{counted(excess.operations, 'operation')}: {excess.took_ns / max(excess.usual_ns, 1):.1f} times the usual time "
                f"on the network, {extra / 1e6:,.1f} ms more in all"
            )
        else:
            excess = times.gpu_excess[name, rank]
            notes.append(
                f"communicator {name}: the GPU of rank {rank} takes data late that has arrived, in {excess.slow_ones} of "
                f"{counted(excess.operations, 'operation')}: {excess.took_ns / max(excess.usual_ns, 1):.1f} times the usual wait, "
                f"{extra / 1e6:,.1f} ms more in all; it came late or computes slowly, and the network is not the cause"
            )
    if len(verdicts) > 4:
        notes.append(f"{len(verdicts) - 4} more ranks are slow; see the column `slow`")
    return notes


def _us(ns: float | None) -> float | None:
    return None if ns is None else ns / 1000


def _rate(size: float, busy_ns: int) -> float | None:
    """1e9 bytes a second."""
    return size / busy_ns if busy_ns else None


def _waits(operations: Iterable[Any]) -> dict[str, Any]:
    sums: dict[str, int | None] = dict.fromkeys(_PHASES, None)
    steps = 0
    for proxy in (p for o in operations for p in o.proxies):
        for column, phase in _PHASES.items():
            spans = proxy.spans.get(phase)
            if spans:
                sums[column] = (sums[column] or 0) + sum(e - s for s, e in spans)
        steps += max(map(len, proxy.spans.values()), default=0)
    return {"steps": steps, **{column: _us(value) for column, value in sums.items()}}


def _sum(values: Iterable[int | None]) -> int | None:
    known = [v for v in values if v is not None]
    return sum(known) if known else None


def _ranks(judged: _Judged) -> Iterable[dict[str, Any]]:
    rows = []
    for name, ranks in judged.groups.items():
        waited: dict[int, int] = defaultdict(int)
        for proxy in (p for files in ranks.values() for f in files for o in f.operations for p in o.proxies):
            waited[proxy.peer] += sum(e - s for s, e in proxy.spans.get("SendPeerWait", ()))
        for rank, files in ranks.items():
            operations = [o for f in files for o in f.operations]
            what, extra, _ = judged.verdicts.get((name, rank), (None, None, None))
            rows.append(
                {
                    "communicator": name,
                    "rank": rank,
                    "pid": files[0].pid,
                    "slow": what,
                    "excess_us": _us(extra),
                    "operations": len(operations),
                    **_waits(operations),
                    "peers_waited_us": _us(waited[rank]) if rank in waited else None,
                    "ready_us": _us(_sum(o.ready_ns for o in operations)),
                    "copies_us": _us(_sum(o.copies_ns for o in operations)),
                }
            )
    return sorted(rows, key=lambda r: (-(r["excess_us"] or 0), r["communicator"], r["rank"]))


def _links(judged: _Judged) -> Iterable[dict[str, Any]]:
    rows, (groups, times, verdicts) = [], judged
    for (name, rank, peer), its in times.links.items():
        excess = times.link_excess[name, rank, peer]
        proxies = [p for f in groups[name][rank] for o in f.operations for p in o.proxies if p.send and p.peer == peer]
        seen = [len(p.spans.get("SendWait", ())) for p in proxies]
        moved = sum(p.bytes * n // max(p.steps, n) for p, n in zip(proxies, seen, strict=True) if n)
        peer_waits = [e - s for p in proxies for s, e in p.spans.get("SendPeerWait", ())]
        what, _, peers = verdicts.get((name, rank), (None, 0, []))
        rows.append(
            {
                "communicator": name,
                "rank": rank,
                "peer": peer,
                "slow": "yes" if what == "link" and peer in peers else "no",
                "slow_operations": excess.slow_ones,
                "operations": len(its),
                "steps": sum(seen),
                "bytes": moved,
                "network_us": _us(median(took for _, took in its)),
                "usual_us": _us(median(times.usual_of_links[name, kind] for kind, _ in its)),
                "times_usual": excess.took_ns / excess.usual_ns if excess.usual_ns else None,
                "excess_us": _us(excess.extra_ns),
                "network_gb_per_s": _rate(moved, excess.took_ns),
                "peer_wait_us": _us(sum(peer_waits)) if peer_waits else None,
            }
        )
    return sorted(rows, key=lambda r: (-r["excess_us"], r["communicator"], r["rank"], r["peer"]))


def _network(judged: _Judged) -> Iterable[dict[str, Any]]:
    for name, ranks in sorted(judged.groups.items()):
        for rank, files in sorted(ranks.items()):
            of: dict[tuple[str, int], list[tuple[int, tuple[int, int]]]] = defaultdict(list)
            for proxy in (p for f in files for o in f.operations for p in o.proxies):
                for kind, device, size, span in proxy.network:
                    of[kind, device].append((size, span))
            for (kind, device), its in sorted(of.items()):
                took = [e - s for _, (s, e) in its]
                moved = sum(size for size, _ in its)
                yield {
                    "communicator": name,
                    "rank": rank,
                    "network": kind,
                    "device": device,
                    "transfers": len(its),
                    "bytes": moved,
                    "median_us": _us(median(took)),
                    "max_us": _us(max(took)),
                    "network_gb_per_s": _rate(moved, _covered(span for _, span in its)),
                }


def _operations(judged: _Judged) -> Iterable[dict[str, Any]]:
    groups = judged.groups
    rows = [(name, rank, o) for name, ranks in groups.items() for rank, its in ranks.items() for f in its for o in f.operations]
    for name, rank, o in sorted(rows, key=lambda r: (r[0], r[1], r[2].start)):
        yield {
            "communicator": name,
            "rank": rank,
            "op": o.op,
            "sequence": o.sequence,
            "peer": o.peer,
            "count": o.count,
            "datatype": o.datatype or None,
            "algorithm": " ".join(w for w in (o.algorithm, o.protocol) if w) or None,
            "channels": o.channels or None,
            "start_us": _us(o.start),
            "proxy_us": _us(_proxy_ns(o)),
            "kernel_us": _us(o.kernel_ns),
            **_waits([o]),
            "ready_us": _us(o.ready_ns),
            "copies_us": _us(o.copies_ns),
            "copied_bytes": o.copied_bytes,
        }
