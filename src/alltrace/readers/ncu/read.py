"""Reads reports of Nsight Compute: kernel launches with all their metrics.

A report is a magic number, a header, and blocks. Each part is a message that its size in four bytes stands before: a block's header
counts the sources (code of kernels, passed over) and results that follow it. Names of metrics and texts lie in string tables.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from alltrace.readers.ncu.wire import Value, WireError, fields, number_of
from alltrace.trace.errors import InputError
from alltrace.trace.launches import Launch, Metric, NcuReport
from alltrace.trace.names import text_of_bytes

if TYPE_CHECKING:
    from pathlib import Path

MAGIC = b"NVR\x00"
"""How a report begins."""
_EXPECTED = "a report of Nsight Compute (.ncu-rep)"
_AGAIN = "copy it again, or profile again"
_MOST_BYTES = 4 << 30
_LONG, _DOUBLE = 9, 3 << 3 | 1
_FLOAT64 = struct.Struct("<d").unpack_from


@dataclass
class _Block:
    strings: list[str]
    sources: int = 0
    results: int = 0
    others: int = 0
    process: int | None = None


def read_report(path: Path) -> NcuReport:
    """Read a report, or what Nsight Compute printed of one; of one that is cut short, the launches that are whole.

    Raises:
        InputError: It is neither, damaged, or cut short before its first launch.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InputError(path, found="it is larger than 4 GiB", expected=_EXPECTED)
        content = path.read_bytes()
    except OSError as error:
        raise InputError(path, found=f"it cannot be read ({error.strerror})", expected=_EXPECTED) from error
    if not content.startswith(MAGIC):
        from alltrace.readers.ncu.text import read_text

        return read_text(path, content)
    data = memoryview(content)
    launches: list[Launch] = []
    warnings: list[str] = []
    strings: list[str] = []  # a block's numbers count on from the blocks before
    version = 0
    try:
        header, at = _part(data, len(MAGIC))
        version = next((int(number_of(v, real=False)) for n, _, v in fields(header) if n == 1), 0)
        while at < len(data):
            part, at = _part(data, at)
            block = _block(part, strings)
            for _ in range(block.sources):
                _, at = _part(data, at)
            for _ in range(block.results):
                part, at = _part(data, at)
                launches.append(_launch(part, block, len(launches)))
            for _ in range(block.others):
                _, at = _part(data, at)
            if block.others:
                warnings.append(f"{block.others} results of ranges, graphs or command lists are left out")
    except WireError as error:
        if not launches:
            raise InputError(path, found=f"it is damaged or cut short: {error}", expected=_EXPECTED, advice=_AGAIN) from error
        warnings.append(f"the report is damaged or cut short behind launch {len(launches) - 1}: what is whole was read")
    return NcuReport(version, tuple(launches), tuple(warnings))


def _part(data: memoryview, at: int) -> tuple[memoryview, int]:
    """The part whose size stands at `at`, and the place after it."""
    if len(data) - at < 4:
        raise WireError("a part's size is missing")
    size = int(number_of(data[at : at + 4], real=False))
    if size > len(data) - at - 4:
        raise WireError("a part is longer than the file")
    return data[at + 4 : at + 4 + size], at + 4 + size


def _block(part: memoryview, strings: list[str]) -> _Block:
    block = _Block(strings)
    for number, _, value in fields(part):
        if number == 1:
            block.sources = _whole(value)
        elif number == 2:
            block.results = _whole(value)
        elif number in (7, 8, 9):
            block.others += _whole(value)
        elif number == 4:
            strings += [_text(v) for n, _, v in fields(_message(value)) if n == 1]
        elif number == 6:
            block.process = next((_whole(v) for n, _, v in fields(_message(value)) if n == 1), None)
    return block


def _launch(part: memoryview, block: _Block, number: int) -> Launch:
    texts = {6: "", 7: ""}
    sizes = {10: (0, 0, 0), 11: (0, 0, 0)}
    places: dict[int, int] = {}
    metrics: dict[str, Metric] = {}
    for key, _, value in fields(part):
        if key in texts:
            texts[key] = _text(value)
        elif key in sizes:
            found = {n: _whole(v) for n, _, v in fields(_message(value))}
            sizes[key] = (found.get(1, 0), found.get(2, 0), found.get(3, 0))
        elif key in (22, 23):
            places[key] = _whole(value)
        elif key == 13:
            name, own = _metric(_message(value), block.strings)
            if own is not None:
                metrics[name] = own
    return Launch(
        number,
        texts[7] or texts[6],
        texts[6],
        sizes[10],
        sizes[11],
        places.get(22),
        places.get(23),
        block.process,
        metrics,
    )


def _metric(part: memoryview, strings: list[str]) -> tuple[str, Metric | None]:
    """Name and value of a metric; values of its instances, which follow and can be a hundred thousand, are passed over."""
    name = ""
    own: Metric | None = None
    for key, _, value in fields(part):
        if key == 1:
            place = _whole(value)
            name = strings[place] if place < len(strings) else f"metric {place}"
        elif key == 2:
            own = _value(_message(value))
        elif own is not None and name:
            break
    return name, own


def _value(part: memoryview) -> Metric | None:
    """A metric's value: text, a float of either width, or a whole number."""
    if len(part) == _LONG and part[0] == _DOUBLE:  # what most are
        return float(_FLOAT64(part, 1)[0])
    for key, _, value in fields(part):
        if key == 1:
            return _text(value)
        if key in (2, 3):
            return number_of(value, real=True)
        if key in (4, 5):
            return _whole(value)
    return None


def _whole(value: Value) -> int:
    return int(number_of(value, real=False))


def _message(value: Value) -> memoryview:
    if not isinstance(value, memoryview):
        raise WireError("a number stands where a message should")
    return value


def _text(value: Value) -> str:
    return text_of_bytes(bytes(_message(value)))
