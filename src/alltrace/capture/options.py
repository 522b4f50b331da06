"""The options of `capture exec`, each declared once: for command lines, job files, and the wrapper without Python."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from alltrace.capture.plan import Request, Then
from alltrace.capture.profilers.ncu import SETS, NcuOptions, check_filter
from alltrace.capture.profilers.nsys import NsysOptions
from alltrace.capture.selection import NAME, parse_selection
from alltrace.trace.errors import UsageError
from alltrace.trace.options import Option, count, flag, seconds
from alltrace.trace.spans import RANKS_WORDS, STEPS_WORDS, parse_steps

_Kind = TypeVar("_Kind", Request, NsysOptions, NcuOptions, Then)
WORD, WORD_EXPECTED = re.compile(r"[A-Za-z0-9_.,:/=@%+-]*"), "letters, digits and _.,:/=@%+-"
LINE, LINE_EXPECTED = re.compile(r"[^\x00-\x1f\x7f]*"), "text on one line"
_STEPS = re.compile(r"([0-9]{1,9}):([0-9]{1,9})")
_RANKS = re.compile(r"all|first-local|[0-9]{1,9}(-[0-9]{1,9})?(,[0-9]{1,9}(-[0-9]{1,9})?)*")
_RANGE = re.compile(r"cuda|nvtx:[^\x00-\x1f]+")


def _steps(text: str) -> tuple[int, int] | None:
    span = parse_steps(text)
    return None if span is None or span.first is None or span.end is None else (span.first, span.end)


def _range(text: str) -> str | None:
    return text if re.fullmatch(r"cuda|nvtx:.+", text, re.DOTALL) else None


def _group(group: str, *options: Option) -> tuple[Option, ...]:
    return tuple(o._replace(group=group) for o in options)


_NSYS, _NCU, _BOTH = ("nsys",), ("ncu",), ("nsys", "ncu")
_SEARCHED = "then PATH, then the newest one"
WHEN = "when"
# fmt: off
OPTIONS: tuple[Option, ...] = (
    *_group(
        "which ranks",
        Option("ranks", str, None, f"{RANKS_WORDS}, or first-local, or all; default: all, and 0 for ncu",
            metavar="LIST", key="profiler.ranks", key_help="the ranks to profile; default: all, and rank 0 for ncu",
            expected="0-7,64, first-local or all", pattern=_RANKS),
        count("per_node", None, "at most N ranks of each node", key="profiler.per_node",
            key_help="at most this many ranks of each node; 0 for all"),
        count("cutoff", None, "only ranks below N", key="profiler.cutoff",
            key_help="only ranks below this one; 0 for all"),
    ),
    *_group(
        "where to",
        Option("output", str, "reports", "the folder for reports, created if missing", metavar="DIR",
            flags=("-o", "--output")),
        Option("name", str, NAME,
            "the report's name: {job} {rank} {local_rank} {world_size} {node} {host} {role}, %q{VARIABLE}, %h and "
            "%p are "
            "filled in",
            metavar="NAME", in_shell=False),
        Option("job", str, None, "the job's name; default: the job number of the scheduler or launcher",
            metavar="NAME"),
        Option("role", str, None,
            "what these ranks do in a program with several groups of ranks, such as rollout; part of report names",
            metavar="NAME", in_shell=False),
        Option("tmp", str, None, "where each rank's own temporary folder is created; default: TMPDIR", metavar="DIR",
            key="profiler.tmp", pattern=LINE, expected="a path"),
        flag("force", "replace a report that exists"),
    ),
    *_group(
        "what is recorded",
        Option("profiler", str, "nsys", "torch is alltrace.instrument.torch_profile", ("nsys", "ncu", "torch"),
            key="profiler.kind", key_help="which profiler"),
        Option("nsys", str, None, f"default: ALLTRACE_NSYS, {_SEARCHED}", metavar="PATH"),
        Option("ncu", str, None, f"default: ALLTRACE_NCU, {_SEARCHED}", metavar="PATH"),
        Option("trace", str, None, "what nsys traces; default: cuda,nvtx, and nccl if nsys and NCCL have it",
            metavar="LIST",
            key="profiler.trace",
            expected=WORD_EXPECTED, pattern=WORD, only_with=_NSYS),
        Option("mpi_impl", str, None, "needed for MPICH, which nsys does not detect", ("openmpi", "mpich"),
            only_with=_NSYS),
        flag("sample", "also CPU samples and context switches", key="profiler.sample", only_with=_NSYS),
        flag("gpu_metrics", "the GPUs' counters, once per node", key="profiler.gpu_metrics", only_with=_NSYS),
        flag("nic_metrics", "network adapters' counters, once per node", key="profiler.nic_metrics", only_with=_NSYS),
        flag("efa", "EFA adapters' counters, once per node", key="profiler.efa", only_with=_NSYS),
        flag("gpu_log", "record clocks, power and temperature of the GPUs, with nvidia-smi once per node",
            in_shell=False),
        flag("flight_recorder", "PyTorch keeps a record of its collectives and writes it on a timeout", in_shell=False),
        flag("memory_snapshot", "what PyTorch's allocator did in the recorded steps, one file per rank",
            in_shell=False),
        flag("nccl_log",
            "NCCL's log, one file per process; records of calls are kept only for the recorded steps (NCCL 2.26)",
            in_shell=False),
        Option("profiler_arg", list, [], "another switch for the profiler, as --profiler-arg=--SWITCH=VALUE",
            metavar="SWITCH", key="profiler.arguments", key_help="more switches for the profiler", only_with=_BOTH),
    ),
    *_group(
        WHEN,
        seconds("delay", None, "start recording this long after the start", key="profiler.delay",
            key_help="start recording this many seconds after the start", only_with=_NSYS),
        seconds("duration", None, "record for this long; the program keeps running", key="profiler.duration",
            key_help="record for this many seconds", only_with=_NSYS),
        Option("steps", str, None,
            f"record these steps of alltrace.instrument.steps, with both ends given: {STEPS_WORDS}", metavar="STEPS",
            key="profiler.steps", key_help="record these steps: the first one and the one after the last",
            expected="the first step and the one after the last, such as 70:75", pattern=_STEPS, parse=_steps),
        Option("capture_range", str, None, "from cudaProfilerStart (cuda), or an NVTX range (nvtx:NAME@DOMAIN)",
            metavar="RANGE", key="profiler.capture_range",
            key_help="record from cudaProfilerStart (cuda), or an NVTX range (nvtx:NAME@DOMAIN)",
            expected="cuda, or nvtx:NAME or nvtx:NAME@DOMAIN", pattern=_RANGE, parse=_range, only_with=_BOTH),
        count("repeat", None, "record N ranges, each in its own report", only_with=_NSYS),
    ),
    *_group(
        "steps",
        Option("steps_by", str, "auto",
            "start the recording with cudaProfilerStart or an NVTX range; default: cuda where the node has an NVIDIA "
            "driver, else nvtx", ("auto", "cuda", "nvtx"), only_with=_NSYS),
    ),
    *_group(
        "ncu",
        Option("kernels", str, None, "the kernels to measure; must not match NCCL's", metavar="REGEX",
            key="profiler.kernels",
            key_help="for ncu: a regular expression of the kernels to measure; never those of NCCL",
            expected=LINE_EXPECTED, pattern=LINE, only_with=_NCU),
        Option("top", str, None, "the N compute kernels that took longest in RUN, instead of --kernels",
            metavar=("N", "RUN"), nargs=2, only_with=_NCU),
        Option("metric_set", str, "detailed", "", SETS, flags=("--set",), key="profiler.set",
            key_help="for ncu: which metrics", only_with=_NCU),
        count("launch_skip", 0, "skip the first N matching launches", 0, key="profiler.launch_skip",
            key_help="for ncu: skip this many matching launches first", only_with=_NCU),
        count("launch_count", 10, "measure N launches", key="profiler.launch_count",
            key_help="for ncu: measure this many launches", only_with=_NCU),
        Option("lockstep", str, None,
            "the chosen ranks synchronize at HOST and replay kernels together; needs an ncu that supports it",
            metavar="HOST", only_with=_NCU, in_shell=False),
    ),
    *_group(
        "when a report is written",
        Option("then", list, [],
            "import: each rank imports its own report into a run, which the last one finishes; diagnose: also "
            "print what "
            "`diagnose` says about it, in the job's log; upload URL: each rank copies its own report there, as "
            "`capture upload` does; may be given several times", metavar=("ACTION", "URL"), nargs="+", in_shell=False),
        flag("imports", "is --then import", flags=("--import",), in_shell=False),
        Option("run", str, None,
            "the run directory, on a file system that all nodes share; default: {job}.run in --output", metavar="DIR"),
        flag("scrub", "copy scrubbed exports instead of the reports"),
        count("max_writers", 16, "how many ranks import or copy at the same time"),
        seconds("wait", 300.0,
            "how long the first rank waits after the last rank that arrived before it finishes the run"),
    ),
    *_group(
        "otherwise",
        Option("on_error", str, "drop",
            "if a node refuses to record something: leave it out, stop before the program starts, or run the "
            "program unprofiled",
            ("drop", "stop", "run")),
        flag("strict", "exit with 4 if the program succeeded but its report is missing"),
        seconds("grace", 60.0, "how long to wait for a profiler that was partly killed"),
        seconds("end_after", 10.0,
            "after a signal to end, write the report within this time; the program keeps running"),
        flag("verbose", "every rank reports what it did, and nsys shows its progress", in_shell=False),
        flag("emit_sh", "write a POSIX shell script that does the same, for containers without Python"),
        flag("dry_run", "print this rank's command and run nothing"),
    ),
)
# fmt: on
BY_NAME = {o.name: o for o in OPTIONS}


def check_recorded(values: Mapping[str, Any], label: Callable[[Option], str]) -> None:
    """Raise for options that exclude each other, or that the profiler would pass over in silence."""
    # `label`: what an option is called where it was given.
    windows = [BY_NAME[n] for n in ("steps", "capture_range") if values[n] is not None]
    timed = [BY_NAME[n] for n in ("delay", "duration") if values[n] is not None]
    if len(windows) > 1 or (windows and timed):
        first, second, *_ = map(label, (*windows, *timed))
        raise UsageError(f"{first} and {second} both set when to record; give one of them")
    if values["repeat"] is not None and values["capture_range"] is None:
        raise UsageError("--repeat counts ranges, so it needs --capture-range")
    profiler = values["profiler"]
    for option in OPTIONS:
        if option.only_with and profiler not in option.only_with and values[option.name] != option.default:
            names = " and ".join(option.only_with)
            raise UsageError(
                f"{label(option)} works with {names}, and {label(BY_NAME['profiler'])} is {profiler}; leave it out"
            )
    if profiler == "ncu" and values["capture_range"] not in (None, "cuda"):
        label_of_range, switches = label(BY_NAME["capture_range"]), label(BY_NAME["profiler_arg"])
        raise UsageError(
            f"ncu supports only {label_of_range} cuda; for NVTX ranges give {switches}=--nvtx-include=NAME/"
        )


def make_request(values: Mapping[str, Any], kernels: Callable[[], str] | None = None) -> Request:
    """The request that the values of the options make; `kernels` returns the filter for ncu if no option has it."""
    profiler, extra, ranks = values["profiler"], tuple(values["profiler_arg"]), values["ranks"]
    in_window = values["steps"] is not None or values["capture_range"] is not None
    if profiler == "ncu" and ranks is None and values["per_node"] is None and values["cutoff"] is None:
        ranks = "0"  # the others wait while its kernels are replayed
    return _filled(
        Request,
        values,
        name=values["name"] or NAME,
        selection=parse_selection(ranks, values["per_node"], values["cutoff"]),
        tool=values.get(profiler),
        nsys=_filled(NsysOptions, values, extra=extra),
        ncu=_filled(NcuOptions, values, extra=extra, from_start=profiler != "ncu" or not in_window),
        kernels=kernels,
        then=_then(values),
    )


def _filled(kind: type[_Kind], values: Mapping[str, Any], **further: Any) -> _Kind:
    """An instance whose fields have the values of the options of the same name, without the unit, but for `further`."""
    named = {field: field.removesuffix("_s") for field in kind.__annotations__}
    return kind(**{**{field: values[name] for field, name in named.items() if name in values}, **further})


def check_command(values: Mapping[str, Any]) -> None:
    """Raise for what only a command line can get wrong, on every rank, or some would wait for those that stop."""
    check_recorded(values, lambda option: option.flag)
    if values["top"] is not None and values["kernels"] is not None:
        raise UsageError("--top and --kernels both select the kernels to measure; give one of them")
    if values["profiler"] == "ncu" and values["top"] is None:
        check_filter(values["kernels"])


def _then(values: Mapping[str, Any]) -> Then:
    """What is done with reports; a UsageError for an unknown action, or an option of one that is not used."""
    profiler = values["profiler"]
    actions = [["import"]] * values["imports"] + values["then"]
    urls = [words[1] for words in actions if len(words) == 2 and words[0] == "upload"]
    odd = next(
        (w for w in actions if w not in (["import"], ["diagnose"]) and not (len(w) == 2 and w[0] == "upload")), None
    )
    if odd is not None:
        raise UsageError(f"--then is {' '.join(odd)!r}; expected import, diagnose, or upload URL")
    if len(urls) > 1:
        raise UsageError(f"--then upload names {urls[0]} and {urls[1]}; give one of them")
    imports = any(words[0] != "upload" for words in actions)
    needs = {
        "run": ("--then import", imports),
        "scrub": ("--then upload URL", urls),
        "max_writers": ("--then", actions),
        "wait": ("--then import", imports),
    }
    for name, (needed, present) in needs.items():
        if values[name] != BY_NAME[name].default and not present:
            raise UsageError(f"{BY_NAME[name].flag} needs {needed}, which was not given")
    if profiler == "ncu" and imports:
        raise UsageError(
            "--then import works with nsys and torch, and --profiler is ncu; `alltrace ncu` reads its reports"
        )
    if profiler != "nsys" and values["scrub"]:
        raise UsageError(f"--scrub works with nsys, and --profiler is {profiler}; leave it out")
    if urls:
        from alltrace.capture.stores import store_at

        store_at(urls[0])  # what is wrong with it is reported before the job, not after
    return _filled(Then, values, imports=imports, diagnoses=["diagnose"] in actions, url=urls[0] if urls else None)
