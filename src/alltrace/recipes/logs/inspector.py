"""NCCL Inspector's records of all ranks: operations without a record, transfer times, who comes last.

Ranks are matched by communicator, function and number. The ranks of a synchronizing collective end together, as none
can end before the last has arrived, so the one that took the shortest time arrived last, and the extra time of another
is its wait. This needs no clock and no profiler. It holds if the times are those of the kernel on the GPU, to a
microsecond, which is what the files state.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from alltrace.align.nccl_names import SYNCHRONISING
from alltrace.recipes.analysis.expected_times import expected_ns
from alltrace.recipes.base import Answer, Chart
from alltrace.recipes.questions.collectives import ZERO_SKEW_SHARE, bus_share, total_bytes
from alltrace.trace import columns as col
from alltrace.trace.errors import path_text
from alltrace.trace.nccl_words import GPU_TIMING
from alltrace.trace.number_text import counted

VIEWS = ("missing", "collectives", "stragglers", "operations")
_GROUP = col.text("communicator", "The communicator's id")
_NAME = col.text("description", "Its name in the program")
_OP = col.text("op", "The operation; `messages` for sends and receives")
COLUMNS: dict[str, col.Columns] = {
    "missing": (
        _GROUP,
        _NAME,
        _OP,
        col.text(
            "kind",
            "`missing`: other ranks have a record of these, and these ranks have later records; `behind`: these ranks "
            "have no later records; `unrecorded`: no rank has a record; `no file`: ranks without a file; `mismatch`: "
            "ranks have other sizes",
        ),
        col.whole("operations", "How many operations"),
        col.text("sequences", "Their sequence numbers for the operation on the communicator"),
        col.numbers("ranks", "Ranks of the communicator that have no record of them, or a record with another size"),
        col.whole("dropped", "Records that these ranks say their buffers lost; null if the files do not state it"),
        col.text("why", "The likely reason"),
    ),
    "collectives": (
        _GROUP,
        _NAME,
        col.text("op", "The operation"),
        col.size("bytes", "Size of the message, as NCCL counts it"),
        col.whole("group_size", "Ranks of the communicator"),
        col.whole("instances", "Operations with a record of at least one rank"),
        col.whole("complete", "Of these, those with GPU times of all ranks; the following columns use these"),
        col.real("skew_median_us", "From the first arrival to the last: median", "us", 1),
        col.real("skew_max_us", "The same: largest", "us", 1),
        col.percent("zero_skew_percent", "Share of operations with a longest wait of at most a tenth of the transfer"),
        col.real("transfer_median_us", "From the last arrival to the end: median", "us", 1),
        col.real("busbw_gb_per_s", "Bus bandwidth of that transfer, without waits", "GB/s", 3),
        col.real(
            "stated_busbw_gb_per_s",
            "Bus bandwidth as Inspector states it, waits included: median over ranks",
            "GB/s",
            3,
        ),
        col.real(
            "expected_busbw_gb_per_s",
            "nccl-tests' bus bandwidth for this operation, size and number of ranks",
            "GB/s",
            3,
        ),
        col.percent("expected_percent", "busbw_gb_per_s as a share of expected_busbw_gb_per_s"),
        col.text("algorithm", "The most frequent algorithm and protocol; null if the files do not state it"),
        col.real("wait_us", "Time that ranks waited for the last, summed over ranks and operations", "us", 1),
    ),
    "stragglers": (
        _GROUP,
        _NAME,
        col.rank("rank", "The rank in the communicator"),
        col.text("host", "Its host"),
        col.whole("pid", "Its process id"),
        col.whole("operations", "Complete synchronizing operations"),
        col.whole("last", "Of these, those at which it arrived last and another rank waited"),
        col.percent("last_percent", "last as a share of operations"),
        col.real("caused_wait_us", "Time that others waited for it, summed", "us", 1),
        col.real("waited_us", "Time that it waited for others", "us", 1),
    ),
    "operations": (
        _GROUP,
        _NAME,
        col.rank("rank", "The rank in the communicator"),
        col.text("host", "Its host"),
        col.whole("pid", "Its process id"),
        col.text("op", "The operation"),
        col.whole("sequence", "For a collective, its number for the operation; for a message, its number for the rank"),
        col.whole("peer", "The peer of a message"),
        col.size("bytes", "Size of the message"),
        col.real("duration_us", "Its duration", "us", 1),
        col.text("timing_source", "Source of duration_us: kernel_gpu, kernel_cpu or collective_cpu"),
        col.real("busbw_gb_per_s", "Bus bandwidth as stated in the file", "GB/s", 3),
        col.text("algorithm", "Algorithm and protocol"),
        col.ns("start_ns", "Start by the host's clock, since 1970; only in verbose files"),
        col.ns("end_ns", "End by the host's clock"),
    ),
}
CHARTS = {
    "collectives": Chart("scatter", "bytes", ("busbw_gb_per_s",), "op", detail="communicator", log_x=True),
    "stragglers": Chart("bars", "rank", ("caused_wait_us",), detail="communicator"),
}

_WHY = {
    "missing": "other ranks ended them, so they ran; the records were dropped, or not timed by the GPU",
    "behind": (
        "other ranks ended them, so these ranks took part; their last records were not written before their files end"
    ),
    "unrecorded": "smaller than what is recorded (NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES), or dropped on all ranks",
    "no file": "ranks without a file, or with none of 8 KiB and more",
    "mismatch": "ranks gave other sizes, or the files are of several jobs",
}


class _Group(NamedTuple):
    """A communicator: its name, its ranks, the file of each, and by operation and number the operation of each rank."""

    name: str
    size: int
    files: dict[int, Any]
    ops: dict[str, dict[int, dict[int, Any]]]
    messages: dict[int, list[Any]]


def answer(files: Sequence[Any], view: str, tests: Any = None) -> Answer:
    """The answer of a view (`VIEWS`) of all processes' files; `tests`: what nccl-tests measured, or None."""
    groups, notes = _grouped(files)
    notes = [*_file_notes(files), *notes]
    if view == "missing":
        rows = [row for name, group in sorted(groups.items()) for row in _missing(name, group)]
        if not rows:
            notes.append("every operation of which a rank has a record has one of all ranks of its communicator")
        notes.append(
            "operations that have not ended are in no file: where a job hangs, the last of each rank says how far it"
            " came"
        )
    elif view == "collectives":
        rows = [row for name, group in sorted(groups.items()) for row in _collectives(name, group, tests)]
        rows.sort(key=lambda r: -(r["wait_us"] or 0))
    elif view == "stragglers":
        rows = [row for name, group in sorted(groups.items()) for row in _stragglers(name, group)]
        rows.sort(key=lambda r: -r["caused_wait_us"])
    else:
        rows = [row for name, group in sorted(groups.items()) for row in _operations(name, group)]
    columns = COLUMNS[view]
    return Answer.of([_plain(r) for r in rows], columns, tuple(notes), chart=CHARTS.get(view))


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """JSON can write half of a character, which is not text."""
    return {k: v.encode("utf-8", "replace").decode() if isinstance(v, str) else v for k, v in row.items()}


def _file_notes(files: Sequence[Any]) -> list[str]:
    notes = []
    versions = sorted({f.version or "unknown" for f in files})
    total = sum(len(f.operations) for f in files)
    notes.append(
        f"{counted(len(files), 'file')} of NCCL Inspector {', '.join(versions)}: {counted(total, 'operation')}"
    )
    for what, number in (
        ("lines that are not records, as of a file that was cut", [f for f in files if f.unread]),
        ("records of other processes than the first of their file, left out", [f for f in files if f.mixed]),
    ):
        if number:
            count = sum(f.unread if "lines" in what else f.mixed for f in number)
            notes.append(
                f"{path_text(number[0].path)}{f' and {len(number) - 1} more' if len(number) > 1 else ''}: {count:,}"
                f" {what}"
            )
    lost = [(f, sum(map(sum, f.dropped.values()))) for f in files if any(map(any, f.dropped.values()))]
    if lost:
        notes.append(
            f"the buffers of {counted(len(lost), 'process', 'processes')} lost {sum(n for _, n in lost):,} records;"
            " write more often (NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS) or give them more room"
            " (NCCL_INSPECTOR_DUMP_COLL_RING_SIZE)"
        )
    if files and not any(f.tells_drops for f in files):
        notes.append(
            "this version of the format does not say what buffers lost; what is missing shows in the numbers alone"
        )
    other = sum(o.timing not in ("", GPU_TIMING) for f in files for o in f.operations)
    if other:
        notes.append(
            f"{other:,} operations were not timed by the GPU; they count in no time that ranks are compared by"
        )
    notes += [f"{path_text(f.path)}: {f.damage}" for f in files if f.damage]
    return notes


def _grouped(files: Sequence[Any]) -> tuple[dict[str, _Group], list[str]]:
    """The communicators. One with a rank in two processes is split: it is of two jobs, or was started again."""
    groups: dict[str, _Group] = {}
    again: set[str] = set()
    for file in sorted(files, key=lambda f: min((o.written_ns or 0 for o in f.operations), default=0)):
        named: dict[str, str] = {}
        for ident, seen in file.communicators.items():
            name, number = ident, 1
            while name in groups and seen.rank in groups[name].files:
                number += 1
                name = f"{ident}#{number}"
            if number > 1:
                again.add(ident)
            named[ident] = name
            group = groups.setdefault(
                name, _Group(seen.name, seen.size, {}, defaultdict(lambda: defaultdict(dict)), defaultdict(list))
            )
            group.files[seen.rank] = file
        for op in file.operations:
            group = groups[named[op.communicator]]
            if op.peer is None:
                group.ops[op.op][op.sequence][op.rank] = op
            else:
                group.messages[op.rank].append(op)
    notes = []
    if again:
        notes.append(
            f"two processes have the same rank of {counted(len(again), 'communicator')}, so the files are of two jobs, "
            "or a rank was started again; the later ones are marked #2"
        )
    sets = _connected(files)
    if len(sets) > 1:
        notes.append(
            f"the processes are {len(sets)} sets that share no communicator: of as many jobs, or of groups of one job; "
            "nothing is compared between them"
        )
    return groups, notes


def _connected(files: Sequence[Any]) -> list[set[int]]:
    """The files that share communicators, directly or by others."""
    sets: list[tuple[set[int], set[str]]] = []
    for number, file in enumerate(files):
        mine, idents = {number}, set(file.communicators)
        apart = []
        for others, theirs in sets:
            if idents & theirs:
                mine, idents = mine | others, idents | theirs
            else:
                apart.append((others, theirs))
        sets = [*apart, (mine, idents)]
    return [members for members, _ in sets]


def _missing(name: str, group: _Group) -> Iterable[dict[str, Any]]:
    base = {"communicator": name, "description": group.name}

    def row(op: str, kind: str, sequences: Sequence[int], ranks: Sequence[int]) -> dict[str, Any]:
        of = 1 if op == "messages" else 0
        counted_files = [group.files[r] for r in ranks if r in group.files and group.files[r].tells_drops]
        lost = sum(f.dropped.get(name.partition("#")[0], (0, 0))[of] for f in counted_files)
        dropped = lost if counted_files else None
        why = (
            f"{_WHY[kind]}; their buffers lost {lost:,}"
            if lost and kind in ("missing", "behind", "unrecorded")
            else _WHY[kind]
        )
        counts = {"operations": len(sequences) or None, "sequences": ranges_text(sequences) or None}
        return {**base, "op": op, "kind": kind, **counts, "ranks": list(ranks), "dropped": dropped, "why": why}

    ranks = sorted(group.files)
    for op, by_number in sorted(group.ops.items()):
        last = {r: max((n for n, its in by_number.items() if r in its), default=-1) for r in ranks}
        lacking: dict[tuple[str, tuple[int, ...]], list[int]] = defaultdict(list)
        for number in (
            range(min(by_number), max(by_number) + 1)
            if max(by_number) - min(by_number) < _MOST_SPAN
            else sorted(by_number)
        ):
            its = by_number.get(number)
            if its is None:
                lacking["unrecorded", tuple(ranks)].append(number)
                continue
            without = [r for r in ranks if r not in its]
            for kind, whose in (
                ("missing", tuple(r for r in without if last[r] > number)),
                ("behind", tuple(r for r in without if last[r] < number)),
            ):
                if whose:
                    lacking[kind, whose].append(number)
            sizes = [o.bytes for o in its.values()]
            usual = max(set(sizes), key=lambda s: (sizes.count(s), s))
            odd = tuple(r for r, o in sorted(its.items()) if o.bytes != usual)
            if odd and op in _EVEN:
                lacking["mismatch", odd].append(number)
        for (kind, whose), numbers in lacking.items():
            yield row(op, kind, numbers, whose)
    for rank, messages in sorted(group.messages.items()):
        seen = {m.sequence for m in messages}
        gone = (
            [n for n in range(min(seen), max(seen) + 1) if n not in seen] if max(seen) - min(seen) < _MOST_SPAN else []
        )
        if gone:
            yield row("messages", "missing", gone, [rank])
    absent = sorted(set(range(group.size)) - set(ranks)) if group.size <= _MOST_SPAN else []
    if absent:
        yield row("", "no file", [], absent)


_MOST_SPAN = 1 << 20
_EVEN = frozenset({"AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce"})
"""Operations with the same size on all ranks."""


def ranges_text(numbers: Sequence[int]) -> str:
    """Ascending numbers in short: `3-7,9`."""
    parts: list[str] = []
    begin = previous = None
    for number in [*numbers, None]:
        if previous is not None and (number is None or number != previous + 1):
            parts.append(f"{begin}" if begin == previous else f"{begin}-{previous}")
            begin = None
        if begin is None:
            begin = number
        previous = number
    return ",".join(parts)


def _complete(group: _Group, op: str) -> list[list[Any]]:
    """The instances with a time of the GPU of all ranks, in order of their numbers."""
    return [
        [its[r] for r in sorted(its)]
        for _, its in sorted(group.ops[op].items())
        if len(its) == group.size > 1 and all(o.timing in ("", GPU_TIMING) for o in its.values())
    ]


def _collectives(name: str, group: _Group, tests: Any) -> Iterable[dict[str, Any]]:
    for op in sorted(group.ops):
        counts: dict[int, int] = defaultdict(int)
        for its in group.ops[op].values():
            counts[max(o.bytes for o in its.values())] += 1
        whole: dict[int, list[list[Any]]] = defaultdict(list)
        for instance in _complete(group, op) if op in SYNCHRONISING else ():
            whole[max(o.bytes for o in instance)].append(instance)
        for size, count in sorted(counts.items()):
            its_own = whole.get(size, [])
            row: dict[str, Any] = {
                "communicator": name,
                "description": group.name,
                "op": op,
                "bytes": size,
                "group_size": group.size,
                "instances": count,
                "complete": len(its_own),
            }
            yield row | (_times(its_own, op, size, group.size, tests) if its_own else {"wait_us": None})


def _times(instances: Sequence[Sequence[Any]], op: str, size: int, ranks: int, tests: Any) -> dict[str, Any]:
    times = [[o.duration_us for o in i] for i in instances]
    transfers, skews = [min(t) for t in times], [max(t) - min(t) for t in times]
    transfer = median(transfers)
    seen = _busbw(op, size, ranks, transfer)
    expected = _expected(tests, op, size, ranks)
    stated = [o.busbw for i in instances for o in i if o.busbw is not None]
    used = [" ".join(w for w in (o.algorithm, o.protocol) if w) for i in instances for o in i]
    together = sum(s <= ZERO_SKEW_SHARE * t for s, t in zip(skews, transfers, strict=True))
    return {
        "skew_median_us": median(skews),
        "skew_max_us": max(skews),
        "zero_skew_percent": 100 * together / len(skews),
        "transfer_median_us": transfer,
        "busbw_gb_per_s": seen,
        "stated_busbw_gb_per_s": median(stated) if stated else None,
        "expected_busbw_gb_per_s": expected,
        "expected_percent": 100 * seen / expected if seen is not None and expected else None,
        "algorithm": max(set(used), key=lambda u: (used.count(u), u)) or None,
        "wait_us": sum(v - min(t) for t in times for v in t),
    }


def _busbw(op: str, size: int, ranks: int, time_us: float) -> float | None:
    """Bus bandwidth in 1e9 bytes a second, as nccl-tests defines it (PERFORMANCE.md)."""
    if not time_us:
        return None
    total = total_bytes(op, size, ranks)
    return None if total is None else total * bus_share(op, ranks) / time_us / 1000


def _expected(tests: Any, op: str, size: int, ranks: int) -> float | None:
    """The bus bandwidth that nccl-tests measured for an operation."""
    total = total_bytes(op, size, ranks)
    taken = None if tests is None or total is None else expected_ns(tests, op, ranks, total)
    return None if taken is None or total is None else total / taken * bus_share(op, ranks)


def _stragglers(name: str, group: _Group) -> Iterable[dict[str, Any]]:
    caused: dict[int, float] = defaultdict(float)
    waited: dict[int, float] = defaultdict(float)
    last: dict[int, int] = defaultdict(int)
    operations = 0
    for op in group.ops:
        if op not in SYNCHRONISING:
            continue
        for instance in _complete(group, op):
            operations += 1
            least = min(instance, key=lambda o: (o.duration_us, o.rank))
            waits = [o.duration_us - least.duration_us for o in instance]
            for each, wait in zip(instance, waits, strict=True):
                waited[each.rank] += wait
            if sum(waits):
                last[least.rank] += 1
                caused[least.rank] += sum(waits)
    for rank, file in sorted(group.files.items()) if operations else ():
        yield {
            "communicator": name,
            "description": group.name,
            "rank": rank,
            "host": file.host,
            "pid": file.pid,
            "operations": operations,
            "last": last[rank],
            "last_percent": 100 * last[rank] / operations,
            "caused_wait_us": caused[rank],
            "waited_us": waited[rank],
        }


def _operations(name: str, group: _Group) -> Iterable[dict[str, Any]]:
    each = [o for by_number in group.ops.values() for its in by_number.values() for o in its.values()]
    each += [o for its in group.messages.values() for o in its]
    for o in sorted(each, key=lambda o: (o.op, o.sequence, o.rank)):
        file = group.files[o.rank]
        yield {
            "communicator": name,
            "description": group.name,
            "rank": o.rank,
            "host": file.host,
            "pid": file.pid,
            "op": o.op,
            "sequence": o.sequence,
            "peer": o.peer,
            "bytes": o.bytes,
            "duration_us": o.duration_us,
            "timing_source": o.timing or None,
            "busbw_gb_per_s": o.busbw,
            "algorithm": " ".join(w for w in (o.algorithm, o.protocol) if w) or None,
            "start_ns": o.start_ns,
            "end_ns": o.end_ns,
        }
