"""Decodes the sections and the results of rules that a report has in addition to its metrics.

Field numbers are from `ProfilerSection.proto` and `RuleResults.proto`, which Nsight Compute has in `extras/FileFormat`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from alltrace.readers.wire import Value, fields, first, message, number_of, text, whole
from alltrace.trace.launches import Rule, RuleMessage, Section, SectionMetric

_KINDS = {0: "none", 1: "ok", 2: "warning", 3: "error", 4: "optimization"}
_SPEEDUPS = {1: "local", 2: "global"}
_METRICS_OF_ITEM = {1: 5, 2: 5, 3: 4, 4: 4, 7: 3}
"""Tables, bar charts, histograms, line charts and tables of source lines: the field that their metrics are in."""
_OPTION = 7
_LINES, _ROW, _ROOFLINE, _SUFFIXES = 4, 5, 6, 8
_GROUPS = {
    101: "group:memory__shared_table",
    102: "group:memory__first_level_cache_table",
    103: "group:memory__l2_cache_table",
    104: "group:memory__dram_table",
    105: "group:memory__chart",
    106: "group:memory__first_level_cache_table",
    107: "group:memory__l2_cache_table",
    111: "group:memory__l2_cache_evict_policy_table",
}
"""Tables of memory name no metrics: the report has the lists as texts of these names."""
_LINK = re.compile(r"@(?P<kind>[a-z]+):(?P<first>[^:@]*):(?P<second>[^@]*)@")
_DEEPEST = 8


def section_of(part: memoryview) -> Section:
    """A section: what the table above shows, then what is in its tables and charts."""
    parts = list(fields(part))
    metrics: list[SectionMetric] = []
    for number, _, value in parts:
        if number == 4:
            metrics += (m for n, _, v in fields(message(value)) if n == 2 for m in _metrics(v, "header"))
        elif number == 5:
            metrics += (m for n, _, v in fields(message(value)) if n == 1 for m in _item(message(v), 0))
    return Section(text(first(parts, 1)), text(first(parts, 2)), whole(first(parts, 3)), tuple(metrics))


def _metrics(value: Value, part: str = "body") -> Iterator[SectionMetric]:
    """The metric of a message: none if it only fills a cell."""
    parts = list(fields(message(value)))
    if name := text(first(parts, 1)):
        options = tuple(text(first(list(fields(message(v))), 1)) for n, _, v in parts if n == _OPTION)
        yield SectionMetric(name, text(first(parts, 2)), part, tuple(o for o in dict.fromkeys(options) if o != name))


def _item(part: memoryview, depth: int) -> Iterator[SectionMetric]:
    for number, _, value in fields(part):
        if number in _METRICS_OF_ITEM:
            for n, _, v in fields(message(value)):
                if n == _METRICS_OF_ITEM[number]:
                    yield from _metrics(v)
                elif number == _LINES and n == 5:  # the point of the line that is the launch's own
                    yield from (m for _, _, inner in fields(message(v)) for m in _metrics(inner))
        elif number == _ROW and depth < _DEEPEST:
            yield from (m for n, _, v in fields(message(value)) if n == 1 for m in _item(message(v), depth + 1))
        elif number == _ROOFLINE:
            yield from _roofline(message(value))
        elif number == _SUFFIXES:
            yield from _suffixes(message(value))
        elif number in _GROUPS:
            yield SectionMetric(_GROUPS[number], "", "body")


def _roofline(part: memoryview) -> Iterator[SectionMetric]:
    """Metrics of the roofs and then of the points: a metric, or several that are added and multiplied by a clock."""
    for number, _, value in fields(part):
        if number not in (4, 5):
            continue
        for n, _, side in fields(message(value)):
            if n not in (1, 2):
                continue
            for kind, _, v in fields(message(side)):
                if kind == 2:
                    yield from _metrics(v)
                elif kind == 3:
                    yield from (m for _, _, inner in fields(message(v)) for m in _metrics(inner))


def _suffixes(part: memoryview) -> Iterator[SectionMetric]:
    """A table with suffixes of metrics, such as `.avg`, as columns and their names as rows."""
    parts = list(fields(part))
    suffixes = [text(first(list(fields(message(v))), 1)) for n, _, w in parts if n == 2 for _, _, v in fields(message(w))]
    for number, _, names in parts:
        if number == 3:
            for _, _, each in fields(message(names)):
                for base in _metrics(each):
                    yield from (SectionMetric(base.name + s, base.label, "body") for s in suffixes)


def rule_of(part: memoryview) -> Rule:
    """What a rule said."""
    parts = list(fields(part))
    body = first(parts, 3)
    messages: list[RuleMessage] = []
    if body is not None:
        for number, _, item in fields(message(body)):
            if number == 1:
                messages += _messages(message(item))
    return Rule(text(first(parts, 1)), text(first(parts, 2)), text(first(parts, 4)), tuple(messages))


def _messages(item: memoryview) -> Iterator[RuleMessage]:
    outer = list(fields(item))
    body = first(outer, 1)
    if body is None:
        return
    parts = list(fields(message(body)))
    speedup = first(outer, 10)
    gain: float | None = None
    of: str | None = None
    if speedup is not None:
        estimate = list(fields(message(speedup)))
        value = first(estimate, 2)
        gain = None if value is None else float(number_of(value, real=True))
        of = _SPEEDUPS.get(whole(first(estimate, 1)))
    kind = _KINDS.get(whole(first(parts, 2)), "none")
    yield RuleMessage(kind, text(first(parts, 4)), plain_text(text(first(parts, 1))), gain, of)


def plain_text(marked: str) -> str:
    """A message without marks for links: one to a page becomes `label (address)`, one within the report its label."""

    def shown(match: re.Match[str]) -> str:
        if match["kind"] == "url":
            return f"{match['first']} ({match['second']})"
        return match["second"]

    return _LINK.sub(shown, marked)
