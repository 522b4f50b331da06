"""The communicators: members, their hosts, their traffic, and their probable role."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pyarrow as pa

from alltrace.recipes.base import Answer
from alltrace.recipes.logs.nccl import NcclOptions, size_rows, whole_numbers
from alltrace.run.nccl_logs import Member, NcclLogs
from alltrace.trace import columns as col

COLUMNS = (
    col.text("communicator", "The communicator: its commId, or a generated name if the log has none"),
    col.text("identified", "How its ends were found: `commId`, `only one of this size`, or `alone` (one end, others unknown)"),
    col.whole("group_size", "Its ranks"),
    col.whole("seen", "Its ranks that are in the logs"),
    col.texts("ranks", "The members' ranks in the job, in the order of the communicator's ranks; processes if unknown"),
    col.texts("hosts", "The hosts seen"),
    col.whole("nodes", "Nodes that it spans: as logged in INIT, otherwise the hosts seen if all members are seen"),
    col.text("role", "A guess: `world`, `TP`, `DP`, `PP`, `EP` or null"),
    col.text("role_reason", "The reason for the guess"),
    col.whole("calls", "Calls on it over all ranks"),
    col.size("total_bytes", "Bytes of these calls, exact"),
    col.text("ops", "Calls by operation, the most frequent first"),
    col.text("made_by", "The function that created it"),
)


def answer(logs: NcclLogs, options: NcclOptions) -> Answer:
    """One row per communicator, the largest first."""
    groups: dict[str, list[int]] = defaultdict(list)
    for n, member in enumerate(logs.members):
        groups[member.communicator].append(n)
    ops: dict[str, Counter[str]] = defaultdict(Counter)
    total: Counter[str] = Counter()
    for row in size_rows(logs, options):
        name = logs.members[row.member].communicator
        ops[name][row.op] += row.calls
        total[name] += (row.bytes or 0) * row.calls
    processes = len({m.process for m in logs.members})
    rows: list[dict[str, Any]] = []
    for name, numbers in groups.items():
        its = sorted((logs.members[n] for n in numbers), key=lambda m: (m.rank is None, m.rank or 0, m.process))
        role, why = _role(its, ops[name], processes)
        nranks = max((m.nranks or 0 for m in its), default=0) or None
        hosts = sorted({m.host for m in its})
        nodes = next((m.nodes for m in its if m.nodes is not None), len(hosts) if nranks == len(its) else None)
        rows.append(
            {
                "communicator": name,
                "identified": its[0].identified,
                "group_size": nranks,
                "seen": len(its),
                "ranks": [m.process if (r := m.global_rank) is None else str(r) for m in its],
                "hosts": hosts,
                "nodes": nodes,
                "role": role,
                "role_reason": why,
                "calls": ops[name].total(),
                "total_bytes": total[name],
                "ops": ", ".join(f"{op} {n}" for op, n in ops[name].most_common()),
                "made_by": its[0].function,
            }
        )
    rows.sort(key=lambda r: (-(r["group_size"] or 0), r["communicator"]))
    numbers_of = ("group_size", "seen", "nodes", "calls")
    columns = {}
    for c in COLUMNS:
        values = [r[c.name] for r in rows]
        if c.name == "total_bytes":
            columns[c.name] = whole_numbers(values)
        else:
            kind = pa.int64() if c.name in numbers_of else pa.list_(pa.string()) if c.name in ("ranks", "hosts") else pa.string()
            columns[c.name] = pa.array(values, kind)
    return Answer(pa.table(columns), COLUMNS, logs.notes)


def _role(its: list[Member], ops: Counter[str], processes: int) -> tuple[str | None, str | None]:
    """A guess at the role of a communicator, from its members and its traffic, and the reason."""
    nranks = its[0].nranks
    if nranks == 1:
        return None, None
    p2p = ops["Send"] + ops["Recv"]
    collective = ops.total() - p2p
    if ops["AlltoAll"] + ops["AllToAll"] + ops["AllToAllv"] > collective / 2 and collective:
        return "EP", "most of its collectives are AlltoAll"
    if p2p and not collective:
        dense = _dense(its, ops)
        return ("EP", "it carries Send and Recv only, all to all") if dense else ("PP", "it carries Send and Recv only")
    ranks = sorted(m.global_rank for m in its if m.global_rank is not None)
    if nranks is not None and processes > 1 and nranks >= processes:
        return "world", "it has all processes of the log"
    if len(ranks) < 2:
        return None, None
    strides = {ranks[n + 1] - ranks[n] for n in range(len(ranks) - 1)}
    if strides == {1} and len({m.host for m in its}) == 1:
        return "TP", "its ranks follow each other on one host"
    if len(strides) == 1 and strides != {1} and collective:
        return "DP", f"its ranks are {strides.pop()} apart"
    return None, None


def _dense(its: list[Member], ops: Counter[str]) -> bool:
    """Whether there are about as many sends as receives and far more than pipeline neighbours would make."""
    n = its[0].nranks or 0
    return n > 2 and ops["Send"] == ops["Recv"] and ops["Send"] % (n * n) == 0
