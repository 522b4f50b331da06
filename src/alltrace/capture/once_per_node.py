"""Says once a node what every rank of it would say."""

import os
import time
from binascii import crc32
from contextlib import suppress

from alltrace.capture.processes import started_at
from alltrace.trace.cache_dir import default_folder, own_folder
from alltrace.trace.errors import AlltraceError

_FORGOTTEN_S = 10.0
"""Ranks fail together; what comes later is another attempt."""


def first_to_say(text: str, launcher: int | None = None) -> bool:
    """Whether no rank of the same launcher on this node has printed `text` recently; True if unknown."""
    # `launcher`: the launcher's process on this node, which its ranks there have in common; None for this process's
    # parent.
    parent = os.getppid() if launcher is None else launcher
    key = f"{os.uname().nodename}\n{parent}\n{started_at(parent)}\n{text}"
    try:
        folder = own_folder(default_folder()) / "said"
        folder.mkdir(exist_ok=True)
        with suppress(OSError):  # other ranks do the same
            for old in folder.iterdir():
                if old.stat().st_mtime < time.time() - _FORGOTTEN_S:
                    old.unlink()
        os.close(os.open(folder / f"{crc32(os.fsencode(key)):08x}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    except (AlltraceError, OSError):
        return True
    return True
