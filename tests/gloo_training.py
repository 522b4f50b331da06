"""A training without any GPU on four ranks, which average gradients with Gloo; rank 2 has the slowest loader.

    python tests/gloo_training.py FOLDER

writes the trace of each rank, `rank0.pt.trace.json.gz` and so on. It is run by a Python that has PyTorch; the tests
read the traces in `tests/recipes/questions/diagnose/gloo`, which it wrote.
"""

from __future__ import annotations

import gzip
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RANKS, STEPS, WARM_UP = 4, 10, 2
SLOW, LOAD_S, SLOW_LOAD_S = 2, 0.05, 0.25


def main(folder: str) -> None:
    """Train on all ranks."""
    import torch.multiprocessing as mp

    with tempfile.TemporaryDirectory() as store:
        mp.spawn(train, args=(folder, f"file://{store}/store"), nprocs=RANKS)


def train(rank: int, folder: str, store: str) -> None:
    """What one rank does."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.profiler import ProfilerActivity, profile, record_function
    from torch.utils.data import DataLoader, Dataset

    class Batches(Dataset[Any]):
        def __len__(self) -> int:
            return STEPS + WARM_UP

        def __getitem__(self, number: int) -> Any:
            time.sleep(SLOW_LOAD_S if rank == SLOW else LOAD_S)
            return torch.zeros(64)

    torch.set_num_threads(1)
    os.environ["LOCAL_RANK"] = str(rank)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=RANKS)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 8)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for batch in DataLoader(Batches(), batch_size=1):
            with record_function("forward"):
                loss = model(batch).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    trace = Path(folder) / f"rank{rank}.pt.trace.json"
    profiler.export_chrome_trace(str(trace))
    text = trace.read_bytes().replace(f"{folder}/".encode(), b"")
    with gzip.GzipFile(f"{trace}.gz", "wb", mtime=0) as file:
        file.write(text)
    trace.unlink()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
