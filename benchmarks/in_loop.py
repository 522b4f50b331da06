"""The verdict in the loop: `python -m benchmarks.in_loop [--ranks 64] [--cases 50] [--healthy 10] [--seed N]`.

One job of many processes, `programs/in_loop_training.py`, whose steps take 100 ms. In each case one phase of one rank,
drawn by the seed and written down before the job runs, is longer by 5 ms for 50 steps, from a drawn step on; 25 healthy
steps follow. A case is right if a line within these 50 steps names the rank and the phase first and no line names
another rank. Healthy stretches have 500 steps, and no line may name a rank. The cost is the CPU time of a step with the
report less that without, in blocks of 25 steps in turn (one with it, two without, whose difference is the noise),
exchange and record included. It is higher where other programs empty the caches between two steps, so the load of the
machine is printed too.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

PROGRAM = Path(__file__).parent / "programs" / "in_loop_training.py"
PHASES = ("data", "forward", "backward", "optimizer")
EVERY, LONGER, HEALTHY, STRETCH = 25, 50, 25, 500
_LINE = re.compile(r"steps (\d+) to (\d+): ")
_NAMED = re.compile(r"rank (\d+) is slow since .*?, most in ([a-z ]+) \(")


class Server(threading.Thread):
    """The store, and where ranks meet."""

    def __init__(self, ranks: int) -> None:
        super().__init__(daemon=True)
        self._ranks = ranks
        self._values: dict[str, str] = {}
        self._counters: dict[str, int] = defaultdict(int)
        self._here: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=4 * ranks)
        self.port = self._listening.getsockname()[1]

    def run(self) -> None:
        """Answer until the process ends."""
        chosen = selectors.DefaultSelector()
        chosen.register(self._listening, selectors.EVENT_READ, None)
        while True:
            for key, _ in chosen.select():
                if key.data is None:
                    one, _ = self._listening.accept()
                    chosen.register(one, selectors.EVENT_READ, bytearray())
                    continue
                data = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
                if not data:
                    chosen.unregister(key.fileobj)
                    continue
                key.data.extend(data)
                while (end := key.data.find(b"\n")) >= 0:
                    words = json.loads(key.data[:end])
                    del key.data[: end + 1]
                    self._answer(key.fileobj, *words)

    def _answer(self, one: Any, what: str, *words: Any) -> None:
        if what == "meet":
            self._here.append(one)
            if len(self._here) == self._ranks:
                for other in self._here:
                    other.sendall(b"0\n")
                self._here = []
            return
        answer: Any = 0
        if what == "set":
            self._values[words[0]] = words[1]
        elif what == "add":
            self._counters[words[0]] += words[1]
            answer = self._counters[words[0]]
        elif what == "check":
            answer = all(key in self._values for key in words[0])
        else:
            answer = [self._values[key] for key in words[0]]
        one.sendall(json.dumps(answer).encode() + b"\n")


def job(ranks: int, plan: dict[str, Any]) -> list[dict[str, Any]]:
    """What the processes of a job print."""
    server = Server(ranks)
    server.start()
    with tempfile.TemporaryDirectory() as folder:
        words = json.dumps({**plan, "every": EVERY, "record": folder})
        processes = [
            subprocess.Popen(
                [sys.executable, str(PROGRAM), str(rank), str(ranks), str(server.port), words], stdout=subprocess.PIPE
            )
            for rank in range(ranks)
        ]
        return [json.loads(one.communicate()[0]) for one in processes]


def named(lines: list[str], first: int, end: int) -> list[tuple[int, str]]:
    """The rank and the phase that each line on steps within a span names first."""
    its = []
    for line in lines:
        steps = _LINE.match(line)
        if steps and first <= int(steps[1]) and int(steps[2]) < end:
            its += [(int(name[1]), name[2]) for name in [_NAMED.search(line)] if name]
    return its


def main() -> None:
    """Run the three jobs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.in_loop", description=__doc__)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--cases", type=int, default=50)
    parser.add_argument("--healthy", type=int, default=10, help="stretches of 500 steps")
    parser.add_argument(
        "--cost", type=int, default=600, metavar="STEPS", help="steps of the job that measures the cost"
    )
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    draws = random.Random(args.seed)
    if args.cases:
        plan, at = [], EVERY
        for _ in range(args.cases):
            first = at + draws.randrange(EVERY)
            plan.append((first, first + LONGER, draws.randrange(args.ranks), draws.choice(PHASES)))
            at = (first + LONGER) // EVERY * EVERY + HEALTHY + EVERY
        lines = job(args.ranks, {"steps": at, "cases": plan, "blocks": 0})[0]["lines"]
        right = 0
        print("| steps | rank | phase | named |\n|---|---|---|---|")
        for first, end, rank, phase in plan:
            its = named(lines, first, end)
            right += bool(its) and all(one == (rank, phase) for one in its)
            print(f"| {first} to {end - 1} | {rank} | {phase} | {its} |")
        print(f"\n{right} of {args.cases} named first within {LONGER} steps, {args.ranks} processes")
    if args.healthy:
        lines = job(args.ranks, {"steps": args.healthy * STRETCH, "cases": [], "blocks": 0})[0]["lines"]
        wrong = [n for n in range(args.healthy) if named(lines, n * STRETCH, (n + 1) * STRETCH)]
        print(f"{len(wrong)} of {args.healthy} healthy stretches of {STRETCH} steps name a rank ({len(lines)} lines)")
    if args.cost:
        results = job(args.ranks, {"steps": args.cost, "cases": [], "blocks": EVERY})
        costs = sorted(1e6 * (one["cpu"][0] - sum(one["cpu"][1:]) / 2) for one in results)
        noise = median(1e6 * abs(one["cpu"][1] - one["cpu"][2]) for one in results)
        step, *others = (1e3 * median(one["wall"][n] for one in results) for n in range(3))
        print(
            f"cost: {median(costs):.0f} us of CPU a rank and step (median; {costs[0]:.0f} to {costs[-1]:.0f}; without"
            f" it two halves differ by {noise:.0f}); median step {step:.2f} ms with it, {others[0]:.2f} and"
            f" {others[1]:.2f} ms without; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"
        )


if __name__ == "__main__":
    main()
