"""The verdict and the cards of a diagnosis as HTML, for reports and notebooks; a trace's text is never markup."""

from __future__ import annotations

import html

from alltrace.charts.timeline_links import PAGE, places_of
from alltrace.charts.words import cell, label
from alltrace.recipes.base import Answer
from alltrace.recipes.questions.diagnose.cards import Card, Diagnosis, StepTimes
from alltrace.trace.amounts import amount
from alltrace.trace.errors import printable

_MOST_ROWS = 50


def answer_html(answer: Answer, zero_ns: int = 0) -> str:
    """An answer's first rows, with times that link to the timeline, and its notes; names from a trace are escaped."""
    # `zero_ns`: what its times are at the run's start.
    titles = [label(column) for column in answer.columns]
    shown = answer.table.slice(0, _MOST_ROWS).to_pylist()
    head = "".join(f'<th title="{_safe(c.doc)}">{_safe(t)}</th>' for t, c in zip(titles, answer.columns, strict=True))
    places = places_of(answer.columns, zero_ns)
    body = ""
    for row in shown:
        fragment = None if places is None else places.fragment(row)
        cells = {column.name: _safe(cell(row[column.name], column)) for column in answer.columns}
        if places is not None and fragment is not None:
            cells[places.start] = (
                f'<a href="{_safe(PAGE + fragment)}" target="_blank" rel="noreferrer">{cells[places.start]}</a>'
            )
        body += f"<tr>{''.join(f'<td>{text}</td>' for text in cells.values())}</tr>"
    left = answer.table.num_rows - len(shown)
    more = [f"{left} more rows"] if left else []
    if places is not None and shown:
        more.append("Times lead to the timeline of the page: alltrace ui RUN --port 8765")
    below = "".join(f"<p>{_safe(note)}</p>" for note in (*more, *answer.notes))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"


def diagnosis_html(diagnosis: Diagnosis) -> str:
    notes = "".join(f"<li>{_safe(note)}</li>" for note in diagnosis.notes)
    verdict = f'<p class="verdict"><b>{_safe(diagnosis.verdict)}</b></p>'
    return verdict + cards_html(diagnosis) + (f"<ul>{notes}</ul>" if notes else "")


def cards_html(diagnosis: Diagnosis) -> str:
    return "".join(map(_card, diagnosis.cards))


def _card(card: Card) -> str:
    rows = (
        *(("ranks", card.who), ("cost", card.cost), ("where", card.where)),
        *(("evidence", card.evidence), ("advice", card.advice)),
    )
    facts = "".join(f"<dt>{name}</dt><dd>{_safe(text)}</dd>" for name, text in rows if text)
    proof = "" if card.proof is None else f"<dt>command</dt><dd><code>{_safe(card.proof.command())}</code></dd>"
    grave = _safe(card.severity)
    return (
        f'<article class="finding {grave}"><h3><span class="badge">{grave}</span> {_safe(card.what)}</h3>'
        f'{_bars(card.step_times)}<dl>{facts}{proof}</dl><p class="kind">{_safe(card.kind)}</p></article>'
    )


def _bars(times: StepTimes | None) -> str:
    """A bar for each step, the marked one dark."""
    if times is None:
        return ""
    high, width = max(*times.times_ns, 1), len(times.times_ns)
    bars = "".join(
        f'<rect x="{at}" y="{1 - ns / high:.3f}" width="0.8" height="{ns / high:.3f}"'
        f' opacity="{1 if at == times.marked else 0.4}">'
        f"<title>step {step}: {amount(ns, 'ns', 3)}</title></rect>"
        for at, (step, ns) in enumerate(zip(times.steps, times.times_ns, strict=True))
    )
    return (
        f'<figure><svg width="100%" height="40" viewBox="0 0 {width} 1" preserveAspectRatio="none" fill="currentColor"'
        ' role="img"'
        f' aria-label="{_safe(times.words)}">{bars}</svg><figcaption>{_safe(times.words)}</figcaption></figure>'
    )


def _safe(text: str) -> str:
    return html.escape(printable(text))
