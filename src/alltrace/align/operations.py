"""The operations of all ranks in flat arrays, for matching."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow.compute as pc

from alltrace.align.all_collectives import AllCollectives
from alltrace.align.nccl_names import ALL_TO_ALL, RECV, SEND, SEND_RECV, SYNCHRONISING
from alltrace.trace.arrays import coded, integers
from alltrace.trace.distinct import distinct_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

MATCHED_COLUMNS = (
    "start", "end", "api_start", "api_end", "stream", "communicator", "op", "datatype", "bytes", "peer", "group_rank",
    "group_size", "sequence", "evidence",
)  # fmt: skip
"""The columns of `collectives` by which operations are matched."""

INFERRED = "inferred"
"""The column with the number of the communicator that was inferred for an operation from the whole run."""

_WITH_SEQUENCE = ("trace", "log")
_HOST = "mpi"


@dataclass
class Operations:
    """Operations that can be members of an instance, sorted by rank and time; -1 is an unknown number.

    Attributes:
        rank: Rank, int64; all arrays are int64 of equal length but where said.
        row: Row of the rank's table.
        start: In the time of the rank's files, ns; likewise `end`.
        shifted_start: With the rank's shift, ns; likewise `shifted_end`.
        communicator: Number of the communicator in `names`.
        op: Number of the operation.
        token: Number of (operation, bytes, type).
        synchronising: Whether no member can leave before the last has arrived, bool.
        paired: 1 for a send, -1 for a receive, 0 else.
        exchanging: Whether it is a kernel that sends or receives or both, and nothing shows on which communicator, bool.
        all_to_all: Whether every member sends something to every other, bool.
        sequence: The profiler's sequence number if it has one.
        stream: CUDA stream; likewise `size` (bytes).
        peer: Peer; likewise `group_rank`, `group_size`.
        names: Communicators' identities.
        calls_only: The number of operations known by their call alone, which cannot be members.
        inferred: Number of its communicator among those that were inferred from the whole run; -1 for none, and if none were.
    """

    rank: NDArray[np.int64]
    row: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    shifted_start: NDArray[np.int64]
    shifted_end: NDArray[np.int64]
    communicator: NDArray[np.int64]
    op: NDArray[np.int64]
    token: NDArray[np.int64]
    synchronising: NDArray[np.bool_]
    paired: NDArray[np.int64]
    exchanging: NDArray[np.bool_]
    all_to_all: NDArray[np.bool_]
    sequence: NDArray[np.int64]
    stream: NDArray[np.int64]
    size: NDArray[np.int64]
    peer: NDArray[np.int64]
    group_rank: NDArray[np.int64]
    group_size: NDArray[np.int64]
    names: list[str]
    calls_only: int
    inferred: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rank)

    def take(self, rows: NDArray[np.int64]) -> Operations:
        """Some of them, in the order of `rows`."""
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        chosen: dict[str, Any] = {name: c[rows] for name, c in columns.items() if isinstance(c, np.ndarray)}
        return replace(self, **chosen)


class OperationTimes(NamedTuple):
    """When the operations of a table ran, and which of them can be members of an instance.

    Attributes:
        start: Start on the device, or of the call of an MPI operation, in the time of the rank's files, ns; -1 if unknown.
        end: End, likewise.
        matchable: Whether both are known and the operation has a name and a communicator of more than one rank, bool.
        calls_only: The number of operations known by their call alone, which cannot be members.
        sequence: The profiler's sequence number, -1 without one.
    """

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    matchable: NDArray[np.bool_]
    calls_only: int
    sequence: NDArray[np.int64]


def operation_times(table: Any) -> OperationTimes:
    """When the rows of a table with `MATCHED_COLUMNS` ran."""
    words, evidence = coded(table.column("evidence"))
    on_host = _chosen(words.to_pylist(), evidence, (_HOST,))

    def either(device: str, call: str) -> NDArray[np.int64]:
        return np.where(on_host, integers(table.column(call), -1), integers(table.column(device), -1))

    timed = np.where(on_host, _both(table, "api_start", "api_end"), _both(table, "start", "end"))
    several = integers(table.column("group_size"), -1) != 1
    named: NDArray[np.bool_] = pc.is_valid(table.column("op")).to_numpy()
    start, end = either("start", "api_start"), either("end", "api_end")
    sequence = np.where(_chosen(words.to_pylist(), evidence, _WITH_SEQUENCE), integers(table.column("sequence"), -1), -1)
    return OperationTimes(start, end, timed & several & named, int((~timed & several).sum()), sequence)


def flatten(tables: Mapping[int, Any], texts: Callable[[Any], Any], shifts_ns: Mapping[int, int]) -> Operations:
    """The operations of all ranks.

    Args:
        tables: Each rank's `collectives`, of one rank at least.
        texts: The strings of an Arrow array of name ids.
        shifts_ns: What is added to a rank's times; 0 for a rank that is not in it.
    """
    import pyarrow as pa

    every = AllCollectives.of(tables)
    ranks, counts = list(every), list(every.rows.values())
    whole = every.whole
    rank = np.repeat(np.array(ranks, np.int64), counts)
    row = np.concatenate([np.arange(n, dtype=np.int64) for n in counts]) if counts else np.zeros(0, np.int64)
    shift = np.repeat(np.array([shifts_ns.get(r, 0) for r in ranks], np.int64), counts)

    def numbers(name: str) -> NDArray[np.int64]:
        return integers(whole.column(name), -1)

    def numbered(name: str) -> tuple[list[str | None], NDArray[np.int64]]:
        values, at = coded(whole.column(name))
        strings = texts(values) if pa.types.is_integer(values.type) else values
        return strings.to_pylist(), np.where(at < len(values), at, -1)

    names, communicator = numbered("communicator")
    ops, op = numbered("op")
    _, datatype = numbered("datatype")
    times = operation_times(whole)
    start, end = times.start, times.end
    size = numbers("group_size")
    keep = np.flatnonzero(times.matchable)
    keep = keep[np.lexsort((end[keep], rank[keep]))]
    sizes = numbers("bytes")
    token = distinct_rows(op, sizes, datatype)[1]
    synchronising = np.array([*(o in SYNCHRONISING for o in ops), False])[op]
    exchanging = np.array([*(o == SEND_RECV for o in ops), False])[op] & (communicator < 0)
    all_to_all = np.array([*(o == ALL_TO_ALL for o in ops), False])[op]
    direction = np.array([*((o == SEND) - (o == RECV) for o in ops), 0], np.int64)[op]
    group_rank = _group_ranks(rank, communicator, numbers("group_rank"), size)
    return Operations(
        rank=rank[keep],
        row=row[keep],
        start=start[keep],
        end=end[keep],
        shifted_start=(start + shift)[keep],
        shifted_end=(end + shift)[keep],
        communicator=communicator[keep],
        op=op[keep],
        token=token[keep],
        synchronising=synchronising[keep],
        paired=direction[keep],
        exchanging=exchanging[keep],
        all_to_all=all_to_all[keep],
        sequence=times.sequence[keep],
        stream=numbers("stream")[keep],
        size=sizes[keep],
        peer=numbers("peer")[keep],
        group_rank=group_rank[keep],
        group_size=size[keep],
        names=[n or "" for n in names],
        calls_only=times.calls_only,
        inferred=numbers(INFERRED)[keep] if INFERRED in whole.column_names else np.full(len(keep), -1, np.int64),
    )


def telling_streams(operations: Operations, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The stream of each operation if all ranks have the same streams for a token, so that its number counts; -1 elsewhere."""
    found = np.full(len(rows), -1, np.int64)
    token, rank, stream = operations.token[rows], operations.rank[rows], operations.stream[rows]
    for one in np.unique(token).tolist():
        mine = np.flatnonzero(token == one)
        pairs = distinct_rows(rank[mine], stream[mine])[0]
        streams, many = np.unique(pairs[1], return_counts=True)
        if len(streams) > 1 and (many == len(np.unique(pairs[0]))).all():
            found[mine] = stream[mine]
    return found


def _group_ranks(
    rank: NDArray[np.int64], communicator: NDArray[np.int64], told: NDArray[np.int64], size: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Each rank's number in its communicator; if no row has it but all members are present, they are numbered in order of rank."""
    lacking = np.flatnonzero((told < 0) & (communicator >= 0))
    if not len(lacking):
        return told
    result: NDArray[np.int64] = told.copy()
    pairs, inverse = distinct_rows(communicator, rank)
    best, sizes = np.full(pairs.shape[1], -1, np.int64), np.full(pairs.shape[1], -1, np.int64)
    np.maximum.at(best, inverse, told)
    np.maximum.at(sizes, inverse, size)
    for group in np.unique(communicator[lacking]).tolist():
        mine = np.flatnonzero(pairs[0] == group)
        if (best[mine] < 0).all() and (sizes[mine] < 0).all() | (sizes[mine].max() == len(mine)):
            best[mine] = np.arange(len(mine))
    result[lacking] = best[inverse[lacking]]
    return result


def _chosen(words: list[str | None], codes: NDArray[np.int64], wanted: tuple[str, ...]) -> NDArray[np.bool_]:
    return np.array([*(w in wanted for w in words), False])[codes]


def _both(table: Any, first: str, second: str) -> NDArray[np.bool_]:

    valid: NDArray[np.bool_] = pc.and_(pc.is_valid(table.column(first)), pc.is_valid(table.column(second))).to_numpy()
    return valid
