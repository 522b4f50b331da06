"""What a log fills in, on rows."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from alltrace.align.log_call_matching import CallMatch
from alltrace.align.log_join import (
    _doubt,
    _exchanges,
    _filled,
    _in_order,
    _marked,
    _Members,
    _Names,
    _notes,
    _put,
    _Shared,
)
from alltrace.align.schema import Group
from alltrace.run.manifest import LogMatch
from alltrace.trace.names import name_id
from alltrace.trace.schema import TABLES


def rows(**columns):
    count = len(next(iter(columns.values())))
    schema = TABLES["collectives"].arrow_schema()
    arrays = [pa.array(columns[f.name], f.type) if f.name in columns else pa.nulls(count, f.type) for f in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def test_operations_are_in_the_order_of_issue_and_one_without_a_call_follows_its_stream():
    table = rows(
        start=[100, 300, 200, None, 250, 50], api_start=[10, None, 20, 15, None, None], stream=[1, 1, 2, 1, 2, 3],
        evidence=["nvtx+kernel", "kernel", "nvtx+kernel", "nvtx", "kernel", "mpi"],
    )  # fmt: skip
    order, issued = _in_order(table)
    # the second, on stream 1, was issued after the first; the fifth after the third
    assert order.tolist() == [0, 1, 3, 2, 4]
    assert issued.tolist() == [10, 10, 15, 20, 20]
    without = rows(start=[30, 10, 20], api_start=[None] * 3, stream=[1, 1, 1], evidence=["kernel"] * 3)
    assert [c.tolist() for c in _in_order(without)] == [[1, 2, 0], [10, 20, 30]]
    alone = rows(start=[30, 10], api_start=[None, 5], stream=[1, 2], evidence=["kernel", "nvtx+kernel"])
    assert [c.tolist() for c in _in_order(alone)] == [[1, 0], [5, 30]]


def found(share=1.0, chance=0.1, timed=True, reason=None):
    return CallMatch(np.zeros(1, np.int64), np.ones(1, np.bool_), 1, share, chance, timed, reason)


def test_why_a_log_is_not_used():
    assert _doubt(found(), "rank") is None
    assert _doubt(found(reason="no call"), "process") == "no call"
    assert _doubt(found(share=0.79), "process") == "only 79 % of the operations within it have a call in it"
    assert _doubt(found(share=0.8), "process") is None
    assert _doubt(found(timed=False), "rank").startswith("it is from another process than the report")
    assert _doubt(found(timed=False), "host") is None
    assert _doubt(found(timed=False, chance=0.71), "host") == "its operations are all alike, so any log would fit"
    assert _doubt(found(timed=False, chance=0.7), "host") is None
    assert _doubt(found(timed=False, chance=0.9), "process") is None
    assert _doubt(found(chance=0.9), "host") is None


def test_kernels_of_sends_and_receives_have_one_name():
    assert _exchanges({"AllReduce": 1, "AllToAll": 2, "Recv": 3, "Send": 4}) == {"AllToAll": 2, "Recv": 2, "Send": 2}
    assert _exchanges({"AllReduce": 1}) == {}


def test_values_are_put_in_some_rows():
    table = rows(bytes=[1, None, None], evidence=["kernel"] * 3)
    put = _put(table, "bytes", np.array([7, 8, 9]), np.array([True, True, False]))
    assert put.column("bytes").to_pylist() == [7, 8, None]
    assert _put(table, "bytes", np.array([7, 8, 9]), np.zeros(3, np.bool_)) is table
    marked = _marked(rows(evidence=["kernel", "kernel+log", None, "nvtx"]), np.array([True, True, True, False]))
    assert marked.column("evidence").to_pylist() == ["kernel+log", "kernel+log", None, "nvtx"]


def test_a_call_fills_what_is_null_and_names_the_message_of_a_kernel():
    exchange, send, group, kind = (name_id(w) for w in ("SendRecv", "Send", "g", "float32"))
    table = rows(
        op=[exchange, exchange, None],
        bytes=[4, None, None],
        group_size=[None, 5, None],
        communicator=[None, 77, None],
        evidence=["kernel"] * 3,
    )
    units = SimpleNamespace(
        numbers={n: np.array([64, -1]) for n in ("bytes", "count", "root", "peer", "group_rank", "group_size")},
        communicator_id=np.array([group, 0]), datatype_id=np.array([kind, 0]), single_id=np.array([send, 0]),
        texts={"g"},
    )  # fmt: skip
    new = set()
    filled, changed = _filled(table, np.array([0, 1]), np.array([0, 0]), units, new)
    assert filled.column("bytes").to_pylist() == [4, 64, None]  # what the trace has stays
    assert filled.column("communicator").to_pylist() == [group, 77, None]
    assert filled.column("group_size").to_pylist() == [64, 5, None]
    assert filled.column("op").to_pylist() == [send, send, None]
    assert filled.column("datatype").to_pylist() == [kind, kind, None]
    assert (changed, new) == (2, {"g"})
    unknown, changed = _filled(table, np.array([0, 1]), np.array([1, -1]), units, new)
    assert changed == 0
    assert unknown.column("bytes").to_pylist() == [4, None, None]


@pytest.mark.parametrize("ranks", [(3,), (3, 4, 5)])
def test_notes_of_logs(ranks):
    good = [
        LogMatch(n, "rank" if n else "process", 9, 10, covered=8, matched=7, filled=5, disagreeing=1, from_others=2)
        for n in (0, 1)
    ]
    bad = [LogMatch(n, "none", 0, 10, reason="it has no log") for n in ranks]
    notes = _notes([*good, *bad])
    assert (
        notes[0]
        == f"NCCL's logs: 14 of 16 operations within them have their call (87.5 %) on 2 of {2 + len(ranks)} ranks; 10 "
        "were completed from it; 4 operations are outside the logs"
    )
    assert notes[1] == "the logs of ranks 1 were assigned by rank number and the times of the lines"
    assert notes[2].startswith("2 operations have another size")
    assert notes[3].startswith("4 operations without a call")
    assert notes[4] == f"NCCL's logs were not joined with {'rank 3' if len(ranks) == 1 else 'ranks 3-5'}: it has no log"
    assert _notes(bad) == notes[4:]


def members(instance, row, communicator):
    return _Members(*(np.array(v, np.int64) for v in (instance, row, communicator)))


def test_logs_name_a_communicator_if_nine_of_ten_members_agree():
    table = rows(communicator=[8] * 9 + [7] + [6, 5], group_size=[4, 2] + [3] * 8 + [9, 2])
    names = _Names()
    names.add(members([0] * 12, range(12), [0] * 10 + [1, 1]), table, {0, 1})
    groups = [
        Group(0, "inferred 0", (0, 1), 2, "structure"),
        Group(1, "inferred 1", (0, 1), 2, "structure"),
        Group(2, "c", (0,), 2),
    ]
    known = {8: "a", 7: "b", 6: "c", 5: "d"}
    first, second, third = names.over(groups, known)
    assert (first.name, first.size, first.found_by) == ("a", 4, "logs")
    assert (second.name, second.found_by) == ("inferred 1", "structure")  # its votes are even
    assert third is groups[2]
    names.add(members([0], [9], [0]), table, {0})
    assert names.over(groups, known)[0].name == "inferred 0"  # 9 of 11
    names.add(members([0], [0], [0]), table, set())
    taken = _Names()
    taken.add(members([0], [10], [0]), table, {0})
    assert taken.over(groups, known)[0].name == "inferred 0"  # another one has this name
    assert _Names().over(groups, known) == tuple(groups)


def test_operations_without_a_size_get_what_all_others_have():
    apart = name_id("Send")
    shared = _Shared(3)
    shared.add(
        0,
        members([0, 1, 2], [0, 1, 2], [0] * 3),
        rows(bytes=[64, 8, 16], count=[16, 2, None], communicator=[5, None, 5]),
    )
    shared.add(
        1,
        members([0, 1, 2], [0, 1, 2], [0] * 3),
        rows(bytes=[64, 16, None], count=[16, 4, None], communicator=[5, 5, 5]),
    )
    assert shared.lacking == {1}
    table = rows(bytes=[None, None, None, 3], count=[None, None, 7, None], op=[1, 1, 1, 1], evidence=["kernel"] * 4)
    filled, count = shared.filled(members([0, 1, 2], [0, 1, 2], [0] * 3), table)
    assert filled.column("bytes").to_pylist() == [64, None, 16, 3]  # two know another size of the second
    assert filled.column("count").to_pylist() == [16, None, 7, None]
    assert filled.column("communicator").to_pylist() == [5, None, 5, None]
    assert filled.column("evidence").to_pylist() == ["kernel+log", "kernel", "kernel+log", "kernel"]
    assert count == 2
    sends = rows(bytes=[None], op=[apart], evidence=["kernel"])
    assert shared.filled(members([0], [0], [0]), sends) == (sends, 0)
