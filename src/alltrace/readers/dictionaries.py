"""The dictionaries of a report as tables, for readers that gather them row by row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from alltrace.trace.names import name_id
from alltrace.trace.schema import TABLES


class NameIds(dict[int, str]):
    """The texts of a report by the ids that rows have in their place."""

    def add(self, text: str) -> int:
        """The id of a text."""
        key = name_id(text)
        self[key] = text
        return key


def dictionary_tables(rows: Mapping[str, list[dict[str, Any]]], names: Mapping[int, str]) -> dict[str, pa.Table]:
    """Tables of `rows` by name, columns without a value null, and of `names`; see `ReportReader.dictionaries`."""
    tables = {name: pa.Table.from_pylist(own, schema=TABLES[name].arrow_schema()) for name, own in rows.items()}
    columns = [pa.array(names.keys(), pa.int64()), pa.array(names.values(), pa.string())]
    return {**tables, "names": pa.Table.from_arrays(columns, schema=TABLES["names"].arrow_schema())}
