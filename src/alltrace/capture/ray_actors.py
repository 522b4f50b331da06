"""Actors of Ray: what a worker process that the wrapper is put around (`runtime_env`, `py_executable`) is in its job.

Ray starts workers one by one, each with the variables of its own `runtime_env`, and starts an actor that died again. So
the job is Ray's session and its driver's number, an actor's rank is `RANK` of its variables if they have it, and a
process with a rank that another process had before is its restart: each process claims its name by a file in the folder
of reports.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from alltrace.capture.identity import find_identity
from alltrace.capture.plan import Request
from alltrace.capture.selection import expand
from alltrace.capture.variables import RAY_JOB, RAY_NUMBER, RAY_RESTART
from alltrace.trace.side_file_words import ROLE

_WORKER = "RAY_RAYLET_PID"  # Ray sets it for each worker
_SESSION = re.compile(r"--session-name=(?:session_)?([A-Za-z0-9_.-]+)")
_CLAIMS = ".actors"
_MOST = 100_000


def ray_variables(request: Request, program: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The variables from which `find_identity` identifies a Ray worker; none if it is not a Ray worker."""
    session = next((m[1] for word in program if (m := _SESSION.fullmatch(word)) is not None), None)
    if _WORKER not in environment or session is None:
        return {}
    variables = {RAY_JOB: f"{session}-{environment.get('RAY_JOB_ID', '0')}"}
    return {**variables, **claim_name(request, {**environment, **variables})}


def claim_name(request: Request, variables: Mapping[str, str]) -> dict[str, str]:
    """The variables with which a worker's reports have a name that no other worker of its job has."""
    # `variables`: the worker's, with `RAY_JOB` among them; `RANK` if known.
    numbered = {**variables, RAY_NUMBER: "0", RAY_RESTART: "0"}
    who = find_identity(numbered, os.uname().nodename)
    folder = Path(expand(request.output, "--output", who, numbered, request.job, folder=True)).absolute() / _CLAIMS
    name = f"{expand('{job}', '--job', who, numbered, request.job)}_{numbered.get(ROLE, '')}".replace("/", "-")
    if "RANK" in variables:
        return {RAY_RESTART: str(_claim(folder, f"{name}_rank{who.rank}"))}
    return {RAY_NUMBER: str(_claim(folder, f"{name}_worker"))}


def _claim(folder: Path, name: str) -> int:
    """The first number that no process has claimed under this name; 0 if no file can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(_MOST):
            try:
                os.close(os.open(folder / f"{name}.{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
            except FileExistsError:
                continue
            return number
    except OSError:
        pass
    return 0
