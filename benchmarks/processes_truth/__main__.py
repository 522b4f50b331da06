"""Causes planted in real processes: what `diagnose` finds and what was gained. `python -m benchmarks.processes_truth`.

Four processes of a training (torchrun with gloo) or of an MPI program run on this machine, with about 10 ms of
arithmetic in a step of 100 ms; the rest is waiting, as for a device. One start without a profiler alternates blocks
with and without the cause, in random order, until the standard error of the gain is at most a tenth of it. A second
start, in which each step has the cause, is recorded by `alltrace capture exec`: the training with PyTorch's profiler,
the MPI program with nsys (MPI and NVTX). `diagnose` runs on the reports. A cause that the machine does not allow is
left out by name. What is in the folder already is only scored again. With several runs of a cause the table that is
written has a row of each cause.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from alltrace.trace.errors import EXIT_DONE, EXIT_INPUT, AlltraceError
from benchmarks.accuracy_page import write_table
from benchmarks.processes_truth.blocks import Blocks
from benchmarks.processes_truth.causes import CAUSES, LEFT_OUT
from benchmarks.processes_truth.machine import lacking
from benchmarks.processes_truth.measuring import Program, record, time_both
from benchmarks.processes_truth.packing import pack
from benchmarks.processes_truth.score import HEAD, Scored, by_cause, score, summary

_PROFILERS = {"torch": "torch", "mpi": "nsys"}


def arguments() -> argparse.Namespace:
    """The command's options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.processes_truth", description=__doc__)
    names = [cause.name for cause in CAUSES]
    parser.add_argument("--causes", nargs="+", choices=names, default=names, help="default: all")
    parser.add_argument(
        "--programs", nargs="+", choices=tuple(_PROFILERS), default=list(_PROFILERS), help="default: both"
    )
    parser.add_argument("--only-times", action="store_true", help="record nothing")
    python = os.environ.get("ALLTRACE_TORCH_PYTHON", sys.executable)
    parser.add_argument(
        "--python", default=python, help="a Python that has PyTorch (default: of ALLTRACE_TORCH_PYTHON, else this one)"
    )
    parser.add_argument("--runs", type=int, default=1, help="measurements and recordings of each cause (default: 1)")
    parser.add_argument("--steps", type=int, default=60, help="recorded steps (default: 60)")
    parser.add_argument("--block", type=int, default=30, help="steps of a block (default: 30)")
    parser.add_argument("--most", type=int, default=10, help="most pairs of blocks (default: 10)")
    parser.add_argument("--seed", type=int, default=1, help="of the order of blocks (default: 1)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep times and recordings there")
    parser.add_argument(
        "--kept-only", action="store_true", help="record nothing, and score all recordings in the folder of --keep"
    )
    parser.add_argument(
        "--write", type=Path, metavar="PAGE", help="write the tables into this page, such as docs/accuracy.md"
    )
    parser.add_argument(
        "--pack", type=Path, metavar="FOLDER", help="also write the first recording of each cause there, scrubbed"
    )
    args = parser.parse_args()
    if args.kept_only and args.keep is None:
        parser.error("--kept-only needs --keep FOLDER, the folder that holds the recordings")
    return args


def main() -> int:
    """Measure, record and score, and print the tables."""
    args = arguments()
    keep = args.keep or Path(tempfile.mkdtemp(prefix="alltrace-truth-"))
    scores: list[Scored] = []
    left_out = dict(LEFT_OUT)
    failed = False
    for name in args.programs:
        program = Program(name, args.python, keep / name)
        if (missing := program.lacking()) is not None:
            left_out[name] = missing
            continue
        for cause in (c for c in CAUSES if c.name in args.causes and name in c.programs):
            if (missing := lacking(cause.needs)) is not None:
                left_out[cause.name] = missing
                continue
            folders = (
                sorted(path.parent for path in (keep / name).glob(f"{cause.name}-[0-9]*/{_PROFILERS[name]}"))
                if args.kept_only
                else [keep / name / f"{cause.name}-{run}" for run in range(args.runs)]
            )
            for run, folder in enumerate(folders):
                try:
                    gain = time_both(program, cause, Blocks(args.seed + run, args.block, most=args.most), folder)
                    if args.only_times:
                        print(f"{name}, {cause.name}: {100 * gain.share:.1f} % ± {100 * gain.error:.1f} %", flush=True)
                        continue
                    reports = record(program, cause, _PROFILERS[name], args.steps, folder)
                    scores.append(score(name, cause, gain, reports, keep / "cache"))
                    print(scores[-1].row(), file=sys.stderr, flush=True)
                    if args.pack is not None and run == 0:
                        pack(reports, gain, args.pack / f"{name}-{cause.name}.tar.xz")
                except AlltraceError as error:
                    print(f"{name}, {cause.name}: {error}", file=sys.stderr, flush=True)
                    failed = True
    notes = [f"* `{name}` is left out: {why}." for name, why in left_out.items()]
    tables = [*by_cause(scores), ""] if len(scores) > len({(s.program, s.cause) for s in scores}) else []
    if not tables or args.write is None:
        tables += [HEAD, *(s.row() for s in scores), ""]
    lines = [*tables, *summary(scores), "", *notes]
    if args.write is None:
        print("\n".join([f"load of this machine now: {os.getloadavg()[0]:.1f} of {os.cpu_count()} cores\n", *lines]))
    else:
        write_table(args.write, "real processes", lines)
    return EXIT_INPUT if failed else EXIT_DONE


if __name__ == "__main__":
    sys.exit(main())
