"""What `diagnose` found as cards for a terminal: the verdict, then each finding in words that are never cut."""

import argparse
import os
import re
import shlex
import sys
import textwrap
from collections.abc import Iterator, Mapping

from alltrace.charts.text_table import terminal_width
from alltrace.cli.output import emit, write_picture
from alltrace.recipes.base import Answer
from alltrace.recipes.questions.diagnose.cards import Card, Diagnosis, StepTimes, told
from alltrace.trace.amounts import shortened
from alltrace.trace.errors import printable

_LEAST, _MOST = 40, 110
"""Columns of a card: narrower ones break every word, wider ones have lines that eyes lose."""
_ELSEWHERE = 100
_LABEL = 10
_INDENT = 3
_BLOCKS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
_NUMBER = re.compile(r"(\d) (?=%|[numk\u00b5GMT]?[sB/]|bytes|MHz|W\b|\u00b0C)")
_COLORS = {"high": "31", "medium": "33", "low": "32"}


def write_cards(verb: str, answer: Answer, hosts: Mapping[int, str], args: argparse.Namespace) -> None:
    """Write the answer of `diagnose` as cards to `args.output` or standard output, its first `args.limit` findings."""
    # `hosts`: The host of each rank of the run. `args`: The arguments of `add_answer_options`.
    answer = answer.read()
    width, color = written_width(args)
    run = " ".join(map(shlex.quote, args.run))
    diagnosis = told(answer, hosts)
    emit([cards_text(diagnosis, args.limit, width, run, color=color)], args.output)
    if args.picture is not None:
        write_picture(verb, answer, args.picture)


def written_width(args: argparse.Namespace) -> tuple[int, bool]:
    """The columns of the place that the cards go to, and whether it has colours."""
    terminal = args.output is None and sys.stdout.isatty()
    return (terminal_width() if terminal else 0) or _ELSEWHERE, terminal and wants_color()


def wants_color() -> bool:
    """Whether to write in colour: not if NO_COLOR is set or the terminal has no colours."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def cards_text(
    diagnosis: Diagnosis, limit: int | None = None, width: int = _ELSEWHERE, run: str = "RUN", *, color: bool = False
) -> str:
    """The verdict, a card for each of the first `limit` findings, and the notes."""
    # `found`: What was found. `limit`: The most findings; None for all. `width`: Columns. `run`: How a shell takes the
    # run. `color`: Whether severities and titles are marked by the terminal's colours.
    width = max(_LEAST, min(width, _MOST))
    lines = [_styled(line, "1", color) for line in _wrapped(diagnosis.verdict, width)]
    shown = diagnosis.cards if limit is None else diagnosis.cards[:limit]
    for number, card in enumerate(shown, 1):
        lines += ["", *_card(number, card, width, run, color)]
    left = len(diagnosis.cards) - len(shown)
    if left:
        lines += ["", f"... {left} more finding{'s' if left > 1 else ''}; --limit shows more or fewer"]
    if diagnosis.notes:
        lines.append("")
        for note in diagnosis.notes:
            lines += _wrapped(f"note: {note}", width, "", "  ")
    return "\n".join(lines) + "\n"


def _card(number: int, card: Card, width: int, run: str, color: bool) -> Iterator[str]:
    title = f"{number:<{_INDENT - 1}} {card.severity.upper()}  {printable(card.kind)}"
    rule = "-" * (width - len(title) - 1)
    yield f"{_styled(title, f'1;{_COLORS.get(card.severity, 0)}', color)} {rule}"
    for line in _wrapped(card.what, width, " " * _INDENT, " " * _INDENT):
        yield _styled(line, "1", color)
    if card.step_times is not None:
        yield from _bars(card.step_times, width - _INDENT - _LABEL)
    for label, text in (
        ("ranks", card.who),
        ("cost", card.cost),
        ("where", card.where),
        ("evidence", card.evidence),
        ("advice", card.advice),
    ):
        if text:
            yield from _wrapped(text, width, f"{'':<{_INDENT}}{label:<{_LABEL}}", " " * (_INDENT + _LABEL))
    if card.proof is not None:
        yield f"{'':<{_INDENT}}{'command':<{_LABEL}}{card.proof.command(run)}"


def _bars(times: StepTimes, width: int) -> Iterator[str]:
    """A line of blocks, from the shortest step to the longest, and the marked step; in at most `width` columns."""
    group = -(-len(times.times_ns) // width)
    longest = [max(times.times_ns[at : at + group]) for at in range(0, len(times.times_ns), group)]
    low, high = min(longest), max(longest)
    at, margin = times.marked // group, " " * (_INDENT + _LABEL)
    yield f"{'':<{_INDENT}}{'by step':<{_LABEL}}" + "".join(
        _BLOCKS[7 * (t - low) // max(high - low, 1)] for t in longest
    )
    after, before = f"^ {times.words}", f"{times.words} ^"
    if at + len(after) <= width:
        yield f"{margin}{'':<{at}}{after}"
    elif len(before) <= at + 1:
        yield f"{margin}{before:>{at + 1}}"
    else:
        yield f"{margin}{'^':>{at + 1}}"
        yield from _wrapped(times.words, width + len(margin), margin, margin)


def _wrapped(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """Text in lines of at most `width` columns: a number stays with its unit, a long name loses its middle."""
    # A command in backquotes can be copied from its lines: they end as a shell continues them, and its words are whole.
    pieces = _NUMBER.sub("\\1\u00a0", printable(text)).split("`")
    room = width - max(len(first), len(rest))
    pieces[::2] = [" ".join(shortened(word, room) for word in piece.split(" ")) for piece in pieces[::2]]
    lines = []
    in_command = False
    for line in textwrap.wrap(
        "`".join(pieces),
        width - 2 * (len(pieces) > 1),  # space for what continues a command
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    ):
        in_command ^= line.count("`") % 2 == 1
        lines.append(line.replace("\u00a0", " ") + " \\" * in_command)
    return lines


def _styled(text: str, code: str, color: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if color else text
