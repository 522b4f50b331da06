"""The interned strings of a run."""

from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.trace.arrays import Int64
from alltrace.trace.errors import InputError
from alltrace.trace.schema import TABLES

_FEW_TEXTS = 1_000
_MANY_ROWS = 1 << 13


class Names:
    """The interned strings of a run, by id; `paths` gives their files once a text is needed, `read` columns of one."""

    def __init__(
        self, paths: Callable[[], Iterable[Path]], read: Callable[[Path, list[str]], pa.Table] | None = None
    ) -> None:
        self._paths = paths
        self._read = read

    @cached_property
    def _sorted(self) -> tuple[Int64, pa.Array]:
        from alltrace.run.parquet import read_parquet

        table, tables, rows = TABLES["names"].arrow_schema().empty_table(), [], 0
        for path in self._paths():
            tables.append((self._read or read_parquet)(path, ["id", "value"]))
            rows += tables[-1].num_rows
            if rows > max(_MANY_ROWS, table.num_rows):  # ranks mostly have the names of the others
                table, tables, rows = _distinct([table, *tables], path), [], 0
        table = _distinct([table, *tables], path) if tables else table
        return table.column("id").to_numpy(), table.column("value").combine_chunks()

    def table(self) -> pa.Table:
        """All strings, as a `pyarrow.Table` (`id`, `value`) sorted by id."""
        ids, values = self._sorted
        return pa.table({"id": pa.array(ids), "value": values})

    def texts(self, ids: pa.Array) -> pa.Array:
        """The strings of an Arrow array of ids, as a string array; null if the id is null or unknown."""
        known, values = self._sorted
        if isinstance(ids, pa.ChunkedArray):
            ids = ids.combine_chunks()
        if len(known) == 0:
            return pa.nulls(len(ids), pa.string())
        if len(ids) <= _FEW_TEXTS:  # what takes many, loads for longer than these take
            few = ids.to_pylist()
            at = np.minimum(np.searchsorted(known, np.array([n or 0 for n in few], np.int64)), len(known) - 1)
            pairs = zip(few, at.tolist(), known[at].tolist(), strict=True)
            return pa.array([values[n].as_py() if wanted == id_ else None for wanted, n, id_ in pairs], values.type)
        wanted = ids if ids.type == pa.int64() else pc.cast(ids, pa.int64())
        wanted = (pc.fill_null(wanted, 0) if ids.null_count else wanted).to_numpy(zero_copy_only=False)
        at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        is_known = known[at] == wanted
        if ids.null_count:
            is_known &= pc.is_valid(ids).to_numpy(zero_copy_only=False)
        return pc.take(values, pa.array(at, mask=~is_known))


def _distinct(tables: list[pa.Table], path: Path) -> pa.Table:
    """The names of all tables by id, each once; `path` is of one of them."""
    table = pa.concat_tables(tables)
    ids = table.column("id").to_numpy()
    if np.any(ids[1:] < ids[:-1]):
        table = pc.take(table, pa.array(np.argsort(ids, kind="stable")))
    table = table.combine_chunks()
    ids = table.column("id").to_numpy()
    if not (again := ids[1:] == ids[:-1]).any():
        return table
    values = table.column("value").combine_chunks()
    if pc.any(pc.filter(pc.not_equal(values[1:], values[:-1]), pa.array(again))).as_py():
        raise InputError(path, found="two different names share an id", advice="report this as a bug")
    return pc.filter(table, pa.array(np.concatenate(([True], ~again))))
