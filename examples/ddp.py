"""Data-parallel training with DistributedDataParallel.

torchrun --nproc-per-node 8 --no-python alltrace capture exec --steps 10:15 -- python examples/ddp.py
"""

from __future__ import annotations

import argparse
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from alltrace.instrument import annotate, steps, torch_profile


def main() -> None:
    """Train a small network on every rank."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    local_rank = int(os.environ["LOCAL_RANK"])
    if on_gpu:
        torch.cuda.set_device(local_rank)
    # long enough for a rank whose kernels are replayed by ncu
    dist.init_process_group("nccl" if on_gpu else "gloo", timeout=timedelta(hours=2))
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1)).to(device))
    optimizer = torch.optim.AdamW(model.parameters())

    # every rank opens the window: a recording that rank 0 alone begins leaves no report of other nodes
    with steps() as window, torch_profile() as profile:
        for step in range(args.steps):
            x = torch.randn(32, 64, device=device)
            with annotate("forward"):
                loss = model(x).square().mean()
            with annotate("backward"):  # gradients are reduced meanwhile
                loss.backward()
            with annotate("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
            window.step()
            profile.step()
            if dist.get_rank() == 0 and step % 10 == 9:
                print(f"step {step} loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
