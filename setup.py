"""The compiled modules of the package; everything else about it stands in pyproject.toml.

Environment variables:
    ALLTRACE_SANITIZE: sanitizers to compile with, as the compiler names them, such as `address,undefined`.
        What they report ends the program and names the line of the .pyx. `make sanitize` sets it.
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
SANITIZERS = os.environ.get("ALLTRACE_SANITIZE")


def extensions() -> list[Extension]:
    """One extension for each `.pyx` of the core."""
    optimized = ["-O3", "-g0"]
    instrumented = [f"-fsanitize={SANITIZERS}", "-fno-sanitize-recover=all"]
    return [
        Extension(
            f"alltrace.core.{source.stem}",
            [str(source)],
            define_macros=[LIMITED_API],
            py_limited_api=True,
            extra_compile_args=["-O1", "-g1", "-fno-omit-frame-pointer", *instrumented] if SANITIZERS else optimized,
            extra_link_args=instrumented if SANITIZERS else [],
        )
        for source in sorted(CORE.glob("*.pyx"))
    ]


setup(
    ext_modules=cythonize(
        extensions(),
        compiler_directives=DIRECTIVES,
        emit_linenums=bool(SANITIZERS),
        build_dir="build/cython-sanitized" if SANITIZERS else "build/cython",
        quiet=True,
    ),
    options={"bdist_wheel": {"py_limited_api": "cp311"}, "build_ext": {"parallel": os.cpu_count()}},
)
