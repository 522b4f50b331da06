"""Which lines of the compiled modules tests run. `python tools/core_coverage.py [TESTS...]`, `make coverage-core`.

Coverage tools see no line of a module that is built for the limited API. So the package is built again without it, with
line tracing, from a copy of the sources in build/linetrace, and the tests run on that build, which is several times
slower.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPY = ROOT / "build" / "linetrace"
TESTS = [
    "tests/core",
    "tests/trace/test_intervals.py",
    "tests/trace/test_nesting.py",
]  # the last two ask `intervals.pyx`
BUILT = ("*.so", "*.c", "__pycache__")
SETTINGS = """\
[run]
plugins = Cython.Coverage
source = {source}
data_file = {copy}/coverage
[report]
include = {source}/core/*.pyx
show_missing = True
ignore_errors = True
skip_empty = True
"""
# the two blank lines before a function that returns a struct, and the one before the imports
RETURNS_STRUCT = re.compile(r"\n\n\n(?=cdef (?:inline )?(?!Py_)[A-Z]\w* \w+\()")
UNTRACED = "\n@cython.linetrace(False)\n@cython.profile(False)\n"
BEFORE_IMPORTS = re.compile(r"\n\n(?=from|cimport)")


def build() -> Path:
    """The `src` folder of a copy of the package that reports its lines; compiles again what has changed."""
    source = COPY / "src" / "alltrace"
    shutil.copytree(ROOT / "src" / "alltrace", source, ignore=shutil.ignore_patterns(*BUILT), dirs_exist_ok=True)
    for module in (source / "core").glob("*.pyx"):
        _trace_no_structs(module)
    shutil.copy2(ROOT / "setup.py", COPY)
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", "src"],
        cwd=COPY,
        env={**os.environ, "ALLTRACE_LINETRACE": "1"},
        check=True,
    )
    return source.parent


def _trace_no_structs(module: Path) -> None:
    """Trace no function that returns a struct, of which Cython 3.3 reads pointers; lines keep their numbers."""
    text, times = module.read_text(encoding="utf-8"), module.stat()
    changed, functions = RETURNS_STRUCT.subn(UNTRACED, text)
    if functions:
        module.write_text(BEFORE_IMPORTS.sub("\ncimport cython\n", changed, count=1), encoding="utf-8")
        os.utime(module, ns=(times.st_atime_ns, times.st_mtime_ns))  # so that what has not changed is not compiled


def main(tests: list[str]) -> int:
    """Build, run the tests, print the lines that none ran; the exit code of the tests."""
    source = build()
    settings = COPY / "coveragerc"
    settings.write_text(SETTINGS.format(source=source / "alltrace", copy=COPY), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(source), os.environ.get("PYTHONPATH", "")))}
    coverage = [sys.executable, "-m", "coverage"]
    command = [*coverage, "run", f"--rcfile={settings}", "-m", "pytest", f"--config-file={ROOT / 'pyproject.toml'}"]
    command += ["-p", "no:cacheprovider", "-q", "-n0", *(str(ROOT / test) for test in tests)]
    # the plugin finds the sources from the folder that they were compiled in
    code = subprocess.run(command, cwd=COPY, env=environment, check=False).returncode
    subprocess.run(
        [*coverage, "json", "-q", f"--rcfile={settings}", "-o", "lines.json"], cwd=COPY, env=environment, check=True
    )
    subprocess.run([*coverage, "report", f"--rcfile={settings}"], cwd=COPY, env=environment, check=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or TESTS))
