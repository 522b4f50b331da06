"""The grid of ranks that communicators form: tensor, expert, data and pipeline parallel groups at regular strides."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from alltrace.align.schema import Group


class ParallelGrid(NamedTuple):
    """A grid of all ranks; the dimension of neighbouring ranks is first."""

    text: str  # such as `TP 2 x PP 2 x DP 4`
    found_by: str  # the least certain way of all its communicators
    score: float  # the lowest of their mean scores by dimension
    dimensions: tuple[tuple[str, int], ...] = ()  # name and size


class _Dimension(NamedTuple):
    size: int
    stride: int
    kind: str
    groups: tuple[Group, ...]


_MESSAGES, _EXPERTS, _OTHER = "PP", "EP", ""


def grid_of(groups: Sequence[Group], ranks: Collection[int]) -> ParallelGrid | None:
    """The grid that communicators form; None if no regular ones divide the ranks of the run.

    Dimensions are taken from the smallest stride on, each beginning where the previous one ends, until their sizes
    multiply to the number of ranks. A dimension of messages is a pipeline (PP); one with exchanges among all members
    has experts (EP). Of the others, the innermost is called tensor parallel (TP) if there is a further one, and every
    further one data parallel (DP): context parallel groups look the same.
    """
    count = len(ranks)
    if sorted(ranks) != list(range(count)) or count < 2:
        return None
    regular = _dimensions(groups, count)
    chosen: list[_Dimension] = []
    stride = 1
    while stride < count:
        # groups of all remaining ranks are the last choice: a communicator of all ranks exists with any grid
        at = sorted((d for d in regular if d.stride == stride), key=lambda d: _choice(d, count))
        if not at:
            return None
        chosen.append(at[0])
        stride *= at[0].size
    others = [d for d in chosen if d.kind != _MESSAGES]
    named = []
    for dimension in chosen:
        inner = len(others) > 1 and dimension.stride == 1
        named.append((dimension.kind or ("TP" if inner else "DP"), dimension.size))
    ways = {g.found_by for d in chosen for g in d.groups}
    found_by = next(w for w in ("structure", "logs", "ids") if w in ways)
    score = min(sum(g.score for g in d.groups) / len(d.groups) for d in chosen)
    return ParallelGrid(" x ".join(f"{name} {size}" for name, size in named), found_by, round(score, 3), tuple(named))


def _choice(dimension: _Dimension, count: int) -> tuple[bool, int, int, bool]:
    """The sort key of dimensions at one stride, of which the first is used; experts before others."""
    return (
        dimension.size * dimension.stride == count,
        -len(dimension.groups),
        dimension.size,
        dimension.kind != _EXPERTS,
    )


def _dimensions(groups: Sequence[Group], count: int) -> list[_Dimension]:
    """Sizes and strides of which there are groups of all ranks."""
    by_shape: dict[tuple[int, int, str], list[Group]] = {}
    for group in groups:
        steps = {b - a for a, b in zip(group.ranks, group.ranks[1:], strict=False)}
        if len(steps) == 1:
            kind = _EXPERTS if group.all_to_all else _MESSAGES if group.messages else _OTHER
            by_shape.setdefault((len(group.ranks), steps.pop(), kind), []).append(group)
    found = []
    for (size, stride, kind), its in by_shape.items():
        there = {g.ranks for g in its}
        if kind == _MESSAGES and size == 2:  # pairs of neighbouring stages, which are as many as it takes
            stages = [
                s
                for s in range(2, count // stride + 1)
                if count % (s * stride) == 0 and _chains(s, stride, count) <= there
            ]
            found += [_Dimension(s, stride, kind, tuple(its)) for s in stages[-1:]]
            continue
        wanted = {tuple(range(f, f + size * stride, stride)) for f in range(count) if f // stride % size == 0}
        if count % (size * stride) == 0 and wanted <= there:
            found.append(_Dimension(size, stride, kind, tuple(its)))
    return found


def _chains(size: int, stride: int, count: int) -> set[tuple[int, int]]:
    """The pairs of neighbouring stages of all pipelines with this number of stages at a stride."""
    return {(r, r + stride) for r in range(count) if r // stride % size < size - 1}
