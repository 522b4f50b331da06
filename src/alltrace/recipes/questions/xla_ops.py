"""GPU time by compiled program and operation (HLO) of JAX and others on XLA, over all ranks.

XLA names the run of a program and of each of its operations by ranges: work launched inside belongs to them; of nested
ranges the innermost counts. Work launched outside of these ranges is in a row without a program. Not tested on a report
of a real run: the names are taken from XLA's source.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from alltrace.recipes.analysis.launched_work import GRAPHS, KINDS, TABLES, gpu_work, with_graphs
from alltrace.recipes.analysis.nvtx_projection import SPAN_COLUMNS, launch_spans
from alltrace.recipes.analysis.range_sums import Intervals, innermost_node
from alltrace.recipes.base import Answer, Chart, Option, Options, Part, Question, RunFacts
from alltrace.run.rank import Rank
from alltrace.trace import columns as col
from alltrace.trace.arrays import integers
from alltrace.trace.distinct import distinct
from alltrace.trace.grouping import group

_MODULE = re.compile(
    r"(?:TSL:)?XlaModule:#(?:prefix=[^#]*?,)?hlo_module=(?P<program>[^,#]+)(?:,program_id=(?P<id>\d+))?[^#]*#"
)
_THUNK = re.compile(
    r"(?:TSL:)?Thunk:#(?:name=(?P<scope>[^#]*?),)?hlo_op=(?P<op>[^,#]+)"
    r"(?:,hlo_module=(?P<program>[^,#]+))?(?:,program_id=(?P<id>\d+))?[^#]*#"
)
"""As XLA writes them (xla/backends/profiler, `ModuleAnnotation` and `KernelAnnotation`)."""
_COLLECTIVE = re.compile(
    r"(?:all-reduce|all-gather|reduce-scatter|all-to-all|ragged-all-to-all|collective-permute|collective-broadcast|"
    r"send|recv)"
    r"(?:-(?:start|done))?(?:[.].*)?"
)
_KEYS = ("program", "program_id", "op", "scope")
_SUMS = ("executions", "kernels", "copies", "gpu_total_ns")

COLUMNS: col.Columns = (
    col.text("program", "compiled program (HLO module); null for work outside of programs"),
    col.whole("program_id", "its number; null if programs of one name are counted together or without a program"),
    col.text("op", "operation (HLO); null by scope or program, and for work outside of operations"),
    col.text("scope", "where the source created it, such as `jit(step)/mul`; null if XLA does not record it"),
    col.text("kind", "`collective` by the operation's name, else `compute`; null without an operation"),
    col.whole("ranks", "ranks on which it ran"),
    col.whole("executions", "its ranges that launched work, over all ranks"),
    col.whole("kernels", "kernels and graphs that it launched"),
    col.whole("copies", "copies and fills that it launched"),
    col.ns("gpu_total_ns", "summed duration of this work"),
    col.real("gpu_mean_ns", "mean GPU time of an execution", "ns", 1),
    col.percent("share_percent", "gpu_total_ns as a share of that of all rows"),
)


def _map(rank: Rank, _options: Options) -> Any:
    ranges = launch_spans(rank)
    ids, places = distinct(integers(ranges.column("name")))
    named = [_parsed(n or "") for n in rank.texts(pa.array(ids, pa.int64())).to_pylist()]
    place = places.ravel()
    start = integers(ranges.column("start"))
    at = Intervals(integers(ranges.column("thread")), start, np.maximum(integers(ranges.column("end")), start))
    work = with_graphs(rank, gpu_work(rank))
    rows = np.arange(len(work.start))
    calls = Intervals(*(work.of_calls(c, rows) for c in ("thread", "start", "end")))
    nodes = [
        np.flatnonzero(
            np.array([bool(n) and n["kind"] == kind for n in named], np.bool_)[place] if len(named) else place[:0]
        )
        for kind in ("thunk", "module")
    ]
    thunk, module = (np.append(own, -1)[innermost_node(at.of(own), calls)] for own in nodes)
    pair, some = group([pa.array(thunk), pa.array(module)])  # each is one execution
    inner, outer = ([named[n] if n >= 0 else {} for n in _of(place, rows[some])] for rows in (thunk, module))
    kernels = np.isin(work.kind, [KINDS.index("kernel"), KINDS.index("graph")])
    total = np.zeros(len(some), np.int64)
    np.add.at(total, pair, work.end - work.start)
    number = [i.get("id") or o.get("id") for i, o in zip(inner, outer, strict=True)]
    executions = pa.table(
        {
            "program": pa.array(
                [i.get("program") or o.get("program") for i, o in zip(inner, outer, strict=True)], pa.string()
            ),
            "program_id": pa.array([None if n is None else int(n) for n in number], pa.int64()),
            "op": pa.array([i.get("op") for i in inner], pa.string()),
            "scope": pa.array([i.get("scope") for i in inner], pa.string()),
            "executions": ((thunk[some] >= 0) | (module[some] >= 0)).astype(np.int64),
            "kernels": np.bincount(pair, kernels, len(some)).astype(np.int64),
            "copies": np.bincount(pair, ~kernels, len(some)).astype(np.int64),
            "gpu_total_ns": total,
        }
    )
    return executions.group_by(list(_KEYS)).aggregate([(name, "sum") for name in _SUMS])


def _merge(parts: Sequence[Part], _run: RunFacts, options: Options) -> Answer:
    keys = {"op": _KEYS, "scope": ("program", "program_id", "scope"), "program": ("program", "program_id")}[
        options["by"]
    ]
    sums: dict[tuple[Any, ...], dict[str, Any]] = {}
    for part in parts:
        for row in part.table.to_pylist():
            key = tuple(row[k] if k in keys else None for k in _KEYS)
            entry = sums.setdefault(key, {"ranks": set(), **dict.fromkeys(_SUMS, 0)})
            entry["ranks"].add(part.rank)
            for name in _SUMS:
                entry[name] += row[f"{name}_sum"]
    whole = sum(e["gpu_total_ns"] for e in sums.values())
    rows = [
        {
            **dict(zip(_KEYS, key, strict=True)),
            "kind": None if key[2] is None else "collective" if _COLLECTIVE.fullmatch(key[2]) else "compute",
            "ranks": len(e["ranks"]),
            **{name: e[name] for name in _SUMS},
            "gpu_mean_ns": e["gpu_total_ns"] / e["executions"] if e["executions"] else None,
            "share_percent": 100 * e["gpu_total_ns"] / whole if whole else None,
        }
        for key, e in sums.items()
    ]
    rows.sort(key=lambda r: (-r["gpu_total_ns"], *(str(r[k]) for k in _KEYS)))
    notes = []
    if not any(r["program"] for r in rows):
        notes.append(
            "no range names a program of XLA; nsys records them with `--trace=nvtx`, and jaxlib built with NVTX"
        )
    if options["top"] and len(rows) > options["top"]:
        notes.append(f"{options['top']} of {len(rows)} rows are shown (--top)")
    return Answer.of(rows[: options["top"] or None], COLUMNS, tuple(notes))


def _parsed(name: str) -> dict[str, Any]:
    """The content of a range's name; empty if it is not from XLA."""
    for kind, pattern in (("module", _MODULE), ("thunk", _THUNK)):
        if (match := pattern.fullmatch(name)) is not None:
            return {"kind": kind, **match.groupdict()}
    return {}


def _of(place: Any, rows: Any) -> list[int]:
    """The names of ranges by their rows; -1 for none."""
    return [int(place[row]) if row >= 0 else -1 for row in rows]


QUESTION = Question(
    "xla-ops",
    __doc__,
    COLUMNS,
    _map,
    _merge,
    tables={"ranges": SPAN_COLUMNS, **TABLES, "graphs": GRAPHS},
    requires=("ranges", "kernels", "api"),
    options=(
        Option(
            "by",
            str,
            "op",
            "a row for each operation, scope in the source, or program",
            choices=("op", "scope", "program"),
        ),
        Option("top", int, 0, "maximum number of rows, by decreasing GPU time; 0 for all", least=0),
    ),
    chart=Chart("bars", "op", ("gpu_total_ns",), "program"),
    important=("op", "gpu_total_ns", "share_percent", "executions"),
)
