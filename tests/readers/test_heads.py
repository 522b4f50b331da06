from __future__ import annotations

import os

from alltrace.readers.heads import head_of


def test_only_a_regular_file_is_read(tmp_path):
    (tmp_path / "file").write_bytes(b"abcdef")
    os.mkfifo(tmp_path / "pipe")
    pipe = os.open(tmp_path / "pipe", os.O_RDWR)  # has a writer and data, so a reader that opens it would not wait
    try:
        os.write(pipe, b"abcdef")
        heads = {name: head_of(tmp_path / name, 3) for name in ("file", "pipe", "", "missing")}
    finally:
        os.close(pipe)
    assert heads == {"file": b"abc", "pipe": b"", "": b"", "missing": b""}
