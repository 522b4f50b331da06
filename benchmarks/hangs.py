"""Makes real jobs hang and asks who is to blame: `python -m benchmarks.hangs [CAUSE...] [--seed N] [--keep DIR]`.

Each job is `torchrun` with gloo and 8 processes (`ALLTRACE_TORCH_PYTHON`); a rank and a step are drawn by the seed. The
table of truths is written down here before any job runs. What the jobs leave stays in DIR.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

RANKS = 8
TRUTHS: dict[str, tuple[str, ...]] = {
    "skipped-call": ("missing-call",),
    "other-size": ("mismatch",),
    "other-order": ("mismatch",),
    "sleep": ("rank-waits",),
    "killed": ("dead-rank",),
    "exception": ("dead-rank",),
    "loader-deadlock": ("rank-waits",),
    "blocked-io": ("rank-waits",),
    "wrong-group": ("mismatch", "missing-call"),
    "stopped": ("dead-rank",),
    "network-cut": ("network", "dead-rank"),
    "late-rank": ("rank-waits",),
}
"""The kinds that are right for each cause; the culprit is always the one rank to which it happens."""
PROGRAM = Path(__file__).parent / "programs" / "hanging_training.py"
_LONGEST_S = 90.0


def hang(cause: str, folder: Path, rank: int, step: int, after_s: float, cut: str = "") -> None:
    """Run a job with a cause until its ranks wrote their dumps, and end it; what it leaves is in `folder`."""
    python = os.environ["ALLTRACE_TORCH_PYTHON"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [python, "-m", "torch.distributed.run", "--nproc_per_node", str(RANKS), "--master_addr", "127.0.0.1"]
    command += ["--master_port", str(port), str(PROGRAM), str(folder), cause, str(rank), str(step)]
    fixed = {"TORCH_FR_BUFFER_SIZE": "2000", "HANG_AFTER_S": str(after_s), "OMP_NUM_THREADS": "1", "HANG_CUT": cut}
    silent = {rank} if cause in ("killed", "exception", "stopped") else set()
    with (folder / "job.log").open("wb") as log:
        job = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **fixed}, start_new_session=True
        )
        until = time.monotonic() + _LONGEST_S
        try:
            while job.poll() is None and time.monotonic() < until:
                if cause in ("killed", "exception"):  # the launcher ends the job, and says who died
                    pass
                elif all((folder / f"fr_trace_{r}").exists() for r in range(RANKS) if r not in silent):
                    break
                time.sleep(0.2)
            if (py_spy := os.environ.get("ALLTRACE_PY_SPY")) is not None and job.poll() is None:
                _stacks(py_spy, job.pid, folder)
            if cause == "late-rank":  # it goes on
                time.sleep(after_s)
        finally:
            started = _descendants(job.pid)
            if job.poll() is None:
                job.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    job.wait(5)
            for pid in started:  # such as one that is stopped
                if _program(pid) == PROGRAM.name:
                    os.kill(pid, signal.SIGKILL)
            job.wait()


def _descendants(parent: int) -> list[int]:
    """The processes that a process started, and those that they started."""
    children: dict[int, list[int]] = defaultdict(list)
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children[int(fields[1])].append(int(path.parent.name))
    pids, todo = [], [parent]
    while todo:
        new = children[todo.pop()]
        pids += new
        todo += new
    return pids


def _program(pid: int) -> str:
    """The name of the program that a Python process runs; empty if there is no such process."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return next((Path(w.decode()).name for w in words if w.endswith(b".py")), "")


def _stacks(py_spy: str, launcher: int, folder: Path) -> None:
    """The stacks of all ranks by py-spy, in place of those of `faulthandler`."""
    for pid in _descendants(launcher):
        try:
            if _program(pid) != PROGRAM.name:
                continue
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            stopped = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        except OSError:
            continue
        rank = next((v[5:].decode() for v in variables if v.startswith(b"RANK=")), None)
        if rank is not None and not stopped:
            said = subprocess.run(
                [py_spy, "dump", "--nonblocking", "--pid", str(pid)], capture_output=True, check=False, timeout=20
            )
            if said.stdout:
                (folder / f"stacks_rank{rank}.txt").write_bytes(said.stdout)


def ask(folder: Path) -> tuple[dict[str, Any], float]:
    """The answer of `alltrace hang` as JSON, and how long it took."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", "alltrace.cli.main", "hang", str(folder), "--format", "json"]
    said = subprocess.run(command, capture_output=True, check=True)
    answer: dict[str, Any] = json.loads(said.stdout)
    return answer, time.perf_counter() - begin


def right(answer: dict[str, Any], cause: str, rank: int) -> bool:
    """Whether the first row names the cause and the rank."""
    row = answer["rows"][0]
    return row["kind"] in TRUTHS[cause] and (row["ranks"] == [rank] or row["kind"] == "network")


def main() -> None:
    """Run the causes that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hangs", description=__doc__)
    parser.add_argument("causes", nargs="*", metavar="CAUSE", help=f"of {', '.join(TRUTHS)}; default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--after", type=float, default=10.0, metavar="S", help="seconds without a step until ranks write their dumps"
    )
    parser.add_argument(
        "--cut", default="", metavar="COMMAND", help="cuts the network of the process that runs it; else skipped"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR")
    args = parser.parse_args()
    keep = args.keep or Path(tempfile.mkdtemp(prefix="hangs-"))
    draws = random.Random(args.seed)
    good, judged = 0, 0
    print("| cause | rank | kind | right | s | verdict |\n|---|---|---|---|---|---|")
    for cause in TRUTHS:
        rank, step = draws.randrange(RANKS), draws.randrange(8, 20)
        if args.causes and cause not in args.causes:
            continue
        if cause == "network-cut" and not args.cut:
            print(f"| {cause} | {rank} | - | skipped | | needs a network that can be cut |")
            continue
        folder = keep / cause
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        hang(cause, folder, rank, step, args.after, args.cut)
        answer, took_s = ask(folder)
        judged += 1
        is_right = right(answer, cause, rank)
        good += is_right
        row = answer["rows"][0]
        print(
            f"| {cause} | {rank} | {row['kind']} | {'yes' if is_right else 'no'} | {took_s:.2f} |"
            f" {answer['verdict']} |",
            flush=True,
        )
    print(f"\n{good} of {judged} right")


if __name__ == "__main__":
    main()
