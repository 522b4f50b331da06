"""How right alltrace is on real MPI programs: `python -m benchmarks.mpi_truth --nsys NSYS --keep FOLDER`.

Programs call collectives in random order, on the world and on halves of it, after planted sleeps, and write a record
of every call. They run on this machine with Open MPI and MPICH under a real Nsight Systems, which records one report
per rank. alltrace imports the reports, and its instances, waits and sizes are compared with the records. What is in
FOLDER already is only scored again. On a machine that other work keeps busy a rank may be stopped between two readings
of a clock, so the load is reported.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.mpi_programs.recording import DONE, IMPLEMENTATIONS, Plan, lacking, record
from benchmarks.mpi_programs.score import WAIT_NS, WAIT_SHARE, Judgement, scored

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.mpi_programs.score import Score

EVERYTHING = "halves,copy,nonblocking,messages,persistent,variants,mixed,halo,prepared"
_HEAD = (
    "| {} | planted | as recorded | in parts | waits right | wait, of the record's | sizes right |\n" + "|---" * 7 + "|"
)


def row(name: str, judged: Judgement) -> str:
    """A row of the table."""
    ratio = f"{judged.wait_ns / judged.record_wait_ns:.2f}" if judged.record_wait_ns else "-"
    sizes = f"{judged.sizes_right} of {judged.sizes}" if judged.sizes else "-"
    sizes += f" ({judged.sizes_ambiguous} ambiguous)" if judged.sizes_ambiguous else ""
    parts = f"{judged.partial}" + (f" ({judged.split} in several)" if judged.split else "")
    waits = f"{judged.waits_right} of {judged.waits}"
    return f"| {name} | {judged.planted} | {judged.right} | {parts} | {waits} | {ratio} | {sizes} |"


def tables(scores: Sequence[Score], loads: Sequence[str]) -> str:
    """What is printed: a row for each recording and part, one for each kind of operation, and what else was seen."""
    lines = [_HEAD.format("recording")]
    for score in scores:
        lines += [
            row(f"{score.name}, {part}", score.total(part)) for part in dict.fromkeys(p for p, _kind in score.parts)
        ]
    lines += ["", _HEAD.format("blocking operation, all recordings")]
    kinds = sorted({kind for s in scores for part, kind in s.parts if part not in ("messages", "non-blocking")})
    for kind in kinds:
        whole = Judgement()
        for score in scores:
            for (part, one), judged in score.parts.items():
                if one == kind and part not in ("messages", "non-blocking"):
                    whole.add(judged)
        lines.append(row(kind, whole))
    lines.append("")
    for score, load in zip(scores, loads, strict=True):
        clocks = f"clocks of two ranks differ by up to {score.clock_error_ns / 1000:.1f} us"
        lines.append(f"* {score.name}: {score.wrong} groups of calls that are no operation; {clocks}; {load}")
    return "\n".join(lines)


def load_of(folder: Path) -> str:
    """How busy the machine was during the recording."""
    facts = json.loads((folder / DONE).read_text())
    busy = f", {facts['busy']} processes computed at the same time" if facts["busy"] else ""
    return f"load {facts['load_before']:.1f} before, {facts['load_after']:.1f} after, of {facts['cores']} cores{busy}"


def arguments() -> argparse.Namespace:
    """The command's options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mpi_truth", description=__doc__)
    nsight = os.environ.get("ALLTRACE_NSIGHT")
    default = Path(nsight) / "nsys/target-linux-x64/nsys" if nsight else Path("nsys")
    parser.add_argument(
        "--nsys", type=Path, default=default, help="the profiler (default: of ALLTRACE_NSIGHT, else on the path)"
    )
    parser.add_argument("--mpi", choices=IMPLEMENTATIONS, nargs="+", default=IMPLEMENTATIONS, help="default: both")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 3, 4], metavar="N", help="default: 2 3 4")
    parser.add_argument("--seed", type=int, default=1, help="of the programs")
    parser.add_argument("--each", type=int, default=8, help="operations of a kind on each communicator (default: 8)")
    parser.add_argument("--sleep-us", type=int, default=20_000, help="longest sleep before a call (default: 20000)")
    parser.add_argument("--features", default="halves", help=f"of {EVERYTHING} (default: halves)")
    parser.add_argument(
        "--busy", type=int, default=0, metavar="N", help="processes that compute at the same time (default: 0)"
    )
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="FOLDER",
        help="keep recordings and runs there; what is there is not recorded again",
    )
    args = parser.parse_args()
    if min(args.ranks) < 2 or args.each < 1:
        parser.error("--ranks must be at least 2 and --each at least 1")
    if shutil.which(args.nsys) is None:
        parser.error(f"--nsys: {args.nsys} is no program")
    return args


def main() -> None:
    """Record what is missing, score all, and print the tables."""
    args = arguments()
    keep = args.keep or Path(tempfile.mkdtemp(prefix="alltrace-mpi-"))
    scores, loads = [], []
    try:
        for implementation in args.mpi:
            for ranks in args.ranks:
                plan = Plan(implementation, ranks, args.seed, args.each, args.sleep_us, args.features, args.busy)
                folder = keep / plan.name
                if not (folder / DONE).is_file():
                    missing = lacking(plan)
                    if missing is not None:
                        print(f"{plan.name}: left out, {missing} is not installed")
                        continue
                    record(plan, folder, args.nsys)
                with tempfile.TemporaryDirectory(prefix="alltrace-mpi-run-") as run:
                    scores.append(scored(folder, Path(run) / "run"))
                loads.append(load_of(folder))
    finally:
        if args.keep is None:
            shutil.rmtree(keep, ignore_errors=True)
    print(
        f"waits are right within {WAIT_SHARE:.0%} or {WAIT_NS / 1000:.0f} us; load of this machine now:"
        f" {os.getloadavg()[0]:.1f}\n"
    )
    print(tables(scores, loads))


if __name__ == "__main__":
    main()
