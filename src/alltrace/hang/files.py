"""From a folder to evidence: which files say anything, and what they say."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from pathlib import Path

from alltrace.hang.evidence import Behind, Evidence
from alltrace.hang.log_lines import WORTH_A_LOOK, LogLines
from alltrace.hang.stacks import has_stacks, read_stacks
from alltrace.hang.step_records import judge_steps, read_steps
from alltrace.readers.flight_recorder.read import rank_in_name, read_recording
from alltrace.readers.nccl_inspector.records import InspectorFile, looks_like, read_inspector
from alltrace.readers.registry import is_report
from alltrace.readers.text import TextLog
from alltrace.run.identity import natural_key
from alltrace.trace.errors import InputError, printable
from alltrace.trace.step_records import SUFFIX

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
    """What the files in a folder and below it say. A file that is none of those that are known is skipped.

    Raises `InputError`: there is no such folder, or none of its files says anything of a job's end.
    """
    if not folder.exists():
        raise InputError(folder, found="there is no such folder", expected="a folder with what a job left")
    evidence = Evidence()
    inspectors: list[InspectorFile] = []
    files = (
        [folder] if folder.is_file() else sorted((p for p in folder.rglob("*") if p.is_file()), key=lambda p: natural_key(str(p)))
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
    """Read a file into the evidence; whether it says anything."""
    if path.suffix == SUFFIX:
        return read_steps(path, evidence)
    named = _DUMP_NAME.search(path.name) is not None
    with TextLog(path) as log:
        head = next(log.blocks(_HEAD_BYTES), (b"", True))[0]
    if not head.strip(b"\0 \r\n\t"):
        rank = rank_in_name(str(path)) if named else None
        if rank is not None:
            evidence.empty[rank] = str(path)
            evidence.unread.append(f"{printable(path.name)}: {'it begins with zeros' if head.strip() else 'it is empty'}")
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
    return head.lstrip()[:1] == b"{" and (b'"pg_config"' in head or b'"profiling_name"' in head or b'"nccl_comm_state"' in head)


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
    """The rank that a file's name or its folder's states, as `torchrun --log-dir` has them: `attempt_0/3/stderr.log`."""
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
