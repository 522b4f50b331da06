"""A training without a GPU: each phase is a sleep and 0.5 ms of computing; ranks meet after each step, on loopback.

Run as `in_loop_training.py RANK RANKS PORT PLAN`. PLAN is JSON: `steps`, `every`, `cases` (a list of first step, end,
rank, phase), and `blocks` (the steps of a block, of which each third one runs with the report and the others without,
for its cost; 0 for none).
"""

import contextlib
import json
import socket
import sys
import time
from statistics import median
from typing import Any

from alltrace.instrument import step_report

PHASES = {"data": 0.005, "forward": 0.030, "backward": 0.045, "optimizer": 0.010}
BUSY_S = 0.0005
EXTRA_S = 0.005


class LoopbackStore:
    """A connection to the store of `benchmarks.in_loop`."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._answers = self._socket.makefile("rb")

    def _ask(self, *words: object) -> Any:
        self._socket.sendall(json.dumps(words).encode() + b"\n")
        return json.loads(self._answers.readline())

    def set(self, key: str, value: bytes) -> Any:
        """Keep a value."""
        return self._ask("set", key, value.hex())

    def add(self, key: str, amount: int) -> int:
        """Add to a counter."""
        return int(self._ask("add", key, amount))

    def check(self, keys: list[str]) -> bool:
        """Whether all keys have values."""
        return bool(self._ask("check", keys))

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """The values of keys."""
        return [bytes.fromhex(value) for value in self._ask("multi_get", keys)]

    def meet(self, step: int) -> None:
        """Return when all ranks are here."""
        self._ask("meet", step)


def work(phase: str, *, slow: bool) -> None:
    """A phase: it computes, then sleeps."""
    until = time.thread_time() + BUSY_S
    while time.thread_time() < until:
        pass
    time.sleep(PHASES[phase] - BUSY_S + (EXTRA_S if slow else 0.0))


def main() -> None:
    """Train, and print the report, then the CPU time and the duration of a step with and without the report."""
    rank, ranks, port, plan = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
    meeting = LoopbackStore(port)
    lines: list[str] = []
    cases = {step: (own, phase) for first, end, own, phase in plan["cases"] for step in range(first, end)}
    blocks = plan["blocks"]
    costs: list[list[float]] = [[], [], []]  # with the report, without, without
    durations: list[list[float]] = [[], [], []]
    report = step_report(
        plan["every"], store=LoopbackStore(port), record=plan["record"], rank=rank, world=ranks, say=lines.append
    )
    nothing = contextlib.nullcontext()
    cpu_before = 0.0
    meeting.meet(-1)
    with report:
        for step in range(plan["steps"]):
            turn = step // blocks % 3 if blocks else 0
            measured = turn == 0
            if not blocks or step % blocks == 0:
                cpu_before = time.process_time()
            began = time.perf_counter()
            own, phase = cases.get(step, (-1, ""))
            for name in PHASES:
                with report.phase(name) if measured else nothing:
                    work(name, slow=own == rank and name == phase)
            with report.phase("wait") if measured else nothing:
                meeting.meet(step)
            if measured:
                report.step()
            durations[turn].append(time.perf_counter() - began)
            if blocks and (step + 1) % blocks == 0:
                costs[turn].append((time.process_time() - cpu_before) / blocks)
        time.sleep(1.0)  # for the last exchange
    result: dict[str, Any] = {"lines": lines}
    if blocks:
        result |= {name: [median(its) for its in values] for name, values in (("cpu", costs), ("wall", durations))}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
