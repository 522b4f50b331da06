from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from alltrace.recipes.base import Part
from alltrace.recipes.execution.part_store import PartFiles, PartStore, StoredPart
from alltrace.trace.errors import InputError

ROWS = 20_000  # 160 kB


def part(rank, first=0):
    return Part(rank, pa.table({"value": pa.array(range(first, first + ROWS), pa.int64())}))


def files(folder):
    return sorted(p.name for p in folder.rglob("*.*") if p.name != ".alltrace-lock")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_what_is_more_than_may_be_held_lies_in_files_until_it_is_taken(folder):
    with PartStore(held_bytes=200_000) as parts:
        for rank in (2, 0, 1):
            parts.keep(rank, {5: part(rank, rank * 10)})
        assert files(folder) == ["5-0.arrow", "5-1.arrow"]
        found = parts.take(5)
        assert [(p.rank, p.table.num_rows, p.table.column("value")[0].as_py()) for p in found] == [
            (0, ROWS, 0), (1, ROWS, 10), (2, ROWS, 20),
        ]  # fmt: skip
        # what was taken no longer counts
        parts.keep(0, {6: part(0)})
        assert parts.take(7) == []
        # the files stay as long as somebody may look at them
        assert files(folder) == []
        assert parts.take(6) == [part(0)]
    assert list(folder.iterdir()) == []


def test_the_files_go_when_the_block_ends_early(folder):
    def stopped():
        with PartStore(held_bytes=0) as parts:
            parts.keep(0, {1: part(0), 2: Part(0, np.zeros(ROWS * 10))})
            assert files(folder) == ["0.objects", "1-0.arrow"]
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        stopped()
    assert list(folder.iterdir()) == []


def test_small_parts_reasons_and_objects_stay_in_memory(folder):
    small = Part(0, pa.table({"value": [1]}))
    thing = Part(1, [1, 2])
    with PartStore(held_bytes=0) as parts:
        parts.keep(0, {1: small, 2: "it cannot"})
        parts.keep(1, {1: thing})
        assert parts.has_objects(1)
        assert not parts.has_objects(2)
        assert parts.take(1) == [small, thing]
        assert parts.take(2) == ["it cannot"]
        assert Path(folder).is_dir()
        assert files(folder) == []


def test_a_table_in_a_file_is_read_anew_at_each_look(folder):
    with PartStore(held_bytes=0) as parts:
        parts.keep(3, {1: part(3)})
        (found,) = parts.take(1)
        first = found.table
        assert first.equals(found.table)
        assert first is not found.table
        assert (found.rank, files(folder)) == (3, ["1-3.arrow"])
        parts.take(2)
        assert files(folder) == []
        assert first.column("value").to_pylist() == list(range(ROWS))  # who has it keeps it


@dataclass
class Thing:
    numbers: np.ndarray
    words: list[str]
    other: Thing | None = None


def test_large_objects_of_a_rank_lie_in_one_file_and_share_what_they_shared(folder):
    with PartStore(held_bytes=0) as parts:
        for rank in range(2):
            graph = Thing(np.arange(rank, rank + 10 * ROWS), ["a"])
            about = Thing(np.arange(3, dtype=np.int32), ["b"], graph)
            parts.keep(rank, {1: Part(rank, graph), 2: Part(rank, about), 3: Part(rank, pa.table({"value": [rank]}))})
        del graph, about
        assert files(folder) == ["0.objects", "1.objects"]
        assert [parts.has_objects(n) for n in (1, 2, 3, 4)] == [True, True, False, False]
        graphs = parts.take(1)
        assert files(folder) == []
        assert parts.has_objects(2)
        about = parts.take(2)
        for rank in range(2):
            graph = graphs[rank].table
            assert (graphs[rank].rank, about[rank].rank) == (rank, rank)
            assert about[rank].table.other is graph
            assert np.array_equal(graph.numbers, np.arange(rank, rank + 10 * ROWS))
            assert about[rank].table.numbers.tolist() == [0, 1, 2]
            assert (graph.words, about[rank].table.words) == (["a"], ["b"])
            graph.numbers[0] = -1  # in memory only: what a question works with is its own
            assert graph.numbers[:2].tolist() == [-1, rank + 1]
        assert [p.table.column("value").to_pylist() for p in parts.take(3)] == [[0], [1]]
        assert not parts.has_objects(2)
    assert list(folder.iterdir()) == []


def test_what_cannot_be_written_stays_in_memory(folder):
    thing = Part(0, lambda: np.zeros(10 * ROWS))
    with PartStore(held_bytes=0) as parts:
        parts.keep(0, {1: thing})
        assert parts.take(1) == [thing]
        assert files(folder) == []


def test_one_question_keeps_what_is_little_and_no_table_in_memory(folder):
    small, thing, first, second = Part(0, pa.table({"value": [1]})), Part(1, np.zeros(10 * ROWS)), part(2), part(3, 7)
    with PartFiles(held_bytes=200_000) as kept:
        assert [kept.stored(p) for p in (small, thing, first)] == [small, thing, first]
        stored = kept.stored(second)
        assert isinstance(stored, StoredPart)
        assert (stored.rank, files(folder)) == (3, ["0-3.arrow"])
        assert stored.table.equals(second.table)
    assert list(folder.iterdir()) == []


def test_rows_are_read_from_a_file_as_often_as_asked(folder):
    words = pa.chunked_array([pa.array(["a", None]).dictionary_encode(), pa.array(["b", "a"]).dictionary_encode()])
    whole = Part(
        4, pa.table({"value": pa.array(range(4 * ROWS), pa.int64()), "word": pa.chunked_array(words.chunks * ROWS)})
    )
    with PartFiles(held_bytes=0) as kept:
        stored = kept.stored(whole)
        for _ in range(2):
            assert pa.Table.from_batches(stored.batches()).to_pylist() == whole.table.to_pylist()
        assert [b.num_rows for b in Part(0, pa.table({"n": [1, 2]})).batches()] == [2]


@pytest.mark.parametrize("thing", [part(0), Part(0, Thing(np.arange(10 * ROWS), ["a"]))])
def test_a_folder_that_is_not_there_and_a_full_disk_are_a_sentence(folder, monkeypatch, thing):
    monkeypatch.setattr("tempfile.tempdir", str(folder / "none"))
    with pytest.raises(InputError, match=r"none: no temporary folder can be made \(No such file.*TMPDIR"):
        PartStore(held_bytes=0).keep(0, {1: thing})
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setattr(PartFiles, "_path", lambda *_: Path("/dev/full"))  # each write to it finds no room
    with (
        PartStore(held_bytes=0) as parts,
        pytest.raises(InputError, match=r"ranks contributed cannot .* \(No space left.*TMPDIR"),
    ):
        parts.keep(0, {1: thing})
    assert list(folder.iterdir()) == []
