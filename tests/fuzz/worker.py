"""One process of a fuzz run: some inputs of one target, one after the other.

It writes to its folder: `input`, the input that it works on; `state`, its counts (`STATE`); and for each failure, `INDEX.bin` and
`INDEX.txt`. It ends with 0 when all inputs are done.

    python -m tests.fuzz.worker MODULE SEED FIRST COUNT FOLDER
    python -m tests.fuzz.worker MODULE --replay FILE
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import traceback
from importlib import import_module
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from alltrace.trace.errors import AlltraceError
from tests.fuzz.mutate import mutated

if TYPE_CHECKING:
    from types import ModuleType

STATE = struct.Struct("<qqq")
"""How many inputs are done, how many of them gave an answer, and how many failed."""


def main(module: str, *arguments: str) -> int:
    """Run the inputs; see the module."""
    _check_package()
    target = import_module(module)
    if arguments[0] == "--replay":
        outcome = _outcome(target, Path(arguments[1]).read_bytes())
        print(outcome or "no failure")  # noqa: T201
        return 1 if outcome else 0
    seed, first, count = map(int, arguments[:3])
    _run(target, seed, first, count, Path(arguments[3]))
    return 0


def _check_package() -> None:
    """Make sure that it is the sanitized package that runs."""
    from alltrace.core import intervals

    wanted = os.environ["PYTHONPATH"].partition(os.pathsep)[0]
    if not Path(intervals.__file__).is_relative_to(wanted):
        raise SystemExit(f"{intervals.__file__} is not the sanitized package in {wanted}")


def _run(target: ModuleType, seed: int, first: int, count: int, folder: Path) -> None:
    corpus = target.corpus()
    answered = failed = 0
    state = folder / "state"
    state.write_bytes(STATE.pack(0, 0, 0))
    with state.open("r+b") as file, mmap.mmap(file.fileno(), STATE.size) as counts:
        for done in range(count):
            data = mutated(corpus, Random(f"{seed}/{target.__name__}/{first + done}"))
            (folder / "input").write_bytes(data)
            outcome = _outcome(target, data)
            if outcome:
                failed += 1
                (folder / f"{first + done}.bin").write_bytes(data)
                (folder / f"{first + done}.txt").write_text(outcome)
            elif outcome is None:
                answered += 1
            STATE.pack_into(counts, 0, done + 1, answered, failed)


def _outcome(target: ModuleType, data: bytes) -> str | None:
    """None for an answer, an empty text for an AlltraceError, and the traceback of anything else."""
    try:
        target.run(data)
    except AlltraceError:
        return ""
    except Exception:  # noqa: BLE001
        return traceback.format_exc()
    return None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
