"""The verdict and the cards of a diagnosis as HTML, for reports and notebooks; text from a trace is text, never markup."""

from __future__ import annotations

import html

from alltrace.recipes.questions.diagnose.cards import Card, Diagnosis, StepTimes
from alltrace.trace.amounts import amount
from alltrace.trace.errors import printable


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
        f'<rect x="{at}" y="{1 - ns / high:.3f}" width="0.8" height="{ns / high:.3f}" opacity="{1 if at == times.marked else 0.4}">'
        f"<title>step {step}: {amount(ns, 'ns', 3)}</title></rect>"
        for at, (step, ns) in enumerate(zip(times.steps, times.times_ns, strict=True))
    )
    return (
        f'<figure><svg width="100%" height="40" viewBox="0 0 {width} 1" preserveAspectRatio="none" fill="currentColor" role="img" '
        f'aria-label="{_safe(times.words)}">{bars}</svg><figcaption>{_safe(times.words)}</figcaption></figure>'
    )


def _safe(text: str) -> str:
    return html.escape(printable(text))
