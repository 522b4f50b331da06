"""`logs nccl`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from alltrace.cli.argument_types import positive
from alltrace.cli.command import add_rank_option, add_steps_option
from alltrace.trace.errors import EXIT_DONE, UsageError
from alltrace.trace.spans import parse_ranks, parse_steps

if TYPE_CHECKING:
    import argparse

    from alltrace.recipes.base import Answer
    from alltrace.run.nccl_logs import NcclLogs

EXAMPLE = "alltrace logs nccl slurm-123.out --view ops --steps 45:50"


def configure(parser: argparse.ArgumentParser) -> None:
    """The view and what it may be asked."""
    from alltrace.recipes.logs import NCCL_VIEWS

    group = parser.add_argument_group("the question")
    group.add_argument("--view", choices=tuple(NCCL_VIEWS), default="ops", help="default: ops")
    add_steps_option(group, "only calls of these training steps, whose lines the log must have")
    group.add_argument("--edges", metavar="LIST", help="sizes at which the histogram's classes part, such as 64K,1M,16M")
    group.add_argument(
        "--preset",
        choices=("four", "powers"),
        help="classes without --edges: `four` parts at 64K,1M,16M; default: powers of four from 1K",
    )
    group.add_argument("--time-format", metavar="FORMAT", help="how the lines' times are written, for strptime; default: found out")
    add_rank_option(group)
    parser.add_argument("--jobs", type=positive, metavar="N", help="the most processes; default: one for each processor")


def run(args: argparse.Namespace) -> int:
    """Read the logs and answer."""
    from contextlib import nullcontext

    from alltrace.cli.output import write_answer
    from alltrace.recipes.logs import NCCL_VIEWS, NEEDS_CALLS
    from alltrace.recipes.logs.nccl import NcclOptions
    from alltrace.recipes.logs.nccl_histogram import parse_edges
    from alltrace.run.nccl_logs import expand, log_folder, read_nccl_logs

    ranks = parse_ranks(args.ranks)
    wanted = None if ranks is None else frozenset(ranks)
    options = NcclOptions(parse_steps(args.steps), parse_edges(args.edges), args.preset or "powers", wanted)
    for given, option, view in (
        (args.time_format, "--time-format", "calls"),
        (args.edges, "--edges", "histogram"),
        (args.preset, "--preset", "histogram"),
    ):
        if given is not None and args.view != view:
            raise UsageError(f"{option} has no meaning for the view {args.view}; it is for the view {view}")
    paths = expand(args.files)
    each = args.view in NEEDS_CALLS or options.steps is not None
    with log_folder() if each else nullcontext() as folder:
        logs = read_nccl_logs(paths, calls_to=folder, times=args.view == "calls", time_format=args.time_format, jobs=args.jobs)
        answer = import_module(NCCL_VIEWS[args.view]).answer(logs, options)
        write_answer("logs nccl", with_unread(answer, logs), facts(logs), args)
        # what is mapped from the folder must go before the folder
        del answer
    return EXIT_DONE


def with_unread(answer: Answer, logs: NcclLogs) -> Answer:
    """The answer with the records that were not understood beside it."""
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
