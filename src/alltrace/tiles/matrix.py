"""Who communicates with whom and who waits for whom: a number for each pair of ranks, or of hosts."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alltrace.align.aligned import Aligned
from alltrace.align.members import EXCHANGE, direction_of
from alltrace.trace.arrays import Int64, integers
from alltrace.trace.errors import UsageError

MEASURES = ("wait_ns", "message_bytes", "collective_bytes")
"""What a matrix may hold: see `Matrix`."""

BY = ("rank", "host")
MOST_RANKS = 2048
"""Of more ranks there is only a matrix of hosts."""

PAIRS = 200


# `wait_ns` in row i and column j is how long i waited for j, the last to arrive of those it needs, in matched
# operations; a wait below what the clocks can resolve is not counted. `message_bytes` is what i sent to j.
# `collective_bytes` is what i put into collectives in which j took part: the traffic between two of them depends on the
# algorithm, which a trace does not contain. `aligned`: the alignment of the run.
class Matrices:
    """The matrices of a run."""

    def __init__(self, aligned: Aligned) -> None:
        run, members = aligned.run, aligned.members
        self.ranks = [r.rank for r in run.ranks]
        self.hosts = list(run.hosts)
        host_of = {h: n for n, h in enumerate(self.hosts)}
        self._host = np.array([host_of[r.host] for r in run.ranks], np.int64)
        self._rank, self._last = (self._places(members.column(c).to_numpy()) for c in ("rank", "awaited_rank"))
        self._instance, self._communicator = (members.column(c).to_numpy() for c in ("instance", "communicator"))
        fact = members.column("fact").to_numpy(zero_copy_only=False)
        self._wait = np.where(fact, members.column("wait_ns").to_numpy(), 0)
        self._bytes = np.maximum(integers(members.column("bytes"), -1), 0)
        ops = members.column("op").combine_chunks()
        directions = np.array([*map(direction_of, ops.dictionary.to_pylist()), 0], np.int64)
        self._direction = directions[ops.indices.fill_null(len(directions) - 1).to_numpy(zero_copy_only=False)]

    def _places(self, ranks: NDArray[Any]) -> Int64:
        return np.searchsorted(np.array(self.ranks, np.int64), ranks).astype(np.int64)

    def of(self, measure: str, by: str) -> Int64:
        """A matrix: int64 array (n, n), of ranks or hosts."""
        if measure not in MEASURES:
            raise UsageError.unknown("measure", measure, MEASURES)
        if by not in BY:
            raise UsageError.unknown("way to group", by, BY)
        if by == "rank" and len(self.ranks) > MOST_RANKS:
            raise UsageError(f"the run has {len(self.ranks)} ranks; expected {MOST_RANKS} at most, or ask by host")
        where, size = (self._host, len(self.hosts)) if by == "host" else (np.arange(len(self.ranks)), len(self.ranks))
        matrix = np.zeros((size, size), np.int64)
        if measure == "wait_ns":
            np.add.at(matrix, (where[self._rank], where[self._last]), self._wait)
        elif measure == "message_bytes":
            senders = np.flatnonzero(np.isin(self._direction, (1, EXCHANGE)))
            receivers = np.flatnonzero(np.isin(self._direction, (-1, EXCHANGE)))
            # a message's two members share the number of the instance; in an exchange each sends
            for sender, receiver in _other_members(self._instance, senders, receivers):
                matrix[where[self._rank[sender]], where[self._rank[receiver]]] += self._bytes[sender]
        else:
            self._add_collectives(matrix, where)
        return matrix

    def _add_collectives(self, matrix: Int64, where: Int64) -> None:
        members = np.flatnonzero(self._direction == 0)
        for communicator in np.unique(self._communicator[members]).tolist():
            own = members[self._communicator[members] == communicator]
            ranks, which = np.unique(self._rank[own], return_inverse=True)
            put = np.zeros(len(ranks), np.int64)
            np.add.at(put, which, self._bytes[own])
            rows, columns = np.meshgrid(where[ranks], where[ranks], indexing="ij")
            others = ~np.eye(len(ranks), dtype=bool)
            np.add.at(matrix, (rows[others], columns[others]), np.broadcast_to(put[:, None], rows.shape)[others])

    def labels(self, by: str) -> Sequence[int | str]:
        return self.hosts if by == "host" else self.ranks

    def facts(self, measure: str, by: str) -> dict[str, Any]:
        """A matrix in words: `labels`, `total`, `most`, and `pairs`, the 200 largest (`from`, `to`, `value`)."""
        matrix = self.of(measure, by)
        labels = self.labels(by)
        flat = matrix.ravel()
        order = np.argsort(-flat, kind="stable")[:PAIRS]
        pairs = [(*divmod(int(i), len(labels)), int(flat[i])) for i in order.tolist() if flat[i] > 0]
        return {
            "labels": list(labels),
            "total": int(matrix.sum()),
            "most": int(flat.max(initial=0)),
            "pairs": [{"from": labels[a], "to": labels[b], "value": value} for a, b, value in pairs],
        }


def _other_members(instance: Int64, senders: Int64, receivers: Int64) -> Iterator[tuple[int, int]]:
    """Each sender with each receiver of the same instance but itself."""
    of_instance: dict[int, list[int]] = {}
    for number, receiver in zip(instance[receivers].tolist(), receivers.tolist(), strict=True):
        of_instance.setdefault(number, []).append(receiver)
    for number, sender in zip(instance[senders].tolist(), senders.tolist(), strict=True):
        yield from ((sender, receiver) for receiver in of_instance.get(number, ()) if receiver != sender)
