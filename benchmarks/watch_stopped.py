"""How soon `watch` names a stopped rank: `python -m benchmarks.watch_stopped [--ranks 16] [--cases 5] [--seed N]`.

A job of `programs/in_loop_training.py` with steps of 100 ms; one process, drawn by the seed, gets SIGSTOP. Two step
times plus 5 s are wanted, from the signal to the line that names exactly this rank.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.in_loop import PROGRAM, Server

_LONGEST_S = 60.0
_NAMED = re.compile(r"stopped: ranks ([\d,\- ]+)")


def case(ranks: int, rank: int, after_s: float) -> tuple[str, float, str]:
    """The ranks that are named, how long that took, and the line."""
    server = Server(ranks)
    server.start()
    with tempfile.TemporaryDirectory() as folder:
        plan = json.dumps({"steps": 100_000, "every": 25, "cases": [], "blocks": 0, "record": folder})
        command = [sys.executable, str(PROGRAM)]
        job = [
            subprocess.Popen(
                [*command, str(n), str(ranks), str(server.port), plan],
                env={
                    **os.environ,
                    "RANK": str(n),
                    "LOCAL_RANK": str(n),
                    "WORLD_SIZE": str(ranks),
                    "LOCAL_WORLD_SIZE": str(ranks),
                },
            )
            for n in range(ranks)
        ]
        watch = subprocess.Popen(
            [sys.executable, "-m", "alltrace.cli.main", "watch", folder, "--every", "0.1"],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            time.sleep(after_s)
            job[rank].send_signal(signal.SIGSTOP)
            stopped_at = time.monotonic()
            ending = threading.Timer(_LONGEST_S, watch.kill)
            ending.start()
            for line in watch.stdout or ():
                names = _NAMED.search(line)
                if names is not None:
                    return names[1].strip(), time.monotonic() - stopped_at, line.strip()
            return "", _LONGEST_S, Path(folder).name
        finally:
            ending.cancel()
            watch.kill()
            for process in job:
                process.kill()
            watch.wait()
            for process in job:
                process.wait()


def main() -> None:
    """Run the cases."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.watch_stopped", description=__doc__)
    parser.add_argument("--ranks", type=int, default=16)
    parser.add_argument("--cases", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    draws = random.Random(args.seed)
    print("| rank | named | s | line |\n|---|---|---|---|")
    for _ in range(args.cases):
        rank = draws.randrange(args.ranks)
        names, took_s, line = case(args.ranks, rank, 12 + 5 * draws.random())
        print(f"| {rank} | {names} | {took_s:.1f} | {line} |", flush=True)


if __name__ == "__main__":
    main()
