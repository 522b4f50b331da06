"""`logs nccl`."""

from __future__ import annotations

from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from alltrace.cli.argument_types import positive
from alltrace.cli.command import add_pattern_option, add_rank_option, add_steps_option
from alltrace.trace.errors import EXIT_DONE, UsageError
from alltrace.trace.spans import parse_ranks, parse_steps

if TYPE_CHECKING:
    import argparse

    from alltrace.recipes.base import Answer
    from alltrace.run.nccl_logs import NcclLogs

EXAMPLE = "alltrace logs nccl slurm-123.out --view ops --steps 45:50"


def configure(parser: argparse.ArgumentParser) -> None:
    from alltrace.recipes.logs import NCCL_VIEWS

    group = parser.add_argument_group("the question")
    group.add_argument("--view", choices=tuple(NCCL_VIEWS), default="ops", help="default: ops")
    add_steps_option(group, "only calls of these training steps; a log must contain the steps' lines")
    group.add_argument(
        "--training-log",
        metavar="FILE",
        help=(
            "what the training printed, in a separate file: the times of its lines give the steps of logs without step"
            " lines; all logs must come from one host"
        ),
    )
    add_pattern_option(group, "with --training-log: ")
    group.add_argument(
        "--edges", metavar="LIST", help="the boundaries between the histogram's classes, such as 64K,1M,16M"
    )
    group.add_argument(
        "--preset",
        choices=("four", "powers"),
        help=(
            "the classes when --edges is not given: `four` has boundaries at 64K,1M,16M; default: powers of four"
            " from 1K"
        ),
    )
    group.add_argument(
        "--time-format", metavar="FORMAT", help="the format of the lines' times, for strptime; default: detected"
    )
    add_rank_option(group)
    parser.add_argument(
        "--jobs", type=positive, metavar="N", help="the maximum number of processes; default: one per processor"
    )


def run(args: argparse.Namespace) -> int:
    from contextlib import nullcontext

    from alltrace.cli.output import write_answer
    from alltrace.recipes.logs import NCCL_VIEWS, NEEDS_CALLS
    from alltrace.recipes.logs.nccl import NcclOptions
    from alltrace.recipes.logs.nccl_sizes import parse_edges
    from alltrace.run.log_files import expand
    from alltrace.run.nccl_logs import log_folder, read_nccl_logs
    from alltrace.run.step_times import read_step_times, training_log_beside

    ranks = parse_ranks(args.ranks)
    wanted = None if ranks is None else frozenset(ranks)
    options = NcclOptions(parse_steps(args.steps), parse_edges(args.edges), args.preset or "powers", wanted)
    for value, option, view in (
        (None if args.steps else args.time_format, "--time-format", "calls"),
        (args.edges, "--edges", "histogram"),
        (args.preset, "--preset", "histogram"),
    ):
        if value is not None and args.view != view:
            raise UsageError(f"{option} is not for the view {args.view}; it is for the view {view}")
    stepped = args.view == "calls" or options.steps is not None
    if args.training_log is not None and not stepped:
        raise UsageError("--training-log assigns calls to steps; it works only with --steps and with the view calls")
    if args.pattern and args.training_log is None:
        raise UsageError("--pattern needs --training-log, which was not given")
    paths = expand(args.files)
    step_times = None if args.training_log is None else read_step_times(Path(args.training_log), args.pattern)
    each = args.view in NEEDS_CALLS or options.steps is not None
    with log_folder() if each else nullcontext() as folder:
        logs = read_nccl_logs(paths, calls_to=folder, times=stepped, time_format=args.time_format, jobs=args.jobs)
        logs.step_times = (
            training_log_beside(logs.parts) if step_times is None and options.steps is not None else step_times
        )
        answer = resolve_name(NCCL_VIEWS[args.view]).answer(logs, options)
        write_answer("logs nccl", with_unread(answer, logs), facts(logs), args)
        # what is mapped from the folder must go before the folder
        del answer
    return EXIT_DONE


def with_unread(answer: Answer, logs: NcclLogs) -> Answer:
    return answer._replace(extra={**answer.extra, "not_understood": list(logs.unread)})


def facts(logs: NcclLogs) -> dict[str, int]:
    """What the logs' job is: ranks and hosts seen, devices, no time span."""
    processes = {m.key for m in logs.members}
    return {
        "ranks": len({m.global_rank for m in logs.members if m.global_rank is not None}) or len(processes),
        "hosts": len({m.host for m in logs.members}),
        "devices": len({(m.host, m.bus_id) for m in logs.members if m.bus_id is not None}),
        "span_ns": 0,
    }
