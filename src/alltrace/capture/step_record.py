"""Writes the always-on record of a rank's steps; `alltrace.trace.step_records` says what is in it.

The page of what the rank does now is memory that the system writes to local disk: it outlives the process, and a write
to it costs what a write to memory does. A thread copies it, with the steps since the last time, to the file of the
host, at most every 5 s. It does so as well where no step ends, so the file shows which process no longer runs.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
from contextlib import suppress
from time import time_ns
from typing import TYPE_CHECKING

from alltrace.trace.errors import UsageError
from alltrace.trace.step_records import (
    AT_WRITTEN,
    PAGE_BYTES,
    RECORD_BYTES,
    REGION_BYTES,
    RING_RECORDS,
    SUFFIX,
    WRITTEN,
    name_phases,
    new_page,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from alltrace.capture.identity import Identity
    from alltrace.core.steps import StepTimes

BLOCK_S = 5.0
"""The shortest time between two writes to the file."""


# Raises `UsageError`: the folder cannot be written.
class StepRecord:
    """The record of a rank's steps in a folder that may be shared; `page_folder` must be on a local disk."""

    def __init__(self, folder: str, page_folder: str, who: Identity, times: StepTimes) -> None:
        self._times = times
        self._written = 0  # records in the file
        job = who.job or "job"
        page = new_page(who.rank, who.world_size or 0, who.host, job)
        try:
            os.makedirs(folder, exist_ok=True)  # noqa: PTH103  pathlib would be a further import
            os.makedirs(page_folder, mode=0o700, exist_ok=True)  # noqa: PTH103
            self._page_path = os.path.join(page_folder, f"{job}_rank{who.rank}{SUFFIX}")  # noqa: PTH118
            number = os.open(self._page_path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            os.write(number, page)  # a page without a place on the disk would end the process
            self._page = mmap.mmap(number, PAGE_BYTES)
            os.close(number)
            self._file, self._at = _region(folder, f"{job}_on_{who.host}", who)
        except OSError as error:
            raise UsageError(
                f"the record of steps cannot be written: {error.filename or folder}: {error.strerror}; give another"
                " record="
            ) from error
        times.write_to(self._page)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="alltrace-record", daemon=True)
        self._thread.start()

    def name(self, phases: Sequence[str], waits: frozenset[str]) -> None:
        page = bytearray(self._page)
        name_phases(page, phases, waits)
        self._page[:] = bytes(page)

    def close(self) -> None:
        """The training has ended: write the rest, and remove the page."""
        self._ended.set()
        self._thread.join(BLOCK_S)
        with suppress(OSError):
            self._write()
            os.close(self._file)
            os.unlink(self._page_path)  # noqa: PTH108

    def _run(self) -> None:
        with suppress(OSError):  # such as a full disk: the page goes on
            self._write()
            while not self._ended.wait(BLOCK_S):
                self._write()

    def _write(self) -> None:
        """Write the steps since the last time, then the page."""
        records = memoryview(self._times.taken_records())
        while records:
            place = self._written % RING_RECORDS * RECORD_BYTES
            count = os.pwrite(self._file, records[: RING_RECORDS * RECORD_BYTES - place], self._at + PAGE_BYTES + place)
            self._written += count // RECORD_BYTES
            records = records[count // RECORD_BYTES * RECORD_BYTES :]
        page = bytearray(self._page)
        WRITTEN.pack_into(page, AT_WRITTEN, self._written, time_ns())
        os.pwrite(self._file, page, self._at)


def _region(folder: str, name: str, who: Identity) -> tuple[int, int]:
    """The file of the host and where this rank's region begins; another file if a rank may have it."""
    local = who.local_rank
    if local is not None:
        number = os.open(os.path.join(folder, name + SUFFIX), os.O_RDWR | os.O_CREAT, 0o644)  # noqa: PTH118
        try:
            fcntl.lockf(number, fcntl.LOCK_EX | fcntl.LOCK_NB, REGION_BYTES, local * REGION_BYTES)
            return number, local * REGION_BYTES
        except OSError:
            os.close(number)
    return (
        os.open(os.path.join(folder, f"{name}_rank{who.rank}{SUFFIX}"), os.O_RDWR | os.O_CREAT, 0o644),  # noqa: PTH118
        0,
    )
