"""A shell around the program that reports the program's process and how it ended.

nsys runs the program as a grandchild, and its exit code is not always the program's: it is 3 when the program was
killed, and 0 when the profiler's agent was, while the program runs on.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

# starts the program with the signals of the wrapper, where the profiler has passed its own on
_UNBLOCK = (
    "import os, signal, sys; signal.pthread_sigmask(signal.SIG_SETMASK, [int(n) for n in sys.argv[1].split()]); "
    "os.execvp(sys.argv[2], sys.argv[2:])"
)
# the program prints where the wrapper does; a profiler may have closed the descriptors, and then the wrapper's are
# opened
_RESTORED = (
    "if {{ true >&{0}; }} 2>/dev/null; then exec >&{0} 2>&{1} {0}>&- {1}>&-; else exec >>/proc/{2}/fd/{0}"
    " 2>>/proc/{2}/fd/{1}; fi; "
)
_POLL_S = 0.01
_SETTLES_S = 0.5
REVOKED = "shell"
"""The end of the name of the file without which no program is started."""


BASH = shutil.which("bash") or ""
"""The shell that knows descriptors of more than one digit; empty if there is none."""


# It starts the program at most once: the file with its own process id is made only if there is none.
class ProgramShell:
    """A shell around the program that writes down which process it is and how it ended."""

    # the inner shell becomes the program; the outer one outlives the signals that a whole process group is sent
    _SCRIPT = """set -C; echo $$ >"$1shell" || exit 1; set +C
d=$1 mask=$2 python=$3 unblock=$4 signals=$5; shift 5; trap : HUP INT QUIT TERM USR1 USR2 ALRM
while read -r name blocked && [ "$name" != SigBlk: ]; do :; done 2>/dev/null </proc/$$/status
[ "$blocked" = "$mask" ] || set -- "$python" -ISc "$unblock" "$signals" "$@"
sh -c 'echo $$ >"${0}pid"; exec "$@"' "$d" "$@"; c=$?; echo $c >"${d}code"; exit $c"""

    def __init__(self, folder: Path, turn: str = "") -> None:
        self._files = f"{folder}/{turn}"

    def around(self, program: Sequence[str], mask: Collection[int], output: tuple[int, int] | None = None) -> list[str]:
        """The command that runs `program` under this shell, with the signals of `mask` blocked."""
        # `output`: the descriptors, of one digit each where there is no `BASH`, that are its standard output and error;
        # None for what the profiler has.
        blocked = sorted(int(n) for n in mask)
        restored = _RESTORED.format(*output, os.getpid()) if output else ""
        shell = BASH if output and max(output) > 9 else "/bin/sh"
        return [
            shell, "-c", restored + self._SCRIPT, "sh", self._files, f"{sum(1 << (n - 1) for n in blocked):016x}",
            sys.executable, _UNBLOCK, " ".join(map(str, blocked)), *program,
        ]  # fmt: skip

    def revoke(self) -> bool:
        """See that the program is not started any more; whether that came before it was."""
        try:
            os.close(os.open(f"{self._files}{REVOKED}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return self.shell() is None and self._settled()
        except OSError:  # the folder is gone or full, and so will be the shell's attempt
            return True
        return True

    def _settled(self) -> bool:
        """Whether a file without a number stays so: a shell that cannot write it does not start the program."""
        until = time.monotonic() + _SETTLES_S
        while time.monotonic() < until:
            if self.shell() is not None:
                return False
            time.sleep(_POLL_S)
        return True

    def program(self) -> int | None:
        """The program's process id; None before it starts."""
        return self._read("pid")

    def shell(self) -> int | None:
        """The shell's own process id; None before it starts."""
        return self._read("shell")

    def code(self) -> int | None:
        """The program's exit code, or 128 and its signal; None before it ends, or if the shell was killed."""
        return self._read("code")

    def forget(self) -> None:
        names = ("pid", "code", REVOKED) if self.shell() is not None else ("pid", "code")
        for name in names:
            with suppress(OSError):
                os.unlink(self._files + name)  # noqa: PTH108

    def _read(self, name: str) -> int | None:
        with suppress(OSError, ValueError):
            text = Path(self._files + name).read_text()
            return int(text) if text.endswith("\n") else None
        return None
