"""What all layouts share: the frame of a step, the batch, the optimizer, checkpoints, and drawn kernels."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from alltrace.synth import kernels
from alltrace.synth.program import (
    AUTOGRAD_THREAD,
    COMPUTE_STREAM,
    MAIN_THREAD,
    SIDE_STREAMS,
    Call,
    Compute,
    Copy,
    Group,
    Handover,
    HostCollective,
    HostWork,
    Memset,
    Op,
    Pop,
    Push,
    StreamWait,
    Synchronize,
)
from alltrace.synth.scenario import STEP_NAMES, Scenario

_WARMUP_MALLOC_NS = 200_000
_SIDE_SHARES = (0.8, 0.12)


class Frame:
    """The base of all layouts: what happens in a step before and after the part that the layout is about."""

    def __init__(self, scenario: Scenario, communicators: Sequence[tuple[str, tuple[int, ...]]]) -> None:
        self.scenario = scenario
        ranks = scenario.layout.ranks
        members = [("world", tuple(range(ranks))), *communicators]
        rng = np.random.default_rng((scenario.seed, 2))
        hashes = rng.integers(1 << 40, 1 << 62, size=max(2 * ranks + 1, len(members))).tolist()
        # the communicators; the first one holds all ranks
        self.groups: tuple[Group, ...] = tuple(
            Group(name, who, one) for (name, who), one in zip(members, hashes, strict=False)
        )
        self._numbers = {group.name: number for number, group in enumerate(self.groups)}

    def number(self, name: str) -> int:
        return self._numbers[name]

    def body(self, rank: int, step: int, rng: np.random.Generator) -> list[Op]:
        raise NotImplementedError

    def streams(self, rank: int) -> Iterable[int]:
        return ()

    def step(self, rank: int, step: int, rng: np.random.Generator) -> list[Op]:
        """The instructions of one rank and step, with durations drawn from `rng`, which is the rank's own."""
        work, environment = self.scenario.work, self.scenario.environment
        name = STEP_NAMES[environment.step_names].format(step)
        ops: list[Op] = [Push(name)] if name else []
        if environment.rank_source == "mpi" and self.scenario.layout.ranks > 1:
            ops.append(HostCollective(0, "MPI_Barrier"))
        ops += self._batch(rng)
        ops += self.body(rank, step, rng)
        ops += [Push("optimizer"), *(StreamWait(COMPUTE_STREAM, stream) for stream in self.streams(rank))]
        ops += [*self.kernels(kernels.OPTIMIZER, work.optimizer_kernels, rng, MAIN_THREAD, "optimizer"), Pop()]
        ops += [Push("loss"), Copy(4, 1_500, kind=2), Synchronize(), Pop()]
        if work.checkpoint_every and (step + 1) % work.checkpoint_every == 0:
            ops += self._checkpoint()
        if name:
            ops.append(Pop())
        if step < work.warmup_steps:
            ops = list(_warmed_up(ops, work.warmup_factor))
        return ops if work.nvtx else [op for op in ops if not isinstance(op, (Push, Pop))]

    def kernels(
        self, menu: tuple[int, ...], count: int, rng: np.random.Generator, thread: int, part: str = "layer"
    ) -> list[Op]:
        """`count` kernels, from the menu in turn; or with many names on three streams, if the work requires it."""
        # `menu`: indices into `KERNELS`. `rng`: where durations are drawn from. `part`: the part of the model.
        work = self.scenario.work
        if not work.kernel_names:
            chosen = np.resize(np.array(menu, np.int64), count)
            return [Compute(chosen, _durations(chosen, work.kernel_ns, work.jitter, rng), thread, part=part)]
        chosen = _varied(work.kernel_names)[rng.integers(0, 1 << 12, count)]
        durations = _durations(chosen, work.kernel_ns, work.jitter, rng)
        # whole operators on each stream
        unit = max(work.kernels_per_range, 1)
        first, second = (int(share * count) // unit * unit for share in _SIDE_SHARES)
        bounds = (0, first, first + second, count)
        return [
            Compute(chosen[begin:end], durations[begin:end], thread, stream, part)
            for stream, begin, end in zip((COMPUTE_STREAM, *SIDE_STREAMS), bounds[:-1], bounds[1:], strict=True)
        ]

    def backward(self, passes: Callable[[int], list[Op]]) -> list[Op]:
        """The backward pass, on the autograd thread if there is one, for which the main thread waits."""
        # `passes`: the instructions of all layers on a thread.
        thread = AUTOGRAD_THREAD if self.scenario.work.autograd_thread else MAIN_THREAD
        ops = passes(thread)
        if thread != MAIN_THREAD:
            ops = [Handover(MAIN_THREAD, thread), *ops, Handover(thread, MAIN_THREAD, call="pthread_cond_wait")]
        return [Push("backward"), *ops, Pop()]

    def _batch(self, rng: np.random.Generator) -> list[Op]:
        work, links = self.scenario.work, self.scenario.links
        copy_ns = 2_000 + int(work.batch_bytes / links.copy_gb_per_s)
        return [
            Push("data"),
            HostWork(int(work.data_ns * rng.uniform(0.9, 1.1)), call="read"),
            Copy(work.batch_bytes, copy_ns),
            Memset(1 << 20, 1_800),
            Pop(),
        ]

    def _checkpoint(self) -> list[Op]:
        work, links = self.scenario.work, self.scenario.links
        size = work.checkpoint_bytes // 8
        copies: list[Op] = [Copy(size, 2_000 + int(size / links.copy_gb_per_s), kind=2) for _ in range(8)]
        return [Push("checkpoint"), *copies, Synchronize(), HostWork(work.checkpoint_ns, call="write"), Pop()]


def _warmed_up(ops: list[Op], factor: float) -> Iterable[Op]:
    """A first step: kernels take longer, and memory is still being allocated."""
    for op in ops:
        if not isinstance(op, Compute):
            yield op
            continue
        if op.part != "optimizer":
            yield Call("cudaMalloc_v3020", _WARMUP_MALLOC_NS, thread=op.thread)
        yield dataclasses.replace(op, durations_ns=(op.durations_ns * factor).astype(np.int64))


_WEIGHTS = np.array([kernel.weight for kernel in kernels.KERNELS])


@cache
def _varied(names: int) -> NDArray[np.int64]:
    """4096 draws of kernels with many names, a few of them far more often than the others."""
    rng = np.random.default_rng(names)
    shares = 1.0 / (np.arange(names) + 4.0)
    first = kernels.FIRST_VARIED
    # every name is among them
    rest = rng.choice(names, size=(1 << 12) - names, p=shares / shares.sum())
    drawn: NDArray[np.int64] = first + rng.permutation(np.concatenate((np.arange(names), rest)))
    return drawn


def _durations(chosen: NDArray[np.int64], mean_ns: int, jitter: float, rng: np.random.Generator) -> NDArray[np.int64]:
    spread = np.exp(jitter * rng.standard_normal(len(chosen)))
    durations: NDArray[np.int64] = np.maximum(_WEIGHTS[chosen] * (mean_ns * spread), 500.0).astype(np.int64)
    return durations
