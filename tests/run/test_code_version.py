"""The version of the code changes with the sources that determine results, and with nothing else."""

from __future__ import annotations

import pytest

from alltrace import __version__
from alltrace.run.derived import code_version, source_hash


@pytest.fixture
def package(tmp_path):
    for name, text in (("core/a.pyx", "one"), ("recipes/deep/b.py", "two"), ("cli/c.py", "three")):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize("name", ["core/a.pyx", "recipes/deep/b.py", "run/new.py"])
def test_a_source_changes_the_hash(package, name):
    before = source_hash(package)
    (package / name).parent.mkdir(exist_ok=True)
    (package / name).write_text("other")
    assert source_hash(package) != before


@pytest.mark.parametrize("name", ["cli/c.py", "core/a.so", "recipes/deep/b.pyc"])
def test_other_files_do_not(package, name):
    before = source_hash(package)
    (package / name).write_text("other")
    assert source_hash(package) == before


def test_the_version_comes_first():
    version, _, digest = code_version().partition("+")
    assert version == __version__
    assert len(digest) == 32
