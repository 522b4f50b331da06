import collections

import pytest
from tests.capture.scripts.rendering import (
    HOSTS,
    MANIFESTS,
    PROFILERS,
    VALUES,
    WORKLOADS,
    all_targets,
    rendered,
    settings,
)
from tests.together import together

from alltrace.capture.scripts.registry import TARGETS, render
from alltrace.capture.scripts.settings import Job
from alltrace.trace.errors import UsageError


def test_targets_are_documented_and_make_every_profiler_and_workload():
    assert tuple(all_targets()) == (*HOSTS, "docker", *MANIFESTS, *VALUES)
    made = collections.Counter(target for _, target, _ in rendered(all_targets()))
    # of 3 profilers x 5 workloads x 2 wrappers: nccl-tests by ncu or torch, and nemo by torch, cannot be
    assert [made[t] for t in ("slurm", "slurm-pyxis", "pbs", "mpi", "k8s-mpijob")] == [24] * 5
    # torchrun starts no nccl-tests
    assert [made[t] for t in ("torchrun", "k8s-pytorchjob", "k8s-jobset", "k8s-trainjob")] == [22] * 4
    # injectors start nsys alone; an image is none's
    assert [made[t] for t in (*VALUES, "docker")] == [10, 10, len(PROFILERS) * len(WORKLOADS) * 2]


@together(
    ("target", "changes", "said"),
    [
        ("slurm", {"profiler__kind": "torch", "workload__kind": "nccl-tests"}, "nccl-tests are not Python programs"),
        ("slurm", {"profiler__kind": "ncu", "workload__kind": "nccl-tests"}, "only NCCL's kernels"),
        ("slurm", {"profiler__kind": "torch", "workload__kind": "nemo"}, "NeMo has no argument"),
        ("slurm", {"profiler__kind": "ncu", "profiler__steps": ""}, "ncu needs profiler.kernels REGEX"),
        ("slurm", {"profiler__kind": "ncu", "profiler__kernels": "All"}, "profiler.kernels 'All' also matches nccl"),
        ("slurm", {"profiler__kind": "torch", "profiler__gpu_metrics": True}, "profiler.gpu_metrics works with nsys"),
        (
            "slurm",
            {"profiler__kind": "torch", "profiler__arguments": ["--x"]},
            "profiler.arguments works with nsys and ncu",
        ),
        ("slurm", {"profiler__kernels": "gemm"}, "profiler.kernels works with ncu, and profiler.kind is nsys"),
        ("slurm", {"profiler__delay": "3"}, "profiler.steps and profiler.delay both set when"),
        (
            "slurm",
            {"workload__kind": "megatron", "profiler__delay": "3"},
            "profiler.steps and profiler.delay both set when",
        ),
        ("slurm", {"profiler__ranks": "99"}, "contains none of the ranks 0-15"),
        ("slurm", {"workload__command": []}, None),
        ("slurm", {"workload__command": [], "workload__arguments": []}, "workload.command is empty"),
        ("slurm", {"slurm__arguments": ["constraint=h100"]}, "expected an option of sbatch"),
        ("slurm", {"slurm__arguments": ["--x\nrm -rf ~"]}, "expected an option of sbatch"),
        ("pbs", {"pbs__arguments": ["debug"]}, "expected an option of qsub"),
        ("slurm-pyxis", {"slurm__container_image": ""}, "slurm-pyxis needs slurm.container_image"),
        ("slurm-pyxis", {"slurm__container_mounts": ["/data"]}, "expected SOURCE:TARGET"),
        ("slurm", {"profiler__wrapper": "shell", "upload__url": "az://c/x"}, 'needs profiler.wrapper = "alltrace"'),
        (
            "torchrun",
            {"workload__kind": "nccl-tests", "profiler__steps": ""},
            "the target torchrun starts ranks with torchrun",
        ),
        ("k8s-jobset", {"workload__launch": "ranks"}, "use k8s-mpijob"),
        ("k8s-mpijob", {"kubernetes__image": ""}, "kubernetes.image is not given"),
        (
            "k8s-mpijob",
            {"kubernetes__claim": ""},
            "would be lost with the pods; give kubernetes.claim, a PersistentVolumeClaim",
        ),
        ("k8s-jobset", {"kubernetes__claim": "", "upload__url": ""}, "a PersistentVolumeClaim, or upload.url"),
        ("k8s-jobset", {"kubernetes__claim": ""}, None),
        ("k8s-jobset", {"kubernetes__mount": "reports"}, "expected an absolute path"),
        ("k8s-jobset", {"kubernetes__inject": "operator", "profiler__kind": "torch"}, "profiles only with nsys"),
        ("k8s-mpijob", {"mpi__launcher": "pals"}, "an MPIJob does not support"),
        ("k8s-operator", {"profiler__arguments": ["--env-var=A=b c"]}, "because it contains blanks or quotes"),
        ("k8s-injector", {"workload__command": ["python"], "workload__arguments": []}, "give injector.match"),
        ("slrum", {}, "unknown target of capture script 'slrum'; did you mean slurm"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(target, changes, said):
    job = Job(settings(**changes))
    if said is None:
        assert render(target, job)
        return
    with pytest.raises(UsageError) as caught:
        render(target, job)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_target_is_said_in_one_line():
    assert all(t.help and "\n" not in t.help for t in TARGETS)
