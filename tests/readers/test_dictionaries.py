from __future__ import annotations

from alltrace.readers.spool import NameIds, dictionary_tables
from alltrace.trace.names import name_id
from alltrace.trace.schema import TABLES


def test_names_have_their_ids_and_columns_without_a_value_are_null():
    names = NameIds()
    assert [names.add(text) for text in ("gemm", "copy", "gemm")] == [name_id("gemm"), name_id("copy"), name_id("gemm")]
    tables = dictionary_tables({"processes": [{"process": 0, "pid": 7}, {"process": 1}]}, names)
    assert list(tables) == ["processes", "names"]
    assert all(table.schema == TABLES[name].arrow_schema() for name, table in tables.items())
    assert tables["names"].to_pylist() == [{"id": name_id(t), "value": t} for t in ("gemm", "copy")]
    assert [(row["process"], row["pid"], row["name"]) for row in tables["processes"].to_pylist()] == [
        (0, 7, None),
        (1, None, None),
    ]
