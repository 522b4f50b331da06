"""Questions about PyTorch's allocator, of a trace with a million blocks given out and taken back, each a process."""

from __future__ import annotations

import json
import random
import subprocess
import tempfile
from pathlib import Path
from typing import IO

from benchmarks.measure import ALLTRACE, median, side_by_side

_BLOCKS = 1_000_000
_OPERATORS = 50_000
_LIVE = 3_000
_RECIPES = ("memory", "memory-timeline", "memory-peak", "memory-steps")


def run(runs: int) -> list[str]:
    """Rows of the table: what, against, ratio, figures."""
    with tempfile.TemporaryDirectory() as folder:
        trace, output = Path(folder) / "trace.json", Path(folder) / "run"
        with trace.open("w", encoding="utf-8") as file:
            write_trace(file)
        subprocess.run([*ALLTRACE, "import", str(trace), "-o", str(output)], check=True, capture_output=True)
        taken = side_by_side({name: [*ALLTRACE, "recipe", name, str(output)] for name in _RECIPES}, runs)
    return [
        f"| `{name}` of {_BLOCKS:,} blocks | - | - | {median([t.cpu_s for t in found]):.2f} s CPU, "
        f"{max(t.peak_mb for t in found):.0f} MB |"
        for name, found in taken.items()
    ]


def write_trace(file: IO[str], blocks: int = _BLOCKS, operators: int = _OPERATORS) -> None:
    """Write a trace of four steps with operators that allocate blocks; at most `_LIVE` exist at once."""
    draw = random.Random(1)
    about = {"distributedInfo": {"rank": 0, "world_size": 1}, "baseTimeNanoseconds": 1_700_000_000_000_000_000}
    file.write(json.dumps(about)[:-1] + ', "traceEvents": [\n')
    length = blocks / operators
    thread = {"ph": "X", "pid": 1, "tid": 1}
    for n in range(4):
        step = {"cat": "user_annotation", "name": f"ProfilerStep#{n}", "ts": 1000 + n * blocks / 4, "dur": blocks / 4}
        file.write(json.dumps({**thread, **step}) + ",\n")
    for n in range(operators):
        own = {"cat": "cpu_op", "name": f"aten::op{n % 97}", "ts": 1000 + n * length, "dur": length * 0.9}
        file.write(json.dumps({**thread, **own}) + ",\n")
    live: list[tuple[int, int]] = []
    total = 0
    for n in range(blocks):
        if live and (len(live) >= _LIVE or draw.random() < 0.5):
            place = draw.randrange(len(live))
            live[place], live[-1] = live[-1], live[place]
            address, size = live.pop()
            size = -size
        else:
            address, size = 512 * (n + 1), draw.randint(1, 1 << 20)
            live.append((address, size))
        total += size
        arguments = {"Total Reserved": 1 << 36, "Total Allocated": total, "Bytes": size, "Addr": address}
        event = {"cat": "cpu_instant_event", "name": "[memory]", "ts": 1000 + n, "s": "t"}
        text = json.dumps({**thread, **event, "ph": "i", "args": {**arguments, "Device Id": 0, "Device Type": 1}})
        file.write(text + (",\n" if n + 1 < blocks else "\n"))
    file.write("]}")
