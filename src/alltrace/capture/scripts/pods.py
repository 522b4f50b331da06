"""What pods of all kinds of job have in common: the container, its variables, volumes and rights."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from alltrace.capture.scripts import parts
from alltrace.capture.scripts.shell import Expression, array, continued, one_line, word
from alltrace.capture.scripts.workloads import programs
from alltrace.trace.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from alltrace.capture.scripts.settings import Job

LABELS = {
    "injector": {"nvidia-devtools-sidecar-injector": "enabled"},
    "operator": {"nvidia-nsight-profile": "enabled"},
}
_SCRIPTS = "/etc/alltrace"


def check(job: Job, *, uploaded_by_pods: bool) -> None:
    """What a manifest needs.

    Raises:
        UsageError: There is no image, or the reports would be lost with the pods.
    """
    if not job.text("kubernetes.image"):
        raise UsageError(
            "kubernetes.image is not given; expected an image with nsys and alltrace, which `capture script docker` makes"
        )
    if not job.text("kubernetes.mount").startswith("/"):
        raise UsageError(f"kubernetes.mount is {job.text('kubernetes.mount')!r}; expected an absolute path")
    if job.text("kubernetes.inject") != "none":
        if job.text("profiler.kind") != "nsys":
            raise UsageError("kubernetes.inject profiles only with nsys; set profiler.kind to nsys, or kubernetes.inject to none")
        return
    if job.text("kubernetes.claim") or (uploaded_by_pods and job.text("upload.url")):
        return
    other = ", or upload.url" if uploaded_by_pods else ""
    raise UsageError(f"the reports would be lost with the pods; give kubernetes.claim, a PersistentVolumeClaim{other}")


def reports_folder(job: Job) -> str:
    """Where the reports go, as the containers see it."""
    return f"{job.text('kubernetes.mount').rstrip('/')}/{job.text('job.name')}"


def metadata(job: Job, name: str | None = None, **labels: str) -> dict[str, Any]:
    """The metadata of an object of the job."""
    made: dict[str, Any] = {"name": name or job.text("job.name"), "namespace": job.text("kubernetes.namespace")}
    return {**made, "labels": labels} if labels else made


def manifest(job: Job, version: str, kind: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """An object of the job that has its name."""
    return {"apiVersion": version, "kind": kind, "metadata": metadata(job), "spec": spec}


def replicas(count: int, template: Mapping[str, Any]) -> dict[str, Any]:
    """A number of pods of one kind, which are not restarted."""
    return {"replicas": count, "restartPolicy": "Never", "template": template}


def pod_labels(job: Job) -> dict[str, str]:
    """The labels of the job's pods; an injector reads the labels of pods, never those of the job."""
    return {"app": job.text("job.name"), **LABELS.get(job.text("kubernetes.inject"), {})}


def container(job: Job, name: str, command: Sequence[str] | None, *, gpus: bool = True) -> dict[str, Any]:
    """A container.

    Args:
        job: The settings.
        name: Its name, which operators search for.
        command: What it runs; None for the operator's command.
        gpus: Whether it has the GPUs of a node.
    """
    made: dict[str, Any] = {"name": name, "image": job.text("kubernetes.image")}
    if command is not None:
        made["command"] = list(command)
    found = {**parts.variables(job, reports_folder(job)), **_wrapper_variables(job)}
    made["env"] = [{"name": n, "value": _literal(v)} for n, v in found.items()]
    if job.text("kubernetes.secret"):
        made["envFrom"] = [{"secretRef": {"name": job.text("kubernetes.secret")}}]
    if gpus:
        held = {job.text("kubernetes.gpu_resource"): job.number("job.ranks_per_node")}
        held.update({"vpc.amazonaws.com/efa": job.number("kubernetes.efa")} if job.number("kubernetes.efa") else {})
        made["resources"] = {"limits": held, "requests": dict(held)}
    added = _capabilities(job)
    if added:
        made["securityContext"] = {"capabilities": {"add": added}}
    made["volumeMounts"] = [
        *([] if _mounted_by_injector(job) else [{"name": "reports", "mountPath": job.text("kubernetes.mount")}]),
        {"name": "shared-memory", "mountPath": "/dev/shm"},  # noqa: S108  what a container calls its shared memory
        *([{"name": "alltrace", "mountPath": _SCRIPTS}] if _by_shell(job) else []),
    ]
    return made


def pod(job: Job, containers: Sequence[Mapping[str, Any]], *, restart: str | None = "Never") -> dict[str, Any]:
    """A pod's template.

    Args:
        job: The settings.
        containers: Its containers.
        restart: Its restart policy; None if the operator sets one.
    """
    claim = job.text("kubernetes.claim")
    volumes: list[dict[str, Any]] = []
    if not _mounted_by_injector(job):
        volumes.append({"name": "reports", **({"persistentVolumeClaim": {"claimName": claim}} if claim else {"emptyDir": {}})})
    volumes.append({"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": job.text("kubernetes.shared_memory")}})
    if _by_shell(job):
        volumes.append({"name": "alltrace", "configMap": {"name": f"{job.text('job.name')}-capture"}})
    spec: dict[str, Any] = {"restartPolicy": restart} if restart else {}
    # nsys makes its report after the program has ended, which takes longer than the usual 30 seconds
    spec["terminationGracePeriodSeconds"] = job.number("kubernetes.grace_seconds")
    if job.text("kubernetes.service_account"):
        spec["serviceAccountName"] = job.text("kubernetes.service_account")
    if job.text("kubernetes.pull_secret"):
        spec["imagePullSecrets"] = [{"name": job.text("kubernetes.pull_secret")}]
    if job.table("kubernetes.nodes"):
        spec["nodeSelector"] = job.table("kubernetes.nodes")
    return {"metadata": {"labels": pod_labels(job)}, "spec": {**spec, "containers": list(containers), "volumes": volumes}}


_RUN = """\
# A pod that is deleted sends SIGTERM to this shell alone: it tells the ranks, which then leave their reports
ended='' running=''
trap 'ended=1; [ -z "$running" ] || kill -TERM "$running"' TERM
run() {
  [ -z "$ended" ] || return 143
  "$@" &
  running=$!
  while :; do
    status=0
    wait "$running" || status=$?
    kill -0 "$running" 2>/dev/null || return "$status"
  done
}"""


def script(job: Job, launch: Callable[[str], list[str]]) -> str:
    """What a container runs.

    Args:
        job: The settings.
        launch: Returns the pieces of the command that starts the ranks, from the wrapper's and the program's words.
    """
    injected = job.text("kubernetes.inject") != "none"
    lines = ["set -euo pipefail", f"reports={word(reports_folder(job))}", 'mkdir -p "$reports"']
    lines += job.text("job.setup").rstrip("\n").split("\n") if job.text("job.setup") else []
    lines += [*_RUN.splitlines(), "code=0"]
    for program in programs(job):
        name = job.text("job.name") + (f"-{program.label}" if program.label else "")
        before = [] if injected else _wrapper(job, name)
        lines += [f"export ALLTRACE_JOB={word(name)}"] if _by_shell(job) and program.label else []
        lines += [*array("capture", before), *array("program", program.words)] if before else array("program", program.words)
        command = continued(launch('"${capture[@]}" "${program[@]}"' if before else '"${program[@]}"'))
        lines += [f"run {command[0]}", *command[1:]]
        lines[-1] += " || code=$?"
    lines += [] if injected else [line for line in parts.upload_lines(job, job.text("job.name")) if line]
    return "\n".join([*lines, 'exit "$code"']) + "\n"


def shell(job: Job, launch: Callable[[str], list[str]]) -> list[str]:
    """A container's command around `script`."""
    return ["/bin/bash", "-c", _literal(script(job, launch))]


def _literal(text: str) -> str:
    """`text` for a container's command or variable, where Kubernetes fills in `$(NAME)` and makes one dollar of two."""
    return re.sub(r"\$\$|\$(?=\()", lambda found: found[0] * 2, text)


def extras(job: Job) -> list[dict[str, Any]]:
    """What a manifest has besides the job: the wrapper for containers without Python."""
    if not _by_shell(job):
        return []
    about = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(job, f"{job.text('job.name')}-capture")}
    return [{**about, "data": {parts.CAPTURE_SH: parts.wrapper_text(job)}}]


def about(job: Job, target: str, kinds: str) -> list[str]:
    """The head of a manifest: what it is, and how to start, inspect and remove it."""
    name, namespace = job.text("job.name"), job.text("kubernetes.namespace")
    claim = job.text("kubernetes.claim")
    lines = [
        parts.title(job, target),
        "Start:  kubectl apply -f FILE",
        f"Watch:  kubectl -n {namespace} logs -l app={name} --all-containers --prefix -f",
        "Remove: kubectl delete -f FILE",
    ]
    if job.text("kubernetes.inject") != "none":
        lines.append(f"The pods carry the label of the {job.text('kubernetes.inject')}, whose values `capture script` writes too")
    elif claim:
        lines.append(
            f"The reports are in {reports_folder(job)} on the claim {one_line(claim)}: alltrace info {reports_folder(job)}"
        )
    else:
        lines.append(f"Each pod copies its reports to {job.text('upload.url').rstrip('/')}/{name}")
    return [*lines, f"It needs {kinds}"]


def _mounted_by_injector(job: Job) -> bool:
    """Whether devtools-sidecar-injector mounts the reports, at the same place; twice there would be refused."""
    return job.text("kubernetes.inject") == "injector"


def _by_shell(job: Job) -> bool:
    return job.text("profiler.wrapper") == "shell" and job.text("kubernetes.inject") == "none"


def _wrapper(job: Job, name: str) -> list[str]:
    if _by_shell(job):
        return ["sh", f"{_SCRIPTS}/{parts.CAPTURE_SH}"]
    return [*parts.capture_words(job, Expression('"$reports"'), name), "--"]


def _wrapper_variables(job: Job) -> dict[str, str]:
    if job.text("kubernetes.inject") != "none" and job.text("profiler.steps"):
        return {"ALLTRACE_STEPS": job.text("profiler.steps")}
    if not _by_shell(job):
        return {}
    found = parts.wrapper_variables(job, job.text("job.name"))
    return {**found, "ALLTRACE_OUTPUT": reports_folder(job)}


def _capabilities(job: Job) -> list[str]:
    """The rights that what is recorded needs; CUDA and NVTX need none."""
    needed = job.text("profiler.kind") == "ncu" or any(job.flag(f"profiler.{n}") for n in ("sample", "gpu_metrics"))
    locked = ["IPC_LOCK"] if job.number("kubernetes.efa") else []
    return [*locked, *(["SYS_ADMIN"] if needed else [])]
