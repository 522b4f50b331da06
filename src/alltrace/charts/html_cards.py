"""The verdict and the cards of a diagnosis as HTML, for reports and notebooks; text from a trace is text, never markup."""

from __future__ import annotations

import html

from alltrace.recipes.questions.diagnose.cards import Card, Diagnosis
from alltrace.trace.errors import printable


def diagnosis_html(found: Diagnosis) -> str:
    """The verdict, the cards and the notes."""
    notes = "".join(f"<li>{_safe(note)}</li>" for note in found.notes)
    return f'<p class="verdict"><b>{_safe(found.verdict)}</b></p>{cards_html(found)}' + (f"<ul>{notes}</ul>" if notes else "")


def cards_html(found: Diagnosis) -> str:
    """An article for each finding."""
    return "".join(map(_card, found.cards))


def _card(card: Card) -> str:
    rows = (
        *(("who", card.who), ("cost", card.cost), ("where", card.where)),
        *(("evidence", card.evidence), ("to do", card.advice)),
    )
    facts = "".join(f"<dt>{name}</dt><dd>{_safe(text)}</dd>" for name, text in rows if text)
    proof = "" if card.proof is None else f"<dt>proof</dt><dd><code>{_safe(card.proof.command())}</code></dd>"
    grave = _safe(card.severity)
    return (
        f'<article class="finding {grave}"><h3><span class="badge">{grave}</span> {_safe(card.what)}</h3>'
        f'<dl>{facts}{proof}</dl><p class="kind">{_safe(card.kind)}</p></article>'
    )


def _safe(text: str) -> str:
    return html.escape(printable(text))
