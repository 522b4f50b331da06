"""What a reader makes of a report."""

from __future__ import annotations

from alltrace.readers.registry import open_report
from alltrace.trace.schema import TABLES


def rows_of(path, table):
    """The rows of a table, names as text."""
    reader = open_report(path)
    try:
        rows = [r for name, b in reader.stream((table,)) for r in b.to_pylist() if name == table]
        names = reader.dictionaries()["names"]
    finally:
        reader.close()
    texts = dict(zip(names.column("id").to_pylist(), names.column("value").to_pylist(), strict=True))
    columns = TABLES[table].name_columns()
    return [{k: texts[v] if k in columns and v is not None else v for k, v in r.items()} for r in rows]
