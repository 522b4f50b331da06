import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from alltrace.trace.names import intern, name_id

texts = st.lists(st.one_of(st.none(), st.text(max_size=8)), max_size=30)


def test_ids_are_the_same_everywhere():
    """They are in files, so they may never change."""
    assert name_id("") == -5426141060434712860
    assert name_id("ncclDevKernel_AllReduce") == 7052920740106722900
    assert -(1 << 63) <= name_id("x") < 1 << 63


@given(texts)
def test_interned_texts_come_back(values):
    for array in (
        pa.array(values, pa.string()),
        pa.chunked_array([values[:3], values[3:]], pa.string()),
        pa.array(values, pa.string()).dictionary_encode(),
    ):
        ids, names = intern(array)
        known = dict(zip(names.column("id").to_pylist(), names.column("value").to_pylist(), strict=True))
        assert [None if i is None else known[i] for i in ids.to_pylist()] == values
        assert sorted(known.values()) == sorted({v for v in values if v is not None})
        assert ids.to_pylist() == [None if v is None else name_id(v) for v in values]


def test_nothing_to_intern():
    ids, names = intern(pa.chunked_array([], pa.string()))
    assert (len(ids), names.num_rows) == (0, 0)
