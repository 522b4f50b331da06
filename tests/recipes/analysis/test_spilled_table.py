from __future__ import annotations

import tempfile

import pyarrow as pa
import pytest

from alltrace.recipes.analysis.spilled_table import shelved
from alltrace.trace.errors import InputError


def pieces(count, words=("a", "b")):
    for n in range(count):
        yield pa.table(
            {
                "n": pa.array([n, n + 1]),
                "word": pa.array([words[n % len(words)], f"w{n}"]).dictionary_encode(),
                "text": pa.array([f"t{n}", None]),
            }
        )


@pytest.mark.parametrize("held_bytes", [0, 100, 1 << 20])
@pytest.mark.parametrize("words", [("a", "b"), ("a", None)])
def test_rows_are_those_of_all_pieces_in_order(tmp_path, monkeypatch, held_bytes, words):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = shelved(pieces(5, words), held_bytes)
    wanted = [row for piece in pieces(5, words) for row in piece.to_pylist()]
    assert found.to_pylist() == wanted
    word = found.column("word")
    assert all(chunk.dictionary.equals(word.chunk(0).dictionary) for chunk in word.chunks)
    assert not list(tmp_path.iterdir()), "the file has no name any more"
    assert found.slice(3, 2).to_pylist() == wanted[3:5]


def test_what_is_large_does_not_lie_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = pa.total_allocated_bytes()
    column = pa.array(range(100_000), pa.int64())
    found = shelved((pa.table({"n": column}) for _ in range(40)), 1 << 20)
    assert found.num_rows == 4_000_000
    assert pa.total_allocated_bytes() - before < 3 << 20
    assert found.column("n").chunk(39).equals(column)


def test_one_piece_of_nothing():
    assert shelved(iter([pa.table({"n": pa.array([], pa.int64())})])).num_rows == 0


def test_a_full_disk_is_a_sentence(tmp_path, monkeypatch):
    class Full:
        def __init__(self, *_):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(InputError, match=r"an answer cannot be kept there .*No such file.*TMPDIR"):
        shelved(pieces(3), 0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(pa, "OSFile", Full)
    with pytest.raises(InputError, match=r"an answer cannot be kept there .*No space left.*TMPDIR"):
        shelved(pieces(3), 0)
    assert not list(tmp_path.iterdir())
