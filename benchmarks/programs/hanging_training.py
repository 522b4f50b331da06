"""A training loop over gloo in which one rank makes the job hang, run by `torchrun` with a Python that has PyTorch.

    torchrun ... hanging_training.py FOLDER CAUSE CULPRIT STEP

A thread of each rank writes its flight record and its stacks once no step has ended for HANG_AFTER_S seconds, as gloo
writes none by itself; a rank that raises an exception, or that the launcher terminates, writes its record too.
"""

from __future__ import annotations

import faulthandler
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace

FOLDER, CAUSE, CULPRIT, STEP = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
STEPS = 60
AFTER_S = float(os.environ.get("HANG_AFTER_S", "10"))
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
progress = {"moved": time.monotonic()}
writing = threading.Lock()


def watch() -> None:
    while time.monotonic() - progress["moved"] < AFTER_S:
        time.sleep(0.2)
    with (FOLDER / f"stacks_rank{RANK}.txt").open("w") as stacks:
        faulthandler.dump_traceback(stacks, all_threads=True)
    write_record()


def write_record() -> None:
    with writing:
        if not (FOLDER / f"fr_trace_{RANK}").exists():
            _write_record()


def _write_record() -> None:
    part = FOLDER / f".part_{RANK}"
    part.write_bytes(_dump_fr_trace())
    part.rename(FOLDER / f"fr_trace_{RANK}")


def on_termination(end: socket.socket) -> None:
    """Writes the record when the launcher ends this rank, also while the main thread is inside of gloo."""
    while signal.SIGTERM not in end.recv(64):
        pass
    write_record()
    os._exit(143)


def produce(batches: queue.Queue[torch.Tensor], lock: threading.Lock) -> None:
    for step in range(STEPS + 1):
        if CAUSE == "loader-deadlock" and RANK == CULPRIT and step == STEP:
            lock.acquire()  # as a worker that was forked while another thread held it
        with lock:
            batches.put(torch.full((64, 64), float(step)))


def next_batch(batches: queue.Queue[torch.Tensor]) -> torch.Tensor:
    return batches.get()


def read_file(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read()


def happens() -> None:
    """What the culprit does instead of computing."""
    if CAUSE == "late-rank":
        time.sleep(AFTER_S * 1.5)
    elif CAUSE == "sleep":
        time.sleep(3600)
    elif CAUSE == "computes":
        while True:
            torch.ones(64, 64) @ torch.ones(64, 64)
    elif CAUSE == "blocked-io":
        os.mkfifo(FOLDER / "shard")
        read_file(FOLDER / "shard")
    elif CAUSE == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif CAUSE == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif CAUSE == "exception":
        raise ValueError("the loss is not finite")
    elif CAUSE == "network-cut":
        subprocess.run(os.environ["HANG_CUT"], shell=True, check=True)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    print(f"rank {RANK} host {os.uname().nodename}", flush=True)
    pairs = [dist.new_group([r, r + 1]) for r in range(0, WORLD, 2)]
    halves = [dist.new_group(list(range(first, first + WORLD // 2))) for first in (0, WORLD // 2)]
    pair, half = pairs[RANK // 2], halves[RANK // (WORLD // 2)]
    progress["moved"] = time.monotonic()
    threading.Thread(target=watch, daemon=True).start()
    here, there = socket.socketpair()
    here.setblocking(False)
    signal.set_wakeup_fd(here.fileno())
    signal.signal(signal.SIGTERM, lambda *_: None)
    threading.Thread(target=on_termination, args=(there,), daemon=True).start()
    batches: queue.Queue[torch.Tensor] = queue.Queue(maxsize=2)
    threading.Thread(target=produce, args=(batches, threading.Lock()), daemon=True).start()
    weights = torch.ones(64, 64)
    for step in range(STEPS):
        now = RANK == CULPRIT and step == STEP
        batch = next_batch(batches)
        if now:
            happens()
        for _ in range(20):
            weights = torch.tanh(weights @ batch / 64)
        gathered = [torch.empty(64) for _ in range(2)]
        own, wide, scalar = torch.ones(64), torch.ones(512), torch.ones(1)
        if now and CAUSE == "other-size":
            wide = torch.ones(768)
        if now and CAUSE == "wrong-group":
            half = dist.group.WORLD
        if now and CAUSE == "other-order":
            dist.all_reduce(wide, group=half)
            dist.all_gather(gathered, own, group=pair)
        else:
            if not (now and CAUSE == "skipped-call"):
                dist.all_gather(gathered, own, group=pair)
            dist.all_reduce(wide, group=half)
        dist.all_reduce(scalar)
        dist.barrier()
        progress["moved"] = time.monotonic()
        if RANK == 0:
            print(f"step: {step}  loss: {float(scalar):.4f}", flush=True)
        time.sleep(0.02)
    dist.destroy_process_group()


try:
    main()
except Exception:
    write_record()
    raise
