import pyarrow as pa
import pytest
from tests.together import together

from alltrace.trace.schema import DICTIONARIES, EVENT_TABLES, TABLES

UNITS = {None, "ns", "bytes", "bytes/s", "Hz"}


@together("name", TABLES)
def test_every_table_is_declared_whole(name):
    table = TABLES[name]
    assert table.name == name
    assert table.doc.endswith(".")
    assert len(set(table.column_names)) == len(table.columns)
    assert set(table.sort_keys) <= set(table.column_names)
    assert {c.unit for c in table.columns} <= UNITS
    assert all(c.unit == "ns" for c in table.columns if c.type == "time")
    assert all(c.doc for c in table.columns)
    assert table.arrow_schema().names == list(table.column_names)


def test_tables_are_events_or_dictionaries_with_types_in_memory():
    assert set(EVENT_TABLES).isdisjoint(DICTIONARIES)
    assert {*EVENT_TABLES, *DICTIONARIES} == set(TABLES)
    assert all(TABLES[t].time_columns() for t in EVENT_TABLES)
    assert not any(TABLES[t].time_columns() for t in DICTIONARIES)
    # SQL gives every view these two before its own columns
    assert all({"rank", "host"}.isdisjoint(t.column_names) for t in TABLES.values())
    schema = TABLES["kernels"].arrow_schema(["start", "name", "kind", "grid_x"])
    assert schema.types == [pa.int64(), pa.int64(), pa.dictionary(pa.int32(), pa.string()), pa.int32()]
    assert TABLES["kernels"].name_columns() == ("name", "short_name", "mangled_name")
    with pytest.raises(KeyError, match=r"kernels\.nothing"):
        TABLES["kernels"].column("nothing")
