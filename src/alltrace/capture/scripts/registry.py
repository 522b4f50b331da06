"""The targets that a script is made for."""

from collections.abc import Callable
from typing import NamedTuple

from alltrace.capture.scripts import hosts, manifests
from alltrace.capture.scripts.parts import check
from alltrace.capture.scripts.rendering import fill
from alltrace.capture.scripts.settings import Job
from alltrace.trace.errors import UsageError


class Target(NamedTuple):
    name: str
    write: Callable[[Job, str], str]
    help: str


TARGETS: tuple[Target, ...] = (
    Target("slurm", hosts.slurm, "a batch script for Slurm"),
    Target("slurm-pyxis", hosts.slurm, "the same with a container of pyxis"),
    Target("pbs", hosts.pbs, "a batch script for PBS"),
    Target("mpi", hosts.mpi, "a script around mpirun or mpiexec"),
    Target("torchrun", hosts.torchrun, "a script around torchrun, started on every node"),
    Target("docker", lambda job, _: fill("docker", job.sections()), "a Dockerfile that adds Nsight to an image"),
    Target("k8s-mpijob", manifests.mpijob, "an MPIJob of Kubeflow"),
    Target("k8s-pytorchjob", manifests.by_torchrun, "a PyTorchJob of Kubeflow"),
    Target("k8s-jobset", manifests.by_torchrun, "a JobSet of Kubernetes"),
    Target("k8s-trainjob", manifests.by_torchrun, "a TrainJob of Kubeflow Trainer"),
    Target("k8s-injector", manifests.values, "Helm values of devtools-sidecar-injector"),
    Target("k8s-operator", manifests.values, "Helm values of Nsight Operator"),
)


def render(target: str, job: Job) -> str:
    """The script of a target; a UsageError if the target does not exist, or the settings do not fit it."""
    by_name = {t.name: t for t in TARGETS}
    if target not in by_name:
        raise UsageError.unknown("target of capture script", target, by_name)
    if target != "docker":
        check(job)
    return by_name[target].write(job, target)
