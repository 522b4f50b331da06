"""Spans of steps, ranks and time as a user writes them: one meaning for every verb.

With a colon a span is half-open, `10:50` is 10 to 49; either end may be left out. With a dash both ends belong to it,
as in a list of ranks: `10-49` is the same span. A number alone is that one.
"""

import re
from typing import Any, NamedTuple

from alltrace.trace.errors import UsageError

STEPS_WORDS = "10:50 for steps 10 to 49, as 10-49; 10:, :50, or one number"
RANKS_WORDS = "such as 0-7,64"
WINDOW_WORDS = "START:END in ns from the first event of the run, END not included; START:, :END"
"""What the help of every verb says of these options."""

_SPAN = re.compile(r"\s*(?P<first>[0-9]{0,18})(?:(?P<mark>[:-])(?P<end>[0-9]{0,18}))?\s*", re.ASCII)
_MOST_RANKS = 1 << 20
_ALL = (1 << 63) - 1


class Span(NamedTuple):
    """Numbers from `first` on, to the one before `end`."""

    first: int | None = None  # the first number; None for no bound
    end: int | None = None  # the number after the last; None for no bound

    def __str__(self) -> str:
        """As it is written with a colon."""
        return ":".join("" if n is None else str(n) for n in self)

    def holds(self, number: Any) -> Any:
        """Whether a number is in the span; of a NumPy array of numbers, which of them."""
        first = -_ALL if self.first is None else self.first
        return (number >= first) & (number < (_ALL if self.end is None else self.end))


def parse_steps(text: str | None) -> Span | None:
    """The steps that `--steps` names, None for None. Raises `UsageError`: the text names no step."""
    steps = None if text is None else _span(text)
    if text is not None and steps is None:
        raise UsageError(f"--steps is {text!r}; expected steps such as 10:50 (10 to 49), 10-49, 10:, :50 or one number")
    return steps


def parse_window(text: str | None) -> Span | None:
    """The time that `--window` names, ns; None for None. Raises `UsageError`: the text names no time."""
    window = None if text is None or ":" not in text else _span(text)
    if text is not None and window is None:
        raise UsageError(
            f"--window is {text!r}; expected a start and a later end in ns such as 1000:5000, 1000: or :5000"
        )
    return window


def rank_spans(text: str, others: str = "") -> list[Span]:
    """The spans of a list such as `0-7,64`, in the order of the text, none of them open."""
    # `others`: what else the option takes, for the message.
    parsed = [_span(part) if ":" not in part else None for part in text.split(",")]
    spans = [
        s for s in parsed if s is not None and s.first is not None and s.end is not None and s.end <= 1_000_000_000
    ]
    if len(spans) < len(parsed):
        raise UsageError(f"--ranks is {text!r}; expected numbers and spans {RANKS_WORDS}{others}")
    return spans


def parse_ranks(text: str | None) -> list[int] | None:
    """The ranks of a list such as `0-7,64`, in order and each once; None for None."""
    if text is None:
        return None
    ranks: set[int] = set()
    for first, end in rank_spans(text):
        if first is None or end is None or end - first > _MOST_RANKS:
            raise UsageError(f"--ranks is {text!r}; expected no more than {_MOST_RANKS:,} ranks")
        ranks.update(range(first, end))
    return sorted(ranks)


def _span(text: str) -> Span | None:
    match = _SPAN.fullmatch(text)
    if match is None:
        return None
    first, end = (int(match[g]) if match[g] else None for g in ("first", "end"))
    if match["mark"] != ":":  # both ends, or one number, which belong to it
        last = first if match["mark"] is None else end
        if first is None or last is None:
            return None
        end = last + 1
    if (first is None and end is None) or (end is not None and end <= (first or 0)):
        return None
    return Span(first, end)
