"""Makes the next items of an iterator in a thread while the last one is worked on."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

_T = TypeVar("_T")


def ahead(items: Iterator[_T], depth: int) -> Generator[_T, None, None]:
    """The items of `items`, made in a thread of their own, up to `depth` of them before they are asked for.

    What making an item raises is raised where the item would have come. Close the generator if it is not read to its end: then no
    more items are made.
    """
    end = object()
    jobs: deque[Future[object]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="alltrace-read") as pool:
        try:
            jobs.extend(pool.submit(next, items, end) for _ in range(depth))
            while (item := jobs.popleft().result()) is not end:
                jobs.append(pool.submit(next, items, end))
                yield item  # type: ignore[misc]
        finally:
            for job in jobs:
                job.cancel()
