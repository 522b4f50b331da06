"""Expert parallel training: tokens go to the rank that has their expert, and back, in every layer."""

from __future__ import annotations

import numpy as np

from alltrace.synth import kernels
from alltrace.synth.layouts.base import Frame
from alltrace.synth.program import (
    COMPUTE_STREAM,
    DATA_STREAM_OF_NCCL,
    EXPERT_STREAM_OF_NCCL,
    MAIN_THREAD,
    TENSOR_STREAM_OF_NCCL,
    Collective,
    Op,
    Pop,
    Push,
    StreamWait,
)
from alltrace.synth.scenario import Scenario


class ExpertParallel(Frame):
    """A mixture of experts: attention is data parallel over all ranks, experts are on the neighbouring ranks of a group.

    Every layer has its attention kernels, an all-to-all that sends the tokens, the expert's kernels, and an all-to-all that brings
    them back. Gradients of the attention are all-reduced over all ranks, gradients of the experts over the ranks with the same
    experts.
    """

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
