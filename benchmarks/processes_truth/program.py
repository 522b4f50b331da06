"""A training of four processes on CPUs; run by `benchmarks.processes_truth` under torchrun, with PyTorch.

A step has about 10 ms of arithmetic and 70 ms in an operator that waits, as one that runs on a device does, so that
four ranks leave two cores half free. Without a profiler, blocks of steps with and without the cause alternate in random
order until the gain is known well enough.
"""

from __future__ import annotations

import argparse
import gc
import json
import mmap
import os
import random
import shlex
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from alltrace.instrument import annotate, steps, torch_profile
from benchmarks.processes_truth.blocks import Blocks

if TYPE_CHECKING:
    from collections.abc import Iterator

_SETTLING = 3
_SIZE = 256
_PRODUCTS = 12
_LOADS_S, _LOADS_SLOWLY_S = 0.02, 0.13
_FORWARD_S, _BACKWARD_S = 0.03, 0.04
_CAUSE_S = 0.025
_GRADIENT = 1 << 18
_OBJECTS = 25_000
_FILE_BYTES = 1 << 20
_MAPPED_BYTES = 64 << 20
_CHECKPOINT = 1 << 20


@torch.library.custom_op("truth::device", mutates_args=())  # type: ignore[untyped-decorator]
def on_device(batch: torch.Tensor, wait_s: float) -> torch.Tensor:
    """The part of a device: it waits."""
    time.sleep(wait_s)
    return batch.clone()


class Batches(torch.utils.data.IterableDataset[Any]):  # type: ignore[misc]
    """Batches without end; how long one takes is in memory that the worker shares."""

    def __init__(self, wait_s: Any) -> None:
        super().__init__()
        self.wait_s = wait_s

    def __iter__(self) -> Iterator[Any]:
        """The batches."""
        while True:
            time.sleep(float(self.wait_s))
            yield torch.ones(_SIZE, _SIZE)


class Training:
    """A rank with its cause, which can be switched on and off."""

    def __init__(self, cause: str, culprit: int, folder: Path) -> None:
        self.rank, self.cause, self.folder = dist.get_rank(), cause, folder
        self.mine = self.rank == culprit
        self.on = False
        self.gradient = torch.ones(_GRADIENT)
        self.weights = torch.eye(_SIZE)
        self.wait_s = torch.tensor(_LOADS_S).share_memory_()
        loader: Any = torch.utils.data.DataLoader(Batches(self.wait_s), batch_size=None, num_workers=1)
        self.batches = iter(loader)
        self.objects = [[n] for n in range(_OBJECTS)] if self.mine and cause == "garbage-collection" else []
        self.lock, self.wanted = threading.Lock(), threading.Event()
        if self.mine and cause == "lock":
            threading.Thread(target=self._hold, daemon=True).start()
        self.file = self.mapped = None
        if self.mine and cause == "slow-storage":
            self.file = _file_of(folder, _FILE_BYTES)
        if self.mine and cause == "memory-pressure":
            self.file = _file_of(folder, _MAPPED_BYTES)
            with self.file.open("rb") as opened:
                self.mapped = mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ)

    def switch(self, on: bool) -> None:
        """Plant the cause, or take it away; it is so on all ranks at the next step."""
        self.on = on
        group = Path(os.environ.get("TRUTH_GROUP", "."))
        if self.mine and self.cause == "slow-loader":
            self.wait_s.fill_(_LOADS_SLOWLY_S if on else _LOADS_S)
        elif self.mine and self.cause == "slow-rank":
            (group / "cpu.cfs_period_us").write_text("10000")
            (group / "cpu.cfs_quota_us").write_text("1000" if on else "-1")
        elif self.mine and self.cause == "slow-storage":
            device = self.folder.stat().st_dev
            number = f"{os.major(device)}:{os.minor(device)}"
            (group / "blkio.throttle.read_bps_device").write_text(f"{number} {6_000_000 if on else 0}")
        elif self.mine and self.cause == "memory-pressure":
            limit = -1
            if on:  # what is not of files must fit, however little of the file is in memory now
                own = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())["total_rss"]
                used = int((group / "memory.usage_in_bytes").read_text()) - _MAPPED_BYTES // 4
                limit = max(used, int(own) + _MAPPED_BYTES // 4)
            (group / "memory.limit_in_bytes").write_text(str(limit))
        elif self.cause == "slow-link" and self.rank == 0:
            subprocess.run(shlex.split(os.environ["TRUTH_ON" if on else "TRUTH_OFF"]), check=False, capture_output=True)
        dist.barrier()

    def step(self, number: int) -> None:
        """One step."""
        hit = self.on and self.mine
        longer = 1.5 if hit and self.cause == "uneven-batches" else 1.0
        with annotate(f"step {number}"):
            with annotate("next batch"):
                batch = next(self.batches)
                self._read()
            if hit and self.cause == "lock":
                self.wanted.set()
                time.sleep(0.001)
            with annotate("forward"), self.lock:
                self._work(batch, longer)
                on_device(batch, _FORWARD_S * longer)
            with annotate("backward"):
                self._work(batch, longer)
                on_device(batch, _BACKWARD_S * longer)
            if hit and self.cause == "garbage-collection":
                gc.collect()
            with annotate("all-reduce"):
                dist.all_reduce(self.gradient)
            with annotate("optimizer"):
                self.gradient.div_(dist.get_world_size())
            if hit and self.cause == "checkpoint":
                with annotate("checkpoint"):
                    _write(self.folder / "checkpoint", self.gradient.repeat(_CHECKPOINT // _GRADIENT))
            if hit and self.cause == "late-barrier":
                with annotate("prepare"):
                    time.sleep(_CAUSE_S)
            with annotate("barrier"):
                dist.barrier()

    def _work(self, batch: Any, longer: float) -> None:
        for _ in range(round(_PRODUCTS * longer)):
            batch = torch.mm(batch, self.weights)

    def _read(self) -> None:
        if self.mapped is not None:
            sum(self.mapped[at] for at in range(0, _MAPPED_BYTES, mmap.PAGESIZE))
        elif self.file is not None:
            place = os.open(self.file, os.O_RDONLY | os.O_DIRECT)
            os.readv(place, [mmap.mmap(-1, _FILE_BYTES)])
            os.close(place)

    def _hold(self) -> None:
        while True:
            self.wanted.wait()
            self.wanted.clear()
            with self.lock:
                time.sleep(_CAUSE_S)


def _file_of(folder: Path, size: int) -> Path:
    path = folder / "data"
    with path.open("wb") as file:
        file.write(os.urandom(size))
        file.flush()
        os.fsync(file.fileno())  # what waits to be written cannot leave memory
    return path


def _write(path: Path, tensor: Any) -> None:
    with path.open("wb") as file:
        torch.save(tensor, file)
        file.flush()
        os.fsync(file.fileno())


def measure(training: Training, blocks: Blocks) -> dict[str, Any]:
    """The gain of taking the cause away: blocks of steps in random order, until it is known."""
    order = random.Random(blocks.seed)
    number, cpu_s = 0, 0.0
    gains: list[int] = []
    medians_ns: dict[bool, list[int]] = {True: [], False: []}
    while not blocks.enough(gains):
        for on in order.sample((True, False), 2):
            training.switch(on)
            times = []
            before_s = time.process_time()
            for place in range(blocks.unmeasured + blocks.steps):
                began_ns = time.perf_counter_ns()
                training.step(number)
                number += 1
                if place >= blocks.unmeasured:
                    times.append(time.perf_counter_ns() - began_ns)
            if not on:
                cpu_s = max(cpu_s, (time.process_time() - before_s) / (blocks.unmeasured + blocks.steps))
            medians_ns[on].append(round(statistics.median(times)))
        # all ranks end with the same block
        gain = torch.tensor([medians_ns[True][-1] - medians_ns[False][-1]], dtype=torch.int64)
        dist.broadcast(gain, 0)
        gains.append(int(gain))
    return {"with_ns": medians_ns[True], "without_ns": medians_ns[False], "cpu_ns_per_step": round(cpu_s * 1e9)}


def record(training: Training, warmup: int, count: int) -> None:
    """Steps with the cause, the last `count` of which the profiler records."""
    training.switch(True)
    with steps() as window, torch_profile() as profile:
        for number in range(warmup + count):
            training.step(number)
            window.step()
            profile.step()


def main() -> None:
    """Run a rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cause", required=True)
    parser.add_argument("--culprit", type=int, required=True)
    parser.add_argument("--blocks", required=True, help="JSON of the blocks to measure, or of what to record")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    asked = json.loads(args.blocks)
    torch.set_num_threads(1)
    gc.disable()  # no collection but those of the cause, which see only what it made
    gc.freeze()
    dist.init_process_group("gloo")
    with tempfile.TemporaryDirectory(prefix="truth-", dir=os.environ.get("TRUTH_DISK")) as folder:
        training = Training(args.cause, args.culprit, Path(folder))
        for _ in range(_SETTLING):  # until the loader's process has its memory
            training.step(0)
        if "record" in asked:
            record(training, asked["warmup"], asked["record"])
        else:
            gain = measure(training, Blocks(**asked))
            if training.rank == 0:
                args.output.write_text(json.dumps(gain))
        training.switch(False)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
