"""From files and folders to a copy that may be shared: what each is, in which order, and what is said of it."""

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from alltrace.capture.scrub import KEPT_VARIABLES, REPORTS, export_report, scrub
from alltrace.capture.scrub_payloads import nccl_fields
from alltrace.readers import kineto, rocpd
from alltrace.readers.nccl_log import grammar as g
from alltrace.readers.text import TextLog
from alltrace.readers.training_log.formats import parse, parse_list
from alltrace.run.checksums import FILES, LOGS, LOGS_RECORD, CheckedFiles, checksum, checksums, recorded
from alltrace.run.derived import draft_of
from alltrace.run.json_files import read_json, write_json
from alltrace.run.manifest import MANIFEST, NAMES, RANK_RECORD, is_run, plain, read_manifest
from alltrace.run.parquet import ORDER_KEY
from alltrace.share.json_files import write_dump, write_trace
from alltrace.share.words import Words
from alltrace.trace.errors import InputError, UsageError, printable
from alltrace.trace.names import name_id
from alltrace.trace.number_text import counted
from alltrace.trace.schema import TABLES
from alltrace.trace.scratch import scratch_folder

_SAYS_NOTHING: dict[str, Any] = {"job": None, "revision": None, "tags": []}


def gather_run(run: Path, words: Words) -> None:
    """Take note of the hosts of a run, and of users in its names."""
    manifest = read_manifest(run)
    words.hosts(manifest.hosts)
    for text in _names(run)["value"].to_pylist():
        words.gather(str(text).encode("utf-8", "replace"))
    words.gather(json.dumps(plain(manifest)).encode())


def write_run(run: Path, target: Path, words: Words, *, drop_texts: bool) -> int:
    """Write a run directory; how many payloads were left out."""
    facts = plain(read_manifest(run))
    texts = _names(run).to_pylist()
    renamed = {row["value"]: new for row in texts if (new := words(row["value"])) != row["value"]}
    if drop_texts:
        renamed |= {text: words.instead("range", text) for text in _texts_of_ranges(run, facts, texts)}
    target.mkdir(parents=True)
    _copy(CheckedFiles(run, facts[FILES]), NAMES, target / NAMES, words, renamed)
    payloads = 0
    for record in facts["ranks"]:
        folder = f"ranks/rank={record['rank']}"
        files = recorded(run / folder, RANK_RECORD)
        payloads += sum(_copy(files, name, target / folder / name, words, renamed) for name in files.expected)
        whole = words.inside(read_json(run / folder / RANK_RECORD))
        write_json(target / folder / RANK_RECORD, {**whole, FILES: checksums(target / folder, RANK_RECORD)})
    if (run / LOGS).is_dir():
        files = recorded(run / LOGS, LOGS_RECORD)
        payloads += sum(_copy(files, name, target / LOGS / name, words, renamed) for name in files.expected)
        write_json(target / LOGS / LOGS_RECORD, {FILES: checksums(target / LOGS, LOGS_RECORD)})
    for report in facts["reports"]:
        report["environment"] = {
            k: v for k, v in report["environment"].items() if k in KEPT_VARIABLES and v.isdecimal()
        }
    facts |= {"labels": _SAYS_NOTHING, FILES: {NAMES: checksum(target / NAMES)}}
    write_json(target / MANIFEST, words.inside(facts))
    return payloads


def _names(run: Path) -> Any:
    return pq.read_table(CheckedFiles(run, read_manifest(run).files).path(NAMES))


def _texts_of_ranges(run: Path, facts: dict[str, Any], names: list[dict[str, Any]]) -> Iterator[str]:
    """The texts of ranges and marks, but for NCCL's."""
    ids: set[int] = set()
    for record in facts["ranks"]:
        for table in ("ranges", "marks"):
            if (path := run / f"ranks/rank={record['rank']}" / f"{table}.parquet").is_file():
                ids.update(pq.read_table(path, columns=["name"])["name"].unique().to_pylist())
    return (row["value"] for row in names if row["id"] in ids and not row["value"].startswith(("nccl", "ProfilerStep")))


def _copy(files: CheckedFiles, name: str, target: Path, words: Words, renamed: dict[str, str]) -> int:
    """Write a file of a run; how many payloads were left out."""
    # an id is a hash of its text, which can be guessed
    ids = {name_id(old): name_id(new) for old, new in renamed.items()}
    target.parent.mkdir(parents=True, exist_ok=True)
    source = files.path(name)
    if target.suffix != ".parquet":
        write_json(target, words.inside(read_json(source)))
        return 0
    if target.name == NAMES:
        before = pq.read_table(source)
        texts = [renamed.get(text, text) for text in before["value"].to_pylist()]
        pq.write_table(
            pa.table([list(map(name_id, texts)), texts], before.schema).sort_by("id"), target, compression="zstd"
        )
        return 0
    payloads = 0
    table = TABLES.get(target.stem)
    of_names = () if table is None else table.name_columns()
    with pq.ParquetFile(source) as file, pq.ParquetWriter(target, file.schema_arrow, compression="zstd") as writer:
        order = (file.metadata.metadata or {}).get(ORDER_KEY)
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group)
            for number, field in enumerate(rows.schema):
                column = rows.column(number)
                if field.name in of_names and ids:
                    column = _each(column, lambda old: ids.get(old, old))
                elif field.name == "payload":
                    before = column.null_count
                    column = _each(column, nccl_fields)
                    payloads += column.null_count - before
                elif pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
                    column = _each(column, words)
                rows = rows.set_column(number, field, column)
            writer.write_table(rows, row_group_size=max(1, rows.num_rows))
        if order is not None:
            writer.add_key_value_metadata({ORDER_KEY: order})
    return payloads


def _each(column: Any, change: Any) -> Any:
    encoded = (
        column.combine_chunks().dictionary_encode() if column.num_chunks != 1 else column.chunk(0).dictionary_encode()
    )
    values = pa.array([None if v is None else change(v) for v in encoded.dictionary.to_pylist()], column.type)
    return values.take(encoded.indices)


_TIME = re.compile(rb"\d\d:\d\d:\d\d|\d{10}")
_PART_OF_CALL = re.compile(rb"(?:\S*\s){0,40}?(?:stream|comm|datatype|recvbuff) (?:0x[0-9a-f]+|\(nil\)|\d+)")
_QUOTED = re.compile(r"([\"'])(?![\s\d.eE%+-]*\1)(?:(?!\1)[^:=]){0,400}\1(?!\s*:)")
_POD = re.compile(r"\[pod/[^\]]*\]")
_WORDY = re.compile(r"(?<=\|)([^|:]{0,80}:)\s*(?![\s\d.,+-]|nan|inf)[^|]*")
_SET_TO = re.compile(r"(set by environment to )(?![\w.,:^=+-]{1,24}\s*$).*", re.DOTALL)


def is_log(path: Path) -> bool:
    """Whether some line near the beginning is NCCL's or a training step's."""
    with TextLog(path) as log:
        block = next(log.blocks(), (b"", True))[0]
    return b"\0" not in block[:4096] and any(_line(line, str) is not None for line in block.splitlines())


def write_log(source: Path, target: IO[bytes], words: Words) -> int:
    """Write a log with the same number of lines; how many of them are empty now."""
    emptied = 0
    with TextLog(source) as log:
        for block, _whole in log.blocks():
            for line in block.splitlines(keepends=True):
                bare = line.rstrip(b"\r\n")
                text = _line(bare, words)
                emptied += text is None and bool(bare.strip())
                target.write((text or "").encode("utf-8", "surrogateescape") + line[len(bare) :])
    return emptied


def _line(raw: bytes, words: Callable[[str], str]) -> str | None:
    line = g.ANSI.sub(b"", raw)
    head = g.HEADER.search(line) if b" NCCL " in line else None
    if head is not None:
        record = _lead(line[: head.start()]) + line[head.start() :]
        return words(_SET_TO.sub(r"\1(removed)", record.decode("utf-8", "surrogateescape")))
    version = g.VERSION.search(line)
    if version is not None:
        return version[0].decode("utf-8", "surrogateescape")
    text = line.decode("utf-8", "surrogateescape")
    if parse(text, ()) is not None or parse_list(text) or g.STEP.search(line):
        return _WORDY.sub(r"\1 0", _QUOTED.sub('""', words(_POD.sub("", text))))
    part = _PART_OF_CALL.match(line)  # of a call that another process's output interrupted
    return line[part.start() :].decode("utf-8", "surrogateescape") if part is not None else None


def _lead(lead: bytes) -> bytes:
    """Of what a launcher put before a line: times, and numbers of ranks."""
    units, at = [], 0
    while (unit := g.PREFIX_UNIT.match(lead, at)) is not None and unit.end() > at:
        units += [unit[0]] if unit.lastgroup or _TIME.search(unit[0]) or unit[0].isspace() else []
        at = unit.end()
    return b"".join(units)


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
    """Write copies of files, folders and runs without what must not be shared; what was done, in sentences."""
    # `sources`: one, to which `target` is the copy, or several, which are copied into the folder `target`. `hide`:
    # more words to replace. The others are as in `alltrace.capture.scrub.scrub`.
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
    return items, (
        [f"left out, as they are of no kind that can be scrubbed: {printable(', '.join(left_out))}"] if left_out else []
    )


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
            return (
                f"emptied {counted(write_log(item.path, output, words), 'line')} that are neither NCCL's nor a training"
                " step's"
            )
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
        (
            "kept: times, sizes, shapes, numbers of ranks, processes and threads; names of kernels, operators,"
            " functions, ranges and GPUs; GPU UUIDs; paths within installed packages and of the system"
        ),
    ]
