"""Judges a run by limits: statistics of what recipes answer, against numbers or against another run."""

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from alltrace.recipes.base import Answer
from alltrace.run.store import Run
from alltrace.trace import columns as col
from alltrace.trace.amounts import amount
from alltrace.trace.errors import AlltraceError, UsageError, printable
from alltrace.trace.number_text import counted

SHORT = {
    "step_ns": ("steps", "duration_ns"),
    "device_step_ns": ("steps", "device_span_ns"),
    "kernel_ns": ("kernels", "median_ns"),
}
"""Short names of frequent columns; other columns go by their name, or as `RECIPE.COLUMN`."""

SEARCHED = ("breakdown", "overlap", "stragglers", "collectives", "steps", "kernels", "efficiency", "diagnose")
"""The recipes, in order, in which a column without a recipe is searched."""

STATISTICS = ("min", "q1", "median", "q3", "max", "mean", "p95", "p99", "stddev", "total", "count")
BASELINE = "baseline"

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt, "==": operator.eq,
}  # fmt: skip
_LIMIT = re.compile(r"\s*([\w.-]+)\s*(<=|>=|==|<|>)\s*(.+?)\s*")
_NUMBER = r"[+-]?(?:\d+(?:_\d+)*)?\.?\d+(?:_\d+)*(?:[eE][+-]?\d+)?"
_BOUND = re.compile(
    rf"(?P<plain>{_NUMBER})"
    rf"|(?:(?P<before>{_NUMBER})\s*\*\s*)?{BASELINE}(?:\s*(?P<sign>[*+-])\s*(?P<after>{_NUMBER}))?"
)
_KEYS = {"name", "check", "where"}
_UNIT = re.compile(r"_(ns|bytes|percent)\b")

COLUMNS = (
    col.text("name", "name of the limit"),
    col.text("check", "the limit as written"),
    col.text("verdict", "held, breached, unknown if it cannot be judged, which counts as breached, or skipped"),
    col.text("sentence", "the row in words, with units"),
    col.real("value", "the run's value; without a statistic, the worst value", decimals=2),
    col.real("bound", "the value it was compared with"),
    col.real("baseline", "the other run's value, or the median of the earlier runs; null if not used"),
    col.text("why", "why it cannot be judged; else null"),
)


@dataclass(frozen=True)
class Limit:
    name: str  # its name
    check: str  # as it was written
    recipe: str  # the recipe to run
    column: str  # the column of its answer
    statistic: str | None  # one of `STATISTICS` over the rows; None if every row must hold
    compare: str  # the sign between value and bound
    scale: float  # what the baseline is multiplied by; 0 if the bound is a number
    shift: float  # what is added to that
    # values that other columns of a row must have for it to count
    where: Mapping[str, Any] = field(default_factory=dict)
    # of the recipe
    options: Mapping[str, Any] = field(default_factory=dict)


def read_limits(budget: Mapping[str, Any], place: str) -> list[Limit]:
    """The limits of a budget file as TOML reads it. Raises `UsageError`: something in it is not understood.

    It has `limits`, a list of texts (`step_ns.median <= 1.05 * baseline`) or a table of such by name; or `[[limit]]`
    tables with `check`, and perhaps `name` and `where`.
    """
    for key in budget:
        if key not in ("limits", "limit"):
            raise UsageError(
                f"{place}: {printable(str(key))!r} is unknown; expected limits = [...] or [[limit]] tables"
            )
    limits = budget.get("limits", [])
    named = list(limits.items()) if isinstance(limits, dict) else [(None, text) for text in _listed(limits, place)]
    entries = [{"name": name, "check": text} if name is not None else {"check": text} for name, text in named]
    entries += _listed(budget.get("limit", []), place)
    if not entries:
        raise UsageError(f"{place} has no limit; expected for example limits = ['step_ns.median <= 1.05 * baseline']")
    every = [_limit(entry, place) for entry in entries]
    names = [limit.name for limit in every]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{place}: two limits are named {printable(name)!r}; give them different names")
    return every


def _listed(value: Any, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise UsageError(f"{place}: limits are {type(value).__name__}; expected a list of limits")
    return value


def _limit(entry: Any, place: str) -> Limit:
    if not isinstance(entry, dict) or not isinstance(entry.get("check"), str):
        raise UsageError(
            f"{place}: {printable(repr(entry))} is not a limit; expected a text such as 'overlap_percent >= 80'"
        )
    for key in entry:
        if key not in _KEYS:
            raise UsageError.unknown(f"key of a limit in {place}", str(key), _KEYS)
    check = entry["check"]
    parts = _LIMIT.fullmatch(check)
    bound = _BOUND.fullmatch(parts[3]) if parts else None
    if parts is None or bound is None:
        raise UsageError(
            f"{place}: limit {printable(check)!r} is not understood; expected COLUMN[.STATISTIC] <= NUMBER or 1.05 *"
            " baseline"
        )
    recipe, column, statistic = _column(parts[1], place)
    where = entry.get("where", {})
    if not isinstance(where, dict):
        raise UsageError(
            f"{place}: where of {printable(check)!r} is {where!r}; expected a table such as {{ name = 'gemm' }}"
        )
    options = _options_with(recipe, (column, *map(str, where)), place)
    scale, shift = _line(bound)
    if scale and statistic is None:
        raise UsageError(
            f"{place}: {printable(check)!r} compares with a baseline; expected a statistic, such as {parts[1]}.median"
        )
    name = entry.get("name", check)
    if not isinstance(name, str):
        raise UsageError(f"{place}: the name of {printable(check)!r} is {name!r}; expected a text")
    return Limit(name, check, recipe, column, statistic, parts[2], scale, shift, where, options)


def _line(bound: re.Match[str]) -> tuple[float, float]:
    """The bound as scale times the baseline, plus shift."""
    if bound["plain"] is not None:
        return 0.0, float(bound["plain"])
    scale = float(bound["before"] or 1)
    if bound["sign"] is None:
        return scale, 0.0
    after = float(bound["after"])
    if bound["sign"] == "*":
        return scale * after, 0.0
    return scale, after if bound["sign"] == "+" else -after


def _column(text: str, place: str) -> tuple[str, str, str | None]:
    """Recipe, column and statistic of the left side of a limit."""
    from alltrace.recipes.registry import FORMER, names

    parts = text.split(".")
    statistic = parts.pop() if len(parts) > 1 and parts[-1] in STATISTICS else None
    if len(parts) == 1 and parts[0] in SHORT:
        return (*SHORT[parts[0]], statistic)
    if len(parts) == 2 and parts[0] in {*names(), *FORMER}:
        _options_with(parts[0], parts[1:], place)
        return parts[0], parts[1], statistic
    if len(parts) == 1:
        for recipe in SEARCHED:
            if parts[0] in _columns(recipe):
                return recipe, parts[0], statistic
    if len(parts) > 1 and (parts[0] in SHORT or any(parts[0] in _columns(r) for r in SEARCHED)):
        raise UsageError.unknown(f"statistic in {place}", parts[-1], STATISTICS)
    available = {*SHORT, *(c for recipe in SEARCHED for c in _columns(recipe))}
    raise UsageError.unknown(f"column in {place}", parts[-1] if len(parts) == 1 else ".".join(parts), available)


def _columns(recipe: str) -> list[str]:
    return next(columns for _, columns in _answers(recipe))


def _answers(recipe: str) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """The columns of a recipe with its defaults, and with each other choice of an option."""
    from alltrace.recipes.registry import find

    question = find(recipe)
    for options in question.option_sets():
        yield options, [column.name for column in question.answer_columns(options)]


def _options_with(recipe: str, columns: Sequence[str], place: str) -> dict[str, Any]:
    """The options under which a recipe has these columns: its defaults, if they do."""
    answers = list(_answers(recipe))
    for column in columns:
        if not any(column in available for _, available in answers):
            raise UsageError.unknown(
                f"column of {recipe} in {place}", column, {c for _, available in answers for c in available}
            )
    for options, available in answers:
        if set(columns) <= set(available):
            return options
    raise UsageError(
        f"{place}: no answer of {recipe} has {' and '.join(columns)} together; expected columns of one answer"
    )


def judge(run: Run, limits: Sequence[Limit], baseline: Run | None = None, *, jobs: int | None = None) -> Answer:
    """Whether `run` keeps the limits, a row for each; warm-up and checkpoint steps do not count in limits on `steps`.

    Raises `UsageError`: a limit compares with the `baseline`, and there is none.
    """
    needing = next((limit for limit in limits if limit.scale), None)
    if needing is not None and baseline is None:
        raise UsageError(f"limit {printable(needing.check)!r} compares with a baseline; give --baseline RUN")
    answers: dict[tuple[str, str, str], Any] = {}
    rows: list[dict[str, Any]] = []
    for limit in limits:
        try:
            rows.append(_judged(limit, *_values(limit, run, baseline, answers, jobs)))
        except AlltraceError as error:
            rows.append(_row(limit, "unknown", why=str(error)))
    return judgement(rows, change="" if baseline is None else change_in_words(run, baseline, jobs))


def change_in_words(run: Run, baseline: Run, jobs: int | None) -> str:
    """How the run differs from the baseline, in words."""
    from alltrace.recipes.questions.diff import compare

    return compare(baseline, run, what="step", names=("the baseline", "the run"), jobs=jobs).verdict or ""


def judgement(rows: Sequence[Mapping[str, Any]], notes: Sequence[str] = (), *, change: str = "") -> Answer:
    """The answer of `check` with these rows, each also in words; its verdict begins with what changed."""
    limits = [{**row, "sentence": _sentence(row)} for row in rows]
    broken = [row["sentence"] for row in limits if row["verdict"] not in ("held", "skipped")]
    number = sum(row["verdict"] != "skipped" for row in limits)
    all_hold = f"{counted(number, 'limit')} {'is' if number == 1 else 'are'} held."
    verdict = f"{len(broken)} of {counted(number, 'limit')} not held: {'; '.join(broken)}." if broken else all_hold
    return Answer.of(limits, COLUMNS, tuple(notes))._replace(verdict=f"{change} {verdict}".strip())


def _sentence(row: Mapping[str, Any]) -> str:
    """A row in words: `step_ns.median: 36.42 ms, and the limit is 31.33 ms`."""
    if row["verdict"] in ("unknown", "skipped"):
        return f"{row['name']}: {'cannot be judged' if row['verdict'] == 'unknown' else 'skipped'}, for {row['why']}"
    unit = _UNIT.search(row["check"])
    named = unit and unit[1].replace("percent", "%")
    value, bound, baseline = (amount(row.get(name), named, 4) for name in ("value", "bound", "baseline"))
    compared = f"; the baseline has {baseline}" if baseline else ""
    return f"{row['name']}: {value}, and the limit is {bound}{compared}"


def _values(
    limit: Limit, run: Run, baseline: Run | None, answers: dict[tuple[str, str, str], Any], jobs: int | None
) -> tuple[list[float], float | None]:
    """The values of a limit's column in the run, and the statistic of the baseline's, if compared with it."""
    values = _values_of("run", limit, run, answers, jobs)
    if not limit.scale or baseline is None:
        return values, None
    others = _values_of("baseline", limit, baseline, answers, jobs)
    if not others and limit.statistic != "count":
        raise AlltraceError(f"the baseline has no {limit.column}")
    return values, _statistic(others, limit.statistic or "median")


def _values_of(
    which: str, limit: Limit, run: Run, answers: dict[tuple[str, str, str], Any], jobs: int | None
) -> list[float]:
    from alltrace.recipes.execution.ask import ask

    key = which, limit.recipe, repr(limit.options)
    if key not in answers:
        answers[key] = ask(run, limit.recipe, limit.options, jobs=jobs).table.to_pylist()
    rows = [r for r in answers[key] if all(r.get(k) == v for k, v in limit.where.items())]
    if limit.recipe == "steps" and "kind" not in limit.where:
        rows = [r for r in rows if r["kind"] == "step"]
    if limit.statistic == "count":
        return [0.0] * len(rows)
    values = [r[limit.column] for r in rows if r[limit.column] is not None]
    if any(isinstance(v, str | list | dict) for v in values):
        raise AlltraceError(f"{limit.column} of {limit.recipe} is not a number; only .count works with it")
    return [float(v) for v in values]


def _judged(limit: Limit, values: list[float], baseline: float | None) -> dict[str, Any]:
    bound = limit.shift if baseline is None else limit.scale * baseline + limit.shift
    if not values and limit.statistic != "count":
        return _row(limit, "unknown", bound=bound, baseline=baseline, why=f"the run has no {limit.column}")
    holds = _COMPARE[limit.compare]
    if limit.statistic is not None:
        value = _statistic(values, limit.statistic)
    elif limit.compare == "==":
        value = next((v for v in values if not holds(v, bound)), values[0])
    else:  # every row must meet the limit, so the worst one decides
        value = max(values) if limit.compare in ("<", "<=") else min(values)
    met = holds(value, bound)
    return _row(limit, "held" if met else "breached", value=value, bound=bound, baseline=baseline)


def _row(limit: Limit, verdict: str, **others: Any) -> dict[str, Any]:
    return {"name": limit.name, "check": limit.check, "verdict": verdict, **others}


def _statistic(values: Sequence[float], statistic: str) -> float:
    """A statistic of at least one value; quantiles by linear interpolation, the deviation of a sample."""
    if statistic == "count":
        return float(len(values))
    numbers = np.asarray(values, np.float64)
    quantiles = {"min": 0.0, "q1": 0.25, "median": 0.5, "q3": 0.75, "p95": 0.95, "p99": 0.99, "max": 1.0}
    if statistic in quantiles:
        return float(np.quantile(numbers, quantiles[statistic]))
    if statistic == "stddev":
        return float(numbers.std(ddof=1)) if len(numbers) > 1 else 0.0
    return float(numbers.sum() if statistic == "total" else numbers.mean())
