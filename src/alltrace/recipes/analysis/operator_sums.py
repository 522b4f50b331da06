"""What one rank contributes to the recipe `operators`: sums by operator, module, range or stack."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from alltrace.recipes.analysis.flops import call_of, work_of
from alltrace.recipes.analysis.graph_captures import Replays, replays_of
from alltrace.recipes.analysis.launched_work import gpu_work
from alltrace.recipes.analysis.nvtx_projection import close_ends
from alltrace.recipes.analysis.range_sums import Intervals, innermost_node, outermost, paths, stems_of, sums_inside
from alltrace.recipes.execution.shared_tables import once
from alltrace.run.collecting import Growing, in_pieces
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Flags, Floats, Int64, blocks, coded, integers
from alltrace.trace.distinct import distinct
from alltrace.trace.names import name_id
from alltrace.trace.nesting import nest
from alltrace.trace.schema import TABLES

_OPERATOR, _MODULE = name_id("cpu_op"), name_id("python_function")
_BACKWARD = "autograd::engine::evaluate_function: "
_MODULE_PREFIX = "nn.Module: "
RANGES = ("start", "end", "thread", "end_thread", "domain", "name", "payload", "sequence", "source_row")
FRAMES = ("start", "end", "thread", "name")  # with `RANGES` what a `Program` reads of `frames` and `ranges`
_OTHERS = ("start", "end", "thread", "domain", "name", "source_row")
_OPEN = np.iinfo(np.int64).max
WHOLE = ("calls", "cpu_total_ns", "cpu_self_ns", "gpu_total_ns", "gpu_self_ns", "gpu_operations")
_OF_ALL = ("all_gpu_ns", "replayed_ns", "joined_ns")  # columns of the last row alone
_FLOATS = ("flops", "timed_flops", "sized_flops")


@dataclass(frozen=True)
class Nodes:
    """What rows are about: intervals, and of each its key, a row of `names` and `shapes`."""

    at: Intervals
    key: Int64
    names: Sequence[str | None]
    shapes: Sequence[str | None]

    def keys_around(self, items: Intervals) -> Int64:
        """The key of the innermost around each item; -1 for none."""
        return np.append(self.key, -1)[innermost_node(self.at, items)]


@dataclass(frozen=True)
class _Operators:
    at: Intervals  # where they are
    name: Int64  # of each the row of its name in `names`
    names: Sequence[str | None]  # the names
    payload: Int64  # of each the row of its payload in `payloads`
    payloads: Sequence[str | None]  # the payloads, the last null
    sequence: Int64  # its number in the autograd graph, -1 for none

    @cached_property
    def work(self) -> tuple[Floats, Int64]:
        """What each does by its shapes, not a number if no formula applies, and the least bytes, -1 if not known."""
        payloads = self.payloads
        kinds, places = distinct(self.name * len(payloads) + self.payload)
        calls = {p: call_of(payloads[p]) for p in distinct(self.payload)[0].tolist()}
        done = [work_of(self.names[k // len(payloads)] or "", calls[k % len(payloads)]) for k in kinds.tolist()]
        flops = np.array([np.nan if w is None else float(w.flops) for w in done], np.float64)
        moved = np.array([-1 if w is None or w.moved_bytes is None else w.moved_bytes for w in done], np.int64)
        return flops[places], moved[places]


def part_schema() -> pa.Schema:
    """The columns of what a rank contributes."""
    fields = [("name", pa.string()), ("shapes", pa.string())]
    numbers = (*WHOLE, "backward_gpu_ns", *_FLOATS, "timed_gpu_ns", "moved_bytes", *_OF_ALL, "crossed")
    fields += [(name, pa.float64() if name in _FLOATS else pa.int64()) for name in numbers]
    return pa.schema(fields)


def sums_of(rank: Rank, by: str) -> Any:
    """The sums of a rank by key, and a last row with all GPU time as `all_gpu_ns`, and that of replayed graphs.

    `crossed` counts entries with longer nested entries in total, since those overlap: their self time is 0.
    """
    program = Program.of(rank)
    nodes, operators = program.nodes(by), program.operators
    replays = replays_of(rank, gpu_work(rank))
    table = _table(nodes, operators, replays)
    all_ns = int((replays.work.end - replays.work.start).sum())
    whole = {"all_gpu_ns": all_ns, "replayed_ns": replays.replayed_ns, "joined_ns": replays.joined_ns}
    last = pa.Table.from_pylist([whole], part_schema())
    return pa.concat_tables([table, last])


def _is_operator(domain: Any) -> Flags:
    """Which rows of `ranges` are operators, by their column `domain`."""
    mask: Flags = integers(domain) == _OPERATOR
    return mask


def has_operators(rank: Rank) -> bool:
    """Whether a rank has operators of PyTorch."""
    return any(_is_operator(piece.column("domain")).any() for piece in in_pieces(rank, "ranges", ("domain",)))


class Program:
    """The operators, modules and named ranges of a rank, read once."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self.operators, self._others = _ranges(rank)

    @classmethod
    def of(cls, rank: Rank) -> Self:
        """The sums of a rank; computed once if recipes share the rank's tables."""
        return once(rank, "program", lambda: cls(rank))

    def nodes(self, by: str) -> Nodes:
        """What `recipe operators --by` has rows of: operators, modules, ranges, or operators by stack."""
        return _nodes(self._rank, self._others, self.operators, by)

    def backward_pairs(self) -> tuple[Intervals, Intervals]:
        """The backward steps, and of each the forward operator that it belongs to, if known."""
        back, forward = _backward_pairs(self.operators)
        return self.operators.at.of(back), self.operators.at.of(forward)


def _table(nodes: Nodes, operators: _Operators, replays: Replays) -> Any:
    at = nodes.at
    cpu = at.end - at.start
    _, parent = nest(at.thread, at.start, at.end)
    own = cpu.copy()
    has = parent >= 0
    np.subtract.at(own, parent[has], cpu[has])
    gpu_self, gpu_total, number = np.zeros((3, len(at)), np.int64)
    gpu_of_operators, many = np.zeros((2, len(operators.at)), np.int64)
    for calls, length, joined in _launched(replays):
        near = at.around(calls)
        inner = innermost_node(at.of(near), calls)
        np.add.at(gpu_self, near[inner[inner >= 0]], length[inner >= 0])
        total, count = sums_inside(at.of(near), calls, length, np.ones(len(length), np.int64))
        gpu_total[near] += total
        number[near] += count
        near = operators.at.around(calls)
        # an operator is called once for all replays, so its time does not determine its rate
        total, count = sums_inside(operators.at.of(near), calls, length, joined.astype(np.int64))
        gpu_of_operators[near] += total
        many[near] += count
    done = _work_inside(nodes, operators, np.where(many > 0, 0, gpu_of_operators))
    backward = _backward_inside(nodes, operators, gpu_of_operators)

    keys = len(nodes.names)
    line = np.int64(1 + at.thread.max(initial=0))
    outer = outermost(nodes.key * line + at.thread, at.start, at.end)
    zero = np.zeros_like(cpu)

    def summed(values: NDArray[Any], rows: Flags | None = None) -> NDArray[Any]:
        total = np.zeros(keys, values.dtype)
        np.add.at(total, nodes.key if rows is None else nodes.key[rows], values if rows is None else values[rows])
        return total

    counted = ~np.isnan(done["flops"])
    sized = counted & (done["moved_bytes"] >= 0)
    some, some_sized = summed(counted & outer, None) > 0, summed(sized & outer, None) > 0
    columns: dict[str, Any] = {
        "name": pa.array(nodes.names, pa.string()),
        "shapes": pa.array(nodes.shapes, pa.string()),
        "calls": summed(np.ones_like(cpu)),
        "cpu_total_ns": summed(cpu, outer),
        "cpu_self_ns": summed(np.maximum(own, zero)),
        "gpu_total_ns": summed(gpu_total, outer),
        "gpu_self_ns": summed(gpu_self),
        "gpu_operations": summed(number, outer),
        "backward_gpu_ns": pa.nulls(keys, pa.int64()) if backward is None else summed(backward, outer),
        "flops": pa.array(summed(done["flops"], counted & outer), mask=~some),
        "timed_flops": pa.array(summed(done["timed_flops"], counted & outer), mask=~some),
        "timed_gpu_ns": pa.array(summed(done["timed_gpu_ns"], counted & outer), mask=~some),
        "sized_flops": pa.array(summed(done["sized_flops"], sized & outer), mask=~some_sized),
        "moved_bytes": pa.array(summed(done["moved_bytes"], sized & outer), mask=~some_sized),
        **{name: pa.nulls(keys, pa.int64()) for name in _OF_ALL},
        "crossed": summed((own < 0).astype(np.int64)),
    }
    used = np.bincount(nodes.key, minlength=keys) > 0
    return pa.table([columns[f.name] for f in part_schema()], schema=part_schema()).filter(pa.array(used, pa.bool_()))


def _launched(replays: Replays) -> Iterator[tuple[Intervals, Int64, Flags]]:
    """Calls that launched work, one for each piece of it, some at a time; how long it took, whether it was joined."""
    work = replays.work
    for some in blocks(len(work.call)):
        rows = some.start + np.flatnonzero(work.call[some] >= 0)
        calls = Intervals(*(work.of_calls(c, rows) for c in ("thread", "start", "end")))
        yield calls, work.end[rows] - work.start[rows], replays.joined[rows]


def _work_inside(nodes: Nodes, operators: _Operators, gpu: Int64) -> dict[str, NDArray[Any]]:
    """Operations and bytes of each node: sums over the outermost operators with a formula inside, or itself."""
    own_flops, own_moved = operators.work
    rows_with_work = np.flatnonzero(~np.isnan(own_flops))
    at = operators.at.of(rows_with_work)
    roots = rows_with_work[outermost(at.thread, at.start, at.end)]
    flops, moved, time = own_flops[roots], own_moved[roots], gpu[roots]
    timed, sized = time > 0, moved >= 0
    counts, sized_counts, *sums = sums_inside(
        nodes.at, operators.at.of(roots), np.ones(len(roots), np.int64), sized.astype(np.int64), flops,
        np.where(timed, flops, 0.0), np.where(timed, time, 0), np.where(sized, flops, 0.0), np.where(sized, moved, 0),
    )  # fmt: skip
    names = ("flops", "timed_flops", "timed_gpu_ns", "sized_flops", "moved_bytes")
    values: dict[str, NDArray[Any]] = dict(zip(names, sums, strict=True))
    if len(nodes.at) == len(operators.at) and nodes.at is operators.at:
        # an operator nested in another with a formula keeps its own values
        own = rows_with_work
        values["flops"][own], values["sized_flops"][own] = own_flops[own], own_flops[own]
        values["timed_flops"][own] = np.where(gpu[own] > 0, own_flops[own], 0.0)
        values["timed_gpu_ns"][own], values["moved_bytes"][own] = gpu[own], np.maximum(own_moved[own], 0)
        counts[own], sized_counts[own] = 1, own_moved[own] >= 0
    values["flops"][counts == 0] = np.nan
    values["moved_bytes"][sized_counts == 0] = -1
    return values


def _backward_inside(nodes: Nodes, operators: _Operators, gpu: Int64) -> Int64 | None:
    """The GPU time of the backward of the operators within each node; None if no operator has a number."""
    if not (operators.sequence >= 0).any():
        return None
    back, forward = _backward_pairs(operators)
    (total,) = sums_inside(nodes.at, operators.at.of(forward), gpu[back])
    result: Int64 = total
    return result


def _backward_pairs(operators: _Operators) -> tuple[Int64, Int64]:
    """Rows of backward steps and of their forward operators.

    A backward belongs to the forward operator of its number that starts last before it, which is the innermost. Numbers
    count per thread, so a number that two threads use is ambiguous.
    """
    numbered = operators.sequence >= 0
    starts_with = np.array([bool(n) and str(n).startswith(_BACKWARD) for n in operators.names], np.bool_)
    back = np.flatnonzero(starts_with[operators.name])
    within = innermost_node(operators.at.of(back), operators.at) >= 0
    forward = np.flatnonzero(numbered & ~within)
    back = back[operators.sequence[back] >= 0]
    forward = forward[np.lexsort((operators.at.start[forward], operators.sequence[forward]))]
    numbers = operators.sequence[forward]
    last = np.searchsorted(numbers, operators.sequence[back], side="right") - 1
    first = np.searchsorted(numbers, operators.sequence[back], side="left")
    there = last >= first
    back, first, last = back[there], first[there], last[there]
    thread = operators.at.thread[forward]
    change = np.concatenate(([0], np.cumsum(thread[1:] != thread[:-1]))) if len(thread) else thread
    clear = (change[last] == change[first]) & (operators.at.start[forward[last]] <= operators.at.start[back])
    return back[clear], forward[last[clear]]


def _ranges(rank: Rank) -> tuple[_Operators, Any]:
    """The ranges on one thread that have an end: operators, and a table of the others."""
    # of equal intervals the one that the report has first is the outer one
    numbers = {"source_row": -1, "thread": -1, "start": 0, "end": _OPEN, "name": 0, "sequence": -1}
    columns = Growing(len(numbers) + 1, rank.record.rows.get("ranges", 0))
    payloads, latest = dict[str, int](), [np.empty(0, np.int64)]
    others = [TABLES["ranges"].arrow_schema(_OTHERS).empty_table()]
    for piece in in_pieces(rank, "ranges", RANGES):
        latest.append(integers(pa.array([pc.max(piece.column(c)).as_py() for c in ("start", "end")]).drop_null()))
        keep = piece.column("end_thread").is_null().to_numpy() & piece.column("thread").is_valid().to_numpy()
        keep &= piece.column("start").is_valid().to_numpy()
        own = _is_operator(piece.column("domain"))
        others.append(piece.select(_OTHERS).filter(pa.array(keep & ~own)))
        # a payload is a long text that many operators share: from here on it is a number
        texts, text = coded(piece.column("payload"))
        number = np.array([*(payloads.setdefault(t, len(payloads)) for t in texts.to_pylist()), -1], np.int64)[text]
        whole = (*(integers(piece.column(n), null) for n, null in numbers.items()), number)
        columns.add(*(column[keep & own] for column in whole))
    ends = pa.array(np.concatenate(latest))
    table = pa.concat_tables(others)
    table = table.set_column(1, "end", close_ends(table, ends))
    row, thread, start, end, name, sequence, payload = columns.columns()
    end[end == _OPEN] = pc.max(ends).as_py() or 0
    payload[payload < 0] = len(payloads)
    order = np.argsort(row, kind="stable")
    at = Intervals(thread[order], start[order], np.maximum(end, start)[order])
    stem, names = stems_of(rank, name[order])
    operators = _Operators(at, stem, names, payload[order], [*payloads, None], sequence[order])
    return operators, table.take(np.argsort(integers(table.column("source_row"), -1), kind="stable"))


def _intervals(table: Any) -> Intervals:
    start = integers(table.column("start"))
    return Intervals(integers(table.column("thread")), start, np.maximum(integers(table.column("end")), start))


def _coded(rank: Rank, column: Any) -> tuple[Int64, list[str | None]]:
    """Name ids as rows of a list of texts."""
    kinds, places = distinct(integers(column))
    return places, rank.texts(pa.array(kinds, pa.int64())).to_pylist()


def _nodes(rank: Rank, others: Any, operators: _Operators, by: str) -> Nodes:
    module = integers(others.column("domain")) == _MODULE
    if by == "range":
        table = others.filter(pa.array(~module))
        key, names = stems_of(rank, integers(table.column("name")))
        return Nodes(_intervals(table), key, names, [None] * len(names))
    if by == "module":
        return _modules(rank, others.filter(pa.array(module)), operators)
    if by == "stack":
        return _stacks(rank, operators)
    if by == "operator":
        return Nodes(operators.at, operators.name, operators.names, [None] * len(operators.names))
    kinds, of_payload = _distinct([_shapes(p) for p in operators.payloads])
    pairs, places = np.unique(np.stack((operators.name, of_payload[operators.payload])), axis=1, return_inverse=True)
    names = [operators.names[n] for n in pairs[0].tolist()]
    return Nodes(operators.at, places.ravel().astype(np.int64), names, [kinds[s] for s in pairs[1].tolist()])


def _modules(rank: Rank, table: Any, operators: _Operators) -> Nodes:
    """Modules by their path; without such ranges, operators by the modules that they state."""
    if not table.num_rows:
        return _labelled(operators, "Module Hierarchy")
    at = _intervals(table)
    label, texts = _coded(rank, table.column("name"))
    depth, parent = nest(at.thread, at.start, at.end)
    path, labels = paths(depth, parent, label, [(t or "?").removeprefix(_MODULE_PREFIX) for t in texts], "/")
    return Nodes(at, path, labels, [None] * len(labels))


def _stacks(rank: Rank, operators: _Operators) -> Nodes:
    """Operators by the Python functions they were called from; without frames, by the functions that they state."""
    frames = rank.table("frames", FRAMES)
    if not frames.num_rows:
        return _labelled(operators, "Call stack", _outermost_first)
    has_thread = frames.column("thread").is_valid()
    frames = frames.filter(has_thread)
    at = _intervals(frames)
    label, texts = _coded(rank, frames.column("name"))
    depth, parent = nest(at.thread, at.start, at.end)
    path, stacks = paths(depth, parent, label, [t or "?" for t in texts], ";")
    inner = innermost_node(at, operators.at)
    rows = np.flatnonzero(inner >= 0)
    return Nodes(operators.at.of(rows), path[inner[rows]], stacks, [None] * len(stacks))


def _labelled(operators: _Operators, member: str, written: Callable[[str], str] = str) -> Nodes:
    """The operators with a text under `member` in their payload, by that text as `written` formats it."""
    texts = [_member(p, member) for p in operators.payloads]
    kinds, of_payload = _distinct([text and written(text) for text in texts])
    label = of_payload[operators.payload]
    rows = np.flatnonzero(np.array([k is not None for k in kinds], np.bool_)[label])
    return Nodes(operators.at.of(rows), label[rows], kinds, [None] * len(kinds))


def _outermost_first(stack: str) -> str:
    """A stack that the profiler wrote with the operator, which begins with the function that called it."""
    return ";".join(reversed(stack.split(";")))


def _distinct(texts: Sequence[str | None]) -> tuple[list[str | None], Int64]:
    number_of: dict[str | None, int] = {}
    places = [number_of.setdefault(t, len(number_of)) for t in texts]
    return list(number_of), np.array(places, np.int64)


def _member(payload: str | None, member: str) -> str | None:
    if not payload or member not in payload:
        return None
    try:
        about = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    value = about.get(member) if isinstance(about, dict) else None
    return value if isinstance(value, str) and value else None


def _shapes(payload: str | None) -> str | None:
    """The shapes of the inputs that are tensors; null if they were not recorded."""
    call = call_of(payload)
    if call is None:
        return None
    return " ".join("x".join(map(str, s)) for s in call.shapes if s) or None
