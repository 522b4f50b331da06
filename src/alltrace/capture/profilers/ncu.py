"""The command of Nsight Compute: few kernels of one rank, never kernels of NCCL."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from alltrace.capture.profilers.tool import Tool, ask
from alltrace.trace.errors import UsageError

SETS = ("basic", "detailed", "full", "roofline")
IN_A_WINDOW = ("--profile-from-start", "off")
_WAITING = (
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
    "ncclKernel_AllGather_RING_LL_Sum_int8_t",
    "nvshmem_barrier_kernel",
    "nvshmemi_init",
)
_NEVER = re.compile("nccl|nvshmem|rccl", re.IGNORECASE)
_LOCKSTEP = (
    "--communicator",
    "--communicator-tcp-num-peers",
    "--communicator-tcp-hostname",
    "--lockstep-kernel-launch",
)
_WAIT_S = "7200"


class NcuOptions(NamedTuple):
    kernels: str | None = None  # A regular expression that a kernel's name must match; None if none is set
    metric_set: str = "detailed"  # one of `SETS`
    launch_skip: int = 0  # how many matching launches pass first
    launch_count: int = 10  # how many launches are recorded
    extra: tuple[str, ...] = ()  # further switches, passed on
    # whether launches count from the program's start on; else between cudaProfilerStart and Stop
    from_start: bool = True
    # the host on which the chosen ranks synchronize to replay kernels together; None for independent replay
    lockstep: str | None = None


def ask_ncu(path: Path) -> Tool:
    """What the ncu at `path` knows."""
    return ask(path, arguments=("--help",))


def check_filter(kernels: str | None, option: str = "--kernels") -> str:
    """`kernels`, when it is a filter that cannot hang the job."""
    # A kernel is run several times to measure it. One that waits for other ranks would wait forever from the second
    # time on.
    if not kernels:
        raise UsageError(
            f"ncu needs {option} REGEX: without a filter it would replay NCCL's kernels too, which hangs the job"
        )
    try:
        pattern = re.compile(kernels)
    except re.error as error:
        raise UsageError(f"{option} is {kernels!r}, which is not a valid regular expression ({error})") from error
    met = next((name for name in _WAITING if pattern.search(name)), None)
    if met:
        raise UsageError(
            f"{option} {kernels!r} also matches {met}, which waits for other ranks and would hang when replayed; give a"
            " narrower expression, such as gemm"
        )
    return kernels


def filter_of(names: Iterable[str], most: int) -> str:
    """The filter that matches just these kernels, by ncu's names: no namespace, template or parameters."""
    # `names`: kernels, the most wanted first.
    plain = dict.fromkeys(base_name(n) for n in names)
    safe = [re.sub(r"([\\^$.|?*+()\[\]{}])", r"\\\1", n) for n in plain if n and not _NEVER.search(n)][:most]
    if not safe:
        raise UsageError("the run has no compute kernel that ncu could measure; give --kernels REGEX")
    return f"^({'|'.join(safe)})$"


def base_name(name: str) -> str:
    """A kernel's name as in ncu's `--kernel-name-base function`: `void a::b<int>(float*)` is `b`."""
    depth = 0
    letters: list[str] = []
    for letter in name.removeprefix("void ").replace("(anonymous namespace)::", ""):
        depth += letter == "<"
        if not depth:
            if letter == "(":
                break
            letters.append(letter)
        depth -= letter == ">" and depth > 0
    return "".join(letters).strip().rsplit("::", 1)[-1].rsplit(" ", 1)[-1]


def ncu_command(tool: Tool, report: Path, options: NcuOptions, *, force: bool, peers: int | None = None) -> list[str]:
    """`ncu` with its switches, to be followed by the program."""
    # `peers`: how many ranks are chosen; None if it is unknown.
    kernels = check_filter(options.kernels)
    command = [str(tool.path), "--set", options.metric_set, "--kernel-name", f"regex:{kernels}"]
    command += [
        "--launch-skip",
        str(options.launch_skip),
        "--launch-count",
        str(options.launch_count),
        "--target-processes",
        "all",
    ]
    command += [] if options.from_start else list(IN_A_WINDOW)
    if options.lockstep is not None:
        command += _lockstep(tool, options.lockstep, peers)
    command += ["--export", str(report).replace("%", "%%")]
    return [*command, *(["--force-overwrite"] if force else []), *options.extra]


def _lockstep(tool: Tool, host: str, peers: int | None) -> list[str]:
    missing = [s for s in _LOCKSTEP if s not in tool.switches]
    if missing:
        raise UsageError(
            f"{tool.label} cannot replay the kernels of several ranks together: it has no option {missing[0]}; leave"
            " out --lockstep"
        )
    if peers is None or peers < 2:
        raise UsageError(
            "--lockstep needs two or more ranks and a launcher that sets their number; choose them with --ranks"
        )
    return [
        "--communicator",
        "tcp",
        "--communicator-tcp-num-peers",
        str(peers),
        "--communicator-tcp-hostname",
        host,
        _LOCKSTEP[-1],
    ]


def patience() -> dict[str, str]:
    """Variables that make the other ranks wait while one rank's kernels are replayed, equal for all ranks."""
    # the last one keeps a process group's own timeout, 10 minutes by default, from ending the ranks that wait
    names = ("TORCH_NCCL_ENABLE_MONITORING", "TORCH_NCCL_ASYNC_ERROR_HANDLING")
    return {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": _WAIT_S, **dict.fromkeys(names, "0")}
