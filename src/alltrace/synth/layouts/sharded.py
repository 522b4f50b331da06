"""Fully sharded data parallel training: every rank keeps a part of each layer and gathers the rest when it is needed."""

from __future__ import annotations

import numpy as np

from alltrace.synth import kernels
from alltrace.synth.layouts.base import Frame
from alltrace.synth.program import (
    COMPUTE_STREAM,
    DATA_STREAM_OF_NCCL,
    GATHER_STREAM_OF_NCCL,
    MAIN_THREAD,
    Collective,
    Op,
    Pop,
    Push,
    StreamWait,
)
from alltrace.synth.scenario import Scenario


class FullySharded(Frame):
    """Parameters are all-gathered before each layer's forward and backward pass, gradients reduce-scattered after the latter.

    The gather of the next layer is requested before the kernels of this one, so that only the first of a pass is exposed. Gathers
    and reductions have separate communicators and streams, both of all ranks.
    """

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
        """Waits for this layer's parameters and requests the next one's, which start when the previous layer is done."""
        ops: list[Op] = [StreamWait(COMPUTE_STREAM, GATHER_STREAM_OF_NCCL, thread)]
        return [*ops, self._gather(thread)] if more else ops
