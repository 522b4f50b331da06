"""Scripts of every target, profiler, workload and wrapper, with words that are hard to quote."""

import itertools
import re

import pytest

from alltrace.capture.scripts.registry import TARGETS, render
from alltrace.capture.scripts.settings import Job
from alltrace.trace.errors import UsageError

WORKLOADS = ("command", "nccl-tests", "fsdp", "megatron", "nemo")
PROFILERS = ("nsys", "ncu", "torch")
ODD = ["a b", "it's", 'say "hi"', "$HOME `id`", "two\nlines", "*", "", "é\t\\"]
NEEDED = {
    "slurm.container_image": "nvcr.io#nvidia/pytorch:25.06-py3",
    "kubernetes.image": "registry.example/team/train:1.2",
    "kubernetes.claim": "reports",
    "upload.url": "s3://bucket/profiles",
    "nccl.log": True,
    "nccl.inspector": "/opt/it's/libnccl-profiler-inspector.so",
}
HOSTS = ("slurm", "slurm-pyxis", "pbs", "mpi", "torchrun")
MANIFESTS = ("k8s-mpijob", "k8s-pytorchjob", "k8s-jobset", "k8s-trainjob")
VALUES = ("k8s-injector", "k8s-operator")


def settings(profiler="nsys", workload="command", **further):
    """Settings that every target accepts, with words that are hard to quote."""
    found = {**NEEDED, "profiler.kind": profiler, "workload.kind": workload}
    found |= {"workload.arguments": ODD, "environment": {"ODD": ODD[3]}}
    if profiler == "ncu":
        found["profiler.kernels"] = r"^(gemm|it's a \$x)$"
    if workload != "nccl-tests":
        found["profiler.steps"] = "70:75"
    return {**found, **{name.replace("__", "."): value for name, value in further.items()}}


def rendered(targets):
    """(label, target, script) of every profiler, workload and wrapper that the target does not refuse."""
    for target, profiler, workload, wrapper in itertools.product(targets, PROFILERS, WORKLOADS, ("alltrace", "shell")):
        job = Job(settings(profiler, workload, profiler__wrapper=wrapper))
        try:
            yield f"{target}-{profiler}-{workload}-{wrapper}", target, render(target, job)
        except UsageError:
            continue


def all_targets():
    return [t.name for t in TARGETS]


def documents(text):
    """What is in a manifest; the test is skipped where nothing reads YAML."""
    yaml = pytest.importorskip("yaml")
    return list(yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def templates(node):
    """Every pod's template in a document."""
    if isinstance(node, dict):
        if "containers" in node.get("spec", {}):
            yield node
        for value in node.values():
            yield from templates(value)
    elif isinstance(node, list):
        for value in node:
            yield from templates(value)


def scripts(document):
    """What each container of a document runs in a shell."""
    for template in templates(document):
        for container in template["spec"]["containers"]:
            if container.get("command", [""])[0] == "/bin/bash":
                yield filled_in(container["command"][2])
    command = document.get("spec", {}).get("trainer", {}).get("command")
    if command:
        yield filled_in(command[2])


def filled_in(text):
    """`text` as Kubernetes gives it to a container that has the variable ODD."""
    return re.sub(r"\$\$|\$\(ODD\)", lambda found: "$" if found[0] == "$$" else "FILLED IN", text)
