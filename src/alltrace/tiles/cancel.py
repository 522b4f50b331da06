"""Cancels work that no client waits for any more."""

import threading

from alltrace.trace.errors import AlltraceError


class CancelledError(AlltraceError):
    """The client has disconnected."""


class Token:
    """States whether the answer is still needed; work checks it at its checkpoints."""

    def __init__(self) -> None:
        self._gone = threading.Event()

    def cancel(self) -> None:
        """Cancel the work; callable from any thread."""
        self._gone.set()

    def check(self) -> None:
        """A checkpoint. Raises `CancelledError`: the work was cancelled."""
        if self._gone.is_set():
            raise CancelledError("the request was cancelled")


WANTED = Token()
"""The token of work that cannot be cancelled."""
