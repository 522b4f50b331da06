"""Items made ahead in a thread: the same items, the same errors, and no more than asked for."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from alltrace.run.ahead import ahead


@pytest.mark.parametrize("depth", [1, 3, 50])
@pytest.mark.parametrize("count", [0, 1, 20])
def test_all_items_in_order(depth, count):
    assert list(ahead(iter(range(count)), depth)) == list(range(count))


def test_items_are_made_in_one_other_thread():
    threads = set(ahead((threading.get_ident() for _ in range(10)), 3))
    assert len(threads) == 1
    assert threads != {threading.get_ident()}


def broken():
    yield 1
    yield 2
    raise KeyError("broken")


def test_an_error_comes_after_the_items_before_it():
    items = ahead(broken(), 4)
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(KeyError, match="broken"):
        next(items)


def test_closed_early_it_makes_no_more():
    made = []

    def numbers():
        for i in range(1000):
            made.append(i)
            yield i

    with closing(ahead(numbers(), 2)) as items:
        assert next(items) == 0
    count = len(made)
    assert count <= 4
    assert all(not t.name.startswith("alltrace-read") for t in threading.enumerate())
    assert len(made) == count
