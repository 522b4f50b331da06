"""An answer as a text table, as wide as the terminal: columns are dropped before words are cut."""

from __future__ import annotations

import re
import tempfile
import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from alltrace.cli.cells import cells, is_number, read_name, with_units
from alltrace.trace.amounts import shortened, told_apart
from alltrace.trace.errors import InputError, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from alltrace.recipes.base import Answer
    from alltrace.recipes.row_stream import RowStream

_NAME_WIDTH = 100
_READABLE = 24
"""Texts are not cut below this many characters as long as there are columns to drop."""
_LEAST = 12
_PIECE_ROWS = 1 << 14  # rows converted to text at once


class TableForm(NamedTuple):
    """How a text table is written."""

    width: int = 0  # columns of the terminal; 0 for as wide as it takes
    # whether times and sizes have units that suit them, such as 12.4 ms; else they are plain numbers
    units: bool = False


PLAIN = TableForm()
"""As wide as it takes, with plain numbers."""


def to_text(answer: Answer, table: Any, cut: int = 0, form: TableForm = PLAIN) -> str:
    """A text table: numbers aligned right, notes below.

    `table`: The rows of it to show. `cut`: How many rows are not shown. `form`: How it is written.
    """
    lines, dropped = _grid(table, form) if table.num_rows or table.num_columns else ([], [])
    verdict = [] if answer.verdict is None else [*textwrap.wrap(printable(answer.verdict), max(form.width, _NAME_WIDTH)), ""]
    return "\n".join([*verdict, *lines, *_below(answer, cut, form, dropped)]) + "\n"


def streamed_text(answer: Answer, stream: RowStream, form: TableForm = PLAIN) -> Iterator[str]:
    """`to_text` with all rows of a stream; cells wait in a file until all widths are known."""
    longest = [0] * len(stream.schema)
    try:
        with tempfile.TemporaryFile(prefix="alltrace-table-") as file:
            kept = pa.schema([(str(n), pa.string()) for n in range(len(longest))])
            with pa.ipc.new_stream(file, kept) as writer:
                for table in stream.tables():
                    for first in range(0, table.num_rows, _PIECE_ROWS):
                        columns = _shown(table.slice(first, _PIECE_ROWS), form)
                        longest = [max(n, *map(len, column)) for n, column in zip(longest, columns, strict=True)]
                        writer.write_batch(pa.record_batch([pa.array(c, pa.string()) for c in columns], kept))
            file.seek(0)
            lines = _Lines(stream.schema, longest, form)
            yield "".join(f"{line}\n" for line in lines.head())
            with pa.ipc.open_stream(file) as reader:
                for batch in reader:
                    yield "".join(f"{line}\n" for line in lines.of([column.to_pylist() for column in batch.columns], whole=False))
    except OSError as error:
        raise InputError(
            tempfile.gettempdir(),
            found=f"the rows of the answer cannot be stored there ({error.strerror or error})",
            advice="free some space, set TMPDIR to a folder on a larger disk, or use --format csv",
        ) from error
    yield "".join(f"{line}\n" for line in _below(answer, 0, form, lines.dropped))


def terminal_width() -> int:
    """Columns of the terminal; 0 if it does not say."""
    import shutil

    return shutil.get_terminal_size((0, 0)).columns


def _below(answer: Answer, cut: int, form: TableForm, dropped: Sequence[str]) -> list[str]:
    """The lines below the table of an answer if `cut` rows and the columns `dropped` are not shown."""
    lines = []
    for name, rows in answer.extra.items():
        if rows:
            table = pa.Table.from_pylist([dict(r) for r in rows])
            lines += ["", f"{name}:", *_grid(table, form._replace(width=0))[0]]
    if cut:
        lines.append(f"... {cut} more rows; --limit shows more or fewer")
    if dropped:
        said = f"columns that do not fit: {', '.join(dropped)}; widen the terminal, or use --format csv"
        lines += ["", *textwrap.wrap(said, max(form.width, _LEAST), subsequent_indent="  ", break_on_hyphens=False)]
    if answer.further:
        counts = ((name, t.table.num_rows if t.stream is None else t.stream.head(0)[1]) for name, t in answer.further.items())
        others = (f"{name} ({count:,} rows)" for name, count in counts)
        lines += ["", f"more tables, for --table: {', '.join(others)}"]
    if answer.notes:
        lines += ["", *(f"note: {printable(n)}" for n in answer.notes)]
    return lines


def _grid(table: Any, form: TableForm) -> tuple[list[str], list[str]]:
    """The lines of a table, and the names of the columns that do not fit."""
    columns = _shown(table, form)
    lines = _Lines(table.schema, [max(map(len, column), default=0) for column in columns], form)
    return [*lines.head(), *lines.of(columns, whole=True)], lines.dropped


def _shown(table: Any, form: TableForm) -> list[list[str]]:
    """The cells of each column in a text table."""
    made = with_units(table) if form.units else cells(table, grouped=True)
    return [[printable(c) for c in column] for column in made]


class _Lines:
    """The lines of a text table.

    `longest`: How long the longest cell of each column is. `form`: How it is written.
    """

    def __init__(self, schema: Any, longest: Sequence[int], form: TableForm) -> None:
        names = [printable(read_name(f) if form.units else f.name) for f in schema]
        self._head = [[name] for name in names]
        self._right = [is_number(f) for f in schema]
        natural = [max(n, len(name)) for n, name in zip(longest, names, strict=True)]
        if form.width and _width(natural) > form.width:
            self._head = [_folded(name, n) for name, n in zip(names, longest, strict=True)]
            natural = [max(n, *map(len, lines)) for n, lines in zip(longest, self._head, strict=True)]
        limits = [n if right else min(n, _NAME_WIDTH) for n, right in zip(natural, self._right, strict=True)]
        self._places = list(range(len(limits)))
        if form.width:
            self._places = _fitting(limits, self._right, longest, form.width)
        # the names of the columns that do not fit
        self.dropped = [printable(f.name) for i, f in enumerate(schema) if i not in set(self._places)]
        self._right = [self._right[i] for i in self._places]
        self._limits = [limits[i] for i in self._places]
        if form.width:
            self._limits = _narrowed(self._limits, self._right, form.width, _LEAST)

    def head(self) -> list[str]:
        """The names of the columns, and the line below them."""
        heads = [self._head[i] for i in self._places]
        most = max(map(len, heads), default=0)
        rows = zip(*([*[""] * (most - len(lines)), *lines] for lines in heads), strict=True)
        return [*map(self._line, rows), "  ".join("-" * n for n in self._limits)]

    def of(self, columns: Sequence[Sequence[str]], *, whole: bool) -> list[str]:
        """The rows of these cells; in a complete table, long names are cut so that they stay distinct."""
        cut = told_apart if whole else _all_shortened
        shown = [
            columns[i] if right else cut(columns[i], limit)
            for i, limit, right in zip(self._places, self._limits, self._right, strict=True)
        ]
        return [self._line(row) for row in zip(*shown, strict=True)]

    def _line(self, row: Sequence[str]) -> str:
        return "  ".join(_cell(c, n, r) for c, n, r in zip(row, self._limits, self._right, strict=True)).rstrip()


def _folded(name: str, width: int) -> list[str]:
    """The name of a column on several lines, broken after underscores, as narrow as its cells or its longest word."""
    words = re.findall(r"[^_]*_+|[^_]+", name) or [name]
    width = max(width, *map(len, words))
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) > width:
            lines.append("")
        lines[-1] += word
    return lines


def _fitting(limits: Sequence[int], right: Sequence[bool], longest: Sequence[int], width: int) -> list[int]:
    """The places of the columns that fit with readable texts: empty columns go first, then those from the right."""
    kept = list(range(len(limits)))
    leaving = [i for i in kept if i and not longest[i] and any(longest)] + [i for i in reversed(kept) if i and longest[i]]
    for gone in leaving:
        if _width(_narrowed([limits[i] for i in kept], [right[i] for i in kept], width, _READABLE)) <= width:
            break
        kept.remove(gone)
    return kept


def _narrowed(limits: Sequence[int], right: Sequence[bool], width: int, least: int) -> list[int]:
    """Narrow the widest text columns until the row fits, none below `least`; numbers are never cut."""
    fitted = list(limits)
    while _width(fitted) > width:
        widest = max((i for i in range(len(fitted)) if not right[i]), key=lambda i: fitted[i], default=None)
        if widest is None or fitted[widest] <= least:
            return fitted
        fitted[widest] -= 1
    return fitted


def _all_shortened(names: Sequence[str], longest: int) -> list[str]:
    """Names that are cut alike in all pieces of a table."""
    return [shortened(name, longest) for name in names]


def _width(limits: Sequence[int]) -> int:
    return sum(limits) + 2 * (len(limits) - 1)


def _cell(text: str, width: int, right: bool) -> str:
    if len(text) > width:  # a name of a column
        text = text[: width - 1] + "…"
    return text.rjust(width) if right else text.ljust(width)
