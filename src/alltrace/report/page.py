"""A report as one HTML file that needs no network: text and tables as they are, charts by plotly inside."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from alltrace import __version__
from alltrace.charts.html_cards import cards_html
from alltrace.charts.timeline_links import PAGE, places_of
from alltrace.charts.words import cell
from alltrace.recipes.questions.diagnose.cards import Diagnosis
from alltrace.report import words
from alltrace.report.content import Report, Section
from alltrace.trace.errors import UsageError, printable


def check_plotly() -> Path:
    """The script of the installed plotly, which draws the charts; checked before the work is done."""
    # Raises `UsageError`: plotly is not installed.
    spec = find_spec("plotly")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        script = Path(folder) / "package_data" / "plotly.min.js"
        if script.is_file():
            return script
    raise UsageError("a report's charts need plotly, which is not installed; pip install plotly, or use --format md")


def to_html(report: Report, page: str = PAGE) -> str:
    """The report as a page. Times in tables are links to the timeline of the page that `alltrace ui` serves."""
    # The browser loads nothing from anywhere: a content security policy in the page forbids it, and allows two scripts
    # only, the page's own by its hash and plotly's from the page. Names from a trace are text in tables and in charts.
    # `page`: where that page is served at first; a reader can change it. Raises `UsageError`: plotly is not installed.
    plotly = check_plotly().read_bytes()
    style, script = (files("alltrace.report").joinpath(n).read_text(encoding="utf-8") for n in ("page.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}' blob:; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    figures = {f"{s.ask.key}:{w}": f for s in report.sections for w, f in s.figures.items()}
    body = [
        _head(report, page),
        _contents(report),
        "<main>",
        *(_section(s, report.diagnosis, page) for s in report.sections),
        "</main>",
        _foot(),
    ]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer">',
            f"<title>{_text(report.name)} · alltrace</title>",
            f"<style>{style}</style>",
            "</head>",
            "<body>",
            *body,
            _packed("figures", json.dumps(figures, allow_nan=False, separators=(",", ":")).encode()),
            _packed("plotly", plotly),
            f"<script>{script}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _packed(name: str, data: bytes) -> str:
    """Bytes as a block that the page unpacks and the browser does not run: base64 has no character that ends it."""
    packed = base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()
    return f'<script type="application/gzip" id="{name}">{packed}</script>'


def _text(text: object) -> str:
    return html.escape(printable(str(text)))


def _head(report: Report, page: str) -> str:
    shown = "".join(f"<li><b>{_text(v)}</b> {_text(k)}</li>" for v, k in words.facts(report))
    selection = f'<p class="selection">Asked: {_text(report.selection)}</p>' if report.selection else ""
    sentences = [report.change, "" if report.diagnosis is None else report.diagnosis.verdict]
    verdict = "".join(f'<p class="verdict">{_text(sentence)}</p>' for sentence in sentences if sentence)
    return (
        f'<header><p class="brand">alltrace</p><h1>{_text(report.name)}</h1>{verdict}{selection}<ul'
        f' class="facts">{shown}</ul><p class="selection">Times in tables lead to the timeline of the page that'
        ' <code>alltrace ui RUN --port 8765</code> serves at <input id="page" aria-label="address of the page"'
        f' value="{_text(page)}"></p><button type="button" id="theme">Light or dark</button></header><noscript><p>The'
        " charts need scripts; the tables do not.</p></noscript>"
    )


def _contents(report: Report) -> str:
    links = "".join(f'<li><a href="#{s.ask.key}">{_text(s.ask.title)}</a></li>' for s in report.sections)
    return f'<nav aria-label="Sections"><ol>{links}</ol></nav>'


def _foot() -> str:
    return (
        f"<footer><p>Written by alltrace {_text(__version__)}. Times are on the run's aligned clock; intervals are"
        " half-open. Drag in a chart to zoom, double-click to see it whole.</p></footer>"
    )


def _section(section: Section, diagnosis: Diagnosis | None, page: str) -> str:
    key = section.ask.key
    parts = [
        f'<section id="{key}"><h2>{_text(section.ask.title)}</h2>',
        f'<p class="about">{_code(words.about(section))}</p>',
    ]
    empty = section.answer is None or not section.answer.table.num_rows
    if key == "findings" and diagnosis is not None:
        parts.append(cards_html(diagnosis) or f'<p class="nothing">{_text(diagnosis.verdict)}</p>')
    elif key == "efficiency" and not empty:
        parts.append(_efficiency(section))
    if section.problem and (key != "findings" or section.answer is None):
        parts.append(f'<p class="nothing">{_text(section.problem)}</p>')
    if section.notes:
        parts.append('<ul class="notes">' + "".join(f"<li>{_text(n)}</li>" for n in section.notes) + "</ul>")
    if section.figures:
        parts.append(_charts(section))
    if section.ask.shown and not empty:
        parts.append(_table(section, page))
    parts.append(_definitions(section))
    return "\n".join([*parts, "</section>"])


def _code(text: str) -> str:
    """A recipe's documentation: text in backticks is code."""
    pieces = text.split("`")
    return "".join(f"<code>{_text(p)}</code>" if i % 2 else _text(p) for i, p in enumerate(pieces))


def _charts(section: Section) -> str:
    key, views = section.ask.key, list(section.figures)
    title = _text(section.ask.title)
    chooser = ""
    if len(views) > 1:
        options = "".join(f'<option value="{key}:{_text(v)}">{_text(v)}</option>' for v in views)
        chooser = f'<label class="view">Show <select data-chart="{key}">{options}</select></label>'
    height = section.figures[views[0]].get("layout", {}).get("height", 400)
    return (
        f'<figure>{chooser}<div class="chart" id="chart-{key}" data-figure="{key}:{_text(views[0])}" role="group" '
        f'aria-label="{title}" style="min-height:{int(height)}px"></div></figure>'
    )


def _efficiency(section: Section) -> str:
    rows = section.answer.table.to_pylist() if section.answer is not None else []
    parts = ['<div class="trees">']
    for row in rows:
        parts.append(f'<div class="tree"><h3>{_text(row["side"])}s: {row["count"]}</h3>')
        for depth, name in words.FACTORS.get(row["side"], ()):
            value = row[name]
            if value is None:
                continue
            parts.append(
                f'<div class="factor d{depth}"><span>{_text(name.replace("_", " "))}</span>'
                f'<meter min="0" max="1" value="{value:.4f}"></meter><b>{100 * value:.1f} %</b></div>'
            )
        parts.append("</div>")
    return "".join([*parts, "</div>"])


def _table(section: Section, page: str) -> str:
    table = section.table
    places = None if section.answer is None else places_of(section.answer.columns)
    columns = [section.column(n) for n in table.column_names]
    right = [
        c.unit is not None or str(f.type) in ("int32", "int64", "double")
        for c, f in zip(columns, table.schema, strict=True)
    ]
    sides = [' class="n"' if r else "" for r in right]
    head = "".join(f'<th scope="col"{s}>{_text(words.heading(c))}</th>' for c, s in zip(columns, sides, strict=True))
    rows = []
    answered = [] if section.answer is None else section.answer.table.slice(0, table.num_rows).to_pylist()
    for row in answered:
        fragment = None if places is None else places.fragment(row)
        cells = [_text(cell(row[c.name], c)) for c in columns]
        if places is not None and fragment is not None:
            # what is shown need not have the time itself
            at = next((i for i, c in enumerate(columns) if c.name == places.start), 0)
            cells[at] = (
                f'<a class="place" href="{_text(page + fragment)}" target="_blank" rel="noreferrer">{cells[at]}</a>'
            )
        rows.append(f"<tr>{''.join(f'<td{s}>{text}</td>' for text, s in zip(cells, sides, strict=True))}</tr>")
    whole = section.answer.table.num_rows if section.answer is not None else 0
    left = whole - table.num_rows
    more = (
        f'<p class="more">{left:,} more rows: <code>alltrace recipe {_text(section.ask.recipe)}</code></p>'
        if left
        else ""
    )
    opened = " open" if table.num_rows <= 24 else ""
    body = (
        '<div class="wide"'
        f' tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>{more}'
    )
    return f"<details{opened}><summary>Table, {table.num_rows} of {whole:,} rows</summary>{body}</details>"


def _definitions(section: Section) -> str:
    rows = "".join(
        f"<dt><code>{_text(name)}</code>{f' [{_text(unit)}]' if unit else ''}</dt><dd>{_code(doc)}</dd>"
        for name, unit, doc in words.definitions(section)
    )
    page, recipe = "recipes.md", section.ask.recipe
    url = words.docs_url()
    place = f"docs/{page}#{recipe}"
    link = (
        f'<a href="{html.escape(f"{url}/{page}#{recipe}")}" rel="noreferrer">{place}</a>'
        if url
        else f"<code>{place}</code>"
    )
    command = " ".join(
        [
            f"alltrace recipe {recipe} RUN",
            *(f"--{k.replace('_', '-')}" + ("" if v is True else f" {v}") for k, v in section.ask.options.items()),
        ]
    )
    return (
        f"<details><summary>What the numbers mean</summary><dl>{rows}</dl>"
        f"<p>More in {link}; all rows with <code>{_text(command)} --format csv</code>.</p></details>"
    )
