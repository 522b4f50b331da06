"""The forms that `nsys stats` and `nsys analyze` print tables in, with their arguments: `csv:nohdr:dur=us`."""

import html
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from alltrace.charts.cells import column_cells, is_number
from alltrace.cli.csv_text import csv_header, csv_rows
from alltrace.cli.nsys.arguments import RefusedError
from alltrace.cli.nsys.units import DEFAULT_UNITS, LEAST_UNITS, META_CATEGORIES, SCALES, Column, converted
from alltrace.trace.errors import printable

ENDINGS: Mapping[str, str] = {
    "column": "txt", "table": "txt", "csv": "csv", "tsv": "tsv", "json": "json", "hdoc": "html", "htable": "html",
}  # fmt: skip
"""The formats, each with the extension of its files."""
FORMATS: Mapping[str, str] = {
    "column": "columns of text", "table": "columns of text in boxes", "csv": "comma-separated values",
    "tsv": "tab-separated values", "json": "JSON, an object for each row", "hdoc": "an HTML page with a table",
    "htable": "an HTML table",
}  # fmt: skip
"""The formats, each with what it is."""
_UNIT_ARGUMENTS = (
    (":dur=UNIT, :ts=UNIT, :time=UNIT", "The unit of durations, of times, or of both: ns, us, ms or sec. Default: ns."),
    (
        ":mem=UNIT, :thru=UNIT, :bytes=UNIT",
        "The unit of sizes, of rates, or of both: B, KB, KiB, MB, MiB, GB or GiB. Default: MB.",
    ),
    (":noconv", "Times in ns and sizes in bytes."),
)
_HEADER, _HEADER_UNIT = (":nohdr", "No header."), (":nohdrunit", "Headers without units.")
_ALIGNED = (
    (":N, :.", "The width of the next column, 0 to hide it, or a point for as wide as its cells."),
    (":autolines=N", "Rows that widths are measured on; 0 for all. Default: 100."),
    (":colmax=N", "The widest a column can be; 0 for any width. Default: 100."),
)
_FORMAT_ARGUMENTS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "column": (_HEADER, *_ALIGNED), "table": (_HEADER, *_ALIGNED), "csv": (_HEADER,),
    "tsv": (_HEADER, (":esc", "A tab in a value is written as \\t, in place of a blank.")),
    "hdoc": ((":title=TEXT", "The title of the page."), (":css=URL", "A style sheet that the page links to.")),
}  # fmt: skip

_PIECE_ROWS = 1 << 14
_ELLIPSIS = "…"


class Shown(NamedTuple):
    title: str  # its name
    columns: Sequence[Column]  # its columns
    rows: Iterable[Any]  # its rows, one table after the other; times in ns, sizes in bytes
    heading: str = ""  # the text above it, if the form has text
    below: str = ""  # the text below it, likewise


def format_reference(name: str) -> str:
    """What a format is, with its arguments, as text. Raises `RefusedError`: the format does not exist."""
    from alltrace.recipes.reference import reference

    if name not in FORMATS:
        raise RefusedError(f"unknown format {name!r}; expected one of {', '.join(ENDINGS)}")
    about = f"{FORMATS[name]}, in files that end with .{ENDINGS[name]}"
    return reference(name, about, (*_FORMAT_ARGUMENTS.get(name, ()), *_UNIT_ARGUMENTS, _HEADER_UNIT), ())


class Form(NamedTuple):
    name: str  # its name
    units: Mapping[str, str]  # the unit of each category
    flags: frozenset[str] = frozenset()  # arguments without a value, such as `nohdr`
    settings: Mapping[str, str] = {}  # arguments with one, such as `colmax`
    # the width of each column; None for as wide as it must be, 0 for a column that is not shown
    widths: tuple[int | None, ...] = ()

    @property
    def ending(self) -> str:
        return ENDINGS[self.name]

    def text(self, shown: Shown) -> Iterator[str]:
        named = "nohdrunit" not in self.flags
        tables = (
            converted(part.slice(at, _PIECE_ROWS), shown.columns, self.units, with_unit=named)
            for part in shown.rows
            for at in range(0, max(part.num_rows, 1), _PIECE_ROWS)
        )
        return _WRITERS[self.name](self, shown, tables)


def parse_form(text: str, time: str | None, default: str) -> Form:
    # `text`: `NAME[:ARGUMENT]...`; a point for the default. `time`: The unit that `--timeunit` names, or None.
    name, *arguments = text.split(":")
    name = default if name == "." else name
    if name not in ENDINGS:
        raise RefusedError(f"unknown format {name!r}; expected one of {', '.join(ENDINGS)}")
    units = {**DEFAULT_UNITS, **({"ts": time, "dur": time} if time else {})}
    flags: set[str] = set()
    settings: dict[str, str] = {}
    widths: list[int | None] = []
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if argument == "." or argument.isdigit():
            widths.append(None if argument == "." else int(argument))
        elif equals and (key in META_CATEGORIES or key in SCALES):
            for category in META_CATEGORIES.get(key, (key,)):
                if value not in SCALES[category]:
                    raise RefusedError(
                        f"{key} of format {name} is {value!r}; expected one of {', '.join(SCALES[category])}"
                    )
                units[category] = value
        elif equals:
            settings[key] = value
        else:
            flags.add(key)
    return Form(name, LEAST_UNITS if "noconv" in flags else units, frozenset(flags), settings, tuple(widths))


def _cells(table: Any) -> list[list[str]]:
    return [column_cells(table.column(i), table.schema.field(i), grouped=False) for i in range(table.num_columns)]


# every writer has the same signature
def _csv(form: Form, shown: Shown, tables: Iterator[Any]) -> Iterator[str]:  # noqa: ARG001
    first = True
    for table in tables:
        if not table.num_rows:
            continue
        if first and "nohdr" not in form.flags:
            yield csv_header(table.schema)
        first = False
        yield from csv_rows(table)


def _tsv(form: Form, shown: Shown, tables: Iterator[Any]) -> Iterator[str]:  # noqa: ARG001
    tab = "\\t" if "esc" in form.flags else " "
    first = True
    for table in tables:
        if not table.num_rows:
            continue
        if first and "nohdr" not in form.flags:
            yield "\t".join(table.schema.names) + "\n"
        first = False
        for row in zip(*_cells(table), strict=True):
            yield "\t".join(cell.replace("\t", tab).replace("\n", " ") for cell in row) + "\n"


def _json(form: Form, shown: Shown, tables: Iterator[Any]) -> Iterator[str]:  # noqa: ARG001
    yield "["
    first = True
    for table in tables:
        names = [json.dumps(name, ensure_ascii=False) for name in table.schema.names]
        plain = [is_number(field) for field in table.schema]
        for row in zip(*_cells(table), strict=True):
            values = (c if p and c else json.dumps(c, ensure_ascii=False) for c, p in zip(row, plain, strict=True))
            body = ",\n".join(f"    {name}: {value}" for name, value in zip(names, values, strict=True))
            yield f"{'' if first else ','}\n  {{\n{body}\n  }}"
            first = False
    yield "\n]\n"


def _htable(form: Form, shown: Shown, tables: Iterator[Any]) -> Iterator[str]:  # noqa: ARG001
    first = True
    yield "<table>\n"
    for table in tables:
        if first:
            heads = "".join(f"      <th>{html.escape(name)}</th>\n" for name in table.schema.names)
            yield f"  <thead>\n    <tr>\n{heads}    </tr>\n  </thead>\n  <tbody>\n"
            first = False
        for row in zip(*_cells(table), strict=True):
            yield "    <tr>\n" + "".join(f"      <td>{html.escape(cell)}</td>\n" for cell in row) + "    </tr>\n"
    yield ("</table>\n") if first else "  </tbody>\n</table>\n"


def _hdoc(form: Form, shown: Shown, tables: Iterator[Any]) -> Iterator[str]:
    title = form.settings.get("title", "Nsight Systems Stats Output")
    css = form.settings.get("css")
    sheet = f'  <link rel="stylesheet" href="{html.escape(css)}">\n' if css else ""
    yield (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n  <meta charset="UTF-8">\n'
        f"  <title>{html.escape(title)}</title>\n{sheet}</head>\n<body>\n<h1>{html.escape(shown.title)}</h1>\n"
    )
    yield from _htable(form, shown, tables)
    yield "</body>\n</html>\n"


def _number(form: Form, key: str, default: int) -> int:
    text = form.settings.get(key, "")
    return int(text) if text.isdigit() else default


def _aligned(form: Form, shown: Shown, tables: Iterator[Any]) -> Iterator[str]:
    yield f"\n ** {shown.title}:\n\n"
    if shown.heading:
        yield f"{shown.heading}\n"
    layout: _Layout | None = None
    for table in tables:
        if not table.num_rows:
            continue
        columns = [[printable(cell) for cell in column] for column in _cells(table)]
        if layout is None:
            layout = _Layout(form, table.schema, columns)
            yield ("\n" if shown.heading else "") + layout.head
        yield "".join(map(layout.line, zip(*columns, strict=True)))
    if layout is not None:
        yield layout.tail
    elif not shown.heading:
        yield "The report has no rows.\n"
    if shown.below:
        yield f"\n{shown.below}\n"


class _Layout:
    """How wide the columns are, measured on the first rows."""

    def __init__(self, form: Form, schema: Any, columns: Sequence[Sequence[str]]) -> None:
        lines = _number(form, "autolines", 100)
        most = _number(form, "colmax", 100)
        headed = "nohdr" not in form.flags
        self._boxed = form.name == "table"
        self._right = [is_number(field) for field in schema]
        self._widths: list[int] = []
        for place, (name, column) in enumerate(zip(schema.names, columns, strict=True)):
            width = form.widths[place] if place < len(form.widths) else None
            cells = column if lines == 0 else column[:lines]
            wide = max([len(name), *map(len, cells)])
            self._widths.append(width if width is not None else wide if most == 0 else min(wide, most))
        shown = [w for w in self._widths if w]
        rule = (
            "+" + "+".join("-" * (w + 2) for w in shown) + "+\n"
            if self._boxed
            else " " + "  ".join("-" * w for w in shown) + "\n"
        )
        names = self._join(_centred(n, w) for n, w in self._shown(schema.names))
        if self._boxed:
            self.head = rule + (names + rule if headed else "")
        else:
            self.head = names + rule if headed else ""
        self.tail = rule if self._boxed else ""

    def line(self, row: Sequence[str]) -> str:
        cells = zip(row, self._widths, self._right, strict=True)
        return self._join(
            (c.rjust(w) if r else c.ljust(w)) for c, w, r in ((self._clipped(c, w), w, r) for c, w, r in cells if w)
        )

    def _shown(self, cells: Sequence[str]) -> Iterator[tuple[str, int]]:
        return ((self._clipped(c, w), w) for c, w in zip(cells, self._widths, strict=True) if w)

    def _join(self, cells: Iterable[str]) -> str:
        return f"| {' | '.join(cells)} |\n" if self._boxed else f" {'  '.join(cells)}\n"

    @staticmethod
    def _clipped(cell: str, width: int) -> str:
        return cell if len(cell) <= width else cell[: width - 1] + _ELLIPSIS


def _centred(name: str, width: int) -> str:
    """A centred name; an odd blank goes after it."""
    before = max(width - len(name), 0) // 2
    return f"{' ' * before}{name}".ljust(width)


_WRITERS: Mapping[str, Callable[[Form, Shown, Iterator[Any]], Iterator[str]]] = {
    "column": _aligned, "table": _aligned, "csv": _csv, "tsv": _tsv, "json": _json, "hdoc": _hdoc, "htable": _htable,
}  # fmt: skip
