"""Makes the next items of an iterator in a thread while the last one is worked on."""

from __future__ import annotations

from queue import SimpleQueue
from threading import Semaphore, Thread
from typing import TYPE_CHECKING, TypeVar

from alltrace.trace.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

_T = TypeVar("_T")


class _Made(NamedTuple):
    """An item, or what making it raised, or neither where there are no more."""

    item: object
    raised: BaseException | None
    last: bool


def ahead(items: Iterator[_T], depth: int) -> Generator[_T, None, None]:
    """The items of `items`, made in a thread of their own, up to `depth` of them before they are asked for.

    What making an item raises is raised where the item would have come. Close the generator if it is not read to its end: then no
    more items are made.
    """
    made: SimpleQueue[_Made] = SimpleQueue()
    room = Semaphore(depth)
    stopped = False

    def make() -> None:
        try:
            while room.acquire() and not stopped:
                made.put(_Made(next(items), None, last=False))
        except StopIteration:
            made.put(_Made(None, None, last=True))
        except BaseException as error:  # noqa: BLE001  it is the caller's
            made.put(_Made(None, error, last=True))

    thread = Thread(target=make, name="alltrace-read")
    thread.start()
    try:
        while not (one := made.get()).last:
            room.release()
            yield one.item  # type: ignore[misc]
        if one.raised is not None:
            raise one.raised
    finally:
        stopped = True
        room.release()
        thread.join()
