"""Writes an answer: as a text table, or as JSON, CSV, Markdown or Parquet for programs.

Text from a trace is shown as text and nothing else: control characters are escaped in tables, and the file formats
quote.
"""

import argparse
import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from alltrace.charts.cells import cells, is_number, is_sparse, json_text
from alltrace.charts.text_table import PLAIN, TableForm, streamed_text, terminal_width, to_text
from alltrace.cli.csv_text import csv_header, csv_rows, without_formulas
from alltrace.recipes.base import Answer, Chart
from alltrace.trace.errors import InputError, UsageError, printable

ENVELOPE_VERSION = 1
_SAMPLE = 4096
_PIECE_ROWS = 1 << 14  # rows converted to text at once
_GROUP_ROWS = 1 << 16  # at least in a row group of Parquet


def check_output(args: argparse.Namespace) -> None:
    """Check that an answer can be written as `args` say, before the work is done."""
    check_csv_safe(args, [args.format])
    if args.wide and args.format != "table":
        raise UsageError(
            f"--wide works with tables, and the format is {args.format}; leave it out or add --format table"
        )
    if args.units == "auto" and args.format not in ("table", "cards"):
        raise UsageError(
            f"--units auto works with tables, and --format {args.format} has plain numbers; leave out --units"
        )
    if args.units == "ns" and args.format == "cards":
        raise UsageError("--units ns works with tables, and the format is cards; add --format table")
    if args.format == "parquet" and args.output is None:
        raise UsageError("--format parquet is not text; give -o FILE")
    if args.output is not None and (not args.output.name or args.output.is_dir()):
        raise UsageError(f"-o is {printable(str(args.output))!r}; expected the name of a file")


def check_csv_safe(args: argparse.Namespace, kinds: Sequence[str]) -> None:
    """Whether `--csv-safe` has a meaning for answers of these forms."""
    if args.csv_safe and "csv" not in kinds:
        raise UsageError(f"--csv-safe works with CSV, and the format is {args.format}; add --format csv")


def check_drawable(what: str, chart: Chart | None, args: argparse.Namespace) -> None:
    """Check that the answer has a chart if `args` request one, before the work is done."""
    if args.picture is not None and chart is None:
        raise UsageError(f"{what} has no chart; leave out --picture")
    if args.picture is not None:
        from alltrace.charts.files import check_picture

        check_picture(args.picture)


def write_answer(
    verb: str,
    answer: Answer,
    facts: Mapping[str, int],
    args: argparse.Namespace,
    gpus: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write `answer` as `args.format` to `args.output` or standard output, its first `args.limit` rows."""
    # `facts`: What the run is: ranks, hosts, devices, span_ns. `args`: The arguments of `add_answer_options`. `gpus`:
    # Short names of devices for tables with units (see `alltrace.run.members.gpu_names`).
    check_output(args)
    check_drawable(verb, answer.chart, args)
    if args.picture is not None:
        answer = answer.read()
    messages = []
    if args.format in ("csv", "parquet"):
        if answer.further:
            messages.append(
                f"alltrace: the answer has more tables: {', '.join(answer.further)}; --table NAME writes one"
            )
        messages += [f"alltrace: {printable(note)}" for note in answer.notes]
    if args.format == "parquet":
        save_tables(verb, answer, facts, {"parquet": args.output}, args.limit)
    else:
        pieces = _pieces(verb, answer, facts, args, gpus)
        # a name from a trace writes nothing to the terminal, in CSV or JSON either
        if args.output is None and sys.stdout.isatty():
            pieces = ("\n".join(map(printable, piece.split("\n"))) for piece in pieces)
        emit(pieces, args.output)
    for line in messages:
        print(line, file=sys.stderr)  # noqa: T201
    if args.picture is not None:
        write_picture(verb, answer, args.picture)


def _pieces(
    verb: str, answer: Answer, facts: Mapping[str, int], args: argparse.Namespace, gpus: Mapping[str, str]
) -> Iterable[str]:
    """The text of the first `args.limit` rows of an answer."""
    if args.format != "table":
        schema, tables = _main_rows(answer, args.limit)
        return _whole(_form(args.format, verb, answer, facts, schema, safe=args.csv_safe), tables)
    form = table_form(args)._replace(gpus=gpus)
    if answer.stream is None:
        table = answer.table if args.limit is None else answer.table.slice(0, args.limit)
        return [to_text(answer, table, answer.table.num_rows - table.num_rows, form)]
    if args.limit is None:
        return streamed_text(answer, answer.stream, form)
    return [to_text(answer, *answer.stream.head(args.limit), form)]


def table_form(args: argparse.Namespace) -> TableForm:
    """How text tables are written; see `console_form`. A file and `--units` override it."""
    form = PLAIN if args.output is not None else console_form()
    if args.wide:
        form = form._replace(width=0, whole=True)
    return form if args.units is None else form._replace(units=args.units == "auto")


def console_form() -> TableForm:
    """How tables are written to standard output: to a terminal in its width with units, else complete and plain."""
    return TableForm(terminal_width(), units=True) if sys.stdout.isatty() else PLAIN


def _main_rows(answer: Answer, limit: int | None = None) -> tuple[Any, Iterable[Any]]:
    """The schema of an answer's main table, and its first `limit` rows as tables."""
    if answer.stream is not None:
        return answer.stream.schema, answer.stream.tables(limit)
    return answer.table.schema, [answer.table if limit is None else answer.table.slice(0, limit)]


class _Form(Protocol):
    """A text form of an answer; its rows may arrive one table after the other."""

    def head(self) -> Iterator[str]: ...

    def rows(self, table: Any) -> Iterator[str]: ...

    def tail(self) -> Iterator[str]: ...


def _form(kind: str, verb: str, answer: Answer, facts: Mapping[str, int], schema: Any, *, safe: bool) -> _Form:
    """The form `csv`, `json` or `md` of an answer with this schema of its main table; `safe` CSV has no formulas."""
    if kind == "csv":
        return _Csv(schema, safe=safe)
    return _Json(verb, answer, facts) if kind == "json" else _Markdown(answer, schema)


def _whole(form: _Form, tables: Iterable[Any]) -> Iterator[str]:
    """The text of an answer, its main rows in `tables`."""
    yield from form.head()
    for table in tables:
        yield from form.rows(table)
    yield from form.tail()


class _Csv:
    def __init__(self, schema: Any, *, safe: bool) -> None:
        self._schema, self._safe = schema, safe

    def head(self) -> Iterator[str]:
        yield csv_header(without_formulas(self._schema.empty_table()).schema if self._safe else self._schema)

    def rows(self, table: Any) -> Iterator[str]:
        return csv_rows(without_formulas(table) if self._safe else table)

    def tail(self) -> Iterator[str]:
        return iter(())


def write_picture(verb: str, answer: Answer, path: Path) -> None:
    from alltrace.charts import draw, picture_bytes

    picture = picture_bytes(draw(answer, title=verb), path.suffix.lower().lstrip("."))
    save(path, lambda place: place.write_bytes(picture))


def to_json(verb: str, answer: Answer, table: Any, facts: Mapping[str, int]) -> str:
    """The envelope: version, verb, run, columns with units, rows, notes and further lists."""
    return "".join(_whole(_Json(verb, answer, facts), [table]))


class _Json:
    """The envelope; a row a line, so that the output can be read and compared line by line."""

    def __init__(self, verb: str, answer: Answer, facts: Mapping[str, int]) -> None:
        self._verb = verb
        self._answer = answer
        self._facts = facts
        self._any = False

    def head(self) -> Iterator[str]:
        head: dict[str, Any] = {
            "alltrace": ENVELOPE_VERSION,
            "verb": self._verb,
            "run": dict(self._facts),
            "columns": [{"name": c.name, "unit": c.unit} for c in self._answer.columns],
        }
        if self._answer.verdict is not None:
            head["verdict"] = self._answer.verdict
        entries = [f" {json_text(name)}: {json_text(value)}" for name, value in head.items()]
        yield "{\n" + ",\n".join(entries) + ',\n "rows": ['

    def rows(self, table: Any) -> Iterator[str]:
        for lines in _json_lines([table], "  "):
            yield f"{',' if self._any else ''}\n{lines}"
            self._any = True

    def tail(self) -> Iterator[str]:
        yield "\n ]" if self._any else "]"
        lists: dict[str, Sequence[Any]] = {"notes": list(self._answer.notes), **self._answer.extra}
        for name, items in lists.items():
            body = ",\n".join(f"  {json_text(item)}" for item in items)
            yield f",\n {json_text(name)}: [\n{body}\n ]" if items else f",\n {json_text(name)}: []"
        if self._answer.further:
            comma = ",\n"
            yield ',\n "further": {\n'
            for number, (name, further) in enumerate(self._answer.further.items()):
                columns = json_text([{"name": c.name, "unit": c.unit} for c in further.columns])
                yield f'{comma if number else ""}  {json_text(name)}: {{"columns": {columns}, "rows": [\n'
                tables = [further.table] if further.stream is None else further.stream.tables()
                for place, lines in enumerate(_json_lines(tables, "   ")):
                    yield f"{comma if place else ''}{lines}"
                yield "\n  ]}"
            yield "\n }"
        yield "\n}\n"


def _json_lines(tables: Iterable[Any], indent: str) -> Iterator[str]:
    """The rows of tables as lines with commas between them, some thousand rows at a time; none of empty tables."""
    for table in tables:
        for first in range(0, table.num_rows, _PIECE_ROWS):
            yield ",\n".join(f"{indent}{json_text(row)}" for row in _rows(table.slice(first, _PIECE_ROWS)))


def _rows(table: Any) -> list[dict[str, Any]]:
    """The rows; objects of a column with the metadata `sparse` in its Arrow field have only non-null fields."""
    rows: list[dict[str, Any]] = table.to_pylist()
    for name in (f.name for f in table.schema if is_sparse(f)):
        for row in rows:
            row[name] = {k: v for k, v in row[name].items() if v is not None}
    return rows


def to_markdown(answer: Answer, table: Any) -> str:
    return "".join(_whole(_Markdown(answer, table.schema), [table]))


class _Markdown:
    def __init__(self, answer: Answer, schema: Any) -> None:
        self._answer = answer
        self._schema = schema

    def head(self) -> Iterator[str]:
        if self._answer.verdict is not None:
            yield f"{markdown_text(self._answer.verdict)}\n\n"
        yield "| " + " | ".join(markdown_text(n) for n in self._schema.names) + " |\n"
        yield "|" + "|".join("---:" if is_number(f) else "---" for f in self._schema) + "|\n"

    def rows(self, table: Any) -> Iterator[str]:
        for first in range(0, table.num_rows, _PIECE_ROWS):
            for row in zip(*cells(table.slice(first, _PIECE_ROWS)), strict=True):
                yield "| " + " | ".join(markdown_text(c) for c in row) + " |\n"

    def tail(self) -> Iterator[str]:
        if self._answer.notes:
            yield "\n" + "".join(f"- {markdown_text(n)}\n" for n in self._answer.notes)


def markdown_text(text: str) -> str:
    """Text as it is, in a Markdown table: nothing in it is read as markup or HTML."""
    import html

    return re.sub(r"([\\`*_\[\]|#~])", r"\\\1", html.escape(printable(text), quote=False))


def save_tables(
    verb: str,
    answer: Answer,
    facts: Mapping[str, int],
    files: Mapping[str, Path],
    limit: int | None = None,
    *,
    csv_safe: bool = False,
) -> int:
    """Write `answer`'s main table to files of several forms at once, each wholly or not at all; returns its rows."""
    # `files`: A file for each of some forms: `csv`, `json`, `md`, `parquet`. `limit`: The most rows to write; None for
    # all. `csv_safe`: CSV has no cells that a spreadsheet takes for formulas.
    schema, tables = _main_rows(answer, limit)
    rows = 0
    with ExitStack() as places:
        writers = []
        for kind, path in files.items():
            place = places.enter_context(_replaced(path))
            form = None if kind == "parquet" else _form(kind, verb, answer, facts, schema, safe=csv_safe)
            written = _parquet_file(schema, place) if form is None else _text_file(form, place)
            writers.append(places.enter_context(_of_file(path, written)))
        for table in tables:
            rows += table.num_rows
            for write in writers:
                write(table)
    return rows


@contextmanager
def _of_file(path: Path, written: AbstractContextManager[Callable[[Any], None]]) -> Iterator[Callable[[Any], None]]:
    """Writes tables to a file; errors name the file."""
    with _named(path), written as put:

        def write(table: Any) -> None:
            with _named(path):
                put(table)

        yield write


@contextmanager
def _text_file(form: _Form, place: Path) -> Iterator[Callable[[Any], None]]:
    # a path from a trace may hold bytes that are not UTF-8
    with place.open("w", encoding="utf-8", errors="backslashreplace") as file:
        file.writelines(form.head())
        yield lambda table: file.writelines(form.rows(table))
        file.writelines(form.tail())


@contextmanager
def _parquet_file(schema: Any, place: Path) -> Iterator[Callable[[Any], None]]:
    """Writes tables of one schema, as many together as make a row group."""
    import pyarrow.parquet as pq

    waiting: list[Any] = []
    try:
        with ExitStack() as file:
            writer: Any = None

            def flush() -> None:
                nonlocal writer
                several = len(waiting) > 1  # a group has one dictionary for each column
                rows = (
                    pa.concat_tables(waiting).unify_dictionaries()
                    if several
                    else (waiting or [schema.empty_table()])[0]
                )
                waiting.clear()
                if writer is None:
                    writer = file.enter_context(
                        pq.ParquetWriter(place, schema, compression="zstd", use_dictionary=_worded(rows) or False)
                    )
                writer.write_table(rows, row_group_size=max(1, rows.num_rows))

            def write(table: Any) -> None:
                waiting.append(table)
                if sum(t.num_rows for t in waiting) >= _GROUP_ROWS:
                    flush()

            yield write
            if waiting or writer is None:
                flush()
    except pa.ArrowException as error:
        raise UsageError(f"the answer cannot be written as Parquet ({error}); expected another --format") from error


def _worded(table: Any) -> list[str]:
    """The columns that a dictionary makes shorter: words. Times and texts that differ take twice as long."""
    import pyarrow as pa

    names = []
    for field, column in zip(table.schema, table.columns, strict=True):
        if pa.types.is_string(field.type):
            some = column.slice(0, _SAMPLE)
            names += [field.name] if 2 * pc.count_distinct(some, mode="all").as_py() <= len(some) else []
        elif pa.types.is_dictionary(field.type):
            names.append(field.name)
    return names


def emit(pieces: Iterable[str], path: Path | None) -> None:
    """Write text to `path`, completely or not at all, or to standard output if it is None."""
    if path is not None:
        # a path from a trace may hold bytes that are not UTF-8
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
    """Let `write` make a file that replaces `path` once it is whole; a pipe or other special file is written to."""
    with _replaced(path) as place, _named(path):
        write(place)


@contextmanager
def _replaced(path: Path) -> Iterator[Path]:
    """A file to write that replaces `path` at the end of the block, if nothing went wrong in it (see `save`)."""
    with _named(path):
        draft = path
        if not path.exists() or path.is_file():  # a pipe at /dev/stdout has no other name
            path = type(path)(os.path.realpath(path))  # the target of a link is replaced, not the link
            draft = path.with_name(f".{path.name}.tmp")
    try:
        yield draft
        if draft != path:
            with _named(path):
                draft.replace(path)
    finally:
        if draft != path:
            draft.unlink(missing_ok=True)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors of the file system within the block are a sentence on `path`."""
    try:
        yield
    except OSError as error:
        raise InputError.cannot_be("written", path, error) from error
