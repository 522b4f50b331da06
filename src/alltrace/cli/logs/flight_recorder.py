"""`logs flight-recorder`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alltrace.trace.errors import EXIT_DONE, UsageError

if TYPE_CHECKING:
    import argparse

    from alltrace.recipes.analysis.recorded_steps import CapturedSteps

EXAMPLE = "alltrace logs flight-recorder nccl_trace_rank_* --view hangs"


def configure(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the question")
    group.add_argument(
        "--view",
        choices=("hangs", "entries", "times", "steps"),
        default="hangs",
        help=(
            "which ranks are missing where, every entry, how long operations took, or how long steps took; default:"
            " hangs"
        ),
    )
    group.add_argument(
        "--run",
        metavar="RUN",
        help=(
            "with --view steps: a run of the same job; its steps are found in the records, and those within the capture"
            " are compared with those outside of it"
        ),
    )


def run(args: argparse.Namespace) -> int:
    from alltrace.cli.output import write_answer
    from alltrace.readers.flight_recorder.read import read_recording
    from alltrace.recipes.logs.flight_recorder import answer
    from alltrace.run.log_files import expand, read_files

    if args.run is not None and args.view != "steps":
        raise UsageError("--run is for --view steps; leave one out or add the other")
    read = read_files(read_recording, expand(args.files)).require_any()
    recordings = read.results
    ranks = {rank for r in recordings for rank in r.ranks}
    facts = {"ranks": len(ranks), "hosts": 0, "devices": 0, "span_ns": 0}
    captured = None if args.run is None else _captured_steps(args.run)
    write_answer("logs flight-recorder", answer(recordings, args.view, captured).with_notes(*read.notes), facts, args)
    return EXIT_DONE


def _captured_steps(name: str) -> dict[int, CapturedSteps]:
    from alltrace.align.store import aligned
    from alltrace.cli.command import open_named
    from alltrace.recipes.analysis.recorded_steps import captured_steps

    run = open_named(name)
    return captured_steps(run, aligned(run).steps)
