import errno
import tempfile
from pathlib import Path

import pytest

from alltrace.trace.errors import InputError
from alltrace.trace.scratch import scratch_folder, writing_scratch


def test_a_folder_that_goes_with_its_block(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with scratch_folder("alltrace-x-") as folder:
        assert Path(folder).parent == tmp_path
        assert Path(folder).stat().st_mode & 0o777 == 0o700
        Path(folder, "file").write_text("a")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(InputError, match=r"/none: no temporary folder can be made \(No such file or directory\); .*TMPDIR"):
        scratch_folder("alltrace-x-")


def test_no_folder_anywhere_is_a_sentence(monkeypatch):
    def nowhere():
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    monkeypatch.setattr(tempfile, "mkdtemp", lambda *_, **__: nowhere())
    with pytest.raises(InputError, match=r"^TMPDIR: no temporary folder can be made \(No usable temporary directory"):
        scratch_folder("alltrace-x-")


def test_a_full_folder_is_a_sentence(tmp_path):
    with (
        pytest.raises(InputError, match=r": the rows cannot be written there \(No space left on device\); free some space"),
        writing_scratch(tmp_path, "the rows"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
