"""What scripts of several targets have in common: the wrapper's options, NCCL's log, the upload."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alltrace.capture.nccl_log import STAMPS
from alltrace.capture.plan import Request
from alltrace.capture.profilers.ncu import NcuOptions, check_filter
from alltrace.capture.profilers.nsys import NsysOptions, window_switches
from alltrace.capture.scripts.exec_sh import exec_script
from alltrace.capture.scripts.rendering import Expression, one_line
from alltrace.capture.scripts.workloads import begun_by_program, profiled_ranks, programs
from alltrace.capture.selection import parse_selection
from alltrace.trace.errors import UsageError

if TYPE_CHECKING:
    from alltrace.capture.scripts.settings import Job


def check(job: Job) -> None:
    """What no target can do.

    Raises:
        UsageError: Settings that exclude each other.
    """
    window = [n for n in ("steps", "capture_range") if job.text(f"profiler.{n}")]
    timed = [n for n in ("delay", "duration") if job.text(f"profiler.{n}")]
    if len(window) > 1 or (window and timed):
        raise UsageError(f"profiler.{window[0]} and profiler.{[*window[1:], *timed][0]} both set when to record; give one of them")
    kind = job.text("profiler.kind")
    only_nsys = [n for n in ("delay", "duration") if job.text(f"profiler.{n}")]
    only_nsys += ["capture_range"] if job.text("profiler.capture_range") not in ("", *(["cuda"] if kind == "ncu" else [])) else []
    only_nsys += [n for n in ("sample", "gpu_metrics", "nic_metrics", "efa") if job.flag(f"profiler.{n}")]
    if kind != "nsys" and only_nsys:
        raise UsageError(f"profiler.{only_nsys[0]} works with nsys, and profiler.kind is {kind}; leave it out")
    if kind == "torch" and job.words("profiler.arguments"):
        raise UsageError("profiler.arguments works with nsys and ncu, and profiler.kind is torch; leave it out")
    if kind != "ncu" and job.text("profiler.kernels"):
        raise UsageError(f"profiler.kernels works with ncu, and profiler.kind is {kind}; leave it out")
    if job.flag("nccl.window"):
        needs = {
            "nccl.log = true": job.flag("nccl.log"),
            'nccl.debug = "INFO"': job.text("nccl.debug") == "INFO",
            "profiler.steps": job.steps is not None and not begun_by_program(job),
            'kubernetes.inject = "none"': job.text("kubernetes.inject") == "none",
            'profiler.wrapper = "alltrace"': job.text("profiler.wrapper") == "alltrace",
        }
        lacking = next((need for need, met in needs.items() if not met), None)
        if lacking is not None:
            raise UsageError(f"nccl.window needs {lacking}, so that the wrapper can cut the log to the recorded steps")
    profiled_ranks(job)
    programs(job)
    if kind == "ncu":
        check_filter(job.text("profiler.kernels") or None, "profiler.kernels")


def request_of(job: Job, output: str) -> Request:
    """The request to `capture exec` from a job's settings."""
    window = job.steps
    capture_range = job.text("profiler.capture_range") or None
    if window is not None and begun_by_program(job):
        window, capture_range = None, "cuda"
    delay, duration = (job.text(f"profiler.{n}") for n in ("delay", "duration"))
    kind = job.text("profiler.kind")
    chosen = job.text("profiler.ranks") or ("0" if kind == "ncu" else None)
    extra = tuple(job.words("profiler.arguments"))
    return Request(
        output=output,
        job=job.text("job.name"),
        selection=parse_selection(chosen, job.number("profiler.per_node") or None, None),
        profiler=kind,
        tool=job.text("profiler.path") or None,
        nsys=NsysOptions(
            trace=job.text("profiler.trace"),
            sample=job.flag("profiler.sample"),
            gpu_metrics=job.flag("profiler.gpu_metrics"),
            nic_metrics=job.flag("profiler.nic_metrics"),
            efa=job.flag("profiler.efa"),
            delay_s=float(delay) if delay else None,
            duration_s=float(duration) if duration else None,
            steps=window,
            capture_range=capture_range if kind != "torch" else None,
            extra=extra,
        ),
        ncu=NcuOptions(
            job.text("profiler.kernels") or None,
            job.text("profiler.set"),
            job.number("profiler.launch_skip"),
            job.number("profiler.launch_count"),
            extra,
            from_start=kind != "ncu" or (window is None and capture_range is None),
        ),
        tmp=job.text("profiler.tmp") or None,
        nccl_log=job.flag("nccl.window"),
    )


def capture_words(job: Job, name: str) -> list[str]:
    """The words before a program, as one rank's wrapper with its options; `name` is the job's in reports, or shell for it."""
    made = request_of(job, "")
    nsys = made.nsys
    found = ["alltrace", "capture", "exec", "--output", Expression('"$reports"'), "--job", name]
    if job.text("profiler.ranks"):
        found += ["--ranks", job.text("profiler.ranks")]
    if job.number("profiler.per_node"):
        found += ["--per-node", str(job.number("profiler.per_node"))]
    if made.profiler != "nsys":
        found += ["--profiler", made.profiler]
    if made.profiler == "nsys":
        found += ["--trace", nsys.trace]
        found += [f"--{n.replace('_', '-')}" for n in ("sample", "gpu_metrics", "nic_metrics", "efa") if getattr(nsys, n)]
        found += [] if nsys.delay_s is None else ["--delay", f"{nsys.delay_s:g}"]
        found += [] if nsys.duration_s is None else ["--duration", f"{nsys.duration_s:g}"]
    found += [] if nsys.capture_range is None else ["--capture-range", nsys.capture_range]
    if nsys.steps is not None:
        found += ["--steps", f"{nsys.steps[0]}:{nsys.steps[1]}"]
    if made.profiler == "ncu":
        ncu = made.ncu
        found += ["--kernels", ncu.kernels or "", "--set", ncu.metric_set]
        found += ["--launch-skip", str(ncu.skip), "--launch-count", str(ncu.launches)]
    if made.tool and made.profiler in ("nsys", "ncu"):
        found += [f"--{made.profiler}", made.tool]
    found += ["--tmp", made.tmp] if made.tmp else []
    found += ["--nccl-log"] if made.nccl_log else []
    return [*found, *(f"--profiler-arg={a}" for a in nsys.extra), "--"]


def wrapper_text(job: Job) -> str:
    """The wrapper for ranks without Python; its folder and job come from ALLTRACE_OUTPUT and ALLTRACE_JOB."""
    return exec_script(request_of(job, job.text("job.output")))


def wrapper_variables(job: Job, name: str) -> dict[str, str]:
    """The variables that the wrapper without Python needs."""
    if job.text("profiler.wrapper") != "shell":
        return {}
    found = {"ALLTRACE_OUTPUT": Expression('"$reports"'), "ALLTRACE_JOB": name}
    if job.text("profiler.path") and job.text("profiler.kind") in ("nsys", "ncu"):
        found[f"ALLTRACE_{job.text('profiler.kind').upper()}"] = job.text("profiler.path")
    return found


def variables(job: Job, reports: str) -> dict[str, str]:
    """What every rank finds in its environment: NCCL's log and Inspector, then the user's own.

    Args:
        job: The settings.
        reports: The folder's path in the value; for a shell, `$reports`.
    """
    found: dict[str, str] = {}
    if job.flag("nccl.window"):
        found["NCCL_DEBUG_SUBSYS"] = job.text("nccl.subsystems")
    elif job.flag("nccl.log"):
        file = f"{reports}/nccl.%h.%p.log"
        found["NCCL_DEBUG"] = job.text("nccl.debug")
        found["NCCL_DEBUG_SUBSYS"] = job.text("nccl.subsystems")
        found["NCCL_DEBUG_FILE"] = Expression(f'"{file}"') if reports.startswith("$") else file
        found.update(STAMPS if job.flag("nccl.timestamps") else {})
    if job.text("nccl.inspector"):
        folder = f"{reports}/inspector"
        found["NCCL_PROFILER_PLUGIN"] = job.text("nccl.inspector")
        found["NCCL_INSPECTOR_ENABLE"] = "1"
        found["NCCL_INSPECTOR_DUMP_DIR"] = Expression(f'"{folder}"') if reports.startswith("$") else folder
        # without an interval it writes nothing
        found["NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS"] = str(job.number("nccl.inspector_interval_us"))
    return {**found, **job.table("environment")}


def copy_command(job: Job, name: str) -> str:
    """The command that copies the reports away; empty if they stay."""
    url = job.text("upload.url")
    if not url:
        return ""
    target = f'"{url.rstrip("/")}/{name}"'
    if job.text("profiler.wrapper") == "alltrace":
        return f'alltrace capture upload "$reports" {target}'
    if url.startswith("s3://"):
        return f'aws s3 cp --recursive "$reports" {target}'
    if url.startswith(("gs://", "gcs://")):
        return f'gcloud storage cp --recursive "$reports"/* {target}/'
    raise UsageError(
        f'upload.url is {url}, which needs profiler.wrapper = "alltrace"; without Python only s3:// and gs:// are supported'
    )


def title(job: Job, target: str) -> str:
    """What a script is, in one line."""
    what = {"nsys": "Nsight Systems", "ncu": "Nsight Compute", "torch": "the PyTorch profiler"}[job.text("profiler.kind")]
    ranks = job.text("profiler.ranks") or ("0" if job.text("profiler.kind") == "ncu" else "all")
    nodes, per_node = job.number("job.nodes"), job.number("job.ranks_per_node")
    places = (
        f"{nodes} node{'s' if nodes > 1 else ''} with {per_node} rank{'s' if per_node > 1 else ''}{' each' if nodes > 1 else ''}"
    )
    return one_line(
        f"{job.text('workload.kind')} on {places}, profiled by {what} (ranks: {ranks}); made by alltrace capture script {target}"
    )


def nsys_switches(job: Job) -> list[str]:
    """What nsys records, as its own switches, for those who start it themselves."""
    # the job's nodes have GPUs, even if this one has none
    nsys = request_of(job, "").nsys._replace(steps_by="cuda")
    found = [f"--trace={nsys.trace}", *([] if nsys.sample else ["--sample=none", "--cpuctxsw=none"])]
    found += ["--gpu-metrics-devices=all"] if nsys.gpu_metrics else []
    found += ["--nic-metrics=true"] if nsys.nic_metrics else []
    found += ["--enable=efa_metrics"] if nsys.efa else []
    return [*found, *window_switches(nsys), *nsys.extra]
