"""Who is missing where."""

from __future__ import annotations

import json

import pytest
from tests.readers.flight_recorder.test_read import dump, entry

from alltrace.readers.flight_recorder.read import read_recording
from alltrace.recipes.logs.flight_recorder import answer


def recordings(tmp_path, ranks, members="[0, 1, 2]"):
    out = []
    for rank, entries in ranks.items():
        path = tmp_path / f"rank_{rank}"
        path.write_text(json.dumps(dump(entries, groups={"0": {"name": "0", "desc": "default_pg", "ranks": members}})))
        out.append(read_recording(str(path)))
    return out


def test_a_rank_that_never_came(tmp_path):
    on_time = [entry(1), entry(2, state="started"), entry(3, state="scheduled")]
    rows = answer(recordings(tmp_path, {0: on_time, 1: on_time, 2: [entry(1)]}), "hangs").table.to_pylist()
    assert [(r["sequence"], r["kind"], r["missing_ranks"], r["waiting_ranks"]) for r in rows] == [
        (2, "missing", [2], [0, 1])
    ]
    assert (rows[0]["completed_ranks"], rows[0]["description"]) == ([], "default_pg")
    assert rows[0]["found"] == "rank 2: last issued all_reduce, sequence 1, completed"
    assert rows[0]["frame"] == "train.py:7 step"


def test_another_operation_and_a_missing_dump(tmp_path):
    odd = [entry(1), entry(2, op="nccl:_all_gather_base", state="started")]
    rows = answer(recordings(tmp_path, {0: [entry(1), entry(2, state="started")], 1: odd}), "hangs").table.to_pylist()
    assert [(r["sequence"], r["kind"], r["missing_ranks"]) for r in rows] == [
        (2, "mismatch", [1]),
        (None, "no dump", [2]),
    ]


def test_a_collective_that_does_not_end(tmp_path):
    its = [entry(1), entry(2, state="started")]
    rows = answer(recordings(tmp_path, {0: its, 1: its, 2: its}), "hangs").table.to_pylist()
    assert [(r["sequence"], r["kind"], r["waiting_ranks"]) for r in rows] == [(2, "not completed", [0, 1, 2])]
    rows = answer(recordings(tmp_path, {0: its, 1: [entry(1), entry(2)], 2: its}), "hangs").table.to_pylist()
    assert [(r["kind"], r["waiting_ranks"], r["completed_ranks"]) for r in rows] == [("not completed", [0, 2], [1])]


def test_old_entries_that_one_rank_has_lost_are_not_missing(tmp_path):
    found = answer(recordings(tmp_path, {0: [entry(1), entry(2)], 1: [entry(2)]}, "[0, 1]"), "hangs")
    assert found.table.num_rows == 0
    assert "issued by all" in found.notes[-1]


@pytest.mark.parametrize("view", ["hangs", "entries", "times"])
def test_half_of_a_character_is_no_traceback(tmp_path, view):
    its = [entry(1, op="nccl:\ud800é", state="started", duration_ms=1.0, frames=[{"filename": "\ud800", "line": 1}])]
    rows = answer(recordings(tmp_path, {0: its}, "[0]"), view).table.to_pylist()
    assert [r["op"] for r in rows] == ["?é"]


def test_times_and_entries(tmp_path):
    its = {0: [entry(1, duration_ms=1.0), entry(2, duration_ms=3.0)], 1: [entry(1, duration_ms=8.0)]}
    rows = answer(recordings(tmp_path, its), "times").table.to_pylist()
    assert [(r["op"], r["bytes"], r["operations"], r["median_us"], r["max_us"], r["max_rank"]) for r in rows] == [
        ("all_reduce", 24, 3, 3000, 8000, 1)
    ]
    assert (rows[0]["min_us"], rows[0]["mean_us"]) == (1000, 4000)
    entries = answer(recordings(tmp_path, its), "entries").table.to_pylist()
    assert [(e["created_ns"], e["duration_us"], e["datatypes"]) for e in entries] == [
        (1_700_000_000_000_000_001, 1000.0, "Float"),
        (1_700_000_000_000_000_001, 8000.0, "Float"),
        (1_700_000_000_000_000_002, 3000.0, "Float"),
    ]
    assert [(e["sequence"], e["rank"]) for e in entries] == [(1, 0), (1, 1), (2, 0)]


def kinds(tmp_path, ranks, members="[0, 1, 2]"):
    rows = answer(recordings(tmp_path, ranks, members), "hangs").table.to_pylist()
    return [(r["kind"], r["missing_ranks"]) for r in rows], rows


WAITING = {"state": "started"}


@pytest.mark.parametrize(
    ("odd", "kind"),
    [
        ({"input_dtypes": ["BFloat16"]}, "type mismatch"),
        ({"output_dtypes": ["BFloat16"]}, "type mismatch"),
        ({"input_sizes": [[2, 4]], "output_sizes": [[2, 4]]}, "size mismatch"),
        ({"output_sizes": [[2, 4]]}, "size mismatch"),
        ({"op": "nccl:broadcast"}, "mismatch"),
    ],
)
def test_each_class_of_mismatch_is_named(tmp_path, odd, kind):
    usual = [entry(1), entry(2, **WAITING)]
    found, rows = kinds(tmp_path, {0: usual, 1: [entry(1), entry(2, **WAITING, **odd)], 2: usual})
    assert found == [(kind, [1])]
    assert rows[0]["found"].startswith("rank 1: ")


def test_sizes_that_differ_where_they_may_and_the_root_of_a_broadcast_are_no_mismatch(tmp_path):
    found, _ = kinds(
        tmp_path,
        {r: [entry(1, op="nccl:all_to_all", input_sizes=[[r + 1]]), entry(2, op="nccl:broadcast", **root)]
         for r, root in enumerate(({}, {"input_sizes": []}, {"input_sizes": []}))},
    )  # fmt: skip
    assert found == []


@pytest.mark.parametrize(("elements", "found"), [(6, []), (5, [("size mismatch", [0, 1, 2])])])
def test_an_output_must_have_room_for_the_inputs_of_all_ranks(tmp_path, elements, found):
    gathered = entry(1, op="nccl:_all_gather_base", input_sizes=[[2]], output_sizes=[[elements]])
    assert kinds(tmp_path, {rank: [gathered] for rank in range(3)})[0] == found


def message(number, op, state="completed", **more):
    return entry(0, op=f"nccl:{op}", state=state, is_p2p=True, p2p_seq_id=number, record_id=number, **more)


def test_messages_without_their_other_end(tmp_path):
    one = [message(0, "send 0->1"), message(1, "send 0->1", **WAITING)]
    found, rows = kinds(tmp_path, {0: one, 1: [message(0, "recv 1<-0")]}, "[0, 1]")
    assert found == [("unmatched send", [1])]
    assert (rows[0]["sequence"], rows[0]["waiting_ranks"]) == (1, [0])
    found, _ = kinds(
        tmp_path,
        {0: [message(0, "send 0->1")], 1: [message(0, "recv 1<-0"), message(1, "recv 1<-0", **WAITING)]},
        "[0, 1]",
    )
    assert found == [("unmatched receive", [0])]
    found, _ = kinds(
        tmp_path, {0: [message(0, "send 0->1")], 1: [message(0, "recv 1<-0", output_sizes=[[9]])]}, "[0, 1]"
    )
    assert found == [("size mismatch", [1])]
    late = [message(7, "send 0->1"), message(8, "send 0->1", **WAITING)]  # what was before is lost
    found, _ = kinds(tmp_path, {0: late, 1: [message(9, "recv 1<-0", **WAITING)]}, "[0, 1]")
    assert found == []


def test_what_a_damaged_dump_lost_is_not_missing(tmp_path):
    """Rank 1's dump ends after its first operation; rank 2 is the one that never issued the third."""
    ranks = {
        r: [entry(n, state="completed" if n < 3 else "scheduled") for n in range(1, 3 if r == 2 else 4)]
        for r in range(3)
    }
    _, rows = kinds(tmp_path, ranks, "[0, 1, 2]")
    assert [(r["kind"], r["missing_ranks"], r["waiting_ranks"]) for r in rows] == [("missing", [2], [0, 1])]
    path = tmp_path / "rank_1"
    path.write_bytes(path.read_bytes()[: len(path.read_bytes()) // 2])
    read = read_recording(str(path))
    assert 0 < len(read.entries) < 3
    recordings = [read_recording(str(tmp_path / f"rank_{r}")) for r in range(3)]
    its = answer(recordings, "hangs")
    assert [(r["kind"], r["missing_ranks"], r["waiting_ranks"]) for r in its.table.to_pylist()] == [
        ("missing", [2], [0])
    ]
    assert any("ends early" in note for note in its.notes)


@pytest.mark.parametrize("cut", [0, 1])
def test_messages_that_a_damaged_dump_may_have_lost_have_their_other_end(tmp_path, cut):
    sends = [message(0, "send 0->1"), message(1, "send 0->1", **WAITING)]
    receives = [message(0, "recv 1<-0"), message(1, "recv 1<-0", **WAITING)]
    kinds(tmp_path, {0: sends, 1: receives}, "[0, 1]")
    path = tmp_path / f"rank_{cut}"
    data = path.read_bytes()
    path.write_bytes(data[: data.rindex(b"record_id")])
    recordings = [read_recording(str(tmp_path / f"rank_{r}")) for r in range(2)]
    assert [len(r.entries) for r in recordings] == ([1, 2] if cut == 0 else [2, 1])
    assert answer(recordings, "hangs").table.num_rows == 0
