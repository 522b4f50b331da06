"""From files and folders to a copy that may be shared: what each is, in which order, and what is said of it."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from alltrace.capture.scrub import REPORTS, export_report, scrub
from alltrace.readers import kineto, rocpd
from alltrace.readers.text import TextLog
from alltrace.run.derived import draft_of
from alltrace.run.manifest import is_run
from alltrace.share.json_files import write_dump, write_trace
from alltrace.share.logs import is_log, write_log
from alltrace.share.runs import gather_run, write_run
from alltrace.share.words import Words
from alltrace.trace.errors import InputError, UsageError, printable
from alltrace.trace.number_text import counted
from alltrace.trace.scratch import scratch_folder

KINDS = (
    "a report of nsys or its SQLite export, a trace of PyTorch's profiler, a flight recorder dump, a run directory, "
    "or a log with lines of NCCL or of training steps"
)
_SQLITE = b"SQLite format 3\0"


class _Item(NamedTuple):
    path: Path  # what is copied
    within: Path  # where it is in what was named
    kind: str


def share(
    sources: Sequence[Path],
    target: Path,
    *,
    hide: Iterable[str] = (),
    drop_texts: bool = False,
    keep_payloads: bool = False,
    nsys: Callable[[], Path] | None = None,
) -> list[str]:
    """Write copies of files, folders and runs without what must not be shared; what was done, in sentences.

    `sources`: one, to which `target` is the copy, or several, which are copied into the folder `target`. `hide`: more words to
    replace. The others are as in `alltrace.capture.scrub.scrub`. Raises `InputError`: one cannot be scrubbed; nothing is left at
    `target` then. Raises `UsageError`: there is something at `target`, or two sources have one name.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} already exists; give another --output")
    items, summary = _items(sources)
    words = Words(hide)
    with scratch_folder("alltrace-share-") as scratch:
        for number, item in enumerate(items):
            if item.kind == "report":
                if nsys is None:
                    raise InputError(item.path, found="no nsys may run that exports it", advice="export it first")
                (folder := Path(scratch, str(number))).mkdir()
                items[number] = item._replace(path=export_report(item.path, nsys(), folder), kind="export")
        for item in items:
            if item.kind == "run":
                gather_run(item.path, words)
                continue
            for text in _texts(item):
                words.gather(text)
            if item.kind in ("export", "trace"):
                words.hosts(_hosts(item))
        words.number()
        with draft_of(target) as draft:
            for item in items:
                place = draft if item.within == Path() else draft / _renamed(item, words)
                place.parent.mkdir(parents=True, exist_ok=True)
                if place.exists():
                    raise UsageError(f"two files would be called {place.name}; scrub them one by one")
                removed = _write(item, place, words, drop_texts=drop_texts, keep_payloads=keep_payloads)
                summary.append(f"{printable(str(place.relative_to(draft)))}: {removed}" if place != draft else removed)
            if target.is_dir():
                target.rmdir()
    return [*summary, *_replaced(words)]


def _items(sources: Sequence[Path]) -> tuple[list[_Item], list[str]]:
    """What is copied, and sentences about what is not."""
    items: list[_Item] = []
    left_out: list[str] = []
    for source in sources:
        if source.is_dir() and not is_run(source):
            of_folder = dict(sorted(_in_folder(source)))
            exports = {path for path, kind in of_folder.items() if kind == "export"}
            for path, kind in of_folder.items():
                within = path.relative_to(source)
                if kind == "report" and path.with_suffix(".sqlite") in exports:
                    continue
                if kind is None:
                    left_out.append(str(within))
                else:
                    items.append(_Item(path, within if len(sources) == 1 else source.name / within, kind))
        elif (kind := _kind(source)) is None:
            raise InputError(source, found="it is of no kind that can be scrubbed", expected=KINDS)
        else:
            items.append(_Item(source, Path() if len(sources) == 1 else Path(source.name), kind))
    if not items:
        raise InputError(sources[0], found="there is nothing in it that can be scrubbed", expected=KINDS)
    return items, [f"left out, as they are of no kind that can be scrubbed: {printable(', '.join(left_out))}"] if left_out else []


def _in_folder(folder: Path) -> Iterator[tuple[Path, str | None]]:
    """The files and runs in a folder and in those in it; links are not followed."""
    for path in folder.iterdir():
        if path.is_symlink():
            yield path, None
        elif path.is_dir() and not is_run(path):
            yield from _in_folder(path)
        else:
            yield path, _kind(path)


def _kind(path: Path) -> str | None:
    if path.is_dir():
        return "run" if is_run(path) else None
    if path.suffix in REPORTS:
        return "report"
    with TextLog(path) as file:
        head = next(file.blocks(1 << 16), (b"", True))[0]
    if path.suffix == ".qdstrm" or head.startswith(_SQLITE) or path.suffix == ".sqlite":
        return None if rocpd.is_report(path) else "export"
    if kineto.is_report(path):
        return "trace"
    if head[:1] == b"\x80" or (head.lstrip()[:1] == b"{" and (b'"pg_config"' in head or b'"entries"' in head)):
        return "dump"
    return "log" if is_log(path) else None


def _texts(item: _Item) -> Iterator[bytes]:
    """The texts of a file in which names of hosts and users are looked for."""
    yield str(item.within).encode("utf-8", "surrogateescape")
    if item.kind != "export":
        with TextLog(item.path) as file:
            yield from (block for block, _whole in file.blocks())
        return
    with closing(sqlite3.connect(f"{item.path.absolute().as_uri()}?mode=ro", uri=True)) as database:
        for table in ("TARGET_INFO_SYSTEM_ENV", "META_DATA_CAPTURE", "StringIds"):
            for (value,) in _rows(database, f"SELECT CAST(value AS BLOB) FROM {table}"):
                yield bytes(value or b"")


def _hosts(item: _Item) -> Iterator[str]:
    if item.kind == "trace":
        from alltrace.readers.kineto.read import open_report

        with closing(open_report(item.path)) as reader:
            yield reader.report.host or ""
        return
    with closing(sqlite3.connect(f"{item.path.absolute().as_uri()}?mode=ro", uri=True)) as database:
        statement = "SELECT CAST(value AS TEXT) FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'Hostname'"
        yield from (name for (name,) in _rows(database, statement) if name)


def _rows(database: sqlite3.Connection, statement: str) -> Iterator[tuple[Any, ...]]:
    """The rows of an answer; none if the table is not there, or damaged, which who copies it says."""
    try:
        yield from database.execute(statement)
    except sqlite3.DatabaseError:
        return


def _renamed(item: _Item, words: Words) -> Path:
    within = item.within.with_suffix(".sqlite") if item.kind == "export" else item.within
    return Path(*(words(part) for part in within.parts))


def _write(item: _Item, target: Path, words: Words, *, drop_texts: bool, keep_payloads: bool) -> str:
    if item.kind == "export":
        return str(scrub(item.path, target, drop_texts=drop_texts, keep_payloads=keep_payloads, words=words))
    if item.kind == "run":
        payloads = write_run(item.path, target, words, drop_texts=drop_texts)
        return f"removed {counted(payloads, 'payload')}, notes, and what was derived from it"
    import pyarrow as pa

    with TextLog(item.path) as file:
        codec = file.codec if item.kind != "dump" else None
    with pa.output_stream(str(target), compression=codec) as output:
        if item.kind == "log":
            return f"emptied {counted(write_log(item.path, output, words), 'line')} that are neither NCCL's nor a training step's"
        if item.kind == "trace":
            left_out = write_trace(item.path, output, words, drop_texts=drop_texts)
        else:
            left_out = write_dump(item.path, output, words)
    return f"removed {counted(left_out.total(), 'member')} of events and metadata{_named(left_out)}"


def _named(left_out: Counter[str]) -> str:
    shown = [printable(name)[:40] for name, _ in left_out.most_common(8)]
    return f": {', '.join(shown)}{', ...' if len(left_out) > len(shown) else ''}" if shown else ""


def _replaced(words: Words) -> list[str]:
    counts = ", ".join(f"{kind} {number}" for kind, number in words.counts().items())
    return [
        f"replaced, equal ones alike: {counts or 'nothing'}",
        "kept: times, sizes, shapes, numbers of ranks, processes and threads; names of kernels, operators, functions, ranges and "
        "GPUs; GPU UUIDs; paths within installed packages and of the system",
    ]
