"""Runs made on the fly from reports, kept in a folder by the content of the reports, up to a size.

The key of a run is a hash of its reports' names and contents, so a report that was rewritten is imported again and one
that was only moved is not. All questions share that one run, which has all tables, regardless of the first question. A
run in the cache never changes once it is whole, because another process may be reading it; the least recently used one
is removed first when space is needed.

Hashing gigabytes at every command would take longer than the answer, so, as git does for its index, the hash of a file
is remembered with its size, inode and times, and read again only when one of these changed.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from alltrace.engine.tasks import remote, run_tasks
from alltrace.readers.registry import open_report
from alltrace.run.derived import draft_of, locked, remove_drafts
from alltrace.run.discover import find_reports, outdated
from alltrace.run.host_paths import host_path
from alltrace.run.import_progress import Watcher
from alltrace.run.json_files import read_json, write_json
from alltrace.run.manifest import MANIFEST, Manifest, is_run, read_manifest
from alltrace.run.report_hash import Content, Stamps, content_hash, file_stamps
from alltrace.run.shared_place import shared_place
from alltrace.run.stated_ranks import StatedRank, stated_ranks
from alltrace.trace.cache_dir import default_folder, own_folder, unwritable
from alltrace.trace.errors import AlltraceError, InputError, StrictError, printable
from alltrace.trace.kernel_rules import KernelRules

DEFAULT_SIZE_BYTES = 20 << 30
_SIZE_VARIABLE = "ALLTRACE_CACHE_BYTES"
_RUNS = "runs"
_FETCHED = "fetched"
_HASHES = "hashes.json"
_VERSIONS = tuple("mtime created modified updated last_modified LastModified ETag etag md5Hash CRC".split())
"""What the file systems of fsspec call that which changes with a file."""
_SETTLED_NS = 2_000_000_000


def imported_once(
    inputs: Sequence[str],
    *,
    cache_dir: Path | None = None,
    jobs: int | None = None,
    strict: bool = False,
    rules: KernelRules | None = None,
    watcher: Watcher | None = None,
    rank_from: str | None = None,
) -> Path:
    """The run directory in the cache that is made from the reports in `inputs`; errors as of `resolve.resolve`."""
    folder = cache_dir or default_folder()
    with shared_place(folder):
        reports = find_reports(inputs, lambda urls: fetch_all(urls, folder))
        try:
            (own_folder(folder) / _RUNS).mkdir(exist_ok=True)
            key, contents = _key(_Hashes(folder / _HASHES), reports, rules, *stated_ranks(reports, rank_from))
            with locked(_lock(folder / _RUNS, key)):
                run, manifest = _place(folder / _RUNS, key)
                if manifest is not None:
                    unread = next((r.error for r in manifest.reports if r.error), None)
                    if strict and unread:
                        raise StrictError(unread)
                    os.utime(run / MANIFEST)
                    return run
                from alltrace.run.importer import import_reports  # a run that is there needs none of what it loads

                import_reports(
                    [str(r) for r in reports],
                    run,
                    jobs=jobs,
                    strict=strict,
                    rules=rules,
                    watcher=watcher,
                    known=contents,
                    rank_from=rank_from,
                )
            _shrink(folder, keep=key)
        except OSError as error:
            raise unwritable(folder, error) from error
        return run


def fetch_all(urls: Sequence[str], folder: Path) -> list[Path]:
    """Bring the reports, or folders of reports, at `urls` into the cache and return their paths.

    Files of one remote folder are in one folder here too: reports of one process are recognized by that.
    Raises `InputError`: nothing is there, fsspec lacks what it takes to open it, or the cache cannot be used.
    """
    with shared_place(own_folder(folder)):
        outcomes = run_tasks(partial(_fetched, folder), urls, jobs=None if remote() else 1)
        places = {urls[outcome.index]: outcome.get() for outcome in outcomes}
    beside: dict[str, list[str]] = {}
    for url, place in places.items():
        if place.is_file():
            beside.setdefault(_remote_folder(url), []).append(url)
    for together in beside.values():
        if len(together) > 1 and len({places[url].name for url in together}) == len(together):
            places.update(zip(together, _in_one_folder([places[url] for url in together], folder), strict=True))
    return [places[url] for url in urls]


def _fetched(folder: Path, url: str, _advance: Callable[[int], None]) -> Path:
    return fetch(url, folder)


def _remote_folder(url: str) -> str:
    """The folder that the file of a URL is in: without its name and a signature, but with all that follows `::`."""
    first, chain, rest = url.partition("::")
    if first.startswith(("http://", "https://")):
        first = first.partition("#")[0].partition("?")[0]
    return first.rpartition("/")[0] + chain + rest


def _in_one_folder(files: Sequence[Path], folder: Path) -> list[Path]:
    """The same fetched files in a separate folder, as links that take no space."""
    stamp = blake2b(json.dumps(sorted(file.parent.name for file in files)).encode(), digest_size=12).hexdigest()
    place = folder / _FETCHED / stamp
    try:
        place.mkdir(exist_ok=True)
        for file in files:
            with suppress(FileExistsError):
                os.link(file, place / file.name)
        os.utime(place)
    except OSError as error:
        raise unwritable(folder, error) from error
    return [place / file.name for file in files]


def fetch(url: str, folder: Path) -> Path:
    """Bring the report, or folder of reports, at `url` into the cache and return its path; errors as of `fetch_all`."""
    import fsspec

    own_folder(folder)
    try:
        system, remote = fsspec.core.url_to_fs(url)
        details = system.info(remote)
        folder_there = details.get("type") == "directory"
        files = system.find(remote, detail=True) if folder_there else {remote: details}
        facts = [(path, d.get("size"), [str(d[v]) for v in _VERSIONS if v in d]) for path, d in sorted(files.items())]
        stamp = blake2b(json.dumps([url, facts]).encode(), digest_size=12).hexdigest()
        name = _name(remote)
        place = folder / _FETCHED / stamp / (name if name not in ("", "..") else "report")
        if not place.exists():
            _download(system, remote, place, whole_folder=folder_there)
        os.utime(place.parent)
    except Exception as error:
        what = printable(str(error) or type(error).__name__)
        raise InputError(
            url, found=f"it cannot be fetched ({what})", advice="check the URL, or copy the reports to this machine"
        ) from error
    return place


def _name(remote: str) -> str:
    """The name of the file or folder; for a web address without the part after it, such as a signature."""
    if remote.startswith(("http://", "https://")):
        remote = remote.partition("#")[0].partition("?")[0]
    return Path(remote.rstrip("/")).name


def _download(system: Any, remote: str, place: Path, *, whole_folder: bool) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    remove_drafts(place)
    try:
        with draft_of(place) as draft:
            if whole_folder:
                system.get(remote, str(draft), recursive=True)
            else:  # `get` takes a name with ? or * for a pattern
                system.get_file(remote, str(draft))
    except OSError:
        if not place.exists():  # else another process brought the same folder first
            raise


def _key(
    hashes: "_Hashes",
    reports: Sequence[Path],
    rules: KernelRules | None,
    stated: Mapping[Path, StatedRank],
    notes: Sequence[str],
) -> tuple[str, dict[str, Content]]:
    """The name of the run made from `reports`, by names (which can tell ranks) and contents; and the contents."""
    from alltrace import __version__

    digest = blake2b(digest_size=16)
    digest.update(f"{__version__}\0{rules.fingerprint if rules else ''}".encode())
    folders: dict[Path, int] = {}
    old = outdated(reports)
    digests = hashes.of(reports)
    for report in reports:
        # which reports are in one folder counts, because capture ranges of one process are
        number = folders.setdefault(report.absolute().parent, len(folders))
        name = report.name.encode("utf-8", "surrogateescape")
        digest.update(b"%d\0%s\0%s\0" % (number, name, digests[report].encode()))
        if report in stated:
            digest.update(repr(stated[report]).encode() + b"\0")
        if report in old:  # the run warns of it
            digest.update(b"old\0")
    digest.update("".join(notes).encode("utf-8", "surrogateescape"))
    hashes.save()
    return digest.hexdigest(), {str(r): known for r in reports if (known := hashes.known(r)) is not None}


class _Hashes:
    """Content hashes by path, stored with what shows that a file is still the same."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._changed = False
        self._known: dict[str, Any] = {}
        with suppress(AlltraceError):
            self._known = read_json(path)

    def of(self, reports: Sequence[Path]) -> dict[Path, str]:
        """The content hash of each report; `unreadable` if it cannot be read, which the import will say more about."""
        digests = dict.fromkeys(reports, "unreadable")
        known = {report: self.known(report) for report in reports}
        items = [(str(report), content and content.stamps) for report, content in known.items()]
        hosts = [host_path(text).host for text, _ in items]
        for outcome in run_tasks(_looked_at, items, jobs=None if remote() else 1, hosts=hosts):
            report, (stamp, digest) = reports[outcome.index], outcome.get()
            if digest is not None:
                digests[report] = digest
            elif stamp is not None and (content := known[report]) is not None:
                digests[report] = content.digest
            if (
                stamp is not None
                and digest is not None
                and time.time_ns() - max(max(s[2:]) for s in stamp) > _SETTLED_NS
            ):
                # a file younger than the clock's grain could change again without its times showing it
                self._known[_named(report)] = [stamp, digest]
                self._changed = True
        return digests

    def known(self, report: Path) -> Content | None:
        """The content of a report with the hash from `of`; None if the file could have changed since without a sign."""
        known = self._known.get(_named(report))
        if not isinstance(known, list) or len(known) != 2:
            return None
        return Content(tuple(tuple(int(n) for n in s) for s in known[0]), str(known[1]))

    def save(self) -> None:
        if self._changed:
            with suppress(OSError):
                write_json(
                    self._path,
                    {k: v for k, v in self._known.items() if host_path(k).host is not None or Path(k).exists()},
                    lasting=False,
                )


def _named(report: Path) -> str:
    return str(report if host_path(str(report)).host is not None else report.absolute())


def _looked_at(item: tuple[str, Stamps | None], _advance: Callable[[int], None]) -> tuple[Stamps | None, str | None]:
    """A report's stamps and, where they are not the known ones, its content hash; None for what cannot be read."""
    text, known = item
    path = host_path(text).path
    try:
        stamp = file_stamps(path)
        return stamp, None if stamp == known else content_hash(path)[1]
    except (OSError, AlltraceError):
        return None, None


def _place(folder: Path, key: str) -> tuple[Path, Manifest | None]:
    """Where the run with `key` is, with its facts; or without them where it is to be made or finished.

    A report that no reader could open may be readable now, with an nsys on the PATH for instance: then another run is
    created in addition.
    """
    run, number = folder / key, 0
    while (manifest := _whole(run)) is not None and _can_read_more(manifest):
        number += 1
        run = folder / f"{key}.{number}"
    return run, manifest


def _can_read_more(manifest: Manifest) -> bool:
    return any(r.error and not r.format and _opens(Path(r.path)) for r in manifest.reports)


def _whole(run: Path) -> Manifest | None:
    """The facts of a run that was imported to its end."""
    with suppress(AlltraceError):
        manifest = read_manifest(run)
        if manifest.complete:
            return manifest
    return None


def _opens(report: Path) -> bool:
    try:
        open_report(report).close()
    except AlltraceError:
        return False
    return True


def _lock(folder: Path, key: str) -> Path:
    return folder / f".{key.partition('.')[0]}.lock"


def _shrink(folder: Path, keep: str) -> None:
    """Remove the runs and fetched reports used longest ago until the cache is below its size; the run `keep` stays."""
    try:
        limit = int(os.environ.get(_SIZE_VARIABLE, DEFAULT_SIZE_BYTES))
    except ValueError:
        limit = DEFAULT_SIZE_BYTES
    entries = []
    for entry in [p for part in (_RUNS, _FETCHED) for p in (folder / part).glob("*") if p.is_dir()]:
        with suppress(OSError):  # another process removed it meanwhile
            size = sum(p.stat().st_size for p in entry.rglob("*") if p.is_file())
            fetched = entry.parent.name == _FETCHED
            used = entry.stat().st_mtime if fetched else (entry / MANIFEST).stat().st_mtime if is_run(entry) else 0.0
            entries.append((used, size, entry))
    total = sum(size for _, size, _ in entries)
    for _, size, entry in sorted(entries):
        if total <= limit:
            return
        if entry.name.partition(".")[0] != keep and _remove_unless_locked(entry):
            total -= size


def _remove_unless_locked(entry: Path) -> bool:
    if entry.parent.name == _FETCHED:
        shutil.rmtree(entry, ignore_errors=True)
        return True
    with locked(_lock(entry.parent, entry.name), wait=False) as holds:
        if not holds:
            return False
        # the manifest first: what is removed only in part must not look whole
        (entry / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(entry, ignore_errors=True)
    return True
