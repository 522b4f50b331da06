"""Blocks of whole lines."""

from __future__ import annotations

import gzip
import os

import pytest

from alltrace.readers.text import LONGEST_LINE, TextLog
from alltrace.trace.errors import InputError


def test_blocks_end_with_lines(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(b"one\ntwo\nthree")
    with TextLog(path) as log:
        assert list(log.blocks(5)) == [(b"one\n", True), (b"two\n", True), (b"three", False)]
    with TextLog(path) as log:
        assert list(log.lines()) == [b"one", b"two", b"three"]


def test_a_line_without_end_comes_in_pieces(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(b"x" * (3 * LONGEST_LINE))
    with TextLog(path) as log:
        sizes = [len(block) for block, _whole in log.blocks(1 << 16)]
    assert sum(sizes) == 3 * LONGEST_LINE
    assert max(sizes) <= LONGEST_LINE + (1 << 16)


def test_what_is_no_file(tmp_path):
    with pytest.raises(InputError, match="folder"):
        TextLog(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        TextLog(tmp_path / "b")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="not a regular file"):
        TextLog(tmp_path / "pipe")


@pytest.mark.parametrize("packed", [False, True])
def test_a_name_that_is_no_utf8(tmp_path, packed):
    path = tmp_path / os.fsdecode(b"rank\xff.log")
    path.write_bytes(gzip.compress(b"one\ntwo\n") if packed else b"one\ntwo\n")
    with TextLog(path) as log:
        assert list(log.lines()) == [b"one", b"two"]


def test_a_small_log_that_breaks_off(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(gzip.compress(b"one\ntwo\nthree")[:-5])
    with TextLog(path) as log:
        assert list(log.lines()) == [b"one", b"two", b"three"]
    assert log.damage == "the gzip data ends early; everything before was read"
    path.write_bytes(gzip.compress(b"one\ntwo\n") + bytes(512))
    with TextLog(path) as log:
        assert list(log.lines()) == [b"one", b"two"]
    assert log.damage is None
