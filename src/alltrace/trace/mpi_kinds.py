"""What an MPI call does, also by its name alone: Nsight Systems files calls without their arguments as `other`."""

import numpy as np
import pyarrow as pa

from alltrace.trace.arrays import Flags, integers, is_one_of
from alltrace.trace.names import name_id

MESSAGES, COLLECTIVES, WAITS = "p2p", "collective", "start-wait"
"""Kinds of calls that exchange data or wait for that, as in `kind` of the table `mpi`."""

_CALLS = {
    MESSAGES: (
        "Send Recv Isend Irecv Ssend Issend Bsend Ibsend Rsend Irsend Sendrecv Sendrecv_replace Mrecv Imrecv Probe"
        " Mprobe"
    ),
    COLLECTIVES: (
        "Barrier Bcast Reduce Allreduce Gather Gatherv Scatter Scatterv Allgather Allgatherv Alltoall Alltoallv"
        " Alltoallw Reduce_scatter Reduce_scatter_block Scan Exscan"
    ),
    WAITS: "Wait Waitall Waitany Waitsome Test Testall Testany Testsome Start Startall",
}
_NAMES = {
    kind: np.array([name_id(f"MPI_{call}") for call in calls.split()], np.int64) for kind, calls in _CALLS.items()
}


def is_call(calls: pa.Table, kind: str) -> Flags:
    return is_one_of(calls.column("kind"), (kind,)) | np.isin(integers(calls.column("name")), _NAMES[kind])


def exchanges(calls: pa.Table) -> Flags:
    """Which rows of `mpi` are calls that exchange data with other ranks, or wait for that."""
    exchanging: Flags = np.logical_or.reduce([is_call(calls, kind) for kind in _CALLS])
    return exchanging
