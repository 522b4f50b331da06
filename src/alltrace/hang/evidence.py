"""What the files of a job that hangs or died say, before anything is concluded from it."""

from collections import defaultdict
from dataclasses import dataclass, field

from alltrace.readers.flight_recorder.read import Entry, Recording
from alltrace.trace.step_records import RankSteps


@dataclass(frozen=True)
class Death:
    rank: int
    how: str  # `signal 9 (SIGKILL)`, `exit code 1`, `ValueError: ...`
    source: str  # the file that says it
    # a rank that a launcher or a watchdog ended, or that lost its peers, died of the hang and is not its cause
    consequence: bool = False
    number: int = 0  # the signal as a negative number, or the exit code
    weak: bool = False  # only an exit code, which a rank that gave up waiting has as well
    first: bool = False  # whether the launcher calls it the first


@dataclass(frozen=True)
class Stack:
    rank: int
    doing: str  # `communicates`, `data`, `lock`, `storage`, `sleeps`, `computes` or `unknown`
    frame: str  # the program's line
    source: str
    exact: bool = False  # whether the tool tells a thread that runs from one that waits


@dataclass(frozen=True)
class Xid:
    number: int
    host: str
    device: str  # the PCI address
    source: str


@dataclass(frozen=True)
class Behind:
    """Ranks of a communicator that launched fewer operations than most, or do not answer, as NCCL RAS says."""

    ranks: tuple[int, ...]
    operation: int | None  # the last that they launched; None if they do not answer
    most: int | None  # the last that most ranks launched
    source: str


@dataclass(frozen=True)
class Watchdog:
    """A collective that a rank's watchdog gave up waiting for, as its log says."""

    rank: int
    entry: Entry
    progress: tuple[int, int] | None


@dataclass
class Evidence:
    recordings: dict[int, Recording] = field(default_factory=dict)
    empty: dict[int, str] = field(default_factory=dict)  # ranks whose dump is a file without content
    earlier: list[str] = field(default_factory=list)  # dumps of ranks that have a later one
    written_ns: dict[int, int] = field(default_factory=dict)  # when the dump of a rank was written, by its file's time
    deaths: dict[int, list[Death]] = field(default_factory=lambda: defaultdict(list))
    stacks: dict[int, Stack] = field(default_factory=dict)
    steps: dict[int, RankSteps] = field(default_factory=dict)  # of each rank, from the record of steps
    xids: list[Xid] = field(default_factory=list)
    behind: list[Behind] = field(default_factory=list)
    watchdogs: list[Watchdog] = field(default_factory=list)
    hosts: dict[int, str] = field(default_factory=dict)  # of each rank, where a file says it
    dead_hosts: dict[str, str] = field(default_factory=dict)  # hosts that failed, with the file that says it
    network: dict[str, int] = field(default_factory=dict)  # lines of NCCL's network errors, by file
    # ranks whose own host closed their connections, with what it says
    cut: dict[int, str] = field(default_factory=dict)
    sizes_differ: str = ""  # the file in which a library says that sizes do not match
    ended_well: str = ""  # the file that says that the job ended without an error
    stopped: str = ""  # how a batch system ended the job: at its time limit, or because somebody cancelled it
    world: int = 0  # ranks of the job, as far as a file says it
    read: list[str] = field(default_factory=list)  # files that were used
    skipped: list[str] = field(default_factory=list)  # files that are none of these
    unread: list[str] = field(default_factory=list)  # dumps of which nothing can be read, with the reason
