from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.align.collectives import table_of

from alltrace.align.coarse_clocks import RankClock
from alltrace.align.spilled_batches import SpilledBatches
from alltrace.align.spilled_operations import SpilledOperations
from alltrace.trace.names import name_id

ROW = st.tuples(
    st.integers(0, 10**9), st.integers(1, 10**6), st.sampled_from(["a", "b", None]), st.booleans(), st.sampled_from([1, 4, None])
)


def texts(ids):
    known = {name_id(w): w for w in ("a", "b", "AllReduce")}
    return pa.array([known[i] for i in ids.to_pylist()], pa.string())


def table(rows):
    starts, lengths, communicators, timed, sizes = zip(*rows, strict=True) if rows else [()] * 5
    return table_of(
        start=[s if t else None for s, t in zip(starts, timed, strict=True)],
        end=[s + n if t else None for s, n, t in zip(starts, lengths, timed, strict=True)],
        api_start=starts,
        api_end=starts,
        communicator=communicators,
        op=["AllReduce"] * len(rows),
        group_size=sizes,
    )


@given(st.dictionaries(st.integers(0, 9), st.lists(ROW, max_size=80), min_size=1, max_size=4), st.integers(1, 2000))
def test_all_that_can_be_matched_comes_back_in_the_order_of_time(tmp_path_factory, ranks, most):
    spilled = SpilledOperations(tmp_path_factory.mktemp("spilled") / "file", len(ranks), most)
    for rank, rows in sorted(ranks.items()):
        spilled.add(rank, table(rows))
    expected = {(rank, place): row for rank, rows in ranks.items() for place, row in enumerate(rows) if row[3] and row[4] != 1}
    assert spilled.rows == {rank: len(rows) for rank, rows in ranks.items()}
    assert spilled.calls_only == sum(not row[3] and row[4] != 1 for rows in ranks.values() for row in rows)
    for rank in ranks:
        own = [row for (r, _), row in expected.items() if r == rank]
        assert (rank in spilled.extents) == bool(own)
        if own:
            assert spilled.extents[rank] == (min(s + n for s, n, *_ in own), max(s + n for s, n, *_ in own))
    if not expected:
        return
    clocks = {rank: RankClock(1000.0 * rank, 1e-5, 0.0, 1.0, 0) for rank in ranks}
    numbers, starts, rows = spilled.in_order(clocks)
    assert (np.diff(starts) >= 0).all()
    found = spilled.read(numbers.tolist())
    assert rows.sum() == found.num_rows
    pairs = list(zip(found.column("rank").to_pylist(), found.column("row").to_pylist(), strict=True))
    assert sorted(pairs) == sorted(expected)
    assert found.column("start").to_pylist() == [expected[p][0] for p in pairs]
    for rank in ranks:
        own = [expected[p][0] for p in pairs if p[0] == rank]
        assert own == sorted(own)
    timelines = spilled.timelines(texts)
    spilled.add_inferred(timelines, lambda rank: timelines.of(rank).end + rank)
    again = spilled.read(numbers.tolist())
    assert again.drop_columns("inferred").equals(found)
    assert (again.column("inferred").to_numpy() == again.column("end").to_numpy() + again.column("rank").to_numpy()).all()
    folder = spilled._file.parent
    spilled.remove()
    assert list(folder.iterdir()) == []


def test_batches_come_back_as_they_were_written(tmp_path):
    schema = pa.schema([("n", pa.int64())])
    batches = SpilledBatches(tmp_path / "file", schema)
    parts = [pa.table({"n": pa.array(range(k), pa.int64())}) for k in (1, 5, 3)]
    assert [batches.add(part) for part in parts] == [0, 1, 2]
    assert batches.read([2, 0]).column("n").to_pylist() == [0, 1, 2, 0]
    assert batches.read([1]).equals(parts[1])
    with pytest.raises(ValueError, match="none can be written"):
        batches.add(parts[0])
    batches.remove()
    assert list(tmp_path.iterdir()) == []
