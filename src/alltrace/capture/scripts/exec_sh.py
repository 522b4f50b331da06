"""`capture exec` as a POSIX shell script, for containers without Python."""

import math
import re
from collections.abc import Sequence

from alltrace.capture.launchers import JOB_VARIABLES, LAUNCHERS, RESTART_VARIABLES, Launcher
from alltrace.capture.plan import Request
from alltrace.capture.profilers.ncu import IN_A_WINDOW, check_filter, patience
from alltrace.capture.profilers.nsys import DEFAULT_TRACE, LEAVES, window_switches
from alltrace.capture.scripts.rendering import fill, first_set, word
from alltrace.capture.variables import RAY_JOB, RAY_RESTART
from alltrace.trace.errors import UsageError

_WORD = re.compile(r"([A-Za-z0-9_.,:=@/+-]|%q\{[A-Za-z0-9_]+\})+")


def exec_script(request: Request, only_python: Sequence[str] = ()) -> str:
    """The script that performs `request`; a UsageError if it needs `only_python` or more of the Python form."""
    nsys, selection = request.nsys, request.selection
    if nsys.steps_by == "auto":  # independent of this machine
        nsys = nsys._replace(steps_by="cuda")
    further = {
        "--on-error run": request.on_error == "run",
        "fields in --output": bool(re.search(r"[{%]", request.output)),
    }
    unknown = [
        *(["capture arm"] if nsys.armed else []),
        *only_python,
        *(option for option, needed in further.items() if needed),
    ]
    if unknown:
        raise UsageError(
            f"--emit-sh does not know {', '.join(unknown)}; leave it out, or use `alltrace capture exec` itself"
        )
    kernels = ""
    if request.profiler == "ncu":
        kernels = check_filter(request.ncu.kernels)
        switches = ["--set", request.ncu.metric_set, "--launch-skip", str(request.ncu.launch_skip)]
        switches += ["--launch-count", str(request.ncu.launch_count), "--target-processes", "all"]
        switches += [*(() if request.ncu.from_start else IN_A_WINDOW), *request.ncu.extra]
    else:
        switches = [
            f"--trace={nsys.trace or DEFAULT_TRACE}",
            *([] if nsys.sample else ["--sample=none", "--cpuctxsw=none"]),
        ]
        switches += [f"--mpi-impl={nsys.mpi_impl}"] if nsys.mpi_impl else []
        window = window_switches(nsys)
        switches += [*([] if LEAVES in window else [LEAVES]), *window, *nsys.extra]
    odd = next((s for s in switches if not _WORD.fullmatch(s)), None)
    if odd is not None:
        raise UsageError(
            f"--emit-sh cannot write the switch {odd!r}: it takes letters, digits, %q{{VARIABLE}} and _.,:=@/+- only"
        )
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
    lists = {
        "launchers": [_believe(one) for one in LAUNCHERS if RAY_JOB not in one.needs],
        "jobs": [first_set([name]) for name in JOB_VARIABLES if name != RAY_JOB],
        "restarts": [first_set([name]) for name in RESTART_VARIABLES if name != RAY_RESTART],
        "patience": patience(),
    }
    return fill("exec.sh", {"settings": settings, "steps": nsys.steps, "steps_by": nsys.begun_by, **lists})


def _believe(launcher: Launcher) -> str:
    """The line of the script by which it takes the place of this process from the variables of a launcher."""
    needs = "".join(f"${{{name}-}}" for name in launcher.needs)
    sources = (launcher.rank, launcher.local_rank, launcher.world_size, launcher.node)
    line = f"believe {word(launcher.name)} {' '.join(map(first_set, sources))}"
    return f'[ -n "{needs}" ] && {line}' if needs else line
