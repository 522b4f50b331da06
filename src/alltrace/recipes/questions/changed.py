"""Whether a change helped: two runs in a few sentences, by time per step and class, and by what replaced what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.analysis.launched_work import KERNEL, gpu_work
from alltrace.recipes.analysis.launched_work import TABLES as WORK
from alltrace.recipes.analysis.nvtx_projection import SPAN_COLUMNS, launch_spans, on_one_line
from alltrace.recipes.analysis.range_stems import stems_of
from alltrace.recipes.base import Answer, Option, Options, Part, Question, RunFacts
from alltrace.run.rank import Rank
from alltrace.run.store import Run
from alltrace.trace import columns as col
from alltrace.trace.amounts import amount, shortened
from alltrace.trace.errors import AlltraceError, printable
from alltrace.trace.name_stems import stems

_CLASSES = ("compute", "exposed_communication", "exposed_copy", "unclassified", "idle")
_TELLS = 0.01  # a class whose time per step changes by this share of the step is named
_FAR = 1.1  # from this ratio on a run is so many times as fast
_NAME_LENGTH = 40


def change_in_words(step: Mapping[str, Any] | None, shares: Sequence[Mapping[str, float] | None], alpha: float) -> str:
    """The first sentences of a comparison: how much faster a step of run B is, and which classes of time that is.

    `step`: the row of the steps in the answer of `diff`, or None. `shares`: of each run the shares of the time by class,
    0 to 1; None if they are not known. `alpha`: a difference is not by chance if its p value is below this.
    """
    if step is None or not step["median_a_ns"] or not step["median_b_ns"]:
        return "Whether B is faster is not known: no step is in both runs."
    a, b = step["median_a_ns"], step["median_b_ns"]
    times, ratio = f"a step takes {amount(b, 'ns', 3)} instead of {amount(a, 'ns', 3)} ({100 * (b / a - 1):+.0f} %)", a / b
    alone = step["count_a"] == step["count_b"] == 1
    chance = step["p_value"] is None or step["p_value"] >= alpha
    if alone and max(ratio, 1 / ratio) < _FAR:
        return f"B is as fast as A: a step takes {amount(b, 'ns', 3)} and {amount(a, 'ns', 3)}; one sample each."
    if chance and not alone:
        return f"B is as fast as A, as far as can be told: {times}, which may be chance."
    how = f"{ratio:.2g} times as fast" if ratio >= _FAR else f"{100 * (1 - b / a):.1f} % faster"
    if ratio < 1:
        how = f"slower by a factor of {1 / ratio:.2g}" if ratio <= 1 / _FAR else f"{100 * (b / a - 1):.1f} % slower"
    return f"B is {how}: {times}, {'one sample each' if alone else 'not by chance'}." + _classes(a, b, shares)


def _classes(a: float, b: float, shares: Sequence[Mapping[str, float] | None]) -> str:
    """Which classes of the time of a step changed."""
    first, second = shares
    if first is None or second is None:
        return ""
    changes = {name: second[name] * b - first[name] * a for name in _CLASSES}
    notable = sorted((n for n in _CLASSES if abs(changes[n]) >= _TELLS * a), key=lambda n: -abs(changes[n]))
    if not notable:
        return ""
    named = ", ".join(
        f"{n.replace('_', ' ')} {'+' if changes[n] > 0 else '-'}{amount(round(abs(changes[n])), 'ns', 3)}" for n in notable
    )
    rest = max((abs(changes[n]) for n in _CLASSES if n not in notable), default=0.0)
    below = "" if len(notable) == len(_CLASSES) else f"; all else at most {amount(round(rest), 'ns', 3)}"
    return f" {named[0].upper()}{named[1:]}{below}."


def shares_of(run: Run, **about: Any) -> dict[str, float] | None:
    """The shares of the devices' time by class, 0 to 1; None if they cannot be known."""
    from alltrace.recipes.execution.ask import ask

    try:
        rows = ask(run, "breakdown", **about).table.to_pylist()
    except AlltraceError:
        return None
    span = sum(row["span_ns"] or 0 for row in rows)
    return {name: sum(row[f"{name}_ns"] or 0 for row in rows) / span for name in _CLASSES} if span else None


def _map(rank: Rank, options: Options) -> pa.Table:
    """The kernels called as in `kernels`, by the innermost range called as in `ranges` around their launch."""
    work = gpu_work(rank)
    kernel = np.flatnonzero((work.kind == KERNEL) & (work.call >= 0))
    ranges = launch_spans(rank)
    code, stems = stems_of(rank, ranges.column("name"))
    wanted = set(options["ranges"])
    ranges = ranges.filter(pa.array(np.array([stem in wanted for stem in stems], np.bool_)[code]))
    thread, start, end = (work.of_calls(column, kernel) for column in ("thread", "start", "end"))
    spans, start, end = on_one_line(ranges, thread, start, end)
    around = spans.innermost(start, end)
    name = rank.table("kernels", ("name", "short_name"))
    named = pc.coalesce(name.column("name"), name.column("short_name"))
    table = pa.table(
        {
            "range": ranges.column("name").take(pa.array(around, mask=around < 0)),
            "kernel": named.take(pa.array(kernel)),
            "ns": (work.end - work.start)[kernel],
        }
    )
    return table.group_by(["range", "kernel"]).aggregate([("ns", "sum"), ("ns", "count")])


def _merge(parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:  # noqa: ARG001
    columns = (
        col.text("range", "its name without counters"),
        col.text("kernel", "its name"),
        col.ns("ns", "time"),
        col.whole("count", "number"),
    )
    table = pa.concat_tables([part.table for part in parts]) if parts else None
    if table is None or not table.num_rows:
        return Answer.of([], columns)
    texts = [stems(run.texts(table.column("range"))), run.texts(table.column("kernel"))]
    numbers = [table.column(name) for name in ("ns_sum", "ns_count")]
    return Answer(pa.table([*texts, *numbers], [column.name for column in columns]), columns)


_LAUNCHED = Question(
    "launched",
    "Kernels by the range around their launch.",
    (),
    _map,
    _merge,
    {**WORK, "ranges": SPAN_COLUMNS},
    requires=("kernels", "ranges"),
    options=(Option("ranges", tuple, (), "names of ranges, without counters"),),
)


def replacements(rows: Sequence[Mapping[str, Any]], runs: Sequence[Run], **about: Any) -> list[dict[str, Any]]:
    """What replaced what: of each innermost range that both runs have, the kernels launched in it that the other run lacks.

    `rows`: those of `diff`. `about`: ranks, steps and processes, as of `ask`. Returns a row for each range with such kernels
    in both runs, the most time first; numbers and times are those of one range.
    """
    from alltrace.recipes.execution.ask import ask

    ranges = {r["name"]: (r["count_a"], r["count_b"]) for r in rows if r["what"] == "range" and r["count_a"] and r["count_b"]}
    alone = {side: {r["name"] for r in rows if r["what"] == "kernel" and r["verdict"] == f"only_{side}"} for side in "ab"}
    if not ranges or not all(alone.values()):
        return []
    by_range: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for side, run in zip("ab", runs, strict=True):
        try:
            launched = ask(run, _LAUNCHED, {"ranges": tuple(ranges)}, **about).table.to_pylist()
        except AlltraceError:
            return []
        for row in launched:
            if row["range"] is not None and row["kernel"] in alone[side]:
                by_range.setdefault(row["range"], {"a": [], "b": []})[side].append(row)
    return sorted(
        (_replacement(name, sides, ranges[name]) for name, sides in by_range.items() if all(sides.values())),
        key=lambda row: (-max(row["time_a_ns"], row["time_b_ns"]), row["range"]),
    )


def _replacement(name: str, sides: Mapping[str, Sequence[Mapping[str, Any]]], counts: tuple[int, int]) -> dict[str, Any]:
    row: dict[str, Any] = {"range": name}
    for (side, kernels), count in zip(sides.items(), counts, strict=True):
        row[f"kernels_{side}"] = round(sum(k["count"] for k in kernels) / count, 3)
        row[f"time_{side}_ns"] = round(sum(k["ns"] for k in kernels) / count)
    for side, kernels in sides.items():
        row[f"names_{side}"] = [k["kernel"] for k in sorted(kernels, key=lambda k: -k["ns"])]
    return row


def replacement_in_words(row: Mapping[str, Any]) -> str:
    """A row of `replacements` as a sentence."""
    a, b = (f"{row[f'kernels_{side}']:g}" for side in "ab")
    before, after = (f"{_names(row[f'names_{side}'])}, {amount(row[f'time_{side}_ns'], 'ns', 3)}" for side in "ab")
    return f"In `{row['range']}` {a} kernel{'' if a == '1' else 's'} ({before}) become{'s' if a == '1' else ''} {b} ({after})."


def _names(names: Sequence[str]) -> str:
    shown = shortened(printable(names[0]), _NAME_LENGTH)
    return shown if len(names) == 1 else f"{shown} and {len(names) - 1} more"
