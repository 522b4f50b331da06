"""Writes an answer: as a table for people, or as JSON, CSV, Markdown or Parquet for programs.

Text from a trace is shown as text and nothing else: control characters are escaped in tables, and the file formats quote.
"""

from __future__ import annotations

import io
import os
import re
import sys
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from alltrace.cli.cells import cells, is_number, is_sparse, json_text
from alltrace.cli.csv_text import csv_pieces
from alltrace.trace.errors import InputError, UsageError, printable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from alltrace.recipes.base import Answer, Chart

ENVELOPE_VERSION = 1
_NAME_WIDTH = 100
_SAMPLE = 4096


def check_output(args: argparse.Namespace) -> None:
    """Whether an answer can be written as `args` say; asked before the work is done.

    Raises:
        UsageError: Parquet without a file to write to, or an output that is no file.
    """
    if args.format == "parquet" and args.output is None:
        raise UsageError("--format parquet is not text; expected -o FILE with it")
    if args.output is not None and (not args.output.name or args.output.is_dir()):
        raise UsageError(f"-o is {printable(str(args.output))!r}; expected the name of a file")


def check_drawable(what: str, chart: Chart | None, args: argparse.Namespace) -> None:
    """Whether the answer that is asked for has a picture, where `args` want one; asked before the work is done.

    Raises:
        UsageError: It has none.
    """
    if args.picture is not None and chart is None:
        raise UsageError(f"{what} is a table without a picture; ask for it without --picture")
    if args.picture is not None:
        from alltrace.charts.files import check_picture

        check_picture(args.picture)


def write_answer(verb: str, answer: Answer, facts: Mapping[str, int], args: argparse.Namespace) -> None:
    """Write `answer` as `args.format` to `args.output` or standard output, its first `args.limit` rows.

    Args:
        verb: The verb that was asked.
        answer: The answer.
        facts: What the run is: ranks, hosts, devices, span_ns.
        args: The arguments of `add_answer_options`.

    Raises:
        UsageError: Parquet without a file to write to, an output that is no file, or a picture of what has none.
        InputError: The file cannot be written.
    """
    check_output(args)
    check_drawable(verb, answer.chart, args)
    if answer.stream is None:
        _write(verb, answer, facts, args)
        return
    with answer.stream as stream:
        if args.format in ("csv", "parquet"):
            _write(verb, answer, facts, args)
        elif args.limit is None or args.picture is not None:
            _write(verb, answer._replace(table=stream.read_all(), stream=None), facts, args)
        else:
            table, cut = stream.head(args.limit)
            _write(verb, answer._replace(table=table, stream=None), facts, args, cut)


def _write(verb: str, answer: Answer, facts: Mapping[str, int], args: argparse.Namespace, left_out: int = 0) -> None:
    """`write_answer` of an answer whose table lacks its last `left_out` rows."""
    said = []
    if args.format in ("csv", "parquet"):
        if answer.further:
            said.append(f"alltrace: the answer has further tables: {', '.join(answer.further)}; --table NAME writes one")
        said += [f"alltrace: {printable(note)}" for note in answer.notes]
    table = answer.table if args.limit is None else answer.table.slice(0, args.limit)
    tables = [table] if answer.stream is None else answer.stream.tables(args.limit)
    schema = table.schema if answer.stream is None else answer.stream.schema
    if args.format == "parquet":
        _write_parquet(schema, tables, args.output)
    else:
        pieces = csv_pieces(schema, tables) if args.format == "csv" else _pieces(verb, answer, table, facts, args, left_out)
        if args.output is None and sys.stdout.isatty():  # a name from a trace writes nothing to the terminal, in CSV or JSON either
            pieces = ("\n".join(map(printable, piece.split("\n"))) for piece in pieces)
        emit(pieces, args.output)
    for line in said:
        print(line, file=sys.stderr)  # noqa: T201
    if args.picture is not None:
        write_picture(verb, answer._replace(table=table), args.picture)


def _pieces(
    verb: str, answer: Answer, table: Any, facts: Mapping[str, int], args: argparse.Namespace, left_out: int
) -> Iterable[str]:
    """The text of an answer, of which `table` is to be shown."""
    if args.format == "json":
        return [to_json(verb, answer, table, facts)]
    if args.format == "md":
        return [to_markdown(answer, table)]
    cut = answer.table.num_rows - table.num_rows + left_out
    return [to_text(answer, table, cut, width=None if args.output is None and sys.stdout.isatty() else 0)]


def write_picture(verb: str, answer: Answer, path: Path) -> None:
    """Draw `answer` into the file `path`.

    Raises:
        InputError: The file cannot be written.
    """
    from alltrace.charts import draw, picture_bytes

    picture = picture_bytes(draw(answer, title=verb), path.suffix.lower().lstrip("."))
    save(path, lambda place: place.write_bytes(picture))


def to_json(verb: str, answer: Answer, table: Any, facts: Mapping[str, int]) -> str:
    """The envelope of DESIGN 5: version, verb, run, columns with units, rows, notes, and what goes beside them."""
    head: dict[str, Any] = {
        "alltrace": ENVELOPE_VERSION,
        "verb": verb,
        "run": dict(facts),
        "columns": [{"name": c.name, "unit": c.unit} for c in answer.columns],
    }
    lists: dict[str, Sequence[Any]] = {"rows": _rows(table), "notes": list(answer.notes), **answer.extra}
    entries = [f" {json_text(name)}: {json_text(value)}" for name, value in head.items()]
    for name, items in lists.items():
        # a row a line, so that the output can be read and compared line by line
        body = ",\n".join(f"  {json_text(item)}" for item in items)
        entries.append(f" {json_text(name)}: [\n{body}\n ]" if items else f" {json_text(name)}: []")
    if answer.further:
        entries.append(f' "further": {{\n{_json_tables(answer)}\n }}')
    return "{\n" + ",\n".join(entries) + "\n}\n"


def _json_tables(answer: Answer) -> str:
    tables = []
    for name, further in answer.further.items():
        columns = json_text([{"name": c.name, "unit": c.unit} for c in further.columns])
        body = ",\n".join(f"   {json_text(row)}" for row in _rows(further.table))
        tables.append(f'  {json_text(name)}: {{"columns": {columns}, "rows": [\n{body}\n  ]}}')
    return ",\n".join(tables)


def _rows(table: Any) -> list[dict[str, Any]]:
    """The rows; an object of a column whose Arrow field has the metadata `sparse` has only the fields that are not null."""
    rows: list[dict[str, Any]] = table.to_pylist()
    for name in (f.name for f in table.schema if is_sparse(f)):
        for row in rows:
            row[name] = {k: v for k, v in row[name].items() if v is not None}
    return rows


def to_markdown(answer: Answer, table: Any) -> str:
    """A pipe table, and the notes below it."""
    numeric = [is_number(f) for f in table.schema]
    lines = ["| " + " | ".join(markdown_text(n) for n in table.column_names) + " |"]
    lines.append("|" + "|".join("---:" if right else "---" for right in numeric) + "|")
    lines += ["| " + " | ".join(markdown_text(c) for c in row) + " |" for row in zip(*cells(table), strict=True)]
    if answer.notes:
        lines += ["", *(f"- {markdown_text(n)}" for n in answer.notes)]
    return "\n".join(lines) + "\n"


def to_text(answer: Answer, table: Any, cut: int = 0, width: int | None = 0) -> str:
    """A table for people: numbers grouped by thousands and aligned right, notes below.

    Args:
        answer: The answer.
        table: The rows of it to show.
        cut: How many rows are not shown.
        width: Columns of the terminal; None to ask it, 0 for as wide as it takes.
    """
    lines = []
    if table.num_rows or table.num_columns:
        lines += _grid(table, _terminal_width() if width is None else width)
    for name, rows in answer.extra.items():
        if rows:
            import pyarrow as pa

            lines += ["", f"{name}:", *_grid(pa.Table.from_pylist([dict(r) for r in rows]), 0)]
    if cut:
        lines.append(f"... {cut} more rows; --limit shows more or fewer")
    if answer.further:
        others = (f"{name} ({t.table.num_rows:,} rows)" for name, t in answer.further.items())
        lines += ["", f"further tables, for --table: {', '.join(others)}"]
    if answer.notes:
        lines += ["", *(f"note: {printable(n)}" for n in answer.notes)]
    return "\n".join(lines) + "\n"


def _grid(table: Any, width: int) -> list[str]:
    columns = [[printable(c) for c in column] for column in cells(table, grouped=True)]
    right = [is_number(f) for f in table.schema]
    head = [printable(n) for n in table.column_names]
    limits = [max(len(h), *(len(c) for c in column)) if column else len(h) for h, column in zip(head, columns, strict=True)]
    limits = [n if right[i] else min(n, _NAME_WIDTH) for i, n in enumerate(limits)]
    if width:
        limits = _fitted(limits, right, width)
    lines = ["  ".join(_cell(h, n, r) for h, n, r in zip(head, limits, right, strict=True)).rstrip()]
    lines.append("  ".join("-" * n for n in limits))
    lines += [
        "  ".join(_cell(c, n, r) for c, n, r in zip(row, limits, right, strict=True)).rstrip() for row in zip(*columns, strict=True)
    ]
    return lines


def _fitted(limits: Sequence[int], right: Sequence[bool], width: int) -> list[int]:
    """Narrow the widest text columns until the row fits; numbers are never cut."""
    fitted = list(limits)
    while sum(fitted) + 2 * (len(fitted) - 1) > width:
        widest = max((i for i in range(len(fitted)) if not right[i]), key=lambda i: fitted[i], default=None)
        if widest is None or fitted[widest] <= 12:
            return fitted
        fitted[widest] -= 1
    return fitted


def _cell(text: str, width: int, right: bool) -> str:
    if len(text) > width:
        text = text[: width - 1] + "…"
    return text.rjust(width) if right else text.ljust(width)


def _terminal_width() -> int:
    import shutil

    return shutil.get_terminal_size((0, 0)).columns


def markdown_text(text: str) -> str:
    """Text as it is, in a Markdown table: nothing in it is taken for markup or HTML."""
    import html

    return re.sub(r"([\\`*_\[\]|#~])", r"\\\1", html.escape(printable(text), quote=False))


def save_table(verb: str, answer: Answer, facts: Mapping[str, int], kind: str, path: Path) -> None:
    """Write the main table of `answer` to a file, which is whole or not there.

    Args:
        verb: What was asked.
        answer: The answer.
        facts: What the run is.
        kind: `csv`, `json`, `md` or `parquet`.
        path: The file.

    Raises:
        InputError: It cannot be written.
        UsageError: The table cannot be written as Parquet.
    """
    if kind == "parquet":
        _write_parquet(answer.table.schema, [answer.table], path)
    elif kind == "csv":
        emit(csv_pieces(answer.table.schema, [answer.table]), path)
    else:
        emit([to_json(verb, answer, answer.table, facts) if kind == "json" else to_markdown(answer, answer.table)], path)


def _write_parquet(schema: Any, tables: Iterable[Any], path: Path) -> None:
    """Write tables of one schema, each as a row group."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def write(place: Path) -> None:
        remaining = iter(tables)
        first = next(remaining, schema.empty_table())
        try:
            with pq.ParquetWriter(place, schema, compression="zstd", use_dictionary=_worded(first) or False) as writer:
                for table in chain([first], remaining):
                    writer.write_table(table, row_group_size=max(1, table.num_rows))
        except pa.ArrowException as error:
            raise UsageError(f"the answer cannot be written as Parquet ({error}); expected another --format") from error

    save(path, write)


def _worded(table: Any) -> list[str]:
    """The columns that a dictionary makes shorter: words. Of times, and of texts that differ, it takes twice as long to write."""
    import pyarrow as pa

    found = []
    for field, column in zip(table.schema, table.columns, strict=True):
        if pa.types.is_string(field.type):
            some = column.slice(0, _SAMPLE)
            found += [field.name] if 2 * pc.count_distinct(some, mode="all").as_py() <= len(some) else []
        elif pa.types.is_dictionary(field.type):
            found.append(field.name)
    return found


def emit(pieces: Iterable[str], path: Path | None) -> None:
    """Write text to `path`, whole or not at all, or to standard output where it is None.

    Raises:
        InputError: The file cannot be written.
    """
    if path is not None:
        # a path from a trace may hold bytes that are no UTF-8
        save(path, lambda place: _write_text(place, pieces))
        return
    if isinstance(sys.stdout, io.TextIOWrapper):
        # what a terminal's or a pipe's encoding does not have is escaped, not an error
        sys.stdout.reconfigure(errors="backslashreplace")
    for piece in pieces:
        sys.stdout.write(piece)
    sys.stdout.flush()


def _write_text(path: Path, pieces: Iterable[str]) -> None:
    with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
        file.writelines(pieces)


def save(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` make a file that replaces `path` once it is whole; what is no regular file, such as a pipe, is written to.

    Raises:
        InputError: The file cannot be written.
    """
    draft = path
    try:
        if not path.exists() or path.is_file():  # a pipe behind /dev/stdout has no other name
            path = type(path)(os.path.realpath(path))  # the target of a link is replaced, not the link
            draft = path.with_name(f".{path.name}.tmp")
        write(draft)
        if draft != path:
            draft.replace(path)
    except OSError as error:
        raise InputError(path, found=f"it cannot be written ({error.strerror or error})") from error
    finally:
        if draft != path:
            draft.unlink(missing_ok=True)
