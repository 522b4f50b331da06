"""Ranks made from one real trace: collectives end together, one rank arrives last at all of them, and clocks differ."""

from __future__ import annotations

import gzip
import json
import random
from typing import TYPE_CHECKING, Any

from tests.thorough import cases

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = "hta/df_index_resolver__df_index_resolver.json.gz"
RANKS = cases(4, 8)
LATE = 2
"""The planted straggler: it keeps 15 % of each collective, so that it arrives after all others, which lose up to 30
%."""


def load(path: Path) -> dict[str, Any]:
    """A trace as `json` reads it."""
    with gzip.open(path) as file:
        content: dict[str, Any] = json.loads(file.read(), strict=False)
    return content


def plant(source: Path, folder: Path, *, apart_us: int) -> tuple[list[Path], list[int]]:
    """Writes the traces.

    Args:
        source: The trace that all ranks are copies of, with times in whole microseconds.
        folder: Where; the names of files do not tell the ranks.
        apart_us: How far the clocks are ahead or behind at most; rank 0's is right.

    Returns:
        The files by rank, and the offsets of their clocks in microseconds.
    """
    content = load(source)
    kept = [e for e in content["traceEvents"] if e.get("cat") in ("kernel", "cuda_runtime", "user_annotation")]
    draw = random.Random(5)
    offsets = [0, *(draw.randint(-apart_us, apart_us) for _ in range(RANKS - 1))]
    files = []
    for rank in range(RANKS):
        events = [dict(e) for e in kept]
        for e in events:
            if e["cat"] == "kernel" and "nccl" in e["name"]:
                share = 0.15 if rank == LATE else draw.uniform(0.7, 1)
                end = e["ts"] + e["dur"]
                e["dur"] = max(1, int(e["dur"] * share))
                e["ts"] = end - e["dur"]
            e["ts"] += offsets[rank]
        content |= {"distributedInfo": {"rank": rank, "world_size": RANKS}, "traceEvents": events}
        files.append(folder / f"trace{RANKS - 1 - rank}.json.gz")
        with gzip.open(files[-1], "wt", compresslevel=1) as file:
            json.dump(content, file, separators=(",", ":"))
    return files, offsets
