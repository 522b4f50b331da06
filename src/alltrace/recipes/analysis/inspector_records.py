"""The collectives that NCCL Inspector recorded, joined over ranks: they need no profiler and no clocks.

Operations of one communicator, function and number are one instance. Its ranks end together, as none can end before the
last has arrived, so the one that took the shortest time arrived last, and what another took longer it waited. That
holds where all members were timed by the GPU; the times are whole microseconds.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from alltrace.align.nccl_names import SYNCHRONISING
from alltrace.recipes.base import Column, Option, Part, RunFacts
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Flags, Int64, integers
from alltrace.trace.distinct import distinct_rows, run_starts
from alltrace.trace.nccl_words import GPU_TIMING
from alltrace.trace.number_text import number_ranges

SOURCE = Option(
    "source",
    str,
    "trace",
    "the operations of the trace, or those that NCCL Inspector recorded, of the whole job and without clocks; these "
    "were imported with --inspector-log",
    ("trace", "inspector"),
)
_COLUMNS = ("communicator", "group_size", "op", "sequence", "bytes", "duration_ns", "timing_source")
_CERTAIN_NS = 3_000  # times are whole microseconds: a wait of this length is more than rounding


class Recorded(NamedTuple):
    """Instances of collectives, n of them, and their members, m of them, sorted by instance."""

    names: list[str]  # the communicators' ids
    ranks: list[list[int]]  # the ranks of each communicator that have files
    communicator: Int64  # row of `names`; int64 array of n
    op: NDArray[np.object_]  # operation; array of n texts
    bytes: Int64  # largest message size of a rank; int64 array of n
    group_size: Int64  # ranks of the communicator; likewise
    # whether all ranks are there with a time of the GPU, of an operation that waits for all; bool array of n
    whole: Flags
    transfer: Int64  # from the last arrival to the end, ns, if it is whole; int64 array of n
    duration: Int64  # of the rank that took the longest, likewise
    # from the first arrival to the last, likewise. wait, certain_wait: Time that ranks waited for the last, and of it
    # waits that are more than rounding; likewise
    skew: Int64
    wait: Int64
    certain_wait: Int64
    # the rank that arrived last; likewise. instance, rank, waited: Of each member its instance, its rank and how long
    # it waited; int64 arrays of m
    last_rank: Int64
    instance: Int64
    rank: Int64
    waited: Int64

    @property
    def alone(self) -> int | None:
        """The only rank, of which no waits are known: none, as what one rank alone recorded is left out."""
        return None


def recorded_of(rank: Rank) -> Any:
    """The collectives recorded of a rank; without messages, which ranks number by themselves."""
    table = rank.shared("inspector")
    if table is None:
        return pa.table({name: pa.array([], pa.string() if name in _TEXTS else pa.int64()) for name in _COLUMNS})
    table = table.filter(pc.is_null(table.column("peer"))).select(list(_COLUMNS))
    return table.cast(pa.schema([(name, pa.string() if name in _TEXTS else pa.int64()) for name in _COLUMNS]))


_TEXTS = frozenset({"communicator", "op", "timing_source"})


def recorded(parts: Sequence[Part]) -> Recorded:
    """The instances of all ranks; those that one rank alone recorded are left out, unless it is the only member."""
    filled = [p for p in parts if p.table.num_rows]
    empty = np.empty(0, np.int64)
    if not filled:
        none = np.empty(0, np.bool_)
        return Recorded([], [], empty, np.empty(0, object), empty, empty, none, *[empty] * 9)
    whole = pa.concat_tables([p.table for p in filled])
    rank = np.repeat(np.array([p.rank for p in filled], np.int64), [p.table.num_rows for p in filled])
    groups, ops = (whole.column(n).combine_chunks().dictionary_encode() for n in ("communicator", "op"))
    group, op = (c.indices.to_numpy().astype(np.int64) for c in (groups, ops))
    length, size, of = (integers(whole.column(n), -1) for n in ("duration_ns", "bytes", "group_size"))
    on_gpu = pc.is_in(whole.column("timing_source").fill_null(""), pa.array(["", GPU_TIMING])).to_numpy()
    keys, place = distinct_rows(group, op, integers(whole.column("sequence"), -1))
    # a rank that was started again has two records of one number; the later one stays
    order = np.lexsort((np.arange(len(rank)), rank, place))
    order = order[np.append(run_starts(place[order], rank[order])[1:], len(order)) - 1]
    place, rank, length, size, of, on_gpu = (v[order] for v in (place, rank, length, size, of, on_gpu))
    first = run_starts(place)
    members = np.diff(np.append(first, len(place)))
    shortest, longest = np.minimum.reduceat(length, first), np.maximum.reduceat(length, first)
    words = np.array(ops.dictionary.to_pylist(), object)[keys[1]]
    expected = np.maximum.reduceat(of, first)
    complete = (members == expected) & (expected > 1) & np.logical_and.reduceat(on_gpu, first)
    complete &= np.array([str(w) in SYNCHRONISING for w in words.tolist()], np.bool_)
    waited = np.where(complete[place], length - shortest[place], 0)
    latest = np.lexsort((rank, length, place))[first]
    several = np.flatnonzero(members > 1)
    number = np.full(len(first), -1, np.int64)
    number[several] = np.arange(len(several))
    mine = number[place] >= 0
    names = [str(n) for n in groups.dictionary.to_pylist()]
    ranks = [np.unique(rank[keys[0][place] == g]).tolist() for g in range(len(names))]
    wait, certain = (np.add.reduceat(v, first) for v in (waited, np.where(waited >= _CERTAIN_NS, waited, 0)))
    largest, skew = np.maximum.reduceat(size, first), np.where(complete, longest - shortest, 0)
    of_instances = (keys[0], words, largest, expected, complete, shortest, longest, skew, wait, certain, rank[latest])
    of_members = (number[place], rank, waited)
    return Recorded(names, ranks, *(v[several] for v in of_instances), *(v[mine] for v in of_members))


def notes_on(records: Recorded, parts: Sequence[Part], run: RunFacts) -> list[str]:
    """What a reader of answers from these records must know."""
    if not any(log.kind == "inspector" for log in run.manifest.logs):
        return [
            "this run has no files of NCCL Inspector, so the answer is empty; import its reports with --inspector-log "
            "FILE, or ask `alltrace logs inspector`"
        ]
    notes = [
        "the operations are those that NCCL Inspector recorded, also outside of the capture; messages, small "
        "operations and those that have not ended are not in its files"
    ]
    lacking = int((~records.whole).sum())
    if lacking:
        notes.append(
            f"{lacking:,} of {len(records.whole):,} instances lack a rank or a time of the GPU, or do not wait for all "
            "ranks; they have no waits and no transfers"
        )
    without = [p.rank for p in parts if not p.table.num_rows]
    if without:
        notes.append(f"no record of a collective of rank {number_ranges(without)}")
    return notes


STRAGGLER_COLUMNS = ("rank", "host", "waited_ns", "caused_ns", "caused_percent", "operations", "last_percent")
"""What these records say about stragglers: who waits for whom, but not why."""


def straggler_rows(records: Recorded, parts: Sequence[Part], hosts: Mapping[int, str]) -> list[dict[str, Any]]:
    """A row for each rank with operations of which all members are known, the one that caused most waits first."""
    counted = records.whole[records.instance] if len(records.instance) else records.whole
    total = int(records.wait.sum())
    rows = []
    for rank in sorted(p.rank for p in parts):
        mine = counted & (records.rank == rank)
        operations = int(mine.sum())
        caused = records.whole & (records.last_rank == rank)
        blamed = int(records.wait[caused].sum())
        if operations:
            late = int((caused & (records.certain_wait > 0)).sum())
            rows.append(
                {
                    "rank": rank,
                    "host": hosts[rank],
                    "waited_ns": int(records.waited[mine].sum()),
                    "caused_ns": blamed,
                    "caused_percent": 100 * blamed / total if total else None,
                    "operations": operations,
                    "last_percent": 100 * late / operations,
                }
            )
    return sorted(rows, key=lambda r: (-r["caused_ns"], r["rank"]))


def of_trace(options: Mapping[str, Any]) -> bool:
    """Whether the trace is the source, which knows devices; NCCL Inspector's records are of ranks."""
    return options.get("source") != "inspector"


def select_columns(columns: Sequence[Column]) -> tuple[Column, ...]:
    """The columns of `stragglers` that these records provide."""
    return tuple(c for c in columns if c.name in STRAGGLER_COLUMNS)
