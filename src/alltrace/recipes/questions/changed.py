"""Whether a change helped: two runs in a few sentences, by time per step and class, and by what replaced what."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.analysis.launched_work import KERNEL, gpu_work
from alltrace.recipes.analysis.launched_work import TABLES as WORK
from alltrace.recipes.analysis.nvtx_projection import SPAN_COLUMNS, launch_spans, on_one_line
from alltrace.recipes.analysis.range_sums import paths, stems_of
from alltrace.recipes.base import Answer, Option, Options, Part, Question, RunFacts
from alltrace.run.rank import Rank
from alltrace.run.store import Run
from alltrace.trace import columns as col
from alltrace.trace.amounts import amount, shortened
from alltrace.trace.arrays import Int64
from alltrace.trace.errors import AlltraceError, printable
from alltrace.trace.name_stems import NUMBERED

_CLASSES = ("compute", "exposed_communication", "exposed_copy", "unclassified", "idle")
_TELLS = 0.01  # a class whose time per step changes by this share of the step is named
_FAR = 1.1  # from this ratio on a run is so many times as fast
_NAME_LENGTH = 24
_LESS = 0.1  # a replacement with less time than this share of the first is not told
_SUMMED = ("count_a", "count_b", "total_a_ns", "total_b_ns")
_WITHIN = "\x1f"  # between the names of a path, none of which has it

TREE = (
    col.text(
        "tree", "a range that both runs have, or a kernel that one run alone has, indented by the ranges around it"
    ),
    col.text("what", "range, kernel"),
    col.real("count_a", "how many such kernels run A has in it, per step where both runs have steps"),
    col.real("time_a_ns", "how long they ran on the GPU", "ns"),
    col.real("count_b", "how many run B has"),
    col.real("time_b_ns", "how long they ran on the GPU", "ns"),
    col.real("change_ns", "run B less run A; null if the runs have different numbers of ranks", "ns"),
    col.text("path", "the names of the ranges and of the kernel, the outermost first, with / between them"),
)
"""The columns of the tree of what replaced what."""


def change_in_words(
    step: Mapping[str, Any] | None,
    classes: Sequence[Mapping[str, Any]],
    alpha: float,
    names: tuple[str, str] = ("A", "B"),
) -> str:
    """How much faster a step of the second run is (p below `alpha`), and which classes of time that is, in words."""
    one, other = names
    if step is None or not step["median_a_ns"] or not step["median_b_ns"]:
        return f"Whether {other} is faster is not known: no step is in both runs."
    a, b = step["median_a_ns"], step["median_b_ns"]
    times, ratio = f"a step takes {_instead(a, b)} ({100 * (b / a - 1):+.0f} %)", a / b
    far = max(ratio, 1 / ratio) >= _FAR
    alone = step["count_a"] == step["count_b"] == 1
    chance = step["p_value"] is None or step["p_value"] >= alpha
    other = other[0].upper() + other[1:]
    if alone and not far:
        return (
            f"{other} is as fast as {one}: a step takes {amount(b, 'ns', 3)} and {amount(a, 'ns', 3)}; one sample each."
        )
    if chance and not alone:
        if far:
            return f"Whether {names[1]} is faster cannot be told: {times}, which may be chance."
        return f"{other} is as fast as {one}, as far as can be told: {times}, which may be chance."
    how = f"{ratio:.2g} times as fast" if ratio >= _FAR else f"{100 * (1 - b / a):.1f} % faster"
    if ratio < 1:
        how = f"slower by a factor of {1 / ratio:.2g}" if far else f"{100 * (b / a - 1):.1f} % slower"
    as_one = "" if one == "A" else f" as {one}" if ratio >= _FAR else f" than {one}"
    return f"{other} is {how}{as_one}: {times}, {'one sample each' if alone else 'not by chance'}." + _classes(
        a, classes
    )


def _classes(step_ns: float, classes: Sequence[Mapping[str, Any]]) -> str:
    """Which classes of the time of a step changed."""
    notable = sorted(
        (c for c in classes if abs(c["change_ns"]) >= _TELLS * step_ns), key=lambda c: -abs(c["change_ns"])
    )
    if not notable:
        return ""
    named = ", ".join(
        f"{c['class'].replace('_', ' ')} {'+' if c['change_ns'] > 0 else '-'}{amount(abs(c['change_ns']), 'ns', 3)}"
        for c in notable
    )
    rest = max((abs(c["change_ns"]) for c in classes if c not in notable), default=None)
    below = "" if not rest else f"; all else at most {amount(rest, 'ns', 3)}"
    return f" {named[0].upper()}{named[1:]}{below}."


def per_step(step: Mapping[str, Any], runs: Sequence[Run], **about: Any) -> list[dict[str, Any]]:
    """The classes of the devices' time in the mean step of each run, and their change; none if they cannot be known."""
    times = [
        _times_of(run, step[f"total_{s}_ns"] / step[f"count_{s}"], **about) for s, run in zip("ab", runs, strict=True)
    ]
    if not all(times):
        return []
    both = {name: [round(of[name]) for of in times] for name in _CLASSES}
    return [{"class": name, "a_ns": a, "b_ns": b, "change_ns": b - a} for name, (a, b) in both.items() if a or b]


def _times_of(run: Run, step_ns: float, **about: Any) -> dict[str, float]:
    """The time by class in a step of a device, ns, of steps of `step_ns` on average; empty if it is unknown."""
    from alltrace.recipes.execution.ask import ask

    try:
        rows = [row for row in ask(run, "breakdown", **about).table.to_pylist() if row["span_ns"]]
    except AlltraceError:
        return {}
    # a device's span begins with its first work and ends with its last, so it can lack idle time of whole steps
    steps = sum(max(1, round(row["span_ns"] / step_ns)) for row in rows) if step_ns else 0
    if not steps:
        return {}
    times = {name: sum(row[f"{name}_ns"] or 0 for row in rows) / steps for name in _CLASSES}
    return {**times, "idle": max(0.0, step_ns - sum(ns for name, ns in times.items() if name != "idle"))}


def _map(rank: Rank, options: Options) -> pa.Table:
    """The kernels by the ranges around their launch that are called as in `ranges`, without numbers."""
    work = gpu_work(rank)
    kernel = np.flatnonzero(work.kind == KERNEL)
    launched = kernel[work.call[kernel] >= 0]
    ranges = launch_spans(rank)
    code, stems = stems_of(rank, ranges.column("name"))
    words = _numbered(stems)
    wanted = set(options["ranges"])
    both = np.array([word in wanted for word in words], np.bool_)[code]
    ranges = ranges.filter(pa.array(both))
    spans, start, end = on_one_line(ranges, *(work.of_calls(column, launched) for column in ("thread", "start", "end")))
    parent = spans.parents()
    path, texts = paths(_depths(parent), parent, code[both], words, _WITHIN)
    inner = spans.innermost(start, end)
    around = np.full(len(work.kind), -1, np.int64)
    around[launched[inner >= 0]] = path[inner[inner >= 0]]
    around = around[kernel]
    name = rank.table("kernels", ("name", "short_name"))
    named = pc.coalesce(name.column("name"), name.column("short_name"))
    table = pa.table(
        {
            "path": pa.array(texts, pa.string()).take(pa.array(around, mask=around < 0)),
            "kernel": named.take(pa.array(kernel)),
            "ns": (work.end - work.start)[kernel],
        }
    )
    return table.group_by(["path", "kernel"]).aggregate([("ns", "sum"), ("ns", "count")])


def _numbered(names: Sequence[str | None]) -> list[str]:
    """The names of ranges without numbers, such as those of layers."""
    texts: list[str] = pc.replace_substring_regex(
        pa.array([name or "" for name in names], pa.string()), *NUMBERED
    ).to_pylist()
    return texts


def _depths(parent: Int64) -> Int64:
    """How many ranges are around each."""
    depth, outer = np.zeros(len(parent), np.int64), parent
    while (outer >= 0).any():
        depth += outer >= 0
        outer = np.where(outer >= 0, parent[np.maximum(outer, 0)], -1)
    return depth


def _merge(parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:  # noqa: ARG001
    columns = (
        col.text("path", "the ranges around it, from the outermost"),
        col.text("kernel", "its name"),
        col.ns("ns", "time"),
        col.whole("count", "number"),
    )
    table = pa.concat_tables([part.table for part in parts]) if parts else None
    if table is None or not table.num_rows:
        return Answer.of([], columns)
    table = table.group_by(["path", "kernel"]).aggregate([("ns_sum", "sum"), ("ns_count", "sum")])
    arrays = [
        table.column("path"),
        run.texts(table.column("kernel")),
        table.column("ns_sum_sum"),
        table.column("ns_count_sum"),
    ]
    return Answer(pa.table(arrays, [column.name for column in columns]), columns)


_LAUNCHED = Question(
    "launched",
    "Kernels by the ranges around their launch.",
    (),
    _map,
    _merge,
    {**WORK, "ranges": SPAN_COLUMNS},
    requires=("kernels", "ranges"),
    options=(Option("ranges", tuple, (), "names of ranges, without numbers"),),
)


class Replaced:
    """The kernels that one run alone has, by the ranges around their launch that both have; `about`: as of `ask`."""

    def __init__(
        self, rows: Sequence[Mapping[str, Any]], runs: Sequence[Run], step_counts: tuple[int, int] | None, **about: Any
    ) -> None:
        self._steps = step_counts
        ranges = [r for r in rows if r["what"] == "range" and r["name"] is not None]
        alike: dict[str, list[Mapping[str, Any]]] = {}
        for name, row in zip(_numbered([r["name"] for r in ranges]), ranges, strict=True):
            alike.setdefault(name, []).append(row)
        both = {n: its for n, its in alike.items() if all(any(r[f"count_{side}"] for r in its) for side in "ab")}
        self._ranges = {name: {c: sum(r[c] for r in its) for c in _SUMMED} for name, its in both.items()}
        self._called = {name: its[0]["name"] if len(its) == 1 else name for name, its in both.items()}
        self._kernels = [
            kernel for side, run in zip("ab", runs, strict=True) for kernel in self._alone(side, run, rows, about)
        ]

    def _alone(
        self, side: str, run: Run, rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any]
    ) -> Iterator[tuple[str, tuple[str, ...], Mapping[str, Any]]]:
        """The side of each such kernel, the ranges around it, and its name, time and number."""
        from alltrace.recipes.execution.ask import ask

        alone = {r["name"]: r for r in rows if r["what"] == "kernel" and r["verdict"] == f"only_{side}"}
        if not alone:
            return
        try:
            launched = ask(run, _LAUNCHED, {"ranges": tuple(self._ranges)}, **about).table.to_pylist()
        except AlltraceError:
            launched = []
        if not launched:  # there are no ranges
            totals = ((n, r[f"total_{side}_ns"], r[f"count_{side}"]) for n, r in alone.items())
            launched = [{"path": None, "kernel": name, "ns": ns, "count": count} for name, ns, count in totals]
        for row in launched:
            if row["kernel"] in alone:
                yield side, tuple(row["path"].split(_WITHIN)) if row["path"] else (), row

    def pairs(self, least: float = 0.0) -> list[dict[str, Any]]:
        """A row for each innermost range with such kernels of both runs, greatest change first, from a share on."""
        inner: dict[str | None, dict[str, list[Mapping[str, Any]]]] = {}
        for side, path, kernel in self._kernels:
            inner.setdefault(path[-1] if path else None, {"a": [], "b": []})[side].append(kernel)
        both = [
            (*(sum(k["ns"] for k in sides[s]) for s in "ab"), n, sides)
            for n, sides in inner.items()
            if all(sides.values())
        ]
        both.sort(key=lambda pair: (-abs(pair[1] - pair[0]), -max(pair[:2]), pair[2] or ""))
        most = max(both[0][:2]) if both else 0
        return [self._pair(name, sides) for a, b, name, sides in both if max(a, b) >= least * most]

    def _pair(self, name: str | None, sides: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
        about = None if name is None else self._ranges[name]
        counts = self._steps or (1, 1) if about is None else (about["count_a"], about["count_b"])
        parts = {}
        for (side, kernels), count in zip(sides.items(), counts, strict=True):
            time: Counter[str] = Counter()
            for k in kernels:
                time[k["kernel"]] += k["ns"]
            number = round(sum(k["count"] for k in kernels) / count, 3)
            of_range = None if about is None else round(about[f"total_{side}_ns"] / count)
            parts[side] = sorted(time, key=lambda n: (-time[n], n)), round(time.total() / count), number, of_range
        names = enumerate(("names_{}", "time_{}_ns", "kernels_{}", "range_{}_ns"))
        row = {text.format(side): parts[side][place] for place, text in names for side in "ab"}
        return {"range": None if name is None else self._called[name], **row}

    def in_words(self, most: int) -> list[str]:
        """A sentence for each of the first `most` pairs that matter."""
        return [self._sentence(row) for row in self.pairs(_LESS)[:most]]

    def _sentence(self, row: Mapping[str, Any]) -> str:
        where = f"`{row['range']}`" if row["range"] is not None else "a step" if self._steps else "the run"
        (a, names_a, before, host_a), (b, names_b, after, host_b) = (
            (f"{row[f'kernels_{s}']:.2g}", _names(row[f"names_{s}"]), row[f"time_{s}_ns"], row[f"range_{s}_ns"] or 0)
            for s in "ab"
        )
        far = max(host_a, host_b) > _FAR * min(host_a, host_b)
        host = f"; on the host the range takes {_instead(host_a, host_b)}" if far else ""
        one = a == "1"
        become = f"{a} kernel{'' if one else 's'} ({names_a}) become{'s' if one else ''} {b} ({names_b})"
        return f"In {where} {become}: {_instead(before, after)}{host}."

    def tree(self, *, comparable: bool) -> list[dict[str, Any]]:
        """The rows of the answer `--by-tree`; `comparable`: whether times of the runs can be subtracted."""
        # of each range and kernel: number and time in run A, the same in run B
        sums: dict[tuple[str, ...], list[float]] = {}
        for side, path, kernel in self._kernels:
            first, steps = "ab".index(side), (self._steps or (1, 1))["ab".index(side)]
            for depth in range(len(path) + 1):
                of = sums.setdefault((*path, kernel["kernel"])[: depth + 1], [0.0] * 4)
                of[2 * first] += kernel["count"] / steps
                of[2 * first + 1] += kernel["ns"] / steps
        leaves = {(*path, kernel["kernel"]) for _, path, kernel in self._kernels}

        def order(node: tuple[str, ...]) -> list[tuple[float, str]]:
            """The siblings with most time first, what is in each below it."""
            return [(-max(sums[node[:n]][1::2]), node[n - 1]) for n in range(1, len(node) + 1)]

        rows: list[dict[str, Any]] = []
        for node in sorted(sums, key=order):
            name = node[-1] if node in leaves else self._called[node[-1]]
            row = {
                "tree": "  " * (len(node) - 1) + name,
                "what": "kernel" if node in leaves else "range",
                "path": "/".join(node),
            }
            times = dict(zip(("count_a", "time_a_ns", "count_b", "time_b_ns"), sums[node], strict=True))
            rows.append({**row, **times, "change_ns": times["time_b_ns"] - times["time_a_ns"] if comparable else None})
        return rows


def _instead(before_ns: float, after_ns: float) -> str:
    return f"{amount(after_ns, 'ns', 3)} instead of {amount(before_ns, 'ns', 3)}"


def _names(names: Sequence[str]) -> str:
    shown = shortened(printable(names[0].removeprefix("void ")), _NAME_LENGTH)
    return shown if len(names) == 1 else f"{shown} and {len(names) - 1} more"
