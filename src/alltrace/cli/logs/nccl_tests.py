"""`logs nccl-tests`."""

from __future__ import annotations

import argparse

from alltrace.trace.errors import EXIT_DONE, InputError, UsageError

EXAMPLE = "alltrace logs nccl-tests all_reduce_*.out --view summary --peak 450"
VIEWS = ("sizes", "summary", "compare", "hosts")


def configure(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the question")
    group.add_argument(
        "--view",
        choices=VIEWS,
        default="sizes",
        help="the tables, a summary of each run, runs compared, or hosts that are slower than others; default: sizes",
    )
    group.add_argument(
        "--peak",
        type=float,
        metavar="GB/S",
        help="the peak bandwidth of the link in 1e9 bytes per second, for the column peak_share",
    )


def run(args: argparse.Namespace) -> int:
    from alltrace.cli.output import write_answer
    from alltrace.readers.nccl_tests.read import read_tests
    from alltrace.recipes.logs.nccl_tests import answer
    from alltrace.run.log_files import expand, read_files

    if args.peak is not None and not 0 < args.peak < float("inf"):
        raise UsageError(f"--peak is {args.peak}; expected a bandwidth above 0 in GB/s")
    read = read_files(read_tests, expand(args.files)).require_any()
    files = read.results
    if not any(f.runs for f in files):
        raise InputError(
            files[0].path if len(files) == 1 else f"{files[0].path} and {len(files) - 1} more",
            found=f"no table of nccl-tests in {sum(f.lines for f in files)} lines",
            expected="the output of all_reduce_perf or another program of nccl-tests, or its JSON",
        )
    ranks = {(f.path, run.number): len(run.ranks) for f in files for run in f.runs}
    hosts = {rank[2] for f in files for run in f.runs for rank in run.ranks}
    facts = {
        "ranks": max(ranks.values(), default=0),
        "hosts": len(hosts),
        "devices": max(ranks.values(), default=0),
        "span_ns": 0,
    }
    write_answer("logs nccl-tests", answer(files, args.view, args.peak).with_notes(*read.notes), facts, args)
    return EXIT_DONE
