"""The verdict on published hangs with injected faults: `python -m benchmarks.hang_published FOLDER`.

FOLDER is `tests/attribution/unit/fr_traces` of NVIDIA/nvidia-resiliency-ext, which is fetched and not copied into the
project: a folder for each hang with `_dump_N` of 16 ranks, and `fault_injection.log` with the ranks in which a fault
was injected.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from alltrace.hang.verdict import verdict_of


def main() -> None:
    """Print a row for each hang, and how many are right: exactly the injected ranks in the first row."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hang_published", description=__doc__)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    right, judged = 0, 0
    print("| hang | injected | named | kind | verdict |\n|---|---|---|---|---|")
    for log in sorted(args.folder.glob("*/fault_injection.log")):
        injected = sorted(map(int, re.findall(r"^Rank (\d+),", log.read_text(encoding="utf-8"), re.MULTILINE)))
        answer = verdict_of(log.parent)
        row = answer.table.to_pylist()[0]
        judged += 1
        right += row["ranks"] == injected
        print(f"| {log.parent.name} | {injected} | {row['ranks']} | {row['kind']} | {answer.verdict} |")
    print(f"\n{right} of {judged} right")


if __name__ == "__main__":
    main()
