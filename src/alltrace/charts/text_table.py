"""An answer as a text table, as wide as the terminal: the least important columns are dropped before words are cut."""

from __future__ import annotations

import re
import tempfile
import textwrap
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from alltrace.charts.cells import NumberForm, cells, is_amount, is_number, number_form, read_cells, read_name
from alltrace.recipes.base import Answer
from alltrace.trace.amounts import shortened, told_apart
from alltrace.trace.errors import InputError, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from alltrace.recipes.row_stream import RowStream
    from alltrace.trace.columns import Columns

_NAME_WIDTH = 100
_READABLE = 24
"""Texts are not cut below this many characters as long as there are columns to drop."""
_LEAST = 12
_SAYING = (re.compile(r"."), re.compile(r"[^0.,]"))  # a cell that is not empty; one that is not zero either
_PIECE_ROWS = 1 << 14  # rows converted to text at once


class TableForm(NamedTuple):
    width: int = 0  # columns of the terminal; 0 for as wide as it takes
    # whether times and sizes have units that suit them, and columns without a value are left out; else they are plain
    # numbers
    units: bool = False
    whole: bool = False  # whether all columns are shown, and names are not cut
    gpus: Mapping[str, str] = MappingProxyType({})  # short names of devices, for tables with units


PLAIN = TableForm()
"""As wide as it takes, with plain numbers."""


def to_text(answer: Answer, table: Any, cut: int = 0, form: TableForm = PLAIN) -> str:
    """A text table: numbers aligned right, notes below."""
    grid = _Grid(table, form, answer.columns)
    grid.take(columns := grid.cells(table))
    lines = grid.lines()
    shown = [*lines.head(), *lines.of(columns, whole=True)] if columns else []
    verdict = (
        [] if answer.verdict is None else [*textwrap.wrap(printable(answer.verdict), max(form.width, _NAME_WIDTH)), ""]
    )
    lists = _lists(answer, form)
    above, below = (lists, []) if verdict else ([], lists)  # lists stand by the verdict that they explain
    return "\n".join([*verdict, *above, *shown, *below, *_below(answer, cut, form, lines.dropped)]) + "\n"


def streamed_text(answer: Answer, stream: RowStream, form: TableForm = PLAIN) -> Iterator[str]:
    """`to_text` with all rows of a stream; cells wait in a file until all widths are known."""
    grid: _Grid | None = None
    try:
        with tempfile.TemporaryFile(prefix="alltrace-table-") as file:
            text = pa.schema([(str(n), pa.string()) for n in range(len(stream.schema))])
            with pa.ipc.new_stream(file, text) as writer:
                for table in stream.tables():
                    for first in range(0, table.num_rows, _PIECE_ROWS):
                        piece = table.slice(first, _PIECE_ROWS)
                        grid = grid or _Grid(piece, form, answer.columns)  # the first rows decide the units
                        grid.take(columns := grid.cells(piece))
                        writer.write_batch(pa.record_batch([pa.array(c, pa.string()) for c in columns], text))
            file.seek(0)
            lines = (grid or _Grid(stream.schema.empty_table(), form, answer.columns)).lines()
            yield "".join(f"{line}\n" for line in lines.head())
            with pa.ipc.open_stream(file) as reader:
                for batch in reader:
                    yield "".join(
                        f"{line}\n" for line in lines.of([column.to_pylist() for column in batch.columns], whole=False)
                    )
    except OSError as error:
        raise InputError.cannot_be(
            "stored there",
            tempfile.gettempdir(),
            error,
            what="the rows of the answer",
            advice="free some space, set TMPDIR to a folder on a larger disk, or use --format csv",
        ) from error
    yield "".join(f"{line}\n" for line in [*_lists(answer, form), *_below(answer, 0, form, lines.dropped)])


def terminal_width() -> int:
    import shutil

    return shutil.get_terminal_size((0, 0)).columns


def _lists(answer: Answer, form: TableForm) -> list[str]:
    """The lines of the further lists of an answer, with an empty line between each and what it is next to."""
    lines = []
    for name, rows in answer.extra.items():
        if rows:
            table = pa.Table.from_pylist([dict(r) for r in rows])
            grid = _Grid(table, form, ())
            grid.take(columns := grid.cells(table))
            further = grid.lines()
            own = [f"{name}:", *further.head(), *further.of(columns, whole=True)]
            lines += ["", *own] if answer.verdict is None else [*own, ""]
    return lines


def _below(answer: Answer, cut: int, form: TableForm, dropped: Sequence[str]) -> list[str]:
    """The lines below the table of an answer if `cut` rows and the columns `dropped` are not shown."""
    lines = []
    if cut:
        lines.append(f"... {cut} more rows; --limit shows more or fewer")
    if answer.further:
        counts = (
            (name, t.table.num_rows if t.stream is None else t.stream.head(0)[1]) for name, t in answer.further.items()
        )
        others = (f"{name} ({count:,} rows)" for name, count in counts)
        lines += ["", *_wrapped(f"more tables, for --table: {', '.join(others)}", form)]
    if answer.notes:
        lines += ["", *(line for note in answer.notes for line in _wrapped(f"note: {printable(note)}", form))]
    if dropped:
        lines += ["", *_wrapped(f"not shown: {', '.join(dropped)}; --wide shows all", form)]
    return lines


def _wrapped(sentence: str, form: TableForm) -> list[str]:
    if not form.width:
        return [sentence]
    return textwrap.wrap(sentence, max(form.width, _LEAST), subsequent_indent="  ", break_on_hyphens=False)


# `first`: Its first rows, which decide the units. `form`: How it is written. `columns`: What the columns are.
class _Grid:
    """The cells of a table and what is known of its columns: how they are written, how long, if they say something."""

    def __init__(self, first: Any, form: TableForm, columns: Columns) -> None:
        self._schema, self._form = first.schema, form
        fields = list(zip(first.columns, first.schema, strict=True))
        self._numbers = [number_form(column, field) if form.units else None for column, field in fields]
        importance = {column.name: column.importance for column in columns}
        self._importance = [importance.get(name, 0) for name in first.schema.names]
        self._longest = [0] * len(fields)
        self._saying = [False] * len(fields)
        self._patterns = [_SAYING[is_amount(field)] for _, field in fields]

    def cells(self, table: Any) -> list[list[str]]:
        fields = zip(table.columns, table.schema, self._numbers, strict=True)
        gpus = self._form.gpus
        texts = [read_cells(c, f, n, gpus) for c, f, n in fields] if self._form.units else cells(table, grouped=True)
        return [[printable(cell) for cell in column] for column in texts]

    def take(self, columns: Sequence[Sequence[str]]) -> None:
        self._longest = [max(n, *map(len, column), 0) for n, column in zip(self._longest, columns, strict=True)]
        looked_at = zip(self._saying, self._patterns, columns, strict=True)
        self._saying = [shows or any(map(pattern.search, column)) for shows, pattern, column in looked_at]

    def lines(self) -> _Lines:
        omitted = self._form.units and not self._form.whole and any(self._saying)
        empty = [omitted and not shows and i != 1 for shows, i in zip(self._saying, self._importance, strict=True)]
        return _Lines(self._schema, self._longest, self._form, self._numbers, self._importance, empty)


# `longest`: How long the longest cell of each column is. `form`: How it is written. `numbers`: How the numbers of each
# column are. `importance`: Which columns stay (see `Column`). `empty`: Which columns say nothing.
class _Lines:
    """The lines of a text table."""

    def __init__(
        self,
        schema: Any,
        longest: Sequence[int],
        form: TableForm,
        numbers: Sequence[NumberForm | None],
        importance: Sequence[int],
        empty: Sequence[bool],
    ) -> None:
        names = [printable(read_name(f) if form.units else f.name) for f in schema]
        units = ["" if n is None else n.unit for n in numbers]
        self._places = [i for i, gone in enumerate(empty) if not gone]
        self._head = [[name] for name in names]
        self._right = [is_number(f) for f in schema]
        natural = [max(n, len(name), len(unit)) for n, name, unit in zip(longest, names, units, strict=True)]
        if form.width and _width([natural[i] for i in self._places]) > form.width:
            self._head = [_folded(name, n) for name, n in zip(names, longest, strict=True)]
            natural = [max(n, len(u), *map(len, lines)) for n, u, lines in zip(longest, units, self._head, strict=True)]
        if any(units):
            self._head = [[*lines, unit] for lines, unit in zip(self._head, units, strict=True)]
        most = max(natural, default=0) if form.whole else _NAME_WIDTH
        limits = [n if right else min(n, most) for n, right in zip(natural, self._right, strict=True)]
        if form.width:
            self._places = _fitting(self._places, limits, self._right, importance, form.width)
        # the names of the columns that are not shown
        self.dropped = [printable(f.name) for i, f in enumerate(schema) if i not in set(self._places)]
        self._right = [self._right[i] for i in self._places]
        self._limits = [limits[i] for i in self._places]
        if form.width:
            self._limits = _narrowed(self._limits, self._right, form.width, _LEAST)

    def head(self) -> list[str]:
        """The names of the columns with their units, and the line below them."""
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


def _fitting(
    places: Sequence[int], limits: Sequence[int], right: Sequence[bool], importance: Sequence[int], width: int
) -> list[int]:
    """Places of the columns that fit with readable texts: the least important go first, and of equal ones the last."""
    fitting = list(places)
    ranked = any(importance)
    staying = {i for i in fitting if importance[i] == 1} if ranked else set(fitting[:1])
    leaving = sorted(set(fitting) - staying, key=lambda i: (importance[i] or len(limits) + 1, i), reverse=True)
    for gone in leaving:
        if _width(_narrowed([limits[i] for i in fitting], [right[i] for i in fitting], width, _READABLE)) <= width:
            break
        fitting.remove(gone)
    return fitting


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
