"""The sub-verb `capture exec`: profiles this rank if it is chosen."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from alltrace.capture.exec import run_rank
from alltrace.capture.identity import find_identity
from alltrace.capture.plan import Request, Then, plan_rank
from alltrace.capture.profilers.ncu import NcuOptions, check_filter
from alltrace.capture.profilers.nsys import NsysOptions
from alltrace.capture.selection import NAME, parse_selection
from alltrace.cli.argument_types import not_negative, positive
from alltrace.cli.capturing.heaviest import checked_top, heaviest
from alltrace.trace.errors import EXIT_DONE, EXIT_INPUT, AlltraceError, UsageError, printable
from alltrace.trace.side_file_words import ROLE
from alltrace.trace.spans import RANKS_WORDS, STEPS_WORDS, parse_steps

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_WRITERS, _WAIT_S = 16, 300.0
_RANGE = re.compile(r"cuda|nvtx:.+", re.DOTALL)


# the profilers that know an option
_ONLY = {
    "nsys": "delay duration repeat mpi_impl sample gpu_metrics nic_metrics efa",
    "ncu": "kernels top lockstep",
    "nsys ncu": "capture_range profiler_arg",
}
# and those that have a default: profiler, argument, option, default
_WITH_DEFAULT = (
    ("nsys", "trace", "--trace", None),
    ("nsys", "steps_by", "--steps-by", "auto"),
    ("ncu", "metric_set", "--set", "detailed"),
    ("ncu", "launch_skip", "--launch-skip", 0),
    ("ncu", "launch_count", "--launch-count", 10),
)

EXAMPLE = "mpirun -np 16 alltrace capture exec --ranks first-local --steps 70:75 -- python train.py --batch 8"


def configure(parser: argparse.ArgumentParser, *, arms: bool = False) -> None:
    """Who is profiled, what is recorded, and where it goes; the program follows a lone `--`. With `arms`, nothing says when."""
    parser.usage = f"{parser.prog} [options] -- PROGRAM [ARGUMENT ...]"
    who = parser.add_argument_group("which ranks")
    who.add_argument("--ranks", metavar="LIST", help=f"{RANKS_WORDS}, or first-local, or all; default: all, and 0 for ncu")
    who.add_argument("--per-node", type=positive, metavar="N", help="at most N ranks of each node")
    who.add_argument("--cutoff", type=positive, metavar="N", help="only ranks below N")
    where = parser.add_argument_group("where to")
    where.add_argument(
        "-o", "--output", default="reports", metavar="DIR", help="the folder for reports, created if missing; default: reports"
    )
    where.add_argument(
        "--name",
        metavar="NAME",
        help="the report's name: {job} {rank} {local_rank} {world_size} {node} {host} {role}, %%q{VARIABLE}, %%h and %%p are "
        "filled in; default: {job}_rank{rank}_on_{host}",
    )
    where.add_argument("--job", metavar="NAME", help="the job's name; default: the job number of the scheduler or launcher")
    where.add_argument(
        "--role",
        metavar="NAME",
        help="what these ranks do in a program with several groups of ranks, such as rollout; part of report names",
    )
    where.add_argument("--tmp", metavar="DIR", help="where each rank's own temporary folder is created; default: TMPDIR")
    where.add_argument("--force", action="store_true", help="replace a report that exists")
    what = parser.add_argument_group("what is recorded")
    what.add_argument(
        "--profiler",
        choices=("nsys", "ncu", "torch"),
        default="nsys",
        help="torch is alltrace.instrument.torch_profile; default: nsys",
    )
    what.add_argument("--nsys", metavar="PATH", help="default: ALLTRACE_NSYS, then PATH, then the newest one")
    what.add_argument("--ncu", metavar="PATH", help="default: ALLTRACE_NCU, then PATH, then the newest one")
    what.add_argument("--trace", metavar="LIST", help="what nsys traces; default: cuda,nvtx, and nccl if nsys and NCCL have it")
    what.add_argument("--mpi-impl", choices=("openmpi", "mpich"), help="needed for MPICH, which nsys does not detect")
    what.add_argument("--sample", action="store_true", help="also CPU samples and context switches")
    what.add_argument("--gpu-metrics", action="store_true", help="the GPUs' counters, once per node")
    what.add_argument("--nic-metrics", action="store_true", help="network adapters' counters, once per node")
    what.add_argument("--efa", action="store_true", help="EFA adapters' counters, once per node")
    what.add_argument(
        "--gpu-log", action="store_true", help="record clocks, power and temperature of the GPUs, with nvidia-smi once per node"
    )
    what.add_argument(
        "--flight-recorder", action="store_true", help="PyTorch keeps a record of its collectives and writes it on a timeout"
    )
    what.add_argument(
        "--memory-snapshot", action="store_true", help="what PyTorch's allocator did in the recorded steps, one file per rank"
    )
    what.add_argument(
        "--nccl-log",
        action="store_true",
        help="NCCL's log, one file per process; records of calls are kept only for the recorded steps (NCCL 2.26)",
    )
    what.add_argument(
        "--profiler-arg",
        action="append",
        default=[],
        metavar="SWITCH",
        help="another switch for the profiler, as --profiler-arg=--SWITCH=VALUE",
    )
    if not arms:
        _add_when(parser)
    when = parser.add_argument_group("steps")
    when.add_argument(
        "--steps-by",
        choices=("auto", "cuda", "nvtx"),
        default="auto",
        help="start the recording with cudaProfilerStart or an NVTX range; default: cuda where the node "
        "has an NVIDIA driver, else nvtx",
    )
    kernels = parser.add_argument_group("ncu")
    kernels.add_argument("--kernels", metavar="REGEX", help="the kernels to measure; must not match NCCL's")
    kernels.add_argument(
        "--top", nargs=2, metavar=("N", "RUN"), help="the N compute kernels that took longest in RUN, instead of --kernels"
    )
    kernels.add_argument(
        "--set",
        dest="metric_set",
        choices=("basic", "detailed", "full", "roofline"),
        default="detailed",
        help="default: detailed",
    )
    kernels.add_argument(
        "--launch-skip", type=not_negative, default=0, metavar="N", help="skip the first N matching launches; default: 0"
    )
    kernels.add_argument("--launch-count", type=positive, default=10, metavar="N", help="measure N launches; default: 10")
    kernels.add_argument(
        "--lockstep",
        metavar="HOST",
        help="the chosen ranks synchronize at HOST and replay kernels together; needs an ncu that supports it",
    )
    _add_afterwards(parser)
    how = parser.add_argument_group("otherwise")
    how.add_argument(
        "--on-error",
        choices=("drop", "stop", "run"),
        default="drop",
        help="if a node refuses to record something: leave it out, stop before the program starts, or run the "
        "program unprofiled; default: drop",
    )
    how.add_argument("--strict", action="store_true", help="exit with 4 if the program succeeded but its report is missing")
    how.add_argument(
        "--grace",
        type=seconds,
        default=60.0,
        metavar="SECONDS",
        help="how long to wait for a profiler that was partly killed; default: 60",
    )
    how.add_argument(
        "--end-after",
        type=seconds,
        default=10.0,
        metavar="SECONDS",
        help="after a signal to end, write the report within this time; the program keeps running; default: 10",
    )
    how.add_argument("--verbose", action="store_true", help="every rank reports what it did, and nsys shows its progress")
    how.add_argument(
        "--emit-sh", action="store_true", help="write a POSIX shell script that does the same, for containers without Python"
    )
    how.add_argument("--dry-run", action="store_true", help="print this rank's command and run nothing")


def _add_when(parser: argparse.ArgumentParser) -> None:
    when = parser.add_argument_group("when")
    when.add_argument("--delay", type=seconds, metavar="SECONDS", help="start recording this long after the start")
    when.add_argument("--duration", type=seconds, metavar="SECONDS", help="record for this long; the program keeps running")
    when.add_argument(
        "--steps",
        type=_steps,
        metavar="STEPS",
        help=f"record these steps of alltrace.instrument.steps, with both ends given: {STEPS_WORDS}",
    )
    when.add_argument(
        "--capture-range",
        type=_range,
        metavar="RANGE",
        help="from cudaProfilerStart (cuda), or an NVTX range (nvtx:NAME@DOMAIN)",
    )
    when.add_argument("--repeat", type=positive, metavar="N", help="record N ranges, each in its own report")


def _add_afterwards(parser: argparse.ArgumentParser) -> None:
    then = parser.add_argument_group("when a report is written")
    then.add_argument(
        "--then",
        nargs="+",
        action="append",
        default=[],
        metavar=("ACTION", "URL"),
        help="import: each rank imports its own report into a run, which the last one finishes; diagnose: "
        "also print what `diagnose` "
        "says about it, in the job's log; upload URL: each rank copies its own report there, as `capture upload` "
        "does; may be given several times",
    )
    then.add_argument("--import", dest="imports", action="store_true", help="is --then import")
    then.add_argument(
        "--run", metavar="DIR", help="the run directory, on a file system that all nodes share; default: {job}.run in --output"
    )
    then.add_argument("--scrub", action="store_true", help="copy scrubbed exports instead of the reports")
    then.add_argument(
        "--max-writers",
        type=positive,
        default=_MAX_WRITERS,
        metavar="N",
        help="how many ranks import or copy at the same time; default: 16",
    )
    then.add_argument(
        "--wait",
        type=seconds,
        default=_WAIT_S,
        metavar="SECONDS",
        help="how long the first rank waits after the last rank that arrived before it finishes the run; default: 300",
    )


def run(args: argparse.Namespace, *, arms: bool = False, rule: str = "") -> int:
    """Run the program and return its exit code. With `arms`, it records on command, or by `rule`."""
    request = request_from(args)
    if arms:
        request = request._replace(nsys=request.nsys._replace(armed=True), rule=rule)
    if args.emit_sh:
        from alltrace.capture.scripts.exec_sh import exec_script

        if args.role is not None:
            raise UsageError("--emit-sh does not know --role; leave it out, or use `alltrace capture exec` itself")
        if request.kernels is not None:
            request = request._replace(ncu=request.ncu._replace(kernels=request.kernels()))
        print(exec_script(request), end="")  # noqa: T201
        return EXIT_DONE
    if not args.program:
        raise UsageError("capture exec needs a program after a lone --, such as `alltrace capture exec -- python train.py`")
    if args.dry_run:
        return _show(request, args.program, _environment(args))
    try:
        return run_rank(request, args.program, _environment(args), _say)
    except AlltraceError as error:
        from alltrace.capture.once_per_node import first_to_say

        who = find_identity(os.environ, os.uname().nodename)
        if who.world_size != 1 and not first_to_say(str(error)):
            return error.exit_code
        raise
    except OSError as error:
        _say(f"{error.filename or args.program[0]}: {error.strerror}; nothing was run")
        return EXIT_INPUT


def request_from(args: argparse.Namespace) -> Request:
    """What the options ask for.

    Raises:
        UsageError: Options that exclude each other, or one with a value that cannot be.
    """
    windows = [f"--{n.replace('_', '-')}" for n in ("steps", "capture_range") if getattr(args, n) is not None]
    if windows and (args.delay is not None or args.duration is not None):
        raise UsageError(f"{windows[0]} and --delay or --duration both set when to record; give one of them")
    if len(windows) > 1:
        raise UsageError(f"{' and '.join(windows)} both set when to record; give one of them")
    if args.repeat is not None and args.capture_range is None:
        raise UsageError("--repeat counts ranges, so it needs --capture-range")
    _check_profiler(args)
    top = checked_top(args.top)
    if top is not None and args.kernels is not None:
        raise UsageError("--top and --kernels both select the kernels to measure; give one of them")
    kernels = None if top is None else partial(heaviest, *top)
    if args.profiler == "ncu" and top is None:
        check_filter(args.kernels)  # on every rank, or some would wait for those that stop
    ranks = args.ranks
    if args.profiler == "ncu" and ranks is None and args.per_node is None and args.cutoff is None:
        ranks = "0"  # the others wait while its kernels are replayed
    nsys = NsysOptions(
        trace=args.trace,
        mpi_impl=args.mpi_impl,
        sample=args.sample,
        gpu_metrics=args.gpu_metrics,
        nic_metrics=args.nic_metrics,
        efa=args.efa,
        delay_s=args.delay,
        duration_s=args.duration,
        steps=args.steps,
        steps_by=args.steps_by,
        capture_range=args.capture_range,
        repeat=args.repeat,
        extra=tuple(args.profiler_arg),
    )
    return Request(
        output=args.output,
        name=args.name or NAME,
        job=args.job,
        selection=parse_selection(ranks, args.per_node, args.cutoff),
        profiler=args.profiler,
        tool=args.nsys if args.profiler == "nsys" else args.ncu,
        nsys=nsys,
        ncu=NcuOptions(
            args.kernels,
            args.metric_set,
            args.launch_skip,
            args.launch_count,
            tuple(args.profiler_arg),
            from_start=args.profiler != "ncu" or not windows,
            lockstep=args.lockstep,
        ),
        kernels=kernels,
        tmp=args.tmp,
        force=args.force,
        gpu_log=args.gpu_log,
        flight_recorder=args.flight_recorder,
        memory_snapshot=args.memory_snapshot,
        nccl_log=args.nccl_log,
        on_error=args.on_error,
        strict=args.strict,
        verbose=args.verbose,
        grace_s=args.grace,
        end_after_s=args.end_after,
        then=_then(args),
    )


def _then(args: argparse.Namespace) -> Then:
    """What is done with reports.

    Raises:
        UsageError: The action does not exist, or an option belongs to an action that is not used.
    """
    asked = [["import"]] * args.imports + args.then
    urls = [words[1] for words in asked if len(words) == 2 and words[0] == "upload"]
    odd = next((w for w in asked if w not in (["import"], ["diagnose"]) and not (len(w) == 2 and w[0] == "upload")), None)
    if odd is not None:
        raise UsageError(f"--then is {' '.join(odd)!r}; expected import, diagnose, or upload URL")
    if len(urls) > 1:
        raise UsageError(f"--then upload names {urls[0]} and {urls[1]}; give one of them")
    imports = any(words[0] != "upload" for words in asked)
    lacking = {
        "--run": args.run is not None and not imports,
        "--scrub": args.scrub and not urls,
        "--max-writers": args.max_writers != _MAX_WRITERS and not asked,
        "--wait": args.wait != _WAIT_S and not imports,
    }
    needless = next((option for option, met in lacking.items() if met), None)
    if needless is not None:
        needs = {"--scrub": "--then upload URL", "--max-writers": "--then"}.get(needless, "--then import")
        raise UsageError(f"{needless} needs {needs}, which was not given")
    if args.profiler == "ncu" and imports:
        raise UsageError("--then import works with nsys and torch, and --profiler is ncu; `alltrace ncu` reads its reports")
    if args.profiler != "nsys" and args.scrub:
        raise UsageError(f"--scrub works with nsys, and --profiler is {args.profiler}; leave it out")
    if urls:
        from alltrace.capture.stores import store_at

        store_at(urls[0])  # what is wrong with it is reported before the job, not after
    diagnoses = ["diagnose"] in asked
    return Then(imports, diagnoses, urls[0] if urls else None, args.scrub, args.run, args.max_writers, args.wait)


def _check_profiler(args: argparse.Namespace) -> None:
    """Raise for an option that the profiler would pass over in silence."""
    for profilers, names in _ONLY.items():
        if args.profiler in profilers.split():
            continue
        odd = next((n for n in names.split() if getattr(args, n) not in (None, False, [])), None)
        if odd is not None:
            option = f"--{odd.replace('_', '-')}"
            raise UsageError(
                f"{option} works with {profilers.replace(' ', ' and ')}, and --profiler is {args.profiler}; leave it out"
            )
    for profiler, name, option, default in _WITH_DEFAULT:
        if args.profiler != profiler and getattr(args, name) != default:
            raise UsageError(f"{option} works with {profiler}, and --profiler is {args.profiler}; leave it out")
    if args.profiler == "ncu" and args.capture_range not in (None, "cuda"):
        raise UsageError("ncu supports only --capture-range cuda; for NVTX ranges give --profiler-arg=--nvtx-include=NAME/")


def _environment(args: argparse.Namespace) -> dict[str, str]:
    return {**os.environ, **({} if args.role is None else {ROLE: args.role})}


def _show(request: Request, program: list[str], environment: Mapping[str, str]) -> int:
    import shlex

    plan = plan_rank(request, environment, os.uname().nodename)
    for note in plan.notes:
        _say(f"rank {plan.who.rank}: {note}")
    print(shlex.join([*(plan.command or ()), *program]))  # noqa: T201
    return EXIT_DONE


def _say(text: str) -> None:
    """One write for one line, so that the lines of many ranks do not mix; a launcher that is gone gets nothing."""
    with suppress(OSError):
        sys.stderr.write(f"alltrace capture: {printable(text)}\n")
        sys.stderr.flush()


def _wrong(text: str, expected: str) -> NoReturn:
    raise argparse.ArgumentTypeError(f"it is {text!r}, expected {expected}")


def seconds(text: str) -> float:
    """A number of seconds above 0, of an option."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    return value if 0 < value < 1e9 else _wrong(text, "a number of seconds greater than 0")


def _steps(text: str) -> tuple[int, int]:
    span = parse_steps(text)
    if span is None or span.first is None or span.end is None:
        _wrong(text, "the first step and the one after the last, such as 70:75")
    return span.first, span.end


def _range(text: str) -> str:
    return text if _RANGE.fullmatch(text) else _wrong(text, "cuda, or nvtx:NAME or nvtx:NAME@DOMAIN")
