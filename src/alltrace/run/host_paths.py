"""Reports on a disk of one host, named as `HOST:/PATH`: workers of a cluster on that host read them where they are."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from alltrace.engine.tasks import remote
from alltrace.trace.errors import InputError, UsageError, printable

_HOSTED = re.compile(r"(?P<host>[A-Za-z0-9][A-Za-z0-9._-]*):(?P<path>/(?!/).*)", re.DOTALL)


class HostPath(NamedTuple):
    """Where a report is."""

    host: str | None  # the only host that has it; None if all of them see it
    path: Path


def host_path(text: str) -> HostPath:
    """Where the report called `text` is; what exists here under that very name is no `HOST:/PATH`."""
    match = _HOSTED.fullmatch(text)
    if match is None or exists(Path(text)):
        return HostPath(None, Path(text))
    return HostPath(match["host"], Path(match["path"]))


def reachable(text: str) -> HostPath:
    """As `host_path`, for an input. Raises `UsageError`: it is on another host, and no cluster was chosen."""
    at = host_path(text)
    if at.host is None or remote():
        return at
    from alltrace.engine.seen import host_names

    if at.host in host_names():
        return HostPath(None, at.path)
    raise UsageError(
        f"{printable(text)}: this report is on the host {at.host}; give --dask, --slurm or --pbs with a worker there, "
        "or run `alltrace import REPORT --part -o RUN` on that host"
    )


def on_host(host: str | None, path: str | Path) -> Path:
    """The name of a report with a known path on a host."""
    return Path(path) if host is None else Path(f"{host}:{path}")


@contextmanager
def naming_host(host: str | None) -> Iterator[None]:
    """A block on the host that has a report: its errors name the host too."""
    try:
        yield
    except InputError as error:
        if host is None:
            raise
        raise type(error)(
            f"{host}:{error.path}", found=error.found, expected=error.expected, advice=error.advice
        ) from error


def exists(path: Path) -> bool:
    """Whether something is at `path`; a text too long for a path, or below a folder without access, does not count."""
    try:
        return path.exists()
    except OSError:
        return False
