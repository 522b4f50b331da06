"""The build backend: setuptools, with a C compiler from PyPI if the machine has none.

PEP 517 lets a project bring its own backend. This one requires the package `ziglang`, which compiles C with `zig cc`,
only if neither `CC`, the compiler that Python was built with, nor `cc`, `gcc` or `clang` can be found.

Run as a script, from the project's folder, it builds the compiled modules into the source tree, again where a source
has changed.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from setuptools import build_meta
from setuptools.build_meta import build_sdist as build_sdist
from setuptools.build_meta import get_requires_for_build_sdist as get_requires_for_build_sdist
from setuptools.build_meta import prepare_metadata_for_build_editable as prepare_metadata_for_build_editable
from setuptools.build_meta import prepare_metadata_for_build_wheel as prepare_metadata_for_build_wheel

if TYPE_CHECKING:
    from collections.abc import Iterator

# pip hides what a backend prints, but names the requirement that it cannot download: the version that is excluded,
# which does not exist, shows the user what to install instead
_ZIG = "ziglang>=0.13,!=0+no.c.compiler.found.install.gcc.or.clang"
_NO_COMPILER = (
    "alltrace: no C compiler was found; install gcc or clang, or PyPI's ziglang (100 MB), which pip downloads if it can"
)
_NO_HEADERS = (
    "alltrace: the C headers of Python are missing ({header} does not exist); install them "
    "(python3-dev on Debian and Ubuntu, python3-devel on Fedora, RHEL and SUSE)"
)
_ZIG_CC = Path(__file__).with_name("zig_cc.py")
_BUILD = Path("build")
_CORE = Path("src/alltrace/core")


def compiler() -> str | None:
    """The command of a C compiler on this machine, with its arguments; None if there is none.

    A compiler that the user names is used as it is; if it is wrong, setuptools reports it.
    """
    named = os.environ.get("CC")
    if named:
        return named
    usual = (sysconfig.get_config_var("CC"), "cc", "gcc", "clang")
    return next((str(command) for command in usual if command and shutil.which(command.split()[0])), None)


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """The requirements to build a wheel, in addition to pyproject.toml."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), *_compiler_requirements()]


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """The requirements to build an editable install, in addition to pyproject.toml."""
    return [*build_meta.get_requires_for_build_editable(config_settings), *_compiler_requirements()]


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Build a wheel; returns its file name."""
    for old in _BUILD.glob(
        "lib*"
    ):  # else the wheel would have the modules of earlier builds that are gone from the sources
        shutil.rmtree(old)
    with _compiling():
        return str(build_meta.build_wheel(wheel_directory, config_settings, metadata_directory))


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Build the wheel of an editable install; returns its file name."""
    with _compiling():
        return str(build_meta.build_editable(wheel_directory, config_settings, metadata_directory))


def build_in_place() -> None:
    """Build the compiled modules into the source tree where a source is newer, or all after setup.py."""
    sources = [*_CORE.glob("*.pyx"), *_CORE.glob("*.pxd"), Path("setup.py")]
    modules = [
        _CORE / f"{stem}.abi3.so" for stem in (*(s.stem for s in sources if s.suffix == ".pyx"), "cython_shared")
    ]
    if all(built.exists() for built in modules):
        oldest = min(built.stat().st_mtime for built in modules)
        if all(source.stat().st_mtime < oldest for source in sources):
            return
        if Path("setup.py").stat().st_mtime >= oldest:  # its flags and directives are the same for every module
            shutil.rmtree(_BUILD, ignore_errors=True)
    if compiler() is None and importlib.util.find_spec("ziglang") is None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.check_call([*pip, *_compiler_requirements()])
    with _compiling():
        subprocess.check_call([sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"])
    for built in modules:  # a source that was touched and compiles to the same is done, too
        built.touch()


def _compiler_requirements() -> list[str]:
    if compiler():
        return []
    print(_NO_COMPILER, file=sys.stderr)
    return [_ZIG]


@contextmanager
def _compiling() -> Iterator[None]:
    """Tell setuptools which compiler to use, during the block, and tell the user what a failed build lacks.

    Raises:
        SystemExit: There is no compiler, or the build failed and Python's headers are missing.
    """
    before = dict(os.environ)
    os.environ.update(_compiler_variables())
    try:
        yield
    except (Exception, SystemExit) as error:
        header = Path(sysconfig.get_path("include"), "Python.h")
        if not header.exists():
            raise SystemExit(_NO_HEADERS.format(header=header)) from error
        raise
    finally:
        os.environ.clear()
        os.environ.update(before)


def _compiler_variables() -> dict[str, str]:
    found = compiler()
    if found in (os.environ.get("CC", ""), sysconfig.get_config_var("CC")):
        return {}
    if found is not None:
        return {"CC": found, "LDSHARED": f"{found} -shared"}
    if importlib.util.find_spec("ziglang") is None:
        raise SystemExit(_NO_COMPILER)
    zig = shlex.join((sys.executable, str(_ZIG_CC)))
    cache = str(_BUILD.absolute() / "zig")  # zig's own default is a folder in HOME, which may be missing
    return {"CC": zig, "LDSHARED": f"{zig} -shared", "ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}


if __name__ == "__main__":
    build_in_place()
