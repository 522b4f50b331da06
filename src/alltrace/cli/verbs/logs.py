"""The verb `logs`: questions to what a job printed, without a profiler's report."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple

from alltrace.cli.argument_types import positive
from alltrace.cli.command import Parser, add_answer_options, add_pattern_option, add_rank_option, add_steps_option
from alltrace.recipes.logs import NCCL_VIEWS, NEEDS_CALLS
from alltrace.trace.errors import EXIT_DONE, UsageError
from alltrace.trace.number_text import counted
from alltrace.trace.spans import parse_ranks, parse_steps

if TYPE_CHECKING:
    import argparse

    from alltrace.recipes.analysis.recorded_steps import CapturedSteps

EXAMPLE = "alltrace logs nccl nccl.*.log --view mismatches"


class Kind(NamedTuple):
    help: str
    example: str
    views: tuple[str, ...]
    view: str  # the default
    about: str  # what the views are
    add_options: Callable[[Parser, argparse._ArgumentGroup], None]  # to the parser or to its group of the question
    ask: Callable[[argparse.Namespace, Callable[..., None]], None]  # gets what writes an answer with its job's numbers


def configure(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", parser_class=Parser)
    for name, kind in KINDS.items():
        about = f"{kind.help[0].upper()}{kind.help[1:]}."
        own = kinds.add_parser(name, help=kind.help, description=about, example=kind.example)
        own.add_argument(
            "files", nargs="+", metavar="FILE", help="logs (plain, gzip or zstd), folders of logs, or patterns"
        )
        group = own.add_argument_group("the question")
        group.add_argument("--view", choices=kind.views, default=kind.view, help=f"{kind.about}default: {kind.view}")
        kind.add_options(own, group)
        add_answer_options(own)


def run(args: argparse.Namespace) -> int:
    if args.kind is None:
        raise UsageError(f"logs needs a kind of log; expected one of {', '.join(KINDS)}")
    from alltrace.cli.output import check_output, write_answer

    def write(answer: Any, ranks: int = 0, hosts: int = 0, devices: int = 0) -> None:
        facts = {"ranks": ranks, "hosts": hosts, "devices": devices, "span_ns": 0}
        write_answer(f"logs {args.kind}", answer, facts, args)

    check_output(args)
    KINDS[args.kind].ask(args, write)
    return EXIT_DONE


def _read(args: argparse.Namespace, reader: Callable[..., Any]) -> tuple[list[Any], tuple[str, ...]]:
    """What was read of the files, and notes on it."""
    from alltrace.run.log_files import expand, read_files

    read = read_files(reader, expand(args.files)).require_any()
    return list(read.results), tuple(read.notes)


def _nccl_options(parser: Parser, group: argparse._ArgumentGroup) -> None:
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


def _nccl(args: argparse.Namespace, write: Callable[..., None]) -> None:
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
        members = logs.members
        global_ranks = {m.global_rank for m in members if m.global_rank is not None}
        write(
            answer._replace(extra={**answer.extra, "not_understood": list(logs.unread)}),
            ranks=len(global_ranks) or len({m.key for m in members}),
            hosts=len({m.host for m in members}),
            devices=len({(m.host, m.bus_id) for m in members if m.bus_id is not None}),
        )
        # what is mapped from the folder must go before the folder
        del answer


def _tests_options(_parser: Parser, group: argparse._ArgumentGroup) -> None:
    about = "the peak bandwidth of the link in 1e9 bytes per second, for the column peak_share"
    group.add_argument("--peak", type=float, metavar="GB/S", help=about)


def _tests(args: argparse.Namespace, write: Callable[..., None]) -> None:
    from alltrace.readers.nccl_tests.read import read_tests
    from alltrace.recipes.logs.nccl_tests import answer
    from alltrace.run.log_files import nothing_in

    if args.peak is not None and not 0 < args.peak < float("inf"):
        raise UsageError(f"--peak is {args.peak}; expected a bandwidth above 0 in GB/s")
    files, notes = _read(args, read_tests)
    if not any(f.runs for f in files):
        expected = "the output of all_reduce_perf or another program of nccl-tests, or its JSON"
        raise nothing_in(
            files, f"no table of nccl-tests in {counted(sum(f.lines for f in files), 'line')}", expected=expected
        )
    ranks = max((len(run.ranks) for f in files for run in f.runs), default=0)
    hosts = {rank[2] for f in files for run in f.runs for rank in run.ranks}
    write(answer(files, args.view, args.peak).with_notes(*notes), ranks=ranks, hosts=len(hosts), devices=ranks)


def _training_options(_parser: Parser, group: argparse._ArgumentGroup) -> None:
    add_steps_option(group, "only these steps")
    add_pattern_option(group)


def _training(args: argparse.Namespace, write: Callable[..., None]) -> None:
    from alltrace.readers.training_log.formats import own_pattern
    from alltrace.readers.training_log.read import read_training
    from alltrace.recipes.logs.training import answer
    from alltrace.run.log_files import no_steps

    span = parse_steps(args.steps)
    for text in args.pattern:
        own_pattern(text)
    logs, notes = _read(args, partial(read_training, patterns=tuple(args.pattern)))
    steps = [s[0] for log in logs for s in log.steps]
    if not steps:
        raise no_steps(logs, args.pattern)
    if span is not None and not any(map(span.holds, steps)):
        raise UsageError(f"--steps is {span}; the logs have steps {min(steps)} to {max(steps)}")
    write(answer(logs, args.view, span).with_notes(*notes))


def _recorder_options(_parser: Parser, group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--run",
        metavar="RUN",
        help=(
            "with --view steps: a run of the same job; its steps are found in the records, and those within the capture"
            " are compared with those outside of it"
        ),
    )


def _recorder(args: argparse.Namespace, write: Callable[..., None]) -> None:
    from alltrace.readers.flight_recorder.read import read_recording
    from alltrace.recipes.logs.flight_recorder import answer

    if args.run is not None and args.view != "steps":
        raise UsageError("--run is for --view steps; leave one out or add the other")
    recordings, notes = _read(args, read_recording)
    ranks = {rank for r in recordings for rank in r.ranks}
    captured = None if args.run is None else _captured_steps(args.run)
    write(answer(recordings, args.view, captured).with_notes(*notes), ranks=len(ranks))


def _captured_steps(name: str) -> dict[int, CapturedSteps]:
    from alltrace.align.store import aligned
    from alltrace.cli.command import open_named
    from alltrace.recipes.analysis.recorded_steps import captured_steps

    run = open_named(name)
    return captured_steps(run, aligned(run).steps)


def _inspector_options(_parser: Parser, group: argparse._ArgumentGroup) -> None:
    about = "output of nccl-tests on the same hosts, to compare the bus bandwidth of collectives with"
    group.add_argument("--nccl-tests", metavar="FILE", help=about)


def _inspector(args: argparse.Namespace, write: Callable[..., None]) -> None:
    from alltrace.readers.nccl_inspector.records import read_inspector
    from alltrace.recipes.logs.inspector import answer
    from alltrace.run.log_files import read_tests_table

    tests = None if args.nccl_tests is None else read_tests_table(args.nccl_tests)
    files, notes = _read(args, read_inspector)
    processes = {(f.host, f.pid) for f in files}
    hosts = {host for host, _ in processes}
    write(answer(files, args.view, tests).with_notes(*notes), ranks=len(processes), hosts=len(hosts))


KINDS = {
    "nccl": Kind(
        "logs of NCCL and RCCL: calls, sizes, communicators, transports, mismatches",
        "alltrace logs nccl slurm-123.out --view ops --steps 45:50",
        tuple(NCCL_VIEWS),
        "ops",
        "",
        _nccl_options,
        _nccl,
    ),
    "nccl-tests": Kind(
        "tables of nccl-tests: bandwidth by size, latency floor, knee, outliers",
        "alltrace logs nccl-tests all_reduce_*.out --view summary --peak 450",
        ("sizes", "summary", "compare", "hosts"),
        "sizes",
        "the tables, a summary of each run, runs compared, or hosts that are slower than others; ",
        _tests_options,
        _tests,
    ),
    "training": Kind(
        "training logs: step time, throughput, memory, slow steps",
        "alltrace logs training train_a.log train_b.log --steps 45:50",
        ("summary", "steps"),
        "summary",
        "each metric over all steps, or each step; ",
        _training_options,
        _training,
    ),
    "flight-recorder": Kind(
        "PyTorch's flight recorder: which ranks are missing where",
        "alltrace logs flight-recorder nccl_trace_rank_* --view hangs",
        ("hangs", "entries", "times", "steps"),
        "hangs",
        "which ranks are missing where, every entry, how long operations took, or how long steps took; ",
        _recorder_options,
        _recorder,
    ),
    "inspector": Kind(
        "NCCL Inspector: missing records, bandwidth without waits, who arrives last",
        "alltrace logs inspector nccl-inspector-4711/ --view stragglers",
        ("missing", "collectives", "stragglers", "operations"),
        "missing",
        "operations without a record of some rank, how long collectives take without waiting, who arrives last, or"
        " every operation; ",
        _inspector_options,
        _inspector,
    ),
}
