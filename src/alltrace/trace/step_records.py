"""The record of a training's steps, 64 bytes a step of each rank, in files that can be read while they are written.

A file is a sequence of regions, one for each rank of a host: a page of 4 kB with what the rank does now and its last
steps, then a ring of the steps before. A file of one page alone is the open block that a rank keeps in memory that
outlives it. Numbers are little-endian; a step's record ends with the CRC-32 of the bytes before. `alltrace.core.steps`
writes the records.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from alltrace.core import steps as written

SUFFIX = ".steps"
MAGIC = b"ALTSTEP1"
PAGE_BYTES, RECORD_BYTES = written.PAGE_BYTES, written.RECORD_BYTES
AT_WRITTEN, AT_NOW = written.AT_WRITTEN, written.AT_NOW
PHASES = written.PHASES
REGION_BYTES = 1 << 25
RING_RECORDS = (REGION_BYTES - PAGE_BYTES) // RECORD_BYTES
OTHER = "other"
BY_DEVICE, INCOMPLETE = 1, 2
"""Flags of a record: its times are those of events on a device; times of steps before it were lost."""
NOW = struct.Struct("<QqI")
WRITTEN = struct.Struct("<Qq")
_HEAD = struct.Struct("<8siiiIQqQ64s64s")
_AT_NAMES, _NAME_BYTES = 256, 32
_AT_LAST = written.AT_LAST
_LAST_RECORDS = (PAGE_BYTES - _AT_LAST) // RECORD_BYTES
_RECORD = struct.Struct("<QqI5IIBBHIH")
_CHECK = struct.Struct("<I")
_CHECKED_BYTES = RECORD_BYTES - _CHECK.size
_MOST_NUMBER = (1 << 31) - 1


class Step(NamedTuple):
    step: int  # its number in the training
    begin_ns: int  # when it began, ns since 1970 by the host's clock
    total_us: int  # how long it took, us
    phases_us: tuple[int, ...]  # of these, in each named phase
    cpu_wait_us: int = 0  # how long its thread waited for a processor, in no phase
    last: int = 0  # the number of the phase that it ended in, from 1; 0 for another
    flags: int = 0  # `BY_DEVICE`, `INCOMPLETE`
    clock_mhz: int = 0  # of the GPU's SMs; 0 if unknown
    throttle: int = 0  # NVML's reasons for a lower clock, as bits
    xid: int = 0  # the last error of the GPU; 0 for none


class RankSteps(NamedTuple):
    rank: int
    world: int  # ranks of the job
    host: str
    job: str
    phases: tuple[str, ...]  # the names of the phases
    waits: frozenset[str]  # those in which a rank waits for others
    written_ns: int  # when the rank wrote last, ns since 1970 by its host's clock
    recorded: int  # steps that were recorded in all
    step: int  # the step that it is in
    since_ns: int  # since when it is in its phase
    phase: str  # that phase; `other` outside of all
    steps: tuple[Step, ...]  # the last steps, in order
    damaged: int = 0  # how many of these are left out, because their records are damaged


def new_page(rank: int, world: int, host: str, job: str) -> bytearray:
    page = bytearray(PAGE_BYTES)
    _HEAD.pack_into(page, 0, MAGIC, rank, world, 0, 0, 0, 0, 0, host.encode()[:63], job.encode()[:63])
    return page


def name_phases(page: bytearray, names: Sequence[str], waits: frozenset[str]) -> None:
    names = names[:PHASES]
    for number, name in enumerate(names):
        at = _AT_NAMES + number * _NAME_BYTES
        page[at : at + _NAME_BYTES] = name.encode()[: _NAME_BYTES - 1].ljust(_NAME_BYTES, b"\0")
    struct.pack_into("<iI", page, 16, len(names), sum(1 << n for n, name in enumerate(names) if name in waits))


def read_ranks(path: Path, most_steps: int = RING_RECORDS) -> list[RankSteps]:
    """What a file says of each of its ranks, with at most `most_steps` of the last steps; no damaged regions."""
    # Raises `OSError`: the file cannot be read.
    ranks = []
    with path.open("rb") as file:
        for at in range(0, path.stat().st_size, REGION_BYTES):
            file.seek(at)
            page = file.read(PAGE_BYTES)
            state = _read_page(page)
            if state is None:
                continue
            wanted = min(state.recorded, most_steps, RING_RECORDS)
            first = state.recorded - wanted
            steps = _steps(page[_AT_LAST:], state.recorded - min(wanted, _LAST_RECORDS), state.recorded, _LAST_RECORDS)
            if wanted > _LAST_RECORDS:
                turn = min(state.recorded, (first // RING_RECORDS + 1) * RING_RECORDS)
                for begin, end in ((first, turn), (turn, state.recorded)):  # the ring's end, then its begin
                    file.seek(at + PAGE_BYTES + begin % RING_RECORDS * RECORD_BYTES)
                    steps |= _steps(file.read((end - begin) * RECORD_BYTES), 0, end - begin, RING_RECORDS)
            present = wanted if path.stat().st_size > at + PAGE_BYTES else min(wanted, _LAST_RECORDS)
            ranks.append(state._replace(steps=tuple(steps[key] for key in sorted(steps)), damaged=present - len(steps)))
    return ranks


def _read_page(page: bytes) -> RankSteps | None:
    if len(page) < PAGE_BYTES or not page.startswith(MAGIC):
        return None
    _, rank, world, named, waits, count, written_ns, _, host, job = _HEAD.unpack_from(page)
    step, since_ns, phase = NOW.unpack_from(page, AT_NOW)
    if not (0 <= rank <= _MOST_NUMBER and 0 <= named <= PHASES and 0 <= count <= 1 << 48):
        return None
    texts = [page[_AT_NAMES + n * _NAME_BYTES :][:_NAME_BYTES] for n in range(named)]
    host_name, job_name, *names = (t.rstrip(b"\0").decode("utf-8", "replace") for t in (host, job, *texts))
    current = names[phase - 1] if 0 < phase <= named else OTHER
    waiting = frozenset(name for n, name in enumerate(names) if waits >> n & 1)
    return RankSteps(
        rank, max(world, 0), host_name, job_name, tuple(names), waiting, written_ns, count, step, since_ns, current, ()
    )


def _steps(ring: bytes, first: int, end: int, slots: int) -> dict[tuple[int, int], Step]:
    """The records `first` to `end - 1` of a ring, by when they began."""
    steps = {}
    for number in range(first, end):
        at = number % slots * RECORD_BYTES
        record = ring[at : at + RECORD_BYTES]
        if (
            len(record) < RECORD_BYTES
            or zlib.crc32(record[:_CHECKED_BYTES]) != _CHECK.unpack_from(record, _CHECKED_BYTES)[0]
        ):
            continue
        step, begin_ns, total_us, *rest = _RECORD.unpack_from(record)
        steps[begin_ns, step] = Step(step, begin_ns, total_us, tuple(rest[:PHASES]), *rest[PHASES:])
    return steps
