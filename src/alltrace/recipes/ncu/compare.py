"""Reports side by side with the first of them: launches matched by kernel name, grid, block and order, or less."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from alltrace.recipes.base import Answer, AnswerTable, Chart, View
from alltrace.recipes.ncu import tables
from alltrace.recipes.ncu.metrics import MAIN, main_of
from alltrace.recipes.ncu.tables import CONFIGURATION, IDENTITY, Profiled, identity, sizes, wanted
from alltrace.trace import columns as col
from alltrace.trace.launch_units import unit_of
from alltrace.trace.launches import plain_name

COLUMNS = (
    col.text("name", "kernel"),
    *CONFIGURATION,
    col.whole("launch_a", "number of the launch in the first report"),
    col.text("report_b", "the other report"),
    col.whole("launch_b", "number of the launch in the other report"),
    col.text("name_b", "kernel there"),
    col.text("metric", "metric, with its column name in the view `launches`, or for `--metric` with its own name"),
    col.text("unit", "its unit"),
    col.real("a", "its value in the first report"),
    col.real("b", "its value in the other report"),
    col.real("change", "b minus a"),
    col.percent("change_percent", "change as a share of a", None),
)
_UNMATCHED = (*IDENTITY, *CONFIGURATION)
CHART = Chart("bars", "metric", ("change_percent",), "name", detail="launch_a", title="Change from the first report")


def answer(
    first: Sequence[Profiled],
    others: Sequence[Sequence[Profiled]],
    notes: Sequence[str],
    match: str = "configuration",
    patterns: Sequence[str] | None = None,
) -> Answer:
    """A row per pair of launches and metric, n-th with n-th; `unmatched` has the rest. `match`: of `MATCHES`."""
    rows: list[tuple[Any, ...]] = []
    alone: list[Profiled] = []
    for second in others:
        partners: defaultdict[Any, list[Profiled]] = defaultdict(list)
        for each in second:
            partners[_key(each, match)].append(each)
        for a in first:
            waiting = partners[_key(a, match)]
            if not waiting:
                alone.append(a)
                continue
            rows += _pair(a, waiting.pop(0), patterns)
        left = [b for waiting in partners.values() for b in waiting]
        alone += sorted(left, key=lambda b: b.launch.number)
    texts = list(notes)
    if alone:
        what = {"configuration": "of the same name, grid and block", "order": "of the same number"}.get(
            match, f"of the same {match}"
        )
        texts.append(f"{len(alone)} launches have no partner {what} in the other report: table unmatched")
    unmatched = [(*identity(each), sizes(each.launch.grid), sizes(each.launch.block)) for each in alone]
    further = {"unmatched": AnswerTable(tables.table(_UNMATCHED, unmatched), _UNMATCHED)}
    return Answer(tables.table(COLUMNS, rows), COLUMNS, tuple(texts), chart=CHART, further=further, name="compared")


def _key(each: Profiled, match: str) -> Any:
    """What partners have in common."""
    launch = each.launch
    if match == "order":
        return launch.number
    return {"name": plain_name(launch.name), "function": launch.function}.get(match, launch.configuration)


def _pair(a: Profiled, b: Profiled, patterns: Sequence[str] | None) -> list[tuple[Any, ...]]:
    rows = []
    for metric, unit, before, after in _values(a, b, patterns):
        if before is None and after is None:
            continue
        change = None if before is None or after is None else after - before
        share = 100 * change / before if change is not None and before else None
        place = (a.launch.name, sizes(a.launch.grid), sizes(a.launch.block))
        which = (a.launch.number, b.report, b.launch.number, b.launch.name)
        rows.append((*place, *which, metric, unit, before, after, change, share))
    return rows


def _values(
    a: Profiled, b: Profiled, patterns: Sequence[str] | None
) -> Iterator[tuple[str, str | None, float | None, float | None]]:
    """Name, unit and both values of the main metrics, or of all with such names."""
    if not patterns:
        for column, _ in MAIN:
            before, after = (None if (v := main_of(each.launch, column.name)) is None else float(v) for each in (a, b))
            yield column.name, column.unit, before, after
        return
    for metric in sorted(a.launch.metrics.keys() | b.launch.metrics.keys()):
        if wanted(metric, patterns):
            yield metric, unit_of(metric), a.launch.number_of(metric), b.launch.number_of(metric)


VIEW = View(COLUMNS, answer, CHART)
