"""Sizes of messages from counts as Nsight Systems 2023.4 recorded them of Open MPI 4.1 and MPICH 4.0.

m is the message that the program passed, N the communicator's size, r the rank's number in it. The recordings in
`tests/align/mpi_recordings` have all of these; the numbers here are for m = 1000 bytes and four ranks.
"""

import numpy as np
from tests.together import together

from alltrace.trace.mpi_sizes import buffer_bytes, message_bytes, message_of_buffers
from alltrace.trace.names import name_id

NONE = -1


def arrays(*values):
    return [np.array([v], np.int64) for v in values]


def size(name, sent, received, ranks=4, place=2):
    (found,) = message_bytes(*arrays(name_id(name), sent, received, ranks, place)).tolist()
    return found


def buffers(name, message, sent, received):
    out, back = buffer_bytes(*arrays(name_id(name), message, sent, received))
    return out.tolist() + back.tolist()


COUNTED = [
    ("MPI_Allreduce", 4000, 4000, 1000, (1000, 1000)),
    ("MPI_Bcast", 4000, 1000, 1000, (1000, 0)),  # of the root
    ("MPI_Bcast", NONE, 1000, 1000, (0, 1000)),
    ("MPI_Reduce", 1000, NONE, 1000, (1000, 0)),
    ("MPI_Reduce", 1000, 4000, 1000, (1000, 1000)),  # of the root
    ("MPI_Reduce", NONE, 3000, 1000, (0, 1000)),  # of the root, in place
    ("MPI_Gather", 1000, NONE, 1000, (1000, 0)),
    ("MPI_Gather", 1000, 4000, 1000, (1000, 4000)),
    ("MPI_Gather", NONE, 3000, 1000, (0, 3000)),
    ("MPI_Gatherv", 1000, 3990, 1000, (1000, 3990)),
    ("MPI_Gatherv", NONE, 2990, NONE, (0, 2990)),  # in place, of parts that differ
    ("MPI_Scatter", 4000, 1000, 1000, (4000, 1000)),
    ("MPI_Scatter", NONE, 1000, 1000, (0, 1000)),
    ("MPI_Scatterv", 4002, 1000, 1000, (4002, 1000)),
    ("MPI_Allgather", 4000, 4000, 1000, (1000, 4000)),
    ("MPI_Allgatherv", 4000, 4090, 1000, (1000, 4090)),
    ("MPI_Alltoall", 4000, 4000, 4000, (4000, 4000)),
    ("MPI_Alltoallv", 4006, 4000, 4006, (4006, 4000)),
    ("MPI_Reduce_scatter", 4001, 4000, 1000, (4001, 1000)),
    ("MPI_Reduce_scatter_block", 4000, 4000, 1000, (4000, 1000)),
    ("MPI_Scan", 2000, 3000, 1000, (1000, 1000)),
    ("MPI_Exscan", 1000, 2000, 1000, (1000, 1000)),
    ("MPI_Iallreduce", 4000, 4000, 1000, (1000, 1000)),
    ("MPI_Ireduce_scatter_block", 4000, 4000, 1000, (4000, 1000)),
    ("MPI_Barrier", NONE, NONE, NONE, (0, 0)),
]


@together(("name", "sent", "received", "message", "passed"), COUNTED)
def test_the_message_and_the_buffers_of_a_call(name, sent, received, message, passed):
    assert size(name, sent, received) == message
    assert buffers(name, message, sent, received) == list(passed)


def test_messages_of_chains_single_ranks_and_mixed_calls():
    assert [size("MPI_Exscan", 3000, NONE, place=0), size("MPI_Exscan", NONE, 3000, place=3)] == [1000, 1000]
    assert [size("MPI_Scan", 4000, 1000, place=0), size("MPI_Scan", 1000, 4000, place=3)] == [1000, 1000]
    assert size("MPI_Allreduce", 30, 30) == 10
    assert size("MPI_Allgather", 30, 30) == 10
    assert size("MPI_Allreduce", 8, 8, ranks=3) == 4
    assert size("MPI_Allreduce", 12, 12) == 3  # as of 3 bytes that are not in place
    assert size("MPI_Allreduce", 7, 7) == NONE  # neither
    assert [size(n, 4000, 1000, NONE, NONE) for n in ("MPI_Bcast", "MPI_Scatter", "MPI_Alltoall")] == [1000, 1000, 4000]
    assert [size(n, 4000, 4000, NONE, NONE) for n in ("MPI_Allreduce", "MPI_Allgather", "MPI_Scan", "MPI_Exscan")] == [
        NONE
    ] * 4
    assert buffers("MPI_Allreduce", NONE, 4000, 4000) == [0, 0]
    assert [size(n, 8, 8, 1, 0) for n in ("MPI_Allreduce", "MPI_Scan", "MPI_Reduce", "MPI_Alltoall")] == [8] * 4
    assert size("MPI_Allreduce", NONE, NONE, 1, 0) == NONE
    names = np.array([name_id(n) for n in ("MPI_Bcast", "MPI_Allreduce", "MPI_Send", "MPI_Allreduce")], np.int64)
    sent, received = np.array([NONE, 40, 5, 90], np.int64), np.array([7, 40, NONE, 90], np.int64)
    ranks = np.array([4, 4, 4, 9], np.int64)
    assert message_bytes(names, sent, received, ranks, np.zeros(4, np.int64)).tolist() == [7, 10, NONE, 10]


@together(
    ("name", "sent", "received", "message"),
    [
        ("MPI_Allreduce", 1000, 1000, 1000), ("MPI_Bcast", 1000, 0, 1000), ("MPI_Bcast", 0, 1000, 1000),
        ("MPI_Scatter", 4000, 1000, 1000), ("MPI_Gather", 1000, 4000, 1000),
        ("MPI_Reduce_scatter_block", 4000, 1000, 1000), ("MPI_Alltoall", 4000, 4000, 4000),
    ],
)  # fmt: skip
def test_the_message_of_buffers(name, sent, received, message):
    assert message_of_buffers(*arrays(name_id(name), sent, received)).tolist() == [message]
