"""The targets that a script is made for: a literal list, so that naming them imports none of them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from alltrace.trace.errors import UsageError

if TYPE_CHECKING:
    from alltrace.capture.scripts.settings import Job

_HERE = "alltrace.capture.scripts"


@dataclass(frozen=True)
class Target:
    """A target: its name, the function that writes its script, and what it is."""

    name: str
    function: str
    help: str


TARGETS: tuple[Target, ...] = (
    Target("slurm", "slurm:render", "a batch script for Slurm"),
    Target("slurm-pyxis", "slurm:render", "the same with a container of pyxis"),
    Target("pbs", "pbs:render", "a batch script for PBS"),
    Target("mpi", "mpi:render", "a script around mpirun or mpiexec"),
    Target("torchrun", "torchrun:render", "a script around torchrun, started on every node"),
    Target("docker", "dockerfile:render", "a Dockerfile that adds Nsight to an image"),
    Target("k8s-mpijob", "manifests:mpijob", "an MPIJob of Kubeflow"),
    Target("k8s-pytorchjob", "manifests:pytorchjob", "a PyTorchJob of Kubeflow"),
    Target("k8s-jobset", "manifests:jobset", "a JobSet of Kubernetes"),
    Target("k8s-trainjob", "manifests:trainjob", "a TrainJob of Kubeflow Trainer"),
    Target("k8s-injector", "manifests:injector", "Helm values of devtools-sidecar-injector"),
    Target("k8s-operator", "manifests:operator", "Helm values of Nsight Operator"),
)


def render(target: str, job: Job) -> str:
    """The script of a target.

    Raises:
        UsageError: The target does not exist, or the settings do not fit it.
    """
    found = next((t for t in TARGETS if t.name == target), None)
    if found is None:
        raise UsageError.unknown("target of capture script", target, (t.name for t in TARGETS))
    if target != "docker":
        from alltrace.capture.scripts.parts import check

        check(job)
    module, _, name = found.function.partition(":")
    text: str = getattr(import_module(f"{_HERE}.{module}"), name)(job, target)
    return text
