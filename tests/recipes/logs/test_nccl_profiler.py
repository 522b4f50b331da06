"""Who is slow below the collective: a link, a GPU, nobody; with files that are missing, cut and in any order."""

from __future__ import annotations

import random

import pytest
from tests.nccl_profiler_writing import HASH, Writer, ring

from alltrace.readers.nccl_profiler.records import read_profiler
from alltrace.recipes.logs.nccl_profiler import VIEWS, answer

GROUP = f"{HASH:#x}"


def asked(tmp_path, writers, view="ranks"):
    return answer([read_profiler(w.write(tmp_path)) for w in writers], view)


def rows(tmp_path, writers, view="ranks"):
    return asked(tmp_path, writers, view).table.to_pylist()


def test_a_healthy_ring_has_nobody_slow(tmp_path):
    answered = asked(tmp_path, ring())
    assert [r["slow"] for r in answered.table.to_pylist()] == [None] * 4
    assert not any("slow in" in n or "takes data late" in n for n in answered.notes)
    row = answered.table.to_pylist()[0]
    assert (row["communicator"], row["rank"], row["pid"], row["operations"], row["steps"]) == (GROUP, 0, 1000, 5, 40)
    # 5 operations of 4 steps
    assert {n: row[n] for n in row if n.endswith("_us")} == {
        "excess_us": None,
        "send_gpu_wait_us": 200.0,
        "send_peer_wait_us": 100.0,
        "send_wait_us": 1000.0,
        "recv_wait_us": 400.0,
        "recv_flush_us": 40.0,
        "recv_gpu_wait_us": 400.0,
        "peers_waited_us": 100.0,
        "ready_us": None,
        "copies_us": None,
    }


def test_a_slow_link_is_named_by_its_ends_with_what_it_costs(tmp_path):
    writers = ring(slow_link=2)
    answered = asked(tmp_path, writers)
    first, *others = answered.table.to_pylist()
    assert (first["rank"], first["slow"], first["excess_us"]) == (2, "link", 5 * 4 * 350.0)
    assert [r["slow"] for r in others] == [None] * 3
    assert any(
        f"communicator {GROUP}: the link from rank 2 to rank 3 is slow in 5 of 5 operations: 8.0 times the usual time" in n
        for n in answered.notes
    )
    links = rows(tmp_path, writers, "links")
    assert [(r["rank"], r["peer"], r["slow"], r["slow_operations"]) for r in links[:2]] == [(2, 3, "yes", 5), (0, 1, "no", 0)]
    link = links[0]
    assert (link["operations"], link["steps"], link["bytes"], link["network_us"], link["usual_us"]) == (
        5,
        20,
        20 * 65536,
        1600,
        200,
    )
    assert (link["times_usual"], link["excess_us"], link["peer_wait_us"]) == (8.0, 7000.0, 100.0)
    assert link["network_gb_per_s"] == pytest.approx(65536 / 400_000, abs=1e-3)


def test_a_gpu_that_takes_data_late_is_told_from_the_network(tmp_path):
    answered = asked(tmp_path, ring(late_gpu=1))
    first = answered.table.to_pylist()[0]
    assert (first["rank"], first["slow"], first["excess_us"]) == (1, "gpu", 5 * 400.0)
    assert any("the GPU of rank 1 takes data late" in n and "21.0 times the usual wait" in n for n in answered.notes)


def test_a_slow_link_out_of_a_rank_comes_before_its_gpu(tmp_path):
    found = rows(tmp_path, ring(slow_link=2, late_gpu=2))
    assert [(r["rank"], r["slow"]) for r in found if r["slow"]] == [(2, "link")]


def test_a_single_slow_operation_is_an_accident(tmp_path):
    writers = ring(operations=9)
    slow = Writer(3, 4)
    at = 100.0
    for number in range(9):
        at = slow.all_reduce(number, at, 9000 if number == 4 else 50, 20)
    writers[3] = slow
    assert [r["slow"] for r in rows(tmp_path, writers)] == [None] * 4
    assert rows(tmp_path, writers, "links")[0]["slow_operations"] == 1


def test_sizes_are_not_mixed(tmp_path):
    """A rank that has more of the large operations is not slower."""
    writers = ring(3)
    text = writers[0].text().replace('"Count": 262144', '"Count": 2097152')
    at = 9000.0
    for number in range(5, 9):
        at = writers[0].all_reduce(number, at, 400, 20)
    own = writers[0].text().splitlines()
    large = [line.replace('"Count": 262144', '"Count": 2097152') for line in own[len(text.splitlines()) - 1 :]]
    writers[0].lines = [*own[1 : len(text.splitlines()) - 1], *large[:-1]]
    assert [r["slow"] for r in rows(tmp_path, writers)] == [None] * 3


def test_the_order_of_files_changes_nothing(tmp_path):
    writers = ring(5, slow_link=1, late_gpu=4)
    expected = {view: rows(tmp_path, writers, view) for view in VIEWS}
    draw = random.Random(5)
    for view in VIEWS:
        draw.shuffle(writers)
        assert rows(tmp_path, writers, view) == expected[view]


def test_what_the_network_plugin_reports(tmp_path):
    found = rows(tmp_path, ring(slow_link=2), "network")
    assert [(r["rank"], r["network"], r["device"], r["transfers"], r["bytes"]) for r in found] == [
        (rank, "ib", 1, 20, 20 * 65536) for rank in range(4)
    ]
    assert [(r["communicator"], r["median_us"], r["max_us"]) for r in found[1:3]] == [(GROUP, 50.0, 50.0), (GROUP, 400.0, 400.0)]
    assert found[0]["network_gb_per_s"] == pytest.approx(65536 / 50_000, abs=1e-3)


def test_every_operation(tmp_path):
    writers = ring(2)
    writers[1].by_copy_engines(8000, 700, 80)
    found = rows(tmp_path, writers, "operations")
    assert [(r["rank"], r["op"], r["sequence"]) for r in found[4:]] == [
        (0, "AllReduce", 4), *((1, "AllReduce", n) for n in range(5)), (1, "AllGather", None),
    ]  # fmt: skip
    row, last = found[0], found[-1]
    assert (row["communicator"], row["count"], row["datatype"], row["algorithm"], row["channels"]) == (
        GROUP, 262144, "Float32", "RING SIMPLE", 1,
    )  # fmt: skip
    assert (row["start_us"], row["kernel_us"], row["steps"], row["peer"], row["send_wait_us"]) == (101.0, 500.0, 8, None, 200.0)
    assert row["proxy_us"] == 10 + 300 + 42 + 1 - 5  # to the end of the receive
    assert (last["ready_us"], last["copies_us"], last["copied_bytes"], last["algorithm"]) == (700.0, 80.0, 1_048_576, "CE MC")
    by_rank = {r["rank"]: r for r in rows(tmp_path, writers)}
    assert (by_rank[1]["ready_us"], by_rank[1]["copies_us"], by_rank[0]["ready_us"]) == (700.0, 80.0, None)


def test_bytes_of_the_steps_that_are_in_the_file_alone(tmp_path):
    """Of a proxy operation with more steps than the plugin keeps, the rate is that of the steps it kept."""
    writers = ring(2)
    for writer in writers:
        writer.lines = [
            line.replace('"Steps": 4', '"Steps": 16').replace(f'"transSize": {4 * 65536}', f'"transSize": {16 * 65536}')
            for line in writer.lines
        ]
    link = rows(tmp_path, writers, "links")[0]
    assert (link["steps"], link["bytes"]) == (20, 20 * 65536)


def test_ranks_without_a_file_and_files_that_are_cut_are_said(tmp_path):
    whole = ring()
    files = [read_profiler(w.write(tmp_path)) for w in whole[:2]]
    cut = tmp_path / "cut.json"
    cut.write_text(whole[2].text()[:9000])
    notes = answer([*files, read_profiler(str(cut))], "ranks").notes
    assert any(f"communicator {GROUP} has no file of rank 3" in n for n in notes)
    assert any("cut.json: the file has no end" in n for n in notes)
    assert any("cut.json: 1 lines that are not events" in n for n in notes)


def test_files_without_steps_say_how_to_get_them(tmp_path):
    writer = Writer(0, 2)
    writer.by_copy_engines(50, 7, 8)
    assert any("NCCL_PROFILE_EVENT_MASK" in n for n in asked(tmp_path, [writer]).notes)


def test_files_that_begin_at_a_later_operation_say_so(tmp_path):
    writers = [Writer(r, 2) for r in range(2)]
    for writer in writers:
        writer.all_reduce(7, 100, 50, 20)
    assert any("keeps the last operations only" in n for n in asked(tmp_path, writers).notes)
    assert not any("keeps the last operations only" in n for n in asked(tmp_path, ring()).notes)


def test_names_that_are_half_a_character(tmp_path):
    writer = ring(2)[0]
    writer.lines = [line.replace('"AllReduce"', '"All\\ud800"') for line in writer.lines]
    assert rows(tmp_path, [writer], "operations")[0]["op"] == "All?"
