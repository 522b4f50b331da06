import numpy as np
import pyarrow as pa
import pytest
from tests.making import kernel, make_run

from alltrace.export.columns import numbers
from alltrace.export.selection import select
from alltrace.trace.errors import UsageError
from alltrace.trace.spans import Span

STEP = 1_000_000
RANKS = {
    rank: {
        "kernels": [kernel(50 + rank + s * STEP, 90 + rank + s * STEP, correlation=s + 1) for s in range(4)],
        "api": [
            {
                "start": 10 + s * STEP,
                "end": 20 + s * STEP,
                "name": "cudaLaunchKernel",
                "correlation": s + 1,
                "kind": "runtime",
            }
            for s in range(4)
        ],
        "ranges": [
            {"start": s * STEP, "end": s * STEP + STEP // 2, "name": f"step {s}", "kind": "pushpop"} for s in range(4)
        ],
    }
    for rank in range(2)
}


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "run", RANKS)


def starts(selection, rank, table="kernels"):
    return [
        t for b in selection.batches(selection.ranks[rank], table, ["start"]) for t in b.column("start").to_pylist()
    ]


def test_windows_by_steps_and_what_is_not_wanted_or_there(run):
    chosen = select(run, steps=Span(1, 3), aligned=run.aligned())
    assert chosen.window_ns == (STEP, 2 * STEP + STEP // 2)
    assert chosen.zero_ns == STEP
    assert starts(chosen, 1) == [51 + STEP, 51 + 2 * STEP]
    whole = starts(select(run), 1)
    assert starts(select(run, window_ns=Span(STEP + 51, None)), 1) == [t for t in whole if t >= STEP + 51]
    assert starts(select(run, window_ns=Span(None, STEP + 51)), 1) == [t for t in whole if t < STEP + 51]
    chosen = select(run, only=["api"])
    assert starts(chosen, 0) == []
    assert len(starts(chosen, 0, "api")) == 4
    with pytest.raises(UsageError, match="rank 7 is not in the run"):
        select(run, ranks=[7])
    with pytest.raises(UsageError, match="kernels"):
        select(run, only=["kernel"])
    with pytest.raises(UsageError, match="--steps is 8:10; there are 0 to 3"):
        select(run, steps=Span(8, 10), aligned=run.aligned())
    with pytest.raises(UsageError, match="before or at its start"):
        select(run, window_ns=(5, 5))


@pytest.mark.parametrize("window_ns", [None, (0, STEP)])
def test_distinct_values_are_those_of_all_wanted_rows(run, window_ns):
    selection = select(run, window_ns=window_ns)
    for record in run.ranks:
        for table, columns in (("api", ["thread"]), ("kernels", ["device", "stream"]), ("kernels", ["short_name"])):
            found, expected = (
                {tuple(row.values()) for batch in batches for row in batch.select(columns).to_pylist()}
                for batches in (selection.distinct(record, table, columns), selection.batches(record, table, columns))
            )
            assert found == expected
            assert found
    assert list(select(run, only=["api"]).distinct(run.ranks[0], "kernels", ["device"])) == []


def test_numbers_with_and_without_nulls():
    values = [3, None, -(2**62), None, 7, 8, None, 1, 2, None, 5]
    for kind, given in ((pa.int64(), values), (pa.int32(), [v if v is None else v % 100 for v in values])):
        array = pa.array(given, kind)
        chunks = pa.chunked_array([array[2:9], array[9:], array[3:4], array[4:6]])
        table = pa.table({"a": chunks, "b": pa.nulls(len(chunks), kind), "c": pa.array(range(len(chunks)), kind)})
        assert numbers(table, "a", -5).tolist() == [-5 if v is None else v for v in chunks.to_pylist()]
        assert numbers(table, "b").tolist() == [-1] * len(chunks)
        assert numbers(table, "c").tolist() == list(range(len(chunks)))
        assert {numbers(table, c).dtype for c in "abc"} == {np.dtype(np.int64)}
