"""Small programs on the CPU under `torch.profiler`; run by a Python that has PyTorch, which the tests themselves do not
import.

    python tests/torch_programs.py FOLDER

writes for each program its trace, `NAME.json`, and the rows of `key_averages`, `NAME.truth.json`: times in microseconds
with three decimals, sizes in bytes.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

STEPS = 3


def main(folder: str) -> None:
    """Run all programs."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    output = Path(folder)
    for name, (make, options) in programs().items():
        step = make(torch)
        step()
        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU],
            schedule=(
                torch.profiler.schedule(wait=1, warmup=1, active=STEPS) if options.pop("scheduled", True) else None
            ),
            **options,
        ) as profile:
            for _ in range(2 + STEPS):
                step()
                profile.step()
        profile.export_chrome_trace(str(output / f"{name}.json"))
        (output / f"{name}.truth.json").write_text(json.dumps(truth_of(profile)))


def truth_of(profile: Any) -> dict[str, Any]:
    """What PyTorch says of a profile: see the head of this file."""
    rows = {
        row.key: {
            "calls": row.count,
            "cpu_total_us": row.cpu_time_total,
            "cpu_self_us": row.self_cpu_time_total,
            "memory_bytes": row.cpu_memory_usage,
            "memory_self_bytes": row.self_cpu_memory_usage,
            "annotation": bool(row.is_user_annotation),
        }
        for row in profile.key_averages()
    }
    return {"rows": rows}


def programs() -> dict[str, tuple[Any, dict[str, Any]]]:
    """Name to a function that makes a step, and options of the profiler."""
    return {
        "perceptron": (perceptron, {"record_shapes": True, "profile_memory": True}),
        "convolutions": (convolutions, {"with_stack": True, "profile_memory": True, "record_shapes": True}),
        "transformer": (transformer, {"with_stack": True, "with_modules": True}),
        "recurrent": (recurrent, {}),
        "embeddings": (embeddings, {"profile_memory": True}),
        "own_function": (own_function, {}),
        "checkpoints": (checkpoints, {"with_stack": True}),
        "threads": (threads, {"scheduled": False}),
        "scripted": (scripted, {}),
        "algebra": (algebra, {"record_shapes": True}),
        "loader": (loader, {}),
    }


def perceptron(torch: Any) -> Any:
    """Linear layers and SGD."""
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(torch.randn(16, 32)), torch.randn(16, 8)).backward()
        optimizer.step()

    return step


def convolutions(torch: Any) -> Any:
    """Convolutions, normalisation and pooling."""
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 4, 3),
        nn.Flatten(),
        nn.LazyLinear(5),
    )
    model(torch.randn(2, 3, 16, 16))
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(torch.randn(2, 3, 16, 16)), torch.tensor([0, 1])).backward()
        optimizer.step()

    return step


def transformer(torch: Any) -> Any:
    """Attention, dropout and AdamW."""
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        model(torch.randn(2, 6, 32)).square().mean().backward()
        optimizer.step()

    return step


def recurrent(torch: Any) -> Any:
    """An LSTM, unrolled by the operator."""
    model = torch.nn.LSTM(8, 16, 2)
    return lambda: model(torch.randn(5, 3, 8))[0].sum().backward()


def embeddings(torch: Any) -> Any:
    """Sparse gradients."""
    table = torch.nn.EmbeddingBag(100, 8, sparse=True, mode="sum")
    optimizer = torch.optim.SparseAdam(table.parameters())

    def step() -> None:
        optimizer.zero_grad()
        table(torch.randint(0, 100, (20,)), torch.tensor([0, 5, 11])).sum().backward()
        optimizer.step()

    return step


def own_function(torch: Any) -> Any:
    """An operator of one's own, with named ranges in it and around it."""

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, value: Any) -> Any:
            context.save_for_backward(value)
            with torch.profiler.record_function("inside"):
                return value * 3 + torch.ones_like(value)

        @staticmethod
        def backward(context: Any, grad: Any) -> Any:
            with torch.profiler.record_function("inside the backward"):
                return grad * 3

    def step() -> None:
        value = torch.randn(64, requires_grad=True)
        with torch.profiler.record_function("around"):
            Scaled.apply(value).sum().backward()

    return step


def checkpoints(torch: Any) -> Any:
    """Activations computed again in the backward."""
    from torch.utils.checkpoint import checkpoint

    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.Linear(16, 16))
    return lambda: checkpoint(model, torch.randn(4, 16, requires_grad=True), use_reentrant=False).sum().backward()


def threads(torch: Any) -> Any:
    """Two threads that work at the same time."""

    def work() -> None:
        for _ in range(5):
            (torch.randn(32, 32) @ torch.randn(32, 32)).softmax(0)

    def step() -> None:
        other = threading.Thread(target=work)
        other.start()
        work()
        other.join()

    return step


def scripted(torch: Any) -> Any:
    """TorchScript, whose operators the interpreter calls."""
    model = torch.jit.trace(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()), torch.randn(2, 8))
    return lambda: model(torch.randn(2, 8)).sum()


def algebra(torch: Any) -> Any:
    """Linear algebra, sorting and Fourier transforms; operators of zero length."""

    def step() -> None:
        square = torch.randn(12, 12)
        torch.linalg.eigh(square @ square.T)
        torch.fft.fft(square).abs().sort()
        torch.empty(0).view(0).t().expand(3, 0).contiguous()
        torch.einsum("ij,kj->ik", square, square).to(torch.float64).to(torch.float32)

    return step


def loader(torch: Any) -> Any:
    """A DataLoader."""
    data = torch.utils.data.TensorDataset(torch.randn(12, 4), torch.arange(12))
    batches = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)

    def step() -> None:
        for one, _ in batches:
            one.sum()

    return step


if __name__ == "__main__":
    main(sys.argv[1])
