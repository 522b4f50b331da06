"""The verb `logs`: questions to what a job printed, without a profiler's report."""

from __future__ import annotations

import argparse
from importlib import import_module

from alltrace.cli.command import Parser, add_answer_options
from alltrace.trace.errors import UsageError

KINDS: dict[str, tuple[str, str]] = {
    "nccl": ("alltrace.cli.logs.nccl", "logs of NCCL and RCCL: calls, sizes, communicators, transports, mismatches"),
    "nccl-tests": (
        "alltrace.cli.logs.nccl_tests",
        "tables of nccl-tests: bandwidth by size, latency floor, knee, outliers",
    ),
    "training": ("alltrace.cli.logs.training", "training logs: step time, throughput, memory, slow steps"),
    "flight-recorder": (
        "alltrace.cli.logs.flight_recorder",
        "PyTorch's flight recorder: which ranks are missing where",
    ),
    "inspector": (
        "alltrace.cli.logs.inspector",
        "NCCL Inspector: missing records, bandwidth without waits, who arrives last",
    ),
}
EXAMPLE = "alltrace logs nccl nccl.*.log --view mismatches"


def configure(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", parser_class=Parser)
    for name, (module, text) in KINDS.items():
        its = import_module(module)
        own = kinds.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            example=its.EXAMPLE,
        )
        own.add_argument(
            "files", nargs="+", metavar="FILE", help="logs (plain, gzip or zstd), folders of logs, or patterns"
        )
        its.configure(own)
        add_answer_options(own)


def run(args: argparse.Namespace) -> int:
    if args.kind is None:
        raise UsageError(f"logs needs a kind of log; expected one of {', '.join(KINDS)}")
    from alltrace.cli.output import check_output

    check_output(args)
    done: int = import_module(KINDS[args.kind][0]).run(args)
    return done
