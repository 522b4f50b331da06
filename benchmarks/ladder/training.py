"""The training that is measured and recorded; run by `benchmarks.ladder`, on a Python that has PyTorch.

It reads settings from its standard input, one line of JSON for each training, and answers each with one line of JSON:
`step_ns`, the mean time of a step after the warm-up, with the device synchronised before and after.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from alltrace.instrument import annotate, steps, torch_profile
from benchmarks.ladder.batches import make_batches
from benchmarks.ladder.causes import Settings
from benchmarks.ladder.models import SIZES, make_model

FUSED = (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)
_BEFORE_CAPTURE = 3
"""Steps on a separate stream before a graph is captured, as PyTorch requires."""


class Training:
    """A model with its optimizer, and what a step does with a batch that is on the device."""

    def __init__(self, settings: Settings, device: str) -> None:
        self.settings, self.device = settings, device
        torch.set_float32_matmul_precision("highest" if settings.precision == "fp32" else "high")
        torch.backends.cudnn.allow_tf32 = settings.precision != "fp32"
        self.size = SIZES[settings.model, settings.size, device]
        self.model = make_model(settings.model, self.size).to(device)
        self.parameters = list(self.model.parameters())
        self.forward = torch.compile(self.model) if settings.compiled else self.model
        self.optimizer = torch.optim.SGD(self.parameters, lr=1e-3, momentum=0.9)
        self._graph: Any = None
        self._held: tuple[Any, Any] | None = None

    def step(self, inputs: Any, labels: Any) -> None:
        """One step of training; `inputs` and `labels` are in host memory."""
        with annotate("data"):
            batch = self._on_device(inputs, labels)
        if not self.settings.graph:
            self._work(*batch)
        else:
            if self._graph is None:
                self._capture(*batch)
            self._graph.replay()
        self._on_host()

    def _on_device(self, inputs: Any, labels: Any) -> tuple[Any, Any]:
        waits = not self.settings.pinned
        if self._held is None:
            moved = inputs.to(self.device, non_blocking=not waits), labels.to(self.device, non_blocking=not waits)
            if self.settings.graph:  # a graph reads the same memory at each replay
                self._held = moved
            return moved
        for held, new in zip(self._held, (inputs, labels), strict=True):
            held.copy_(new, non_blocking=not waits)
        return self._held

    def _work(self, inputs: Any, labels: Any) -> None:
        reads = self.settings.reads
        with annotate("forward"), self._numbers(), self._attention():
            loss = functional.cross_entropy(self.forward(inputs), labels)
        if reads:
            loss.item()
        with annotate("backward"):
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
        with annotate("optimizer"):
            for norm in (parameter.grad.norm() for parameter in self.parameters):
                if reads:
                    norm.item()
            self.optimizer.step()

    def _numbers(self) -> AbstractContextManager[Any]:
        if self.settings.precision != "bf16":
            return nullcontext()
        # a cast that is kept from one use of a weight to the next must not outlive the capture of a graph
        return torch.autocast(self.device, torch.bfloat16, cache_enabled=not self.settings.graph)  # type: ignore[no-any-return]

    def _attention(self) -> AbstractContextManager[Any]:
        return sdpa_kernel(list(FUSED) if self.settings.fused_attention else SDPBackend.MATH)  # type: ignore[no-any-return]

    def _capture(self, inputs: Any, labels: Any) -> None:
        """Make the step a graph, as "Whole-network capture" of PyTorch's notes on CUDA describes."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_BEFORE_CAPTURE):
                self._work(inputs, labels)
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(self._graph):
            self._work(inputs, labels)

    def _on_host(self) -> None:
        if self.settings.empties_cache:
            torch.cuda.empty_cache()
        if self.settings.sleep_ms:
            time.sleep(self.settings.sleep_ms / 1000)
        if self.settings.collects:
            gc.collect()


def train(settings: Settings, device: str, warmup: int, measured: int) -> float:
    """Train for `warmup` steps, then for `measured` ones; the mean time of these in ns."""
    heap = [[n] for n in range(settings.live_objects)]
    gc.disable()  # no collection but those that the settings ask for
    torch.compiler.reset()  # what an earlier training compiled
    if device == "cpu":
        torch.set_num_threads(1)  # leaves cores to the loader's processes and to a second process
    training = Training(settings, device)
    batches = make_batches(settings, training.size, warmup + measured, cuda=device == "cuda")
    began_ns = 0
    with steps() as window, torch_profile() as profile:
        for step in range(warmup + measured):
            if step == warmup:
                _wait_for(device)
                began_ns = time.perf_counter_ns()
            with annotate(f"step {step}"):
                with annotate("next batch"):
                    inputs, labels = next(batches)
                training.step(inputs, labels)
            window.step()
            profile.step()
        _wait_for(device)
        ended_ns = time.perf_counter_ns()
    assert len(heap) == settings.live_objects
    return (ended_ns - began_ns) / measured


def _wait_for(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    """Train as each line says, until there is no more."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--warmup", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    given = parser.parse_args()
    for line in sys.stdin:
        mean_ns = train(Settings(**json.loads(line)), given.device, given.warmup, given.steps)
        print(json.dumps({"step_ns": mean_ns}), flush=True)
        gc.collect()  # the model, whose parts refer to each other
        if given.device == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
