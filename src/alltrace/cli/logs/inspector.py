"""`logs inspector`."""

from __future__ import annotations

import argparse

from alltrace.trace.errors import EXIT_DONE

EXAMPLE = "alltrace logs inspector nccl-inspector-4711/ --view stragglers"


def configure(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the question")
    group.add_argument(
        "--view",
        choices=("missing", "collectives", "stragglers", "operations"),
        default="missing",
        help=(
            "operations without a record of some rank, how long collectives take without waiting, who arrives last, or"
            " every operation; default: missing"
        ),
    )
    group.add_argument(
        "--nccl-tests",
        metavar="FILE",
        help="output of nccl-tests on the same hosts, to compare the bus bandwidth of collectives with",
    )


def run(args: argparse.Namespace) -> int:
    from alltrace.cli.output import write_answer
    from alltrace.readers.nccl_inspector.records import read_inspector
    from alltrace.recipes.logs.inspector import answer
    from alltrace.run.log_files import expand, read_files, read_tests_table

    tests = None if args.nccl_tests is None else read_tests_table(args.nccl_tests)
    read = read_files(read_inspector, expand(args.files)).require_any()
    files = read.results
    processes = {(f.host, f.pid) for f in files}
    facts = {"ranks": len(processes), "hosts": len({host for host, _ in processes}), "devices": 0, "span_ns": 0}
    write_answer("logs inspector", answer(files, args.view, tests).with_notes(*read.notes), facts, args)
    return EXIT_DONE
