"""Reader of the record that `alltrace.instrument.step_report` writes of a training's steps."""

import stat
from pathlib import Path

from alltrace.trace.step_records import MAGIC, REGION_BYTES, SUFFIX


def is_report(path: Path) -> bool:
    """Whether `path` has the suffix, and some region of it begins as that of a rank."""
    if path.suffix != SUFFIX:
        return False
    try:
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode):  # opening a pipe would wait for its other end
            return False
        with path.open("rb") as file:
            for at in range(0, facts.st_size, REGION_BYTES):
                file.seek(at)
                if file.read(len(MAGIC)) == MAGIC:
                    return True
    except OSError:
        pass
    return False
