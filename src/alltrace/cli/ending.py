"""How a server stops on a signal."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def ends_in_order() -> Iterator[None]:
    """A block that SIGTERM and SIGHUP end as `sys.exit` does, so that temporary files go."""
    # Signals that are ignored, as by nohup, stay so. uvicorn, which knows SIGTERM alone, ends its server and sends
    # itself that again.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {signal.SIGTERM: _end, signal.SIGHUP: _hang_up}
    taken = [n for n in handlers if signal.getsignal(n) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, handlers[number])
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _end(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    sys.exit(128 + number)


def _hang_up(_number: int, _frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGTERM)
