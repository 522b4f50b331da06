"""Sizes of collectives from a log of NCCL, against `grep | awk` as the usual pipeline, in CPU seconds."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import ALLTRACE, median

LINES = 1_000_000
_RANKS = 16
_SIZES = (1, 512, 1 << 20, 37_756_928)
_OPS = (("AllReduce", 7), ("AllGather", 9), ("ReduceScatter", 9), ("Broadcast", 4))
# per line: operation, count, datatype and bytes of a call; then how often each came
_AWK = r"""
BEGIN { split("1 1 4 4 8 8 2 4 8 2 1 1", size, " ") }
{ op = ""; count = 0; type = -1
  for (i = 1; i <= NF; i++) { if (op == "" && $i ~ /:$/) { op = $i; sub(/:$/, "", op) }
    if ($i == "count") count = $(i + 1); if ($i == "datatype") type = $(i + 1) }
  if (count > 0 && type >= 0 && type < 12) calls[op " " count " " type " " count * size[type + 1]]++ }
END { for (k in calls) print calls[k], k }
"""
_ALLTRACE = """
import sys, time
from pathlib import Path
from alltrace.recipes.logs import nccl_sizes
from alltrace.recipes.logs.nccl import NcclOptions
from alltrace.run.nccl_logs import read_nccl_logs
read_nccl_logs([Path(sys.argv[1])], calls_to=None, jobs=1)
start = time.process_time()
logs = read_nccl_logs([Path(sys.argv[1])], calls_to=None, jobs=1)
rows = nccl_sizes.answer(logs, NcclOptions()).table
print(time.process_time() - start, sum(rows.column("calls").to_pylist()))
"""


def write(path: Path, lines: int) -> None:
    """A log of COLL lines of 16 ranks."""
    with path.open("w") as file:
        for rank in range(_RANKS):
            file.write(
                f"node-{rank // 8}:{1000 + rank}:{1000 + rank} [{rank % 8}] NCCL INFO ncclCommInitRank comm "
                f"0x55d5{rank:08x} rank {rank} "
                f"nranks {_RANKS} cudaDev {rank % 8} nvmlDev {rank % 8} busId 1000 commId 0xabcdef - Init COMPLETE\n"
            )
        for n in range(lines):
            rank, (op, datatype) = n % _RANKS, _OPS[n // _RANKS % 4]
            file.write(
                f"node-{rank // 8}:{1000 + rank}:{1000 + rank} [{rank % 8}] NCCL INFO {op}: opCount {n // _RANKS:x}"
                f" sendbuff 0x7f33f87{n % 4096:05x} recvbuff 0x7f33f878ca00 count {_SIZES[n // 64 % 4]} datatype"
                f" {datatype} op 0 root 0 comm 0x55d5{rank:08x} [nranks={_RANKS}] stream 0x9cd23f10\n"
            )


def run(runs: int) -> list[str]:
    """Rows of the table: what, against, ratio, figures."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "nccl.log"
        write(path, LINES)
        pipeline = ["sh", "-c", f"grep 'NCCL INFO' {path} | grep opCount | awk '{_AWK}' > /dev/null"]
        command = [sys.executable, "-c", _ALLTRACE, str(path)]
        whole = [*ALLTRACE, "logs", "nccl", str(path), "--view", "sizes", "--format", "csv"]
        ours, commands, theirs = [], [], []
        for _ in range(runs):
            seconds, calls = _run(command).split()
            if int(calls) != LINES:
                raise ValueError(f"{calls} calls were counted, not {LINES}")
            ours.append(float(seconds))
            commands.append(_time(whole))
            theirs.append(_time(pipeline))
    reading, command_s, pipeline_s = median(ours), median(commands), median(theirs)
    return [
        (
            f"| logs nccl: read and count {LINES:,} COLL lines | grep, grep, awk | {pipeline_s / reading:.1f} | "
            f"{reading:.2f} s ({LINES / reading / 1e6:.2f} M lines/s), pipeline {pipeline_s:.2f} s |"
        ),
        (
            f"| logs nccl --view sizes, the whole command | grep, grep, awk | {pipeline_s / command_s:.1f} |"
            f" {command_s:.2f} s |"
        ),
    ]


def _run(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _time(command: list[str]) -> float:
    before = os.times()
    _run(command)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system
