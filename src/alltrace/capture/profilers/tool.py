"""An installed profiler: where it is, and which switches it supports, queried once and cached."""

from __future__ import annotations

import os
import re
import shutil
from binascii import crc32
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from alltrace.trace.cache_dir import default_folder, own_folder
from alltrace.trace.errors import AlltraceError, UsageError

_VERSION = re.compile(r"(?:Version|version)\s+(\d{4})\.(\d+)\.(\d+)")
_SWITCH = re.compile(r"(?<![\w-])--?[A-Za-z][A-Za-z0-9-]*")
_LIMIT_S = 60
PLACES: dict[str, tuple[str, ...]] = {
    "nsys": (
        "/opt/nvidia/nsight-systems*/*/bin",
        "/opt/nvidia/nsight-systems/*/target-linux-*",
        "/usr/local/cuda*/bin",
    ),
    "ncu": ("/opt/nvidia/nsight-compute/*", "/usr/local/cuda*/bin"),
}


class Tool(NamedTuple):
    path: Path  # the program
    version: tuple[int, int, int]  # year, release and patch, such as (2023, 4, 4); (0, 0, 0) if it does not say
    switches: frozenset[str]  # every switch that its help names, with the dashes
    help: str  # the whole text of its help

    def first_of(self, *switches: str) -> str | None:
        return next((s for s in switches if s in self.switches), None)

    @property
    def label(self) -> str:
        return f"{self.path.name} {'.'.join(map(str, self.version))}"


def locate(name: str, option: str | None = None) -> Path:
    """The program called `name`: as passed, from `ALLTRACE_NSYS` or `ALLTRACE_NCU`, on the path, or the newest."""
    variable = f"ALLTRACE_{name.upper()}"
    named = option or os.environ.get(variable)
    if named:
        path = Path(named)
        path = path / name if path.is_dir() else path
        program = shutil.which(path)
        if program is None:
            where = f"--{name}" if option else variable
            raise UsageError(f"{where} is {named}, which cannot be run; expected the program {name} or its folder")
        return Path(program)
    program = shutil.which(name)
    if program:
        return Path(program)
    everywhere = [p / name for place in PLACES[name] for p in Path("/").glob(place[1:]) if os.access(p / name, os.X_OK)]
    if not everywhere:
        raise UsageError(
            f"{name} was not found on this machine; put it on PATH, or give its path with --{name} or {variable}"
        )
    return max(everywhere, key=lambda p: [int(n) for n in re.findall(r"\d+", str(p))])


def ask(path: Path, *, arguments: tuple[str, ...]) -> Tool:
    """What the program at `path` knows, from its `--version` and its help; remembered in the user's cache folder."""
    question, memory = _memory(path, arguments)
    if memory is not None:
        with suppress(OSError, ValueError):
            remembered, version, help_text = memory.read_text(encoding="utf-8").split("\0")
            if remembered == question:
                return _tool(path, version, help_text)
    version, help_text = _output_of(path, "--version"), _output_of(path, *arguments)
    if memory is not None:
        with suppress(OSError):
            memory.parent.mkdir(exist_ok=True)
            mine = memory.with_suffix(f".{os.getpid()}")
            mine.write_text("\0".join((question, version, help_text)), encoding="utf-8")
            mine.replace(memory)
    return _tool(path, version, help_text)


def _tool(path: Path, version_text: str, help_text: str) -> Tool:
    match = _VERSION.search(version_text)
    version = (int(match[1]), int(match[2]), int(match[3])) if match else (0, 0, 0)
    return Tool(path, version, frozenset(_SWITCH.findall(help_text)), help_text)


def _memory(path: Path, arguments: tuple[str, ...]) -> tuple[str, Path | None]:
    """The key of this program, and the file that caches its answers; None if there is no such place."""
    try:
        real = path.resolve()
        facts = real.stat()
    except OSError:
        return "", None
    key = f"{real}\n{facts.st_size}\n{facts.st_mtime_ns}\n{' '.join(arguments)}"
    try:
        folder = own_folder(default_folder())
    except AlltraceError:
        return key, None
    # the file repeats the question, so two with one name only ask again
    return key, folder / "tools" / f"{path.name}-{crc32(os.fsencode(key)):08x}.txt"


def _output_of(path: Path, *arguments: str) -> str:
    import subprocess  # queried once for each installed version

    try:
        done = subprocess.run(
            [str(path), *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{path} {' '.join(arguments)} does not run ({error}); check the installation") from error
    return done.stdout + done.stderr
