"""What a program is: its grid of ranks, its work, communicators, what a report shows, and the causes of lost time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple


@dataclass(frozen=True)
class Grid:
    """How ranks divide the work; the tensor-parallel index runs fastest, the pipeline stage slowest.

    Attributes:
        tp: Ranks that share each layer.
        cp: Ranks that share each sequence.
        dp: Ranks with the same part of the model and other samples.
        pp: Stages.
        ep: Data-parallel ranks among which experts are divided; 1 without experts.
        hosts: Hosts, with equally many ranks each.
    """

    tp: int
    cp: int
    dp: int
    pp: int
    ep: int
    hosts: int

    @property
    def ranks(self) -> int:
        """All ranks."""
        return self.tp * self.cp * self.dp * self.pp

    def host_of(self, rank: int) -> int:
        """The host that a rank runs on."""
        return rank // (self.ranks // self.hosts)

    def place(self, rank: int) -> tuple[int, int, int, int]:
        """The indices of a rank: tensor, context, data, stage."""
        rank, tensor = divmod(rank, self.tp)
        rank, context = divmod(rank, self.cp)
        stage, data = divmod(rank, self.dp)
        return tensor, context, data, stage

    def rank_at(self, tensor: int, context: int, data: int, stage: int) -> int:
        """The rank with these indices."""
        return ((stage * self.dp + data) * self.cp + context) * self.tp + tensor


@dataclass(frozen=True)
class Communicator:
    """Ranks that communicate.

    Attributes:
        role: What for: `tp`, `cp`, `dp`, `ep`, `shard`, `replicate`, `forward`, `backward`, `exchange` (batched sends
            and receives between two stages), `norm` or `barrier`.
        ranks: Its members, ascending.
        stream: The stream of its kernels as the program numbers it, the same on all members.
        identifier: The hash that NCCL would give it.
        bandwidth: Bytes a ns that a link of it moves.
        latency_ns: Of one message.
        world: The members of the communicator of NCCL that it is a part of, where sends and receives between any two of
            them meet on their own; empty if that is `ranks`.
    """

    role: str
    ranks: tuple[int, ...]
    stream: int
    identifier: int
    bandwidth: float
    latency_ns: int
    world: tuple[int, ...] = ()

    def transfer_ns(self, operation: str, size_bytes: int) -> float:
        """Time from the last arrival to the end: NCCL's bus bandwidth, solved for time, and hops of a tree."""
        return (
            self.passes(operation) * (size_bytes / self.bandwidth)
            + math.ceil(math.log2(len(self.ranks))) * self.latency_ns
        )

    def passes(self, operation: str) -> float:
        """How many times a message passes the slowest link."""
        members = len(self.ranks)
        if operation == "AllReduce":
            return 2 * (members - 1) / members
        return (members - 1) / members if operation in ("AllGather", "ReduceScatter", "AllToAll") else 1.0


class Operation(NamedTuple):
    """An operation of a communicator.

    Attributes:
        name: As NCCL calls it, without prefix.
        size_bytes: Its message.
        direction: Of an exchange of two stages: `forward`, `backward` or `both`; empty otherwise.
        renewed: Whether the communicator was replaced before.
    """

    name: str
    size_bytes: int
    direction: str = ""
    renewed: bool = False

    def calls(self, members: int) -> int:
        """How many calls of NCCL issue it on a communicator with this many members."""
        return {"AllToAll": 2 * members, "SendRecv": 2}.get(self.name, 1)


@dataclass(frozen=True)
class Cause:
    """A planted cause of lost time.

    Attributes:
        kind: As `alltrace diagnose` calls it; or `late-rank`, for which it has several words.
        variant: How it comes about.
        ranks: The culprits; empty if no rank is one more than others.
        amount: A factor of durations, or ns a step, as the kind wants.
        steps: The steps in which it acts.
        communicator: Index of the communicator that it is about.
        memory_amount: The factor of kernels that memory limits, of a kind that slows them less.
        course: The amount in each step of the program, where it changes; empty if it does not.
    """

    kind: str
    variant: str
    ranks: tuple[int, ...]
    amount: float
    steps: frozenset[int]
    communicator: int | None = None
    memory_amount: float = 1.0
    course: tuple[float, ...] = ()

    def amount_in(self, step: int) -> float:
        """The amount in a step."""
        return self.course[step] if self.course else self.amount


@dataclass(frozen=True)
class Clock:
    """The clock of a host against true time.

    Attributes:
        offset_ns: Of its UTC at time 0.
        drift: ns lost or gained per ns.
        jump_ns: By how much its UTC was set while the job ran; stamps of later sessions include it.
    """

    offset_ns: int
    drift: float
    jump_ns: int


@dataclass(frozen=True)
class View:
    """What the reports show.

    Attributes:
        step_text: Range of a step with `{}` for its number, or None.
        phases: Whether forward, backward and optimizer have ranges.
        operators: Whether each layer's operators have ranges.
        nccl: The payload of NCCL's ranges: `json`, `binary`, `bytes` (the size alone), `names` (ranges without any, as
            `nsys export` writes by default) or `none` (no ranges).
        data_text: Range around the wait for a batch, or None.
        osrt: Whether calls of the OS runtime were traced.
        graphs: `none`, `whole` or `nodes`: how CUDA graphs were traced.
        schema: Version of the export.
        clocks: One clock per host.
        late: Ranks with a late start of the capture, with its true time, in steps.
        missing: Ranks without a report.
        naming: Style of the file names.
        streams_differ: Whether each device numbers its streams on its own.
        protocols_differ: Whether NCCL's kernels are named by the algorithm and protocol that suit the size, in some
            communicators others on some members.
        groups: Whether sends and receives that are issued together have ranges of `ncclGroupStart` and PyTorch's own
            ranges.
        devices: Devices of a process, which are one rank of the job each with a launching thread of its own.
        stamp_ns: By how much stamps of processes of one host differ at most.
        windows: Ranks whose capture begins and ends at their own true times, in steps: (rank, begin, end).
        dropped: Ranks that lost the records of a part of their events: (rank, begin, end), in steps.
    """

    step_text: str | None
    phases: bool
    operators: bool
    nccl: str
    data_text: str | None
    osrt: bool
    graphs: str
    schema: str
    clocks: tuple[Clock, ...]
    late: tuple[tuple[int, float], ...] = ()
    missing: tuple[int, ...] = ()
    naming: str = "rank{:03d}"
    streams_differ: bool = False
    protocols_differ: bool = False
    groups: bool = False
    devices: int = 1
    stamp_ns: int = 0
    windows: tuple[tuple[int, float, float], ...] = ()
    dropped: tuple[tuple[int, float, float], ...] = ()


SPECIALS = ("one group", "two streams", "split", "re-created", "captured", "captured before", "windows", "dropped")
"""What makes order harder to see: operations of several communicators in one group of NCCL; a communicator on two
streams; a communicator that `ncclCommSplit` replaces, or that is aborted and created again under its name, while the
job runs; a step that is one captured graph, captured while reports are recorded or before; windows that begin and end
at other operations on each rank; records that the profiler lost."""

RENEWED = 3
"""The step in which a communicator is replaced."""


@dataclass(frozen=True)
class Program:
    """A training program.

    Attributes:
        seed: Of all its noise.
        grid: Its ranks.
        zero: ZeRO stage, 0 to 3; with 3, parameters are gathered for each layer.
        hybrid: Whether shards are within a host and replicated over hosts.
        mpi: Whether gradients are reduced by MPI on hosts, without NCCL.
        staged: Whether what MPI reduces is copied to the host and back, as libraries that know no devices want it.
        style: Of kernel names and layers.
        layers: Layers of a stage.
        micro: Micro-batches of a step.
        steps: All steps.
        warmup: First steps that take longer.
        checkpoint: The step that writes a checkpoint, or None.
        layer_ns: Time of a forward layer on the device.
        parameter_bytes: Of a layer on one rank, as communicated.
        activation_bytes: Of a layer, as communicated.
        gap_ns: Host time between two calls.
        call_ns: Host time of a launch.
        noise: Standard deviation of the logarithm of durations on the device.
        buckets: Gradient buckets of a step.
        first_bucket: How many times larger the first one is: it has the gradients of the head.
        prefetch: Whether a layer's parameters are gathered while the layer before computes.
        overlap: Whether buckets are reduced while backward goes on.
        tp_on_compute: Whether tensor-parallel kernels are on the compute stream.
        norm: Whether gradients are clipped by a global norm.
        norm_item: Whether the host reads the norm.
        loss_item_every: Every how many steps the host reads the loss; 0 for never.
        loader_workers: Processes that load data; 0 if the host itself does.
        loader_ns: Time that one batch takes a worker.
        input_bytes: Bytes of a batch, copied to the device.
        input_stream: Whether that copy has its own stream.
        optimizer_kernels: Kernels of the optimizer.
        communicators: All of them.
        causes: What was planted.
        view: What the reports show.
        scatter: How much ends of one operation scatter, in what was measured on real machines; 0 lets all members end
            at once.
        batched: Whether stages of a pipeline exchange in groups of sends and receives on one communicator for each
            pipeline.
        special: One of `SPECIALS`, or empty.
        rooted: Whether each step begins with a broadcast of buffers and ends with a reduction of metrics to the first
            rank.
        lengths: Lengths of sequences, times the usual one, in each step: of all ranks, or of each place in data
            parallelism; empty if they do not differ.
        tokens: Tokens of each rank's experts, times the usual number; empty if they do not differ.
        halves: In how many parts the tokens of a layer's experts come, each with an exchange before and after it.
        barrier: What hosts wait for after a barrier of all ranks at the end of a step: `stream` or `device`; empty
            without one.
        barrier_every: Every how many steps that is.
    """

    seed: int
    grid: Grid
    zero: int
    hybrid: bool
    mpi: bool
    staged: bool
    style: str
    layers: int
    micro: int
    steps: int
    warmup: int
    checkpoint: int | None
    layer_ns: int
    parameter_bytes: int
    activation_bytes: int
    gap_ns: int
    call_ns: int
    noise: float
    buckets: int
    first_bucket: float
    prefetch: bool
    overlap: bool
    tp_on_compute: bool
    norm: bool
    norm_item: bool
    loss_item_every: int
    loader_workers: int
    loader_ns: int
    input_bytes: int
    input_stream: bool
    optimizer_kernels: int
    communicators: tuple[Communicator, ...]
    view: View
    causes: tuple[Cause, ...] = ()
    scatter: float = 0.0
    batched: bool = False
    rooted: bool = False
    special: str = ""
    lengths: tuple[tuple[float, ...], ...] = ()
    tokens: tuple[float, ...] = ()
    halves: int = 1
    barrier: str = ""
    barrier_every: int = 1

    @cached_property
    def communicators_of(self) -> tuple[dict[str, int], ...]:
        """For each rank, the index of its communicator of each role."""
        found: tuple[dict[str, int], ...] = tuple({} for _ in range(self.grid.ranks))
        for index, communicator in enumerate(self.communicators):
            for rank in communicator.ranks:
                role = communicator.role
                if role in (
                    "forward",
                    "backward",
                    "exchange",
                ):  # a stage has one to the stage before and one to the next
                    role += ">" if rank == communicator.ranks[0] else "<"
                found[rank][role] = index
        return found

    def meets_after(self, step: int) -> bool:
        """Whether a step ends with a barrier of all ranks."""
        return bool(self.barrier) and (step + 1) % self.barrier_every == 0

    @property
    def judged(self) -> tuple[int, ...]:
        """The steps that count: no warm-up, no checkpoint, and captured on every rank with a report."""
        begin = max((int(at) + 1 for rank, at in self.view.late if rank not in self.view.missing), default=0)
        after = None if self.checkpoint is None else self.checkpoint + 1
        return tuple(s for s in range(max(self.warmup, begin), self.steps) if s not in (self.checkpoint, after))


NATURAL = ("communication", "host", "copies", "sync", "noise")
"""What a program loses time by without any planted cause."""


@dataclass(frozen=True)
class Without:
    """What an execution leaves out.

    Attributes:
        causes: Indices of planted causes.
        natural: Names out of `NATURAL` that cost nothing.
    """

    causes: frozenset[int] = field(default_factory=frozenset)
    natural: frozenset[str] = field(default_factory=frozenset)
