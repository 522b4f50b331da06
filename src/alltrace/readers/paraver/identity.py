"""Who a Paraver trace is about: tasks are ranks, threads host threads and streams, by its beginning and .row."""

import re
from dataclasses import dataclass
from pathlib import Path

from alltrace.readers.base import Report, ReportProcess, ReportWarning
from alltrace.readers.paraver import labels as ev
from alltrace.readers.paraver.labels import LARGEST_LABELLED
from alltrace.readers.paraver.parsing import head_lines
from alltrace.trace.errors import InputError

# The first line of a .prv: how long the trace is, and how many nodes, tasks and threads it has.

_HEADER = re.compile(
    r"#Paraver \((?P<date>[^)]*)\):(?P<time>[0-9]+)(?P<unit>_ns|_us|_ms)?"
    r":(?P<nodes>0|[0-9]+\([0-9]+(?:,[0-9]+)*\)|"
    r"[0-9]+):(?P<count>[0-9]+)(?P<appls>(?:[:,][0-9]+\([^)]*\))+)(?:,(?P<comms>[0-9]+))?"
)
_APPL = re.compile(r"[:,](?P<tasks>[0-9]+)\((?P<threads>[^)]*)\)")
_PROCESSES = re.compile(r"([0-9]+):([0-9]+)")


@dataclass(frozen=True)
class Header:
    """The first line of a .prv."""

    end: int  # the length of the trace, in the trace's unit
    cpus: tuple[int, ...]  # CPUs of each node; empty without a resource model
    tasks: tuple[tuple[tuple[int, int], ...], ...]  # for each application and task its threads and its node (1-based)

    def sizes(self) -> dict[str, int]:
        """How many objects there are on each level of a .row."""
        tasks = [t for a in self.tasks for t in a]
        return {
            "WORKLOAD": 1,
            "APPL": len(self.tasks),
            "TASK": len(tasks),
            "THREAD": sum(n for n, _ in tasks),
            "SYSTEM": 1,
            "NODE": len(self.cpus),
            "CPU": sum(self.cpus),
        }


def parse_header(line: str) -> Header:
    """The header of a .prv. Raises `ValueError`: it is not a header; the message says what is wrong."""
    match = _HEADER.fullmatch(line)
    if match is None:
        raise ValueError("the first line is not a Paraver header")
    nodes = match["nodes"]
    if "(" in nodes:
        number, _, inner = nodes[:-1].partition("(")
        cpus = tuple(int(n) for n in inner.split(","))
        if len(cpus) != int(number):
            raise ValueError(f"the header has {number} nodes and CPUs for {len(cpus)}")
    else:
        cpus = (1,) * min(int(nodes), LARGEST_LABELLED >> 8)
    tasks = []
    for appl in _APPL.finditer(match["appls"]):
        own = [_PROCESSES.fullmatch(t) for t in appl["threads"].split(",")]
        pairs = tuple((int(t[1]), int(t[2])) for t in own if t)
        if len(pairs) != len(own) or len(pairs) != int(appl["tasks"]):
            raise ValueError(f"the header has {appl['tasks']} tasks and threads for {len(pairs)}")
        if any(n == 0 or (cpus and not 0 < node <= len(cpus)) for n, node in pairs):
            raise ValueError("the header has a task without threads or on no node")
        tasks.append(pairs)
    if len(tasks) != int(match["count"]):
        raise ValueError(f"the header has {match['count']} applications and tasks for {len(tasks)}")
    return Header(int(match["time"]), cpus, tuple(tasks))


EXPECTED = "a .prv or .prv.gz that `alltrace export paraver` wrote"
_READ_BACK = "read from a Paraver trace: names are as shown there, and samples and allocations are missing"

TABLES = (
    "kernels", "copies", "graphs", "api", "ranges", "marks", "mpi", "ucx", "osrt", "syscalls", "openacc", "openmp",
)  # fmt: skip
"""What is read back."""

_MOST_THREADS = 65_535
_TASK = re.compile(r"# task ([0-9]{1,6}): rank ([0-9]{1,9}), process (-?[0-9]{1,12})")
_STREAM = re.compile(r"CUDA-D([0-9]{1,9})(?:\.S([0-9]{1,18}))?-.*")
_LEVEL = re.compile(r"LEVEL ([A-Z]+) SIZE ([0-9]{1,6})\s*")


@dataclass(frozen=True)
class Thread:
    """One thread of a Paraver trace."""

    task: int  # its task, 0-based
    name: str  # the name of a host thread, or an empty string
    ordinal: int | None  # the CUDA ordinal of a stream's device, None for a host thread
    stream: int | None  # the stream; None for a host thread, and if the streams of a device are one thread


@dataclass(frozen=True)
class Facts:
    """What the beginning of a trace and its .row file say."""

    header: Header  # the first line
    version: str  # of the alltrace that wrote it
    ranks: tuple[tuple[int, int], ...]  # for each task its rank and its process id
    hosts: tuple[str, ...]  # for each task its host
    threads: tuple[Thread, ...]  # all threads, task by task
    cpus: tuple[str, ...]  # the labels of the GPUs, by global number less one


def beside(path: Path, suffix: str) -> Path:
    """The file of a trace that has the other suffix."""
    return path.with_name(re.sub(r"\.prv(\.gz)?$", "", path.name, flags=re.IGNORECASE) + suffix)


def look_at(path: Path) -> Facts:
    """Read the beginning of a trace and its .row. Raises `InputError`: damaged, not by alltrace, or no .row."""
    first, *comments = head_lines(path)
    if not comments or not comments[0].startswith(ev.ABOUT):
        raise InputError(
            path,
            found="a Paraver trace from another tool, such as Extrae or nsys2prv",
            expected=EXPECTED,
            advice="give the profiler reports from which it was made",
        )
    try:
        header = parse_header(first)
    except ValueError as error:
        raise InputError(path, found=str(error), expected=EXPECTED) from error
    ranks = {int(m[1]): (int(m[2]), int(m[3])) for line in comments if (m := _TASK.fullmatch(line))}
    tasks = [t for appl in header.tasks for t in appl]
    if (
        sum(n for n, _ in tasks) > _MOST_THREADS
        or len(header.tasks) != 1
        or sorted(ranks) != list(range(1, len(tasks) + 1))
    ):
        raise InputError(path, found="its first lines do not name a rank for each task", expected=EXPECTED)
    if not header.cpus:
        raise InputError(path, found="its first line names no nodes", expected=EXPECTED)
    labels = _rows(beside(path, ".row"), header)
    threads = []
    named = iter(labels["THREAD"])
    for task, (count, _) in enumerate(tasks):
        threads += [_thread(task, next(named)) for _ in range(count)]
    version = comments[0].removeprefix(ev.ABOUT).partition(":")[0]
    hosts = tuple(labels["NODE"][node - 1] for _, node in tasks)
    return Facts(header, version, tuple(ranks[n] for n in sorted(ranks)), hosts, tuple(threads), tuple(labels["CPU"]))


def _rows(path: Path, header: Header) -> dict[str, list[str]]:
    try:
        lines = iter(path.read_text(encoding="utf-8", errors="replace").split("\n"))
    except OSError as error:
        raise InputError.cannot_be("read", path, error, expected="the .row file next to the trace") from error
    labels: dict[str, list[str]] = {}
    for line in lines:
        level = _LEVEL.fullmatch(line)
        if level is not None:
            labels[level[1]] = [label for _, label in zip(range(int(level[2])), lines, strict=False)]
    sizes = header.sizes()
    for name in ("CPU", "NODE", "THREAD"):
        if len(labels.get(name, ())) != sizes[name]:
            raise InputError(
                path, found=f"it lacks labels of level {name}: expected {sizes[name]}", expected="the trace's .row"
            )
    return labels


def _thread(task: int, label: str) -> Thread:
    stream = _STREAM.fullmatch(label)
    if stream is not None:
        return Thread(task, "", int(stream[1]), None if stream[2] is None else int(stream[2]))
    name = re.fullmatch(r"THREAD [0-9.]+ \((.*)\)", label)
    return Thread(task, name[1] if name else "", None, None)


def report_of(path: Path, facts: Facts) -> Report:
    """The identity of a trace."""
    gpu = {t.task: t.ordinal for t in reversed(facts.threads) if t.ordinal is not None}
    processes = tuple(
        ReportProcess(
            task,
            pid,
            gpu=task in gpu,
            device_ordinal=gpu.get(task),
            rank_hint=rank,
            rank_hint_source="Paraver",
            host=facts.hosts[task],
        )
        for task, (rank, pid) in enumerate(facts.ranks)
    )
    return Report(
        str(path),
        "paraver",
        f"alltrace {facts.version}",
        host=facts.hosts[0] if len(set(facts.hosts)) == 1 else None,
        processes=processes,
        tables=TABLES,
        warnings=(ReportWarning(_READ_BACK),),
    )
