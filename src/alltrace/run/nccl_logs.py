"""NCCL's logs of a job, read in parallel and joined: the rank of each process, and the ends of each communicator."""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alltrace.engine.tasks import remote, run_tasks
from alltrace.run.log_files import jobs_for, nothing_in
from alltrace.trace.errors import path_text
from alltrace.trace.schema import Column, Table
from alltrace.trace.scratch import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from alltrace.readers.nccl_log.read import LogPart
    from alltrace.run.step_times import StepTimes

NEAR_CPUS = Table(
    "near_cpus",
    "One CPU near the GPU of a rank, as NCCL states it in a log that was imported with the reports.",
    (Column("rank", "int32", None, "rank"), Column("cpu", "int32", None, "CPU, as in `sched` and `samples`")),
    (),
    None,
)


@dataclass
class Member:
    """One rank's end of one communicator."""

    host: str  # that of its process
    pid: int  # that of its process
    pointer: int  # the pointer that the process prints
    log: int  # the log's position in the job's logs
    rank: int | None = None  # its rank in the communicator, from INIT, or None
    nranks: int | None = None  # the number of ranks, or None
    comm_id: str | None = None
    communicator: str = ""  # the name of the communicator: its commId, or one that is made up, see `identified`
    identified: str = "alone"  # how ends were matched: `commId`, `only one of this size`, or `alone`
    global_rank: int | None = None  # the rank of its process in the job, or None
    rank_source: str | None = None  # where `global_rank` is from: `init`, `globalrank`, `prefix` or None
    nodes: int | None = None  # as in INIT, like `local_ranks`, `device`, `bus_id`, `function` and `parent`
    local_ranks: int | None = None
    device: int | None = None
    bus_id: str | None = None
    function: str | None = None
    parent: str | None = None
    from_start: bool = False  # whether its INIT is in the log, so that its first call there is its first call
    begin_line: int | None = None
    calls: Counter[str] = field(default_factory=Counter)  # its calls by operation
    # `log`, where processes of several logs have one host's name and one process id, as in containers; else -1
    container: int = -1

    @property
    def key(self) -> tuple[str, int, int]:
        """What distinguishes its process from all others of the job."""
        return self.host, self.pid, self.container

    @property
    def process(self) -> str:
        """`host:pid`."""
        return f"{self.host}:{self.pid}"


@dataclass
class NcclLogs:
    """The logs of a job."""

    paths: tuple[str, ...]
    parts: list[LogPart]  # what each holds
    members: list[Member]  # the ends of communicators, over all logs
    member_of: list[list[int]]  # for each log, the position in `members` of each of its instances
    calls_to: Path | None  # the folder with the calls of each log as Arrow files, or None if they were counted by size
    notes: tuple[str, ...]  # what a reader must know; a question adds its own
    account: Mapping[str, int]
    unread: Sequence[Mapping[str, Any]]
    uses_calls_of_trace: bool = False
    # when steps ended, by a training log, for logs without lines of steps; None without one
    step_times: StepTimes | None = None

    def calls(self) -> Iterator[tuple[int, Any]]:
        """The calls in the order of the files, as (log, record batch) with the fields of the scanner and `instance`."""
        import pyarrow as pa

        if self.calls_to is None:
            return
        for log in range(len(self.parts)):
            with pa.memory_map(str(self.calls_to / f"{log}.arrow")) as source:
                reader = pa.ipc.open_file(source)
                for n in range(reader.num_record_batches):
                    yield log, reader.get_batch(n)


@contextmanager
def log_folder(beside: Path | None = None) -> Iterator[Path]:
    """A temporary folder for calls, of `read_nccl_logs` and the question; in `beside` if other machines fill it."""
    with scratch_folder("alltrace-logs-", beside if remote() else None) as folder:
        yield Path(folder)


def read_nccl_logs(
    paths: Sequence[Path],
    *,
    calls_to: Path | None,
    times: bool = False,
    time_format: str | None = None,
    jobs: int | None = None,
) -> NcclLogs:
    """Read logs in parallel, a file a task. Raises `InputError`: one cannot be read, or none has a record of NCCL.

    `calls_to`: an empty folder for the calls; None to count calls by size, which needs no disk. `times`: whether to
    read the lines' times, by `time_format` for `strptime` or in common forms.
    """
    from alltrace.readers.nccl_log.read import Wanted, read_log

    wanted = [
        Wanted(
            str(path.absolute() if remote() else path),
            None if calls_to is None else str(calls_to / f"{n}.arrow"),
            times,
            time_format,
        )
        for n, path in enumerate(paths)
    ]
    outcomes = sorted(run_tasks(read_log, wanted, jobs=jobs_for(paths, jobs)), key=lambda o: o.index)
    return _put_together([outcome.get() for outcome in outcomes], calls_to)


def _put_together(parts: list[LogPart], calls_to: Path | None) -> NcclLogs:
    account: Counter[str] = Counter()
    for part in parts:
        account.update(part.records.counts)
    if not any(n for kind, n in account.items() if kind not in ("foreign", "step")):
        expected = "the output of a job run with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,COLL"
        raise nothing_in(parts, f"none of {account.total()} lines is an NCCL record", expected=expected)
    members: list[Member] = []
    member_of: list[list[int]] = []
    by_pointer: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for log, part in enumerate(parts):
        positions = []
        for instance in part.instances:
            process = part.records.processes[instance.process]
            member = Member(
                process.host,
                process.pid,
                instance.pointer,
                log,
                instance.rank,
                instance.nranks,
                instance.comm_id,
                nodes=instance.nodes,
                local_ranks=instance.local_ranks,
                device=instance.device,
                bus_id=instance.bus_id,
                function=instance.function,
                parent=instance.parent,
                from_start=instance.begin_line is not None,
                begin_line=instance.begin_line,
            )
            key = (process.host, process.pid, instance.pointer)
            same = [n for n in by_pointer[key] if members[n].log != log]
            # the log of a process may be in several files, and only one of them has its INIT
            if len(same) == 1 and (members[same[0]].rank is None or member.rank is None):
                positions.append(same[0])
                if members[same[0]].rank is None:
                    member.log = members[same[0]].log
                    members[same[0]] = member
                continue
            by_pointer[key].append(len(members))
            positions.append(len(members))
            members.append(member)
        member_of.append(positions)
    uses_trace = not account["COLL"] and bool(account["CALL"])
    notes = _notes(parts, account, uses_trace)
    _tell_containers_apart(members)
    _global_ranks(members, parts)
    notes += _communicators(members)
    if any(m.rank is None for m in members):
        without = sum(m.rank is None for m in members)
        notes.append(
            f"{without} of {len(members)} members of communicators have no INIT line, so their rank is null; "
            "log with NCCL_DEBUG_SUBSYS=INIT,COLL"
        )
    unread = [
        {"file": path_text(part.path), "line": line + 1, "text": text}
        for part in parts
        for line, text in part.records.samples
    ]
    return NcclLogs(
        tuple(p.path for p in parts), parts, members, member_of, calls_to, tuple(notes), account, unread, uses_trace
    )


def _notes(parts: list[LogPart], account: Counter[str], uses_trace: bool) -> list[str]:
    lines = sum(part.lines for part in parts)
    kinds = ", ".join(f"{n} {kind}" for kind, n in account.most_common() if n and kind != "not understood")
    notes = [f"{lines} lines: {kinds}; {account['not understood']} records not understood"]
    notes += [f"{path_text(part.path)}: {part.damage}" for part in parts if part.damage]
    if uses_trace:
        notes.append("there are no COLL records; calls are taken from the CALL records of NCCL_DEBUG=TRACE")
    dropped = sum(part.records.dropped for part in parts)
    if dropped:
        notes.append(
            f"{dropped} entries of topology, tuning or facts are left out because there are too many different ones"
        )
    versions = sorted({text for part in parts for kind, text in part.records.facts if kind == "version"})
    if versions:
        notes.append(f"library: {', '.join(versions[:5])}")
    return notes


def _tell_containers_apart(members: list[Member]) -> None:
    """Find processes of several logs with one host and process id: they are different ranks of one communicator."""
    ends: dict[tuple[str, int, str], dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for m in members:
        if m.comm_id is not None and m.rank is not None:
            ends[m.host, m.pid, m.comm_id][m.log].add(m.rank)
    shared = {
        (host, pid) for (host, pid, _), by_log in ends.items() if len({frozenset(r) for r in by_log.values()}) > 1
    }
    for m in members:
        if (m.host, m.pid) in shared:
            m.container = m.log


def _global_ranks(members: list[Member], parts: list[LogPart]) -> None:
    """The rank in the job of each process: from the communicator of all processes, else from the lines' prefix."""
    processes = {m.key for m in members}
    world = max((m.nranks or 0 for m in members if m.rank is not None), default=0)
    ranks: dict[tuple[tuple[str, int, int], int | None], int] = {}
    of_process: dict[tuple[str, int, int], set[int]] = defaultdict(set)
    if world >= len(processes):
        for m in members:
            if m.nranks == world and m.rank is not None:
                ranks.setdefault((m.key, m.device), m.rank)
                of_process[m.key].add(m.rank)
    prefixes = {
        (p.host, p.pid): p.prefix_rank for part in parts for p in part.records.processes if p.prefix_rank is not None
    }
    distinct = len(set(prefixes.values())) == len(prefixes)
    for m in members:
        own = ranks.get((m.key, m.device))
        if own is None and len(of_process[m.key]) == 1:
            own = next(iter(of_process[m.key]))
        if own is not None:
            m.global_rank, m.rank_source = own, "init"
        elif distinct and (m.host, m.pid) in prefixes:
            m.global_rank, m.rank_source = prefixes[m.host, m.pid], "prefix"


def _communicators(members: list[Member]) -> list[str]:
    """Name the communicators; ends without a commId are joined only if there is no other way."""
    for m in members:
        if m.comm_id is not None:
            m.communicator, m.identified = m.comm_id, "commId"
    rest = [m for m in members if m.comm_id is None]
    by_size: dict[int | None, list[Member]] = defaultdict(list)
    for m in rest:
        by_size[m.nranks].append(m)
    notes = []
    inferred = 0
    for nranks, its in sorted(by_size.items(), key=lambda item: item[0] or 0):
        ranks = [m.rank for m in its]
        known = [r for r in ranks if r is not None]
        fits = nranks is not None and len(its) <= nranks and len(set(known)) == len(known)
        if fits and (len({m.process for m in its}) == len(its) or len(known) == len(its)):
            for m in its:
                m.communicator, m.identified = f"nranks={nranks}", "only one of this size"
            inferred += 1
            continue
        for m in its:
            m.communicator = f"{m.process}:{m.pointer & (1 << 64) - 1:#x}"
    if inferred:
        notes.append(
            f"{inferred} communicators have no commId in the log; their members were matched because only "
            f"one communicator has that size"
        )
    alone = sum(m.identified == "alone" for m in members)
    if alone:
        notes.append(
            f"{alone} members of communicators could not be matched across processes: the log has no commId for them"
        )
    return notes
