"""From what a user names (files, folders, patterns, URLs) to the reports of one job."""

import glob
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from alltrace.engine.tasks import run_tasks
from alltrace.readers.heads import is_blank
from alltrace.readers.registry import KNOWN, is_report
from alltrace.run.host_paths import HostPath, exists, host_path, naming_host, on_host, reachable
from alltrace.run.identity import natural_key, report_stem
from alltrace.run.manifest import is_run
from alltrace.trace.errors import InputError, UsageError, printable

Fetch = Callable[[Sequence[str]], Sequence[Path]]

_EXPORTS = (".sqlite", "_pqtdir")
TO_EXPORT = (".nsys-rep", ".qdrep", ".qdstrm")
"""Reports that only Nsight Systems can read, so that they are exported first."""
_URL = re.compile(r"[a-z][a-z0-9+.-]*(::[a-z][a-z0-9+.-]*)*://", re.IGNORECASE)


class NoReportError(InputError):
    """There is no report at the places that a user named."""


def find_reports(inputs: Sequence[str], fetch: Fetch | None = None) -> list[Path]:
    """The reports that `inputs` name, in natural order of their paths.

    A folder means the reports in it and below it; a text with `*`, `?` or `[` that is not a file means the paths it
    matches; a URL goes through `fetch`, and `HOST:/PATH` is looked up by a worker of the cluster on that host. Of a
    report and its own export side by side one is taken: the export, if it is whole. `inputs`: paths, patterns and URLs.
    `fetch`: brings what is at URLs onto this machine and returns the paths. Raises `InputError`: an input does not
    exist, or no report is found. Raises `UsageError`: an input is a run directory, or on a host without a worker.
    """
    paths: dict[Path, None] = {}
    urls = [text for text in inputs if is_url(text)]
    if urls and fetch is None:
        raise InputError(urls[0], found="it is a URL that cannot be opened here", expected="a local path")
    fetched = dict(zip(urls, fetch(urls) if fetch and urls else (), strict=True))
    places = {text: reachable(text) for text in inputs if text not in fetched}
    paths.update(dict.fromkeys(_reports_there([at for at in places.values() if at.host is not None])))
    for text in inputs:
        if text in fetched or places[text].host is None:
            for path in [fetched[text]] if text in fetched else _expand(str(places[text].path)):
                paths.update(dict.fromkeys(_reports_at(path)))
    # one report may be named twice, as itself and by its folder, or from here and from the root
    distinct = {_place(path): path for path in reversed(paths)}
    reports = _without_twins(list(distinct.values()))
    if not reports:
        raise NoReportError(inputs[0] if inputs else ".", found="no report in it", expected=KNOWN)
    return sorted(reports, key=lambda p: natural_key(str(p)))


def outdated(reports: Sequence[Path]) -> dict[Path, str]:
    """The exports among `reports` that are older than the rewritten report next to them, with its name."""
    names_beside = {}
    names: dict[Path, frozenset[str]] = {}
    there: dict[str, list[str]] = {}
    for path in reports:
        at = host_path(str(path))
        if at.host is not None:
            there.setdefault(at.host, []).append(str(at.path))
            continue
        if not path.name.lower().endswith(_EXPORTS):
            continue
        if path.parent not in names:
            try:
                names[path.parent] = frozenset(os.listdir(path.parent))  # noqa: PTH208  only names are needed
            except OSError:
                names[path.parent] = frozenset()
        stem = _stem(path.name)
        for name in (f"{stem}{suffix}" for suffix in TO_EXPORT):
            if name in names[path.parent] and _written(path) < _written(path.with_name(name)):
                names_beside[path] = name
    hosts = list(there)
    for outcome in run_tasks(_outdated_here, list(there.values()), hosts=hosts):
        names_beside.update({on_host(hosts[outcome.index], path): name for path, name in outcome.get().items()})
    return names_beside


def _outdated_here(reports: Sequence[str], _advance: Callable[[int], None]) -> dict[str, str]:
    return {str(path): name for path, name in outdated([Path(report) for report in reports]).items()}


def _reports_there(places: Sequence[HostPath]) -> list[Path]:
    """The reports that inputs on hosts name, found by a task on each host."""
    hosts = list(dict.fromkeys(at.host for at in places))
    items = [(host, [str(at.path) for at in places if at.host == host]) for host in hosts]
    outcomes = run_tasks(_reports_here, items, hosts=hosts)
    return [on_host(hosts[outcome.index], path) for outcome in outcomes for path in outcome.get()]


def _reports_here(item: tuple[str | None, Sequence[str]], _advance: Callable[[int], None]) -> list[str]:
    host, inputs = item
    with naming_host(host):
        return [str(path) for path in find_reports(inputs)]


def _written(path: Path) -> int:
    """When a file was written, ns; 0 for one that is gone."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def is_url(text: str) -> bool:
    """Whether `text` names something that fsspec opens rather than a local path."""
    return _URL.match(text) is not None and not exists(Path(text))


def _expand(text: str) -> list[Path]:
    path = Path(text)
    if exists(path):
        return [path]
    if any(c in text for c in "*?["):
        # also absolute and recursive patterns
        matches = [Path(p) for p in sorted(glob.glob(text, recursive=True))]  # noqa: PTH207
        if matches:
            return matches
        raise InputError(text, found="nothing matches this pattern", expected=KNOWN)
    raise InputError(text, found="there is no such file or folder", expected=KNOWN)


def _place(path: Path) -> Path:
    """The location of a path, independent of how its folder is spelled."""
    return path.parent.resolve() / path.name


def _reports_at(path: Path) -> list[Path]:
    if is_run(path):
        raise UsageError(
            f"{printable(str(path))} is a run directory already; expected reports, or a single run directory"
        )
    if not path.is_file() and not path.is_dir():  # a pipe is never read: its writer may never end
        raise InputError(path, found="it is not a regular file", expected=KNOWN, advice="save it to a file first")
    if path.is_file() or is_report(path):
        return [path]
    try:
        return list(_walk(path))
    except OSError as error:
        raise InputError.cannot_be("listed", path, error, what="the folder") from error


def _walk(folder: Path) -> list[Path]:
    reports: list[Path] = []
    blank: list[Path] = []
    for entry in sorted(folder.iterdir(), key=lambda p: natural_key(p.name)):
        if entry.name.startswith(".") or is_run(entry) or not (entry.is_file() or entry.is_dir()):
            continue
        if is_report(entry):
            reports.append(entry)
        elif entry.is_dir() and not entry.is_symlink():
            reports.extend(_walk(entry))
        elif entry.is_file() and is_blank(entry):
            blank.append(entry)
    # among reports, a file with the end of their names that holds nothing is one that was not written to its end
    ends = {_end(path) for path in reports if path.parent == folder} - {""}
    return [*reports, *(path for path in blank if _end(path) in ends)]


def _end(path: Path) -> str:
    return path.name[len(report_stem(path.name)) :].lower()


def _without_twins(paths: list[Path]) -> list[Path]:
    """`paths` without reports that have a complete export, broken exports that have a report, and second exports."""
    by_stem: dict[tuple[Path, str], list[Path]] = {}
    for path in paths:
        by_stem.setdefault((_place(path).parent, _stem(path.name)), []).append(path)
    return [_best(twins) if len(twins) > 1 else twins[0] for twins in by_stem.values()]


def _best(twins: list[Path]) -> Path:
    def worth(path: Path) -> int:
        name = path.name.lower()
        if name.endswith(".sqlite"):
            return 0 if _looks_whole(path) else 9
        return 1 + [*_EXPORTS, *TO_EXPORT].index(_suffix(name) or ".qdstrm")

    return min(twins, key=worth)


def _looks_whole(path: Path) -> bool:
    """Whether an SQLite file has its magic and as many bytes as its header's pages; a killed export has not."""
    try:
        with path.open("rb") as file:
            head = file.read(100)
        size = path.stat().st_size
    except OSError:
        return False
    if len(head) < 100 or not head.startswith(b"SQLite format 3\x00"):
        return False
    page = int.from_bytes(head[16:18], "big")
    page = 65536 if page == 1 else page
    return size >= page * int.from_bytes(head[28:32], "big")


def _suffix(name: str) -> str:
    return next((s for s in (*_EXPORTS, *TO_EXPORT) if name.lower().endswith(s)), "")


def _stem(name: str) -> str:
    return name[: len(name) - len(_suffix(name))]
