"""From a folder to evidence: which files say anything, and what they say."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from alltrace.hang.evidence import Behind, Death, Evidence, Stack
from alltrace.hang.log_lines import WORTH_A_LOOK, LogLines
from alltrace.readers.flight_recorder.read import rank_in_name, read_recording
from alltrace.readers.nccl_inspector.records import InspectorFile, looks_like, read_inspector
from alltrace.readers.registry import is_report
from alltrace.readers.text import TextLog
from alltrace.run.identity import natural_key
from alltrace.trace.errors import InputError, printable
from alltrace.trace.step_records import PAGE_BYTES, SUFFIX, RankSteps, read_ranks

_STEPS = 56
_LEAST_NS = 5_000_000_000
_STEPS_LONG = 3.0
"""A job stopped if no step ended for this many times its longest step."""
_SILENT_NS = 12_000_000_000
"""A process writes every 5 s; one that did not for this long, while others did, no longer runs."""


def read_steps(path: Path, evidence: Evidence) -> bool:
    """Read a record or a page into the evidence; whether it says anything."""
    ranks = read_ranks(path, _STEPS)
    beats = path.stat().st_size > PAGE_BYTES  # a page changes when a step ends, a record also while none does
    for rank in ranks:
        before = evidence.steps.get(rank.rank)
        newest = rank if before is None or before.since_ns <= rank.since_ns else before
        written_ns = max(rank.written_ns if beats else 0, before.written_ns if before is not None else 0)
        evidence.steps[rank.rank] = newest._replace(written_ns=written_ns)
        if rank.host:
            evidence.hosts.setdefault(rank.rank, rank.host)
        evidence.world = max(evidence.world, rank.world)
    return bool(ranks)


def judge_steps(evidence: Evidence) -> None:
    """Where no step ends any more, say what each rank does, and who died."""
    ranks = evidence.steps
    steps = [step for rank in ranks.values() for step in rank.steps]
    newest_ns = max((max(rank.written_ns, rank.since_ns) for rank in ranks.values()), default=0)
    last_ns = max((step.begin_ns + 1000 * step.total_us for step in steps), default=0)
    longest_ns = max((1000 * step.total_us for step in steps), default=0)
    if not ranks or newest_ns - last_ns < max(_LEAST_NS, _STEPS_LONG * longest_ns):
        return
    for number, rank in ranks.items():
        if 0 < rank.written_ns < newest_ns - _SILENT_NS:
            how = f"its process no longer runs since {_time(rank.written_ns)}, in {rank.phase} of step {rank.step}"
            evidence.deaths[number].append(Death(number, how, "the record of steps"))
        elif number not in evidence.stacks:
            doing = "communicates" if rank.phase in rank.waits else "data" if rank.phase == "data" else "computes"
            evidence.stacks[number] = Stack(number, doing, place_of(rank), "the record of steps")


def place_of(rank: RankSteps) -> str:
    return f"phase {rank.phase} of step {rank.step} since {_time(rank.since_ns)}"


def _time(at_ns: int) -> str:
    return (
        datetime.fromtimestamp(at_ns // 10**9, UTC).strftime("%H:%M:%S UTC")
        if 0 <= at_ns < 1 << 61
        else "an impossible time"
    )


_PYSPY_THREAD = re.compile(r"^Thread (?:0x)?[0-9A-Fa-f]+ \((?P<state>[a-z+]+)\)(?:: \"(?P<name>[^\"]*)\")?")
_PYSPY_FRAME = re.compile(r"^ {4}(?P<name>[\w.<>:~ ]+) \((?P<file>[^()]+?)(?::(?P<line>\d+))?\)$")
_FAULT_THREAD = re.compile(
    r"^(?P<current>Current thread|Thread) 0x[0-9a-f]+(?: \[[^\]]*\])? \(most recent call first\):"
)
_FAULT_FRAME = re.compile(r'^ {2}File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<name>.+)$')
_GDB_THREAD = re.compile(r"^Thread (?P<number>\d+)\b.*:$|^\[Switching to thread (?P<switched>\d+)")
_GDB_FRAME = re.compile(
    r"^#\d+\s+(?:0x[0-9a-f]+ in )?(?P<name>[\w:~<>, *&]+?) \(.*?(?: at (?P<file>[^:\s]+):(?P<line>\d+))?$"
)
_BEGINS = re.compile(
    rb"^(?:Process \d+: |Thread (?:0x[0-9A-Fa-f]+ |\d+ \()|Current thread 0x|Fatal Python error: |Timeout"
    rb" \(|\[Switching to |#0 )",
    re.MULTILINE,
)
_LIBRARY = re.compile(
    r"/(?:site|dist)-packages/|/lib/python\d|^<|/torch/|^(?:torch|threading|queue|multiprocessing)\b|^[\w]+\.py$"
)
_DOING = (
    ("communicates",
        re.compile(r"distributed_c10d|c10d_logger|nccl|[Gg]loo|ProcessGroup|MPI_|ompi_|all_?reduce|all_?gather")),
    ("data",
        re.compile(r"dataloader\.py|_next_data|_get_data|_try_get_data|next_batch|/datasets?/|webdataset|fetch\.py")),
    ("storage",
        re.compile(r"serialization\.py|checkpoint|fsspec|^(?:read|write|pread64|fsync|__read|__write|openat|open64)\b"
                           r"|\b(?:read|write|load|open|save)_(?:file|shard|checkpoint)\b|shutil\.py|\bpathlib\.py|"
                           r"tarfile\.py|h5py")),
    ("lock",
        re.compile(r"filelock|acquire\b|_wait_for_tstate_lock|_mutex_lock|__lll_lock_wait|\b(?:Rw)?[Ll]ock\b|"
                   r"threading\.py")),
    ("data", re.compile(r"queue\.py|queues\.py|connection\.py|\bselectors\.py")),
    ("sleeps", re.compile(r"\bsleep\b|nanosleep")),
)  # fmt: skip
_INNER = 8
"""Frames from the innermost one that say what a thread does."""


@dataclass
class _Thread:
    name: str
    state: str
    frames: list[tuple[str, str, str]] = field(default_factory=list)  # function, file, line

    @property
    def is_main(self) -> bool:
        return self.name == "MainThread" or any(
            f[0] in ("<module>", "main", "Py_RunMain", "_start") for f in self.frames
        )


def has_stacks(data: bytes) -> bool:
    return _BEGINS.search(data) is not None


def read_stacks(text: str, rank: int, source: str) -> Stack | None:
    """What the main thread of a process does, by all its threads; None if the text has no stack."""
    threads = _threads(text)
    if not threads:
        return None
    main = next((t for t in threads if t.is_main), threads[-1])
    exact = bool(main.state)
    inner = main.frames[:_INNER]
    places = [f"{name} {file}" for name, file, _line in inner]
    doing = next((what for what, pattern in _DOING if any(pattern.search(frame) for frame in places)), "")
    if main.state.startswith("active") and doing not in ("communicates", "storage"):
        doing = "computes"
    own = next((f for f in main.frames if not _LIBRARY.search(f[1])), main.frames[0] if main.frames else ("", "", ""))
    # `faulthandler` shows no function of C: a thread in the program's own line computes, sleeps, or waits in the system
    return Stack(rank, doing or ("sleeps" if exact else "unknown"), _place(own), source, exact)


def _place(frame: tuple[str, str, str]) -> str:
    name, file, line = frame
    return f"{file}:{line} {name}" if line else f"{file} {name}".strip()


def _threads(text: str) -> list[_Thread]:
    threads: list[_Thread] = []
    for line in text.splitlines():
        if (begin := _PYSPY_THREAD.match(line)) is not None:
            threads.append(_Thread(begin["name"] or "", begin["state"]))
        elif _FAULT_THREAD.match(line) or _GDB_THREAD.match(line):
            threads.append(_Thread("", ""))
        elif (frame := _PYSPY_FRAME.match(line) or _FAULT_FRAME.match(line) or _GDB_FRAME.match(line)) is not None:
            if not threads:
                threads.append(_Thread("", ""))
            threads[-1].frames.append((frame["name"], frame["file"] or "", frame["line"] or ""))
    return [t for t in threads if t.frames]


_DUMP_NAME = re.compile(
    r"(?:dump|trace|fr|flight|recorder)[\w.-]*?\d+(?:\.(?:json|pkl|pickle|bin))?(?:\.(?:gz|zst))?$", re.IGNORECASE
)
_RANK_IN_NAME = re.compile(r"(?:rank|proc|task|local_rank)[-_=.]?(\d{1,7})(?!\d)", re.IGNORECASE)
_NUMBER_IN_NAME = re.compile(r"(?:^|[-_.])(\d{1,7})(?=\.(?:txt|log|out|err|stack|stacks)|$)")
_HEAD_BYTES = 1 << 16
_LONGEST_STACKS = 4 << 20
_TEXTS = (".txt", ".log", ".out", ".err", ".stack", ".stacks", ".dmesg", "")
_MOST_FILES = 100_000
_LAST_OPERATIONS = 500
"""Operations of a dump that are read: enough to know the order in which a rank issues them."""


def gather(folder: Path) -> Evidence:
    """What the files in a folder and below it say. A file that is none of those that are known is skipped."""
    # Raises `InputError`: there is no such folder, or none of its files says anything of a job's end.
    if not folder.exists():
        raise InputError(folder, found="there is no such folder", expected="a folder with what a job left")
    evidence = Evidence()
    inspectors: list[InspectorFile] = []
    files = (
        [folder]
        if folder.is_file()
        else sorted((p for p in folder.rglob("*") if p.is_file()), key=lambda p: natural_key(str(p)))
    )
    for path in files[:_MOST_FILES]:
        try:
            used = _read(path, evidence, inspectors)
        except InputError as error:
            evidence.unread.append(f"{printable(path.name)}: {error.found}")
            continue
        (evidence.read if used else evidence.skipped).append(str(path))
    _behind_by_inspector(evidence, inspectors)
    judge_steps(evidence)
    if not (evidence.read or evidence.empty):
        raise InputError(
            folder,
            found="no file in it says how a job ended",
            expected="flight recorder dumps, NCCL or job logs, stacks, kernel logs, or records of steps",
            advice="see the guide on jobs that hang",
        )
    return evidence


def _read(path: Path, evidence: Evidence, inspectors: list[InspectorFile]) -> bool:
    if path.suffix == SUFFIX:
        return read_steps(path, evidence)
    named = _DUMP_NAME.search(path.name) is not None
    with TextLog(path) as log:
        head = next(log.blocks(_HEAD_BYTES), (b"", True))[0]
    if not head.strip(b"\0 \r\n\t"):
        rank = rank_in_name(str(path)) if named else None
        if rank is not None:
            evidence.empty[rank] = str(path)
            evidence.unread.append(
                f"{printable(path.name)}: {'it begins with zeros' if head.strip() else 'it is empty'}"
            )
        return rank is not None
    if looks_like(head[:_HEAD_BYTES]):
        inspectors.append(read_inspector(str(path)))
        return True
    if _is_dump(head, named=named):
        return _dump(path, evidence)
    if b"\0" in head[:4096] or (path.suffix.lower() not in _TEXTS and is_report(path)):
        if named and not is_report(path) and (rank := rank_in_name(str(path))) is not None:
            evidence.empty[rank] = str(path)
            evidence.unread.append(f"{printable(path.name)}: neither a pickle nor JSON")
            return True
        return False
    return _text(path, evidence)


def _is_dump(head: bytes, *, named: bool) -> bool:
    if head[:1] == b"\x80" or (named and head[:1] in b"(}"):
        return named or b"pg_config" in head or b"profiling_name" in head
    return head.lstrip()[:1] == b"{" and (
        b'"pg_config"' in head or b'"profiling_name"' in head or b'"nccl_comm_state"' in head
    )


def _dump(path: Path, evidence: Evidence) -> bool:
    rank = rank_in_name(str(path))
    try:
        recording = read_recording(str(path), last=_LAST_OPERATIONS)
    except InputError as error:
        if rank is None:
            raise
        evidence.empty[rank] = str(path)
        evidence.unread.append(f"{printable(path.name)}: {error.found}")
        return True
    own = recording.ranks[0]
    before = evidence.recordings.get(own)
    written_ns = path.stat().st_mtime_ns
    later = before is None or written_ns >= evidence.written_ns[own]
    if before is not None:
        evidence.earlier.append(before.path if later else recording.path)
    if later:
        evidence.recordings[own] = recording
        evidence.written_ns[own] = written_ns
    return True


def _text(path: Path, evidence: Evidence) -> bool:
    rank = _rank_of(path)
    lines = LogLines(evidence, str(path), rank)
    stacks = False
    with TextLog(path) as log:
        for block, _whole in log.blocks():
            stacks = stacks or has_stacks(block)
            for line in block.splitlines():
                if WORTH_A_LOOK.search(line) or not line.strip():
                    lines.line(line[:4000].decode("utf-8", "replace"))
    lines.end()
    if stacks:
        own = rank if rank is not None else _number_of(path)
        with path.open("rb") as file:
            text = file.read(_LONGEST_STACKS).decode("utf-8", "replace")
        stack = None if own is None else read_stacks(text, own, str(path))
        if stack is not None:
            evidence.stacks[stack.rank] = stack
            return True
    return lines.tells


def _rank_of(path: Path) -> int | None:
    """The rank that the name of a file or folder states, as `torchrun --log-dir` has them: `attempt_0/3/stderr.log`."""
    named = _RANK_IN_NAME.search(path.name)
    if named is not None:
        return int(named[1])
    if path.parent.name.isdecimal() and path.stem in ("stderr", "stdout") and len(path.parent.name) < 8:
        return int(path.parent.name)
    return None


def _number_of(path: Path) -> int | None:
    number = _NUMBER_IN_NAME.search(path.name) or _NUMBER_IN_NAME.search(path.stem)
    return int(number[1]) if number is not None else None


def _behind_by_inspector(evidence: Evidence, files: list[InspectorFile]) -> None:
    """The ranks of a communicator of all ranks that completed fewer collectives of a function than the others."""
    calls: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
    sizes: dict[str, int] = {}
    for file in files:
        for name, communicator in file.communicators.items():
            sizes[name] = communicator.size
            evidence.hosts.setdefault(communicator.rank, file.host) if file.host else None
        for operation in file.operations:
            if operation.peer is None:
                its = calls[operation.communicator, operation.op]
                its[operation.rank] = max(its.get(operation.rank, -1), operation.sequence)
    widest = max(sizes.values(), default=0)
    evidence.world = max(evidence.world, widest)
    for (name, _op), its in calls.items():
        if sizes[name] != widest or len(its) < widest:
            continue
        most = Counter(its.values()).most_common(1)[0][0]
        behind = tuple(sorted(r for r, n in its.items() if n < most))
        if behind:
            evidence.behind.append(Behind(behind, min(its[r] for r in behind), most, "NCCL Inspector"))
