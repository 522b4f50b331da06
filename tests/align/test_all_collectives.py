from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alltrace.align import all_collectives
from alltrace.align.all_collectives import AllCollectives


def table(values, words):
    return pa.table(
        {"start": pa.array(values, pa.int64()), "evidence": pa.array(words[: len(values)], pa.string()).dictionary_encode()}
    )


rows = st.lists(st.none() | st.integers(-5, 5), max_size=4)
words = st.lists(st.sampled_from(["nvtx", "kernel", "mpi"]), min_size=4, max_size=4)


@given(st.dictionaries(st.integers(0, 50), st.builds(table, rows, words), min_size=1, max_size=9), st.integers(1, 4))
def test_each_rank_has_its_own_rows(tables, at_once):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(all_collectives, "TABLES_AT_ONCE", at_once)
        every = AllCollectives.of(tables)
    assert list(every) == sorted(tables)
    assert len(every) == len(tables)
    assert dict(every.rows) == {rank: t.num_rows for rank, t in tables.items()}
    for rank, own in tables.items():
        assert every[rank].to_pydict() == own.to_pydict()
    assert every.whole.to_pylist() == [row for rank in sorted(tables) for row in tables[rank].to_pylist()]
    assert all(column.num_chunks <= 1 for column in every.whole.columns)
    assert AllCollectives.of(every) is every


def test_a_rank_that_is_not_there():
    with pytest.raises(KeyError):
        AllCollectives.joined([(3, table([1], ["mpi"] * 4))])[2]
