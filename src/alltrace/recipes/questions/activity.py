"""What each rank's devices do over time: exact times of compute, communication, copies and idle in bins of the run.

The classes are those of `breakdown`, and their sums over the bins are those of `breakdown --span run`, to the
nanosecond. Kernels that `breakdown` lists as unclassified count as communication here, because ranks wait for one
another in them. Bins are equal on all ranks: as long as the smallest power of two, in ns, of which `--bins` reach from
the run's first device work to its last; the first begins with that work and the last ends with it. The times of a
rank's devices are added. Idle time is null in bins with possibly lost records.

A rank waits from its arrival at a matched operation to the last rank's, as in `stragglers`: waits shorter than what the
clocks may be off are not counted, and a rank without a matched operation has none, which is null.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from alltrace.recipes.analysis.device_intervals import TABLES, class_notes, device_activity
from alltrace.recipes.analysis.unrecorded import unrecorded_of
from alltrace.recipes.base import Answer, Chart, Option, Options, Part, Question, RunFacts
from alltrace.run.rank import Rank
from alltrace.trace import columns as col
from alltrace.trace.intervals import bin_coverage_ns, by_track, exclusive, merge, union

_CLASSES = ("compute_ns", "exposed_communication_ns", "exposed_copy_ns", "communication_ns")
_TIMES = ("compute_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns", "communication_ns")
DRAWN = tuple("compute_percent busy_percent communication_percent exposed_percent idle_percent waiting_percent".split())
_SHARES = ("busy_percent", "compute_percent", "communication_percent", "exposed_percent", "idle_percent")
_INT64 = (-(1 << 63), (1 << 63) - 1)

COLUMNS: col.Columns = (
    col.RANK,
    col.ns("start_ns", "start of the bin on the run's aligned clock"),
    col.ns("end_ns", "its end"),
    col.rank("devices", "devices of the rank; their times are summed"),
    col.ns("compute_ns", "a compute kernel runs"),
    col.ns("exposed_communication_ns", "a communication kernel runs and no compute kernel"),
    col.ns("exposed_copy_ns", "a copy or fill runs and no kernel"),
    col.ns("idle_ns", "nothing runs"),
    col.ns("communication_ns", "a communication kernel runs, under compute or not"),
    col.ns("waiting_ns", "the rank waits for another at an operation; of the rank, not of each device"),
    col.percent("busy_percent", "share of the devices' time in which anything runs"),
    col.percent("compute_percent", "share of compute_ns"),
    col.percent("communication_percent", "share of communication_ns"),
    col.percent("exposed_percent", "share of exposed_communication_ns and exposed_copy_ns together"),
    col.percent("idle_percent", "share of idle_ns"),
    col.percent("waiting_percent", "waiting_ns as a share of the bin's length"),
)


def _map(rank: Rank, options: Options) -> Any:
    """One row per device: its times in bins of the smallest power of two of which its own span has at most `bins`."""
    rows = []
    for work in device_activity(rank):
        shift = _shift(work.start_ns, work.end_ns, options["bins"])
        edges = _edges(work.start_ns, work.end_ns, shift)
        communication = union((work.communication, work.meeting))
        sets = (*exclusive((work.compute, communication, work.copies)), communication)
        bins = {c: bin_coverage_ns(s, edges) for c, s in zip(_CLASSES, sets, strict=True)}
        rows.append({**work.facts(), "shift": shift, **bins})
    return pa.Table.from_pylist(rows)


def _merge(parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
    """A row per rank and bin: bins of powers of two are parts of larger ones, so times add up exactly."""
    by_rank = [(p.rank, row) for p in parts for row in p.table.to_pylist()]
    notes = class_notes([row for _, row in by_rank])
    first = min((row["start_ns"] for _, row in by_rank), default=0)
    last = max((row["end_ns"] for _, row in by_rank), default=0)
    if last <= first:
        if by_rank:
            notes.append("no device work takes any time, so the answer is empty")
        return Answer.of((), COLUMNS, tuple(notes))
    shift = _shift(first, last, options["bins"])
    edges = _edges(first, last, shift)
    edges[0], edges[-1] = first, last
    ranks: dict[int, int] = {}
    times: dict[int, Any] = {}
    for rank, row in by_rank:
        ranks[rank] = ranks.get(rank, 0) + 1
        own = times.setdefault(rank, np.zeros((len(_CLASSES), len(edges) - 1), np.int64))
        bins = (row["start_ns"] >> row["shift"]) + np.arange(len(row[_CLASSES[0]]), dtype=np.int64)
        # work without length at the very end begins where the last bin ends
        at = np.minimum((bins >> (shift - row["shift"])) - (first >> shift), len(edges) - 2)
        for into, name in zip(own, _CLASSES, strict=True):
            np.add.at(into, at, np.array(row[name], np.int64))
    waits = _waiting(run, edges)
    hidden = {rank: bin_coverage_ns(spans, edges) > 0 for rank, spans in unrecorded_of(run).items()}
    return Answer(_table(ranks, times, waits, hidden, edges, COLUMNS), COLUMNS, tuple(notes))


def _shift(start: int, end: int, bins: int) -> int:
    """The exponent of the smallest power of two such that at most `bins` of its multiples cover `[start, end)`."""
    last = max(end - 1, start)
    shift = max((last - start) // bins, 1).bit_length() - 1
    while (last >> shift) - (start >> shift) + 1 > bins:
        # from 62 on a bin holds all that int64 does, but an interval on both sides of 0 takes two
        if shift >= 63:
            break
        shift += 1
    return shift


def _edges(start: int, end: int, shift: int) -> Any:
    """The edges of the bins that hold `[start, end)`: int64 array."""
    first, last = start >> shift, max(end - 1, start) >> shift
    low, high = _INT64
    return np.array([min(max(n << shift, low), high) for n in range(first, last + 2)], np.int64)


def _waiting(run: RunFacts, edges: Any) -> dict[int, Any]:
    """The ns of each bin in which a rank waits, int64 array, for each rank with a matched operation."""
    if run.alignment is None or not run.alignment.members.num_rows:
        return {}
    members = run.alignment.members.select(["rank", "wait_start_ns", "wait_ns", "fact"])
    rank, start, wait = (members.column(c).to_numpy().astype(np.int64) for c in ("rank", "wait_start_ns", "wait_ns"))
    wait = np.where(members.column("fact").fill_null(False).to_numpy(), wait, 0)
    return {of[0]: bin_coverage_ns(merge(start[rows], start[rows] + wait[rows]), edges) for of, rows in by_track(rank)}


def _table(
    ranks: Mapping[int, int],
    times: Mapping[int, Any],
    waits: Mapping[int, Any],
    hidden: Mapping[int, Any],
    edges: Any,
    columns: Sequence[col.Column],
) -> Any:
    bins = len(edges) - 1
    devices = np.repeat(np.array(list(ranks.values()), np.int64), bins)
    totals = {name: np.concatenate([times[r][i] for r in ranks]) for i, name in enumerate(_CLASSES)}
    whole = np.tile(np.diff(edges), len(ranks)) * devices
    busy = totals["compute_ns"] + totals["exposed_communication_ns"] + totals["exposed_copy_ns"]
    totals["idle_ns"] = whole - busy
    none = np.zeros(bins, np.int64)
    waiting = np.concatenate([waits.get(r, none) for r in ranks])
    unknown = np.repeat([r not in waits for r in ranks], bins)
    lengths = np.tile(np.diff(edges), len(ranks))
    shares = (busy, totals["compute_ns"], totals["communication_ns"], busy - totals["compute_ns"], totals["idle_ns"])
    data = {
        "rank": np.repeat(np.array(list(ranks), np.int64), bins),
        "start_ns": np.tile(edges[:-1], len(ranks)),
        "end_ns": np.tile(edges[1:], len(ranks)),
        "devices": devices,
        **{name: totals[name] for name in _TIMES},
        **{name: 100 * part / whole for name, part in zip(_SHARES, shares, strict=True)},
        "waiting_ns": pa.array(waiting, mask=unknown),
        "waiting_percent": pa.array(100 * waiting / lengths, mask=unknown),
    }
    judged = np.zeros(bins, np.bool_)
    unjudged = np.concatenate([hidden.get(r, judged) for r in ranks])
    data |= {name: pa.array(data[name], mask=unjudged) for name in ("idle_ns", "idle_percent")}
    schema = col.schema_of(columns)
    return pa.table([pa.array(data[f.name]).cast(f.type) for f in schema], schema=schema)


QUESTION = Question(
    "activity",
    __doc__,
    COLUMNS,
    _map,
    _merge,
    tables=TABLES,
    options=(Option("bins", int, 240, "maximum number of bins into which to divide the run", least=1, most=100_000),),
    chart=Chart("heatmap", "start_ns", DRAWN, "rank", title="Device activity over time"),
    clock="aligned",
    important=("rank", "start_ns", "busy_percent", "compute_percent", "exposed_percent", "idle_percent"),
)
