"""Makes the next items of a sequence in threads while the last one is worked on."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from threading import Semaphore, Thread
from typing import NamedTuple, TypeVar

_T = TypeVar("_T")
_Item = TypeVar("_Item")


class _Made(NamedTuple):
    item: object
    raised: BaseException | None
    last: bool


def prefetched(items: Iterator[_T], depth: int) -> Generator[_T, None, None]:
    """The items, made in a thread up to `depth` ahead; errors come in their place. Close it before its end."""
    ready: SimpleQueue[_Made] = SimpleQueue()
    room = Semaphore(depth)
    stopped = False

    def make() -> None:
        try:
            while room.acquire() and not stopped:
                ready.put(_Made(next(items), None, last=False))
        except StopIteration:
            ready.put(_Made(None, None, last=True))
        except BaseException as error:  # noqa: BLE001  it is the caller's
            ready.put(_Made(None, error, last=True))

    thread = Thread(target=make, name="alltrace-read")
    thread.start()
    try:
        while not (one := ready.get()).last:
            room.release()
            yield one.item  # type: ignore[misc]
        if one.raised is not None:
            raise one.raised
    finally:
        stopped = True
        room.release()
        thread.join()


def in_threads(make: Callable[[_Item], _T], items: Iterable[_Item], threads: int) -> Generator[_T, None, None]:
    """`make(item)` of each in order, by several threads, for what needs no lock of Python; else as `prefetched`."""
    if threads < 2:
        yield from map(make, items)
        return
    waiting: deque[Future[_T]] = deque()
    with ThreadPoolExecutor(threads, "alltrace-make") as pool:
        try:
            for item in items:
                waiting.append(pool.submit(make, item))
                if len(waiting) == 2 * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for job in waiting:
                job.cancel()
