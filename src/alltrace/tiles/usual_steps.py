"""Which steps show what is usual: of those that a verdict judges, the one in which half of a cost is reached."""

from __future__ import annotations

import numpy as np

from alltrace.align.aligned import Aligned
from alltrace.run.store import Run
from alltrace.trace.arrays import Int64, integers, is_one_of
from alltrace.trace.distinct import rows_by

_NONE = -1


class UsualSteps:
    """The steps of a run that are judged: without warm-up and checkpoints, unless there are no others."""

    def __init__(self, run: Run) -> None:
        table = Aligned(run).steps
        judged = is_one_of(table.column("kind"), ("step",))
        self._judged = set(integers(table.column("step"))[judged if judged.any() else slice(None)].tolist())
        names = ("step", "start", "end", "device_start", "device_end")
        columns = {name: integers(table.column(name), _NONE) for name in names}
        for name in ("start", "end"):  # of work on the host where a step has none on a device
            own = columns[f"device_{name}"]
            columns[f"device_{name}"] = np.where(
                table.column(f"device_{name}").is_null().to_numpy(), columns[name], own
            )
        self._of_rank = {
            rank: {
                name: column[rows[np.argsort(columns["start"][rows], kind="stable")]]
                for name, column in columns.items()
            }
            for rank, rows in rows_by(integers(table.column("rank"))).items()
        }

    def of_each(self, rank: int, times: Int64, *, device: bool) -> Int64:
        """The step of a rank, on its device or its host, at each of these aligned times; -1 outside of steps."""
        if rank not in self._of_rank:
            return np.full(len(times), _NONE)
        own, side = self._of_rank[rank], "device_" if device else ""
        at = np.searchsorted(own[f"{side}start"], times, "right") - 1
        return np.where((at >= 0) & (times < own[f"{side}end"][at]), own["step"][at], _NONE)

    def of(self, rank: int, time: int, *, device: bool) -> int | None:
        step = int(self.of_each(rank, np.array([time]), device=device)[0])
        return None if step == _NONE else step

    def median_of(self, rank: int) -> tuple[int, int, int] | None:
        """The judged step of a rank whose length is the median: its number, start and end; None if it has none."""
        if rank not in self._of_rank:
            return None
        steps, starts, ends = (self._of_rank[rank][name] for name in ("step", "start", "end"))
        mine = np.flatnonzero(np.isin(steps, list(self._judged)))
        if not len(mine):
            return None
        at = mine[np.argsort((ends - starts)[mine], kind="stable")[len(mine) // 2]]
        return int(steps[at]), int(starts[at]), int(ends[at])

    def usual(self, steps: Int64, costs: Int64) -> Int64:
        """The places of the events of one step, the one at half of the cost in judged steps, by cost."""
        # `steps`: the step of each event. Without an event in a judged step all places.
        numbers, which = np.unique(steps, return_inverse=True)
        sums = np.bincount(which, weights=costs, minlength=len(numbers))
        sums[~np.isin(numbers, list(self._judged))] = 0
        if not sums.any():
            return np.arange(len(steps))
        order = np.argsort(sums, kind="stable")
        reached = np.cumsum(sums[order])
        return np.flatnonzero(which == order[np.searchsorted(reached, reached[-1] / 2)])
