"""Manifests of Kubernetes, and the values of charts that start nsys in pods."""

from functools import partial

from alltrace.capture.scripts import parts
from alltrace.capture.scripts.rendering import fill, word
from alltrace.capture.scripts.settings import Job
from alltrace.capture.scripts.workloads import command_pattern, programs, uses_torchrun
from alltrace.trace.errors import UsageError

_MPI = {"auto": "OpenMPI", "openmpi": "OpenMPI", "mpich": "MPICH", "intel": "Intel"}


def mpijob(job: Job, target: str) -> str:
    """An MPIJob: a launcher with mpirun, and workers with the GPUs."""
    _check(job, uploaded_by_pods=False)
    implementation = _MPI.get(job.text("mpi.launcher"))
    if implementation is None:
        raise UsageError("mpi.launcher is pals, which an MPIJob does not support; expected openmpi, mpich or intel")
    each, nodes, name = job.number("job.ranks_per_node"), job.number("job.nodes"), job.text("job.name")
    torch = uses_torchrun(job)
    processes, per_node = (nodes, 1) if torch else (job.world_size, each)
    if implementation == "OpenMPI":
        launch = ["mpirun", "--allow-run-as-root", f"-np {processes}", f"--map-by ppr:{per_node}:node"]
        launch += [f"-x {n}" for n in ("PATH", "LD_LIBRARY_PATH", *_variables(job))]
    else:
        launch = ["mpiexec", f"-n {processes}", f"-ppn {per_node}"]
    launch += map(word, job.words("mpi.arguments"))
    if torch:
        host = f"{name}-worker-0.{name}:{job.number('job.port')}"
        launch += [
            "torchrun",
            f"--nnodes={nodes}",
            f"--rdzv-id={name}",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={host}",
        ]
        launch += [f"--nproc-per-node={each}", "--no-python"]
    return _manifest(job, target, launch, implementation=implementation, per_node=per_node)


def by_torchrun(job: Job, target: str) -> str:
    _check(job, uploaded_by_pods=True)
    if job.text("workload.kind") == "nccl-tests" or job.text("workload.launch") == "ranks":
        raise UsageError(
            f"the target {target} starts ranks with torchrun; for nccl-tests and MPI programs use k8s-mpijob"
        )
    name, port = job.text("job.name"), job.number("job.port")
    sizes = [f"--nnodes={job.number('job.nodes')}", f"--nproc-per-node={job.number('job.ranks_per_node')}"]
    arguments = {
        "k8s-pytorchjob": [
            *sizes,
            '--node-rank="${PET_NODE_RANK:-$RANK}"',
            '--master-addr="$MASTER_ADDR"',
            '--master-port="$MASTER_PORT"',
        ],
        "k8s-jobset": [
            *sizes,
            '--node-rank="$JOB_COMPLETION_INDEX"',
            f"--master-addr={name}-node-0-0.{name}",
            f"--master-port={port}",
        ],
        # torchrun takes what is missing from PET_NNODES and its like, which the operator sets
        "k8s-trainjob": [f"--rdzv-id={name}"],
    }
    return _manifest(job, target, ["torchrun", *arguments[target], "--no-python"])


def values(job: Job, target: str) -> str:
    """The Helm values of devtools-sidecar-injector or Nsight Operator, with how it is installed, used and removed."""
    if job.text("profiler.kind") != "nsys":
        raise UsageError(f"{target} profiles only with nsys; set profiler.kind to nsys")
    switches = parts.nsys_switches(job)
    odd = next((s for s in switches if word(s) != s), None)
    if odd is not None:
        raise UsageError(
            f"{target} cannot pass on the switch {odd!r}, because it contains blanks or quotes; leave it out"
        )
    return fill(
        f"{target}.yaml", {**job.sections(), "switches": " ".join(switches), "pattern": partial(command_pattern, job)}
    )


def _check(job: Job, *, uploaded_by_pods: bool) -> None:
    """Raise if there is no image, or the reports would be lost with the pods."""
    if not job.text("kubernetes.image"):
        raise UsageError(
            "kubernetes.image is not given; expected an image with nsys and alltrace, which `capture script docker`"
            " makes"
        )
    if not job.text("kubernetes.mount").startswith("/"):
        raise UsageError(f"kubernetes.mount is {job.text('kubernetes.mount')!r}; expected an absolute path")
    if job.text("kubernetes.inject") != "none":
        if job.text("profiler.kind") != "nsys":
            raise UsageError(
                "kubernetes.inject profiles only with nsys; set profiler.kind to nsys, or kubernetes.inject to none"
            )
        return
    if job.text("kubernetes.claim") or (uploaded_by_pods and job.text("upload.url")):
        return
    other = ", or upload.url" if uploaded_by_pods else ""
    raise UsageError(f"the reports would be lost with the pods; give kubernetes.claim, a PersistentVolumeClaim{other}")


def _manifest(job: Job, target: str, launch: list[str], **further: str | int) -> str:
    name, injected = job.text("job.name"), job.text("kubernetes.inject") != "none"
    common = {**job.sections(), "reports": _reports(job)}
    runs = []
    for program in programs(job):
        own_name = f"{name}-{program.label}" if program.label else name
        capture = [] if injected else parts.capture_words(job, own_name)
        if _by_shell(job):
            capture = ["sh", "/etc/alltrace/capture.sh"]
        variables = {"ALLTRACE_JOB": own_name} if _by_shell(job) and program.label else {}
        runs.append({"words": program.words, "capture": capture, "variables": variables})
    ranks = '"${program[@]}"' if injected else '"${capture[@]}" "${program[@]}"'
    copy = "" if injected else parts.copy_command(job, name)
    script = fill("pod.sh", {**common, "programs": runs, "launch": [*launch, ranks], "copy": copy})
    manifest = {
        "title": parts.title(job, target),
        "script": script,
        "variables": _variables(job),
        "capabilities": _capabilities(job),
        "wrapper_text": parts.wrapper_text(job) if _by_shell(job) else "",
    }
    return fill(f"{target}.yaml", {**common, **manifest, **further})


def _reports(job: Job) -> str:
    return f"{job.text('kubernetes.mount').rstrip('/')}/{job.text('job.name')}"


def _by_shell(job: Job) -> bool:
    return job.text("profiler.wrapper") == "shell" and job.text("kubernetes.inject") == "none"


def _variables(job: Job) -> dict[str, str]:
    variables = parts.variables(job, _reports(job))
    if job.text("kubernetes.inject") != "none" and job.text("profiler.steps"):
        return {**variables, "ALLTRACE_STEPS": job.text("profiler.steps")}
    if not _by_shell(job):
        return variables
    return {**variables, **parts.wrapper_variables(job, job.text("job.name")), "ALLTRACE_OUTPUT": _reports(job)}


def _capabilities(job: Job) -> list[str]:
    """The rights that what is recorded needs; CUDA and NVTX need none."""
    needed = job.text("profiler.kind") == "ncu" or any(job.flag(f"profiler.{n}") for n in ("sample", "gpu_metrics"))
    locked = ["IPC_LOCK"] if job.number("kubernetes.efa") else []
    return [*locked, *(["SYS_ADMIN"] if needed else [])]
