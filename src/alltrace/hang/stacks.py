"""Stacks of a rank as `py-spy dump`, `faulthandler` and `cuda-gdb` print them: what its main thread does."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from alltrace.hang.evidence import Stack

_PYSPY_THREAD = re.compile(r"^Thread (?:0x)?[0-9A-Fa-f]+ \((?P<state>[a-z+]+)\)(?:: \"(?P<name>[^\"]*)\")?")
_PYSPY_FRAME = re.compile(r"^ {4}(?P<name>[\w.<>:~ ]+) \((?P<file>[^()]+?)(?::(?P<line>\d+))?\)$")
_FAULT_THREAD = re.compile(r"^(?P<current>Current thread|Thread) 0x[0-9a-f]+(?: \[[^\]]*\])? \(most recent call first\):")
_FAULT_FRAME = re.compile(r'^ {2}File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<name>.+)$')
_GDB_THREAD = re.compile(r"^Thread (?P<number>\d+)\b.*:$|^\[Switching to thread (?P<switched>\d+)")
_GDB_FRAME = re.compile(r"^#\d+\s+(?:0x[0-9a-f]+ in )?(?P<name>[\w:~<>, *&]+?) \(.*?(?: at (?P<file>[^:\s]+):(?P<line>\d+))?$")
_BEGINS = re.compile(
    rb"^(?:Process \d+: |Thread (?:0x[0-9A-Fa-f]+ |\d+ \()|Current thread 0x|Fatal Python error: |Timeout \(|\[Switching to |#0 )",
    re.MULTILINE,
)
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python\d|^<|/torch/|^(?:torch|threading|queue|multiprocessing)\b|^[\w]+\.py$")
_DOING = (
    ("communicates", re.compile(r"distributed_c10d|c10d_logger|nccl|[Gg]loo|ProcessGroup|MPI_|ompi_|all_?reduce|all_?gather")),
    ("data", re.compile(r"dataloader\.py|_next_data|_get_data|_try_get_data|next_batch|/datasets?/|webdataset|fetch\.py")),
    ("storage", re.compile(r"serialization\.py|checkpoint|fsspec|^(?:read|write|pread64|fsync|__read|__write|openat|open64)\b"
                           r"|\b(?:read|write|load|open|save)_(?:file|shard|checkpoint)\b|shutil\.py|\bpathlib\.py|tarfile\.py|h5py")),
    ("lock", re.compile(r"filelock|acquire\b|_wait_for_tstate_lock|_mutex_lock|__lll_lock_wait|\b(?:Rw)?[Ll]ock\b|threading\.py")),
    ("data", re.compile(r"queue\.py|queues\.py|connection\.py|\bselectors\.py")),
    ("sleeps", re.compile(r"\bsleep\b|nanosleep")),
)  # fmt: skip
_WAITS_IN = {"communicates", "data", "storage", "lock", "sleeps"}
_INNER = 8
"""Frames from the innermost one that say what a thread does."""


@dataclass
class _Thread:
    name: str
    state: str
    frames: list[tuple[str, str, str]] = field(default_factory=list)  # function, file, line

    @property
    def is_main(self) -> bool:
        return self.name == "MainThread" or any(f[0] in ("<module>", "main", "Py_RunMain", "_start") for f in self.frames)


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
