"""Compressed files, whole and broken."""

from __future__ import annotations

import gzip
import os
import random
import zlib

import pyarrow as pa
import pytest

from alltrace.readers.text import Packed

TEXT = b"".join(b"%d %x\n" % (n, random.Random(n).getrandbits(40)) for n in range(30_000))


def read(path, codec, count=10_000):
    packed = Packed(path, codec, pa.PythonFile(path.open("rb"), mode="r"))
    found = b""
    while part := packed.read(count):
        assert len(part) <= count
        found += part
    packed.close()
    return found, packed.broken


@pytest.mark.parametrize("cut", [30, 1_000, 100_000, -9, -1])
def test_gzip_that_breaks_off_is_read_up_to_the_break(tmp_path, cut):
    path = tmp_path / os.fsdecode(b"a\xff.gz")
    data = gzip.compress(TEXT)[:cut]
    path.write_bytes(data)
    assert read(path, "gzip") == (zlib.decompressobj(31).decompress(data), True)


def test_a_second_member_that_breaks_off(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(TEXT) + gzip.compress(TEXT)[:-1])
    assert read(path, "gzip") == (TEXT * 2, True)


@pytest.mark.parametrize(
    ("behind", "broken"), [(b"", False), (b"\0" * 5_000, False), (b"\0" * 5_000 + b"x", True), (b"x", True)]
)
def test_zeros_behind_gzip_are_no_break(tmp_path, behind, broken):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(TEXT) + behind)
    assert read(path, "gzip") == (TEXT, broken)


def test_a_file_that_is_gone_when_it_breaks_off(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(TEXT)[:-1])
    packed = Packed(path, "gzip", pa.PythonFile(path.open("rb"), mode="r"))
    path.unlink()
    found = packed.read(2 * len(TEXT))
    assert (TEXT.startswith(found), packed.broken) == (True, True)


def test_zstd_that_breaks_off_is_read_up_to_its_last_whole_block(tmp_path):
    path = tmp_path / "a.zst"
    data = pa.compress(TEXT, "zstd", asbytes=True)
    path.write_bytes(data)
    assert read(path, "zstd") == (TEXT, False)
    path.write_bytes(data + bytes(100))
    assert read(path, "zstd") == (TEXT, True)
    path.write_bytes(data[: len(data) // 2])
    found, broken = read(path, "zstd")
    assert broken
    assert (len(found) % (128 << 10), TEXT.startswith(found)) == (0, True)
    assert len(found) > len(TEXT) // 2 - (128 << 10)
