"""Launches that Nsight Compute measured, joined with a run: their share of time, and what their advice saves."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from alltrace.recipes.base import Answer, AnswerTable, Chart, View
from alltrace.recipes.ncu import tables
from alltrace.recipes.ncu.advice import findings
from alltrace.recipes.ncu.metrics import main_of
from alltrace.recipes.ncu.tables import CONFIGURATION, IDENTITY, Profiled, identity, sizes
from alltrace.trace import columns as col
from alltrace.trace.launches import plain_name, short_name

COLUMNS = (
    col.text("name", "kernel"),
    *CONFIGURATION,
    col.text("matched_by", "`name`; or `function`, if either side has no arguments that distinguish kernels"),
    col.whole("profiled", "launches in the reports; values are their means"),
    col.ns("profiled_ns", "time of one launch under Nsight Compute, which may set clocks and empty caches"),
    col.ns("mean_ns", "time of one launch in the run"),
    col.whole("ranks", "ranks of the run that launched it"),
    col.whole("count", "launches in the run"),
    col.ns("total_ns", "their time in the run, over all ranks"),
    col.percent("share_percent", "total_ns as a share of the time of all kernels of the run", None),
    col.text("rule", "the advice with the largest gain"),
    col.percent("gain_percent", "upper bound of the gain, as a share of a launch's time", None),
    col.ns("gain_ns", "upper bound of the gain over the run, summed over ranks"),
    col.percent("gain_share_percent", "gain_ns as a share of the time of all kernels of the run", None),
    col.text("advice", "what to do"),
)  # fmt: skip
_UNMATCHED = (*IDENTITY, *CONFIGURATION)
_REST = (
    col.text("name", "kernel"),
    *CONFIGURATION,
    col.whole("ranks", "ranks that ran it"),
    col.whole("count", "launches"),
    col.ns("total_ns", "their time, over all ranks"),
    col.percent("share_percent", "total_ns as a share of the time of all kernels of the run", None),
)
CHART = Chart(
    "bars",
    "name",
    ("total_ns", "gain_ns"),
    detail="grid",
    title="Time of profiled kernels in the run, and the most to gain",
)


def answer(profiled: Sequence[Profiled], configurations: Sequence[Mapping[str, Any]], notes: Sequence[str]) -> Answer:
    """A row per profiled kernel and configuration, largest time first; `unmatched`, `not_profiled` have the rest."""
    groups: defaultdict[Any, list[Profiled]] = defaultdict(list)
    for each in profiled:
        groups[each.launch.configuration].append(each)
    by_name: defaultdict[Any, list[int]] = defaultdict(list)
    by_function: defaultdict[Any, list[int]] = defaultdict(list)
    for n, row in enumerate(configurations):
        place = _place(row)
        if row["name"] is not None:
            full = (plain_name(row["name"]), *place)
            function = (row["short_name"] or short_name(row["name"]), *place)
            by_name[full].append(n)
            by_function[function].append(n)
    whole = sum(row["total_ns"] for row in configurations)
    rows: list[tuple[Any, ...]] = []
    alone: list[Profiled] = []
    taken: set[int] = set()
    for key, group in groups.items():
        matches, how = by_name.get(key, []), "name"
        if not matches:
            matches, how = _by_function(group[0], configurations, by_function), "function"
        if not matches:
            alone += group
            continue
        taken.update(matches)
        rows.append(_row(group, how, [configurations[n] for n in sorted(set(matches))], whole))
    rows.sort(key=lambda r: (-r[_TOTAL], r[0]))
    rest = [row for n, row in enumerate(configurations) if n not in taken]
    texts = list(notes)
    if alone:
        texts.append(f"{len(alone)} profiled launches are not in the run (name, grid and block): table unmatched")
    if rest and whole:
        share = 100 * sum(row["total_ns"] for row in rest) / whole
        texts.append(
            f"{len(rest)} configurations of the run, {share:.1f} % of its kernel time, are not profiled: table"
            " not_profiled"
        )
    unmatched = [(*identity(each), sizes(each.launch.grid), sizes(each.launch.block)) for each in alone]
    others = [
        (
            row["name"],
            *map(sizes, _place(row)),
            row["ranks"],
            row["count"],
            row["total_ns"],
            _share(row["total_ns"], whole),
        )
        for row in rest
    ]
    further = {
        "unmatched": AnswerTable(tables.table(_UNMATCHED, unmatched), _UNMATCHED),
        "not_profiled": AnswerTable(tables.table(_REST, others), _REST),
    }
    return Answer(tables.table(COLUMNS, rows), COLUMNS, tuple(texts), chart=CHART, further=further, name="weighed")


_TOTAL = [c.name for c in COLUMNS].index("total_ns")


def _by_function(
    each: Profiled, configurations: Sequence[Mapping[str, Any]], by_function: Mapping[Any, list[int]]
) -> list[int]:
    """Rows of the run with the function's name, if the report or the run has no arguments that distinguish them."""
    launch = each.launch
    rows = by_function.get((launch.function, launch.grid, launch.block), [])
    if launch.name == launch.function:
        return list(rows)
    return [n for n in rows if configurations[n]["name"] == launch.function]


def _row(group: list[Profiled], how: str, matches: list[Mapping[str, Any]], whole: int) -> tuple[Any, ...]:
    launch = group[0].launch
    times = [t for each in group if (t := main_of(each.launch, "duration_ns")) is not None]
    count, total = (sum(row[c] for row in matches) for c in ("count", "total_ns"))
    best: dict[str, list[float]] = defaultdict(list)
    words = {}
    for each in group:
        for finding in findings(each.launch):
            if finding.gain is not None:
                best[finding.rule].append(finding.gain)
                words[finding.rule] = finding.advice
    rule = max(best, key=lambda r: sum(best[r]), default=None)
    gain = sum(best[rule]) / len(group) if rule else None  # a launch without the finding gains nothing by it
    over = None if gain is None else round(gain * total)
    return (
        launch.name,
        sizes(launch.grid),
        sizes(launch.block),
        how,
        len(group),
        round(sum(times) / len(times)) if times else None,
        round(total / count) if count else None,
        max(row["ranks"] for row in matches),
        count,
        total,
        _share(total, whole),
        rule,
        None if gain is None else 100 * gain,
        over,
        None if over is None else _share(over, whole),
        words[rule] if rule else None,
    )


def _share(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None


def _place(row: Mapping[str, Any]) -> tuple[Any, Any]:
    """Grid and block of a row of the run; None if not known."""
    grid, block = (tuple(row[f"{what}_{axis}"] for axis in "xyz") for what in ("grid", "block"))
    return None if None in grid else grid, None if None in block else block


VIEW = View(COLUMNS, answer, CHART)
