"""Answers that are kept: a question that was asked before, of a run that has not changed since, is not worked out again.

An answer's key is all that it depends on: the arguments, every file of the run by name, size, inode and times, the code of this
package in the same way, and the width of a terminal. So an answer is never stale: whatever changes, the key is another, and what
lies under the old one is removed once it was not used for long. Answers lie in the cache folder, because a run directory is data
that is copied and compared.

This module is loaded before anything else of a command, so it loads next to nothing.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import xxhash

from alltrace import __version__
from alltrace.trace.places import cache_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

VERBS = frozenset({"stats", "recipe"})
"""The verbs whose answers are kept."""

MOST_BYTES = 4 << 20
"""The longest answer that is kept."""

MOST_KEPT_BYTES = 64 << 20
"""About how much is kept of all answers."""

_FOLDER = "answers"
_MANIFEST = "manifest.json"
_MOST_FILES = 20_000  # of a run: looking at more takes longer than many an answer
_SETTLED_NS = 2_000_000_000  # a file that changed so lately could change again within a tick of its file system's clock
_MAGIC = b"alltrace answer 1"


class Question:
    """A question that has been asked, with what its answer depends on.

    Args:
        arguments: All arguments of the command.
        run: The run directory among them.
        cache: The cache folder.
    """

    def __init__(self, arguments: Sequence[str], run: str, cache: str) -> None:
        self.run = os.path.realpath(run)
        self._folder = os.path.join(cache, _FOLDER)
        self._arguments = [self.run if a == run else a for a in arguments]
        self._state = self._look()
        self._pieces: list[str] = []
        self._room = MOST_BYTES

    def answer(self) -> tuple[str, str] | None:
        """What was written to standard output and standard error; None where it is not kept."""
        if self._state is None:
            return None
        path = self._path(self._state)
        try:
            with open(path, "rb") as file:
                found = _unpacked(file.read(), self._state)
            os.utime(path)
        except (OSError, ValueError):
            return None
        return found

    def copying(self, pieces: Iterable[str]) -> Iterator[str]:
        """The pieces of the answer, noted down as they pass."""
        for piece in pieces:
            self._room -= len(piece)
            if self._room >= 0:
                self._pieces.append(piece)
            else:
                self._pieces.clear()
            yield piece

    def keep(self, said: Sequence[str] = ()) -> None:
        """Keep the answer that was copied; does nothing where it is too long, the run changed meanwhile, or nothing can be written.

        Args:
            said: The lines written to standard error.
        """
        if self._state is None or self._room < 0 or self._state != self._look() or not _settled(self.run):
            return
        path = self._path(self._state)
        draft = f"{path}.{os.getpid()}.tmp"
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            with open(draft, "wb") as file:
                file.write(_packed(self._state, "".join(self._pieces), "".join(f"{line}\n" for line in said)))
            os.replace(draft, path)
            _shrink(self._folder)
        except OSError:  # a full disk, another process that tidies up: an answer less is kept
            _remove(draft)

    def _path(self, state: bytes) -> str:
        return os.path.join(self._folder, xxhash.xxh3_128_hexdigest(state))

    def _look(self) -> bytes | None:
        """All that the answer depends on; None where that is too much to look at."""
        code = _files(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), ".py")
        data = _files(self.run)
        if code is None or data is None:
            return None
        facts = (__version__, sys.version, self._arguments, _screen(), _digest(repr(code)), _digest(repr(data)))
        return repr(facts).encode("utf-8", "surrogatepass")


def question(arguments: Sequence[str]) -> Question | None:
    """What is asked, where an answer to it may be kept: by one of `VERBS`, of a run directory."""
    if not arguments or arguments[0] not in VERBS or "--no-kept" in arguments:
        return None
    if any(a.startswith(("-o", "--output")) for a in arguments):  # what is written to a file is not kept
        return None
    runs = {a for a in arguments[1:] if not a.startswith("-") and os.path.isfile(os.path.join(a, _MANIFEST))}
    cache = cache_among(arguments)
    if len(runs) != 1 or not cache:
        return None
    return Question(arguments, runs.pop(), cache)


def cache_among(arguments: Sequence[str]) -> str:
    """The cache folder that the arguments of a command name, else the user's; empty where its name is missing."""
    cache = cache_folder()
    for at, argument in enumerate(arguments):
        if argument.startswith("--cache-dir"):
            cache = argument.partition("=")[2] if "=" in argument else "".join(arguments[at + 1 : at + 2])
    return cache


def _files(folder: str, ending: str = "") -> list[tuple[str, int, int, int, int]] | None:
    """Name, size, inode and times of all files below a folder; None where they are too many or cannot be seen."""
    found: list[tuple[str, int, int, int, int]] = []
    waiting = [folder]
    try:
        while waiting:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir():
                        if entry.name != "__pycache__":
                            waiting.append(entry.path)
                    elif entry.name.endswith(ending):
                        s = entry.stat()
                        found.append((entry.path, s.st_size, s.st_ino, s.st_mtime_ns, s.st_ctime_ns))
            if len(found) > _MOST_FILES:
                return None
    except OSError:
        return None
    return sorted(found)


def _digest(text: str) -> str:
    digest: str = xxhash.xxh3_128_hexdigest(text.encode("utf-8", "surrogatepass"))
    return digest


def _settled(run: str) -> bool:
    latest = max((max(f[3:]) for f in _files(run) or ()), default=0)
    return time.time_ns() - latest > _SETTLED_NS


def _screen() -> str:
    """What a table is fitted to: nothing, or the terminal's width."""
    if not sys.stdout.isatty():
        return ""
    try:
        return f"{os.environ.get('COLUMNS', '')} {os.get_terminal_size(sys.stdout.fileno()).columns}"
    except (OSError, ValueError):
        return "?"


def _packed(state: bytes, out: str, err: str) -> bytes:
    parts = [state, out.encode("utf-8", "surrogatepass"), err.encode("utf-8", "surrogatepass")]
    sizes = " ".join(str(len(p)) for p in parts)
    return b"".join([_MAGIC, f" {sizes}\n".encode(), *parts])


def _unpacked(whole: bytes, state: bytes) -> tuple[str, str] | None:
    """The two texts; None where the file is not whole, or of another question.

    Raises:
        ValueError: It is none of these files.
    """
    head, _, rest = whole.partition(b"\n")
    if not head.startswith(_MAGIC):
        return None
    sizes = [int(n) for n in head[len(_MAGIC) :].split()]
    if len(sizes) != 3 or sum(sizes) != len(rest) or rest[: sizes[0]] != state:
        return None
    end = sizes[0] + sizes[1]
    return rest[sizes[0] : end].decode("utf-8", "surrogatepass"), rest[end:].decode("utf-8", "surrogatepass")


def _shrink(folder: str) -> None:
    """Remove the answers used longest ago until all take no more than `MOST_KEPT_BYTES`."""
    with os.scandir(folder) as entries:
        kept = [(s.st_mtime_ns, s.st_size, e.path) for e in entries for s in [e.stat()]]
    total = sum(size for _, size, _ in kept)
    for _, size, path in sorted(kept):
        if total <= MOST_KEPT_BYTES:
            return
        _remove(path)
        total -= size


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
