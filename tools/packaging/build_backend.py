"""The build backend: that of setuptools, with a C compiler from PyPI where the machine has none.

PEP 517 lets a project bring its own backend. This one asks for the package `ziglang`, whose `zig cc` compiles C, only where neither
`CC`, the compiler that Python was built with, nor `cc` can be found.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import build_sdist as build_sdist
from setuptools.build_meta import get_requires_for_build_sdist as get_requires_for_build_sdist
from setuptools.build_meta import prepare_metadata_for_build_editable as prepare_metadata_for_build_editable
from setuptools.build_meta import prepare_metadata_for_build_wheel as prepare_metadata_for_build_wheel

_ZIG = "ziglang>=0.13"


def has_compiler() -> bool:
    """Whether this machine has a C compiler that setuptools would use."""
    named = (os.environ.get("CC"), sysconfig.get_config_var("CC"), "cc")
    return any(name and shutil.which(name.split()[0]) for name in named)


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """What a wheel is built with, beside what pyproject.toml says."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), *_compiler()]


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """What an editable install is built with, beside what pyproject.toml says."""
    return [*build_meta.get_requires_for_build_editable(config_settings), *_compiler()]


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Build a wheel; returns its file name."""
    _use_compiler()
    return str(build_meta.build_wheel(wheel_directory, config_settings, metadata_directory))


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Build the wheel of an editable install; returns its file name."""
    _use_compiler()
    return str(build_meta.build_editable(wheel_directory, config_settings, metadata_directory))


def _compiler() -> list[str]:
    return [] if has_compiler() else [_ZIG]


def _use_compiler() -> None:
    if has_compiler():
        return
    zig = f"{sys.executable} -m ziglang cc"
    os.environ["CC"] = zig
    os.environ["LDSHARED"] = f"{zig} -shared"
