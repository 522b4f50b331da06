"""A script around torchrun, started on every node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alltrace.capture.scripts.host import script, torchrun
from alltrace.capture.scripts.parts import title
from alltrace.trace.errors import UsageError

if TYPE_CHECKING:
    from alltrace.capture.scripts.settings import Job


def render(job: Job, target: str) -> str:
    """The script for `torchrun`.

    Raises:
        UsageError: The workload is nccl-tests, which torchrun does not start.
    """
    if job.text("workload.kind") == "nccl-tests" or job.text("workload.launch") == "ranks":
        raise UsageError(f"the target {target} starts ranks with torchrun; for nccl-tests and MPI programs use mpi, slurm or pbs")
    nodes, port = job.number("job.nodes"), job.number("job.port")
    if nodes == 1:
        about, meeting = ["Start: bash FILE"], ["--standalone"]
        start = ["job=${JOB_ID:-$(date +%Y%m%d-%H%M%S)}", ""]
    else:
        about = [
            f"Start it on every node, with the same JOB_ID: JOB_ID=7 NODE_RANK=0 MASTER_ADDR=first-host bash FILE (to {nodes - 1})"
        ]
        start = [
            "job=${JOB_ID:?the same on all nodes, such as 7}",
            ': "${NODE_RANK:?the number of this node, from 0 up}" "${MASTER_ADDR:?the host of node 0}"',
            "",
        ]
        meeting = [f"--nnodes={nodes}", '--node-rank="$NODE_RANK"', '--master-addr="$MASTER_ADDR"', f"--master-port={port}"]
    return script(job, [title(job, target), *about], [], start, lambda ranks: torchrun(job, meeting, ranks))
