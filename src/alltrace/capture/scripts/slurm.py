"""A batch script for Slurm, with or without containers of pyxis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alltrace.capture.scripts.host import rendezvous, script, torchrun
from alltrace.capture.scripts.parts import title
from alltrace.capture.scripts.shell import continued, one_line, word
from alltrace.capture.scripts.workloads import uses_torchrun
from alltrace.trace.errors import UsageError

if TYPE_CHECKING:
    from alltrace.capture.scripts.settings import Job

_HOSTS = (
    "# The nodes of torchrun meet on the first one",
    'mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")',
    "",
)


def render(job: Job, target: str) -> str:
    """The script for `slurm` or `slurm-pyxis`.

    Raises:
        UsageError: There is no image for pyxis.
    """
    by_torchrun = uses_torchrun(job)
    container = []
    if target == "slurm-pyxis":
        container = _container(job)
        # the TMPDIR of the node is not in the container
        job = job if job.text("profiler.tmp") else job.having(profiler__tmp="/tmp")  # noqa: S108
    start = ["job=${SLURM_JOB_ID:?start it with sbatch}", 'cd "${SLURM_SUBMIT_DIR:-.}"', ""]
    start += [*(_HOSTS if by_torchrun else ())]

    def launch(ranks: str) -> list[str]:
        given = job.words("slurm.srun")
        aborts = [] if any(g.startswith(("-K", "--kill-on-bad-exit")) for g in given) else ["--kill-on-bad-exit=1"]
        srun = ["srun", *aborts, *map(word, given), *container]
        if not by_torchrun:
            mpi = job.text("slurm.mpi") or ("pmix" if job.text("workload.kind") == "nccl-tests" else "")
            return continued([*srun, *([f"--mpi={mpi}"] if mpi else []), ranks])
        return torchrun(job, rendezvous(job, '"$SLURM_NNODES"', '"$SLURM_JOB_ID"', "${hosts[0]}"), ranks, srun)

    about = [title(job, target), "Start: sbatch FILE"]
    return script(job, about, _directives(job, 1 if by_torchrun else job.number("job.ranks_per_node")), start, launch)


def _directives(job: Job, tasks: int) -> list[str]:
    minutes = job.number("job.minutes")
    cpus = job.number("slurm.cpus_per_rank") * job.number("job.ranks_per_node") // tasks
    found = [
        f"--job-name={job.text('job.name')}",
        f"--nodes={job.number('job.nodes')}",
        f"--ntasks-per-node={tasks}",
        f"--gpus-per-node={job.number('slurm.gpus') or job.number('job.ranks_per_node')}",
        *([f"--cpus-per-task={cpus}"] if cpus else []),
        f"--time={minutes // 60:02d}:{minutes % 60:02d}:00",
        "--output=%x-%j.out",
        *(["--exclusive"] if job.flag("slurm.exclusive") else []),
        *(f"--{n}={job.text(f'slurm.{n}')}" for n in ("partition", "account", "qos") if job.text(f"slurm.{n}")),
    ]
    for text in job.words("slurm.arguments"):
        if not text.startswith("-") or text != one_line(text):
            raise UsageError(f"slurm.arguments has {text!r}; expected an option of sbatch on one line, such as --constraint=h100")
        found.append(text)
    lines = [f"#SBATCH {text}" for text in found]
    if not any("--signal" in t for t in job.words("slurm.arguments")):
        lines += [
            "# the ranks are told to end before the time limit, so that their reports are written",
            "#SBATCH --signal=TERM@120",
        ]
    return lines


def _container(job: Job) -> list[str]:
    image = job.text("slurm.container_image")
    if not image:
        raise UsageError("slurm-pyxis needs slurm.container_image, such as nvcr.io#nvidia/pytorch:25.06-py3 or /shared/image.sqsh")
    mounts = job.words("slurm.container_mounts")
    odd = next((m for m in mounts if ":" not in m or "," in m or m != one_line(m)), None)
    if odd is not None:
        raise UsageError(f"slurm.container_mounts has {odd!r}; expected SOURCE:TARGET without a comma")
    tool = job.text("profiler.path")
    if tool.startswith("/"):
        folder = tool.rsplit("/", 1)[0] if tool.endswith(("/nsys", "/ncu")) else tool
        mounts.append(f"{folder}:{folder}")
    further = "".join(f",{word(m)}" for m in mounts)
    # the working folder and the reports are seen under the same names inside
    return [
        f"--container-image={word(image)}",
        f'--container-mounts="$output":"$output","$PWD":"$PWD"{further}',
        '--container-workdir="$PWD"',
    ]
