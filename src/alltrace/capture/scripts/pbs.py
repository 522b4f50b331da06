"""A batch script for PBS, such as on Polaris or Aurora."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alltrace.capture.scripts import mpi
from alltrace.capture.scripts.host import NAME, rendezvous, script, torchrun
from alltrace.capture.scripts.parts import title
from alltrace.capture.scripts.shell import continued, one_line
from alltrace.capture.scripts.workloads import uses_torchrun
from alltrace.trace.errors import UsageError

if TYPE_CHECKING:
    from alltrace.capture.scripts.settings import Job

_START = (
    "job=${PBS_JOBID:?start it with qsub}",
    "job=${job%%.*}",
    'cd "${PBS_O_WORKDIR:-.}"',
    "",
    "# PBS_NODEFILE has a line for a node, or one for each of its chunks",
    'mapfile -t hosts < <(sort -u "$PBS_NODEFILE")',
    "",
)


def render(job: Job, target: str) -> str:
    """The script for `pbs`."""
    launcher = job.text("mpi.launcher")
    job = job.having(mpi__launcher="pals") if launcher == "auto" else job

    def launch(ranks: str) -> list[str]:
        if not uses_torchrun(job):
            return continued([*mpi.launcher(job, '"$((${#hosts[@]} * %d))"'), ranks])
        once = mpi.launcher(job, '"${#hosts[@]}"', per_node=1)
        return torchrun(job, rendezvous(job, '"${#hosts[@]}"', NAME, "${hosts[0]}"), ranks, once)

    return script(job, [title(job, target), "Start: qsub FILE"], _directives(job), _START, launch)


def _directives(job: Job) -> list[str]:
    minutes = job.number("job.minutes")
    select = [f"select={job.number('job.nodes')}", *filter(None, [job.text("pbs.select")])]
    found = [
        f"-N {job.text('job.name')[:15]}",
        f"-l {':'.join(select)}",
        f"-l place={job.text('pbs.place')}",
        f"-l walltime={minutes // 60:02d}:{minutes % 60:02d}:00",
        *([f"-l filesystems={job.text('pbs.filesystems')}"] if job.text("pbs.filesystems") else []),
        *([f"-q {job.text('pbs.queue')}"] if job.text("pbs.queue") else []),
        *([f"-A {job.text('pbs.account')}"] if job.text("pbs.account") else []),
        "-j oe",
    ]
    for text in job.words("pbs.arguments"):
        if not text.startswith("-") or text != one_line(text):
            raise UsageError(f"pbs.arguments has {text!r}; expected an option of qsub on one line, such as -l debug=true")
        found.append(text)
    return [f"#PBS {text}" for text in found]
