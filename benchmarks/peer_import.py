"""The usual script: read tables of an export, write them to Parquet.

`python -m benchmarks.peer_import TOOL FILE OUT`
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

TABLES = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "NVTX_EVENTS",
    "GPU_METRICS",
    "OSRT_API",
    "StringIds",
)


def main() -> None:
    tool, source, output = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    output.mkdir(parents=True, exist_ok=True)
    copy = {"pandas": _with_pandas, "connectorx": _with_connectorx, "adbc": _with_adbc}[tool](source, output)
    with closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as connection:
        present = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        for table in TABLES:
            if table in present:
                copy(table, connection)


def _with_pandas(_source: str, output: Path) -> Callable[[str, sqlite3.Connection], None]:
    import pandas as pd
    import pyarrow.parquet  # noqa: F401  what to_parquet writes with

    def copy(table: str, connection: sqlite3.Connection) -> None:
        pd.read_sql(f'SELECT * FROM "{table}"', connection).to_parquet(output / f"{table}.parquet", compression="zstd")

    return copy


def _with_connectorx(source: str, output: Path) -> Callable[[str, sqlite3.Connection], None]:
    import connectorx
    import pyarrow.parquet as pq

    def copy(table: str, _connection: sqlite3.Connection) -> None:
        arrow = connectorx.read_sql(f"sqlite://{source}", f'SELECT * FROM "{table}"', return_type="arrow")
        pq.write_table(arrow, output / f"{table}.parquet", compression="zstd")

    return copy


def _with_adbc(source: str, output: Path) -> Callable[[str, sqlite3.Connection], None]:
    import pyarrow.parquet as pq
    from adbc_driver_sqlite import dbapi

    def copy(table: str, _connection: sqlite3.Connection) -> None:
        with dbapi.connect(source) as connection, connection.cursor() as cursor:
            cursor.execute(f'SELECT * FROM "{table}"')
            pq.write_table(cursor.fetch_arrow_table(), output / f"{table}.parquet", compression="zstd")

    return copy


if __name__ == "__main__":
    main()
