"""Items made ahead in threads: the same items, the same errors, and no more than requested."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from alltrace.run.prefetch import in_threads, prefetched


@pytest.mark.parametrize("depth", [1, 3, 50])
@pytest.mark.parametrize("count", [0, 1, 20])
def test_all_items_in_order(depth, count):
    assert list(prefetched(iter(range(count)), depth)) == list(range(count))


def test_items_are_made_in_one_other_thread():
    threads = set(prefetched((threading.get_ident() for _ in range(10)), 3))
    assert len(threads) == 1
    assert threads != {threading.get_ident()}


def broken():
    yield 1
    yield 2
    raise KeyError("broken")


def test_an_error_comes_after_the_items_before_it():
    items = prefetched(broken(), 4)
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(KeyError, match="broken"):
        next(items)


def test_closed_early_it_makes_no_more():
    made = []

    def numbers():
        for i in range(1000):
            made.append(i)
            yield i

    with closing(prefetched(numbers(), 2)) as items:
        assert next(items) == 0
    count = len(made)
    assert count <= 4
    assert all(not t.name.startswith("alltrace-read") for t in threading.enumerate())
    assert len(made) == count


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 4, 50])
def test_what_threads_make_comes_in_the_order_of_the_items(threads, count):
    assert list(in_threads(lambda n: n * n, range(count), threads)) == [n * n for n in range(count)]


def test_several_threads_are_at_work_at_once():
    both = threading.Barrier(2)
    assert list(in_threads(lambda n: both.wait(10) in (0, 1), range(2), 2)) == [
        True,
        True,
    ]  # a single one would wait for itself


def test_of_items_that_threads_take_no_more_are_ahead_than_twice_the_threads():
    taken = []

    def items():
        for n in range(100):
            taken.append(n)
            yield n

    with closing(in_threads(str, items(), 2)) as made:
        assert [next(made), next(made)] == ["0", "1"]
        assert len(taken) <= 2 + 2 * 2
    assert len(taken) <= 2 + 2 * 2


@pytest.mark.parametrize("threads", [1, 3])
def test_what_a_thread_raises_comes_where_its_result_would_have(threads):
    made = in_threads(lambda n: 6 // (3 - n), range(100), threads)
    assert [next(made), next(made), next(made)] == [2, 3, 6]
    with pytest.raises(ZeroDivisionError):
        next(made)
