"""The size of an MPI message from the bytes that Nsight Systems counts for a call.

It counts what a rank exchanges with every other: an all-reduce of 1 kB on four ranks sends and receives 4 kB, a root
sends a broadcast four times, and with `MPI_IN_PLACE` a rank does not exchange with itself, so that 3 kB remain
(docs/nsys-differences.md has the rule of each function). A message is what users mean by it and what bandwidth is
computed from: the vector of a reduction, broadcast or scan, a rank's own part of a gather, scatter or reduce-scatter,
and all that a rank sends in an all-to-all.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from alltrace.trace.names import name_id

Count = Literal["one", "ranks", "others", "ranks above", "own and above", "ranks below", "own and below", "sum"]


class Form(NamedTuple):
    """How often the message is counted as sent and as received; a `sum` of parts that differ says nothing of one."""

    sent: Count
    received: Count


FORMS = {
    "allreduce": Form("ranks", "ranks"),
    "bcast": Form("ranks", "one"),
    "reduce": Form("one", "others"),
    "gather": Form("one", "others"),
    "gatherv": Form("one", "sum"),
    "scatter": Form("ranks", "one"),
    "scatterv": Form("sum", "one"),
    "allgather": Form("ranks", "ranks"),
    "allgatherv": Form("ranks", "sum"),
    "alltoall": Form("one", "one"),
    "alltoallv": Form("one", "one"),
    "alltoallw": Form("one", "one"),
    "reduce_scatter": Form("sum", "ranks"),
    "reduce_scatter_block": Form("ranks", "ranks"),
    "scan": Form("own and above", "own and below"),
    "exscan": Form("ranks above", "ranks below"),
}
"""By the function's name without `MPI_`, blocking or not. What the root of a reduce or gather receives is only needed
where it sends nothing, in place, and then it receives from the others."""
_IN_PLACE = frozenset({"allreduce", "allgather", "allgatherv", "reduce_scatter_block"})
_SENT_AS_COUNTED = frozenset(
    {"scatter", "scatterv", "alltoall", "alltoallv", "alltoallw", "reduce_scatter", "reduce_scatter_block"}
)
_RECEIVED_AS_COUNTED = frozenset({"gather", "gatherv", "allgather", "allgatherv", "alltoall", "alltoallv", "alltoallw"})
_PLAIN = {name_id(f"MPI_{begun.capitalize()}"): plain for plain in FORMS for begun in (plain, f"i{plain}")}
_NONE = -1


def message_bytes(
    name: NDArray[np.int64],
    sent: NDArray[np.int64],
    received: NDArray[np.int64],
    ranks: NDArray[np.int64],
    place: NDArray[np.int64],
) -> NDArray[np.int64]:
    """The sizes of the messages of collectives, in bytes."""
    # `name`: ids of the functions' names, n values. `sent`: bytes that the profiler counts as sent, n values, -1 if
    # there are none. `received`: bytes that it counts as received, likewise. `ranks`: sizes of the communicators, n
    # values, -1 if unknown. `place`: the rank's number in the communicator, n values, -1 if unknown. Returns n sizes,
    # -1 if the size is not known. Nothing shows that an all-reduce or all-gather is in place but a count that is no
    # multiple of the ranks. One in place with such a count is taken for one that is not, and its size is too low.
    result = np.full(len(name), _NONE, np.int64)
    for identity in np.unique(name).tolist():
        plain = _PLAIN.get(identity)
        if plain is None:
            continue
        mine = np.flatnonzero(name == identity)
        form, size, at = FORMS[plain], ranks[mine], place[mine]
        sizes = _divided(sent[mine], _times(form.sent, size, at))
        ways = [(received, form.received), (sent, "others"), (received, "others")]
        for counted, count in ways if plain in _IN_PLACE else ways[:1]:
            sizes = np.where(sizes < 0, _divided(counted[mine], _times(count, size, at)), sizes)
        result[mine] = sizes
    return result


def buffer_bytes(
    name: NDArray[np.int64], message: NDArray[np.int64], sent: NDArray[np.int64], received: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """What a rank passes to a collective to be sent and what it gets from it, as MPI tracing tools count it."""
    # `name`: as for `message_bytes`. `message`: its result. `sent`: as for `message_bytes`. `received`: likewise.
    # Returns bytes sent and bytes received, n values each, 0 where there are none or the size is not known.
    plain = [_PLAIN.get(n, "") for n in name.tolist()]
    whole_sent, whole_received, broadcast = (
        np.array([p in group for p in plain], np.bool_)
        for group in (_SENT_AS_COUNTED, _RECEIVED_AS_COUNTED, ("bcast",))
    )
    out = np.where(sent < 0, 0, np.where(whole_sent, sent, message))
    back = np.where(received < 0, 0, np.where(whole_received, received, message))
    return np.maximum(out, 0), np.maximum(np.where(broadcast & (sent >= 0), 0, back), 0)


def message_of_buffers(
    name: NDArray[np.int64], sent: NDArray[np.int64], received: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The sizes of messages from what `buffer_bytes` returns, and what else counts MPI's arguments; -1 is unknown."""
    plain = [_PLAIN.get(n, "") for n in name.tolist()]
    parts = np.array([p in _SENT_AS_COUNTED and p not in _RECEIVED_AS_COUNTED for p in plain], np.bool_)
    leaf = np.array([p == "bcast" for p in plain], np.bool_) & (sent <= 0)
    return np.where(parts | leaf, received, sent)


def _times(count: Count, ranks: NDArray[np.int64], place: NDArray[np.int64]) -> NDArray[np.int64]:
    """How often the message is counted; 0 or less where that is not known."""
    if count == "one":
        return np.ones(len(ranks), np.int64)
    if count in ("ranks", "others"):
        return ranks if count == "ranks" else ranks - 1
    if count == "sum":
        return np.zeros(len(ranks), np.int64)
    above = np.where(place < 0, 0, ranks - 1 - place)
    below = np.where(ranks < 0, 0, place)
    own = np.where((ranks < 0) | (place < 0), 0, 1)
    return {"ranks above": above, "own and above": above + own, "ranks below": below, "own and below": below + own}[
        count
    ]


def _divided(counted: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
    """The whole quotient; -1 if the count is not a multiple."""
    divisor = np.maximum(times, 1)
    return np.where((counted >= 0) & (times > 0) & (counted % divisor == 0), counted // divisor, _NONE)
