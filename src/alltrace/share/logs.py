"""Logs of a job: only lines of NCCL and of training steps stay, without what stands around them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import IO

from alltrace.readers.nccl_log import grammar as g
from alltrace.readers.text import TextLog
from alltrace.readers.training_log.formats import parse, parse_list
from alltrace.share.words import Words

_TIME = re.compile(rb"\d\d:\d\d:\d\d|\d{10}")
_PART_OF_CALL = re.compile(rb"(?:\S*\s){0,40}?(?:stream|comm|datatype|recvbuff) (?:0x[0-9a-f]+|\(nil\)|\d+)")
_QUOTED = re.compile(r"([\"'])(?![\s\d.eE%+-]*\1)(?:(?!\1)[^:=]){0,400}\1(?!\s*:)")
_POD = re.compile(r"\[pod/[^\]]*\]")
_WORDY = re.compile(r"(?<=\|)([^|:]{0,80}:)\s*(?![\s\d.,+-]|nan|inf)[^|]*")
_SET_TO = re.compile(r"(set by environment to )(?![\w.,:^=+-]{1,24}\s*$).*", re.DOTALL)


def is_log(path: Path) -> bool:
    """Whether some line near the beginning is NCCL's or a training step's."""
    with TextLog(path) as log:
        block = next(log.blocks(), (b"", True))[0]
    return b"\0" not in block[:4096] and any(_line(line, str) is not None for line in block.splitlines())


def write_log(source: Path, target: IO[bytes], words: Words) -> int:
    """Write a log with the same number of lines; how many of them are empty now."""
    emptied = 0
    with TextLog(source) as log:
        for block, _whole in log.blocks():
            for line in block.splitlines(keepends=True):
                bare = line.rstrip(b"\r\n")
                text = _line(bare, words)
                emptied += text is None and bool(bare.strip())
                target.write((text or "").encode("utf-8", "surrogateescape") + line[len(bare) :])
    return emptied


def _line(raw: bytes, words: Callable[[str], str]) -> str | None:
    line = g.ANSI.sub(b"", raw)
    head = g.HEADER.search(line) if b" NCCL " in line else None
    if head is not None:
        record = _lead(line[: head.start()]) + line[head.start() :]
        return words(_SET_TO.sub(r"\1(removed)", record.decode("utf-8", "surrogateescape")))
    version = g.VERSION.search(line)
    if version is not None:
        return version[0].decode("utf-8", "surrogateescape")
    text = line.decode("utf-8", "surrogateescape")
    if parse(text, ()) is not None or parse_list(text) or g.STEP.search(line):
        return _WORDY.sub(r"\1 0", _QUOTED.sub('""', words(_POD.sub("", text))))
    part = _PART_OF_CALL.match(line)  # of a call that another process's output interrupted
    return line[part.start() :].decode("utf-8", "surrogateescape") if part is not None else None


def _lead(lead: bytes) -> bytes:
    """Of what a launcher put before a line: times, and numbers of ranks."""
    units, at = [], 0
    while (unit := g.PREFIX_UNIT.match(lead, at)) is not None and unit.end() > at:
        units += [unit[0]] if unit.lastgroup or _TIME.search(unit[0]) or unit[0].isspace() else []
        at = unit.end()
    return b"".join(units)
