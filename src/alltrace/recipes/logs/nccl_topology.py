"""Rings, trees and transports: which pairs of ranks are joined by what, per channel; and which algorithm was chosen."""

import re
from collections import Counter, defaultdict
from typing import Any

from alltrace.recipes.base import Answer, View
from alltrace.recipes.logs.nccl import NcclOptions, refuse_a_choice
from alltrace.run.nccl_logs import NcclLogs
from alltrace.trace import columns as col

_TOPOLOGY = (
    col.text("communicator", "The communicator; null if the log does not show it"),
    col.whole("from_rank", "The sender, as a rank of the communicator"),
    col.whole("to_rank", "The receiver"),
    col.text("from_host", "The sender's host, if its INIT line is in the logs"),
    col.text("to_host", "The receiver's host"),
    col.text("transport", "P2P, SHM, NET or COLLNET"),
    col.text("via", "The transport with its kind: `P2P/CUMEM/read`, `NET/IB/0/GDRDMA`, `NET/Socket/1`"),
    col.flag("gpu_direct", "For NET: whether the network card reads the GPU's memory"),
    col.whole("channels", "Channels that use it"),
    col.text("suspect", "Why it is slower than expected, or null"),
)


def _topology(logs: NcclLogs, options: NcclOptions) -> Answer:
    """One row per pair and transport, suspects first; rings, trees and facts of the graph are further lists."""
    refuse_a_choice("topology", options)
    hosts: dict[tuple[str, int], str] = {}
    for m in logs.members:
        if m.rank is not None:
            hosts[m.communicator, m.rank] = m.host
    channels: dict[tuple[str | None, int, int, str], set[int]] = defaultdict(set)
    rings: dict[tuple[str | None, int], tuple[str, bool]] = {}
    trees: dict[tuple[str | None, int, int], tuple[int, str]] = {}
    for log, part in enumerate(logs.parts):
        names = _communicator_names(logs, log)
        for process, number, channel, source, target, via, _direction in part.records.edges:
            channels[names(process, number), source, target, _plain(via)].add(channel)
        for (process, number, channel), ring in part.records.rings.items():
            rings[names(process, number), channel] = ring
        for (process, number, channel, me), tree in part.records.trees.items():
            trees[names(process, number), channel, me] = tree
    rdma = {name for (name, _s, _t, via) in channels if via.startswith("NET/") and not _is_socket(via)}
    rows = []
    for (name, source, target, via), its in channels.items():
        ends = (hosts.get((name or "", source)), hosts.get((name or "", target)))
        kind = via.split("/")[0].split(" ")[0]
        rows.append(
            {
                "communicator": name,
                "from_rank": source,
                "to_rank": target,
                "from_host": ends[0],
                "to_host": ends[1],
                "transport": kind,
                "via": via,
                "gpu_direct": ("GDRDMA" in via) if kind in ("NET", "COLLNET") else None,
                "channels": len(its),
                "suspect": _suspect(via, ends, name in rdma),
            }
        )
    rows.sort(key=lambda r: (r["suspect"] is None, r["communicator"] or "", r["from_rank"], r["to_rank"], r["via"]))
    return Answer.of(rows, _TOPOLOGY, _notes(logs, rows), _beside(logs, rings, trees))


def _communicator_names(logs: NcclLogs, log: int) -> Any:
    """The communicator's name by (process, communicator number) of a log: the name of the pointer's first instance."""
    part = logs.parts[log]
    by_pointer: dict[tuple[int, int], str] = {}
    for instance, member in zip(part.instances, logs.member_of[log], strict=True):
        by_pointer.setdefault((instance.process, instance.pointer), logs.members[member].communicator)

    def name(process: int, number: int) -> str | None:
        real = part.records.aliases.get(number, number)
        if real < 0:
            own = {c for (p, _pointer), c in by_pointer.items() if p == process}
            return next(iter(own)) if len(own) == 1 else None
        return by_pointer.get(part.records.communicators[real])

    return name


def _plain(via: str) -> str:
    """The transport without what differs from channel to channel."""
    return re.sub(r"\(([0-9]+)\)", "", via)[:120]


def _is_socket(via: str) -> bool:
    return via.startswith(("NET/Socket", "NET/SOCKET"))


def _suspect(via: str, ends: tuple[str | None, str | None], rdma: bool) -> str | None:
    same = ends[0] is not None and ends[0] == ends[1]
    if _is_socket(via) and same:
        return "ranks of one host talk over sockets"
    if _is_socket(via):
        return "over sockets, while other pairs use RDMA" if rdma else "over sockets: no RDMA network was used"
    if via.startswith("NET/") and same:
        return "ranks of one host talk over the network"
    if via.startswith("SHM") and same:
        return "through host memory: peer access between these GPUs is off or not possible"
    if via.startswith("NET/") and "GDRDMA" not in via:
        return "without GPUDirect: every byte goes through host memory"
    return None


def _notes(logs: NcclLogs, rows: list[dict[str, Any]]) -> tuple[str, ...]:
    notes = list(logs.notes)
    if not rows:
        notes.append("no record describes transports; log with NCCL_DEBUG_SUBSYS=INIT,GRAPH,P2P,NET")
    suspects = Counter(r["suspect"] for r in rows if r["suspect"])
    notes += [f"{n} pairs: {why}" for why, n in suspects.most_common()]
    networks = sorted(
        {text for part in logs.parts for kind, text in part.records.facts if kind == "network" and "Using" in text}
    )
    notes += networks[:10]
    return tuple(notes)


def _beside(logs: NcclLogs, rings: dict[Any, tuple[str, bool]], trees: dict[Any, tuple[int, str]]) -> dict[str, Any]:
    facts = Counter[tuple[str, str]]()
    for part in logs.parts:
        facts.update({k: n for k, n in part.records.facts.items() if k[0] in ("pattern", "channels", "nvls")})
    return {
        "rings": [
            {"communicator": name, "channel": channel, "ranks": ranks, "cut": cut}
            for (name, channel), (ranks, cut) in sorted(rings.items(), key=lambda kv: (kv[0][0] or "", kv[0][1]))
        ],
        "trees": [
            {"communicator": name, "channel": channel, "rank": me, "up": up, "down": down}
            for (name, channel, me), (up, down) in sorted(trees.items(), key=lambda kv: (kv[0][0] or "", kv[0][1:]))
        ],
        "facts": [{"kind": kind, "text": text, "records": n} for (kind, text), n in facts.most_common(100)],
    }


_TUNING = (
    col.text("communicator", "The communicator; null if the log does not show it"),
    col.text("op", "The operation; empty in NCCL 2.20 to 2.22, which do not print it"),
    col.size("bytes", "The size of the call"),
    col.text("algorithm", "TREE, RING, NVLS, ..., or the kernel's name if NCCL prints that"),
    col.text("protocol", "LL, LL128 or SIMPLE; empty if a kernel is named"),
    col.whole("channels", "Channels used, from NCCL 2.24 on"),
    col.whole("choices", "How often it was chosen; only rank 0 of a communicator prints it"),
)


def _tuning(logs: NcclLogs, options: NcclOptions) -> Answer:
    """One row per communicator, operation, size and choice, by size."""
    refuse_a_choice("tuning", options)
    chosen: Counter[tuple[str | None, str, int, str, str, int | None]] = Counter()
    for log, part in enumerate(logs.parts):
        name = _communicator_names(logs, log)
        for (process, number, op, size, algorithm, protocol, channels), times in part.records.tuning.items():
            chosen[name(process, number), op, size, algorithm, protocol, channels] += times
    order = sorted(chosen, key=lambda k: (k[0] or "", k[1], k[2], k[3], k[4], k[5] or 0))
    rows = [dict(zip((c.name for c in _TUNING), (*k, chosen[k]), strict=True)) for k in order]
    notes = list(logs.notes)
    if not order:
        notes.append("no record describes choices; log with NCCL_DEBUG_SUBSYS=INIT,TUNING and NCCL 2.20 or later")
    return Answer.of(rows, _TUNING, tuple(notes))


TOPOLOGY = View(_TOPOLOGY, _topology)
TUNING = View(_TUNING, _tuning)
