"""The instructions of one rank: what its threads do in order. Layouts write, faults edit, the engine runs them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

MAIN_THREAD = 0
AUTOGRAD_THREAD = 1

COMPUTE_STREAM = 7
DATA_STREAM_OF_NCCL = 13
TENSOR_STREAM_OF_NCCL = 17
PREVIOUS_STREAM_OF_NCCL = 21
NEXT_STREAM_OF_NCCL = 25
EXPERT_STREAM_OF_NCCL = 29
GATHER_STREAM_OF_NCCL = 33
SIDE_STREAMS = (37, 41)


@dataclass(frozen=True)
class Group:
    """A communicator: its members in rank order and the hash that NCCL shows for it."""

    name: str
    ranks: tuple[int, ...]
    comm_hash: int


@dataclass(frozen=True)
class Compute:
    """Kernels launched one after the other onto one stream."""

    kernels: NDArray[np.int64]  # indices into `alltrace.synth.kernels.KERNELS`, int64, one for each launch
    durations_ns: NDArray[np.int64]  # durations on the device, int64, same length
    thread: int = MAIN_THREAD
    stream: int = COMPUTE_STREAM
    part: str = "layer"  # what part of the model it is: `layer`, `expert` or `optimizer`
    gap_ns: int | None = None  # host time between two launches if it is not the scenario's
    graph: int | None = None  # the kernels are one launch of a CUDA graph with this number, traced as a whole


@dataclass(frozen=True)
class Push:
    text: str
    thread: int = MAIN_THREAD


@dataclass(frozen=True)
class Pop:
    thread: int = MAIN_THREAD


@dataclass(frozen=True)
class HostWork:
    """Host time of a thread, with the OS runtime call it is spent in, if any."""

    duration_ns: int
    thread: int = MAIN_THREAD
    call: str | None = None


@dataclass(frozen=True)
class Handover:
    """`to` continues when `thread` is here, and not before; `call` is the OS runtime call that `to` waits in."""

    thread: int
    to: int
    call: str | None = None


@dataclass(frozen=True)
class Collective:
    """An NCCL collective, launched asynchronously."""

    group: int  # index of the communicator
    op: str  # name without prefix, such as `AllReduce`, `AlltoAll`, or `SendRecv` between the two members of a pair
    # message size as in NCCL's ranges: the whole for an all-reduce, one rank's part for an all-gather or
    # reduce-scatter, the part that one rank sends to one other for an all-to-all
    size_bytes: int
    stream: int  # the communicator's stream
    after: int | None = COMPUTE_STREAM  # the stream with earlier work that must be done first
    thread: int = MAIN_THREAD
    sends: bool = False  # of a `SendRecv`, whether this rank sends
    receives: bool = False  # likewise


@dataclass(frozen=True)
class HostCollective:
    """An MPI collective without data, in which the thread waits for all members of the group."""

    group: int
    call: str
    thread: int = MAIN_THREAD


@dataclass(frozen=True)
class StreamWait:
    """`stream` waits for the work that `other` has so far."""

    stream: int
    other: int
    thread: int = MAIN_THREAD


# `blocking` makes the call return only when the copy is done, as a copy from pageable memory does; `synchronous` makes
# it `cudaMemcpy`, which blocks as well.
@dataclass(frozen=True)
class Copy:
    """A memory copy; `kind` as CUPTI numbers it (1 to the device, 2 to the host)."""

    size_bytes: int
    duration_ns: int
    kind: int = 1
    stream: int = COMPUTE_STREAM
    pageable: bool = False
    thread: int = MAIN_THREAD
    blocking: bool = False
    synchronous: bool = False


@dataclass(frozen=True)
class Memset:
    size_bytes: int
    duration_ns: int
    stream: int = COMPUTE_STREAM
    thread: int = MAIN_THREAD


@dataclass(frozen=True)
class Synchronize:
    stream: int | None = COMPUTE_STREAM
    thread: int = MAIN_THREAD


@dataclass(frozen=True)
class Call:
    """An API call that starts nothing on the device; `drains` makes it wait for an idle device, as `cudaFree` does."""

    name: str
    duration_ns: int
    drains: bool = False
    thread: int = MAIN_THREAD


@dataclass(frozen=True)
class DeviceGap:
    """A stream pauses without any event to explain it."""

    duration_ns: int
    stream: int = COMPUTE_STREAM
    thread: int = MAIN_THREAD


Op: TypeAlias = (
    Compute
    | Push
    | Pop
    | HostWork
    | Handover
    | Collective
    | HostCollective
    | StreamWait
    | Copy
    | Memset
    | Synchronize
    | Call
    | DeviceGap
)
