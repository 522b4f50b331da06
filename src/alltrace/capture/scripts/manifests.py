"""Manifests of Kubernetes: MPIJob, PyTorchJob, JobSet and TrainJob."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alltrace.capture.scripts import pods
from alltrace.capture.scripts.parts import nsys_switches
from alltrace.capture.scripts.shell import word
from alltrace.capture.scripts.workloads import command_pattern, uses_torchrun
from alltrace.capture.scripts.yaml import documents
from alltrace.trace.errors import UsageError

if TYPE_CHECKING:
    from alltrace.capture.scripts.settings import Job

_ROOT_ON_OPENMPI = ("--allow-run-as-root",)


def mpijob(job: Job, target: str) -> str:
    """An MPIJob (kubeflow.org/v2beta1): a launcher with mpirun, and workers with the GPUs.

    Raises:
        UsageError: A setting is missing, or does not go with an MPIJob.
    """
    pods.check(job, uploaded_by_pods=False)
    kind = {"auto": "OpenMPI", "openmpi": "OpenMPI", "mpich": "MPICH", "intel": "Intel"}.get(job.text("mpi.launcher"))
    if kind is None:
        raise UsageError("mpi.launcher is pals, which an MPIJob does not support; expected openmpi, mpich or intel")
    each, name = job.number("job.ranks_per_node"), job.text("job.name")
    torch = uses_torchrun(job)
    processes, per_node = (job.number("job.nodes"), 1) if torch else (job.world_size, each)

    def launch(ranks: str) -> list[str]:
        further = list(map(word, job.words("mpi.arguments")))
        if kind == "OpenMPI":
            names = ["PATH", "LD_LIBRARY_PATH", *(v["name"] for v in pods.container(job, "launcher", None)["env"])]
            found = ["mpirun", *_ROOT_ON_OPENMPI, f"-np {processes}", f"--map-by ppr:{per_node}:node", *(f"-x {n}" for n in names)]
        else:
            found = ["mpiexec", f"-n {processes}", f"-ppn {per_node}"]
        meeting = []
        if torch:
            host = f"{name}-worker-0.{name}:{job.number('job.port')}"
            meeting = ["torchrun", f"--nnodes={processes}", f"--rdzv-id={name}", "--rdzv-backend=c10d", f"--rdzv-endpoint={host}"]
            meeting += [f"--nproc-per-node={each}", "--no-python"]
        return [*found, *further, *meeting, ranks]

    launcher = pods.container(job, "launcher", pods.shell(job, launch), gpus=False)
    worker = pods.container(job, "worker", ["/usr/sbin/sshd", "-De"])
    spec = {
        "slotsPerWorker": per_node,
        "mpiImplementation": kind,
        "launcherCreationPolicy": "WaitForWorkersReady",
        "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": 0},
        "mpiReplicaSpecs": {
            "Launcher": pods.replicas(1, pods.pod(job, [launcher], restart=None)),
            "Worker": pods.replicas(job.number("job.nodes"), pods.pod(job, [worker], restart=None)),
        },
    }
    about = pods.about(job, target, "the MPI Operator 0.5 or later; the image has an SSH server")
    return documents(about, [*pods.extras(job), pods.manifest(job, "kubeflow.org/v2beta1", "MPIJob", spec)])


def pytorchjob(job: Job, target: str) -> str:
    """A PyTorchJob (kubeflow.org/v1) with torchrun in every pod.

    Raises:
        UsageError: A setting is missing, or torchrun does not start the workload.
    """
    _needs_torchrun(job, target)
    meeting = ['--node-rank="${PET_NODE_RANK:-$RANK}"', '--master-addr="$MASTER_ADDR"', '--master-port="$MASTER_PORT"']
    node = pods.container(job, "pytorch", pods.shell(job, lambda ranks: _torchrun(job, meeting, ranks)))
    template = pods.pod(job, [node], restart=None)
    workers = job.number("job.nodes") - 1
    spec = {
        "nprocPerNode": str(job.number("job.ranks_per_node")),
        "runPolicy": {"cleanPodPolicy": "None", "backoffLimit": 0},
        "pytorchReplicaSpecs": {
            "Master": pods.replicas(1, template),
            **({"Worker": pods.replicas(workers, template)} if workers else {}),
        },
    }
    about = pods.about(job, target, "the Training Operator 1.7 or later")
    return documents(about, [*pods.extras(job), pods.manifest(job, "kubeflow.org/v1", "PyTorchJob", spec)])


def jobset(job: Job, target: str) -> str:
    """A JobSet (jobset.x-k8s.io/v1alpha2) with torchrun in every pod of one indexed job.

    Raises:
        UsageError: A setting is missing, or torchrun does not start the workload.
    """
    _needs_torchrun(job, target)
    name, nodes = job.text("job.name"), job.number("job.nodes")
    meeting = [
        '--node-rank="$JOB_COMPLETION_INDEX"',
        f"--master-addr={name}-node-0-0.{name}",
        f"--master-port={job.number('job.port')}",
    ]
    node = pods.container(job, "node", pods.shell(job, lambda ranks: _torchrun(job, meeting, ranks)))
    indexed = {"parallelism": nodes, "completions": nodes, "completionMode": "Indexed", "backoffLimit": 0}
    template = {"spec": {**indexed, "template": pods.pod(job, [node])}}
    spec = {"failurePolicy": {"maxRestarts": 0}, "replicatedJobs": [{"name": "node", "replicas": 1, "template": template}]}
    about = pods.about(job, target, "JobSet 0.5 or later")
    return documents(about, [*pods.extras(job), pods.manifest(job, "jobset.x-k8s.io/v1alpha2", "JobSet", spec)])


def trainjob(job: Job, target: str) -> str:
    """A TrainJob (trainer.kubeflow.org/v1alpha1), with its own TrainingRuntime that has the pod's labels, rights and volumes.

    What overrides a pod in a TrainJob has another name in every release of it; the runtime has been the same since the first.

    Raises:
        UsageError: A setting is missing, or torchrun does not start the workload.
    """
    _needs_torchrun(job, target)
    name, nodes = job.text("job.name"), job.number("job.nodes")
    # torchrun takes what is missing from PET_NNODES and its like, which the operator sets
    command = pods.shell(job, lambda ranks: ["torchrun", f"--rdzv-id={name}", "--no-python", ranks])
    node = pods.container(job, "node", None)
    runtime_name = f"{name}-runtime"
    runtime = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": pods.metadata(job, runtime_name, **{"trainer.kubeflow.org/framework": "torch"}),
        "spec": {
            "mlPolicy": {"numNodes": nodes, "torch": {}},
            "template": {
                "spec": {
                    "replicatedJobs": [
                        {
                            "name": "node",
                            "template": {
                                "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                                "spec": {"backoffLimit": 0, "template": pods.pod(job, [node])},
                            },
                        }
                    ]
                }
            },
        },
    }
    trainer = {
        "image": node["image"],
        "command": command,
        "numNodes": nodes,
        "numProcPerNode": job.number("job.ranks_per_node"),
        "resourcesPerNode": node["resources"],
    }
    reference = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": runtime_name}
    manifest = pods.manifest(job, "trainer.kubeflow.org/v1alpha1", "TrainJob", {"runtimeRef": reference, "trainer": trainer})
    return documents(pods.about(job, target, "Kubeflow Trainer 2.0 or later"), [*pods.extras(job), runtime, manifest])


def _needs_torchrun(job: Job, target: str) -> None:
    pods.check(job, uploaded_by_pods=True)
    if job.text("workload.kind") == "nccl-tests" or job.text("workload.launch") == "ranks":
        raise UsageError(f"the target {target} starts ranks with torchrun; for nccl-tests and MPI programs use k8s-mpijob")


def _torchrun(job: Job, meeting: list[str], ranks: str) -> list[str]:
    nodes, each = job.number("job.nodes"), job.number("job.ranks_per_node")
    return ["torchrun", f"--nnodes={nodes}", f"--nproc-per-node={each}", *meeting, "--no-python", ranks]


def injector(job: Job, target: str) -> str:
    """The Helm values of devtools-sidecar-injector, with how it is installed, used and removed.

    Raises:
        UsageError: The request needs more than nsys alone.
    """
    arguments = _nsys_arguments(job, target)
    version, namespace = job.text("injector.chart"), job.text("kubernetes.namespace")
    mount = job.text("kubernetes.mount").rstrip("/")
    # the injector's own fields, which differ from those of nsys
    output = (
        f"-o {mount}/{job.text('job.name')}_%{{POD_FULLNAME}}_%{{CONTAINER_NAME}}_{{PROCESS_NAME}}_{{TIMESTAMP}}_{{UID}}.nsys-rep"
    )
    claim = job.text("kubernetes.claim")
    volume = {"persistentVolumeClaim": {"claimName": claim}} if claim else {"emptyDir": {"sizeLimit": job.text("injector.size")}}
    chart = f"https://helm.ngc.nvidia.com/nvidia/devtools/charts/devtools-sidecar-injector-{version}.tgz"
    webhooks = "sidecar-injector-webhook nvidia-devtools-sidecar-injector-webhook"
    about = [
        f"Values of devtools-sidecar-injector {version}, which starts nsys in pods; made by alltrace capture script {target}",
        f"Install: helm install -f FILE devtools-sidecar-injector {chart}",
        "Label:   the template of the pods, not the job: nvidia-devtools-sidecar-injector: enabled",
        '         (kubernetes.inject = "injector" makes `capture script k8s-...` do so)',
        f"Fetch:   kubectl -n {namespace} cp POD:{mount} reports    while the pod is there, or read the claim",
        "Remove:  helm uninstall devtools-sidecar-injector",
        f"         kubectl delete mutatingwebhookconfiguration --ignore-not-found {webhooks}",
        f"         kubectl -n {namespace} delete configmap --ignore-not-found nvidia-devtools-sidecar-injector \\",
        "           nvidia-devtools-sidecar-injector-custom",
    ]
    profile = {
        "devtoolArgs": f"profile {arguments} {output}",
        "injectionMatch": job.text("injector.match") or command_pattern(job),
        "volumes": [{"name": "alltrace-reports", **volume}],
        "volumeMounts": [{"name": "alltrace-reports", "mountPath": mount}],
    }
    return documents(about, [{"profile": profile}])


def operator(job: Job, target: str) -> str:
    """The Helm values of Nsight Operator, with how it is installed, used and removed.

    Raises:
        UsageError: The request needs more than nsys alone.
    """
    arguments = _nsys_arguments(job, target)
    version, place = job.text("operator.chart"), "-n nsight-operator"
    chart = f"https://helm.ngc.nvidia.com/nvidia/devtools/charts/nsight-operator-{version}.tgz"
    about = [
        f"Values of Nsight Operator {version}, which starts nsys in pods; made by alltrace capture script {target}",
        f"Install: helm install --wait -f FILE {place} --create-namespace nsight-operator {chart}",
        "Label:   the template of the pods, not the job: nvidia-nsight-profile: enabled",
        '         (kubernetes.inject = "operator" makes `capture script k8s-...` do so)',
        "Record:  by default a recording is started and stopped by nsight_operator.py, which comes with the operator",
        f"Remove:  helm uninstall nsight-operator {place}",
        f"         kubectl delete pvc -l app.kubernetes.io/name=nsight-operator {place}    this deletes reports it keeps",
    ]
    pattern = job.text("operator.match") or command_pattern(job)
    tool = {"nsightToolArgs": arguments, "injectionIncludePatterns": [pattern]}
    return documents(about, [{"nsight-injector": {"nsightToolConfig": tool}}])


def _nsys_arguments(job: Job, target: str) -> str:
    """The switches of nsys that an injector passes on, as one text.

    Raises:
        UsageError: The profiler is not nsys, or a switch cannot be put into that text.
    """
    if job.text("profiler.kind") != "nsys":
        raise UsageError(f"{target} profiles only with nsys; set profiler.kind to nsys")
    switches = nsys_switches(job)
    odd = next((s for s in switches if word(s) != s), None)
    if odd is not None:
        raise UsageError(f"{target} cannot pass on the switch {odd!r}, because it contains blanks or quotes; leave it out")
    return " ".join(switches)
