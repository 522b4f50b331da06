"""The facts of a run and its alignment, cut down to the steps that a question is about."""

from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.align.aligned import Aligned
from alltrace.recipes.base import RunFacts
from alltrace.recipes.execution.shared_tables import SharedRun
from alltrace.recipes.execution.window import NONE, Window
from alltrace.trace.distinct import rows_by


class WindowedAlignment(Aligned):
    """An alignment of the chosen steps; an instance counts where its lowest rank's part starts."""

    def __init__(self, whole: Aligned, window: Window) -> None:
        self.__dict__.update({k: v for k, v in whole.__dict__.items() if k not in ("members", "steps")})
        self._whole = whole
        self._window = window

    @cached_property
    def members(self) -> pa.Table:
        """Members of the chosen steps' instances; `row` counts rows of these, -1 if the rank's part is in no step."""
        members = self._whole.members
        if not members.num_rows:
            return members
        instance, rank = (members.column(c).to_numpy() for c in ("instance", "rank"))
        start = members.column("start").fill_null(NONE).to_numpy()
        first = np.flatnonzero(np.concatenate(([True], instance[1:] != instance[:-1])))
        # an operation of MPI has the time of its call, on the host
        words = pc.cast(members.column("evidence").take(pa.array(first)), pa.string())
        called = pc.fill_null(pc.equal(words, "mpi"), False).to_numpy()
        counts = np.zeros(len(first), bool)
        heads = rows_by(rank[first])
        for number, window in self._window.ranks.items():
            its = heads.get(number, np.empty(0, np.intp))
            for on_host in (False, True):
                own = its[called[its] == on_host]
                counts[own] = window.holds(start[first[own]], device=not on_host)
        members = members.filter(pa.array(np.repeat(counts, np.diff(np.append(first, len(instance))))))
        rank, row = members.column("rank").to_numpy(), members.column("row").to_numpy()
        within = np.full(len(row), -1, np.int64)
        rows = rows_by(rank)
        for number, window in self._window.ranks.items():
            mine = rows.get(number)
            if mine is not None:
                within[mine] = self.run.rank(number).view(window).collective_rows()[row[mine]]
        return members.set_column(members.column_names.index("row"), "row", pa.array(within))

    @cached_property
    def steps(self) -> pa.Table:
        table = self._whole.steps
        rank, step = (table.column(c).to_numpy() for c in ("rank", "step"))
        chosen = np.zeros(len(rank), bool)
        for number, mine in rows_by(rank).items():
            if number in self._window.ranks:
                chosen[mine] = np.isin(step[mine], self._window.ranks[number].steps)
        return table.filter(pa.array(chosen))


class WindowedRun(SharedRun):
    """The facts of a run for `merge`, with the chosen steps' span."""

    def __init__(self, run: RunFacts, window: Window) -> None:
        super().__init__(run)
        self._window = window

    @cached_property
    def alignment(self) -> Aligned | None:
        """The alignment, cut down to the chosen steps; None if the recipe needs none."""
        whole = self._inner.alignment
        return None if whole is None else WindowedAlignment(whole, self._window)

    @property
    def span_ns(self) -> tuple[int, int]:
        """First start and last end of the chosen steps."""
        return self._window.span_ns
