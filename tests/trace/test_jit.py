from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from llvmlite import binding as llvm

import alltrace

keeps_code = pytest.mark.skipif(
    llvm.llvm_version_info < (16,), reason="with typed pointers code is left to Numba: Numba 0.62 is the first without"
)

USE = (
    "import warnings; warnings.simplefilter('error')\n"
    "import numpy as np\n"
    "from alltrace.readers.nsys.sqlite import kernels\n"
    "print(kernels.__file__, kernels.local_size(5000, 4096))\n"
    "import sys; print('numba' in sys.modules)\n"
)


def run(source, use=USE, **environment):
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("NUMBA_", "XDG_"))}
    done = subprocess.run(
        [sys.executable, "-c", use],
        capture_output=True,
        text=True,
        env={**clean, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1", **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture
def source(tmp_path):
    """The package, where nothing is compiled yet."""
    home = Path(alltrace.__file__).parent
    shutil.copytree(home, tmp_path / "src" / "alltrace", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "src"


def kept_files(folder):
    return list(folder.rglob("*_kernels_local_size.*.kernel"))


@keeps_code
@pytest.mark.slow
def test_code_is_kept_in_the_folder_given(tmp_path, source):
    for compiles in (True, False):
        file, size, compiler_loaded = run(source, NUMBA_CACHE_DIR=str(tmp_path / "kept"))
        assert file.startswith(str(source))
        assert int(size) == 908
        assert compiler_loaded == str(compiles)  # what is kept runs without it
    assert len(kept_files(tmp_path / "kept")) == 1
    assert not list(source.rglob("*.kernel"))


@keeps_code
@pytest.mark.slow
def test_code_is_kept_beside_the_source_or_for_the_user(tmp_path, source):
    assert run(source, XDG_CACHE_HOME=str(tmp_path / "cache"))[2] == "True"
    assert [path.parent.name for path in kept_files(source)] == ["__pycache__"]
    for path in kept_files(source):
        path.unlink()
        path.parent.rmdir()
        path.parent.touch()
    for compiles in (True, False):
        assert run(source, XDG_CACHE_HOME=str(tmp_path / "cache"))[2] == str(compiles)
    assert len(list((tmp_path / "cache" / "alltrace" / "code").glob("*.kernel"))) == 1


@pytest.mark.slow
def test_it_works_where_nothing_can_be_written(tmp_path, source):
    (tmp_path / "file").touch()
    blocked = str(tmp_path / "file" / "below")  # below a file, not even root can make a folder
    for folder in [path for path in source.rglob("*") if path.is_dir()]:
        (folder / "__pycache__").touch()
    assert int(run(source, NUMBA_CACHE_DIR=blocked, HOME=blocked, XDG_CACHE_HOME=blocked)[1]) == 908
    assert int(run(source, HOME=blocked, XDG_CACHE_HOME=blocked)[1]) == 908
    assert not list(tmp_path.rglob("*.nbc")) + list(tmp_path.rglob("*.kernel"))


@pytest.mark.slow
def test_a_function_that_is_compiled_as_numba_does_may_call_plain_ones(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from alltrace.trace import jit\n"
        "@jit.plain_kernel('int64(int64)')\n"
        "def more(n):\n    return n + 1\n"
        "@jit.kernel('int64(int64)')\n"
        "def twice(n):\n    return 2 * more(n)\n"
    )
    home = str(Path(alltrace.__file__).parent.parent)
    for _ in range(2):
        found = run(os.pathsep.join([str(tmp_path), home]), "import mine; print(mine.twice(20))", NUMBA_CACHE_DIR=str(tmp_path))
        assert found == ["42"]
