"""The operators of a simulated model's kernels in traces of the PyTorch profiler, with shapes and the work they do."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from alltrace.synth.timeline import Timeline

_TOKENS, _WIDTH, _HEADS, _HEAD = 4096, 1024, 16, 64
_BATCH, _SEQUENCE = 2, _TOKENS // 2
_PRODUCT = 2 * _TOKENS * _WIDTH * _WIDTH
_SCORES = 2 * _BATCH * _HEADS * _SEQUENCE * _SEQUENCE * _HEAD
_ROWS, _WEIGHT = [_TOKENS, _WIDTH], [_WIDTH, _WIDTH]
_HEADS_LAST = [_BATCH, _SEQUENCE, _HEADS, _HEAD]
_SHORT_NS = 200
_LAYER = re.compile(r"layer (\d+)")
_STEP = re.compile(r"(?:step|iteration) \d+|ProfilerStep#\d+")


@dataclass(frozen=True)
class Operator:
    names: tuple[str, ...]  # the operators around the launch, the outermost first
    shapes: tuple[Sequence[Sequence[int]], ...]  # the inputs of each
    flops: int = 0  # floating-point operations; 0 for what has no formula


OPERATORS: dict[int, Operator] = {
    0: Operator(("aten::linear", "aten::addmm"), ([_ROWS, _WEIGHT, [_WIDTH]], [[_WIDTH], _ROWS, _WEIGHT]), _PRODUCT),
    1: Operator(("aten::layer_norm",), ([_ROWS],)),
    2: Operator(
        ("aten::scaled_dot_product_attention", "aten::_flash_attention_forward"),
        ([[_BATCH, _HEADS, _SEQUENCE, _HEAD]] * 3, [_HEADS_LAST] * 3),
        2 * _SCORES,
    ),
    3: Operator(("aten::add",), ([_ROWS, _ROWS],)),
    4: Operator(("aten::matmul", "aten::mm"), ([_ROWS, _WEIGHT], [_ROWS, _WEIGHT]), _PRODUCT),
    5: Operator(("aten::gelu",), ([_ROWS],)),
    6: Operator(("aten::mm",), ([[_WIDTH, _TOKENS], _ROWS],), _PRODUCT),
    7: Operator(("aten::_flash_attention_backward",), ([_HEADS_LAST] * 4,), 5 * _SCORES),
    8: Operator(("aten::native_layer_norm_backward",), ([_ROWS, _ROWS],)),
    9: Operator(("aten::gelu_backward",), ([_ROWS, _ROWS],)),
    10: Operator(("aten::_fused_adamw_",), ([_WEIGHT],)),
    11: Operator(("aten::_foreach_lerp_",), ([_WEIGHT],)),
}
"""By the kernel's index in `alltrace.synth.kernels.KERNELS`."""


@dataclass(frozen=True)
class Event:
    """An operator, module or frame on a thread, in the time of the calls and ranges that it was made from."""

    category: str
    name: str
    start: int
    end: int
    thread: int
    arguments: dict[str, Any]


def launches(line: Timeline) -> tuple[Any, Any]:
    """The rows of `api` that launch a kernel which has an operator, and these kernels' rows."""
    kernels = np.flatnonzero(np.isin(line.kernels["kernel"], list(OPERATORS)))
    correlation = line.kernels["correlation"][kernels]
    order = np.argsort(line.api["correlation"], kind="stable")
    at = np.minimum(np.searchsorted(line.api["correlation"][order], correlation), max(len(order) - 1, 0))
    rows = order[at] if len(order) else at
    known = (line.api["correlation"][rows] == correlation) if len(order) else np.zeros(len(kernels), np.bool_)
    return rows[known], kernels[known]


def operator_events(line: Timeline) -> Iterator[Event]:
    names = line.names.texts
    ranges = line.ranges
    for row in range(len(ranges)):
        name, start, end, thread = (
            names[ranges["name"][row]],
            *(int(ranges[c][row]) for c in ("start", "end", "thread")),
        )
        layer = _LAYER.fullmatch(name)
        if layer:
            yield Event("python_function", f"nn.Module: Layer_{layer[1]}", start, end, thread, {})
        elif _STEP.fullmatch(name):
            yield Event("python_function", "train.py(12): train_step", start, end, thread, {})
    rows, kernels = launches(line)
    room = _room(line, rows)
    for row, kernel, space in zip(rows.tolist(), kernels.tolist(), room.tolist(), strict=True):
        operator = OPERATORS[int(line.kernels["kernel"][kernel])]
        start, end, thread = (int(line.api[c][row]) for c in ("start", "end", "thread"))
        for level, (name, shapes) in enumerate(zip(operator.names, operator.shapes, strict=True)):
            more = space * (len(operator.names) - level) // len(operator.names)
            about = {"Input Dims": shapes, "Input type": ["c10::BFloat16"] * len(shapes)}
            yield Event("cpu_op", name, start - more, end + more, thread, about)


def _room(line: Timeline, rows: Any) -> Any:
    """How far an operator may reach beyond each call without meeting anything else of the thread."""
    room = np.full(len(rows), _SHORT_NS, np.int64)
    starts, ends, threads = (line.api[c][rows] for c in ("start", "end", "thread"))
    for thread in np.unique(threads).tolist():
        mine = np.flatnonzero(threads == thread)
        both = [t[c][t["thread"] == thread] for t in (line.api, line.ranges) for c in ("start", "end")]
        edges = np.unique(np.concatenate(both))
        before = edges[np.maximum(np.searchsorted(edges, starts[mine], "left") - 1, 0)]
        after = edges[np.minimum(np.searchsorted(edges, ends[mine], "right"), len(edges) - 1)]
        free = np.minimum(np.abs(starts[mine] - before), np.abs(after - ends[mine]))
        room[mine] = np.minimum(room[mine], np.maximum(free // 3, 0))
    return room


def operator_truth(line: Timeline) -> dict[str, dict[str, int]]:
    """By operator its calls, the true time of their kernels on the device, and their floating-point operations."""
    totals: dict[str, dict[str, int]] = {}
    _, kernels = launches(line)
    for kernel in kernels.tolist():
        operator = OPERATORS[int(line.kernels["kernel"][kernel])]
        length = int(line.kernels["end"][kernel] - line.kernels["start"][kernel])
        for name in operator.names:
            own = totals.setdefault(name, {"calls": 0, "gpu_ns": 0, "flops": 0})
            own["calls"] += 1
            own["gpu_ns"] += length
            own["flops"] += operator.flops
    return totals
