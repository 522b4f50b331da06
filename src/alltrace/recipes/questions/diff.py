"""Compares two runs: what is in both by what it is, quantiles of durations, and whether it is chance."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.analysis.sql_engine import run_statement
from alltrace.recipes.analysis.statistics_sql import statistics_statement
from alltrace.recipes.base import Answer, Chart, Part, RunFacts
from alltrace.recipes.questions import durations
from alltrace.recipes.questions.changed import TREE, Replaced, change_in_words, per_step
from alltrace.recipes.questions.durations import KEYS, distribution
from alltrace.recipes.sql_recipe import PARTS, parts_table
from alltrace.run.store import Run
from alltrace.trace import columns as col
from alltrace.trace.errors import UsageError
from alltrace.trace.grouping import group
from alltrace.trace.kernel_spelling import kernel_spelling
from alltrace.trace.number_text import counted

ALPHA = 0.05
THRESHOLD_PERCENT = 1.0
_FAR_APART = 0.1
_TOLD = 2  # how many replacements the verdict tells

_DOCS = {c.name: c for c in durations.COLUMNS}
COLUMNS = (
    *(_DOCS[k] for k in KEYS),
    col.text(
        "verdict",
        "slower or faster if its total time changed by the threshold and the change is significant; one_sample if a "
        "single one of each run changed by more than a tenth; else same; only_a or only_b if one run lacks it",
    ),
    col.text(
        "count_verdict", "more or fewer if its count changed by the threshold; else same; null unless both runs have it"
    ),
    col.text(
        "call_verdict",
        "longer or shorter if its median changed by the threshold and the change is significant; one_sample as of "
        "verdict; else same; null unless both runs have it",
    ),
    col.whole("count_a", "count in run A, over all ranks"),
    col.whole("count_b", "the same in run B"),
    col.ns("total_a_ns", "summed duration in run A"),
    col.ns("total_b_ns", "the same in run B"),
    col.ns("total_change_ns", "run B less run A; null if they have different numbers of steps"),
    col.percent("total_change_percent", "the change as a share of run A, then per step; null if run A has none"),
    col.real("q1_a_ns", "exact first quartile in run A", "ns"),
    col.real("q1_b_ns", "the same in run B", "ns"),
    col.real("median_a_ns", "exact median in run A", "ns"),
    col.real("median_b_ns", "the same in run B", "ns"),
    col.real("q3_a_ns", "exact third quartile in run A", "ns"),
    col.real("q3_b_ns", "the same in run B", "ns"),
    col.percent(
        "median_change_percent", "change of the median from run A to run B, relative to run A; null if one run has none"
    ),
    col.real("longer_share", "probability that a duration of run B is longer than one of run A; ties count half"),
    col.real("p_value", "of the two-sided Mann-Whitney rank test, corrected for ties and for the number of rows"),
)
IMPORTANT = (
    "what",
    "name",
    "total_change_ns",
    "verdict",
    "total_change_percent",
    "p_value",
    "median_a_ns",
    "median_b_ns",
)
TREE_IMPORTANT = ("tree", "time_a_ns", "time_b_ns", "count_a", "count_b", "change_ns", "what")
CHART = Chart(
    "scatter",
    "median_a_ns",
    ("median_b_ns",),
    "verdict",
    detail="name",
    title="Medians of both runs",
    log_x=True,
    log_y=True,
)


def _raw(parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
    """The distributions themselves: columns of `KEYS`, `value` and `count`."""
    return Answer(distribution(parts, run, options), ())


_RAW = replace(durations.QUESTION, merge=_raw)


def compare(
    run_a: Run,
    run_b: Run,
    *,
    what: str | None = None,
    merge_numbers: bool = False,
    alpha: float = ALPHA,
    threshold_percent: float = THRESHOLD_PERCENT,
    ranks: Sequence[int] | None = None,
    steps: str | None = None,
    skip_warmup: bool = False,
    by_tree: bool = False,
    names: tuple[str, str] = ("A", "B"),
    jobs: int | None = None,
) -> Answer:
    """What differs between two runs: a row per thing of either run, the largest change of the total first.

    `what`: only these kinds of things (see `durations`). `by_tree`: what replaced what, as a tree of ranges (`TREE`).
    Durations of one run depend on each other, so `p_value` (below `alpha`: significant) is small for any real
    difference in a long run: it sorts out chance, the threshold says what matters. Errors as of `ask`.
    """
    from alltrace.recipes.execution.ask import ask

    if by_tree and what is not None:
        raise UsageError("--by-tree shows kernels in ranges, so it works without --what; leave one out")
    options = {"what": what, "merge_numbers": merge_numbers}
    answers = [
        ask(r, _RAW, options, ranks=ranks, steps=steps, skip_warmup=skip_warmup, jobs=jobs) for r in (run_a, run_b)
    ]
    b, respelled = _spelled_as(answers[0].table, answers[1].table)
    steps_of = [sum(r["count"] for r in answer.table.to_pylist() if r["what"] == "step") for answer in answers]
    same_ranks = ranks is not None or len(run_a.ranks) == len(run_b.ranks)
    counts = (steps_of[0], steps_of[1]) if same_ranks and all(steps_of) else None
    differ = counts is not None and counts[0] != counts[1]
    table = compared(answers[0].table, b, alpha, threshold_percent, counts if differ else None)
    notes = [f"run {label}: {note}" for label, answer in zip("AB", answers, strict=True) for note in answer.notes]
    if respelled:
        notes.append(
            f"{counted(respelled, 'kernel')} of run B {'has the name' if respelled == 1 else 'have the names'} of run"
            " A, where a different profiler spells names differently: parameters and casts of template arguments were"
            " not compared"
        )
    sizes = [len(r.ranks) for r in (run_a, run_b)]
    if ranks is None and sizes[0] != sizes[1]:
        notes.append(
            f"run A has {counted(sizes[0], 'rank')} and run B {sizes[1]}, so counts and totals differ for this reason"
            " alone"
        )
    if differ:
        notes.append(
            f"run A has {counted(steps_of[0], 'step')} and run B {steps_of[1]}: totals are compared per step, and not"
            " subtracted"
        )
    rows = table.to_pylist()
    about = {"ranks": ranks, "steps": steps, "jobs": jobs}
    step = next((r for r in rows if (r["what"], r["name"]) == ("step", "step")), None)
    known = step is not None and step["verdict"] in ("slower", "faster", "same", "one_sample")
    classes = per_step(step, (run_a, run_b), **about, skip_warmup=steps is None) if known and step is not None else []
    replaced = Replaced(rows, (run_a, run_b), counts, **about, skip_warmup=skip_warmup)
    verdict = " ".join([change_in_words(step, classes, alpha, names), *replaced.in_words(_TOLD)])
    if by_tree:
        tree = replaced.tree(comparable=same_ranks)
        return Answer(col.table_of(tree, TREE), TREE, tuple(notes), {"per_step": classes}, None, verdict=verdict)
    return Answer(
        table, COLUMNS, tuple(notes), {"per_step": classes, "replaced": replaced.pairs()}, CHART, verdict=verdict
    )


def _spelled_as(a: Any, b: Any) -> tuple[Any, int]:
    """`b` with kernels called as in `a` if only the spelling differs, and how many; ambiguous ones keep their names."""
    names = [
        set(pc.unique(side.filter(pc.equal(side["what"], "kernel"))["name"]).drop_null().to_pylist()) for side in (a, b)
    ]
    spelled: list[dict[str, list[str]]] = []
    for own, other in (names, reversed(names)):
        by_spelling: dict[str, list[str]] = {}
        for name in own - other:
            by_spelling.setdefault(kernel_spelling(name), []).append(name)
        spelled.append(by_spelling)
    new = {its[0]: spelled[0][s][0] for s, its in spelled[1].items() if len(its) == 1 == len(spelled[0].get(s, ()))}
    if new:
        name = b["name"].combine_chunks().cast(pa.string())
        encoded = name.dictionary_encode()
        respelled = pa.array([new.get(text, text) for text in encoded.dictionary.to_pylist()], pa.string()).take(
            encoded.indices
        )
        kernel = pc.equal(b["what"], "kernel")
        b = b.set_column(b.schema.get_field_index("name"), "name", pc.if_else(kernel, respelled, name))
    return b, len(new)


def compared(
    a: Any,
    b: Any,
    alpha: float = ALPHA,
    threshold_percent: float = THRESHOLD_PERCENT,
    steps: tuple[int, int] | None = None,
) -> Any:
    """The rows of `compare`, from two distributions; per step, if `steps` of the runs differ."""
    statement = statistics_statement({key: key for key in KEYS}, KEYS, "type_7")
    sides = [
        {_key(r): r for r in run_statement(statement, {PARTS: parts_table([Part(-1, d)])}).to_pylist()} for d in (a, b)
    ]
    tests = _rank_tests(a, b)
    keys = sorted({*sides[0], *sides[1]}, key=str)
    adjusted = _adjusted({k: tests[k][1] for k in keys if k in tests})
    rows = [_row(k, sides[0].get(k), sides[1].get(k), tests.get(k), adjusted.get(k)) for k in keys]
    for row in rows:
        row.update(_verdicts(row, alpha, threshold_percent, steps or (1, 1)))
    per_a, per_b = steps or (1, 1)
    rows.sort(key=lambda r: (-abs(r["total_b_ns"] / per_b - r["total_a_ns"] / per_a), str(r["what"]), str(r["name"])))
    for row in rows if steps else ():
        row["total_change_ns"] = None
        if row["total_a_ns"]:
            row["total_change_percent"] = 100 * (row["total_b_ns"] / per_b / (row["total_a_ns"] / per_a) - 1)
    return col.table_of(rows, COLUMNS)


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[k] for k in KEYS)


def _row(
    key: tuple[Any, ...],
    a: Mapping[str, Any] | None,
    b: Mapping[str, Any] | None,
    test: tuple[float, float] | None,
    p_value: float | None,
) -> dict[str, Any]:
    row: dict[str, Any] = dict(zip(KEYS, key, strict=True))
    for label, side in (("a", a), ("b", b)):
        row[f"count_{label}"] = int(side["count"]) if side else 0
        row[f"total_{label}_ns"] = int(side["total"]) if side else 0
        for name in ("q1", "median", "q3"):
            row[f"{name}_{label}_ns"] = side[name] if side else None
    row["total_change_ns"] = row["total_b_ns"] - row["total_a_ns"]
    row["total_change_percent"] = 100 * row["total_change_ns"] / row["total_a_ns"] if row["total_a_ns"] else None
    before, after = row["median_a_ns"], row["median_b_ns"]
    row["median_change_percent"] = 100 * (after - before) / before if before and after is not None else None
    row["longer_share"] = test[0] if test else None
    row["p_value"] = p_value
    return row


def _verdicts(
    row: Mapping[str, Any], alpha: float, threshold_percent: float, steps: tuple[int, int]
) -> dict[str, str | None]:
    """What a row says of the total, of the count and of a single one."""
    if not row["count_a"] or not row["count_b"]:
        return {"verdict": "only_b" if not row["count_a"] else "only_a", "count_verdict": None, "call_verdict": None}

    def side(name: str, unit: str = "") -> int:
        before, after = row[f"{name}_a{unit}"], row[f"{name}_b{unit}"]
        if name != "median":
            before, after = before / steps[0], after / steps[1]
        matters = after != before and (not before or abs(after - before) >= threshold_percent / 100 * before)
        return 0 if not matters else 1 if after > before else -1

    certain = row["p_value"] is not None and row["p_value"] < alpha
    count, call = side("count"), side("median", "_ns") if certain else 0
    # a count is what it is, durations scatter; what is longer in a part of the calls alone moves no median
    total = side("total", "_ns") if count or certain else 0
    lone = row["count_a"] == row["count_b"] == 1 and abs(row["total_change_ns"]) > _FAR_APART * row["total_a_ns"]
    return {
        "verdict": "one_sample" if lone and not certain else ("same", "slower", "faster")[total],
        "count_verdict": ("same", "more", "fewer")[count],
        "call_verdict": "one_sample" if lone and not certain else ("same", "longer", "shorter")[call],
    }


def _rank_tests(a: Any, b: Any) -> dict[tuple[Any, ...], tuple[float, float]]:
    """The share of pairs in which B is longer, and the p value, of each thing that both have.

    The test of Mann and Whitney, "On a Test of Whether one of Two Random Variables is Stochastically Larger than the
    Other", The Annals of Mathematical Statistics 18 (1947), by its normal approximation with the correction for ties
    and for continuity.
    """
    whole = pa.concat_tables([a, b])
    if not whole.num_rows:
        return {}
    codes, first = group([whole.column(k) for k in KEYS])
    value = whole.column("value").to_numpy()
    count = whole.column("count").to_numpy()
    counts = np.zeros((2, whole.num_rows), np.int64)
    counts[0, : a.num_rows] = count[: a.num_rows]
    counts[1, a.num_rows :] = count[a.num_rows :]
    order = np.lexsort((value, codes))
    codes, value, counts = codes[order], value[order], counts[:, order]
    new = np.ones(len(codes), np.bool_)
    new[1:] = (codes[1:] != codes[:-1]) | (value[1:] != value[:-1])
    at = np.flatnonzero(new)
    codes, counts = codes[at], np.add.reduceat(counts, at, axis=1)
    bounds = np.flatnonzero(np.concatenate(([True], codes[1:] != codes[:-1])))
    keys = whole.select(list(KEYS)).take(pa.array(first)).to_pylist()
    results = {}
    for low, high in zip(bounds.tolist(), [*bounds[1:].tolist(), len(codes)], strict=True):
        tested = rank_test(counts[0, low:high], counts[1, low:high])
        if tested is not None:
            results[_key(keys[codes[low]])] = tested
    return results


def rank_test(a: Any, b: Any) -> tuple[float, float] | None:
    """Mann and Whitney's test of counts by ascending value: P(B > A), ties half, and the two-sided p; None if empty."""
    n, m = int(a.sum()), int(b.sum())
    if not n or not m:
        return None
    # float128 if there is one would not help: products of counts of 1e9 stay exact to 1e-16 of the whole
    a, b = a.astype(np.float64), b.astype(np.float64)
    below = np.cumsum(a) - a
    wins = float((b * (below + a / 2)).sum())
    tied = a + b
    total = n + m
    spread = n * m / 12 * (total + 1 - float((tied**3 - tied).sum()) / (total * (total - 1)))
    share = wins / (n * m)
    if spread <= 0:
        return share, 1.0
    z = max(0.0, abs(wins - n * m / 2) - 0.5) / math.sqrt(spread)
    return share, math.erfc(z / math.sqrt(2))


def _adjusted(p_values: Mapping[tuple[Any, ...], float]) -> dict[tuple[Any, ...], float]:
    """P values corrected for their number: Benjamini and Hochberg, "Controlling the False Discovery Rate" (1995)."""
    ranked = sorted(p_values, key=lambda k: p_values[k], reverse=True)
    least = 1.0
    corrected = {}
    for position, key in enumerate(ranked):
        least = min(least, p_values[key] * len(ranked) / (len(ranked) - position))
        corrected[key] = least
    return corrected
