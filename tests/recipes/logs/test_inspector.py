"""What NCCL Inspector's records of all ranks say: shuffled, with drops, of two jobs, cut."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from tests.inspector_writing import collective, message, record, stats, write

from alltrace.readers.nccl_inspector.records import read_inspector
from alltrace.recipes.logs.inspector import VIEWS, answer, ranges_text


def asked(tmp_path, ranks, view, tests=None):
    return answer([read_inspector(p) for p in write(tmp_path, ranks)], view, tests)


def rows(tmp_path, ranks, view="missing", tests=None):
    return asked(tmp_path, ranks, view, tests).table.to_pylist()


def lines(rank, numbers, op="AllReduce", us=10, **others):
    return [record(rank, collective(op, n, us), **others) for n in numbers]


def test_numbers_count_per_function_so_that_another_order_is_no_mismatch(tmp_path):
    reduced, gathered = lines(0, range(5)), lines(0, range(5), "AllGather")
    other = lines(1, range(5), "AllGather") + lines(1, range(5))
    answered = asked(tmp_path, {0: [*reduced, *gathered], 1: other}, "missing")
    assert answered.table.num_rows == 0
    assert any("has one of all ranks of its communicator" in n for n in answered.notes)
    assert any("not ended are in no file" in n for n in answered.notes)


def test_a_function_that_a_rank_lacks_is_not_hidden_by_another_of_the_same_number(tmp_path):
    found = rows(
        tmp_path,
        {
            0: lines(0, range(3)) + lines(0, range(3), "AllGather"),
            1: lines(1, range(3)) + lines(1, (0, 2), "AllGather"),
        },
    )
    assert [(r["op"], r["kind"], r["sequences"], r["ranks"], r["operations"]) for r in found] == [
        ("AllGather", "missing", "1", [1], 1)
    ]


def test_last_records_that_were_not_written_are_told_apart(tmp_path):
    found = rows(tmp_path, {0: lines(0, range(10)), 1: lines(1, range(7))})
    assert [(r["kind"], r["sequences"], r["ranks"], r["dropped"]) for r in found] == [("behind", "7-9", [1], None)]


def test_numbers_without_any_record_and_ranks_without_a_file(tmp_path):
    found = rows(tmp_path, {0: lines(0, (0, 1, 5), size=3), 1: lines(1, (0, 1, 5), size=3)})
    assert [(r["kind"], r["sequences"], r["ranks"]) for r in found] == [
        ("unrecorded", "2-4", [0, 1]),
        ("no file", None, [2]),
    ]
    assert "MIN_SIZE_BYTES" in found[0]["why"]


def test_dropped_records_are_read_and_said(tmp_path):
    marked = [record(1, stats(4, 2), key="dump_stats", version="v4.1"), *lines(1, (0, 4), version="v4.1")]
    answered = asked(tmp_path, {0: lines(0, range(5), version="v4.1"), 1: marked}, "missing")
    (row,) = answered.table.to_pylist()
    assert (row["kind"], row["sequences"], row["dropped"]) == ("missing", "1-3", 4)
    assert "their buffers lost 4" in row["why"]
    assert any("lost 6 records" in n and "RING_SIZE" in n for n in answered.notes)
    assert not any("does not say what buffers lost" in n for n in answered.notes)


def test_messages_are_numbered_on_each_rank(tmp_path):
    mine = [record(0, message("Send", n, 1), key="p2p_perf") for n in (1, 2, 4)]
    other = [record(1, message("Recv", n, 0), key="p2p_perf") for n in (1, 2, 3)]
    assert [(r["op"], r["sequences"], r["ranks"]) for r in rows(tmp_path, {0: mine, 1: other})] == [
        ("messages", "3", [0])
    ]


def test_other_sizes_are_a_mismatch(tmp_path):
    odd = [record(2, collective("AllReduce", n, 10, size=4 if n else 1 << 20), size=3) for n in range(2)]
    found = rows(tmp_path, {0: lines(0, range(2), size=3), 1: lines(1, range(2), size=3), 2: odd})
    assert [(r["kind"], r["sequences"], r["ranks"]) for r in found] == [("mismatch", "1", [2])]


@pytest.mark.parametrize("seed", range(4))
def test_every_missing_operation_is_named_whatever_the_order_and_none_else(tmp_path, seed):
    draw = random.Random(seed)
    truth: dict[tuple[str, str], dict[int, set[int]]] = {}
    files: dict[int, list[str]] = {r: [] for r in range(4)}
    for ident, members in (("0xa", range(4)), ("0xb", (0, 1)), ("0xc", (2, 3))):
        for op in ("AllReduce", "AllGather", "Broadcast"):
            gone = {r: set(draw.sample(range(30), draw.randrange(6))) for r in members}
            truth[ident, op] = gone
            for place, rank in enumerate(members):
                kept = [n for n in range(30) if n not in gone[rank]]
                of = {"communicator": ident, "size": len(members), "pid": 100 + rank}
                files[rank] += [record(place, collective(op, n, 10), **of) for n in kept]
    for its in files.values():
        draw.shuffle(its)
    found = rows(tmp_path, files)
    named: dict[tuple[str, str], dict[int, set[int]]] = {}
    for row in found:
        numbers = {
            n
            for part in row["sequences"].split(",")
            for n in range(int(part.split("-")[0]), int(part.split("-")[-1]) + 1)
        }
        for rank in row["ranks"]:
            named.setdefault((row["communicator"], row["op"]), {}).setdefault(rank, set()).update(numbers)
    members_of = {"0xa": range(4), "0xb": (0, 1), "0xc": (2, 3)}
    for (ident, op), gone in truth.items():
        kept = [n for n in range(30) if any(n not in gone[r] for r in gone)]
        for place, rank in enumerate(members_of[ident]):
            # numbers behind the last of all ranks are in no file
            expected = {n for n in gone[rank] if min(kept) <= n <= max(kept)}
            assert named.get((ident, op), {}).get(place, set()) == expected
    assert not [r for r in found if r["kind"] == "mismatch"]


def test_the_shortest_came_last_and_the_others_waited(tmp_path):
    times = {0: 300, 1: 100, 2: 250}
    ranks = {
        r: lines(r, range(4), us=us, size=3) + lines(r, range(4), "Broadcast", us=5, size=3) for r, us in times.items()
    }
    found = {r["rank"]: r for r in rows(tmp_path, ranks, "stragglers")}
    assert [
        (found[r]["last"], found[r]["last_percent"], found[r]["caused_wait_us"], found[r]["waited_us"])
        for r in range(3)
    ] == [(0, 0.0, 0.0, 800.0), (4, 100.0, 1400.0, 0.0), (0, 0.0, 0.0, 600.0)]
    reduced = next(r for r in rows(tmp_path / "b", ranks, "collectives") if r["op"] == "AllReduce")
    assert (reduced["instances"], reduced["complete"], reduced["skew_median_us"], reduced["skew_max_us"]) == (
        4,
        4,
        200.0,
        200.0,
    )
    assert (reduced["transfer_median_us"], reduced["zero_skew_percent"], reduced["wait_us"]) == (100.0, 0.0, 1400.0)
    assert reduced["busbw_gb_per_s"] == pytest.approx((1 << 20) * 2 * 2 / 3 / 100e-6 / 1e9)
    assert reduced["stated_busbw_gb_per_s"] == 1.5


def test_bandwidth_is_held_against_nccl_tests(tmp_path):
    tests = pa.table(
        {"op": ["AllReduce"] * 2, "ranks": [2, 4], "size_bytes": [1 << 20] * 2, "time_ns": [(1 << 20) / 20, 1e6]}
    )
    (row,) = rows(tmp_path, {r: lines(r, range(3), us=100) for r in range(2)}, "collectives", tests)
    assert row["expected_busbw_gb_per_s"] == 20.0
    assert row["expected_percent"] == pytest.approx(100 * (1 << 20) / 100e-6 / 1e9 / 20)
    assert row["zero_skew_percent"] == 100.0


def test_times_of_the_host_count_in_no_comparison(tmp_path):
    odd = [record(1, collective("AllReduce", n, 9, coll_timing_source="kernel_cpu")) for n in range(3)]
    answered = asked(tmp_path, {0: lines(0, range(3)), 1: odd}, "stragglers")
    assert answered.table.num_rows == 0
    assert any("3 operations were not timed by the GPU" in n for n in answered.notes)


def test_files_of_two_jobs_are_not_mixed(tmp_path):
    first = [read_inspector(p) for p in write(tmp_path / "1", {r: lines(r, range(5)) for r in range(2)})]
    later = {r: lines(r, range(3), pid=900 + r, written_us=9_000_000) for r in range(2)}
    second = [read_inspector(p) for p in write(tmp_path / "2", later)]
    answered = answer([*second, *first], "collectives")
    assert [(r["communicator"], r["instances"], r["complete"]) for r in answered.table.to_pylist()] == [
        ("0x9f", 5, 5),
        ("0x9f#2", 3, 3),
    ]
    assert any("two processes have the same rank of 1 communicator" in n for n in answered.notes)
    other = [
        read_inspector(p) for p in write(tmp_path / "3", {r: lines(r, range(3), communicator="0xee") for r in range(2)})
    ]
    assert any("2 sets that share no communicator" in n for n in answer([*first, *other], "missing").notes)


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_has_its_columns(tmp_path, view):
    ranks = {r: [*lines(r, range(3)), record(r, message("Send", 1, 1 - r), key="p2p_perf")] for r in range(2)}
    answered = asked(tmp_path, ranks, view)
    assert answered.table.column_names == [c.name for c in answered.columns]
    if view == "operations":
        first = answered.table.to_pylist()[0]
        assert (first["rank"], first["host"], first["pid"], first["sequence"], first["timing_source"]) == (
            0,
            "h",
            100,
            0,
            "kernel_gpu",
        )
        assert answered.table.num_rows == 8


def test_ranges_in_short():
    assert [ranges_text(n) for n in ([], [3], [1, 2, 3, 7, 9, 10])] == ["", "3", "1-3,7,9-10"]
