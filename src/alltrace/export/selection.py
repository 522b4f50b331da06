"""What of a run is exported: ranks, tables and a window of time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from alltrace.trace.errors import UsageError
from alltrace.trace.schema import EVENT_TABLES, TABLES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from alltrace.align.aligned import Aligned
    from alltrace.run.manifest import Rank
    from alltrace.run.store import Run
    from alltrace.trace.spans import Span


@dataclass(frozen=True)
class Selection:
    """What of a run is exported.

    Attributes:
        run: The run.
        ranks: Its ranks wanted, ascending.
        tables: The event tables wanted.
        window_ns: Start and end on the run's aligned clock; an event belongs to it when it starts in it. None for the whole run.
    """

    run: Run
    ranks: tuple[Rank, ...]
    tables: frozenset[str]
    window_ns: tuple[int, int] | None = None

    @property
    def zero_ns(self) -> int:
        """The time that becomes 0 in the export: the start of the window, or of the first event of the run."""
        return self.run.span_ns[0] if self.window_ns is None else self.window_ns[0]

    def distinct(self, rank: Rank, table: str, columns: Sequence[str]) -> Iterator[Any]:
        """The values of columns of whole numbers in the wanted rows of a rank's table.

        Yields:
            `pyarrow.Table`s, as `batches`; of a piece whose rows are all wanted and alike one row stands for all.
        """
        import pyarrow as pa

        if table not in self.tables:
            return
        stored = self.run.rank(rank.rank)
        order = TABLES[table].order or "start"
        schema = TABLES[table].arrow_schema(columns)
        read: list[int] = []
        seen: set[tuple[int, ...]] = set()
        pieces = stored.pieces(table) if self.window_ns is None and table != "collectives" else []
        for piece in pieces:
            values = tuple(stored.constant(table, piece.group, c) for c in columns)
            known = tuple(v for v in values if v is not None)
            if piece.start_ns is None or len(known) < len(columns):
                read.append(piece.group)
            else:
                seen.add(known)
        if len(read) == len(pieces):
            yield from self.batches(rank, table, columns)
            return
        for known in sorted(seen):
            yield pa.table([pa.array([v], f.type) for v, f in zip(known, schema, strict=True)], schema=schema)
        for group in read:
            yield from self._wanted(stored.piece(table, group, list(dict.fromkeys((*columns, order)))), order)

    def batches(self, rank: Rank, table: str, columns: Sequence[str]) -> Iterator[Any]:
        """The wanted rows of a rank's table, as non-empty `pyarrow.Table`s; times are on the run's aligned clock."""
        if table not in self.tables:
            return
        order = TABLES[table].order or "start"
        for batch in self.run.rank(rank.rank).batches(table, list(dict.fromkeys((*columns, order)))):
            yield from self._wanted(batch, order)

    def _wanted(self, batch: Any, order: str) -> Iterator[Any]:
        """The wanted rows of a batch, where there are any."""
        found = batch
        times = batch.column(order)
        if times.null_count or self.window_ns is not None:
            wanted = pc.is_valid(times)
            if self.window_ns is not None:
                start, end = self.window_ns
                wanted = pc.and_kleene(wanted, pc.and_(pc.greater_equal(times, start), pc.less(times, end)))
            found = batch.filter(wanted)
        if found.num_rows:
            yield found


def select(
    run: Run,
    *,
    ranks: Sequence[int] | None = None,
    only: Collection[str] | None = None,
    window_ns: Span | None = None,
    steps: Span | None = None,
    aligned: Aligned | None = None,
) -> Selection:
    """A selection of a run.

    Args:
        run: The run.
        ranks: The ranks wanted; None for all.
        only: The event tables wanted; None for all.
        window_ns: Start and end, relative to the first event of the run.
        steps: The steps wanted; the window goes from the first start of one on any rank to the last end, that of the work
            launched in it among them.
        aligned: The alignment, for `steps`.

    Raises:
        UsageError: The run has no such rank, table or step, or the window is empty.
    """
    for number in ranks or ():
        run.rank(number)
    for name in only or ():
        if name not in EVENT_TABLES:
            raise UsageError.unknown("table for --only", name, EVENT_TABLES)
    wanted = run.ranks if ranks is None else tuple(r for r in run.ranks if r.rank in set(ranks))
    zero = run.span_ns[0]
    window = None
    if window_ns is not None:
        first, end = window_ns
        window = zero + (first or 0), run.span_ns[1] + 1 if end is None else zero + end
    if steps is not None and aligned is not None:
        window = _of_steps(aligned, steps, [r.rank for r in wanted])
    if window is not None and window[1] <= window[0]:
        raise UsageError(f"the window ends at {window[1] - zero} ns, not after its start at {window[0] - zero} ns")
    return Selection(run, wanted, frozenset(EVENT_TABLES if only is None else only), window)


def _of_steps(aligned: Aligned, steps: Span, ranks: Sequence[int]) -> tuple[int, int]:
    import pyarrow as pa

    table = aligned.steps
    numbers = table.column("step")
    mine = pc.is_in(table.column("rank"), pa.array(ranks, pa.int32()))
    found = table.filter(pc.and_(mine, pa.array(steps.holds(numbers.to_numpy()))))
    if not found.num_rows:
        known = pc.min_max(numbers).as_py()
        there = "no steps were found in the run" if known["min"] is None else f"there are {known['min']} to {known['max']}"
        raise UsageError(f"--steps is {steps}; {there}")
    lasts = [pc.max(found.column(c)).as_py() for c in ("end", "device_end")]
    return pc.min(found.column("start")).as_py(), max(e for e in lasts if e is not None)
