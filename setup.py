"""The compiled modules of the package; everything else about it stands in pyproject.toml.

Environment variables:
    ALLTRACE_SANITIZE: sanitizers to compile with, as the compiler names them, such as `address,undefined`.
        What they report ends the program and names the line of the .pyx. `make sanitize` sets it.
    ALLTRACE_LINETRACE: if set, every line of the .pyx is reported to coverage tools. The limited API has no line
        tracing, so such a build is for one version of Python. `make coverage-core` sets it, in a copy of the sources.
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
LINETRACE = bool(os.environ.get("ALLTRACE_LINETRACE"))
SHARED = (  # the code that Cython would write into every module, such as that of memoryviews
    "alltrace.core.cython_shared"
)
TRACE_MACROS = [("CYTHON_TRACE", "1"), ("CYTHON_TRACE_NOGIL", "1")]


def extensions() -> list[Extension]:
    """One extension for each `.pyx` of the core, and `SHARED`, which Cython writes."""
    compiling, linking = ["-O3", "-g0"], []
    if SANITIZERS:
        linking = [f"-fsanitize={SANITIZERS}", "-fno-sanitize-recover=all"]
        compiling = ["-Og", "-g1", "-fno-omit-frame-pointer", *linking]  # compiles in half the time of -O1
    elif LINETRACE:
        compiling = ["-O1", "-g0", "-w"]  # tracing adds code that compilers warn of
    sources = {f"alltrace.core.{source.stem}": source for source in sorted(CORE.glob("*.pyx"))}
    sources[SHARED] = CORE / "cython_shared.c"
    return [
        Extension(
            name,
            [str(source)],
            define_macros=TRACE_MACROS if LINETRACE else [LIMITED_API],
            py_limited_api=not LINETRACE,
            extra_compile_args=compiling,
            extra_link_args=linking,
        )
        for name, source in sources.items()
    ]


setup(
    ext_modules=cythonize(
        extensions(),
        compiler_directives={**DIRECTIVES, "linetrace": LINETRACE},
        shared_utility_qualified_name=SHARED,
        # reports of sanitizers name lines of the .pyx; all builds have them, so that a sanitized one uses the same C
        # sources
        emit_linenums=True,
        # `Cython.Coverage` looks for C sources beside the .pyx
        build_dir=None if LINETRACE else "build/cython",
        quiet=True,
    ),
    options={"bdist_wheel": {"py_limited_api": "cp311"}, "build_ext": {"parallel": os.cpu_count()}},
)
