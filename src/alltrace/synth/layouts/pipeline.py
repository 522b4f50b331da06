"""Pipeline parallel training: each stage has some of the layers, and microbatches pass through one after the other."""

from __future__ import annotations

import numpy as np

from alltrace.synth import kernels
from alltrace.synth.layouts.base import Frame
from alltrace.synth.program import (
    COMPUTE_STREAM,
    DATA_STREAM_OF_NCCL,
    MAIN_THREAD,
    NEXT_STREAM_OF_NCCL,
    PREVIOUS_STREAM_OF_NCCL,
    Collective,
    Op,
    Pop,
    Push,
    StreamWait,
)
from alltrace.synth.scenario import Scenario


class PipelineParallel(Frame):
    """One forward, one backward (1F1B) over the stages, data parallel over the ranks of a stage.

    Stages are blocks of ranks; rank `r` hands activations to `r + width`, where `width` is the number of ranks of a stage, over a
    communicator of these two. A matching send and receive are one group of calls and one kernel. The gradients of a stage are
    all-reduced while the last microbatch goes back.
    """

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
            ops += [*self._next(rank, receives=True), *self._backward(rank, batch, rng), *self._previous(rank, sends=True)]
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
