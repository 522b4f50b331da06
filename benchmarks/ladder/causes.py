"""The causes: the training's settings on the slow side and on the fast side, and the right kind of finding."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, fields, replace


@dataclass(frozen=True)
class Settings:
    """What one training does.

    Attributes:
        model: `transformer` or `resnet`.
        size: `usual`, `tiny` for kernels shorter than their launches, or `large` for batches that take long to copy.
        workers: Processes of the data loader; 0 loads in the training process, None takes one batch made beforehand.
        passes: Passes of the transform that the loader applies to each sample.
        pinned: Batches come from page-locked memory, and their copies do not block the host.
        reads: `.item()` of the loss and of the gradient norm of each parameter, in each step; both are computed either
            way.
        graph: The whole step is one CUDA graph.
        compiled: The model goes through `torch.compile`.
        precision: `fp32`, `tf32`, or `bf16` by autocast.
        fused_attention: Attention by a fused kernel, not by products and a softmax.
        empties_cache: `torch.cuda.empty_cache()` in each step.
        sleep_ms: How long the host sleeps in each step.
        collects: `gc.collect()` in each step.
        live_objects: Objects that a collection has to look at.
        neighbour: A second process computes on the same device all the time.
    """

    model: str = "transformer"
    size: str = "usual"
    workers: int | None = None
    passes: int = 1
    pinned: bool = True
    reads: bool = False
    graph: bool = False
    compiled: bool = False
    precision: str = "bf16"
    fused_attention: bool = True
    empties_cache: bool = False
    sleep_ms: int = 0
    collects: bool = False
    live_objects: int = 0
    neighbour: bool = False


@dataclass(frozen=True)
class Cause:
    """A switch between two trainings.

    Attributes:
        name: As `--only` takes it.
        slow: The training that has the cause.
        fast: The same without it: one setting differs.
        kinds: Kinds of findings of which one should come first for the slow side.
        needs_cuda: Whether there is nothing to measure without a GPU.
    """

    name: str
    slow: Settings
    fast: Settings
    kinds: tuple[str, ...]
    needs_cuda: bool = False

    @property
    def switch(self) -> str:
        """The setting that differs, with its values: `pinned: False to True`."""
        slow, fast = asdict(self.slow), asdict(self.fast)
        return ", ".join(
            f"{f.name}: {slow[f.name]} to {fast[f.name]}" for f in fields(Settings) if slow[f.name] != fast[f.name]
        )


def _several() -> int:
    """Loader processes that help: one for each core except the training's, 2 to 8."""
    return max(2, min(8, len(os.sched_getaffinity(0)) - 1))


_USUAL = Settings()
_TINY = Settings(size="tiny", precision="fp32")
_LOADED = Settings(model="resnet", workers=_several())
_COPIED = Settings(model="resnet", size="large")
_HEAP = Settings(live_objects=1_000_000)

CAUSES = (
    Cause("loader-workers", replace(_LOADED, workers=0), _LOADED, ("data-stall",)),
    Cause("slow-transform", replace(_LOADED, passes=50), _LOADED, ("data-stall",)),
    Cause("pageable-copies", replace(_COPIED, pinned=False), _COPIED, ("pageable-copy",), needs_cuda=True),
    Cause("sync-each-step", replace(_USUAL, reads=True), _USUAL, ("sync",)),
    Cause("cuda-graph", _TINY, replace(_TINY, graph=True), ("launch-bound", "small-kernels"), needs_cuda=True),
    Cause("compile", _TINY, replace(_TINY, compiled=True), ("launch-bound", "small-kernels", "fusion")),
    Cause(
        "tf32", replace(_USUAL, precision="fp32"), replace(_USUAL, precision="tf32"), ("precision",), needs_cuda=True
    ),
    Cause("bf16", replace(_USUAL, precision="fp32"), _USUAL, ("precision",)),
    Cause("attention", replace(_USUAL, fused_attention=False), _USUAL, ("attention",)),
    Cause("allocator", replace(_USUAL, empties_cache=True), _USUAL, ("allocation",), needs_cuda=True),
    Cause("host-sleep", replace(_USUAL, sleep_ms=50), _USUAL, ("host-pause",)),
    Cause("garbage", replace(_HEAP, collects=True), _HEAP, ("host-pause",)),
    Cause("shared-gpu", replace(_USUAL, neighbour=True), _USUAL, ("shared-device",)),
)
