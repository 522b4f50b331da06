"""A script around mpirun or mpiexec of Open MPI, MPICH, Intel MPI or PALS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alltrace.capture.scripts import parts
from alltrace.capture.scripts.host import NAME, rendezvous, script, torchrun
from alltrace.capture.scripts.shell import continued, word
from alltrace.capture.scripts.workloads import uses_torchrun

if TYPE_CHECKING:
    from alltrace.capture.scripts.settings import Job

_ALWAYS = ("PATH", "LD_LIBRARY_PATH")


def render(job: Job, target: str) -> str:
    """The script for `mpi`."""
    start = ["# The folder's name; give another one where it was run before", "job=${JOB_ID:-$(date +%Y%m%d-%H%M%S)}", ""]
    about = [parts.title(job, target), "Start: bash FILE"]
    if uses_torchrun(job):
        about[1] += ", on one of the nodes"

    def launch(ranks: str) -> list[str]:
        if not uses_torchrun(job):
            return continued([*launcher(job, str(job.world_size)), ranks])
        nodes = job.number("job.nodes")
        meeting = rendezvous(job, nodes, NAME, "${MASTER_ADDR:-$(hostname)}")
        return torchrun(job, meeting, ranks, launcher(job, str(nodes), per_node=1))

    return script(job, about, [], start, launch)


def launcher(job: Job, count: str, per_node: int | None = None) -> list[str]:
    """`mpirun` or `mpiexec` with its options, as pieces of a command.

    Args:
        job: The settings.
        count: How many processes, as shell; `%d` is the number per node.
        per_node: How many a node; None for the job's.
    """
    kind = job.text("mpi.launcher")
    each = per_node or job.number("job.ranks_per_node")
    count = count % each if "%d" in count else count
    hosts = word(job.text("mpi.hostfile")) if job.text("mpi.hostfile") else ""
    further = list(map(word, job.words("mpi.arguments")))
    if kind in ("auto", "openmpi"):
        # Open MPI passes only the listed variables to other nodes
        names = [*_ALWAYS, *parts.variables(job, "$reports"), *parts.wrapper_variables(job, "")]
        found = ["mpirun", f"-np {count}", f"--map-by ppr:{each}:node"]
        return [*found, *([f"--hostfile {hosts}"] if hosts else []), *(f"-x {n}" for n in names), *further]
    if kind == "pals":
        return ["mpiexec", f"-n {count}", f"--ppn {each}", *([f"--hostfile {hosts}"] if hosts else []), *further]
    return ["mpiexec", f"-n {count}", f"-ppn {each}", *([f"-f {hosts}"] if hosts else []), *further]
