"""The files that request a window of steps from an armed job, in the folder `.armed/JOB` next to its reports.

    request.json    `capture now` writes it: {"id": 1, "steps": 10, "ranks": [[0, 7]] or null, "lead_s": 3} window.json
    the first rank answers: {"id": 1, "first": 1203, "end": 1213, "ranks": null} armed.7         the wrapper of rank 7,
    which sees this folder: how many ranks are armed, 0 if unknown heard.7         rank 7 has received a window that
    requests an answer ("answer": true), at that step: {"id": 1, "at": 1190}

If nodes share no folder, each has its own, with only some of the ranks in it: `capture now --at` then writes the same
window.json on each node. A signal could not do that: it cannot carry a step number, and ranks would receive it at
different steps.

The first two are there before the program starts, and written in place: opening a file again shows what another node
has written, on a shared file system, sooner than looking for a new one does.
"""

import os
from typing import Any

from alltrace.capture.variables import REQUEST

_MOST_BYTES = 1 << 16


def read_control(path: str) -> dict[str, Any] | None:
    """What a file says; None if it says nothing yet, or only a part of it can be seen."""
    try:
        number = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    import json  # a rank that is not armed does without

    try:
        content = json.loads(os.read(number, _MOST_BYTES) or b"null")
    except (OSError, ValueError):
        return None
    finally:
        os.close(number)
    return content if isinstance(content, dict) and isinstance(content.get("id"), int) else None


def write_control(path: str, content: dict[str, Any]) -> None:
    import json

    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        os.write(number, json.dumps(content).encode())
    finally:
        os.close(number)


def request_window(folder: str, steps: int) -> None:
    """Ask the armed job with this folder for a window of steps of all ranks, as soon as all can know of it."""
    path = os.path.join(folder, REQUEST)  # noqa: PTH118  pathlib would be a further import
    before = read_control(path)
    write_control(
        path, {"id": (0 if before is None else before["id"]) + 1, "steps": steps, "ranks": None, "lead_s": 3.0}
    )


def holds(spans: object, rank: int) -> bool:
    """Whether a rank is among `spans`, pairs of the first and the last rank; None holds all."""
    if not isinstance(spans, list):
        return spans is None
    return any(
        isinstance(s, list) and len(s) == 2 and all(isinstance(n, int) for n in s) and s[0] <= rank <= s[1]
        for s in spans
    )
