"""The run with kernels that take as long in each step and on each rank as the same kernels do as a rule.

Programs repeat themselves: the n-th segment of kernels of a step has the same kernels in other steps and on ranks alike. Segments
with the same place in the step, the same number of kernels and the same names are the same; each then takes the mean of their
middle half, which a few long ones do not change. The kernels of a slow device are only compared with each other, so that it stays
slow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from alltrace.replay.rank_graph import COMPUTE
from alltrace.trace.distinct import distinct_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from alltrace.recipes.questions.diagnose.recovered_time import RecoveredTime
    from alltrace.trace.arrays import Int64

_MIX = np.int64(0x9E3779B97F4A7C1)
"""An odd number; its multiples distinguish sets of names."""


def even_durations(run: RecoveredTime, ranks: Int64, steps: Int64, apart: NDArray[np.bool_], even: NDArray[np.bool_]) -> Int64:
    """The weights of the run's graph with even durations.

    `ranks`: The ranks, ascending. `steps`: The judged steps, ascending.
    """
    replay = run.replay
    _, places = replay.names
    nodes, own, keys = [], [], []
    for part, base, place in zip(replay.parts, replay.base.tolist(), places, strict=True):
        size = len(part.when)
        took = np.bincount(part.cell_node, part.cell_ns, minlength=size)
        count = np.bincount(part.cell_node, part.cell_count, minlength=size).astype(np.int64)
        mix = np.zeros(size, np.int64)
        np.add.at(mix, part.cell_node, (place[part.cell_name] + 1) * _MIX * part.cell_count)
        step = replay.step[base : base + size]
        mine = np.flatnonzero((part.kind == COMPUTE) & (took > 0) & np.isin(step, steps))
        order = mine[np.lexsort((part.when[mine], step[mine]))]
        begins = np.flatnonzero(np.concatenate(([True], np.diff(step[order]) != 0))) if len(order) else np.empty(0, np.int64)
        within = np.arange(len(order)) - np.repeat(begins, np.diff(np.append(begins, len(order))))
        nodes.append(order + base)
        own.append(took[order])
        keys.append(np.column_stack((within, count[order], mix[order])))
    node, took, key = np.concatenate(nodes), np.concatenate(own), np.concatenate(keys)
    row, column = np.searchsorted(ranks, replay.rank[node]), np.searchsorted(steps, replay.step[node])
    chosen = even[row, column]
    node, took = node[chosen], took[chosen]
    key = np.column_stack((key, np.where(apart[row], row, -1)))[chosen]
    factor = np.ones(len(replay.kind))
    if len(node):
        same = distinct_rows(*key.T)[1]
        order = np.lexsort((took, same))
        begins = np.flatnonzero(np.concatenate(([True], np.diff(same[order]) != 0)))
        having = np.diff(np.append(begins, len(order)))
        whole = np.concatenate(([0.0], np.cumsum(took[order])))
        middle = having - 2 * (having // 4)
        usual = (whole[begins + having // 4 + middle] - whole[begins + having // 4]) / middle
        factor[node] = usual[same] / took
    return run.with_factors(factor)
