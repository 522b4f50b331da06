import gzip
from pathlib import Path

import pytest

from alltrace.export.atomic_output import Draft, Output, check_folder
from alltrace.trace.errors import InputError, UsageError


def test_files_are_put_in_place_at_the_end(tmp_path):
    with Draft(tmp_path / "a.txt") as draft:
        draft.file(tmp_path / "a.txt").write_text("whole")
        assert not (tmp_path / "a.txt").exists()
    assert (tmp_path / "a.txt").read_text() == "whole"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def half_written(path, error):
    with Draft(path) as draft, Output(draft.file(path), gzip=False) as out:
        out.write(b"half")
        raise error


def test_nothing_is_left_after_an_error(tmp_path):
    (tmp_path / "a.txt").write_text("old")
    with pytest.raises(ZeroDivisionError):
        half_written(tmp_path / "a.txt", ZeroDivisionError())
    assert (tmp_path / "a.txt").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_a_full_disk_is_one_sentence(tmp_path):
    with pytest.raises(InputError, match=r"No space left on device.*free some space"):
        half_written(tmp_path / "a", OSError(28, "No space left on device"))
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_what_waits_is_noticed_at_the_end(tmp_path):
    with pytest.raises(OSError, match="No space"), Output(Path("/dev/full"), gzip=True) as out:
        out.write(b"1")


def test_a_missing_folder_is_one_sentence(tmp_path):
    with pytest.raises(InputError, match="No such file"), Draft(tmp_path / "no" / "a"):
        pass


def test_compressed_output_reads_back(tmp_path):
    with Output(tmp_path / "a.gz", gzip=True) as out:
        out.write(b"one\n")
        out.write(memoryview(b"two\n"))
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()) == b"one\ntwo\n"


def test_a_folder_with_something_in_it_is_refused(tmp_path):
    (tmp_path / "x").mkdir()
    check_folder(tmp_path / "x")
    assert not (tmp_path / "x").exists()
    (tmp_path / "x").write_text("")
    with pytest.raises(UsageError, match="exists"):
        check_folder(tmp_path / "x")
