import errno
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import alltrace
from alltrace.trace.errors import InputError
from alltrace.trace.scratch import LOCK, scratch_folder, scratch_folder_if_possible, writing_scratch


def test_a_folder_that_goes_with_its_block(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with scratch_folder("alltrace-x-") as folder:
        assert Path(folder).parent == tmp_path
        assert Path(folder).stat().st_mode & 0o777 == 0o700
        Path(folder, "file").write_text("a")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(
        InputError, match=r"/none: no temporary folder can be made \(No such file or directory\); .*TMPDIR"
    ):
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
        pytest.raises(
            InputError, match=r": the rows cannot be written there \(No space left on device\); free some space"
        ),
        writing_scratch(tmp_path, "the rows"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")


MAKES = """
import sys
from alltrace.trace.scratch import scratch_folder
folder = scratch_folder("alltrace-test-")
print(folder.name, flush=True)
sys.stdin.read()
"""


def started(place):
    return subprocess.Popen(
        [sys.executable, "-c", MAKES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(place)},
    )


def made_old(place):
    long_ago = time.time() - 3600
    for path in (*place.glob("*"), *place.glob("*/.alltrace-lock")):
        os.utime(path, (long_ago, long_ago))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGHUP])
def test_the_next_process_removes_what_a_killed_one_has_left_and_nothing_else(tmp_path, how):
    other = tmp_path / "alltrace-3-0123"  # such as of a rank, with a raw capture
    other.mkdir()
    (other / "report.qdstrm").write_text("raw")
    with started(tmp_path) as killed, started(tmp_path) as running:
        left, used = killed.stdout.readline().strip(), running.stdout.readline().strip()
        killed.send_signal(how)
        killed.wait(20)
        assert Path(left).exists()
        made_old(tmp_path)
        with started(tmp_path) as following:
            new = following.stdout.readline().strip()
            assert {str(p) for p in tmp_path.iterdir()} == {str(other), used, new}
            following.communicate("")
        running.communicate("")
    assert list(tmp_path.iterdir()) == [other]


def test_a_folder_that_was_just_made_is_left_alone(tmp_path):
    with started(tmp_path) as killed:
        left = killed.stdout.readline().strip()
        killed.kill()
        killed.wait(20)
    with started(tmp_path) as following:
        following.stdout.readline()
        assert Path(left).exists()
        following.communicate("")


def test_no_other_module_makes_temporary_folders():
    """Only these folders are swept after a process was killed."""
    package = Path(alltrace.__file__).parent
    modules = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if re.search(r"mkdtemp|TemporaryDirectory\(", path.read_text(encoding="utf-8"))
    }
    assert not modules


def test_a_folder_that_rarely_is_needed_may_be_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = scratch_folder_if_possible("alltrace-x-")
    assert folder is not None
    assert Path(folder.name).parent == tmp_path
    folder.cleanup()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    assert scratch_folder_if_possible("alltrace-x-") is None


@pytest.mark.parametrize("below", [False, True])
def test_a_folder_beside_an_output_is_not_said_to_need_another_tmpdir(tmp_path, monkeypatch, below):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path if below else tmp_path / "temporary"))
    with pytest.raises(InputError, match=r"TMPDIR" if below else r"name a file or folder in a writable one") as raised:
        scratch_folder("alltrace-x-", tmp_path / "none")
    assert ("TMPDIR" in str(raised.value)) == below


def test_what_a_process_of_another_host_has_left_stays(tmp_path):
    with started(tmp_path) as killed:
        left = Path(killed.stdout.readline().strip())
        killed.kill()
        killed.wait(20)
    (left / LOCK).write_bytes(b"another-host")
    made_old(tmp_path)
    with started(tmp_path) as following:
        following.stdout.readline()
        assert left.exists()
        following.communicate("")


def test_the_lock_is_given_up_before_its_folder_is_removed(tmp_path, monkeypatch):
    """As a file that is open stays in its folder on NFS."""
    folder = scratch_folder("alltrace-x-", tmp_path)
    closed = []
    monkeypatch.setattr(tempfile.TemporaryDirectory, "cleanup", lambda self: closed.append(self._lock.closed))
    folder.cleanup()
    monkeypatch.undo()
    folder.cleanup()
    assert closed == [True]
    assert not list(tmp_path.iterdir())
