"""Calls by their sizes: of each operation, of each size, in classes of sizes, and of each communicator."""

from bisect import bisect_right
from collections import Counter, defaultdict
from typing import Any

from alltrace.recipes.base import Answer, Chart, View
from alltrace.recipes.logs.nccl import NcclOptions, payload_bytes, rank_of, size_rows
from alltrace.run.nccl_logs import Member, NcclLogs
from alltrace.trace import columns as col
from alltrace.trace.errors import UsageError

_OPS = (
    col.text("op", "The operation, as NCCL names it"),
    col.whole("calls", "Calls over all ranks, one for each rank that calls"),
    col.size("min_bytes", "The smallest call: count times the bytes of the datatype"),
    col.real("mean_bytes", "total_bytes divided by calls", "bytes"),
    col.size("max_bytes", "The largest call"),
    col.size("total_bytes", "The sum over all calls, exact"),
    col.whole("unknown_calls", "Calls with a datatype of unknown size; no column of bytes includes them"),
)
_OPS_CHART = Chart("bars", "op", ("total_bytes",), title="Bytes of each operation")


def _ops(logs: NcclLogs, options: NcclOptions) -> Answer:
    """One row per operation, by total bytes."""
    groups: dict[str, list[int]] = {}
    for row in size_rows(logs, options):
        # calls of known size, smallest, largest, total, calls of unknown size
        group = groups.setdefault(row.op, [0, -1, -1, 0, 0])
        if row.bytes is None:
            group[4] += row.calls
            continue
        group[0] += row.calls
        group[1] = row.bytes if group[1] < 0 else min(group[1], row.bytes)
        group[2] = max(group[2], row.bytes)
        group[3] += row.bytes * row.calls
    order = sorted(groups, key=lambda op: (-groups[op][3], op))
    rows: list[dict[str, Any]] = []
    for op in order:
        calls, least, most, total, unknown = groups[op]
        sizes = (
            {"min_bytes": least, "mean_bytes": total / calls, "max_bytes": most, "total_bytes": total} if calls else {}
        )
        rows.append({"op": op, "calls": calls + unknown, **sizes, "unknown_calls": unknown})
    return Answer.of(rows, _OPS, logs.notes, chart=_OPS_CHART)


_SIZES = (
    col.text("op", "The operation"),
    col.whole("count", "Elements in the call's count: one rank's share for AllGather, ReduceScatter, AlltoAll"),
    col.text("datatype", "The type; NCCL up to 2.21 prints AllGather and Broadcast as int8 with the count in bytes"),
    col.size("bytes", "Count times the bytes of the datatype, exact; null for an unknown datatype"),
    col.whole("group_size", "Ranks of the communicator"),
    col.size(
        "payload_bytes", "The size as nccl-tests counts it: bytes, times the ranks if the count is one rank's share"
    ),
    col.whole("calls", "Calls over all ranks"),
    col.size("total_bytes", "Bytes times calls, exact"),
)
_SIZES_CHART = Chart("scatter", "bytes", ("calls",), "op", title="Calls by size", log_x=True, log_y=True)


def _sizes(logs: NcclLogs, options: NcclOptions) -> Answer:
    """One row per operation, count, datatype, bytes and group size; most bytes first."""
    calls: dict[tuple[str, int, str, int | None, int | None], int] = {}
    for row in size_rows(logs, options):
        key = row.op, row.count, row.datatype, row.bytes, logs.members[row.member].nranks
        calls[key] = calls.get(key, 0) + row.calls
    order = sorted(calls, key=lambda k: (-(k[3] or 0) * calls[k], k[0], k[1], k[2], k[4] or 0))
    rows = []
    for op, count, datatype, size, ranks in order:
        number = calls[op, count, datatype, size, ranks]
        sizes = payload_bytes(op, size, ranks), number, None if size is None else size * number
        rows.append(_row(_SIZES, op, count, datatype, size, ranks, *sizes))
    return Answer.of(rows, _SIZES, logs.notes, chart=_SIZES_CHART)


PRESETS: dict[str, tuple[int, ...]] = {
    "four": (64 << 10, 1 << 20, 16 << 20),
    "powers": tuple(1 << n for n in range(10, 41, 2)),
}
"""Lower edges in bytes of the classes after the first. `four` is <64 KiB, 64 KiB-1 MiB, 1-16 MiB and from 16 MiB on."""

_HISTOGRAM = (
    col.whole("rank", "The rank, or null for all ranks together"),
    col.text("process", "Its `host:pid`, or null for all"),
    col.text("op", "The operation"),
    col.size("from_bytes", "Lower bound of the size class, inclusive"),
    col.size("to_bytes", "Upper bound, exclusive; null for the last class"),
    col.whole("calls", "Calls with a size in the class"),
    col.size("total_bytes", "Their bytes, exact"),
)
_HISTOGRAM_CHART = Chart("histogram", "from_bytes", ("calls",), "op", title="Calls by size", where=("process", None))


def parse_edges(text: str | None) -> tuple[int, ...] | None:
    """`64K,1M,16M` as bytes (powers of 1024); None for None. Raises `UsageError`: it is not a rising list of sizes."""
    if text is None:
        return None
    edges = []
    for part in text.split(","):
        number = part.strip().upper().removesuffix("B").removesuffix("I")
        unit = {"K": 10, "M": 20, "G": 30, "T": 40}.get(number[-1:], 0)
        digits = number[:-1] if unit else number
        if not digits.isdigit() or len(digits) > 15 or not digits.isascii():
            raise UsageError(f"--edges is {text!r}; expected rising sizes such as 64K,1M,16M")
        edges.append(int(digits) << unit)
    if edges != sorted(set(edges)) or edges[0] == 0:
        raise UsageError(f"--edges is {text!r}; expected rising sizes above 0 such as 64K,1M,16M")
    return tuple(edges)


def _histogram(logs: NcclLogs, options: NcclOptions) -> Answer:
    """One row per rank, operation and class that has calls; the rows of all ranks together come first."""
    edges = options.edges or PRESETS[options.preset]
    calls: Counter[tuple[int | None, str | None, str, int]] = Counter()
    total: Counter[tuple[int | None, str | None, str, int]] = Counter()
    for row in size_rows(logs, options):
        if row.bytes is None:
            continue
        size_class = bisect_right(edges, row.bytes)
        process = logs.members[row.member].process
        for key in ((None, None, row.op, size_class), (rank_of(logs, row.member), process, row.op, size_class)):
            calls[key] += row.calls
            total[key] += row.bytes * row.calls
    order = sorted(calls, key=lambda k: (k[1] is not None, -1 if k[0] is None else k[0], k[1] or "", k[2], k[3]))
    lower = (0, *edges)
    rows = [_row(_HISTOGRAM, *k[:3], lower[k[3]], dict(enumerate(edges)).get(k[3]), calls[k], total[k]) for k in order]
    return Answer.of(rows, _HISTOGRAM, logs.notes, chart=_HISTOGRAM_CHART)


_COMMUNICATORS = (
    col.text("communicator", "The communicator: its commId, or a generated name if the log has none"),
    col.text(
        "identified", "How its ends were found: `commId`, `only one of this size`, or `alone` (one end, others unknown)"
    ),
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


def _communicators(logs: NcclLogs, options: NcclOptions) -> Answer:
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
    return Answer.of(rows, _COMMUNICATORS, logs.notes)


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


def _row(columns: col.Columns, *values: Any) -> dict[str, Any]:
    return dict(zip((c.name for c in columns), values, strict=True))


OPS = View(_OPS, _ops, _OPS_CHART)
SIZES = View(_SIZES, _sizes, _SIZES_CHART)
HISTOGRAM = View(_HISTOGRAM, _histogram, _HISTOGRAM_CHART)
COMMUNICATORS = View(_COMMUNICATORS, _communicators)
