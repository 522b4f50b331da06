"""`alltrace nsys export`: a report or its export as SQLite, Parquet or Arrow, with NVIDIA's tables and names."""

from __future__ import annotations

import shutil
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from alltrace.cli.nsys.arguments import RefusedError, Switch, help_text, parse
from alltrace.trace.errors import EXIT_DONE, InputError, UsageError, printable
from alltrace.trace.scratch import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from alltrace.cli.nsys.arguments import Parsed
    from alltrace.export.nsys_tables import Kind

COMMAND = "nsys export"
REPORT_ENDINGS = (".nsys-rep", ".qdrep")
_DEFAULT_ENDINGS = {"sqlite": ".sqlite", "arrow": ".arrows", "arrowdir": "_arwdir", "parquetdir": "_pqtdir"}
_LEFT_OUT = {
    "text": "text exports end with Nsight Systems 2025.6",
    "json": "JSON exports of events change with every version; `alltrace export chrome` writes JSON that viewers read",
    "jsonlines": "`alltrace export chrome` writes JSON that viewers read",
    "hdf": "Parquet holds the same tables",
    "info": "`alltrace info` says what a report holds",
}
_FORWARDED = ("times", "ts-normalize", "ts-shift", "lazy", "include-blobs", "include-json")
"""Options that only the nsys that reads a report can follow."""

SWITCHES = (
    Switch("append", "", "flag", "keep existing files of a folder, and add the others"),
    Switch("force-overwrite", "f", "truth", "replace existing output", "true|false"),
    Switch("help", "h", "flag", "show this help"),
    Switch("include-blobs", "", "value", "for a report: also export binary payloads", "true|false"),
    Switch("include-json", "", "value", "for a report: also export payloads as JSON", "true|false"),
    Switch("lazy", "l", "value", "for a report: leave out tables without rows", "true|false"),
    Switch("output", "o", "value", "the file or folder; default: the input's name with another extension", "PLACE"),
    Switch("quiet", "q", "truth", "print errors only", "true|false"),
    Switch("separate-strings", "", "value", "for text and JSON, which are not supported", "true|false"),
    Switch(
        "tables",
        "",
        "list",
        "only these tables: basic regular expressions of whole names, case-insensitive",
        "PATTERN[,PATTERN]",
    ),
    Switch("times", "", "list", "for a report: only these times", "[:][START]/[END][:]"),
    Switch("ts-normalize", "", "value", "for a report: times since 1970, UTC", "true|false"),
    Switch("ts-shift", "", "value", "for a report: add this many ns to all times", "NS"),
    Switch("type", "t", "value", "sqlite, parquetdir, arrowdir or arrow", "TYPE"),
)


def run(arguments: Sequence[str]) -> int:
    """Answer a command line; returns the exit code."""
    parsed = parse(COMMAND, SWITCHES, arguments)
    if "help" in parsed.truths:
        about = "Writes NVIDIA's tables. INPUT is an SQLite export, or a .nsys-rep if nsys is installed."
        print(help_text(COMMAND, "[options] INPUT", about, SWITCHES), end="")  # noqa: T201
        return EXIT_DONE
    kind = _kind(parsed)
    if len(parsed.rest) != 1:
        raise RefusedError(
            f"{COMMAND} takes one input, a .nsys-rep or an SQLite export, but {len(parsed.rest)} were given"
        )
    source = Path(parsed.rest[0])
    if not source.is_file():
        raise RefusedError(f"{printable(str(source))}: there is no such file; expected a .nsys-rep or an SQLite export")
    is_report = source.suffix in REPORT_ENDINGS
    if not is_report:
        names = [name for name in _FORWARDED if name in parsed.values or name in parsed.lists]
        if kind == "sqlite" or names:
            what = (
                f"only the nsys that reads the report supports --{names[0]}"
                if names
                else "it is already an SQLite export"
            )
            raise RefusedError(f"{printable(str(source))} is no .nsys-rep, and {what}; give the report instead")
    default = source.with_suffix("") if source.suffix else source
    place = Path(parsed.values.get("output") or f"{default}{_DEFAULT_ENDINGS[kind]}")
    replace, append = parsed.truths.get("force-overwrite", False), parsed.truths.get("append", False)
    if (
        place.exists()
        and not replace
        and not (append and kind.endswith("dir"))
        and (not place.is_dir() or any(place.iterdir()))
    ):
        raise RefusedError(f"{printable(str(place))} exists; --force-overwrite=true replaces it")
    if place.is_dir() != kind.endswith("dir") and place.exists():
        raise RefusedError(
            f"{printable(str(place))} is {'a folder' if place.is_dir() else 'a file'}; expected another --output"
        )
    with scratch_folder(".alltrace-nsys-", _parent(place)) as folder:
        _write(parsed, kind, source, place, Path(folder), is_report=is_report, append=append)
    if not parsed.truths.get("quiet", False):
        print(f"Generated:\n    {printable(str(place))}")  # noqa: T201
    return EXIT_DONE


def write_sqlite(report: Path, target: Path) -> None:
    """Export a report to an SQLite file, which replaces what is there. Raises `InputError`: it cannot be exported."""
    from alltrace.readers.nsys.tool import export_report

    with scratch_folder(".alltrace-nsys-", _parent(target)) as folder:
        draft = Path(folder) / "export.sqlite"
        export_report(report, draft, keeps_payloads=True)
        draft.replace(target)


def _parent(place: Path) -> Path:
    parent = place.absolute().parent
    if not parent.is_dir():
        raise RefusedError(f"{printable(str(parent))}: there is no such folder; make it, or give another --output")
    return parent


def _kind(parsed: Parsed) -> Literal["sqlite", "arrow", "arrowdir", "parquetdir"]:
    kind = parsed.values.get("type")
    if kind is None:
        raise RefusedError(f"{COMMAND} needs --type; expected one of {', '.join(_DEFAULT_ENDINGS)}")
    if kind not in _DEFAULT_ENDINGS:
        why = f": {_LEFT_OUT[kind]}" if kind in _LEFT_OUT else ""
        raise RefusedError(f"--type {kind!r} is not supported{why}; expected one of {', '.join(_DEFAULT_ENDINGS)}")
    return cast("Literal['sqlite', 'arrow', 'arrowdir', 'parquetdir']", kind)


def _forwarded(parsed: Parsed) -> list[str]:
    single = [f"--{name}={parsed.values[name]}" for name in _FORWARDED if name in parsed.values]
    several = [f"--{name}={','.join(parsed.lists[name])}" for name in ("times", "tables") if name in parsed.lists]
    return [*single, *several]


def _write(
    parsed: Parsed, kind: str, source: Path, place: Path, folder: Path, *, is_report: bool, append: bool
) -> None:
    from alltrace.export.nsys_tables import ENDINGS, NsysTables
    from alltrace.readers.nsys.tool import export_report

    export = source
    if is_report:
        export = folder / "export.sqlite"
        export_report(source, export, _forwarded(parsed))
    if kind == "sqlite":
        export.replace(place)
        return
    try:
        tables = NsysTables(export, [] if is_report else parsed.lists.get("tables", []))
    except UsageError as error:
        raise RefusedError(str(error)) from error
    draft = folder / "tables"
    form = cast("Kind", kind)
    with closing(tables):
        if not tables.names:
            raise InputError(source, found="no table has such a name", expected="--tables with patterns of whole names")
        if form == "arrow":
            tables.write(form, draft)
            draft.replace(place)
            return
        draft.mkdir()
        if append:
            place.mkdir(exist_ok=True)
            present = {p.name for p in place.iterdir()}
            tables.names = [name for name in tables.names if f"{name}.{ENDINGS[form]}" not in present]
        tables.write(form, draft)
    place.mkdir(exist_ok=True)
    for file in draft.iterdir():
        file.replace(place / file.name)
    with suppress(OSError):
        shutil.rmtree(draft)
