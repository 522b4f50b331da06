"""Calls made by threads while the one that wants their results does something else.

What `concurrent.futures` has of this loads Python's logging and what formats its errors first, 4 ms of every import and trace.
"""

from __future__ import annotations

from queue import SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

_T = TypeVar("_T")


class Call(Generic[_T]):
    """One call; `Threads.submit` makes it."""

    def __init__(self, function: Callable[..., _T], arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        self._function, self._arguments, self._named = function, arguments, named
        self._made: _T | None = None
        self._raised: BaseException | None = None
        self._cancelled = False
        self._ending = Lock()  # held until the call has ended
        self._ending.acquire()

    def run(self) -> None:
        """Make the call, unless it was cancelled."""
        try:
            if not self._cancelled:
                self._made = self._function(*self._arguments, **self._named)
        except BaseException as error:  # noqa: BLE001  it is the caller's
            self._raised = error
        finally:
            del self._function, self._arguments, self._named  # what it was given is not kept longer than it takes
            self._ending.release()

    def cancel(self) -> None:
        """Do not make the call if it has not begun; its result is not to be asked for then."""
        self._cancelled = True

    def wait(self) -> None:
        """Until the call has ended."""
        with self._ending:
            pass

    def result(self) -> _T:
        """What the function returned, once it has; what it raised is raised."""
        self.wait()
        if self._raised is not None:
            raise self._raised
        return self._made  # type: ignore[return-value]


class Threads:
    """Some threads that make calls, the first submitted first. As a context manager, it is closed at the end of the block.

    Args:
        count: The most threads; each is started when there is a call for it.
        name: What they are called.
    """

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._calls: SimpleQueue[Call[Any] | None] = SimpleQueue()
        self._threads: list[Thread] = []

    def submit(self, function: Callable[..., _T], *arguments: Any, **named: Any) -> Call[_T]:
        """Have a thread call `function`.

        Raises:
            RuntimeError: No thread can be started.
        """
        if len(self._threads) < self._count:
            thread = Thread(target=_make_all, args=(self._calls,), name=self._name)
            thread.start()
            self._threads.append(thread)
        call: Call[_T] = Call(function, arguments, named)
        self._calls.put(call)
        return call

    def close(self) -> None:
        """Wait until all calls are made, and end the threads."""
        for _ in self._threads:
            self._calls.put(None)
        while self._threads:
            self._threads.pop().join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _make_all(calls: SimpleQueue[Call[Any] | None]) -> None:
    while (call := calls.get()) is not None:
        call.run()
        del call  # and its result, while the next is waited for
