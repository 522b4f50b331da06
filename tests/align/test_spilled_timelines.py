"""Times and kinds in files against those in memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from alltrace.align.coarse_clocks import pair_keys
from alltrace.align.spilled_operations import SpilledOperations
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.align.collectives import WORDS, table_of

from alltrace.trace.names import name_id

COMMUNICATORS = ("a", "b")

ROW = st.fixed_dictionaries(
    {
        "start": st.integers(0, 10**9),
        "length": st.integers(1, 10**6),
        "stream": st.integers(7, 8),
        "communicator": st.sampled_from([*COMMUNICATORS, None]),
        "op": st.sampled_from(["AllReduce", "Broadcast", "Send", "Recv", "SendRecv"]),
        "bytes": st.sampled_from([1024, 4096, None]),
        "datatype": st.sampled_from(["bfloat16", None]),
        "peer": st.sampled_from([0, 1, None]),
        "group_rank": st.sampled_from([0, 1, None]),
        "group_size": st.sampled_from([2, 4, None]),
        "sequence": st.sampled_from([0, 5, None]),
        "evidence": st.sampled_from(["trace", "nvtx+kernel"]),
    }
)


def texts(ids):
    known = {name_id(w): w for w in (*WORDS, *COMMUNICATORS)}
    return pa.array([known.get(i) for i in ids.to_pylist()], pa.string())


def table(rows):
    columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else {}) if name != "length"}
    return table_of(**columns, end=[r["start"] + r["length"] for r in rows]) if rows else table_of(start=[])


def both(folder, tables, most=10**6):
    """The timelines in files and in memory, and the operations in files."""
    spilled = SpilledOperations(folder / "operations", len(tables), most)
    for rank, its in tables.items():
        spilled.add(rank, its)
    return spilled.timelines(texts), HeldTimelines(flatten(tables, texts, {})), spilled


def facts(timelines, rank):
    """What is known of the operations of a rank, as sorted rows; communicators as texts."""
    kinds, its = timelines.kinds, timelines.of(rank)
    assert (np.diff(its.end) >= 0).all()
    assert (kinds.rank[its.kind] == rank).all()
    names = [kinds.names[c] if c >= 0 else None for c in kinds.communicator[its.kind].tolist()]
    columns = ("synchronising", "exchanging", "paired", "size", "stream", "peer", "group_rank", "group_size")
    rows = zip(
        its.end.tolist(), its.start.tolist(), its.sequence.tolist(), names,
        *(getattr(kinds, name)[its.kind].tolist() for name in columns), strict=True,
    )  # fmt: skip
    return sorted(rows, key=repr)


def partition(timelines, values):
    """Which operations have equal values of their kinds, each by its rank and times."""
    groups = {}
    for rank in timelines.extents:
        its = timelines.of(rank)
        for start, end, value in zip(its.start.tolist(), its.end.tolist(), values[its.kind].tolist(), strict=True):
            groups.setdefault(value, []).append((rank, start, end))
    return sorted(sorted(g) for g in groups.values())


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(st.integers(0, 5), st.lists(ROW, max_size=25), min_size=1, max_size=3))
def test_times_and_kinds_are_those_of_the_operations(tmp_path_factory, rows):
    tables = {rank: table(its) for rank, its in sorted(rows.items())}
    found, expected, _ = both(tmp_path_factory.mktemp("timelines"), tables)
    if found is None:
        assert not expected.extents
        return
    assert found.extents == dict(expected.extents)
    for rank in expected.extents:
        assert facts(found, rank) == facts(expected, rank)
    for of in (lambda kinds: kinds.token, pair_keys):
        assert partition(found, of(found.kinds)) == partition(expected, of(expected.kinds))
    for kind, many in enumerate(found.counts.tolist()):
        assert many == (found.of(int(found.kinds.rank[kind])).kind == kind).sum()
    assert (np.diff(found.kinds.rank) >= 0).all()


@settings(deadline=None, max_examples=30)
@given(st.lists(ROW, min_size=4, max_size=30), st.randoms())
def test_inferred_communicators_are_those_of_the_operations(tmp_path_factory, rows, random):
    tables = {0: table(rows), 3: table(rows[::2])}
    found, expected, _ = both(tmp_path_factory.mktemp("timelines"), tables)
    if found is None:
        return
    labels = {r: np.array([random.randrange(-1, 2) for _ in expected.of(r).end], np.int64) for r in expected.extents}
    for _ in range(2):  # the second time over what the first has left
        one, other = found.named(labels.__getitem__, 2), expected.named(labels.__getitem__, 2)
        for rank in expected.extents:
            its, own = one.of(rank), labels[rank]
            assert its.end.tolist() == found.of(rank).end.tolist()
            names = np.array([*one.kinds.names, None], object)[one.kinds.communicator[its.kind]]
            before = np.array([*found.kinds.names, None], object)[found.kinds.communicator[found.of(rank).kind]]
            assert names.tolist() == np.where(own >= 0, [f"inferred {n}" for n in own], before).tolist()
        assert one.counts.sum() == len(other.counts)


def test_the_files_are_removed(tmp_path):
    rows = [
        {"start": 10 * i, "length": 5, "communicator": None, "op": "AllReduce", "stream": 7, "evidence": "trace"} for i in range(9)
    ]
    found, _, spilled = both(tmp_path, {0: table(rows), 1: table(rows)})
    labels = {rank: np.zeros(9, np.int64) for rank in (0, 1)}
    found.named(labels.__getitem__, 1).named(labels.__getitem__, 1)
    spilled.add_inferred(found, labels.__getitem__)
    assert spilled.read([0]).column("inferred").to_pylist() == [0] * 9
    spilled.remove()
    assert list(tmp_path.iterdir()) == []


def test_operations_of_many_sizes_have_few_kinds(tmp_path):
    sizes = np.arange(1, 2_001) * 1_000
    tables = {
        rank: table_of(
            start=np.arange(2_000) * 10, end=np.arange(2_000) * 10 + 5, op=["AllReduce"] * 2_000, bytes=np.roll(sizes, rank)
        )
        for rank in (0, 1)
    }
    found, _, _ = both(tmp_path, tables)
    for rank in (0, 1):
        its = found.of(rank)
        assert len(np.unique(its.kind)) == 128 + 17
        size = found.kinds.size[its.kind]
        exact = np.roll(sizes, rank) <= 128_000
        assert size[exact].tolist() == np.roll(sizes, rank)[exact].tolist()
    tokens = [found.kinds.token[found.of(rank).kind] for rank in (0, 1)]
    assert np.roll(tokens[0], 1).tolist() == tokens[1].tolist()


@pytest.mark.parametrize(("most", "expected"), [(10, 64), (100_000, 1_000)])
def test_as_many_ranks_are_read_at_once_as_fit(tmp_path, most, expected):
    rows = [{"start": 10 * i, "length": 5, "op": "AllReduce"} for i in range(100)]
    found, held, _ = both(tmp_path, {rank: table(rows) for rank in range(4)}, most)
    assert found.ranks_at_once == expected
    assert held.ranks_at_once is None


def test_inferred_numbers_stay_with_their_operations():
    """Some end in another order than they start."""
    its = table_of(start=[0, 10, 20, 30], end=[100, 50, 90, 40], op=["AllReduce"] * 4).append_column(
        "inferred", pa.array([7, 5, 6, 4])
    )
    found = flatten({0: its, 1: its.slice(1)}, texts, {})
    assert found.end.tolist() == [40, 50, 90, 100, 40, 50, 90]
    assert found.inferred.tolist() == [4, 5, 6, 7, 4, 5, 6]
