"""One process of a fuzz run: some inputs of one target, one after the other.

The inputs of the corpus come first, and each must give an answer. The process writes to its folder: `input`, the input
that it works on; `state`, its counts (`STATE`); and for each failure NUMBER.bin and NUMBER.txt. It ends with 0 unless
an input ends it.

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
from types import ModuleType

from alltrace.trace.errors import AlltraceError
from tests.fuzz.mutate import mutated

STATE = struct.Struct("<4q")
"""How many inputs are done, and how many of them gave an answer, gave an AlltraceError, and failed."""


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
    answered = refused = failed = 0
    state = folder / "state"
    state.write_bytes(STATE.pack(0, 0, 0, 0))

    def outcome(number: object, data: bytes, *, sound: bool = False) -> str | None:
        (folder / "input").write_bytes(data)
        found = _outcome(target, data)
        if sound and found == "":
            found = "an AlltraceError for an input of the corpus, which is sound"
        if found:
            # the harness, which may end this process at any time, takes each .bin for whole and its .txt for there
            (folder / f"{number}.txt").write_text(found)
            (folder / f"{number}.part").write_bytes(data)
            (folder / f"{number}.part").rename(folder / f"{number}.bin")
        return found

    if any(outcome(f"corpus{number}", data, sound=True) for number, data in enumerate(corpus)):
        return
    with state.open("r+b") as file, mmap.mmap(file.fileno(), STATE.size) as counts:
        for done in range(count):
            number = first + done
            found = outcome(number, mutated(corpus, Random(f"{seed}/{target.__name__}/{number}")))
            answered += found is None
            refused += found == ""
            failed += bool(found)
            STATE.pack_into(counts, 0, done + 1, answered, refused, failed)


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
