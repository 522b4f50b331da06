from __future__ import annotations

import pytest
from tests.making import copy, make_run


def tables():
    """HtoD: 1000 B in [0, 100) and 3000 B in [50, 150) at once on two streams, 600 B in [400, 500); one of no
    length."""
    return {
        "copies": [
            copy(0, 100, bytes=1000),
            copy(50, 150, bytes=3000, stream=31),
            copy(400, 500, bytes=600),
            copy(450, 450, bytes=64),
            copy(0, 10, "DtoH", bytes=20),
        ]
    }


def test_rates_while_busy_over_all_time_and_at_the_peak(tmp_path):
    back, there = make_run(tmp_path, {0: tables()}).recipe("memory-bandwidth").to_pylist()
    assert (back["kind"], back["copies"], back["moved_bytes"], back["busy_gb_per_s"]) == ("DtoH", 1, 20, 2.0)
    assert (there["kind"], there["copies"], there["moved_bytes"], there["busy_ns"], there["span_ns"]) == (
        "HtoD",
        4,
        4664,
        250,
        500,
    )
    assert there["busy_gb_per_s"] == pytest.approx(4664 / 250)
    assert there["span_gb_per_s"] == pytest.approx(4664 / 500)
    assert there["peak_gb_per_s"] == pytest.approx(10 + 30)


def test_over_time_a_copy_moves_evenly(tmp_path):
    rows = [
        r
        for r in make_run(tmp_path, {0: tables()}).recipe("memory-bandwidth", bins=5).to_pylist()
        if r["kind"] == "HtoD"
    ]
    assert [r["start_ns"] for r in rows] == [0, 100, 200, 300, 400]
    assert [r["moved_bytes"] for r in rows] == [2500, 1500, 0, 0, 664]
    assert [r["copies"] for r in rows] == [2, 0, 0, 0, 2]
    assert [r["busy_ns"] for r in rows] == [100, 50, 0, 0, 100]
    assert [r["peak_gb_per_s"] for r in rows] == pytest.approx([40, 30, 0, 0, 6])


def test_copies_that_only_meet_do_not_add(tmp_path):
    copies = [copy(0, 10, bytes=100), copy(10, 20, bytes=100)]
    (row,) = make_run(tmp_path, {0: {"copies": copies}}).recipe("memory-bandwidth").to_pylist()
    assert row["peak_gb_per_s"] == pytest.approx(10)


def test_copies_without_length_have_no_rate(tmp_path):
    (row,) = make_run(tmp_path, {0: {"copies": [copy(5, 5, bytes=100)]}}).recipe("memory-bandwidth").to_pylist()
    assert (row["moved_bytes"], row["busy_gb_per_s"], row["span_gb_per_s"], row["peak_gb_per_s"]) == (
        100,
        None,
        None,
        None,
    )
