"""Part of a run: the steps that a question is about, and a rank's tables cut down to them.

A row counts for the step in which it starts: rows of the host for the step with a range around their start, rows of the
device (kernels, copies, graphs, collectives and metrics) for the step with the latest start of device work before them.
A row belongs to one step at most.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from alltrace.trace.distinct import rows_by
from alltrace.trace.errors import UsageError
from alltrace.trace.intervals import Merged, containing
from alltrace.trace.number_text import number_ranges
from alltrace.trace.schema import TABLES
from alltrace.trace.spans import Span, parse_steps

DEVICE_TABLES = frozenset(
    {"kernels", "copies", "graphs", "collectives", "gpu_metrics", "nic_metrics", "switch_metrics", "generic_metrics"}
)
"""Tables whose rows count by the extent of a step's work on the device; others by its extent on the host."""

_SHARED_READS = {"members": ("row",), "steps": ("step",), "gpu_log": ("time",), "inspector": ("start",)}
NONE = -(1 << 63)


class Selection(NamedTuple):
    """Which steps a question is about."""

    first: int | None = None  # the first step; None for the run's first
    end: int | None = None  # the step after the last; None for none
    skip_warmup: bool = False  # whether warm-up steps are left out

    def __bool__(self) -> bool:
        """Whether anything is left out."""
        return self.first is not None or self.end is not None or self.skip_warmup

    def __str__(self) -> str:
        """As the command line spells it."""
        span = Span(self.first, self.end)
        steps = [] if span == Span() else [f"--steps {span}"]
        return " ".join([*steps, *(["--skip-warmup"] if self.skip_warmup else [])])


def select(steps: str | None = None, *, skip_warmup: bool = False) -> Selection:
    """The selection that `--steps` and `--skip-warmup` name (`trace.spans`). Raises `UsageError`: it names no steps."""
    span = parse_steps(steps) or Span()
    return Selection(span.first, span.end, skip_warmup)


class RankWindow(NamedTuple):
    steps: NDArray[Any]  # int64 array of n step numbers, ascending in time
    host: NDArray[Any]  # int64 array (n, 2): start and end on the host, aligned ns
    device: NDArray[Any]  # int64 array (m, 2), m <= n: start and end on the device, without overlap

    def reads(self, table: str) -> Sequence[str]:
        """The columns that decide whether a row is in a chosen step (see `run.rank.Rows`)."""
        if table in _SHARED_READS:
            return _SHARED_READS[table]
        order = TABLES[table].order or "start"
        return (order, "api_start") if table == "collectives" else (order,)

    def keeps(self, table: str, rows: pa.Table) -> NDArray[Any]:
        """Which rows start in a chosen step, by the call on the host if they have no start on the device."""
        columns = [rows.column(name) for name in self.reads(table)]
        if table == "steps":
            return np.isin(columns[0].to_numpy(), self.steps)
        inside = self.holds(
            columns[0].fill_null(NONE).to_numpy(), device=table in DEVICE_TABLES or table in _SHARED_READS
        )
        if len(columns) > 1 and columns[0].null_count:
            called = self.holds(columns[1].fill_null(NONE).to_numpy(), device=False)
            inside |= called & columns[0].is_null().to_numpy()
        return inside

    def holds(self, times: NDArray[Any], *, device: bool) -> NDArray[Any]:
        """Whether each time is in a chosen step: boolean array of the length of `times`."""
        spans = self.device if device else self.host
        return containing(Merged(*spans.T.copy()), times) >= 0


class Window(NamedTuple):
    ranks: Mapping[int, RankWindow]  # the window of each rank that has any of them
    notes: tuple[str, ...]  # what was chosen, and on how many ranks

    @property
    def span_ns(self) -> tuple[int, int]:
        """First start and last end of the chosen steps on any rank, host and device, aligned."""
        spans = [s for w in self.ranks.values() for s in (w.host, w.device) if len(s)]
        return min(int(s[:, 0].min()) for s in spans), max(int(s[:, 1].max()) for s in spans)


def window_of(selection: Selection, steps: Any, chosen_ranks: Sequence[int]) -> Window:
    """The chosen steps of the ranks; `steps`: of all, aligned. Raises `UsageError`: no rank has one."""
    columns = {c: steps.column(c).to_numpy() for c in ("rank", "step", "start", "end")}
    mine = np.isin(columns["rank"], np.asarray(chosen_ranks, np.int64))
    numbers = columns["step"][mine]
    if not len(numbers):
        raise UsageError(f"{selection} needs steps, but none were found in the run; leave it out")
    warm = np.array([k == "warm-up" for k in steps.column("kind").to_pylist()], bool)
    chosen = mine & ~(warm & selection.skip_warmup) & Span(selection.first, selection.end).holds(columns["step"])
    if not chosen.any():
        left = " besides warm-up" if selection.skip_warmup else ""
        raise UsageError(f"{selection} selects no step{left}; the run has steps {numbers.min()} to {numbers.max()}")
    device = np.stack([steps.column(c).fill_null(NONE).to_numpy() for c in ("device_start", "device_end")], axis=1)
    ranks = {}
    for rank, rows in rows_by(columns["rank"]).items():
        if not chosen[rows].any():
            continue
        rows = rows[np.argsort(columns["start"][rows], kind="stable")]
        host = np.stack((columns["start"][rows], columns["end"][rows]), axis=1)
        keep = chosen[rows]
        ranks[rank] = RankWindow(columns["step"][rows][keep], host[keep], _parted(device[rows], keep))
    return Window(ranks, tuple(_notes(selection, columns, chosen, mine, warm, ranks, chosen_ranks)))


def _parted(device: NDArray[Any], keep: NDArray[Any]) -> NDArray[Any]:
    """The chosen extents on the device, each cut where the next step's begins, so that no time belongs to two steps."""
    there = np.flatnonzero(device[:, 0] != NONE)
    starts = np.maximum.accumulate(device[there, 0]) if len(there) else device[there, 0]
    ends = np.maximum(device[there, 1], starts)
    ends[:-1] = np.minimum(ends[:-1], starts[1:])
    wanted = keep[there]
    return np.stack((starts[wanted], ends[wanted]), axis=1)


def _notes(
    selection: Selection,
    columns: Mapping[str, NDArray[Any]],
    chosen: NDArray[Any],
    mine: NDArray[Any],
    warm: NDArray[Any],
    ranks: Mapping[int, RankWindow],
    chosen_ranks: Sequence[int],
) -> list[str]:
    taken, every = np.unique(columns["step"][chosen]), np.unique(columns["step"][mine])
    notes = [
        f"only steps {number_ranges(taken.tolist())} of {number_ranges(every.tolist())} are counted, on {len(ranks)} "
        f"of {len(chosen_ranks)} ranks; a row belongs to the step in which it starts"
    ]
    if selection.skip_warmup:
        left = np.unique(columns["step"][mine & warm]).tolist()
        notes.append(f"warm-up steps left out: {number_ranges(left)}")
    without = sorted(set(chosen_ranks) - set(ranks))
    if without:
        notes.append(f"left out because these steps are missing there: rank {number_ranges(without)}")
    part = sorted(r for r, w in ranks.items() if len(w.steps) < len(taken))
    if part:
        notes.append(f"not all of these steps were found on rank {number_ranges(part)}")
    return notes
