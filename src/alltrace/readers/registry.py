"""Which reader opens which report: a fixed list, tried in order, then those of other packages."""

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from alltrace.readers.base import ReportProcess, ReportReader
from alltrace.readers.heads import is_blank
from alltrace.trace.errors import AlltraceError, InputError

READERS = (
    "alltrace.readers.rocpd",  # before nsys, which takes any database called .db
    "alltrace.readers.nsys",
    "alltrace.readers.kineto",
    "alltrace.readers.memory_snapshot",
    "alltrace.readers.xplane",
    "alltrace.readers.step_record",
)
"""Packages with `is_report(path) -> bool`, which are light to import, and a module `read` with `open_report(path)`."""

_MADE_TO_READ = ("alltrace.readers.nsys", "alltrace.readers.rocpd")
"""Packages that make a database of some reports to read them; the others read what they get."""

NAMED = ("alltrace.readers.paraver", "alltrace.readers.chrome", "alltrace.readers.nccl_inspector")
"""Packages for files that alltrace itself wrote, and for files about operations that other reports describe too: in a
folder of reports they are not reports, so they are read only if named."""

ENTRY_POINTS = "alltrace.readers"  # the entry-point group by which other packages add such a package of theirs

KNOWN = (
    "an Nsight Systems report (.nsys-rep, .qdrep, .qdstrm) or its export (.sqlite, a _pqtdir folder), "
    "a PyTorch profiler trace (.json, .json.gz, .json.zst), a PyTorch memory snapshot (.pickle), an XProf trace "
    "(.xplane.pb), a record of steps (.steps), a rocprofv3 database (.db) or its .json, a .prv or .json that alltrace "
    "exported, or a verbose file of NCCL Inspector"
)


def is_report(path: Path) -> bool:
    """Whether some reader recognizes `path` as one of its reports, by its name and its first bytes."""
    return any(import_module(package).is_report(path) for package in READERS) or any(
        _module(package).is_report(path) for package in _added()
    )


def open_report(path: Path, known: Sequence[ReportProcess] = (), scratch: Path | None = None) -> ReportReader:
    """Open a report with the first reader that recognizes it. Raises `InputError`: none does, or it is damaged.

    `known`: its processes, if it was opened before and they have a `source_id`; they are not searched again. `scratch`:
    a folder of the caller's for what has to be made to read it, from which it can be opened again.
    """
    for package in (*READERS, *NAMED, *_added()):
        if _module(package).is_report(path):
            more: dict[str, Any] = {"known": known} if any(p.source_id is not None for p in known) else {}
            if scratch is not None and package in _MADE_TO_READ:
                more["scratch"] = scratch
            reader: ReportReader = _module(f"{package}.read").open_report(path, **more)
            return reader
    if not path.exists():
        raise InputError(path, found="there is no such file or folder")
    if path.is_file() and is_blank(path):
        raise InputError(path, found="it begins with zeros" if path.stat().st_size else "it is empty", expected=KNOWN)
    raise InputError(path, found="the format is not supported", expected=KNOWN)


@cache
def _added() -> tuple[str, ...]:
    """The packages of others."""
    from importlib.metadata import entry_points

    return tuple(sorted(e.value for e in entry_points(group=ENTRY_POINTS)))


def _module(name: str) -> Any:
    """A module of a reader. Raises `AlltraceError`: it is another package's, and cannot be loaded."""
    try:
        return import_module(name)
    except ImportError as error:
        if name.startswith("alltrace."):
            raise
        raise AlltraceError(
            f"reader {name} of another package cannot be loaded ({error}); reinstall that package"
        ) from error
