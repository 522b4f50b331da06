"""One rank's tables, and all ranks' facts, for several recipes: what several recipes read or derive is read and made once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from alltrace.run.overlay import SHARED_TABLES
from alltrace.trace.schema import DICTIONARIES, TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    import pyarrow as pa

    from alltrace.recipes.base import RankTables, RunFacts
    from alltrace.run.clock import ClockMap
    from alltrace.trace.intervals import Merged

_Made = TypeVar("_Made")


class Placeable(Protocol):
    """A part with times."""

    def placed(self, clock: ClockMap) -> Self:
        """The part of a rank in the time of its files as it is on the run's clock."""
        ...


_Part = TypeVar("_Part", bound=Placeable)


class Parts(Protocol):
    """The parts of a rank that are kept with the run (`execution.kept_parts`)."""

    def get(self, rank: RankTables, name: str, classes: Sequence[type], make: Callable[[RankTables], _Part]) -> _Part:
        """The part of some name: the one that is kept, or a new one."""
        ...


class SharedRank:
    """A rank's tables that stay in memory until the last recipe has read them.

    `wanted`: The tables and columns that recipes will read; the first read of a table reads all of these. `kept`: Its
    parts that are stored with the run; None if they are not.

    Attributes:
        reads: How often each table was read from its file.
        memo: What `once` made.
    """

    def __init__(self, rank: RankTables, wanted: Mapping[str, Sequence[str]], kept: Parts | None = None) -> None:
        self._inner = rank
        self._wanted = wanted
        self.kept = kept
        self._held: dict[str, Any] = {}
        self.rank: int = rank.rank
        self.host: str = rank.host
        self.reads: dict[str, int] = {}
        self.memo: dict[Hashable, Any] = {}

    def has(self, table: str) -> bool:
        """Whether the rank has rows of the canonical `table`."""
        return self._inner.has(table)

    def table(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """The canonical `table` (see `RankTables.table`)."""
        order = TABLES[table].column_names
        asked = list(order if columns is None else columns)
        held = self._held.get(table)
        if held is None or not set(asked) <= set(held.column_names):
            known = set(asked) | set(self._wanted.get(table, ())) | set(held.column_names if held is not None else ())
            # a dictionary is small, and recipes look up this and that in it
            held = self._held[table] = self._inner.table(table, [c for c in order if c in known or table in DICTIONARIES])
            self.reads[table] = self.reads.get(table, 0) + 1
        return held.select(asked)

    def gpu_samples(self, columns: Sequence[str]) -> pa.Table:
        """The samples of the rank's GPUs (see `RankTables.gpu_samples`)."""
        order = TABLES["gpu_metrics"].column_names
        return once(self, "gpu samples", lambda: self._inner.gpu_samples(order)).select(list(columns))

    def unrecorded(self) -> Merged:
        """Times with possibly lost records (see `RankTables.unrecorded`)."""
        return self._inner.unrecorded()

    def shared(self, table: str) -> pa.Table | None:
        """The rank's rows of the alignment (see `RankTables.shared`)."""
        return once(self, ("shared", table), lambda: self._inner.shared(table))

    def texts(self, ids: pa.Array) -> pa.Array:
        """The strings of an Arrow array of name ids (see `RankTables.texts`)."""
        return self._inner.texts(ids)

    def name_table(self) -> pa.Table:
        """All interned strings of the run, as a `pyarrow.Table` (`id`, `value`) sorted by id."""
        return self._inner.name_table()

    def release(self, tables: Sequence[str]) -> None:
        """Forget these tables, which are no longer needed."""
        for table in tables:
            self._held.pop(table, None)


class MovedRank:
    """The same tables with later times.

    `by_ns`: What is added to every time.

    Attributes:
        memo: The results of `once` for these times.
    """

    def __init__(self, rank: RankTables, by_ns: int) -> None:
        self._inner = rank
        self._by_ns = by_ns
        self.rank = rank.rank
        self.host = rank.host
        self.memo: dict[Hashable, Any] = {}

    def has(self, table: str) -> bool:
        """Whether the rank has rows of the canonical `table`."""
        return self._inner.has(table)

    def table(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """The canonical `table` (see `RankTables.table`)."""
        return self._moved(self._inner.table(table, columns), TABLES[table].time_columns())

    def gpu_samples(self, columns: Sequence[str]) -> pa.Table:
        """The samples of the rank's GPUs (see `RankTables.gpu_samples`)."""
        return self._moved(self._inner.gpu_samples(columns), TABLES["gpu_metrics"].time_columns())

    def unrecorded(self) -> Merged:
        """Times with possibly lost records (see `RankTables.unrecorded`)."""
        found = self._inner.unrecorded()
        return found._replace(starts=found.starts + self._by_ns, ends=found.ends + self._by_ns)

    def shared(self, table: str) -> pa.Table | None:
        """The rank's rows of the alignment (see `RankTables.shared`)."""
        found = self._inner.shared(table)
        return None if found is None else self._moved(found, SHARED_TABLES[table].time_columns())

    def texts(self, ids: pa.Array) -> pa.Array:
        """The strings of an Arrow array of name ids (see `RankTables.texts`)."""
        return self._inner.texts(ids)

    def name_table(self) -> pa.Table:
        """All interned strings of the run, as a `pyarrow.Table` (`id`, `value`) sorted by id."""
        return self._inner.name_table()

    def _moved(self, table: pa.Table, times: Sequence[str]) -> pa.Table:
        if not self._by_ns:
            return table
        import pyarrow.compute as pc

        for name in times:
            if name in table.column_names:
                at = table.column_names.index(name)
                table = table.set_column(at, table.field(at), pc.add(table.column(at), self._by_ns))
        return table


class SharedRun:
    """A run for the `merge` of several recipes.

    `run`: The run; this object has its attributes too.

    Attributes:
        memo: What `once` made.
    """

    def __init__(self, run: RunFacts) -> None:
        self._inner = run
        self.memo: dict[Hashable, Any] = {}

    def __getattr__(self, name: str) -> Any:
        """What the run has by that name."""
        return getattr(self._inner, name)


def once(owner: RankTables | RunFacts, key: Hashable, make: Callable[[], _Made]) -> _Made:
    """The result of `make` for a rank or a run, computed once per key if several recipes share it, otherwise each time."""
    memo: dict[Hashable, Any] | None = getattr(owner, "memo", None)
    if memo is None:
        return make()
    if key not in memo:
        memo[key] = make()
    found: _Made = memo[key]
    return found


def kept_once(rank: RankTables, name: str, classes: Sequence[type], make: Callable[[RankTables], _Part]) -> _Part:
    """Like `once`; the part from `make` is also stored with the run, if parts of the rank are (`execution.kept_parts`).

    `rank`: The rank's tables. `name`: The name of the part. `classes`: The dataclasses that may be in it. `make`:
    Computes it only from the tables it gets: those of the rank, on the run's clock or in the time of its files.
    """
    kept: Parts | None = getattr(rank, "kept", None)
    return once(rank, name, lambda: make(rank) if kept is None else kept.get(rank, name, classes, make))
