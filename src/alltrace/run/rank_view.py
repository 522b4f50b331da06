"""A rank's tables cut down to some rows, with other times, or in memory until the last of several questions has read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from alltrace.run.overlay import SHARED_TABLES
from alltrace.trace.schema import DICTIONARIES, TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from alltrace.run.rank_tables import RankTables
    from alltrace.trace.intervals import Merged

_Made = TypeVar("_Made")


class Rows(Protocol):
    """Which rows of a rank's tables count."""

    def reads(self, table: str) -> Sequence[str] | None:
        """The columns that decide in a table of events or of the alignment; None if all its rows count."""
        ...

    def keeps(self, table: str, rows: pa.Table) -> NDArray[Any]:
        """Which of some rows count, judged by these columns: a boolean array."""
        ...


class RankView:
    """One rank's tables as its source has them, but for what the arguments say; a `RankTables`. Dictionaries are whole.

    Args:
        source: The rank's tables.
        rows: The rows that count; None for all.
        by_ns: What is added to every time.
        wanted: The tables and columns that will be read: the first read of a table reads all of these and keeps them in memory.
            None if nothing is kept.
        kept: The parts of the rank that are stored with the run (`recipes.execution.shared_tables.Parts`).

    Attributes:
        reads: How often each table in memory was read from its file.
        memo: What `recipes.execution.shared_tables.once` made of these tables.
    """

    def __init__(
        self,
        source: RankTables,
        rows: Rows | None = None,
        *,
        by_ns: int = 0,
        wanted: Mapping[str, Sequence[str]] | None = None,
        kept: Any = None,
    ) -> None:
        self._source = source
        self._rows = rows
        self._by_ns = by_ns
        self._wanted = wanted
        self._tables: dict[str, pa.Table] = {}
        self.kept = kept
        self.rank: int = source.rank
        self.host: str = source.host
        self.reads: dict[str, int] = {}
        self.memo: dict[Hashable, Any] = {}

    def has(self, table: str) -> bool:
        """Whether the rank has rows of the canonical `table`, whether they count or not."""
        return self._source.has(table)

    def table(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """The canonical `table` (see `RankTables.table`)."""
        order = TABLES[table].column_names
        wanted = list(order if columns is None else columns)
        if self._wanted is None:
            return self._read(table, wanted)
        whole = self._tables.get(table)
        if whole is None or not set(wanted) <= set(whole.column_names):
            known = {*wanted, *self._wanted.get(table, ()), *(whole.column_names if whole is not None else ())}
            # a dictionary is small, and recipes look up this and that in it
            whole = self._tables[table] = self._read(table, [c for c in order if c in known or table in DICTIONARIES])
            self.reads[table] = self.reads.get(table, 0) + 1
        return whole.select(wanted)

    def gpu_samples(self, columns: Sequence[str]) -> pa.Table:
        """The samples of the rank's GPUs (see `RankTables.gpu_samples`)."""
        read = list(columns) if self._wanted is None else list(TABLES["gpu_metrics"].column_names)
        samples = self._once("gpu samples", lambda: self._counting("gpu_metrics", read, self._source.gpu_samples))
        return samples.select(list(columns))

    def unrecorded(self) -> Merged:
        """Times with possibly lost records (see `RankTables.unrecorded`)."""
        times = self._source.unrecorded()
        return times._replace(starts=times.starts + self._by_ns, ends=times.ends + self._by_ns) if self._by_ns else times

    def shared(self, table: str) -> pa.Table | None:
        """The rank's rows of the alignment that count; `row` of `members` counts in `table` (see `RankTables.shared`)."""
        return self._once(("shared", table), lambda: self._shared(table))

    def texts(self, ids: pa.Array) -> pa.Array:
        """The strings of an Arrow array of name ids (see `RankTables.texts`)."""
        return self._source.texts(ids)

    def name_table(self) -> pa.Table:
        """All interned strings of the run, as a `pyarrow.Table` (`id`, `value`) sorted by id."""
        return self._source.name_table()

    def release(self, tables: Sequence[str]) -> None:
        """Forget these tables, which are no longer needed."""
        for table in tables:
            self._tables.pop(table, None)

    def collective_rows(self) -> NDArray[Any]:
        """For each row of the rank's whole `collectives` its row among those that count, -1 for none: int64 array."""
        import numpy as np

        columns = self._judged("collectives")
        if self._rows is None or columns is None:
            return np.arange(self._source.table("collectives", ["start"]).num_rows)
        keeps = self._rows.keeps("collectives", self._source.table("collectives", columns))
        rows: NDArray[Any] = np.where(keeps, np.cumsum(keeps) - 1, -1)
        return rows

    def _judged(self, table: str) -> list[str] | None:
        """The columns of a table of events by which rows count; None if all do."""
        if self._rows is None or table in DICTIONARIES or TABLES[table].order is None:
            return None
        columns = self._rows.reads(table)
        return None if columns is None else list(columns)

    def _read(self, table: str, columns: list[str]) -> pa.Table:
        return self._counting(table, columns, lambda read: self._source.table(table, read))

    def _counting(self, table: str, columns: list[str], read: Callable[[list[str]], pa.Table]) -> pa.Table:
        """The rows that count of what `read` returns, with their times moved."""
        judged = self._judged(table)
        if self._rows is None or judged is None:
            return self._moved(read(columns), TABLES[table].time_columns())
        import pyarrow as pa

        rows = read(list(dict.fromkeys([*columns, *judged])))
        keeps = self._rows.keeps(table, rows)
        if not keeps.all():
            if table == "ranges" and "parent" in columns:
                rows = _with_parents(rows, keeps)
            rows = rows.select(columns).filter(pa.array(keeps))
        return self._moved(rows.select(columns), TABLES[table].time_columns())

    def _shared(self, table: str) -> pa.Table | None:
        rows = self._source.shared(table)
        if rows is not None and self._rows is not None and self._rows.reads(table) is not None:
            import pyarrow as pa

            if table == "members":
                row = self.collective_rows()[rows.column("row").to_numpy()]
                rows = rows.filter(pa.array(row >= 0))
                rows = rows.set_column(rows.column_names.index("row"), "row", pa.array(row[row >= 0], pa.int64()))
            else:
                rows = rows.filter(pa.array(self._rows.keeps(table, rows)))
        return None if rows is None else self._moved(rows, SHARED_TABLES[table].time_columns())

    def _moved(self, table: pa.Table, times: Sequence[str]) -> pa.Table:
        if not self._by_ns:
            return table
        import pyarrow.compute as pc

        for name in times:
            if name in table.column_names:
                at = table.column_names.index(name)
                table = table.set_column(at, table.field(at), pc.add(table.column(at), self._by_ns))
        return table

    def _once(self, key: Hashable, make: Callable[[], _Made]) -> _Made:
        """The result of `make`; of tables in memory it is made once."""
        if self._wanted is None:
            return make()
        if key not in self.memo:
            self.memo[key] = make()
        value: _Made = self.memo[key]
        return value


def _with_parents(ranges: Any, keeps: NDArray[Any]) -> Any:
    """The ranges with `parent` as it is once the other rows are gone: a parent that is not kept is none."""
    import numpy as np
    import pyarrow as pa

    at = ranges.column_names.index("parent")
    column = ranges.column("parent")
    parent = column.fill_null(-1).to_numpy()
    there = (parent >= 0) & keeps[np.clip(parent, 0, max(len(keeps) - 1, 0))] if len(keeps) else np.zeros(0, bool)
    renumbered = (np.cumsum(keeps) - 1)[np.where(there, parent, 0)] if len(keeps) else parent
    return ranges.set_column(at, "parent", pa.array(renumbered, column.type, mask=~there))
