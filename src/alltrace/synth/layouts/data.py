"""Data parallel training, with or without tensor parallel groups."""

from __future__ import annotations

import numpy as np

from alltrace.synth import kernels
from alltrace.synth.layouts.base import Frame
from alltrace.synth.program import (
    COMPUTE_STREAM,
    DATA_STREAM_OF_NCCL,
    MAIN_THREAD,
    TENSOR_STREAM_OF_NCCL,
    Collective,
    Op,
    Pop,
    Push,
    StreamWait,
)
from alltrace.synth.scenario import Scenario


class DataParallel(Frame):
    """Data parallel over hosts, optionally with tensor parallel groups of neighbouring ranks inside a host.

    The first group holds all ranks. Gradients are all-reduced in buckets while the backward pass continues; the last bucket
    is ready only at its end, so its all-reduce is exposed.
    """

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
