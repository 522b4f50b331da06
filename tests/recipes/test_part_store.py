from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from alltrace.recipes.base import Part
from alltrace.recipes.part_store import PartStore

ROWS = 20_000  # 160 kB


def part(rank, first=0):
    return Part(rank, pa.table({"value": pa.array(range(first, first + ROWS), pa.int64())}))


def files(folder):
    return sorted(p.name for p in folder.rglob("*.arrow"))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_what_is_more_than_may_be_held_lies_in_files_until_it_is_taken(folder):
    with PartStore(held_bytes=200_000) as parts:
        for rank in (2, 0, 1):
            parts.keep(5, rank, part(rank, rank * 10))
        assert files(folder) == ["5-0.arrow", "5-1.arrow"]
        found = parts.take(5)
        assert [(p.rank, p.table.num_rows, p.table.column("value")[0].as_py()) for p in found] == [
            (0, ROWS, 0), (1, ROWS, 10), (2, ROWS, 20),
        ]  # fmt: skip
        assert files(folder) == []
        # what was taken no longer counts
        parts.keep(6, 0, part(0))
        assert files(folder) == []
        assert parts.take(7) == []
    assert list(folder.iterdir()) == []


def test_the_files_go_when_the_block_ends_early(folder):
    def stopped():
        with PartStore(held_bytes=0) as parts:
            parts.keep(1, 0, part(0))
            assert files(folder) == ["1-0.arrow"]
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        stopped()
    assert list(folder.iterdir()) == []


def test_small_parts_reasons_and_objects_stay_in_memory(folder):
    small = Part(0, pa.table({"value": [1]}))
    thing = Part(1, object())
    with PartStore(held_bytes=0) as parts:
        parts.keep(1, 0, small)
        parts.keep(1, 1, thing)
        parts.keep(2, 0, "it cannot")
        assert parts.has_objects(1)
        assert not parts.has_objects(2)
        assert parts.take(1) == [small, thing]
        assert parts.take(2) == ["it cannot"]
        assert Path(folder).is_dir()
        assert files(folder) == []
