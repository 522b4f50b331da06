"""`logs flight-recorder`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alltrace.trace.errors import EXIT_DONE

if TYPE_CHECKING:
    import argparse

EXAMPLE = "alltrace logs flight-recorder nccl_trace_rank_* --view hangs"


def configure(parser: argparse.ArgumentParser) -> None:
    """The view."""
    group = parser.add_argument_group("the question")
    group.add_argument(
        "--view",
        choices=("hangs", "entries", "times"),
        default="hangs",
        help="which ranks are missing where, every entry, or how long operations took; default: hangs",
    )


def run(args: argparse.Namespace) -> int:
    """Read the dumps and answer."""
    from alltrace.cli.output import write_answer
    from alltrace.readers.flight_recorder.read import read_recording
    from alltrace.recipes.logs.flight_recorder import answer
    from alltrace.run.log_files import read_files
    from alltrace.run.nccl_logs import expand

    recordings = read_files(read_recording, expand(args.files))
    ranks = {rank for r in recordings for rank in r.ranks}
    facts = {"ranks": len(ranks), "hosts": 0, "devices": 0, "span_ns": 0}
    write_answer("logs flight-recorder", answer(recordings, args.view), facts, args)
    return EXIT_DONE
