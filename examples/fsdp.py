"""Fully sharded training with FSDP2 (`fully_shard`, PyTorch 2.6 and later).

torchrun --nproc-per-node 8 --no-python alltrace capture exec --steps 10:15 -- python examples/fsdp.py
"""

from __future__ import annotations

import argparse
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from alltrace.instrument import annotate, steps, torch_profile


class Block(nn.Module):
    """A block of a transformer, without its attention."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The block's output, of the shape of its input."""
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def main() -> None:
    """Train a few blocks, their parameters sharded over all ranks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--blocks", type=int, default=4)
    args = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if on_gpu else "gloo", timeout=timedelta(hours=2))
    kind = "cuda" if on_gpu else "cpu"
    mesh = init_device_mesh(kind, (dist.get_world_size(),))
    torch.manual_seed(0)  # the same parameters on all ranks before they are sharded
    model = nn.Sequential(*(Block(64) for _ in range(args.blocks))).to(kind)
    for block in model:
        fully_shard(block, mesh=mesh)  # each block is gathered when its turn comes
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(1 + dist.get_rank())

    with steps() as window, torch_profile() as profile:
        for step in range(args.steps):
            x = torch.randn(16, 64, device=kind)
            with annotate("forward"):
                loss = model(x).square().mean()
            with annotate("backward"):
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
