"""Scripts that run on the nodes themselves, by Slurm, PBS, mpirun or torchrun: the commands that start the ranks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import PurePosixPath

from alltrace.capture.scripts import parts
from alltrace.capture.scripts.rendering import Expression, fill, one_line, word
from alltrace.capture.scripts.settings import Job
from alltrace.capture.scripts.workloads import programs, uses_torchrun
from alltrace.trace.errors import UsageError

_JOB = Expression('"$job"')
_RANKS = '"${capture[@]}" "${program[@]}"'


def slurm(job: Job, target: str) -> str:
    """A batch script for Slurm, with or without containers of pyxis."""
    container = []
    if target == "slurm-pyxis":
        container = _container(job)
        # the TMPDIR of the node is not in the container
        job = job if job.text("profiler.tmp") else job.having(profiler__tmp="/tmp")  # noqa: S108
    _check_directives(job, "slurm", "sbatch", "--constraint=h100")
    if job.number("job.minutes") < 2 and not any("--signal" in text for text in job.words("slurm.arguments")):
        raise UsageError(
            "job.minutes is 1, and Slurm may send the signal that ends the ranks in time 60 s early; expected 2 or"
            " more, or a --signal in slurm.arguments"
        )
    options = job.words("slurm.srun")
    aborts = [] if any(o.startswith(("-K", "--kill-on-bad-exit")) for o in options) else ["--kill-on-bad-exit=1"]
    srun = ["srun", *aborts, *map(word, options), *container]
    if uses_torchrun(job):
        meeting = _rendezvous(job, '"$SLURM_NNODES"', '"$SLURM_JOB_ID"', "${hosts[0]}")
        return _script(job, target, "slurm", _torchrun(job, meeting, srun), tasks=1)
    mpi = job.text("slurm.mpi") or ("pmix" if job.text("workload.kind") == "nccl-tests" else "")
    launch = [*srun, *([f"--mpi={mpi}"] if mpi else []), _RANKS]
    return _script(job, target, "slurm", launch, tasks=job.number("job.ranks_per_node"))


def pbs(job: Job, target: str) -> str:
    job = job.having(mpi__launcher="pals") if job.text("mpi.launcher") == "auto" else job
    _check_directives(job, "pbs", "qsub", "-l debug=true")
    if uses_torchrun(job):
        once = _mpirun(job, '"${#hosts[@]}"', 1)
        launch = _torchrun(job, _rendezvous(job, '"${#hosts[@]}"', _JOB, "${hosts[0]}"), once)
    else:
        each = job.number("job.ranks_per_node")
        launch = [*_mpirun(job, f'"$((${{#hosts[@]}} * {each}))"', each), _RANKS]
    return _script(job, target, "pbs", launch)


def mpi(job: Job, target: str) -> str:
    if uses_torchrun(job):
        nodes = str(job.number("job.nodes"))
        meeting = _rendezvous(job, nodes, _JOB, "${MASTER_ADDR:-$(hostname)}")
        return _script(job, target, "mpi", _torchrun(job, meeting, _mpirun(job, nodes, 1)))
    return _script(job, target, "mpi", [*_mpirun(job, str(job.world_size), job.number("job.ranks_per_node")), _RANKS])


def torchrun(job: Job, target: str) -> str:
    if job.text("workload.kind") == "nccl-tests" or job.text("workload.launch") == "ranks":
        raise UsageError(
            f"the target {target} starts ranks with torchrun; for nccl-tests and MPI programs use mpi, slurm or pbs"
        )
    nodes, port = job.number("job.nodes"), job.number("job.port")
    meeting = [f"--nnodes={nodes}", '--node-rank="$NODE_RANK"', '--master-addr="$MASTER_ADDR"', f"--master-port={port}"]
    return _script(job, target, "torchrun", _torchrun(job, ["--standalone"] if nodes == 1 else meeting))


def _script(job: Job, target: str, template: str, launch: Sequence[str], **further: int) -> str:
    wrapper_text = parts.wrapper_text(job) if job.text("profiler.wrapper") == "shell" else ""
    runs = []
    for program in programs(job):
        name = Expression(f'"$job-{program.label}"') if program.label else _JOB
        capture = ["sh", Expression('"$reports/capture.sh"')] if wrapper_text else parts.capture_words(job, name)
        variables = parts.wrapper_variables(job, name)
        runs.append({"label": program.label, "words": program.words, "capture": capture, "variables": variables})
    values = {
        "title": parts.title(job, target),
        "torchrun": uses_torchrun(job),
        "variables": parts.variables(job, "$reports"),
        "wrapper_text": wrapper_text,
        "programs": runs,
        "launch": launch,
        "copy": parts.copy_command(job, "$job"),
    }
    return fill(f"{template}.sh", {**job.sections(), **values, **further})


def _torchrun(job: Job, meeting: Sequence[str], before: Sequence[str] = ()) -> list[str]:
    """`torchrun` around each rank's wrapper: one report a rank, where nsys around torchrun would give one a node."""
    processes = f"--nproc-per-node={job.number('job.ranks_per_node')}"
    return [*before, "torchrun", *meeting, processes, "--no-python", _RANKS]


def _rendezvous(job: Job, nodes: str, name: str, host: str) -> list[str]:
    """How the nodes of torchrun find each other if each runs a command; of shell, `name` in quotes, `host` without."""
    endpoint = f'--rdzv-endpoint="{host}:{job.number("job.port")}"'
    return [f"--nnodes={nodes}", f"--rdzv-id={name}", "--rdzv-backend=c10d", endpoint]


def _mpirun(job: Job, count: str, per_node: int) -> list[str]:
    """`mpirun` or `mpiexec` with its options, as pieces of a command; `count` is shell."""
    kind = job.text("mpi.launcher")
    hosts = word(job.text("mpi.hostfile")) if job.text("mpi.hostfile") else ""
    further = list(map(word, job.words("mpi.arguments")))
    if kind in ("auto", "openmpi"):
        # Open MPI passes only the listed variables to other nodes
        names = ["PATH", "LD_LIBRARY_PATH", *parts.variables(job, "$reports"), *parts.wrapper_variables(job, "")]
        launcher = ["mpirun", f"-np {count}", f"--map-by ppr:{per_node}:node"]
        return [*launcher, *([f"--hostfile {hosts}"] if hosts else []), *(f"-x {n}" for n in names), *further]
    if kind == "pals":
        return ["mpiexec", f"-n {count}", f"--ppn {per_node}", *([f"--hostfile {hosts}"] if hosts else []), *further]
    return ["mpiexec", f"-n {count}", f"-ppn {per_node}", *([f"-f {hosts}"] if hosts else []), *further]


def _installation(tool: str) -> str:
    """The folder with all of a profiler: nsys needs its importer, in the folder next to its own, to make a report."""
    path = PurePosixPath(os.path.realpath(tool))  # here, /usr/local/bin/nsys is a link
    folder = path.parent if path.name in ("nsys", "ncu") else path
    if folder.name == "bin" or folder.name.startswith(("target-", "Target-")):
        folder = folder.parent
    if len(folder.parts) < 3 or str(folder) in ("/usr/local", "/usr/bin", "/usr/lib"):
        raise UsageError(
            f"profiler.path is {tool}, which does not name an installation; give its own folder, such as "
            "/opt/nvidia/nsight-systems/2025.3.1"
        )
    return str(folder)


def _check_directives(job: Job, section: str, submitter: str, example: str) -> None:
    for text in job.words(f"{section}.arguments"):
        if not text.startswith("-") or text != one_line(text):
            raise UsageError(
                f"{section}.arguments has {text!r}; expected an option of {submitter} on one line, such as {example}"
            )


def _container(job: Job) -> list[str]:
    image = job.text("slurm.container_image")
    if not image:
        raise UsageError(
            "slurm-pyxis needs slurm.container_image, such as nvcr.io#nvidia/pytorch:25.06-py3 or /shared/image.sqsh"
        )
    mounts = job.words("slurm.container_mounts")
    odd = next((m for m in mounts if ":" not in m or "," in m or m != one_line(m)), None)
    if odd is not None:
        raise UsageError(f"slurm.container_mounts has {odd!r}; expected SOURCE:TARGET without a comma")
    tool = job.text("profiler.path")
    if tool.startswith("/"):
        folder = _installation(tool)
        mounts.append(f"{folder}:{folder}")
    further = "".join(f",{word(m)}" for m in mounts)
    # the working folder and the reports are seen under the same names inside
    return [
        f"--container-image={word(image)}",
        f'--container-mounts="$output":"$output","$PWD":"$PWD"{further}',
        '--container-workdir="$PWD"',
    ]
