"""A report as Markdown, for pull requests and chats: findings first, tables folded."""

import html
import re

from alltrace.charts.words import cell
from alltrace.recipes.questions.diagnose.cards import Diagnosis
from alltrace.report.content import Report, Section
from alltrace.report.words import FACTORS, facts, heading
from alltrace.trace.errors import printable

_ROWS = 10
_TABLES = ("stragglers", "breakdown", "steps", "kernels", "kernel-origins", "memory", "collectives")


def to_markdown(report: Report) -> str:
    """The report's findings, efficiencies and first tables in GitHub's Markdown; text from a trace is not markup."""
    lines = [
        f"# alltrace: {literal(report.name)}",
        "",
        *([f"**{literal(report.change)}**", ""] if report.change else []),
        ", ".join(f"{n} {what}" for n, what in facts(report))
        + (f"; {literal(report.selection)}" if report.selection else ""),
        "",
    ]
    for section in report.sections:
        if section.ask.key == "findings":
            lines += _findings(section, report.diagnosis)
        elif section.ask.key == "efficiency":
            lines += _efficiency(section)
        elif section.ask.key in _TABLES:
            lines += _folded(section)
    return "\n".join(lines).rstrip() + "\n"


def _findings(section: Section, diagnosis: Diagnosis | None) -> list[str]:
    lines = [f"## {section.ask.title}", ""]
    if diagnosis is None:
        return [*lines, literal(section.problem), "", *_notes(section)]
    lines += [f"**{literal(diagnosis.verdict)}**", ""]
    for number, card in enumerate(diagnosis.cards, 1):
        lines.append(f"{number}. **{literal(card.what)}** ({literal(card.severity)}, {literal(card.kind)})")
        rows = (
            ("ranks", card.who),
            ("cost", card.cost),
            ("where", card.where),
            ("evidence", card.evidence),
            ("advice", card.advice),
        )
        lines += [f"   - {name}: {literal(text)}" for name, text in rows if text]
        lines += [] if card.proof is None else [f"   - command: `{card.proof.command()}`"]
    return [*lines, "", *_notes(section)]


def _efficiency(section: Section) -> list[str]:
    lines = [f"## {section.ask.title}", ""]
    rows = section.answer.table.to_pylist() if section.answer is not None else []
    for row in rows:
        lines += [f"- {row['side']}"]
        lines += [
            f"{'  ' * (depth + 1)}- {name.replace('_', ' ')}: {100 * row[name]:.1f} %"
            for depth, name in FACTORS.get(row["side"], ())
            if row[name] is not None
        ]
    return [*(lines if rows else [*lines, literal(section.problem)]), "", *_notes(section)]


def _folded(section: Section) -> list[str]:
    lines = ["<details>", f"<summary>{html.escape(section.ask.title)}</summary>", ""]
    table = section.table
    if table is None or not table.num_rows:
        lines.append(literal(section.problem))
    else:
        columns = [section.column(n) for n in table.column_names]
        lines.append("| " + " | ".join(literal(heading(c)) for c in columns) + " |")
        lines.append("|" + "|".join("---" if c.unit is None else "---:" for c in columns) + "|")
        lines += [
            "| " + " | ".join(literal(cell(row[c.name], c)) for c in columns) + " |"
            for row in table.slice(0, _ROWS).to_pylist()
        ]
        left = (section.answer.table.num_rows if section.answer is not None else 0) - min(table.num_rows, _ROWS)
        if left:
            lines += ["", f"{left} more: `alltrace recipe {section.ask.recipe}`"]
    return [*lines, "", *_notes(section), "</details>", ""]


def _notes(section: Section) -> list[str]:
    return [*(f"- {literal(n)}" for n in section.notes), ""] if section.notes else []


def literal(text: str) -> str:
    """Text as it is: nothing in it is read as markup, HTML, a mention or a link."""
    shown = re.sub(r"([\\`*_\[\]|#~])", r"\\\1", html.escape(printable(text), quote=False))
    return re.sub(r"(?i)(www)\.", r"\1&#8203;.", shown.replace("@", "@&#8203;").replace("://", ":&#8203;//"))
