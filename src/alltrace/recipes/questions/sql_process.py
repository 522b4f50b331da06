"""A query in a process of its own, which the system ends where DuckDB's limits fail: the server goes on.

Python runs this file: the child reads the query from its standard input, and writes the answer to its standard output
as a line of JSON and an Arrow stream. The child is not trusted, as it carries out the text of users: what it writes is
data.
"""

import io
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pyarrow as pa

from alltrace.recipes.base import Answer
from alltrace.recipes.questions.sql import Limits
from alltrace.run.store import Run
from alltrace.trace.errors import AlltraceError, InputError, UsageError

MEMORY_VARIABLE = "ALLTRACE_SQL_MEMORY_GB"
"""The environment variable of the most memory that the process may address, in GiB."""

MEMORY_GB = 3  # its default; with 1 GiB DuckDB does not start

MOST_ANSWER_BYTES = 256 << 20
_GRACE_SECONDS = 1.0
_START_SECONDS = 60.0
_LOOK_SECONDS = 0.1
_THREADS = 2  # those of DuckDB (`query`)
_ERRORS = {kind.__name__: kind for kind in (AlltraceError, UsageError)}


def limited_query(run: Run, text: str, limits: Limits, check: Callable[[], None] = lambda: None) -> Answer:
    """The answer to `text` as `query` gives it, by a process with two processors, killed 1 s after the time limit.

    It may address `MEMORY_GB` (or `ALLTRACE_SQL_MEMORY_GB`). `run` is aligned here first, where the answer depends on
    it. `check` is called several times a second; an error that it raises ends the process. Raises `UsageError` as
    `query`, and if the process needed too much memory.
    """
    from alltrace.recipes.questions.sql import align_for
    from alltrace.run.store import PartialRun
    from alltrace.trace.columns import Column

    align_for(run, text)
    memory = memory_bytes()
    align = None if run.overlay is None else str(run.overlay.folder.absolute())
    place = {
        "path": str(run.path.absolute()),
        "align": align,
        "partial": isinstance(run, PartialRun),
        "in_session": run.in_session,
    }
    request = json.dumps({"run": place, "text": text, "limits": list(astuple(limits)), "memory": memory}).encode()
    # of each thread of a numeric library, address space would be reserved
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "alltrace.recipes.questions.sql_process"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    ) as child:
        try:
            reply = _reply(child, request, _START_SECONDS + limits.seconds + _GRACE_SECONDS, check)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
    head, _, rows = reply.partition(b"\n")
    if child.returncode in (-signal.SIGALRM, -signal.SIGXCPU):
        raise UsageError(f"the query took longer than {limits.seconds:g} s and was stopped; request less data at once")
    if child.returncode != 0 or not head:
        raise UsageError(
            f"the process of the query ended, most likely because it needed more than {memory >> 30} GiB of memory; "
            f"select fewer rows or columns at once, or set {MEMORY_VARIABLE}"
        )
    facts = json.loads(head)
    if "error" in facts:
        raise _ERRORS.get(facts["kind"], AlltraceError)(facts["error"])
    columns = tuple(Column(*column) for column in facts["columns"])
    return _answer(pa.ipc.open_stream(rows).read_all(), columns, facts["notes"])


def memory_bytes() -> int:
    """The most memory of the process, from the environment. Raises `UsageError`: it is not a number from 2 on."""
    setting = os.environ.get(MEMORY_VARIABLE, "") or str(MEMORY_GB)
    if not setting.isascii() or not setting.isdigit() or not 2 <= int(setting) <= 1 << 20:
        raise UsageError(f"{MEMORY_VARIABLE} is {setting!r}; expected a whole number of GiB, 2 or more")
    return int(setting) << 30


def _answer(table: Any, columns: Any, notes: Any) -> Answer:
    from alltrace.recipes.base import Answer

    return Answer(table, columns, tuple(notes))


def _reply(child: subprocess.Popen[bytes], request: bytes, seconds: float, check: Callable[[], None]) -> bytes:
    """What the child wrote; nothing of one that is not done within the time."""
    end, unsent = time.monotonic() + seconds, request
    while time.monotonic() < end:
        check()
        try:
            return child.communicate(unsent or None, timeout=_LOOK_SECONDS)[0]
        except subprocess.TimeoutExpired:
            unsent = b""  # it is sent on by the next call
    return b""


def _serve() -> None:
    """The other process: answer the one query on the standard input."""
    request = json.load(sys.stdin.buffer)
    from alltrace.recipes.questions.sql import Limits, query
    from alltrace.run.store import PartialRun, Run

    place, limits, memory = request["run"], Limits(*request["limits"]), request["memory"]
    path, align = Path(place["path"]), None if place["align"] is None else Path(place["align"])
    run = PartialRun(path) if place["partial"] else Run(path, align=align)
    run = run.in_session_time() if place["in_session"] else run
    used = time.process_time()
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    processor_seconds = int(used + _THREADS * (limits.seconds + _GRACE_SECONDS)) + 1
    # at the second limit the system kills a process without a signal that tells why
    resource.setrlimit(resource.RLIMIT_CPU, (processor_seconds, processor_seconds + 2))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    # the system ends it, whatever it is doing then
    signal.setitimer(signal.ITIMER_REAL, limits.seconds + _GRACE_SECONDS)
    try:
        answer = query(run, request["text"], limits)
        reply = _packed(answer)
    except MemoryError:
        reply = _refusal(UsageError("memory ran out for the query; select fewer rows or columns at once"))
    except (AlltraceError, InputError) as error:
        reply = _refusal(error)
    sys.stdout.buffer.write(reply)
    sys.stdout.buffer.flush()
    os._exit(0)  # nothing is left to do, and threads of DuckDB may still be busy


def _packed(answer: Answer) -> bytes:
    if answer.table.nbytes > MOST_ANSWER_BYTES:
        raise UsageError(
            f"the answer has {answer.table.nbytes >> 20} MiB; expected {MOST_ANSWER_BYTES >> 20} at most: select less"
        )
    columns = [(c.name, c.type, c.unit, c.doc) for c in answer.columns]
    rows = io.BytesIO()
    with pa.ipc.new_stream(rows, answer.table.schema) as writer:
        writer.write_table(answer.table)
    return json.dumps({"columns": columns, "notes": list(answer.notes)}).encode() + b"\n" + rows.getvalue()


def _refusal(error: AlltraceError) -> bytes:
    kind = "UsageError" if isinstance(error, UsageError) else "AlltraceError"
    return json.dumps({"error": str(error), "kind": kind}).encode() + b"\n"


if __name__ == "__main__":
    _serve()
