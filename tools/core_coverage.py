"""Measures which lines of the compiled modules the tests run. `python tools/core_coverage.py [TESTS...]`, `make coverage-core`.

Coverage tools see no line of a module that is built for the limited API. So the package is built again without it, with line
tracing, from a copy of the sources in build/linetrace, and the tests run on that build, which is several times slower.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPY = ROOT / "build" / "linetrace"
BUILT = ("*.so", "*.c", "__pycache__")
COVERAGE = """\
[run]
plugins = Cython.Coverage
source = {source}
data_file = {copy}/coverage
[report]
include = {source}/core/*.pyx
show_missing = True
skip_empty = True
"""


def build() -> Path:
    """The `src` folder of a copy of the package that reports its lines; modules are compiled again where their source has changed."""
    source = COPY / "src" / "alltrace"
    shutil.copytree(ROOT / "src" / "alltrace", source, ignore=shutil.ignore_patterns(*BUILT), dirs_exist_ok=True)
    shutil.copy2(ROOT / "setup.py", COPY)
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"],
        cwd=COPY,
        env={**os.environ, "ALLTRACE_LINETRACE": "1"},
        check=True,
    )
    return source.parent


def main(tests: list[str]) -> int:
    """Build, run the tests, print the lines that none ran; the exit code of the tests."""
    source = build()
    settings = COPY / "coveragerc"
    settings.write_text(COVERAGE.format(source=source / "alltrace", copy=COPY), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(source), os.environ.get("PYTHONPATH", "")))}
    coverage = [sys.executable, "-m", "coverage"]
    command = [*coverage, "run", f"--rcfile={settings}", "-m", "pytest", "-p", "no:cacheprovider", "-q", "-n0", *tests]
    code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    # the report reads the C sources for which lines there are
    subprocess.run([*coverage, "report", f"--rcfile={settings}"], cwd=ROOT, env=environment, check=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["tests/core"]))
