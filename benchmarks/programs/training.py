"""Makes the instructions of every rank of a training program, with or without its causes of lost time."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.programs import names
from benchmarks.programs.changing import Changing
from benchmarks.programs.host_work import COMPUTE, TIMES, late_work_of, work_of
from benchmarks.programs.leaving import ROOTED, Scatter
from benchmarks.programs.machine import (
    CALL,
    COLLECTIVE,
    COPY,
    GRAPH,
    HOST,
    KERNEL,
    LOAD,
    MARK,
    MPI,
    POP,
    PUSH,
    RECORD,
    SYNC,
    THREAD,
    WAIT,
    execute,
)
from benchmarks.programs.model import RENEWED, Operation, Without

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.programs.machine import Timeline
    from benchmarks.programs.model import Cause, Program

INPUT = 9
SIDE = 11
PINNED, PAGEABLE = 25.0, 6.0
"""Bytes a ns of copies between host and device."""

EVENT_CALL_NS = 900
CALL_IN_GROUP_NS = 400
CAPTURED = 1
"""The step whose work is captured as a graph and replayed from then on."""

Layer = list[tuple[str, int, float]]
"""(part, index of the kernel, weight) of each kernel of a layer."""

_SLOWER = ("straggler", "slow-host", "missing-rank")
_SLOTS = 512

LATE_KERNELS = 4
"""Kernels of a rank that is late by work of its device."""


class Lowered:
    """The instructions of all ranks.

    Attributes:
        program: The source of the instructions.
        code: The instructions of each rank.
        members: The size of each communicator.
        kernels: The kinds of kernels that instructions refer to by their index.
        operations: What each operation is, by communicator and its number there.
    """

    def __init__(self, program: Program, without: Without | None = None) -> None:
        self.program = program
        self.without = without or Without()
        self.members = [len(c.ranks) for c in program.communicators]
        self.kernels: list[names.Kernel] = []
        self._numbers: dict[names.Kernel, int] = {}
        self._transfers: dict[tuple[int, int], int] = {}
        self.operations: dict[tuple[int, int], Operation] = {}
        random = np.random.default_rng(program.seed)
        self._link_noise = np.exp(0.04 * random.standard_normal(_SLOTS)).tolist()
        self._layers: dict[tuple[str, float] | None, tuple[Layer, Layer]] = {}
        self.layer()
        self.active = [c for i, c in enumerate(program.causes) if i not in self.without.causes]
        self.code = [_RankCode(self, rank).all_steps() for rank in range(program.grid.ranks)]

    def layer(self, others: tuple[str, float] | None = None) -> tuple[Layer, Layer]:
        """The kernels of a layer, forward and backward; where other kernels do a part: that part and their factor."""
        layer = self._layers.get(others)
        if layer is None:
            usual = names.layer_of(self.program.style)
            forward, backward = (names.other_kernels(part, *others) for part in usual) if others else usual
            layer = self._layers[others] = self._numbered(forward), self._numbered(backward)
        return layer

    def _numbered(self, layer: names.Layer) -> Layer:
        return [(part, self.number(kernel), weight) for part, kernel, weight in layer]

    def number(self, kernel: names.Kernel) -> int:
        """The index of a kind of kernel."""
        found = self._numbers.get(kernel)
        if found is None:
            found = self._numbers[kernel] = len(self.kernels)
            self.kernels.append(kernel)
        return found

    def execute(self, *, record: bool = False) -> Timeline:
        """Execute the instructions; members leave operations as the program's scatter wants it."""
        rooted = any(o.name in ROOTED for o in self.operations.values())
        leaving = Scatter(self, self.program.scatter) if self.program.scatter or rooted else None
        return execute(self.code, self.members, leaving, record=record)

    def transfer_ns(self, communicator: int, number: int, operation: Operation) -> int:
        """Time of a transfer, the same for all members."""
        self.operations[communicator, number] = operation
        if "communication" in self.without.natural:
            return 0
        key = communicator, number
        found = self._transfers.get(key)
        if found is None:
            link = self.program.communicators[communicator]
            noise = 1.0 if "noise" in self.without.natural else self._link_noise[(31 * communicator + number) % _SLOTS]
            slower = 1.0
            for cause in self.active:
                if cause.kind == "slow-communicator" and cause.communicator == communicator:
                    slower *= cause.amount
                if cause.kind == "low-bandwidth" and self._touched(cause, link.ranks):
                    slower *= cause.amount
            found = self._transfers[key] = int(link.transfer_ns(operation.name, operation.size_bytes) * noise * slower)
        return found

    def _touched(self, cause: Cause, ranks: Sequence[int]) -> bool:
        """Whether a communicator uses the link that a rank is slow on: its NIC, else its links within the host."""
        hosts = {self.program.grid.host_of(r) for r in ranks}
        return cause.ranks[0] in ranks and (len(hosts) > 1) == (cause.variant == "nic")

    def stream_of(self, communicator: int) -> int:
        """The stream of a communicator's kernels."""
        link = self.program.communicators[communicator]
        if link.role in ("dp", "shard") and any(c.kind == "serialized-communication" for c in self.active):
            return next(c.stream for c in self.program.communicators if c.role == "tp")
        if link.role in ("tp", "cp") and self.program.tp_on_compute:
            return COMPUTE
        return link.stream


class _RankCode:
    """Makes the instructions of one rank."""

    def __init__(self, lowered: Lowered, rank: int) -> None:
        self.low = lowered
        self.program = program = lowered.program
        self.rank = rank
        self.tensor, self.context, self.data, self.stage = program.grid.place(rank)
        self.roles = program.communicators_of[rank]
        self.free = lowered.without.natural
        self.out: list[tuple[Any, ...]] = []
        self.event = 0
        self.sequence: dict[int, int] = defaultdict(int)
        random = np.random.default_rng((program.seed, rank))
        self._noise = random.standard_normal((program.steps, _SLOTS))
        self._noise_of_device = float(random.standard_normal())  # no two devices run at the same clock
        self._host_noise = np.exp(0.25 * random.standard_normal(_SLOTS)).tolist()
        self.host: Iterator[float] = itertools.cycle(self._host_noise)
        self.z: Iterator[float] = iter(())
        self.collected: list[tuple[Any, ...]] | None = None
        self.last_of: dict[int, int] = {}
        self.mine = [c for c in lowered.active if not c.ranks or rank in c.ranks]
        self.now: dict[str, list[Cause]] = {}
        self.slow = self.gap = self.sigma = 1.0
        self.changing = Changing(program, rank)
        self.gathers: dict[int, int] = {}
        self.computed: list[int] = []
        self.side_works: list[tuple[int, Cause, int]] = []

    # What acts in a step

    def _begin(self, step: int) -> None:
        program = self.program
        self.step = step
        self.now = defaultdict(list)
        for cause in self.mine:
            if step in cause.steps:
                self.now[cause.kind].append(cause)
        warm = 1.0 + 0.3 * (step == 0 and program.warmup > 0)
        own = 1.0 if "noise" in self.free else 1.0 + 0.002 * self._noise_of_device
        self.slow = warm * own * math.prod(c.amount for kind in _SLOWER for c in self.now[kind])
        for cause in self.now["jitter"]:
            if cause.variant == "steps":
                self.slow *= math.exp(cause.amount * float(self._noise[step][-1]))
        self.gap = 0.0 if "host" in self.free else program.gap_ns
        self.gap *= math.prod(c.amount for c in self.now["launch-bound"] if c.variant == "slow launches")
        self.sigma = (
            0.0
            if "noise" in self.free
            else max([program.noise, *(c.amount for c in self.now["jitter"] if c.variant == "kernels")])
        )
        self.changing.begin(step, self.now)
        self.layers = self.changing.layers
        self.layer = self.low.layer(self.changing.other_kernels)
        scale = self.sigma
        self.z = itertools.cycle(np.exp(scale * self._noise[step] - scale * scale / 2).tolist())
        self.side_works = []
        self._plant_calls()

    def _plant_calls(self) -> None:
        """Add other host work than launches to layers of the step: (layer counted over the step, the work)."""
        layers = max(1, 2 * self.layers * self.program.micro)
        self.now["host-pause"] = [
            c for c in self.now["host-pause"] if c.variant != "in turn" or (self.step + self.rank) % 3 == 0
        ]
        for kind, times in TIMES.items():
            for cause in self.now[kind]:
                for n in range(times):
                    place = (cause.ranks[0] if cause.ranks else 0) * 7 + self.step * 5 + n * 3
                    self.side_works.append((place % layers, cause, int(cause.amount_in(self.step) / times)))

    # Instructions

    def _launch(self, kernel: int, base_ns: float, part: str = "", stream: int = COMPUTE, times: float = 1.0) -> None:
        work = times * self.changing.work_of(part)
        slower = self.slow * self.changing.slower(self.low.kernels[kernel])
        duration = max(1_000, int(base_ns * work * slower * next(self.z))) + self.changing.stall_ns(part)
        if self.collected is not None and stream == COMPUTE:
            self.collected.append((kernel, duration, work))
            return  # a graph has the same kernels on all ranks
        for _ in range(1 + self.changing.again(part)):
            gap = int(self.gap * next(self.host))
            self.out.append((KERNEL, stream, kernel, duration, gap, self._call(), work))

    def _call(self) -> int:
        return 0 if "host" in self.free else self.program.call_ns

    def _event_call(self) -> int:
        return 0 if "host" in self.free else EVENT_CALL_NS

    def _recorded(self, stream: int) -> int:
        """A new event, recorded in a stream; within a captured step nothing, for its stream is in order."""
        if self.collected is not None:
            return 0
        self.event += 1
        self.out.append((RECORD, stream, self.event, self._event_call()))
        return self.event

    def _wait(self, stream: int, event: int) -> None:
        if self.collected is None:
            self.out.append((WAIT, stream, event, self._event_call()))

    def _communicate(
        self,
        role: str,
        name: str,
        size_bytes: int,
        *,
        after: int | None = None,
        ordered: bool = True,
        direction: str = "",
    ) -> int:
        """Launch an operation of a communicator; its kernel waits for `after`, or for all work so far if `ordered`.

        Returns:
            The event of its end.
        """
        index = self.roles[role]
        renewed = role == "dp" and self.step >= RENEWED and self.program.special in ("split", "re-created")
        operation = Operation(name, size_bytes, direction, renewed)
        if self.collected is not None:
            return self._capture(index, operation)
        stream = self._stream_for(index)
        if stream != COMPUTE:
            if after is not None:
                self._wait(stream, after)
            elif ordered:
                self._wait(stream, self._recorded(COMPUTE))
        self._open([(index, operation)])
        self._issue(index, stream, operation)
        self._close()
        event = self._recorded(stream) if stream != COMPUTE else 0
        self.last_of[index] = event
        return event

    def _stream_for(self, index: int) -> int:
        """The stream of the next operation of a communicator; where it has two, NCCL keeps its operations in order."""
        stream = self.low.stream_of(index)
        if self.program.special == "two streams" and stream != COMPUTE:
            stream += self.sequence[index] % 2
            if index in self.last_of:
                self._wait(stream, self.last_of[index])
        return stream

    def _open(self, calls: list[tuple[int, Operation]]) -> None:
        """Begin the ranges of calls of NCCL; those of a group take time before it is launched."""
        view = self.program.view
        if view.nccl != "none":
            self.out.append((PUSH, calls[0][1].name, "NCCL", calls))
            if view.groups and "host" not in self.free:
                self.out.append(
                    (HOST, CALL_IN_GROUP_NS * (1 + sum(o.calls(self.low.members[index]) for index, o in calls)))
                )

    def _close(self) -> None:
        if self.program.view.nccl != "none":
            self.out.append((POP,))

    def _issue(self, index: int, stream: int, operation: Operation) -> None:
        number = self.sequence[index]
        self.sequence[index] += 1
        transfer = self.low.transfer_ns(index, number, operation)
        kernel = self.low.number(names.nccl_kernel(operation.name, self.program.style))
        gap = int(1.5 * self.gap * next(self.host))
        self.out.append((COLLECTIVE, stream, kernel, transfer, gap, 2 * self._call(), index, number))

    def _together(self, roles: Sequence[str], size_bytes: int) -> None:
        """All-reduces of several communicators in one group of NCCL, which the next kernel needs."""
        indices = [self.roles[role] for role in roles]
        operation = Operation("AllReduce", size_bytes)
        streams = [self._stream_for(index) for index in indices]
        for stream in streams:
            if stream != COMPUTE:
                self._wait(stream, self._recorded(COMPUTE))
        self._open([(index, operation) for index in indices])
        for index, stream in zip(indices, streams, strict=True):
            self._issue(index, stream, operation)
        self._close()
        for stream in streams:
            if stream != COMPUTE:
                self._wait(COMPUTE, self._recorded(stream))

    def _capture(self, index: int, operation: Operation) -> int:
        """An operation as a node of the step's graph; its ranges exist in the step in which it is captured."""
        number = self.sequence[index]
        self.sequence[index] += 1
        if self.step == CAPTURED:
            self._open([(index, operation)])
            self.out.append((HOST, 2 * CALL_IN_GROUP_NS))
            self._close()
        kernel = self.low.number(names.nccl_kernel(operation.name, self.program.style))
        if self.collected is not None:
            self.collected.append((kernel, self.low.transfer_ns(index, number, operation), 1.0, index, number))
        return 0

    def _blocking(self, role: str, name: str, size_bytes: int, direction: str = "") -> None:
        """An operation that the next kernel needs."""
        event = self._communicate(role, name, size_bytes, direction=direction)
        if event:
            self._wait(COMPUTE, event)

    def _copy(
        self, stream: int, direction: str, size_bytes: int, *, blocks: bool = False, memory: str = "pinned"
    ) -> None:
        rate = PAGEABLE if memory == "pageable" else PINNED
        duration = 0 if "copies" in self.free else 1_200 + int(size_bytes / rate)
        self.out.append((COPY, stream, direction, size_bytes, duration, int(self.gap), self._call(), blocks, memory))

    def _read_scalar(self, stream: int) -> None:
        """Copy one number to memory that is not pinned; the wait for it is the caller's."""
        duration = 0 if "copies" in self.free else 1_200
        self.out.append((COPY, stream, "DtoH", 4, duration, int(self.gap), self._call(), False, "pageable"))

    def _sync(self, name: str = "cudaStreamSynchronize_v3020", stream: int | None = COMPUTE) -> None:
        self.out.append((SYNC, stream, int(self.gap), name))

    def _push(self, text: str, *, shown: bool = True) -> None:
        if shown:
            self.out.append((PUSH, text, "", None))

    def _pop(self, *, shown: bool = True) -> None:
        if shown:
            self.out.append((POP,))

    # The program

    def all_steps(self) -> list[tuple[Any, ...]]:
        """The instructions of the rank."""
        for step in range(self.program.steps):
            self._begin(step)
            text = self.program.view.step_text
            self._push((text or "").format(step), shown=text is not None)
            self._step()
            self._pop(shown=text is not None)
            self.out.append((MARK, step))
        return self.out

    def _step(self) -> None:
        program = self.program
        self.layer_count = 0
        if self.step < program.warmup:
            for call in ("cuLibraryLoadData", "cudaMalloc_v3020"):
                self.out.append((CALL, call, 900_000 // (1 + self.step), False))
            self.out.append((HOST, program.layer_ns * 2))
        if program.zero in (1, 2) and self.step and not program.mpi:
            self._gather_parameters()
        if program.special in ("split", "re-created") and self.step == RENEWED and "dp" in self.roles:
            self._renew()
        if program.special.startswith("captured") and self.step >= CAPTURED:
            self.collected = []
        if program.rooted and "dp" in self.roles:
            self._blocking("dp", "Broadcast", 8_192)
        if program.batched and program.grid.pp > 1:
            self._batched_schedule()
        else:
            for kind, micro in self._schedule():
                if kind == "F":
                    self._forward()
                else:
                    self._backward(micro)
        self._finish()
        if program.rooted and "dp" in self.roles:
            self._communicate("dp", "Reduce", 64)
        if program.meets_after(self.step):
            self._meet()
        if self.step == program.checkpoint:
            self._sync("cudaDeviceSynchronize_v3020", None)
            self._copy(SIDE, "DtoH", 8 * program.parameter_bytes, blocks=True)
            self.out.append((HOST, 20 * program.layer_ns))

    def _schedule(self) -> list[tuple[str, int]]:
        """One forward, one backward: a stage runs ahead by the number of stages after it."""
        program = self.program
        ahead = min(program.micro, program.grid.pp - 1 - self.stage)
        order = [("F", m) for m in range(ahead)]
        for m in range(program.micro - ahead):
            order += [("F", ahead + m), ("B", m)]
        return order + [("B", m) for m in range(program.micro - ahead, program.micro)]

    def _batched_schedule(self) -> None:
        """The same order, where a stage sends and receives in one group what it exchanges with a neighbour at once."""
        micro, later = self.program.micro, self.program.grid.pp - 1 - self.stage
        ahead = min(micro, later)
        for _ in range(ahead):
            self._exchange("<", "forward")
            self._forward()
            self._exchange(">", "forward")
        if micro > ahead:
            self._exchange("<", "forward")
        for done in range(1, micro - ahead + 1):
            self._forward()
            self._exchange(">", "both")
            self._backward(done - 1)
            self._exchange("<", "both" if done < micro - ahead else "backward")
        for done in range(micro - ahead, micro):
            self._exchange(">", "backward")
            self._backward(done)
            self._exchange("<", "backward")

    def _exchange(self, side: str, direction: str) -> None:
        if f"exchange{side}" in self.roles:
            self._blocking(f"exchange{side}", "SendRecv", self.program.activation_bytes, direction)

    def _gather_parameters(self) -> None:
        """ZeRO-1: what the optimizer has updated in shards is gathered before it is used."""
        if "dp" in self.roles:
            self._push("all_gather_params", shown=self.program.view.phases)
            self._blocking("dp", "AllGather", self.program.parameter_bytes * self.program.layers)
            self._pop(shown=self.program.view.phases)

    def _batch(self) -> None:
        """Wait for the loader, and copy the batch to the device."""
        program = self.program
        workers, depth, took = program.loader_workers, 2 * program.loader_workers, float(program.loader_ns)
        for cause in self.now["data-stall"]:
            if cause.variant == "host loads":
                workers, depth, took = 0, 0, cause.amount / program.micro
            else:
                took = max(took, cause.amount / program.micro * workers)
        took *= 1 + 0.1 * (next(self.host) - 1)
        self.out.append((LOAD, workers, depth, int(took), program.view.data_text or "", program.view.osrt))
        if program.input_stream:
            self._copy(INPUT, "HtoD", program.input_bytes)
            self._wait(COMPUTE, self._recorded(INPUT))
        else:
            self._copy(COMPUTE, "HtoD", program.input_bytes)
        for cause in (
            c for c in self.mine_or_gone("pageable-copy", "sync-copy", "exposed-transfer") if self.step in c.steps
        ):
            self._planted_copy(cause)

    def mine_or_gone(self, *kinds: str) -> list[Cause]:
        """The planted causes of this rank of these kinds, also those that are left out: they are then done right."""
        return [c for c in self.program.causes if c.kind in kinds and (not c.ranks or self.rank in c.ranks)]

    def _planted_copy(self, cause: Cause) -> None:
        rate = PAGEABLE if cause.kind == "pageable-copy" else PINNED
        size = max(65_536, int(cause.amount * rate / self.program.micro))
        direction = "DtoH" if cause.variant == "DtoH" else "HtoD"
        if cause not in self.now[cause.kind]:
            self._copy(INPUT if direction == "HtoD" else SIDE, direction, size)
        elif cause.kind == "pageable-copy":
            self._copy(COMPUTE, direction, size, blocks=True, memory="pageable")
        else:
            self._copy(COMPUTE, direction, size, blocks=cause.kind == "sync-copy")

    def _forward(self) -> None:
        program = self.program
        self.out.append((THREAD, 0))
        self._batch()
        self._push("forward", shown=program.view.phases)
        if self.stage:
            if not program.batched:
                self._wait(COMPUTE, self._communicate("forward<", "SendRecv", program.activation_bytes))
        else:
            self._launch(self.low.number(names.kernel(names.EMBEDDING, 1024)), 0.04 * program.layer_ns, "embedding")
        self.computed = []
        for layer in range(self.layers):
            self._gathered(layer, layer + 1)
            self._layer(layer, self.layer[0], program.layer_ns)
            self._between_layers(forward=True)
        if self.stage < program.grid.pp - 1:
            if not program.batched:
                self._communicate("forward>", "SendRecv", program.activation_bytes)
        else:
            self._launch(self.low.number(names.kernel(names.LOSS, 2048, 256)), 0.06 * program.layer_ns, "loss")
        self._pop(shown=program.view.phases)

    def _backward(self, micro: int) -> None:
        program = self.program
        last = micro == program.micro - 1
        self._push("backward", shown=program.view.phases)
        self.out.append((THREAD, 1))  # frameworks launch backward from a separate thread
        if self.stage < program.grid.pp - 1 and not program.batched:
            self._wait(COMPUTE, self._communicate("backward>", "SendRecv", program.activation_bytes))
        self.computed = []
        every = max(1, self.layers // program.buckets)
        late: list[int] = []
        exposed = self.now["exposed-communication"]
        for done, layer in enumerate(range(self.layers - 1, -1, -1), 1):
            self._gathered(layer, layer - 1)
            self._layer(layer, self.layer[1], program.layer_ns)
            if program.zero == 3:
                self._reduce_shards()
            elif last and (done % every == 0 or layer == 0) and "dp" in self.roles and not program.mpi:
                size = program.parameter_bytes * (done - every * (done // every) or every)
                size = int(size * program.first_bucket) // 4 * 4 if done == every else size
                if exposed or not program.overlap:
                    late.append(size)
                else:
                    self._reduce_bucket(size)
            self._between_layers(forward=False)
        for size in late:
            self._reduce_bucket(size)
        if self.stage and not program.batched:
            self._communicate("backward<", "SendRecv", program.activation_bytes)
        self.out.append((THREAD, 0))
        self._pop(shown=program.view.phases)

    def _reduce_bucket(self, size_bytes: int) -> None:
        self.last_reduction = self._communicate("dp", "ReduceScatter" if self.program.zero else "AllReduce", size_bytes)

    def _reduce_shards(self) -> None:
        self.last_reduction = self._communicate("shard", "ReduceScatter", self.program.parameter_bytes)
        if "replicate" in self.roles:
            size = self.program.parameter_bytes // len(self.program.communicators[self.roles["shard"]].ranks)
            self.last_reduction = self._communicate("replicate", "AllReduce", size, after=self.last_reduction)

    def _gathered(self, layer: int, following: int) -> None:
        """With ZeRO-3, let the layer wait for its parameters, and gather the parameters of the next one meanwhile."""
        program = self.program
        if program.zero != 3:
            return
        if not program.prefetch or self.now["exposed-communication"]:
            self._blocking("shard", "AllGather", program.parameter_bytes)
            return
        if layer not in self.gathers:
            self.gathers[layer] = self._communicate("shard", "AllGather", program.parameter_bytes)
        if 0 <= following < program.layers:
            room = self.computed[-2] if len(self.computed) > 1 else None  # at most two layers' parameters are kept
            self.gathers[following] = self._communicate(
                "shard", "AllGather", program.parameter_bytes, after=room, ordered=False
            )
        self._wait(COMPUTE, self.gathers.pop(layer))

    def _layer(self, layer: int, kernels: Layer, layer_ns: int) -> None:
        program = self.program
        whole = program.view.graphs != "none"
        if whole:
            self.collected = []
        experts = program.grid.ep > 1 and layer % 2 == 1
        gemms = 0
        self._push(f"layer{layer}", shown=program.view.operators)
        for number, (part, kernel, weight) in enumerate(kernels):
            if part == "attention" and program.grid.cp > 1:
                self._ring_attention(kernel, weight * layer_ns)
            elif part == "mlp" and experts:
                if number == 0 or kernels[number - 1][0] != "mlp":
                    self._experts(list(itertools.takewhile(lambda k: k[0] == "mlp", kernels[number:])), layer_ns)
            else:
                self._launch(kernel, weight * layer_ns, part)
            gemms += part == "gemm"
            if program.grid.tp > 1 and part == "gemm" and gemms == 2:
                self._blocking("tp", "AllReduce", program.activation_bytes)
        if program.grid.tp > 1 and not experts:
            self._blocking("tp", "AllReduce", program.activation_bytes)
        for cause in self.now["launch-bound"]:
            if cause.variant == "tiny kernels":
                tiny = self.low.number(names.kernel(names.TINY, 2, 64, 16))
                for _ in range(int(cause.amount)):
                    self._launch(tiny, 2_000)
        if whole:
            graph, self.collected = self.collected or [], None
            self.out.append((GRAPH, COMPUTE, tuple(graph), None, int(self.gap * next(self.host)), 2 * self._call()))
        self._pop(shown=program.view.operators)
        if program.zero == 3:
            self.computed.append(self._recorded(COMPUTE))

    def _experts(self, kernels: Layer, layer_ns: int) -> None:
        """Send tokens to their experts, all at once or in parts, and back."""
        parts = self.program.halves
        self._launch(self.low.number(names.kernel(names.ROUTER, 256)), 0.02 * layer_ns, "router")
        for _ in range(parts):
            self._blocking("ep", "AllToAll", self.program.activation_bytes // parts)
            for _, kernel, weight in kernels:
                self._launch(kernel, weight * layer_ns, "expert", times=1 / parts)
            self._blocking("ep", "AllToAll", self.program.activation_bytes // parts)

    def _ring_attention(self, kernel: int, base_ns: float) -> None:
        """A part of the attention while keys and values of the next part travel."""
        parts = self.program.grid.cp
        for part in range(parts):
            event = (
                self._communicate("cp", "SendRecv", self.program.activation_bytes // parts) if part < parts - 1 else 0
            )
            self._launch(kernel, base_ns / parts, "attention")
            if event:
                self._wait(COMPUTE, event)

    def _between_layers(self, *, forward: bool) -> None:
        for place, cause, took_ns in self.side_works:
            if place == self.layer_count:
                self.out += work_of(cause, took_ns, self.program.view)
        self.layer_count += 1
        for cause in self.mine_or_gone("sync"):
            if self.step not in cause.steps or not forward or (cause.variant == "item" and self.layer_count % 2):
                continue
            acts = cause in self.now["sync"] and "sync" not in self.free
            if cause.variant == "item":
                self._read_scalar(COMPUTE if acts else SIDE)
            if acts:
                device = cause.variant == "device"
                self._sync(
                    "cudaDeviceSynchronize_v3020" if device else "cudaStreamSynchronize_v3020",
                    None if device else COMPUTE,
                )
            self.out.append((HOST, 0 if "host" in self.free else int(cause.amount)))

    def _finish(self) -> None:
        """Gradients, their norm, the optimizer, the loss."""
        program = self.program
        if program.mpi:
            self._reduce_on_hosts()
        elif "dp" in self.roles or program.zero == 3:
            self._wait(COMPUTE, self.last_reduction)
        self._push("optimizer", shown=program.view.phases)
        share = program.layer_ns * self.layers / program.optimizer_kernels
        if program.norm:
            norm = self.low.number(names.kernel(names.NORM_KERNEL, 512, 512, 40))
            self._launch(norm, 0.05 * program.layer_ns * self.layers, "gradient norm")
            if "norm" in self.roles:
                self._blocking("norm", "AllReduce", 8)
            if program.norm_item and "sync" not in self.free:
                self._read_scalar(COMPUTE)
                self._sync()
        adam = self.low.number(names.kernel(names.OPTIMIZER, 640, 512, 64))
        for _ in range(program.optimizer_kernels):
            self._launch(adam, 0.15 * share, "optimizer")
        self._pop(shown=program.view.phases)
        if program.special == "one group" and {"tp", "dp"} <= self.roles.keys():
            self._together(("tp", "dp"), 4_096)
        if self.collected is not None and program.special.startswith("captured"):
            nodes, self.collected = tuple(self.collected), None
            self.out.append((GRAPH, COMPUTE, nodes, None, int(self.gap * next(self.host)), 2 * self._call()))
        every = program.loss_item_every
        if every and self.step % every == 0 and "sync" not in self.free:
            self._read_scalar(COMPUTE)
            self._sync()

    def _meet(self) -> None:
        """A barrier of all ranks, for which hosts wait; before it a late rank has work of its own."""
        program = self.program
        for cause in self.now["late-rank"]:
            what, _, text = cause.variant.partition(": ")
            if what == "device":
                self._push(text, shown=bool(text))
                metrics = self.low.number(names.kernel(names.METRICS, 1_320, 512, 48))
                for _ in range(LATE_KERNELS):
                    self._launch(metrics, cause.amount / LATE_KERNELS)
                self._pop(shown=bool(text))
                continue
            if what == "checkpoint":
                self._copy(COMPUTE, "DtoH", int(cause.amount * PINNED / 10), blocks=True)
            elif what == "logging":  # it reads the loss first
                self._read_scalar(COMPUTE)
                self._sync()
            self.out += late_work_of(cause, int(cause.amount), program.view)
        self._communicate("barrier", "AllReduce", 4)
        if "sync" not in self.free:
            stream = None if program.barrier == "device" else self.low.stream_of(self.roles["barrier"])
            self._sync("cudaStreamSynchronize_v3020" if stream else "cudaDeviceSynchronize_v3020", stream)

    def _renew(self) -> None:
        """Replace the data-parallel communicator."""
        index = self.roles["dp"]
        self._sync()
        names_of = {"split": ("CommSplit",), "re-created": ("CommAbort", "CommInitRankConfig")}[self.program.special]
        for name in names_of:
            if self.program.view.nccl != "none":
                self.out.append((PUSH, name, "NCCL", [(index, Operation(name, 0, renewed=name != "CommAbort"))]))
            self.out.append((HOST, 300_000))
            self._close()

    def _reduce_on_hosts(self) -> None:
        program = self.program
        index = self.roles["dp"]
        for _ in range(program.buckets):
            size = program.parameter_bytes * program.layers // program.buckets
            self._sync()
            if program.staged:
                self._copy(COMPUTE, "DtoH", size, blocks=True)
            number = self.sequence[index]
            self.sequence[index] += 1
            transfer = self.low.transfer_ns(index, number, Operation("AllReduce", size))
            self.out.append((MPI, "MPI_Allreduce", transfer, index, number, size))
            if program.staged:
                self._copy(COMPUTE, "HtoD", size)
