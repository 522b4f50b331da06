"""A log's records: processes, communicators' events, topology, tuning, steps, and the account of each record."""

from collections import Counter
from dataclasses import dataclass, field

MOST_SAMPLES = 200
MOST_ENTRIES = 2_000_000


@dataclass
class Process:
    """A process that wrote records: its host and pid, and the rank in its lines' prefix, if any."""

    host: str
    pid: int
    prefix_rank: int | None = None


@dataclass(frozen=True)
class CommunicatorEvent:
    """A communicator begins or ends: `what` is `Init START`, `Init COMPLETE`, `Destroy COMPLETE`, `placement`, ..."""

    line: int
    communicator: int
    what: str
    fields: dict[str, str]


@dataclass
class Records:
    """Everything but the calls."""

    processes: list[Process] = field(default_factory=list)  # the processes, by number
    # process number and pointer of each communicator pointer seen, by number
    communicators: list[tuple[int, int]] = field(default_factory=list)
    events: list[CommunicatorEvent] = field(default_factory=list)  # beginnings and ends of communicators, in order
    # how often (process, channel, from, to, transport, direction) came, with the communicator that the process began
    # last
    edges: Counter[tuple[int, int, int, int, int, str, str]] = field(default_factory=Counter)
    # ring list by (process, communicator, channel)
    rings: dict[tuple[int, int, int], tuple[str, bool]] = field(default_factory=dict)
    # (process, communicator, channel, me) to (up, down)
    trees: dict[tuple[int, int, int, int], tuple[int, str]] = field(default_factory=dict)
    # how often (process, communicator, operation, bytes, algorithm, protocol, channels) was chosen
    tuning: Counter[tuple[int, int, str, int, str, str, int | None]] = field(default_factory=Counter)
    # by process the CPUs near its GPUs
    near_cpus: dict[int, frozenset[int]] = field(default_factory=dict)
    # counts of (kind, text): networks, versions, environment, NVLS, patterns, warnings
    facts: Counter[tuple[str, str]] = field(default_factory=Counter)
    # (line, step, prefix rank or None) of each step's line
    steps: list[tuple[int, int, int | None]] = field(default_factory=list)
    # records by kind; every line is in it once, but for lines that hold several records
    counts: Counter[str] = field(default_factory=Counter)
    # of what was not understood: line and text, the first `MOST_SAMPLES`
    samples: list[tuple[int, str]] = field(default_factory=list)
    # communicator number by the placeholder that `edges`, `rings`, `trees` and `tuning` have for it
    aliases: dict[int, int] = field(default_factory=dict)
    # whether the times of lines have a zone, or count from 1970; both if some do
    zoned: set[bool] = field(default_factory=set)
    dropped: int = 0  # entries left out because there are more than `MOST_ENTRIES` of a kind

    def not_understood(self, line: int, text: bytes) -> None:
        """Account for a record that is cut or strange."""
        self.counts["not understood"] += 1
        if len(self.samples) < MOST_SAMPLES:
            self.samples.append((line, text[:300].decode("utf-8", "replace")))

    def fact(self, kind: str, text: bytes) -> None:
        """Count a fact; a text that was never seen is left out once there are too many."""
        key = (kind, text[:300].decode("utf-8", "replace"))
        if key in self.facts or len(self.facts) < MOST_ENTRIES // 100:
            self.facts[key] += 1
        else:
            self.dropped += 1
