"""The families of layouts: data, pipeline, expert and fully sharded parallel training."""

from __future__ import annotations

import numpy as np

from alltrace.synth import kernels
from alltrace.synth.layouts.base import Frame
from alltrace.synth.program import (
    COMPUTE_STREAM,
    DATA_STREAM_OF_NCCL,
    EXPERT_STREAM_OF_NCCL,
    GATHER_STREAM_OF_NCCL,
    MAIN_THREAD,
    NEXT_STREAM_OF_NCCL,
    PREVIOUS_STREAM_OF_NCCL,
    TENSOR_STREAM_OF_NCCL,
    Collective,
    Op,
    Pop,
    Push,
    StreamWait,
)
from alltrace.synth.scenario import Scenario


# The gather of the next layer is requested before the kernels of this one, so that only the first of a pass is exposed.
# Gathers and reductions have separate communicators and streams, both of all ranks.
class FullySharded(Frame):
    """Parameters are all-gathered before each layer's passes, gradients reduce-scattered after."""

    def __init__(self, scenario: Scenario) -> None:
        everyone = tuple(range(scenario.layout.ranks))
        super().__init__(scenario, [("gather", everyone), ("reduce", everyone)])

    def streams(self, rank: int) -> tuple[int, ...]:
        return (DATA_STREAM_OF_NCCL,)

    def body(self, rank: int, step: int, rng: np.random.Generator) -> list[Op]:
        work = self.scenario.work
        ops: list[Op] = [Push("forward"), self._gather(MAIN_THREAD)]
        for layer in range(work.layers):
            ops += [Push(f"layer {layer}"), *self._gathered(MAIN_THREAD, layer < work.layers - 1)]
            ops += [*self.kernels(kernels.FORWARD, work.kernels_per_layer, rng, MAIN_THREAD), Pop()]
        return [*ops, Pop(), *self.backward(lambda thread: self._backward(rng, thread))]

    def _backward(self, rng: np.random.Generator, thread: int) -> list[Op]:
        work = self.scenario.work
        ops: list[Op] = [self._gather(thread)]
        reduce = self.number("reduce")
        for layer in reversed(range(work.layers)):
            ops += [Push(f"backward layer {layer}", thread), *self._gathered(thread, layer > 0)]
            ops += self.kernels(kernels.BACKWARD, 2 * work.kernels_per_layer, rng, thread)
            ops += [Collective(reduce, "ReduceScatter", self._part, DATA_STREAM_OF_NCCL, thread=thread), Pop(thread)]
        return ops

    @property
    def _part(self) -> int:
        return self.scenario.work.gradient_bytes // (self.scenario.work.layers * self.scenario.layout.ranks)

    def _gather(self, thread: int) -> Collective:
        return Collective(self.number("gather"), "AllGather", self._part, GATHER_STREAM_OF_NCCL, thread=thread)

    def _gathered(self, thread: int, more: bool) -> list[Op]:
        """Waits for this layer's parameters and requests the next one's, which start when the last layer is done."""
        ops: list[Op] = [StreamWait(COMPUTE_STREAM, GATHER_STREAM_OF_NCCL, thread)]
        return [*ops, self._gather(thread)] if more else ops


# Every layer has its attention kernels, an all-to-all that sends the tokens, the expert's kernels, and an all-to-all
# that brings them back. Gradients of the attention are all-reduced over all ranks, gradients of the experts over the
# ranks with the same experts.
class ExpertParallel(Frame):
    """A mixture of experts: attention is data parallel over all ranks, experts are on a group's neighbours."""

    def __init__(self, scenario: Scenario) -> None:
        layout = scenario.layout
        self._width = width = layout.expert_parallel
        firsts = range(0, layout.ranks, width)
        communicators = [(f"expert {first // width}", tuple(range(first, first + width))) for first in firsts]
        if layout.ranks > width:
            communicators += [(f"data {place}", tuple(range(place, layout.ranks, width))) for place in range(width)]
        super().__init__(scenario, communicators)

    def streams(self, rank: int) -> tuple[int, ...]:
        return (DATA_STREAM_OF_NCCL, EXPERT_STREAM_OF_NCCL)[: 2 if self.scenario.layout.ranks > self._width else 1]

    def body(self, rank: int, step: int, rng: np.random.Generator) -> list[Op]:
        work = self.scenario.work
        ops: list[Op] = [Push("forward")]
        for layer in range(work.layers):
            ops += [Push(f"layer {layer}"), *self._layer(rank, rng, MAIN_THREAD, kernels.FORWARD, 1), Pop()]
        return [*ops, Pop(), *self.backward(lambda thread: self._backward(rank, rng, thread))]

    def _backward(self, rank: int, rng: np.random.Generator, thread: int) -> list[Op]:
        work = self.scenario.work
        ops: list[Op] = []
        ready = {round((number + 1) * work.layers / work.buckets): number for number in range(work.buckets)}
        for done in range(1, work.layers + 1):
            ops += [Push(f"backward layer {work.layers - done}", thread)]
            ops += [*self._layer(rank, rng, thread, kernels.BACKWARD, 2), Pop(thread)]
            if done in ready:
                ops += self._gradients(rank, thread)
        return ops

    def _gradients(self, rank: int, thread: int) -> list[Op]:
        size = self.scenario.work.gradient_bytes // (2 * self.scenario.work.buckets)
        ops: list[Op] = [Collective(0, "AllReduce", size, DATA_STREAM_OF_NCCL, thread=thread)]
        if self.scenario.layout.ranks > self._width:
            group = self.number(f"data {rank % self._width}")
            ops.append(Collective(group, "AllReduce", size, EXPERT_STREAM_OF_NCCL, thread=thread))
        return ops

    def _layer(self, rank: int, rng: np.random.Generator, thread: int, menu: tuple[int, ...], times: int) -> list[Op]:
        half = max(times * self.scenario.work.kernels_per_layer // 2, 1)
        return [
            *self.kernels(menu, half, rng, thread),
            *self._exchange(rank, thread),
            Push("experts", thread),
            *self.kernels(menu[:3], half, rng, thread, "expert"),
            Pop(thread),
            *self._exchange(rank, thread),
        ]

    def _exchange(self, rank: int, thread: int) -> list[Op]:
        size = self.scenario.work.activation_bytes // self._width
        group = self.number(f"expert {rank // self._width}")
        return [
            Collective(group, "AlltoAll", size, TENSOR_STREAM_OF_NCCL, thread=thread),
            StreamWait(COMPUTE_STREAM, TENSOR_STREAM_OF_NCCL, thread),
        ]


# Stages are blocks of ranks; rank `r` hands activations to `r + width`, where `width` is the number of ranks of a
# stage, over a communicator of these two. A matching send and receive are one group of calls and one kernel. The
# gradients of a stage are all-reduced while the last microbatch goes back.
class PipelineParallel(Frame):
    """One forward, one backward (1F1B) over the stages, data parallel over the ranks of a stage."""

    def __init__(self, scenario: Scenario) -> None:
        layout = scenario.layout
        self._stages = layout.pipeline_stages
        self._width = width = layout.ranks // self._stages
        communicators: list[tuple[str, tuple[int, ...]]]
        communicators = [(f"pipe {rank}-{rank + width}", (rank, rank + width)) for rank in range(layout.ranks - width)]
        if width > 1:
            communicators += [(f"stage {s}", tuple(range(s * width, (s + 1) * width))) for s in range(self._stages)]
        super().__init__(scenario, communicators)

    def streams(self, rank: int) -> tuple[int, ...]:
        return (DATA_STREAM_OF_NCCL,) if self._width > 1 else ()

    def body(self, rank: int, step: int, rng: np.random.Generator) -> list[Op]:
        """All microbatches: the stage fills, goes one forward and one backward, and drains."""
        stage, batches = rank // self._width, self.scenario.work.microbatches
        filling = min(self._stages - 1 - stage, batches)
        ops: list[Op] = []
        for batch in range(filling):
            ops += [*self._previous(rank, receives=True), *self._forward(batch, rng), *self._next(rank, sends=True)]
        steady = batches - filling
        if steady:
            ops += self._previous(rank, receives=True)
        for turn in range(steady):
            ops += [*self._forward(filling + turn, rng), *self._next(rank, sends=True, receives=True)]
            ops += [*self._backward(rank, turn, rng), *self._previous(rank, sends=True, receives=turn < steady - 1)]
        for batch in range(steady, batches):
            ops += [
                *self._next(rank, receives=True),
                *self._backward(rank, batch, rng),
                *self._previous(rank, sends=True),
            ]
        return ops

    def _previous(self, rank: int, sends: bool = False, receives: bool = False) -> list[Op]:
        if rank < self._width:
            return []
        return self._exchange(f"pipe {rank - self._width}-{rank}", PREVIOUS_STREAM_OF_NCCL, sends, receives)

    def _next(self, rank: int, sends: bool = False, receives: bool = False) -> list[Op]:
        if rank + self._width >= self.scenario.layout.ranks:
            return []
        return self._exchange(f"pipe {rank}-{rank + self._width}", NEXT_STREAM_OF_NCCL, sends, receives)

    def _exchange(self, name: str, stream: int, sends: bool, receives: bool) -> list[Op]:
        size = self.scenario.work.activation_bytes
        # what is only received depends on nothing here
        after = COMPUTE_STREAM if sends else None
        ops: list[Op] = [Collective(self.number(name), "SendRecv", size, stream, after, sends=sends, receives=receives)]
        return [*ops, StreamWait(COMPUTE_STREAM, stream)] if receives else ops

    @property
    def _layers(self) -> int:
        return self.scenario.work.layers // self._stages

    def _forward(self, batch: int, rng: np.random.Generator) -> list[Op]:
        count = self.scenario.work.kernels_per_layer
        ops: list[Op] = [Push(f"forward microbatch {batch}")]
        for layer in range(self._layers):
            ops += [Push(f"layer {layer}"), *self.kernels(kernels.FORWARD, count, rng, MAIN_THREAD), Pop()]
        return [*ops, Pop()]

    def _backward(self, rank: int, batch: int, rng: np.random.Generator) -> list[Op]:
        work = self.scenario.work
        ops: list[Op] = [Push(f"backward microbatch {batch}")]
        buckets = min(work.buckets, self._layers) if self._width > 1 and batch == work.microbatches - 1 else 0
        ready = {round((number + 1) * self._layers / buckets) for number in range(buckets)}
        for done in range(1, self._layers + 1):
            ops += [Push(f"backward layer {self._layers - done}")]
            ops += [*self.kernels(kernels.BACKWARD, 2 * work.kernels_per_layer, rng, MAIN_THREAD), Pop()]
            if done in ready:
                group = self.number(f"stage {rank // self._width}")
                ops.append(Collective(group, "AllReduce", work.gradient_bytes // buckets, DATA_STREAM_OF_NCCL))
        return [*ops, Pop()]


# The first group holds all ranks. Gradients are all-reduced in buckets while the backward pass continues; the last
# bucket is ready only at its end, so its all-reduce is exposed.
class DataParallel(Frame):
    """Data parallel over hosts, optionally with tensor parallel groups of neighbouring ranks inside a host."""

    def __init__(self, scenario: Scenario) -> None:
        layout = scenario.layout
        width = layout.tensor_parallel
        communicators = []
        if width > 1:
            communicators = [(f"data {place}", tuple(range(place, layout.ranks, width))) for place in range(width)]
            firsts = range(0, layout.ranks, width)
            communicators += [(f"tensor {first // width}", tuple(range(first, first + width))) for first in firsts]
        super().__init__(scenario, communicators)
        self._width = width

    def streams(self, rank: int) -> tuple[int, ...]:
        return (DATA_STREAM_OF_NCCL,) if self.scenario.layout.ranks > 1 else ()

    def body(self, rank: int, step: int, rng: np.random.Generator) -> list[Op]:
        return [*self._forward(rank, rng), *self.backward(lambda thread: self._backward(rank, rng, thread))]

    def _forward(self, rank: int, rng: np.random.Generator) -> list[Op]:
        work = self.scenario.work
        ops: list[Op] = [Push("forward")]
        for layer in range(work.layers):
            ops += [Push(f"layer {layer}"), *self.kernels(kernels.FORWARD, work.kernels_per_layer, rng, MAIN_THREAD)]
            ops += [*self._share(rank, MAIN_THREAD), Pop()]
        return [*ops, Pop()]

    def _backward(self, rank: int, rng: np.random.Generator, thread: int) -> list[Op]:
        work, layout = self.scenario.work, self.scenario.layout
        group = self.number("world" if self._width == 1 else f"data {rank % self._width}")
        ops: list[Op] = []
        bounds = np.linspace(0, work.layers, work.buckets + 1).round().astype(int)
        for bucket in range(work.buckets):
            for done in range(bounds[bucket], bounds[bucket + 1]):
                layer = work.layers - 1 - done
                ops += [
                    Push(f"backward layer {layer}", thread),
                    *self.kernels(kernels.BACKWARD, 2 * work.kernels_per_layer, rng, thread),
                    *self._share(rank, thread),
                    Pop(thread),
                ]
            if layout.ranks > layout.tensor_parallel:
                size = work.gradient_bytes // work.buckets
                ops.append(Collective(group, "AllReduce", size, DATA_STREAM_OF_NCCL, thread=thread))
        return ops

    def _share(self, rank: int, thread: int) -> list[Op]:
        if self._width == 1:
            return []
        size = self.scenario.work.activation_bytes
        group = self.number(f"tensor {rank // self._width}")
        return [
            Collective(group, "AllReduce", size, TENSOR_STREAM_OF_NCCL, thread=thread),
            StreamWait(COMPUTE_STREAM, TENSOR_STREAM_OF_NCCL, thread),
        ]
