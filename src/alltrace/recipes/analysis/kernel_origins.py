"""Where a rank's kernels come from: operator, module and line of the program around the call that launched each."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from alltrace.recipes.analysis.graph_captures import replays_of
from alltrace.recipes.analysis.launched_work import KERNEL, gpu_work
from alltrace.recipes.analysis.operator_sums import FRAMES, Nodes, Program, has_operators
from alltrace.recipes.analysis.range_sums import Intervals, innermost_node
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Int64, integers
from alltrace.trace.distinct import distinct, distinct_rows

_MOST_NAMES = 256
_LINE = re.compile(r".+\.py\(\d+\): .+")
_LIBRARY = re.compile(
    r"(?:^|[/\\])(?:torch|torchvision|triton|apex|transformer_engine|deepspeed|contextlib\.py|"
    r"functools\.py)(?:[/\\(]|$)"
)
"""Files with lines that are less informative than those of the calling program."""


@dataclass(frozen=True)
class Origins:
    """The kernels of a rank, n of them, by where they come from; int64 arrays of n."""

    name: Int64  # id of the kernel's name, of the short one if it has one
    full_name: Int64  # id of its name as it is
    length: Int64  # duration, ns
    operator: Int64  # row of `operators`, -1 for none
    module: Int64  # row of `modules`, -1 for none
    line: Int64  # row of `lines`, -1 for none
    # names of operators; work that the backward of an autograd node launches is a separate operator
    operators: Sequence[str | None]
    modules: Sequence[str | None]  # paths of modules
    # lines of the program, as `train.py(3): step`: the innermost outside of PyTorch and its libraries, else the
    # innermost
    lines: Sequence[str | None]
    replayed_ns: int = 0  # time of kernels of replayed graphs, if the trace has a capture; see `graph_captures`
    joined_ns: int = 0  # of that, what is joined with the launches of the capture


def origins_of(rank: Rank) -> Origins:
    """The origins of a rank's kernels; any rank, also one without operators."""
    replays = replays_of(rank, gpu_work(rank))
    work = replays.work
    rows = np.flatnonzero(work.kind == KERNEL)
    calls = Intervals(*(work.of_calls(c, rows) for c in ("thread", "start", "end")))
    program = Program.of(rank)
    operators, modules, lines = program.nodes("operator"), program.nodes("module"), _lines(rank, program)
    at_operator, at_module, at_line = (nodes.keys_around(calls) for nodes in (operators, modules, lines))
    # the backward's thread has no modules and lines: use those of the forward operator
    back, forward = program.backward_pairs()
    step = innermost_node(back, calls)
    rest = np.flatnonzero((step >= 0) & (at_module < 0))
    begun = forward.of(step[rest])
    at_module[rest] = modules.keys_around(begun)
    at_line[rest] = lines.keys_around(begun)
    length = work.end[rows] - work.start[rows]
    full = integers(rank.table("kernels", ("name",)).column("name"))
    at = (at_operator, at_module, at_line)
    names = (operators.names, modules.names, lines.names)
    return Origins(work.name[rows], full, length, *at, *names, replays.replayed_ns, replays.joined_ns)


def main_origins(rank: Rank) -> dict[str, str]:
    """By name of a kernel where most of its time was launched, for those with most time; empty without operators."""
    if not has_operators(rank):
        return {}
    origins = origins_of(rank)
    kinds, place = distinct_rows(origins.full_name, origins.operator, origins.module, origins.line)
    total = np.zeros(kinds.shape[1], np.int64)
    np.add.at(total, place, origins.length)
    words: dict[int, str] = {}
    for row in np.argsort(-total, kind="stable").tolist():
        name, *codes = kinds[:, row].tolist()
        own = ((origins.operators, codes[0]), (origins.modules, codes[1]), (origins.lines, codes[2]))
        operator, module, line = (names[code] if code >= 0 else None for names, code in own)
        if len(words) < _MOST_NAMES and name not in words and (operator or module or line):
            parts = (operator, module and f"in {module}", line and f"at {line}")
            words[name] = ", ".join(part for part in parts if part)
    texts = rank.texts(pa.array(list(words), pa.int64())).to_pylist()
    return {text: origin for text, origin in zip(texts, words.values(), strict=True) if text}


def _lines(rank: Rank, program: Program) -> Nodes:
    """The functions of the program's own files, else of any, else what operators state of their stacks."""
    frames = rank.table("frames", FRAMES)
    if not frames.num_rows:
        stacks = program.nodes("stack")
        innermost = [_own_line(s.split(";")) if s else None for s in stacks.names]
        return Nodes(stacks.at, stacks.key, innermost, stacks.shapes)
    frames = frames.filter(frames.column("thread").is_valid())
    ids, place = distinct(integers(frames.column("name")))
    names = rank.texts(pa.array(ids, pa.int64())).to_pylist()
    lines = [bool(n and _LINE.fullmatch(n)) for n in names]
    own = [is_line and not _LIBRARY.search(str(n).partition("(")[0]) for n, is_line in zip(names, lines, strict=True)]
    chosen = np.array(own if any(own) else lines, np.bool_)[place]
    table: Any = frames.filter(pa.array(chosen))
    start = integers(table.column("start"))
    at = Intervals(integers(table.column("thread")), start, np.maximum(integers(table.column("end")), start))
    return Nodes(at, place[chosen], names, [None] * len(names))


def _own_line(stack: Sequence[str]) -> str:
    """The innermost line of a stack, the outermost first, that is of the program itself; the innermost if none is."""
    return next((f for f in reversed(stack) if not _LIBRARY.search(f.partition("(")[0])), stack[-1])
