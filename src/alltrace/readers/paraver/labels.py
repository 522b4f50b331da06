"""Numbers and labels of events and states, and the .pcf file that defines them, as read.

Numbers of well-known types are from Extrae 5.1 or nsys2prv 0.5.8, the states and their colours from Extrae.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from alltrace.trace.errors import InputError, printable

IDLE, RUNNING, SYNCHRONISATION, GROUP, MEMORY = 0, 1, 5, 13, 17  # states, except those of MPI

MPI_RECEIVE, MPI_SEND, MPI_WAIT, MPI_ISEND, MPI_IRECEIVE, MPI_OTHER, MPI_SENDRECV = 3, 4, 8, 10, 11, 15, 16

STATES = {
    IDLE: ("Idle", (117, 195, 255)), RUNNING: ("Running", (0, 0, 255)), MPI_RECEIVE: ("Waiting a message", (255, 0, 0)),
    MPI_SEND: ("Blocking Send", (255, 0, 174)), SYNCHRONISATION: ("Synchronization", (179, 0, 0)),
    MPI_WAIT: ("Wait/WaitAll", (235, 0, 0)), MPI_ISEND: ("Immediate Send", (255, 0, 255)),
    MPI_IRECEIVE: ("Immediate Receive", (100, 100, 177)), GROUP: ("Group Communication", (255, 144, 26)),
    MPI_OTHER: ("Others", (192, 224, 0)), MPI_SENDRECV: ("Send Receive", (66, 66, 66)),
    MEMORY: ("Memory transfer", (255, 0, 96)),
}  # fmt: skip

TAG_KERNEL, TAG_COPY, TAG_WAIT, TAG_NCCL = 55001, 55002, 55003, 55004
"""Tags of communications that are not MPI messages."""

CALL, MEMORY_OP, MEMORY_BYTES, KERNEL = 63000000, 63000001, 63000002, 63000006
GRAPH_ID, GRAPH_EXEC = 63000100, 63000101
MPI_P2P, MPI_COLLECTIVE, MPI_REST, MPI_SENT, MPI_RECEIVED = 50000001, 50000002, 50000003, 50100001, 50100002
RANGE_STARTEND, MARK, CORRELATION = 9004, 9005, 9200
OPENACC_OTHER, OPENACC_DATA, OPENACC_LAUNCH, OPENMP = 66000000, 66000001, 66000002, 60000200
OSRT, UCX, SYSCALL = 66400000, 66600000, 66700000
NCCL_OP, NCCL_BYTES, NCCL_COUNT, NCCL_SEQUENCE = 63000210, 63000211, 63000212, 63000213
LENGTH = 63000220
"""On a begin: the length of an interval that overlaps another of its kind and thread, whose end is not known."""

GEOMETRY = {
    9101: ("grid_x", "Grid X"), 9102: ("grid_y", "Grid Y"), 9103: ("grid_z", "Grid Z"), 9104: ("block_x", "Block X"),
    9105: ("block_y", "Block Y"), 9106: ("block_z", "Block Z"),
    9107: ("static_shared_memory", "Static shared memory (bytes)"),
    9108: ("dynamic_shared_memory", "Dynamic shared memory (bytes)"), 9109: ("local_memory", "Local memory (bytes)"),
    9110: ("registers", "Registers per thread"),
}  # fmt: skip

COPIES = {
    "HtoD": (1, "CUDA memcpy Host-to-Device"), "DtoH": (2, "CUDA memcpy Device-to-Host"),
    "DtoD": (3, "CUDA memcpy Device-to-Device"), "HtoH": (4, "CUDA memcpy Host-to-Host"),
    "PtoP": (5, "CUDA memcpy Peer-to-Peer"), "memset": (6, "CUDA memset"), "HtoA": (7, "CUDA memcpy Host-to-Array"),
    "AtoH": (8, "CUDA memcpy Array-to-Host"), "AtoA": (9, "CUDA memcpy Array-to-Array"),
    "AtoD": (10, "CUDA memcpy Array-to-Device"), "DtoA": (11, "CUDA memcpy Device-to-Array"),
    "UvmHtoD": (12, "CUDA Unified Memory memcpy Host-to-Device"),
    "UvmDtoH": (13, "CUDA Unified Memory memcpy Device-to-Host"),
    "UvmDtoD": (14, "CUDA Unified Memory memcpy Device-to-Device"), "unknown": (15, "CUDA memcpy of unknown kind"),
}  # fmt: skip
"""Value and label of each kind of copy."""

MPI_VALUES = {
    "MPI_Send": 1, "MPI_Recv": 2, "MPI_Isend": 3, "MPI_Irecv": 4, "MPI_Wait": 5, "MPI_Waitall": 6, "MPI_Bcast": 7,
    "MPI_Barrier": 8, "MPI_Reduce": 9, "MPI_Allreduce": 10, "MPI_Alltoall": 11, "MPI_Alltoallv": 12, "MPI_Gather": 13,
    "MPI_Gatherv": 14, "MPI_Scatter": 15, "MPI_Scatterv": 16, "MPI_Allgather": 17, "MPI_Allgatherv": 18,
    "MPI_Comm_rank": 19, "MPI_Comm_size": 20, "MPI_Init": 31, "MPI_Finalize": 32,
}  # fmt: skip
"""Extrae's values of MPI calls; others are numbered from 200."""

OTHER_MPI = 200
LARGEST_LABELLED = 2**31 - 1
END = "End"
ABOUT = "# alltrace "
TASK = "# task {task}: rank {rank}, process {pid}"
"""Comment lines at the beginning of a .prv: that it is one of ours, and who the tasks are."""

OUTSIDE = "Outside"
DEFAULT_DOMAIN, NCCL_DOMAIN = "default", "NCCL"
PRECISION = 2


@dataclass(frozen=True)
class Profile:
    """The numbering of event types."""

    nccl: int  # NCCL kernels
    graph: int  # launches of whole graphs
    ranges: int  # the first NVTX domain; the others follow at `range_step`
    range_step: int  # from one domain to the next
    metrics: int  # the first GPU metric
    exact: (
        bool  # whether values of metrics keep decimals by `PRECISION`, which some tools other than Paraver do not know
    )
    nccl_ranges: int | None = None  # the NVTX domain of NCCL, which then is not among the others
    default_first: bool = False  # whether the default NVTX domain comes before those with a name, as an empty name does
    # labels of types instead of ours; ranges are then labelled with their domain too
    labels: Mapping[str, str] = field(default_factory=dict)

    def label(self, ours: str) -> str:
        """The label of a type in a trace of this profile."""
        if not self.labels or ours in self.labels:
            return self.labels.get(ours, ours)
        if domain := _DOMAIN.fullmatch(ours):
            return f"NVTX pushpop ranges {domain[1]} domain"
        return ours.removeprefix(GPU)

    def value_label(self, label: str, ours: str) -> str:
        """The label of a value of the type that we label so."""
        domain = _DOMAIN.fullmatch(label) if self.labels and label not in self.labels else None
        return f"{_prefix(domain[1])}{ours}" if domain and ours != OUTSIDE else ours


_DOMAIN = re.compile("NVTX (?!depth |start/end |mark$)(.*)", re.DOTALL)
GPU = "GPU "  # how labels of GPU metrics begin


def _prefix(domain: str) -> str:
    """How labels of the ranges of a domain begin in traces of nsys2prv."""
    return ":" if domain == DEFAULT_DOMAIN else f"{domain}:"


_THEIR_DOMAIN = re.compile("NVTX pushpop ranges (.*) domain", re.DOTALL)
_NSYS2PRV = {
    "CUDA memory transfer": "CUDA memcpy kernel",
    "CUDA memory transfer size (bytes)": "Memcopy size",
    "CUDA graph": "CUDA Graphs Exec name",
    "CUDA graph id": "CUDA Graphs ID",
    "CUDA graph executable id": "CUDA Graphs Exec ID",
    "NVTX NCCL": "NCCL regions",
    "NVTX start/end range": "NVTX startend ranges",
    "OpenACC data": "OpenACC Data Events",
    "OpenACC launch": "OpenACC Launch Events",
    "OpenACC other": "OpenACC Other Events",
    **{
        f"Kernel {what} {axis}": f"Kernel {short}{axis}"
        for what, short in (("Grid", "Grd"), ("Block", "Blk"))
        for axis in "XYZ"
    },
    "Kernel Static shared memory (bytes)": "Kernel Static Shared Memory",
    "Kernel Dynamic shared memory (bytes)": "Kernel Dynamic Shared Memory",
    "Kernel Local memory (bytes)": "Kernel Local memory reserved for kernel",
    "Kernel Registers per thread": "Kernel Registers/Thread",
    "Correlation id": "Correlation ID",
}
_OURS = {theirs: ours for ours, theirs in _NSYS2PRV.items()}
PROFILES = {
    "extrae": Profile(63000207, 63000208, 64000000, 1, 66800000, exact=True),
    "nsys2prv": Profile(
        63000007, 63000008, 9600, 100, 9400, exact=False, nccl_ranges=9500, default_first=True, labels=_NSYS2PRV
    ),
}


def our_label(label: str) -> str:
    """Our label of a type, from the label in any profile."""
    domain = _THEIR_DOMAIN.fullmatch(label)
    return f"NVTX {domain[1]}" if domain else _OURS.get(label, label)


def our_values(label: str, values: Mapping[int, str]) -> dict[int, str]:
    """Our labels of the values of a type that is labelled so in any profile."""
    domain = _THEIR_DOMAIN.fullmatch(label)
    return {v: name.removeprefix(_prefix(domain[1])) if domain else name for v, name in values.items()}


DEPTH, NIC_METRICS = 64100000, 66900000  # the first NVTX domain's depth, the first metric of network adapters


@dataclass
class EventType:
    """Types of events that share a table of values."""

    types: dict[int, str]  # label of each type
    values: dict[int, str] = field(default_factory=dict)  # label of each value; empty for plain numbers
    precision: int = 0  # decimals of the values


NO_NAME = "(no name)"


def label_of(name: str | None) -> str:
    """A name as a label: one line without control characters, never empty."""
    return " ".join(printable(name or "").split()) or NO_NAME


_SECTIONS = re.compile(r"[A-Z_]+")
_TYPE = re.compile(r"[0-9]{1,10}")
_PRECISION = re.compile(r"[0-9]{1,2}")


def read_pcf(path: Path) -> list[EventType]:
    """The event types of a .pcf file. Raises `InputError`: it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError.cannot_be("read", path, error, expected="a .pcf file") from error
    events: list[EventType] = []
    section = ""
    for line in text.splitlines():
        words = line.split(None, 2)
        if not words or line.startswith("#"):
            continue
        if words[0] == "PRECISION" and events and len(words) == 2 and _PRECISION.fullmatch(words[1]):
            events[-1].precision = int(words[1])
        elif _SECTIONS.fullmatch(words[0]):
            section = words[0]
            if section == "EVENT_TYPE":
                events.append(EventType({}))
        elif section == "EVENT_TYPE" and len(words) >= 2 and _TYPE.fullmatch(words[1]):
            events[-1].types[int(words[1])] = words[2].strip() if len(words) > 2 else ""
        elif section == "VALUES" and events and re.fullmatch(r"-?[0-9]{1,18}", words[0]):
            events[-1].values[int(words[0])] = line.split(None, 1)[1].strip() if len(words) > 1 else ""
    return events
