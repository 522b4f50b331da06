"""The command of Nsight Systems, built from the switches that the installed version knows."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from alltrace.capture.profilers.tool import Tool, ask
from alltrace.capture.variables import DOMAIN, STEPS_RANGE
from alltrace.trace.errors import UsageError

DEFAULT_TRACE = "cuda,nvtx"
NCCL_TRACE = "--trace=nccl"
"""What is left out if the profiler refuses to trace NCCL."""

LEAVES = "--kill=none"
"""Lets the program run on if the recording ends before it."""
_PLUGIN_NAME = re.compile(r"^\s*PluginName\s*:\s*['\"]?([A-Za-z0-9_.-]+)", re.MULTILINE)
_TRACE_HELP = re.compile(r"-t, --trace=(.*?)(?=\n\s*-|\Z)", re.DOTALL)
_NCCL_PACKAGES = ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11")
_FIRST_TRACED_NCCL = (2, 28)
_EFA_BY_VERSION = (((2025, 1, 0), "efa_metrics"), ((2024, 4, 0), "nic_sampler,-mode:counters,-struct:true,-efa:true"))


class NsysOptions(NamedTuple):
    trace: str | None = None  # the APIs, as nsys names them; None for CUDA and NVTX, and NCCL if nsys and NCCL have it
    mpi_impl: str | None = None  # `openmpi` or `mpich`, if MPI is traced; None lets nsys guess
    sample: bool = False  # whether CPU samples and context switches are taken
    gpu_metrics: bool = False  # sample the GPUs' counters, once per node
    nic_metrics: bool = False  # sample the network adapters, once per node
    efa: bool = False  # sample EFA adapters, once per node
    delay_s: float | None = None  # seconds before it begins; None for at once
    duration_s: float | None = None  # seconds that it lasts; None for to the end
    # first step and the one after the last, called by `alltrace.instrument.steps`; None for no such window
    steps: tuple[int, int] | None = None
    # what begins and ends the window of steps: `cuda` for cudaProfilerStart and Stop, `nvtx` for a range, `auto` for
    # the first if the node has a driver of NVIDIA
    steps_by: str = "auto"
    capture_range: str | None = None  # `cuda`, or `nvtx:NAME@DOMAIN`; None for no range
    repeat: int | None = None  # how many ranges are recorded, each in a separate report; None for the first one
    armed: bool = False  # whether `alltrace.instrument.steps` opens windows on request while the program runs
    extra: tuple[str, ...] = ()  # further switches, passed on

    @property
    def begun_by(self) -> str:
        """`steps_by`, as it is on this node."""
        if self.steps_by != "auto":
            return self.steps_by
        # pathlib would be a further import
        return "cuda" if os.path.exists("/proc/driver/nvidia/version") else "nvtx"  # noqa: PTH110

    @property
    def range_began_by(self) -> str | None:
        """What begins the range that is recorded, in words; None if there is none."""
        if self.steps is not None:
            return f"step {self.steps[0]} of `alltrace.instrument.steps`"
        if self.capture_range is None:
            return None
        return "cudaProfilerStart" if self.capture_range == "cuda" else f"the NVTX range {self.capture_range[5:]}"


def ask_nsys(path: Path) -> Tool:
    return ask(path, arguments=("profile", "--help"))


def nccl_version(environment: Mapping[str, str]) -> str | None:
    """The version of NCCL that programs of this Python, or of this container, have; None if it is not known."""
    from importlib import metadata  # few need it

    for package in _NCCL_PACKAGES:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return environment.get("NCCL_VERSION")


def lacks_nccl_trace(tool: Tool, environment: Mapping[str, str]) -> str | None:
    """Why NCCL cannot be traced by the profiler itself; None if it can, or if the version of NCCL is not known."""
    help_of_trace = _TRACE_HELP.search(tool.help)
    if help_of_trace is None or not re.search(r"\bnccl\b", help_of_trace[1]):
        return f"{tool.label} cannot trace NCCL; 2025.6 and later can"
    version = nccl_version(environment)
    numbers = re.match(r"(\d+)\.(\d+)", version or "")
    if numbers and (int(numbers[1]), int(numbers[2])) < _FIRST_TRACED_NCCL:
        return f"NCCL {version} cannot be traced by the profiler; 2.28 and later can"
    return None


class LeftOut(NamedTuple):
    option: str  # its name in `capture exec`
    reason: str  # what prevents it


def nsys_command(
    tool: Tool,
    report: Path,
    options: NsysOptions,
    *,
    node_wide: bool,
    force: bool,
    left_out: Sequence[LeftOut] = (),
    drops: bool = False,
    environment: Mapping[str, str] | None = None,
) -> tuple[list[str], list[LeftOut]]:
    """`nsys profile` with its switches, before the program; and which `options` this version lacks."""
    # `node_wide`: whether this rank is the one of its node that records what is the node's. `left_out`: options that
    # are not requested, although `options` has them. `drops`: whether options that depend on the node are left out if
    # the version does not support them.
    without = {one.option for one in left_out}
    trace = options.trace or DEFAULT_TRACE
    if options.trace is None and NCCL_TRACE not in without and lacks_nccl_trace(tool, environment or {}) is None:
        trace += ",nccl"
    command = [str(tool.path), "profile", f"--trace={trace}", f"--output={str(report).replace('%', '%%')}"]
    command += [f"--force-overwrite={'true' if force else 'false'}"]
    if not options.sample or "--sample" in without:
        command += [f"{switch}=none" for switch in ("--sample", "--cpuctxsw") if switch in tool.switches]
    if options.mpi_impl is not None:
        command.append(f"{_needed(tool, 'the MPI implementation', '--mpi-impl')}={options.mpi_impl}")
    unknown = []
    for option, switch in _NODE_WIDE.items() if node_wide else ():
        if getattr(options, option[2:].replace("-", "_")) and option not in without:
            try:
                command.append(switch(tool))
            except UsageError as error:
                if not drops:
                    raise
                unknown.append(LeftOut(option, str(error)))
    window = _window(tool, options)
    if LEAVES not in window and LEAVES.partition("=")[0] in tool.switches:
        command.append(LEAVES)
    return [*command, *window, *(s for s in options.extra if s not in without)], unknown


def may_be_left_out(options: NsysOptions, command: Sequence[str], *, node_wide: bool) -> dict[str, tuple[str, ...]]:
    """The options of a command without which there is still a trace, each with the words of nsys' complaint."""
    words_by_option = {
        o: words
        for o, words in _WORDS.items()
        if getattr(options, o[2:].replace("-", "_")) and (node_wide or o == "--sample")
    }
    if options.trace is None and f"--trace={DEFAULT_TRACE},nccl" in command:
        words_by_option[NCCL_TRACE] = ("nccl", "NCCL")
    return {**words_by_option, **{switch: (switch.partition("=")[0],) for switch in options.extra}}


def _needed(tool: Tool, what: str, *switches: str) -> str:
    switch = tool.first_of(*switches)
    if switch is None:
        raise UsageError(
            f"{tool.label} cannot record {what}: it has none of the options {', '.join(switches)}; install a newer"
            " version"
        )
    return switch


_NODE_WIDE: dict[str, Callable[[Tool], str]] = {
    "--gpu-metrics": lambda tool: (
        f"{_needed(tool, 'GPU metrics', '--gpu-metrics-devices', '--gpu-metrics-device')}=all"
    ),
    "--nic-metrics": lambda tool: f"{_needed(tool, 'network adapters', '--nic-metrics')}=true",
    "--efa": lambda tool: f"{_needed(tool, 'EFA adapters', '--enable')}={_efa(tool)}",
}
_WORDS = {
    "--gpu-metrics": ("gpu-metrics", "GPU Metrics"),
    "--nic-metrics": ("nic-metrics", "NIC"),
    "--efa": ("--enable", "efa"),
    "--sample": ("--sample", "--cpuctxsw", "perf_event"),
}


def _efa(tool: Tool) -> str:
    """The plug-in for EFA, which changed its name: as installed, else by version."""
    names = set()
    for file in tool.path.resolve().parent.glob("plugins/*/nsys-plugin.yaml"):
        names.update(_PLUGIN_NAME.findall(file.read_text(encoding="utf-8", errors="replace")))
    by_version = next((plugin for version, plugin in _EFA_BY_VERSION if tool.version >= version), None)
    for _, plugin in _EFA_BY_VERSION:
        if plugin.split(",")[0] in names:
            return plugin
    if by_version is None:
        raise UsageError(f"{tool.label} has no plug-in for EFA; 2024.4 and later have one")
    return by_version


def window_switches(options: NsysOptions) -> list[str]:
    switches: list[str] = []
    if options.delay_s is not None:
        switches.append(f"--delay={options.delay_s:g}")
    if options.duration_s is not None:
        # by default nsys ends the program with the recording, and the other ranks wait for it in a collective
        switches += [f"--duration={options.duration_s:g}", LEAVES]
    wanted = options.capture_range
    if options.steps is not None or options.armed:
        wanted = "cuda" if options.begun_by == "cuda" else f"nvtx:{STEPS_RANGE}@{DOMAIN}"
    if wanted is None:
        return switches
    # by default the end of the range ends the program
    repeats = "repeat" if options.armed else "stop" if options.repeat is None else f"repeat:{options.repeat}"
    switches.append(f"--capture-range-end={repeats}")
    if wanted == "cuda":
        return [*switches, "--capture-range=cudaProfilerApi"]
    # ranges that are named by plain strings count only with this variable
    return [
        *switches,
        "--capture-range=nvtx",
        f"--nvtx-capture={wanted[5:]}",
        "--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0",
    ]


def _window(tool: Tool, options: NsysOptions) -> list[str]:
    switches = window_switches(options)
    for switch in switches:
        _needed(tool, "such a window", switch.partition("=")[0])
    return switches
