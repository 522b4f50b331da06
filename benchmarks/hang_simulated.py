"""Simulated hangs: `python -m benchmarks.hang_simulated [--cases 120] [--seed N] [--lost SHARE] [--scale RANKS]`.

Each job is drawn by the seed: its layout, its fault, the ranks. A case is right if the first row names exactly the
planted ranks (a network's ranks are not known, so its kind counts). With `--lost`, a share of the dumps is missing, cut
or empty; a sentence that says that something cannot be known is counted apart. `--scale` times one job of this many
ranks, each with a dump of 2,000 operations with 12 frames.
"""

from __future__ import annotations

import argparse
import pickle
import random
import resource
import tempfile
import time
from pathlib import Path

from tests.hang_writing import damage, drawn, write_job

from alltrace.hang.verdict import verdict_of

_OPERATIONS, _FRAMES = 2000, 12
_GROUPS = 5


def score(cases: int, seed: int, lost: float, *, show: bool) -> None:
    """Print how many are right, cannot be known, and wrong."""
    right = unknown = wrong = 0
    for number in range(cases):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            job, active, per_host = drawn(seed + number)
            truth = write_job(folder, job, active=active, per_host=per_host)
            if lost:
                damage(folder, seed + number, lost)
            answer = verdict_of(folder)
            row = answer.table.to_pylist()[0]
        whole_host = truth["fault"] == "host" and set(truth["ranks"]) <= set(
            row["ranks"]
        )  # some of its ranks only waited before
        if row["ranks"] == truth["ranks"] or whole_host or truth["fault"] == row["kind"] == "network":
            right += 1
        elif "cannot be known" in (answer.verdict or ""):
            unknown += 1
        else:
            wrong += 1
            if show:
                print(
                    f"{seed + number}: {truth['fault']} of {truth['ranks']}: {row['kind']} {row['ranks']}:"
                    f" {answer.verdict}"
                )
    print(
        f"{right} of {cases} right, {unknown} cannot be known, {wrong} wrong; {lost:.0%} of the dumps lost, seeds from"
        f" {seed}"
    )


def scale(ranks: int) -> None:
    """Print what the verdict on a job of many ranks costs, the writing of the dumps not included."""
    with tempfile.TemporaryDirectory() as name:
        late = ranks * 5 // 8
        of_late, of_others = (pickle.dumps(_dump(ranks, _OPERATIONS - less), protocol=2) for less in (7, 0))
        for rank in range(ranks):
            (Path(name) / f"_dump_{rank}").write_bytes(of_late if rank == late else of_others)
        began, cpu = time.perf_counter(), time.process_time()
        row = verdict_of(Path(name), 1 << 60).table.to_pylist()[0]
        cpu, took = time.process_time() - cpu, time.perf_counter() - began
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{ranks} ranks: {cpu:.1f} CPU s, {took:.1f} s, {most:.0f} MB at most; names {row['ranks']}, planted [{late}]"
    )


def _dump(ranks: int, issued: int) -> dict[str, object]:
    frames = [{"name": f"call_{n}", "filename": f"/opt/app/module_{n}.py", "line": 100 + n} for n in range(_FRAMES)]
    entries = [
        {
            "record_id": n, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": n + 1,
            "p2p_seq_id": 0, "op_id": n + 1, "profiling_name": "nccl:all_reduce", "time_created_ns": 10**18 + n * 10**6,
            "input_sizes": [[4096, n % 40]], "input_dtypes": ["Float"],
            "output_sizes": [[4096, n % 40]], "output_dtypes": ["Float"],
            "state": "completed" if n < _OPERATIONS - 7 else "scheduled", "retired": n < _OPERATIONS - 7,
            "timeout_ms": 600_000, "is_p2p": False, "time_discovered_started_ns": 10**18 + n * 10**6,
            "time_discovered_completed_ns": 10**18 + n * 10**6, "frames": [dict(frame) for frame in frames],
        }
        for n in range(issued)
    ]  # fmt: skip
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))}}
    return {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": entries}


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hang_simulated", description=__doc__)
    parser.add_argument("--cases", type=int, default=120)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--lost", type=float, default=0.0, metavar="SHARE")
    parser.add_argument("--show", action="store_true", help="print each that is wrong")
    parser.add_argument("--scale", type=int, metavar="RANKS", help="time one job of this many ranks instead")
    args = parser.parse_args()
    if args.scale:
        scale(args.scale)
    else:
        score(args.cases, args.seed, args.lost, show=args.show)


if __name__ == "__main__":
    main()
