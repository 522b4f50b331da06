from __future__ import annotations

from tests.making import make_run
from tests.recipes.work import call, launched, operator


def tables(names):
    """An operator each 1000 ns that launches kernels of 10 ns, one for each letter."""
    ranges, kernels, calls = [], [], []
    for n, letters in enumerate(names):
        at = 1000 * n
        ranges.append(operator("block", at, at + 500))
        for k, letter in enumerate(letters):
            number = len(calls)
            calls.append(call(at + 10 * k, at + 10 * k + 5, number))
            kernels += launched([(letter, number, at + 600 + 20 * k, at + 610 + 20 * k)])
    return {"ranges": ranges, "kernels": kernels, "api": calls}


def rows(run, **options):
    columns = ("operator", "kernels", "length", "ranks", "count", "gpu_total_ns", "gpu_mean_ns", "cpu_mean_ns")
    return [tuple(r[c] for c in columns) for r in run.recipe("kernel-sequences", **options).to_pylist()]


def test_equal_sequences_are_counted_over_calls_and_ranks(tmp_path):
    run = make_run(tmp_path, {0: tables(["abc", "abc", "acb", "ab"]), 1: tables(["abc", "abcd"])})
    assert rows(run) == [
        ("block", "a | b | c", 3, 2, 3, 90, 30.0, 500.0),
        ("block", "a | b | c | d", 4, 1, 1, 40, 40.0, 500.0),
        ("block", "a | c | b", 3, 1, 1, 30, 30.0, 500.0),
    ]
    assert rows(run, min_length=4) == [("block", "a | b | c | d", 4, 1, 1, 40, 40.0, 500.0)]


def test_the_order_is_that_of_launches(tmp_path):
    one = tables(["abc"])
    one["kernels"][0] |= {"start": 900, "end": 910}
    assert rows(make_run(tmp_path, {0: one}))[0][1] == "a | b | c"


def test_only_operators_asked_for_and_each_within_itself_once(tmp_path):
    one = tables(["abc"])
    one["ranges"] += [operator("block", 1, 400), operator("outer", 0, 900)]
    run = make_run(tmp_path, {0: one})
    assert [(r[0], r[4]) for r in rows(run)] == [("block", 1), ("outer", 1)]
    assert [r[0] for r in rows(run, operator="out")] == ["outer"]


def test_a_launch_where_one_operator_ends_and_the_next_begins_is_the_nexts(tmp_path):
    tables = {
        "ranges": [operator("one", 10, 20), operator("next", 20, 40)],
        "kernels": launched([("a", 1, 100, 110), ("b", 2, 120, 130)]),
        "api": [call(12, 15, 1), call(20, 25, 2)],
    }
    found = rows(make_run(tmp_path, {0: tables}), min_length=1)
    assert [r[:3] for r in found] == [("next", "b", 1), ("one", "a", 1)]


def test_long_sequences_are_told_apart_beyond_what_is_shown(tmp_path):
    found = rows(make_run(tmp_path, {0: tables(["a" * 40, "a" * 39 + "b", "a" * 40])}))
    assert [(r[2], r[4]) for r in found] == [(40, 2), (40, 1)]
    assert found[0][1] == " | ".join("a" * 32) + " | ..."


def test_nothing_to_count_is_said(tmp_path):
    answer = make_run(tmp_path, {0: tables(["ab"])}).recipe("kernel-sequences")
    assert answer.to_pylist() == []
    assert answer.notes == ("no call launches 3 kernels or more",)
