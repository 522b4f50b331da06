import pytest
from tests.together import together

from alltrace.capture.identity import find_identity
from alltrace.capture.launchers import slurm_local_size

BATCH = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "1", "SLURM_NODEID": "0", "SLURM_JOB_ID": "77"}
TORCHRUN = {
    "RANK": "5",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "8",
    "LOCAL_WORLD_SIZE": "4",
    "GROUP_RANK": "1",
    "TORCHELASTIC_RUN_ID": "none",
}
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    "OMPI_COMM_WORLD_NODE_RANK": "1",
    "PMIX_RANK": "5",
    "PMIX_NAMESPACE": "1933639681",
}
HYDRA = {"PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"}
PALS = {
    "PALS_RANKID": "5", "PALS_LOCAL_RANKID": "1", "PALS_NODEID": "1", "PALS_APID": "ab-12", "PMI_RANK": "5",
    "PMI_SIZE": "8", "PMI_LOCAL_RANK": "1", "PMI_LOCAL_SIZE": "4", "PBS_JOBID": "12.polaris-pbs",
}  # fmt: skip
JSM = {
    "JSM_NAMESPACE_RANK": "5",
    "JSM_NAMESPACE_LOCAL_RANK": "1",
    "JSM_NAMESPACE_SIZE": "8",
    "JSM_NAMESPACE_LOCAL_SIZE": "4",
    "LSB_JOBID": "9",
}
FLUX = {"FLUX_TASK_RANK": "5", "FLUX_TASK_LOCAL_ID": "1", "FLUX_JOB_SIZE": "8", "FLUX_JOB_ID": "f4x"}
SRUN = {
    "SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NTASKS": "99", "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2)", "SLURM_NODEID": "1", "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0",
    "SLURMD_NODENAME": "n1",
}  # fmt: skip


@together(
    ("launcher", "variables", "local_size", "node", "job"),
    [
        ("torchrun", TORCHRUN, 4, 1, None),
        ("Open MPI", OPENMPI, 4, None, "1933639681"),
        ("Hydra", HYDRA, 4, None, None),
        ("PALS", PALS, 4, 1, "12.polaris-pbs"),
        ("JSM", JSM, 4, None, "9"),
        ("Flux", FLUX, None, None, "f4x"),
        ("Slurm", SRUN, 4, 1, "77"),
    ],
)
def test_each_launcher_tells_the_same_place(launcher, variables, local_size, node, job):
    who = find_identity(variables, "host.domain")
    assert (who.launcher, who.rank, who.local_rank, who.world_size) == (launcher, 5, 1, 8)
    assert (who.local_size, who.node, who.job) == (local_size, node, job)
    assert who.host == ("n1" if launcher == "Slurm" else "host")
    assert who.notes == ()


@pytest.mark.parametrize(("launcher", "variables"), [("torchrun", TORCHRUN), ("Open MPI", OPENMPI), ("Hydra", HYDRA)])
def test_a_batch_step_of_slurm_is_not_believed_and_that_is_said(launcher, variables):
    who = find_identity({**BATCH, **variables}, "h")
    assert (who.launcher, who.rank, who.world_size, who.job) == (launcher, 5, 8, "77")
    assert who.notes == (f"{launcher} says rank 5 of 8 and Slurm says rank 0 of 1; {launcher} is used",)


def test_which_source_of_the_identity_counts():
    who = find_identity({**OPENMPI, "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", **TORCHRUN}, "h")
    assert who.rank == 5
    assert who.notes[0] == "torchrun says rank 5 of 8 and Open MPI says rank 1 of 2; torchrun is used"
    pod = {"RANK": "1", "WORLD_SIZE": "2", "PET_NODE_RANK": "1"}
    assert find_identity(pod, "h").launcher == "RANK and WORLD_SIZE"
    assert find_identity({**pod, **OPENMPI}, "h").rank == 5
    who = find_identity({"PATH": "/bin", "RANK": "3"}, "h")
    assert (who.launcher, who.rank, who.local_rank, who.world_size) == (None, 0, 0, 1)
    assert "no launcher variables" in who.notes[0]
    assert find_identity({"SLURM_PROCID": "x", "PMI_RANK": "-1", "FLUX_TASK_RANK": "2"}, "h").launcher == "Flux"
    impossible = find_identity({"PMI_RANK": "9", "PMI_SIZE": "4"}, "h")
    assert impossible.notes == ("Hydra says rank 9 in a world of 4, which is impossible; the rank is used",)
    assert find_identity({"TORCHELASTIC_RUN_ID": "../a b"}, "h").job == "a-b"
    assert find_identity({**SRUN, "SLURM_STEP_ID": "2", "SLURM_RESTART_COUNT": "1"}, "h").job == "77-step2-restart1"
    assert (
        find_identity({**TORCHRUN, "TORCHELASTIC_RUN_ID": "r", "TORCHELASTIC_RESTART_COUNT": "2"}, "h").job
        == "r-restart2"
    )


@together(("node", "size"), [(0, 2), (1, 2), (2, 1), (3, None), (None, None)])
def test_tasks_per_node_of_slurm(node, size):
    assert slurm_local_size({"SLURM_STEP_TASKS_PER_NODE": "2(x2),1"}, node) == size
    assert slurm_local_size({"SLURM_STEP_TASKS_PER_NODE": "2(y2)"}, 0) is None
