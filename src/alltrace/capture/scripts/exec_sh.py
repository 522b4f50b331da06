"""`capture exec` as a POSIX shell script, for containers without Python."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from alltrace.capture.profilers.ncu import IN_A_WINDOW, check_filter
from alltrace.capture.profilers.nsys import LEAVES, window_switches
from alltrace.capture.scripts.rendering import fill
from alltrace.capture.selection import NAME
from alltrace.trace.errors import UsageError

if TYPE_CHECKING:
    from alltrace.capture.plan import Request

_WORD = re.compile(r"([A-Za-z0-9_.,:=@/+-]|%q\{[A-Za-z0-9_]+\})+")


def exec_script(request: Request) -> str:
    """The script that performs `request`.

    Raises:
        UsageError: It needs a feature that only the Python form has.
    """
    nsys, selection = request.nsys, request.selection
    if nsys.steps_by == "auto":  # independent of this machine
        nsys = nsys._replace(steps_by="cuda")
    only_python = {
        "capture arm": nsys.armed,
        "--lockstep": request.ncu.lockstep is not None,
        "--name": request.name != NAME,
        "--on-error run": request.on_error == "run",
        "--verbose": request.verbose,
        "--gpu-log": request.gpu_log,
        "--flight-recorder": request.flight_recorder,
        "--memory-snapshot": request.memory_snapshot,
        "--nccl-log": request.nccl_log,
        "--then": request.then.asked,
        "fields in --output": bool(re.search(r"[{%]", request.output)),
    }
    met = [option for option, asked in only_python.items() if asked]
    if met:
        raise UsageError(f"--emit-sh does not know {', '.join(met)}; leave it out, or use `alltrace capture exec` itself")
    kernels = ""
    if request.profiler == "ncu":
        kernels = check_filter(request.ncu.kernels)
        switches = ["--set", request.ncu.metric_set, "--launch-skip", str(request.ncu.skip)]
        switches += ["--launch-count", str(request.ncu.launches), "--target-processes", "all"]
        switches += [*(() if request.ncu.from_start else IN_A_WINDOW), *request.ncu.extra]
    else:
        switches = [f"--trace={nsys.trace}", *([] if nsys.sample else ["--sample=none", "--cpuctxsw=none"])]
        switches += [f"--mpi-impl={nsys.mpi_impl}"] if nsys.mpi_impl else []
        window = window_switches(nsys)
        switches += [*([] if LEAVES in window else [LEAVES]), *window, *nsys.extra]
    odd = next((s for s in switches if not _WORD.fullmatch(s)), None)
    if odd is not None:
        raise UsageError(f"--emit-sh cannot write the switch {odd!r}: it takes letters, digits, %q{{VARIABLE}} and _.,:=@/+- only")
    settings = {
        "profiler": request.profiler,
        "kernels": kernels,
        "output": request.output,
        "job": request.job or "",
        "tool": request.tool or "",
        "tmp": request.tmp or "",
        "spans": " ".join(f"{first}-{last}" for first, last in selection.spans or ()),
        "per_node": "" if selection.most is None else selection.most,
        "cutoff": "" if selection.cutoff is None else selection.cutoff,
        "force": str(request.force).lower(),
        "grace": math.ceil(request.grace_s),
        "end_after": math.ceil(request.end_after_s),
        "strict": str(request.strict).lower(),
        "gpu_metrics": str(nsys.gpu_metrics).lower(),
        "nic_metrics": str(nsys.nic_metrics).lower(),
        "efa": str(nsys.efa).lower(),
        "switches": " ".join(switches),
    }
    return fill("exec.sh", {"settings": settings, "steps": nsys.steps, "steps_by": nsys.begun_by})
