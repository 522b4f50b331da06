"""One rank's tables, as everything above the store sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from alltrace.trace.intervals import Merged


class RankTables(Protocol):
    """One rank's tables, as `map` sees them; times are on the run's aligned clock, in ns."""

    rank: int
    host: str

    def has(self, table: str) -> bool:
        """Whether the rank has rows of the canonical `table`."""
        ...

    def table(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """The canonical `table` as a `pyarrow.Table` sorted by its `sort_keys`, empty if the rank has none.

        Args:
            table: A key of `alltrace.trace.schema.TABLES`.
            columns: The columns wanted, in order; None for all.
        """
        ...

    def gpu_samples(self, columns: Sequence[str]) -> pa.Table:
        """The samples of GPU metrics of the rank's GPUs, also where another report of its host has them.

        Args:
            columns: The columns of `gpu_metrics` wanted, in order.

        Returns:
            A `pyarrow.Table` in no order; `device` is the row in the rank's own `devices`.
        """
        ...

    def shared(self, table: str) -> pa.Table | None:
        """The rank's rows of `gpu_log`, `inspector`, `members` or `steps`, as a `pyarrow.Table`; None if there are none."""
        ...

    def unrecorded(self) -> Merged:
        """When work of which the reports lost the records may have run, ns on the run's aligned clock.

        A device without a record then may have been busy: who judges idle time leaves these times out.
        """
        ...

    def texts(self, ids: pa.Array) -> pa.Array:
        """The strings of an Arrow array of name ids, as a string array; null if the id is."""
        ...

    def name_table(self) -> pa.Table:
        """All interned strings of the run, as a `pyarrow.Table` (`id`, `value`) sorted by id."""
        ...
