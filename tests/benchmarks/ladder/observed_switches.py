"""What trainings with different settings really do; run by the tests on a Python that has PyTorch, writes one line of
JSON.

Operators are counted by PyTorch's profiler, collections by the collector, processes by the operating system. What needs
a GPU is replaced by doubles that note how they were called.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import sys
from dataclasses import replace
from unittest import mock

import torch

from benchmarks.ladder import batches, training
from benchmarks.ladder.causes import Settings
from benchmarks.ladder.models import SIZES
from benchmarks.ladder.training import Training

STEPS = 3
TINY = Settings(size="tiny", precision="fp32")
RESNET = Settings(model="resnet", precision="fp32")


def operators(settings):
    """How often each operator ran in `STEPS` steps."""
    made = Training(settings, "cpu")
    inputs, labels = batches.host_batch(settings.model, made.size)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(STEPS):
            made.step(inputs, labels)
    return {e.key: e.count for e in profile.key_averages()}


def read_values(settings):
    return operators(settings).get("aten::_local_scalar_dense", 0)


def attention(settings):
    return sorted(k for k in operators(settings) if k.startswith("aten::_scaled_dot_product"))


def product_type(settings):
    """The type of what the first linear layer of a block gives, and how exact products in fp32 are."""
    made = Training(settings, "cpu")
    seen = []
    made.model.blocks[0].projections.register_forward_hook(
        lambda _module, _inputs, output: seen.append(str(output.dtype))
    )
    made.step(*batches.host_batch(settings.model, made.size))
    return [*seen, torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32]


def loader_processes(settings):
    """The child processes after the first batch, and the shape of the batch."""
    size = SIZES["resnet", "usual", "cpu"]
    found = batches.make_batches(settings, size, 2, cuda=False)
    inputs, _ = next(found)
    count = len(multiprocessing.active_children())
    assert sum(1 for _ in found) == 1
    return [count, list(inputs.shape)]


def collections(settings):
    """The full collections in `STEPS` steps."""
    phases = []
    gc.callbacks.append(lambda phase, info: phases.append(phase) if info["generation"] == 2 else None)
    training.train(settings, "cpu", 1, STEPS)
    gc.callbacks.pop()
    gc.enable()
    return phases.count("start")


def live(settings):
    """The objects that the collector sees during a step."""
    counts = []
    with mock.patch.object(training.Training, "_on_host", side_effect=lambda: counts.append(len(gc.get_objects()))):
        training.train(settings, "cpu", 0, 1)
    gc.enable()
    return counts[0]


def waits(settings):
    with mock.patch.object(training.time, "sleep") as sleep:
        training.train(settings, "cpu", 0, STEPS)
    gc.enable()
    return [call.args for call in sleep.call_args_list]


def emptied(settings):
    with mock.patch.object(torch.cuda, "empty_cache") as empty:
        training.train(settings, "cpu", 0, STEPS)
    gc.enable()
    return empty.call_count


def copies(settings):
    """Whether batches are page-locked, and whether their copies to the device may return at once."""
    made = [mock.MagicMock(name="inputs"), mock.MagicMock(name="labels")]
    with mock.patch.object(batches, "host_batch", return_value=made):
        inputs, labels = next(batches.make_batches(settings, None, 1, cuda=True))
    locked = [inputs is made[0].pin_memory.return_value, labels is made[1].pin_memory.return_value]
    Training(TINY if settings.pinned else replace(TINY, pinned=False), "cpu")._on_device(inputs, labels)
    return [*locked, *(batch.to.call_args.kwargs["non_blocking"] for batch in (inputs, labels))]


def graph():
    """A step as a graph: steps run by Python, captures, replays, and whether the graph's own memory holds the last
    batch."""
    doubles = {name: mock.MagicMock() for name in ("Stream", "current_stream", "stream", "CUDAGraph", "graph")}
    made = Training(replace(TINY, graph=True), "cpu")
    inputs, labels = batches.host_batch("transformer", made.size)
    other = inputs.flip(0)
    with mock.patch.multiple(torch.cuda, **doubles), mock.patch.object(made, "_work", wraps=made._work) as work:
        for batch in (inputs.clone(), inputs, other):
            made.step(batch, labels)
    read = {call.args[0].data_ptr() for call in work.call_args_list}
    held = made._held[0]
    replays = doubles["CUDAGraph"].return_value.replay.call_count
    return [work.call_count, doubles["graph"].call_count, replays, read == {held.data_ptr()}, torch.equal(held, other)]


def passes(count):
    """Whether so many passes are that many single ones."""
    image = torch.randint(0, 256, (3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
    one = torch.nn.AvgPool2d(3, 1, 1)
    expected = image.float() / 255
    for _ in range(count):
        expected = one(expected)
    return torch.equal(batches.transformed(image, count), expected)


def sample_passes(settings):
    """How often the loader's transform smooths a sample."""
    with mock.patch.object(batches, "transformed", wraps=batches.transformed) as transform:
        next(batches.make_batches(settings, SIZES["resnet", "usual", "cpu"], 1, cuda=False))
    return sorted({call.args[1] for call in transform.call_args_list})


def main():
    """Write what was observed."""
    gc.disable()
    again = zip(Training(TINY, "cpu").parameters, Training(TINY, "cpu").parameters, strict=True)
    found = {
        "parameters": len(Training(TINY, "cpu").parameters),
        "reads": [read_values(replace(TINY, reads=reads)) for reads in (True, False)],
        "attention": [attention(replace(TINY, fused_attention=fused)) for fused in (True, False)],
        "precision": {p: product_type(replace(TINY, precision=p)) for p in ("fp32", "tf32", "bf16")},
        "workers": [loader_processes(replace(RESNET, workers=n)) for n in (0, 2)],
        "sample_passes": sample_passes(replace(RESNET, workers=0, passes=7)),
        "passes": [passes(n) for n in (0, 1, 5)],
        "collections": [collections(replace(TINY, collects=on)) for on in (True, False)],
        "live": live(replace(TINY, live_objects=100_000)) - live(TINY),
        "sleep": [waits(replace(TINY, sleep_ms=ms)) for ms in (20, 0)],
        "emptied": [emptied(replace(TINY, empties_cache=on)) for on in (True, False)],
        "copies": [copies(replace(TINY, pinned=on)) for on in (True, False)],
        "compiled": [type(Training(replace(TINY, compiled=on), "cpu").forward).__name__ for on in (True, False)],
        "graph": graph(),
        "same_weights": all(torch.equal(a, b) for a, b in again),
    }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
