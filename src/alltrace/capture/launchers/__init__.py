"""The variables with which each launcher identifies a process, in order of precedence.

torchrun comes first and Slurm last: in a batch script that calls `mpirun` or `torchrun`, every process inherits
`SLURM_PROCID=0 SLURM_NTASKS=1` from the batch step, so believing Slurm first would make every process rank 0. Open MPI
comes before PMI and PMIx because it sets them too; JSM comes after Open MPI for the same reason, with equal values.
"""

from collections.abc import Mapping
from typing import NamedTuple

from alltrace.capture.variables import RAY_JOB, RAY_NUMBER, RAY_RESTART


class Launcher(NamedTuple):
    """The variables of one launcher; of each tuple the first that is set counts."""

    name: str  # its name in messages
    rank: tuple[str, ...]  # the rank in the world; the launcher counts as present if one is set
    local_rank: tuple[str, ...]  # the rank on the node
    world_size: tuple[str, ...]  # how many ranks there are
    local_size: tuple[str, ...] = ()  # how many ranks the node has
    node: tuple[str, ...] = ()  # the number of the node
    # one of these must be set too, or the launcher does not count as present; empty for none
    needs: tuple[str, ...] = ()


# fmt: off
LAUNCHERS: tuple[Launcher, ...] = (
    # first: what started Ray itself, often Slurm, has numbered nodes and not actors
    Launcher("Ray", ("RANK", RAY_NUMBER), ("LOCAL_RANK", "RAY_LOCAL_RANK"), ("WORLD_SIZE",),
        ("LOCAL_WORLD_SIZE", "RAY_LOCAL_WORLD_SIZE"), ("NODE_RANK",), needs=(RAY_JOB,)),
    # without LOCAL_RANK the RANK of a Kubeflow PyTorchJob is the pod's number, not the process's
    Launcher("torchrun", ("RANK",), ("LOCAL_RANK",), ("WORLD_SIZE",), ("LOCAL_WORLD_SIZE",),
        ("GROUP_RANK", "NODE_RANK"), needs=("TORCHELASTIC_RUN_ID", "LOCAL_RANK")),
    Launcher("Open MPI", ("OMPI_COMM_WORLD_RANK",), ("OMPI_COMM_WORLD_LOCAL_RANK",), ("OMPI_COMM_WORLD_SIZE",),
        ("OMPI_COMM_WORLD_LOCAL_SIZE",)),  # OMPI_COMM_WORLD_NODE_RANK is not a number of a node
    Launcher("MVAPICH2", ("MV2_COMM_WORLD_RANK",), ("MV2_COMM_WORLD_LOCAL_RANK",), ("MV2_COMM_WORLD_SIZE",),
        ("MV2_COMM_WORLD_LOCAL_SIZE",)),
    Launcher("PALS", ("PALS_RANKID",), ("PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"), ("PMI_SIZE",), ("PMI_LOCAL_SIZE",),
        ("PALS_NODEID",)),
    Launcher("Hydra", ("PMI_RANK",), ("MPI_LOCALRANKID", "PMI_LOCAL_RANK", "SLURM_LOCALID"), ("PMI_SIZE",),
        ("MPI_LOCALNRANKS", "PMI_LOCAL_SIZE")),
    Launcher("JSM", ("JSM_NAMESPACE_RANK",), ("JSM_NAMESPACE_LOCAL_RANK",), ("JSM_NAMESPACE_SIZE",),
        ("JSM_NAMESPACE_LOCAL_SIZE",)),
    Launcher("Flux", ("FLUX_TASK_RANK",), ("FLUX_TASK_LOCAL_ID",), ("FLUX_JOB_SIZE",)),
    Launcher("Slurm", ("SLURM_PROCID",), ("SLURM_LOCALID",), ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"),
        (), ("SLURM_NODEID",)),
    # last: it only has the rank, and `srun --mpi=pmix` has more
    Launcher("PMIx", ("PMIX_RANK",), (), ()),
    Launcher("RANK and WORLD_SIZE", ("RANK",), (), ("WORLD_SIZE",), (), ("PET_NODE_RANK", "JOB_COMPLETION_INDEX"),
        needs=("WORLD_SIZE",)),
)
# fmt: on

JOB_VARIABLES = (
    *(RAY_JOB, "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "PALS_APID"),
    *("TORCHELASTIC_RUN_ID", "JOBSET_NAME", "PMIX_NAMESPACE"),
)
"""What names a job, the scheduler's before the launcher's."""

RESTART_VARIABLES = ("SLURM_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT", RAY_RESTART)
"""How often the job, or its workers, were started again; part of a report's name if it is not 0."""


def slurm_local_size(environment: Mapping[str, str], node: int | None) -> int | None:
    """The tasks of a node, from a list such as `2(x2),1`: two nodes with two tasks each, then one with one."""
    text = environment.get("SLURM_STEP_TASKS_PER_NODE", "")
    if node is None:
        return None
    for part in text.split(","):
        tasks, _, times = part.strip().partition("(x")
        times = times.rstrip(")") or "1"
        if not (tasks.isdecimal() and times.isdecimal()):
            return None
        node -= int(times)
        if node < 0:
            return int(tasks)
    return None
