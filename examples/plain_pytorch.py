"""One process with PyTorch: named ranges, and the window of steps that is recorded.

alltrace capture exec --steps 10:15 -- python examples/plain_pytorch.py
alltrace capture exec --steps 10:15 --profiler torch -- python examples/plain_pytorch.py
"""

from __future__ import annotations

import argparse

import torch
from torch import nn

from alltrace.instrument import annotate, steps, torch_profile, trace_func


@trace_func
def make_batch(size: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch of random data."""
    x = torch.randn(size, 64, device=device)
    return x, x.sum(1, keepdim=True)


def main() -> None:
    """Train a small network."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--resume-at", type=int, default=0, help="the step that a checkpoint was written at")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())

    # steps(): what `capture exec --steps` says, under nsys and ncu; torch_profile(): the same under --profiler torch
    with steps(at=args.resume_at) as window, torch_profile() as profile:
        for step in range(args.resume_at, args.steps):
            with annotate("data"):
                x, y = make_batch(32, device)
            with annotate("forward"):
                loss = nn.functional.mse_loss(model(x), y)
            with annotate("backward"):
                loss.backward()
            with annotate("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
            window.step()
            profile.step()
            if step % 10 == 9:
                print(f"step {step} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
