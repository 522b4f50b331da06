"""How long collectives take once all ranks have arrived, how late ranks arrive, and the bandwidth free of waiting.

The ranks of an instance arrive one by one; nothing can move before the last is there. So the transfer lasts from the
last arrival to the last end, on clocks aligned over all hosts. Bandwidths are nccl-tests' (its PERFORMANCE.md), in
decimal GB/s: the algorithm bandwidth is S/t with S the total buffer (n times a rank's message for all-gather and
reduce-scatter over n ranks; what a rank sends to all others together for all-to-all); the bus bandwidth is that times
2(n-1)/n for all-reduce, (n-1)/n for these three, 1 for others. A receiver waits for a late sender, and a sender for a
late receiver, unless MPI holds its message until then.

With `--nccl-tests` the bandwidth is compared with the result of nccl-tests on the same hosts. With `--source inspector`
the operations come from NCCL Inspector's files of the whole job: the rank that took the shortest time arrived last.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.align.nccl_names import RECV, SEND
from alltrace.recipes.analysis.expected_times import expected_ns
from alltrace.recipes.analysis.inspector_records import SOURCE, Recorded, notes_on, of_trace, recorded, recorded_of
from alltrace.recipes.analysis.unsized_operations import notes_on_sizes
from alltrace.recipes.base import Answer, Chart, Option, Options, Part, Question, Reads, RunFacts
from alltrace.run.members import Members
from alltrace.run.rank import Rank
from alltrace.trace import columns as col
from alltrace.trace.arrays import integers, is_one_of
from alltrace.trace.communication_kernels import EXCHANGE
from alltrace.trace.errors import UsageError
from alltrace.trace.number_text import number_ranges

_WHO = (
    col.text("communicator", "its name, from the profiler or inferred"),
    col.text("op", "operation"),
    col.size("bytes", "message size of one rank"),
    col.whole("group_size", "ranks of the communicator"),
)
_SUMMARY = (
    *_WHO,
    col.text("ranks", "ranks of the communicator that have reports"),
    col.devices("devices of the communicator, as in `diagnose`; null if each rank works with one device"),
    col.whole("instances", "operations found on more than one rank; of a run with one rank, its operations"),
    col.whole("incomplete", "of these, operations that lack a rank; they count only in the waits"),
    col.ns("duration_median_ns", "from the start to the end on the rank that took the longest: median"),
    col.ns("skew_median_ns", "from the first arrival to the last: median"),
    col.ns("skew_p95_ns", "the same: 95th percentile"),
    col.ns("skew_max_ns", "the same: largest"),
    col.ns("transfer_median_ns", "from the last arrival to the last end: median"),
    col.ns("transfer_p95_ns", "the same: 95th percentile"),
    col.real("algbw_gb_per_s", "algorithm bandwidth: total buffer divided by the median transfer", "GB/s", 3),
    col.real(
        "busbw_gb_per_s",
        "bus bandwidth: algorithm bandwidth times the operation's share of the buffer that crosses each link",
        "GB/s",
        3,
    ),
    col.percent("peak_percent", "bus bandwidth as a share of the link's, if --link-gb-per-s is given"),
    col.ns("wait_ns", "time that ranks waited for the last to arrive, summed over ranks and instances"),
    col.ns("wait_certain_ns", "of these, waits of at least what the clocks may be off"),
    col.ns("late_sender_ns", "of the waits, those of receivers for their senders; null for what is no message"),
    col.ns(
        "late_receiver_ns", "the same of senders for their receivers, which wait unless the library holds the message"
    ),
)
_AGAINST_TESTS = (
    col.percent("zero_skew_percent", "share of the instances whose skew is at most a tenth of the transfer"),
    col.real(
        "expected_busbw_gb_per_s",
        "bus bandwidth that nccl-tests measured for the operation on as many ranks",
        "GB/s",
        3,
    ),
    col.percent("expected_percent", "bus bandwidth of that"),
)
_INSTANCES = (
    col.text("communicator", _WHO[0].doc),
    col.whole("ordinal", "number of the instance within its communicator"),
    *_WHO[1:],
    col.whole("members", "ranks on which it was found"),
    col.ns("first_arrival_ns", "when the first rank's part started"),
    col.ns("last_arrival_ns", "when the last rank's part started"),
    col.whole("last_rank", "the rank that arrived last"),
    col.device("last_device", "last_rank"),
    col.ns("end_ns", "when the last rank's part ended"),
    col.ns("skew_ns", "from the first arrival to the last"),
    col.ns("transfer_ns", "from the last arrival to the last end; null if a rank is missing"),
    col.real("busbw_gb_per_s", "bus bandwidth of that transfer", "GB/s", 3),
    col.ns("wait_ns", "time that ranks waited for the last, summed"),
    col.flag("certain", "whether the skew is at least what the clocks may be off"),
    col.real("confidence", "confidence of the match: 1 for an identity from the profiler"),
)
_SHARED_OUT = ("allgather", "reducescatter")
_DECIMALS = {
    "algbw_gb_per_s": 3, "busbw_gb_per_s": 3, "expected_busbw_gb_per_s": 3, "peak_percent": 1, "zero_skew_percent": 1,
    "expected_percent": 1, "confidence": 2,
}  # fmt: skip
_OF_SEVERAL = ("last_arrival_ns", "last_rank", "skew_ns", "wait_ns", "certain")
"""Columns of an instance that are not known of one rank alone."""
ZERO_SKEW_SHARE = 0.1  # ranks come together if the skew is at most this share of the transfer

READS: Reads = {"collectives": ("start", "end")}

CHART = Chart(
    "scatter",
    "bytes",
    ("busbw_gb_per_s",),
    "op",
    detail="communicator",
    title="Bus bandwidth by message size",
    log_x=True,
)

NEEDED = (tuple(READS),)


def _columns(options: Options) -> col.Columns:
    if options.get("instances"):
        return _INSTANCES
    return _SUMMARY if options.get("nccl_tests") is None else (*_SUMMARY, *_AGAINST_TESTS)


def _reads(options: Options) -> dict[str, tuple[str, ...]]:
    """Nothing of the trace if NCCL Inspector is the source."""
    return {} if options.get("source") == "inspector" else dict(READS)


def _prepared(options: Options, _run: RunFacts) -> Mapping[str, Any]:
    if options["source"] == "inspector" and options["instances"]:
        raise UsageError(
            "--instances is of the trace; ask `alltrace logs inspector --view operations` for each operation"
        )
    if options["instances"] and options["nccl_tests"] is not None:
        raise UsageError("--nccl-tests is compared with the rows without --instances; leave one of them out")
    return options


def _chart(options: Options) -> Chart | None:
    if not options["instances"]:
        return CHART
    return Chart(
        "scatter",
        "first_arrival_ns",
        ("skew_ns",),
        "op",
        detail="communicator",
        title="Arrival skew of each collective",
    )


def _map(rank: Rank, options: Options) -> Any:
    """What NCCL Inspector recorded if that is the source; else nothing: all it takes is in the alignment."""
    if options["source"] == "inspector":
        return recorded_of(rank)
    return pa.table({"nothing": pa.array([], pa.int64())})


def _merge(parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
    """The rows, the longest wait first; instances in order of time."""
    link = options["link_gb_per_s"]
    if link is not None and not 0 < link < float("inf"):
        raise UsageError(f"--link-gb-per-s is {link}; expected a bandwidth above 0, in decimal GB/s")
    columns, tests = _columns(options), options["nccl_tests"]
    if options["source"] == "inspector":
        records = recorded(parts)
        summary = _summed(records, list(zip(records.names, records.ranks, strict=True)), link, tests)
        return Answer(summary.select([c.name for c in columns]), columns, tuple(notes_on(records, parts, run)))
    instances = _Instances(run.alignment, [p.rank for p in parts])
    table = (
        instances.listed() if options["instances"] else _summed(instances, instances.groups, link, tests, run.members)
    )
    notes = [*instances.notes(), *notes_on_sizes(run, instances.unsized)]
    return Answer(table.select([c.name for c in columns]), columns, tuple(notes))


class _Instances:
    """The instances that have one of some ranks among their members; arrays with one value for each."""

    def __init__(self, alignment: Any, ranks: Sequence[int]) -> None:
        members = alignment.members
        self.groups: dict[int, tuple[str | None, Sequence[int]]] = {
            g.number: (g.name, g.ranks) for g in alignment.groups
        }
        self.alone = alignment.run.ranks[0].rank if len(alignment.run.ranks) == 1 else None
        if self.alone is not None:
            members, names = alignment.unmatched_members(self.alone)
            self.groups = {number: (name, (self.alone,)) for number, name in enumerate(names)}
        instance = members.column("instance").to_numpy()
        own = np.isin(members.column("rank").to_numpy(), ranks)
        wanted = np.isin(instance, instance[own])
        members = members.filter(wanted)
        instance = instance[wanted]
        first = np.flatnonzero(np.concatenate(([True], instance[1:] != instance[:-1]))) if len(instance) else instance
        rows = members.take(first)
        self.communicator, self.ordinal, self.members, self.group_size, self.last_rank, first_ns, last_ns, end_ns = (
            integers(rows.column(n), 0)
            for n in (
                *("communicator", "ordinal", "members", "group_size", "last_rank"),
                *("first_arrival_ns", "last_arrival_ns", "last_end_ns"),
            )
        )
        self.first_ns, self.last_ns, self.end_ns = first_ns, last_ns, end_ns
        self.transfer = rows.column("transfer_ns").to_numpy()
        self.skew = last_ns - first_ns
        self.exchanging = is_one_of(rows.column("evidence").cast("string"), (EXCHANGE,))
        self.op = np.array(rows.column("op").cast("string").fill_null("").to_pylist(), object)
        message = np.isin(self.op, (SEND, RECV)) & (self.members > 1)  # of the sender and the receiver alone
        self.whole = message | ((self.members >= self.group_size) & (self.group_size > 0))
        self.op[message] = SEND

        def each(values: Any, how: Any) -> Any:
            return how.reduceat(values, first) if len(first) else values

        sizes = pc.fill_null(members.column("bytes"), -1).to_numpy()
        self.bytes = each(sizes, np.maximum)
        self.uneven = self.bytes != each(sizes, np.minimum)
        others = is_one_of(rows.column("evidence").cast("string"), ("mpi", EXCHANGE))
        self.unsized = int(((self.bytes < 0) & ~others).sum())  # of NCCL
        wait, fact = members.column("wait_ns").to_numpy(), members.column("fact").to_numpy(zero_copy_only=False)
        self.wait, self.certain_wait = each(wait, np.add), each(np.where(fact, wait, 0), np.add)
        self.late_sender, self.late_receiver = (
            each(np.where(is_one_of(members.column("op"), (op,)), wait, 0), np.add) for op in (RECV, SEND)
        )
        self.duration = each(members.column("end").to_numpy() - members.column("start").to_numpy(), np.maximum)
        self.confidence = each(members.column("confidence").to_numpy(), np.minimum)
        errors = pc.fill_null(members.column("error_ns"), -1).to_numpy()
        self.certain = (each(errors, np.minimum) >= 0) & (self.skew >= each(errors, np.maximum))

    def listed(self) -> Any:
        order = np.lexsort((self.ordinal, self.communicator, self.first_ns))
        share = [bus_share(op, max(n, 1)) for op, n in zip(self.op, self.group_size, strict=True)]
        total = [total_bytes(op, b, n) for op, b, n in zip(self.op, self.bytes, self.group_size, strict=True)]
        rates = [
            None if s is None or t <= 0 or not w else f * s / t
            for s, t, w, f in zip(total, self.transfer.tolist(), self.whole, share, strict=True)
        ]
        table = pa.table(
            {
                "communicator": pa.array([self.groups[c][0] for c in self.communicator.tolist()], pa.string()),
                "ordinal": self.ordinal,
                "op": pa.array(self.op.tolist(), pa.string()),
                "bytes": pa.array(self.bytes, mask=self.bytes < 0),
                "group_size": pa.array(self.group_size, mask=self.group_size == 0),
                "members": self.members,
                "first_arrival_ns": self.first_ns,
                "last_arrival_ns": self.last_ns,
                "last_rank": self.last_rank,
                "last_device": pa.nulls(len(self.last_rank), pa.int32()),
                "end_ns": self.end_ns,
                "skew_ns": self.skew,
                "transfer_ns": pa.array(self.transfer, mask=~self.whole),
                "busbw_gb_per_s": pa.array(rates, pa.float64()),
                "wait_ns": self.wait,
                "certain": self.certain,
                "confidence": self.confidence,
            }
        )
        if self.alone is not None:
            for name in _OF_SEVERAL:
                at = table.column_names.index(name)
                table = table.set_column(at, name, pa.nulls(table.num_rows, table.schema.field(at).type))
        fields = [
            f.with_metadata({"decimals": str(_DECIMALS[f.name])}) if f.name in _DECIMALS else f for f in table.schema
        ]
        return table.cast(pa.schema(fields)).take(pa.array(order))

    def notes(self) -> list[str]:
        notes = []
        lacking, count = int((~self.whole).sum()), len(self.whole)
        if self.alone is not None and lacking:
            notes.append(
                f"the run has a report of rank {self.alone} alone: how long its operations took is known, not who was "
                "late; add the reports of the other ranks"
            )
        elif lacking:
            notes.append(f"{lacking:,} of {count:,} instances lack a rank, so their last arrival is unknown")
        if self.uneven.any():
            notes.append(f"{int(self.uneven.sum()):,} instances have messages of different sizes; the largest is shown")
        if self.exchanging.any():
            notes.append(
                f"{int(self.exchanging.sum()):,} of {count:,} instances are kernels that wait for peers inside (class "
                "exchange): the time from the last arrival to the end is how long they occupy the devices, not time on "
                "the network, and gives no bandwidth"
            )
        doubtful = int((~self.certain & (self.skew > 0)).sum())
        if doubtful:
            notes.append(
                f"in {doubtful:,} of {count:,} instances the skew is below what the clocks may be off, so it may not be"
                " real"
            )
        return notes


def _summed(
    instances: _Instances | Recorded, groups: Any, link: float | None, tests: Any, devices: Members | None = None
) -> Any:
    """One row per communicator, operation and size; `groups` has their names and ranks, `devices` what ranks are."""
    ops, codes = (
        np.unique(instances.op, return_inverse=True) if len(instances.op) else (instances.op, np.empty(0, np.int64))
    )
    keys, place = np.unique(
        np.stack([instances.communicator, codes, instances.bytes], axis=1), axis=0, return_inverse=True
    )
    order = np.argsort(place.reshape(-1), kind="stable")
    cuts = np.searchsorted(place.reshape(-1)[order], np.arange(len(keys) + 1))
    rows = []
    for (communicator, code, size), a, b in zip(keys.tolist(), cuts[:-1], cuts[1:], strict=True):
        row = _row(instances, groups[communicator], str(ops[code]), size, order[a:b], link, tests)
        if devices is not None:
            its = groups[communicator][1]
            row |= {"ranks": number_ranges(devices.ranks(its)), "devices": devices.devices(its)}
        rows.append(row)
    rows.sort(key=lambda r: (-(r["wait_ns"] or 0), r["communicator"] or "", r["op"], r["bytes"] or 0))
    columns = (*_SUMMARY, *_AGAINST_TESTS)
    return col.table_of(rows, columns)


def _row(
    instances: _Instances | Recorded,
    group: tuple[str | None, Sequence[int]],
    op: str,
    size: int,
    here: Any,
    link: float | None,
    tests: Any,
) -> dict[str, Any]:
    ranks = int(instances.group_size[here].max())
    whole = here[instances.whole[here]]
    row: dict[str, Any] = {
        "communicator": group[0],
        "op": op,
        "bytes": size if size >= 0 else None,
        "group_size": ranks or None,
        "ranks": number_ranges(group[1]),
        "instances": len(here),
        "incomplete": len(here) - len(whole),
        "duration_median_ns": round(float(np.median(instances.duration[here]))),
        "wait_ns": None if instances.alone is not None else int(instances.wait[here].sum()),
        "wait_certain_ns": None if instances.alone is not None else int(instances.certain_wait[here].sum()),
    }
    if isinstance(instances, _Instances) and op == SEND and instances.alone is None:
        row |= {f"{late}_ns": int(getattr(instances, late)[whole].sum()) for late in ("late_sender", "late_receiver")}
    if not len(whole):
        return row
    skew, transfer = instances.skew[whole], instances.transfer[whole]
    row |= {
        "skew_median_ns": round(float(np.median(skew))),
        "skew_p95_ns": round(float(np.percentile(skew, 95))),
        "skew_max_ns": int(skew.max()),
        "transfer_median_ns": round(float(np.median(transfer))),
        "transfer_p95_ns": round(float(np.percentile(transfer, 95))),
        "zero_skew_percent": 100 * float((skew <= ZERO_SKEW_SHARE * transfer).mean()),
    }
    total, middle = total_bytes(op, size, ranks), float(np.median(transfer))
    if total is not None and middle > 0:
        row["algbw_gb_per_s"] = total / middle
        row["busbw_gb_per_s"] = total / middle * bus_share(op, ranks)
        row["peak_percent"] = None if link is None else 100 * row["busbw_gb_per_s"] / link
        expected = None if tests is None else expected_ns(tests, op, ranks, total)
        if expected is not None:
            row["expected_busbw_gb_per_s"] = total / expected * bus_share(op, ranks)
            row["expected_percent"] = 100 * expected / middle
    return row


def _plain(op: str) -> str:
    return "".join(c for c in op.lower() if c.isalpha())


def total_bytes(op: str, size: int, ranks: int) -> int | None:
    """The total buffer of an operation, given a rank's message; None if that is unknown."""
    if size <= 0:
        return None
    return size * ranks if any(e in _plain(op) for e in _SHARED_OUT) else size


def bus_share(op: str, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth (nccl-tests, PERFORMANCE.md)."""
    plain = _plain(op)
    if "allreduce" in plain:
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if any(e in plain for e in (*_SHARED_OUT, "alltoall")) else 1.0


QUESTION = Question(
    "collectives",
    __doc__,
    _columns,
    _map,
    _merge,
    tables=READS,
    reading=_reads,
    requires=lambda options: () if options.get("source") == "inspector" else NEEDED,
    options=(
        Option("instances", bool, False, "list each instance instead"),
        Option(
            "link_gb_per_s",
            float,
            None,
            "bus bandwidth of the link, in decimal GB/s, to show bandwidths as a share of it",
        ),
        Option(
            "nccl_tests",
            str,
            None,
            "files of nccl-tests to compare the bandwidth with, with commas between them",
            reads="nccl-tests",
        ),
        SOURCE,
    ),
    chart=_chart,
    clock="aligned",
    prepare=_prepared,
    of_devices=of_trace,
    important=tuple("op bytes busbw_gb_per_s communicator skew_median_ns transfer_median_ns wait_ns instances".split()),
)
