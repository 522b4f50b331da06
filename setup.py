"""The compiled modules of the package; everything else about it stands in pyproject.toml.

Environment variables, for the targets of the Makefile:
    ALLTRACE_SANITIZE: sanitizers to compile with, as the compiler names them, such as `address,undefined`.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

CORE = Path("src/alltrace/core")
# from Python 3.11 on, whatever the version: the first one whose limited API has buffers
LIMITED_API = ("Py_LIMITED_API", "0x030B0000")
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": True,
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
    "freethreading_compatible": True,
    "show_performance_hints": False,  # they advise against checked indices
}


def extensions() -> list[Extension]:
    """One extension for each `.pyx` of the core."""
    sanitizers = os.environ.get("ALLTRACE_SANITIZE")
    instrumented = [f"-fsanitize={sanitizers}", "-fno-omit-frame-pointer", "-g1"] if sanitizers else ["-g0"]
    return [
        Extension(
            f"alltrace.core.{source.stem}",
            [str(source)],
            define_macros=[LIMITED_API],
            py_limited_api=True,
            extra_compile_args=["-O1" if sanitizers else "-O3", *instrumented],
            extra_link_args=instrumented,
        )
        for source in sorted(CORE.glob("*.pyx"))
    ]


setup(
    ext_modules=cythonize(extensions(), compiler_directives=DIRECTIVES, build_dir="build/cython", quiet=True),
    options={"bdist_wheel": {"py_limited_api": "cp311"}, "build_ext": {"parallel": os.cpu_count()}},
)
