"""A program on several devices, as a process for each of them or as one process that drives them all."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from alltrace.api import OpenRun
from tests.making import COMMUNICATION_KERNEL, kernel, make_run

Rows = dict[str, list[dict[str, Any]]]

STEPS, LAYERS, SLOW, FACTOR = 8, 6, 2, 1.4
LAUNCH_NS, KERNEL_NS, TRANSFER_NS = 5_000, 400_000, 150_000


def rows_of(devices: int, *, slow: int = SLOW, shared_thread: bool = False) -> list[Rows]:
    """What each device and the thread that launches to it do: steps of some kernels and an all-reduce, one device
    slower.

    `shared_thread`: Whether one thread launches to all devices in turn.
    """
    chance = random.Random(5)
    rows: list[Rows] = [{"kernels": [], "api": [], "ranges": [], "syncs": []} for _ in range(devices)]
    launched, done = [1_000_000] * devices, [1_000_000] * devices
    number = 0
    for step in range(STEPS):
        if shared_thread:
            launched = [max(launched)] * devices
        begins = list(launched)
        arrivals = []
        for device, own in enumerate(rows):
            at = max(launched) if shared_thread else launched[device]
            for layer in range(LAYERS):
                number += 1
                own["api"].append(_call(at, LAUNCH_NS, "cudaLaunchKernel", number))
                length = round(KERNEL_NS * (FACTOR if device == slow else 1.0) * chance.uniform(0.99, 1.01))
                start = max(at + LAUNCH_NS, done[device] + 1_000)
                done[device] = start + length
                own["kernels"].append(kernel(start, done[device], f"gemm_{layer}", correlation=number))
                at += 2 * LAUNCH_NS
            number += 1
            own["api"].append(_call(at, LAUNCH_NS, "cudaLaunchKernel", number))
            arrivals.append((max(at + LAUNCH_NS, done[device] + 1_000), number))
            launched[device] = at + 2 * LAUNCH_NS
        end = max(start for start, _ in arrivals) + TRANSFER_NS
        for device, (own, (start, of)) in enumerate(zip(rows, arrivals, strict=True)):
            own["kernels"].append(kernel(start, end + 300 * device, COMMUNICATION_KERNEL, correlation=of))
            done[device] = end + 300 * device
            number += 1
            begin = max(launched) if shared_thread else launched[device]
            launched[device] = done[device] + 10_000
            own["api"].append(_call(begin, launched[device] - begin, "cudaStreamSynchronize", number))
            own["syncs"].append(_during(begin, launched[device], kind="stream", stream=7, correlation=number))
            first = begins[0] if shared_thread else begins[device]
            if not (shared_thread and device < devices - 1):
                own["ranges"].append(_during(first, launched[device], name=f"step {step}", kind="pushpop", domain=None))
    return rows


def _call(start: int, length: int, name: str, correlation: int) -> dict[str, Any]:
    return _during(start, start + length, name=name, correlation=correlation, kind="runtime")


def _during(start: int, end: int, **others: Any) -> dict[str, Any]:
    return {"start": start, "end": end, **others}


def apart(folder: Path, rows: list[Rows], hosts: int = 1) -> OpenRun:
    """A process for each device."""
    names = {n: f"host{n * hosts // len(rows)}" for n in range(len(rows))}
    return make_run(folder, dict(enumerate(rows)), hosts=names)


def together(
    folder: Path, rows: list[Rows], processes: int = 1, hosts: int = 1, *, shared_thread: bool = False
) -> OpenRun:
    """Processes with as many devices each."""
    each = len(rows) // processes
    ranks: dict[int, Rows] = {}
    for process in range(processes):
        its: Rows = {"devices": [], "threads": []}
        for place in range(each):
            number = process * each + place
            its["devices"].append({"device": place, "ordinal": place, "uuid": f"GPU-{number}", "name": "H200"})
            its["threads"].append({"thread": place, "process": 0, "tid": 4001 + place, "name": f"worker {place}"})
            for table, own in rows[number].items():
                thread = 0 if shared_thread else place
                where = {"device": place} if table in ("kernels", "syncs") else {"thread": thread}
                its.setdefault(table, []).extend({**row, **where} for row in own)
        ranks[process] = its
    return make_run(folder, ranks, hosts={n: f"host{n * hosts // processes}" for n in range(processes)})
