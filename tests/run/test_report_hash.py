from __future__ import annotations

import pytest
import xxhash

from alltrace.run.report_hash import Content, content_hash, file_stamps, is_as_it_was
from alltrace.trace.errors import InputError


@pytest.mark.parametrize("size", [0, 1, 256 * 9000])  # the last is more than a block
def test_the_hash_of_a_file_is_that_of_its_bytes(tmp_path, size):
    data = (bytes(range(251)) * (size // 251 + 1))[:size]
    (tmp_path / "a").write_bytes(data)
    assert content_hash(tmp_path / "a") == (len(data), xxhash.xxh3_128_hexdigest(data))


def test_names_count_in_a_folder(tmp_path):
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "a").write_bytes(b"1")
    first = content_hash(tmp_path / "f")
    (tmp_path / "f" / "a").rename(tmp_path / "f" / "b")
    second = content_hash(tmp_path / "f")
    assert (first[0], second[0]) == (1, 1)
    assert first[1] != second[1]


def test_a_file_that_changed_shows_it(tmp_path):
    file = tmp_path / "a"
    file.write_bytes(b"one")
    content = Content(file_stamps(file), "hash")
    assert content.size_bytes == 3
    assert is_as_it_was(file, content)
    file.write_bytes(b"three")
    assert not is_as_it_was(file, content)
    file.unlink()
    assert not is_as_it_was(file, content)


def test_what_is_not_there_is_an_error(tmp_path):
    with pytest.raises(InputError, match="it cannot be read"):
        content_hash(tmp_path / "none")
