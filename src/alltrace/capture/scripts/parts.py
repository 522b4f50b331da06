"""What scripts of several targets have in common: the wrapper's options, NCCL's log, the upload."""

from typing import Any

from alltrace.capture.nccl_log import STAMPS
from alltrace.capture.options import BY_NAME, OPTIONS, check_recorded, make_request
from alltrace.capture.plan import Request
from alltrace.capture.profilers.ncu import check_filter
from alltrace.capture.profilers.nsys import DEFAULT_TRACE, window_switches
from alltrace.capture.scripts.exec_sh import exec_script
from alltrace.capture.scripts.rendering import Expression, one_line
from alltrace.capture.scripts.settings import Job
from alltrace.capture.scripts.workloads import begun_by_program, profiled_ranks, programs
from alltrace.trace.errors import UsageError

# in the order of a script
_IN_SCRIPTS = (
    *"ranks per_node cutoff profiler trace sample gpu_metrics nic_metrics efa delay duration".split(),
    *("capture_range", "steps", "kernels", "metric_set", "launch_skip", "launch_count", "nsys", "ncu", "tmp"),
    *("nccl_log", "profiler_arg"),
)


def check(job: Job) -> None:
    kind = job.text("profiler.kind")
    check_recorded(_values(job, window=True), lambda option: option.key)
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


def _values(job: Job, *, window: bool = False) -> dict[str, Any]:
    """The values of the options of `capture exec` by the settings; with `window`, as they say when to record."""
    values = {o.name: o.default for o in OPTIONS}
    kind = job.text("profiler.kind")
    for option in OPTIONS:
        # what this profiler does not know has no meaning where a setting always has a value
        always = option.default not in (None, []) and option.default is not False
        if option.key and not (always and option.only_with and kind not in option.only_with):
            value = job.value(option.key)
            if value in ("", 0) and option.default is None:
                continue
            values[option.name] = option.parse(value) if option.parse is not None else value
    if not window and begun_by_program(job) and values["steps"] is not None:
        values.update(steps=None, capture_range="cuda" if kind != "torch" else None)
    if kind in ("nsys", "ncu") and job.text("profiler.path"):
        values[kind] = job.text("profiler.path")
    return {**values, "job": job.text("job.name"), "nccl_log": job.flag("nccl.window")}


def request_of(job: Job, output: str) -> Request:
    values = _values(job)
    first_alone = values["profiler"] == "ncu" and values["ranks"] is None
    return make_request({**values, "output": output, **({"ranks": "0"} if first_alone else {})})


def capture_words(job: Job, name: str) -> list[str]:
    """The words before a program: a rank's wrapper with its options; `name` is the job's in reports, or shell."""
    values = _values(job)
    command = ["alltrace", "capture", "exec", "--output", Expression('"$reports"'), "--job", name]
    for option in map(BY_NAME.__getitem__, _IN_SCRIPTS):
        applies = not option.only_with or values["profiler"] in option.only_with
        if applies and not (option.name == "profiler" and values["profiler"] == option.default):
            command += option.words(values[option.name])
    return [*command, "--"]


def wrapper_text(job: Job) -> str:
    """The wrapper for ranks without Python; its folder and job come from ALLTRACE_OUTPUT and ALLTRACE_JOB."""
    return exec_script(request_of(job, job.text("job.output")))


def wrapper_variables(job: Job, name: str) -> dict[str, str]:
    if job.text("profiler.wrapper") != "shell":
        return {}
    values = {"ALLTRACE_OUTPUT": Expression('"$reports"'), "ALLTRACE_JOB": name}
    if job.text("profiler.path") and job.text("profiler.kind") in ("nsys", "ncu"):
        values[f"ALLTRACE_{job.text('profiler.kind').upper()}"] = job.text("profiler.path")
    return values


def variables(job: Job, reports: str) -> dict[str, str]:
    """What every rank finds in its environment: NCCL's log and Inspector, then the user's own."""
    # `reports`: the folder's path in the value; for a shell, `$reports`.
    values: dict[str, str] = {}
    if job.flag("nccl.window"):
        values["NCCL_DEBUG_SUBSYS"] = job.text("nccl.subsystems")
    elif job.flag("nccl.log"):
        file = f"{reports}/nccl.%h.%p.log"
        values["NCCL_DEBUG"] = job.text("nccl.debug")
        values["NCCL_DEBUG_SUBSYS"] = job.text("nccl.subsystems")
        values["NCCL_DEBUG_FILE"] = Expression(f'"{file}"') if reports.startswith("$") else file
        values.update(STAMPS if job.flag("nccl.timestamps") else {})
    if job.text("nccl.inspector"):
        folder = f"{reports}/inspector"
        values["NCCL_PROFILER_PLUGIN"] = job.text("nccl.inspector")
        values["NCCL_INSPECTOR_ENABLE"] = "1"
        values["NCCL_INSPECTOR_DUMP_DIR"] = Expression(f'"{folder}"') if reports.startswith("$") else folder
        # without an interval it writes nothing
        values["NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS"] = str(job.number("nccl.inspector_interval_us"))
    return {**values, **job.table("environment")}


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
        f'upload.url is {url}, which needs profiler.wrapper = "alltrace"; without Python only s3:// and gs:// are'
        " supported"
    )


def title(job: Job, target: str) -> str:
    what = {"nsys": "Nsight Systems", "ncu": "Nsight Compute", "torch": "the PyTorch profiler"}[
        job.text("profiler.kind")
    ]
    ranks = job.text("profiler.ranks") or ("0" if job.text("profiler.kind") == "ncu" else "all")
    nodes, per_node = job.number("job.nodes"), job.number("job.ranks_per_node")
    places = (
        f"{nodes} node{'s' if nodes > 1 else ''} with {per_node}"
        f" rank{'s' if per_node > 1 else ''}{' each' if nodes > 1 else ''}"
    )
    return one_line(
        f"{job.text('workload.kind')} on {places}, profiled by {what} (ranks: {ranks}); made by alltrace capture script"
        f" {target}"
    )


def nsys_switches(job: Job) -> list[str]:
    # the job's nodes have GPUs, even if this one has none
    nsys = request_of(job, "").nsys._replace(steps_by="cuda")
    switches = [
        f"--trace={nsys.trace or DEFAULT_TRACE}",
        *([] if nsys.sample else ["--sample=none", "--cpuctxsw=none"]),
    ]
    switches += ["--gpu-metrics-devices=all"] if nsys.gpu_metrics else []
    switches += ["--nic-metrics=true"] if nsys.nic_metrics else []
    switches += ["--enable=efa_metrics"] if nsys.efa else []
    return [*switches, *window_switches(nsys), *nsys.extra]
