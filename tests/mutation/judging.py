"""Makes a change in a copy of the tree and runs the tests that should notice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.mutation import plugin
from tests.mutation.contexts import JUDGES
from tests.mutation.places import PACKAGE, ROOT, Place

VERDICTS = ("killed", "timeout", "survived", "untested", "unsure")
"""A test failed; the tests did not end, which counts as killed; all passed; there is none; it fails without the change
too, or there was no time."""


class Tree:
    """A copy of the checkout in a folder, in which changes are made and taken back.

    Args:
        folder: An empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("src", "tests", "tools", "docs", "examples", "benchmarks"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("build", "*.c"), symlinks=True)
        for name in ("pyproject.toml", "setup.py", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile"):
            shutil.copy2(ROOT / name, folder)

    def judged(self, place: Place, tests: Sequence[str], limit_s: float) -> str:
        """One of `VERDICTS`; `tests` are ids of tests or files of them."""
        if not tests:
            return "untested"
        path = self.folder / PACKAGE / place.file
        source, times = path.read_bytes(), path.stat()
        failed = self.folder / "failed"
        failed.unlink(missing_ok=True)
        try:
            path.write_text(place.applied(source.decode()), encoding="utf-8")
            if path.suffix == ".pyx":
                self._compile(path)
            verdict = self.tested(tests, limit_s)
        finally:
            path.write_bytes(source)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            if path.suffix == ".pyx":
                for module in (ROOT / PACKAGE / "core").glob(f"{path.stem}.*.so"):
                    shutil.copy2(module, path.parent)
        if verdict == "killed":
            again = [failed.read_text(encoding="utf-8")] if failed.exists() else tests[:1]
            return "killed" if self.tested(again, limit_s) == "survived" else "unsure"
        if verdict == "timeout" and self.tested(tests, limit_s) != "survived":
            return "unsure"
        return verdict

    def tested(self, tests: Sequence[str], limit_s: float) -> str:
        """`survived` where the tests pass, `killed` where one fails, `timeout` where they do not end, `untested`
        without any."""
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(self.folder / "src"), str(self.folder))),
            "PYTHONDONTWRITEBYTECODE": "1",
            plugin.FAILED: str(self.folder / "failed"),
        }
        for name in ("COVERAGE_FILE", plugin.DURATIONS, plugin.TESTS):
            environment.pop(name, None)
        if any("::" in t for t in tests):
            wanted = self.folder / "wanted"
            wanted.write_text("\n".join(tests), encoding="utf-8")
            environment[plugin.TESTS] = str(wanted)
        files = [f for f in dict.fromkeys(t.partition("::")[0] for t in tests) if (self.folder / f).is_file()]
        if not files:
            return "untested"
        options = ("-x", "-q", "-n0", "-p", "no:cacheprovider", "-p", "tests.mutation.plugin", "-m", JUDGES)
        started = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, *files],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            code = started.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, 9)
            started.wait()
            return "timeout"
        return {0: "survived", 5: "untested"}.get(code, "killed")

    def _compile(self, module: Path) -> None:
        """Compile one module, in a folder with no other, and put the result in its place."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            core = Path(folder) / PACKAGE / "core"
            core.mkdir(parents=True)
            for source in (module, *module.parent.glob("*.pxd"), module.parent / "__init__.py"):
                shutil.copy2(source, core)
            shutil.copy2(self.folder / "setup.py", folder)
            command = [sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", "src"]
            # a change in the list that does not compile is a mistake
            subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for built in core.glob("*.so"):
                shutil.copy2(built, module.parent)
