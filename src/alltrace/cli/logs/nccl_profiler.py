"""`logs nccl-profiler`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alltrace.trace.errors import EXIT_DONE

if TYPE_CHECKING:
    import argparse

EXAMPLE = "alltrace logs nccl-profiler nccl-profile_*.json --view links"


def configure(parser: argparse.ArgumentParser) -> None:
    """The view."""
    parser.add_argument_group("the question").add_argument(
        "--view",
        choices=("ranks", "links", "network", "operations"),
        default="ranks",
        help="which rank is slow and by what, time on the network of each link against the others, transfers of each network "
        "device, or every operation; default: ranks",
    )


def run(args: argparse.Namespace) -> int:
    """Read the files and answer."""
    from alltrace.cli.output import write_answer
    from alltrace.readers.nccl_profiler.records import read_profiler
    from alltrace.recipes.logs.nccl_profiler import answer
    from alltrace.run.log_files import read_files
    from alltrace.run.nccl_logs import expand

    files = read_files(read_profiler, expand(args.files))
    facts = {"ranks": len({f.rank for f in files if f.rank is not None}), "hosts": 0, "devices": 0, "span_ns": 0}
    write_answer("logs nccl-profiler", answer(files, args.view), facts, args)
    return EXIT_DONE
