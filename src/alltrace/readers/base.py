"""What every reader hands over: who a report is about, and its rows as canonical tables.

A reader is opened on one report. It never decides what a rank is: it lists the processes it saw with all the evidence
there is, and every row it streams carries the process it belongs to, so that `alltrace.run` can split one report over
several ranks or join several reports into one.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple, Protocol

import pyarrow as pa

ENVIRONMENT_ALLOWED = frozenset(
    """
    RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK NODE_RANK TORCHELASTIC_RUN_ID
    OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_SIZE
    PMI_RANK PMI_LOCAL_RANK PMI_SIZE PMIX_RANK MPI_LOCALRANKID PALS_RANKID PALS_LOCAL_RANKID
    MV2_COMM_WORLD_RANK MV2_COMM_WORLD_LOCAL_RANK MV2_COMM_WORLD_SIZE
    JSM_NAMESPACE_RANK JSM_NAMESPACE_LOCAL_RANK JSM_NAMESPACE_SIZE FLUX_TASK_RANK FLUX_TASK_LOCAL_ID FLUX_JOB_SIZE
    SLURM_PROCID SLURM_LOCALID SLURM_NTASKS SLURM_NPROCS SLURM_NODEID SLURMD_NODENAME
    SLURM_JOB_ID SLURM_JOB_NAME SLURM_STEP_ID SLURM_STEP_NUM_TASKS PBS_JOBNAME LSB_JOBNAME GITHUB_SHA CI_COMMIT_SHA
    CUDA_VISIBLE_DEVICES CUDA_DEVICE_MAX_CONNECTIONS CUDA_LAUNCH_BLOCKING
    ALLTRACE_ROLE
    NCCL_ALGO NCCL_PROTO NCCL_NET NCCL_P2P_DISABLE NCCL_IB_DISABLE NCCL_VERSION
    """.split()
)
"""The only environment variables of a report that enter a run: ranks, devices, communication settings and names of
jobs, never a token."""

WORLD_SIZE = (
    "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "JSM_NAMESPACE_SIZE", "FLUX_JOB_SIZE",
    "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS",
)  # fmt: skip
"""Those in which launchers state how many ranks there are, the first that is set counts."""


class ReportWarning(NamedTuple):
    """What a user should know about a report, or of the rows of a rank."""

    text: str  # one sentence, with its `number` at the end if there is one
    # the canonical event tables with affected answers; answers from one of them have it as a note. Without any, it only
    # concerns the report, and `info` shows it
    tables: tuple[str, ...] = ()
    number: int | None = None  # how many rows, events or values it applies to; None if not relevant

    def __str__(self) -> str:
        """The sentence with its number."""
        return self.text if self.number is None else f"{self.text}: {self.number:,}"


class ReportProcess(NamedTuple):
    """One process that a report has events of."""

    process: int  # its row in the report's `processes`
    pid: int  # the process id, in the numbering of the host or container
    name: str = ""  # the program's name, or an empty string
    mpi_rank: int | None = None  # its rank in MPI_COMM_WORLD as the profiler recorded it, or None
    gpu: bool = False  # whether it did work on a GPU
    device_ordinal: int | None = None  # the lowest CUDA ordinal it used, or None
    rank_hint: int | None = None  # its rank in the job as the report itself states it otherwise than by MPI, or None
    rank_hint_source: str | None = None  # where the report states it, such as `distributedInfo`
    host: str | None = None  # its host, if a report covers several; None for that of the report
    # the report's own number for it, if finding the processes requires reading many rows, so that who opens the report
    # again can say what they are; None elsewhere
    source_id: int | None = None


class Report(NamedTuple):
    """The identity of one report."""

    path: str  # the report's path, as passed
    format: str  # the reader's name, such as `nsys-sqlite`
    profiler: str  # name and version of the profiler, such as `Nsight Systems 2025.1.1.110`, or its name alone
    schema_version: str | None = None  # version of the format, or None if the report has none
    host: str | None = None  # host name, or None if the report does not say
    # UTC, in ns since the epoch, at time 0 of the report, by the host's clock; None if unknown
    utc_ns: int | None = None
    # the host's monotonic clock at time 0 of the report; None if unknown. It relates the reports of one host exactly,
    # where their UTC stamps are off by milliseconds
    system_clock_ns: int | None = None
    start_ns: int | None = None  # when the capture started, in the report's own time; None if unknown
    stop_ns: int | None = None  # when it stopped
    last_ns: int | None = None  # when the last events that opening it showed began, in its own time; None if unknown
    processes: tuple[ReportProcess, ...] = ()  # the processes with events, with the evidence of their rank
    environment: Mapping[str, str] = {}  # the allow-listed variables of the profiled command
    environment_removed: int = 0  # how many other variables the report holds; none of them enters a run
    world_size: int | None = None  # the number of ranks of the job as far as the report knows it, or None
    tables: tuple[str, ...] = ()  # the canonical event tables that the report can fill
    warnings: tuple[ReportWarning, ...] = ()  # what a user should know about the report
    # whether it only adds data, such as memory, to a rank of other reports: the rank with its number
    companion: bool = False


class ReportReader(Protocol):
    """A report, opened."""

    report: Report

    def stream(self, tables: Collection[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows of the wanted canonical event tables as (table name, `pyarrow.RecordBatch`), table by table.

        A batch has the columns of the table's `arrow_schema`, in that order; a column that the report lacks is all
        null. Times are the report's own (ns since its 0). `process`, `thread` and `device` are rows of
        `dictionaries()`; every table that has no `process` column belongs to the host as a whole. Rows come in the
        order of the report. `depth` and `parent` of `ranges` and `kind` of `kernels` are left null: the import fills
        them.

        Args:
            tables: The tables wanted.
        """

    def dictionaries(self) -> dict[str, pa.Table]:
        """The dictionaries of what was streamed, as `pyarrow.Table` by canonical name, `names` among them.

        Complete once all wanted tables were streamed; `names` holds only strings that a streamed row or a dictionary
        refers to.
        """

    def warnings(self) -> tuple[ReportWarning, ...]:
        """Warnings found only by reading the rows, besides `report.warnings`; call it after all were streamed."""

    def rows_estimate(self, tables: Collection[str]) -> int:
        """About how many rows `stream` will give for `tables`; for progress."""

    def close(self) -> None:
        """Release the report."""


class HeldReader:
    """A reader with all rows in memory; see `ReportReader`."""

    def warnings(self) -> tuple[ReportWarning, ...]:
        """None; see `ReportReader.warnings`."""
        return ()

    def close(self) -> None:
        """Nothing is left open."""
