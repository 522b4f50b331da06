"""Carries what each rank measured to the first rank, by a store, in a thread of its own.

There is no collective: a rank writes some hundred bytes under its own key and counts itself, and the first rank reads
all rows when all are counted. Nothing in the training's thread waits for it, so an exchange that hangs hangs nothing
else.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable
from time import monotonic, sleep
from typing import Any, Protocol

from alltrace.capture.step_verdict import RankTimes, unpacked

_MISSED = 2
"""Exchanges in turn that may fail; then there are no more."""
_PATIENCE_S = 10.0
_LOOK_S = 0.05
_LAST_S = 1.0
_STORE_S = 5


class Store(Protocol):
    """What the exchange needs of a store, such as `torch.distributed.TCPStore`."""

    def set(self, key: str, value: bytes) -> Any:
        """Keep a value."""

    def add(self, key: str, amount: int) -> int:
        """Add to a counter, from 0; returns its value."""

    def check(self, keys: list[str]) -> bool:
        """Whether all keys have values."""

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """The values of keys that have one."""


# `make`: opens the store, in the thread of the exchange; returns None if there is none. `rows`: gets the rows of all
# ranks, by rank, on the first rank. `say`: gets a line, once, when there are no more exchanges.
class Exchange:
    """The rows of all ranks, one exchange after the other."""

    def __init__(
        self, rank: int, world: int, make: Callable[[], Store | None], rows: Callable[[list[RankTimes]], None],
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._rank, self._world, self._make, self._rows, self._say = rank, world, make, rows, say
        self._measured: queue.SimpleQueue[Callable[[], RankTimes] | None] = queue.SimpleQueue()
        self._missed = 0
        self._waiting_since = 0.0
        self._thread: threading.Thread | None = None
        self.off = False
        _Count.reports += 1
        self._prefix = f"alltrace/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '')}/{_Count.reports}"

    def offer(self, measured: Callable[[], RankTimes]) -> None:
        """Send what this rank measured, soon; `measured` is called in the thread of the exchange."""
        if self.off:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="alltrace-exchange", daemon=True)
            self._thread.start()
        now = monotonic()
        if self._measured.empty():
            self._waiting_since = now
        elif now - self._waiting_since > _MISSED * _PATIENCE_S:  # the thread hangs in the store
            self._end("the store does not answer")
            return
        self._measured.put(measured)

    def close(self) -> None:
        """There are no more rows; wait a moment for the last exchange."""
        self.off, thread = True, self._thread
        if thread is not None:
            self._measured.put(None)
            thread.join(_LAST_S)

    def _end(self, why: str) -> None:
        if not self.off and self._rank == 0:
            self._say(f"{why}; ranks are no longer compared, and the training goes on")
        self.off = True

    def _run(self) -> None:
        try:
            store = self._make()
        except Exception as error:  # noqa: BLE001  whatever a store raises, it must not reach the training
            self._end(f"the store of the job cannot be used ({error})")
            return
        if store is None:
            self.off = True
            return
        why = ""
        while self._missed < _MISSED:
            measured = self._measured.get()
            while self._rank == 0 and measured is not None and self._measured.qsize() > 1:
                measured = self._measured.get()  # windows are shorter than the way of a row: only newer ones count
            if measured is None:
                return
            try:
                why = self._exchanged(store, measured())
            except Exception as error:  # noqa: BLE001
                why = f"the store of the job failed ({error})"
            self._missed = self._missed + 1 if why else 0
        self._end(why)

    def _exchanged(self, store: Store, mine: RankTimes) -> str:
        """Send a row, and read all on the first rank; returns why that failed, or an empty text."""
        part = (  # a rank that is ahead must not write over what is still to be read
            f"{self._prefix}/{mine.exchange % 2}"
        )
        store.set(f"{part}/{self._rank}", mine.packed())
        counter = f"{self._prefix}/count/{mine.exchange}"
        count = store.add(counter, 1)
        if self._rank:
            return ""
        until = monotonic() + _PATIENCE_S
        while count < self._world and monotonic() < until:
            sleep(_LOOK_S)
            count = store.add(counter, 0)
        keys = [f"{part}/{rank}" for rank in range(self._world)]
        there = keys if count >= self._world else [key for key in keys if store.check([key])]
        values = dict(zip(there, store.multi_get(there), strict=True))
        rows = [unpacked(bytes(values.get(key, b""))) for key in keys]
        missing = [rank for rank, row in enumerate(rows) if row is None or row.exchange < mine.exchange]
        if missing:
            names = ", ".join(map(str, missing[:8])) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
            return f"{'rank' if len(missing) == 1 else 'ranks'} {names} sent nothing of steps {mine.first} and later"
        whole = [row for row in rows if row is not None and row.exchange == mine.exchange]
        if len(whole) < self._world:
            return ""  # some are ahead by now
        self._rows(whole)
        return ""


class _Count:
    """How many exchanges this process began; each has keys of its own, the same on all ranks."""

    reports = 0


def job_store() -> Store | None:
    """A separate connection to the store of the job, if PyTorch is loaded and the launcher says where the store is."""
    torch: Any = sys.modules.get("torch")
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "")
    if torch is None or not torch.distributed.is_available() or not host or not port.isdecimal():
        return None
    from datetime import timedelta

    store: Store = torch.distributed.TCPStore(
        host, int(port), is_master=False, timeout=timedelta(seconds=_STORE_S), wait_for_workers=False
    )
    return store
