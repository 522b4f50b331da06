"""Which tests execute a line: from one run of the tests that measures coverage, kept in a file; and which files mirror
a module."""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from functools import cache, cached_property
from pathlib import Path

from coverage import CoverageData

from tests.mutation import plugin
from tests.mutation.places import PACKAGE, ROOT

KEPT = ROOT / ".cache" / "mutation"
JUDGES = "not slow and not oracle and not corpus and not browser"
"""The tests that judge: those that need nothing beside the tree, and end soon."""
_CONFIG = "[run]\nsource_pkgs = alltrace\nrelative_files = true\nbranch = false\ndisable_warnings = no-sysmon\n"


def record(folder: Path = KEPT, tests: tuple[str, ...] = ("tests",)) -> None:
    """Run the tests once, and keep which lines each of them executes, how long it takes, and the source of that time.

    Raises:
        RuntimeError: The tests did not run to their end.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "settings.ini").write_text(_CONFIG, encoding="utf-8")
    environment = {
        **os.environ,
        "COVERAGE_FILE": str(folder / "coverage"),
        plugin.DURATIONS: str(folder / "durations.json"),
    }
    measured = ("--cov=alltrace", "--cov-context=test", "--cov-report=", f"--cov-config={folder / 'settings.ini'}")
    options = ("-q", "-n", "auto", "-p", "no:cacheprovider", "-p", "tests.mutation.plugin", "-m", JUDGES)
    command = [sys.executable, "-m", "pytest", *options, *measured, *tests]
    ended = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    if ended.returncode not in (0, 1) or not (folder / "durations.json").exists():
        raise RuntimeError(f"the tests ended with {ended.returncode}: nothing says which of them execute a line")
    shutil.copytree(ROOT / PACKAGE, folder / "source", ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.c"))


class Contexts:
    """What `record` has kept.

    Args:
        folder: Where it is.
    """

    def __init__(self, folder: Path = KEPT) -> None:
        self.folder = folder
        self._data = CoverageData(str(folder / "coverage"))
        self._data.read()
        self._measured = {f.partition(f"{PACKAGE}/")[2]: f for f in self._data.measured_files()}
        self.seconds: dict[str, float] = json.loads((folder / "durations.json").read_text(encoding="utf-8"))

    @cached_property
    def _by_file(self) -> dict[str, list[str]]:
        tests = defaultdict(list)
        for test in self.seconds:
            tests[test.partition("::")[0]].append(test)
        return dict(tests)

    def of_file(self, test_file: str) -> list[str]:
        """The tests of a file; the file itself, for all of them, if it was written later."""
        recorded = (self.folder / "durations.json").stat().st_mtime_ns
        later = (ROOT / test_file).is_file() and (ROOT / test_file).stat().st_mtime_ns > recorded
        return [test_file] if later else self._by_file.get(test_file, [])

    def of_line(self, file: str, line: int) -> set[str]:
        """The tests that execute a line of today's source; what a fixture executes counts for all tests of its file."""
        if file not in self._measured:
            return set()
        lines = self._lines(file)
        tests: set[str] = set()
        for context in lines.get(self._line_then(file, line, frozenset(lines)), ()):
            test, _, phase = context.rpartition("|")
            if phase == "run":
                tests.add(test)
            elif test:
                tests.update(self.of_file(test.partition("::")[0]))
        return tests

    @cache  # noqa: B019 - it lives as long as the program
    def _lines(self, file: str) -> dict[int, list[str]]:
        return self._data.contexts_by_lineno(self._measured[file])

    def _line_then(self, file: str, line: int, executed: frozenset[int]) -> int:
        """The line at the time of recording: the same text, or what stood before it; of a statement of many lines the
        first."""
        now = (ROOT / PACKAGE / file).read_text(encoding="utf-8").splitlines()
        then = (self.folder / "source" / file).read_text(encoding="utf-8").splitlines()
        at = line
        if now != then:
            for old, new, size in difflib.SequenceMatcher(None, then, now, autojunk=False).get_matching_blocks():
                if size and new < line:
                    at = old + min(size, line - new)
        while at > 1 and at not in executed:
            at -= 1
        return at


def mirrors(file: str, root: Path = ROOT) -> list[str]:
    """The test files that mirror a module: those of its name; else near ones that import it; else of its users; else
    near ones."""
    own = _mirrors(file, root) or sorted({t for user in _users(file, root) for t in _mirrors(user, root)})
    return own or [p.relative_to(root).as_posix() for p in sorted(_near(file, root).glob("test_*.py"))]


def _near(file: str, root: Path) -> Path:
    folder = (root / "tests" / file).parent
    return folder if folder.is_dir() else folder.parent


def _mirrors(file: str, root: Path) -> list[str]:
    path = Path(file)
    folder = root / "tests" / path.parent
    name = path.parent.name if path.stem == "__init__" else path.stem.strip("_")
    named = [p for f in (folder, folder.parent) for p in (f / f"test_{name}.py", *sorted(f.glob(f"test_{name}_*.py")))]
    tests = [p for p in named if p.is_file() and (root / "tests") in p.parents]
    if not tests:
        tests = [p for p in sorted(_near(file, root).rglob("test_*.py")) if _imports(file).search(_text(p))]
    return [p.relative_to(root).as_posix() for p in tests]


def _users(file: str, root: Path) -> list[str]:
    """The modules of the same package, or of the one around it, that import this one."""
    package = root / PACKAGE
    near = (package / file).parent
    around = near if near.parent in (package, root / "src") else near.parent
    modules = (p for p in around.rglob("*.py") if p != package / file and _imports(file).search(_text(p)))
    return [p.relative_to(package).as_posix() for p in modules]


def _imports(file: str) -> re.Pattern[str]:
    """What a text holds that imports a module."""
    *parents, name = (p for p in ("alltrace", *Path(file).with_suffix("").parts) if p != "__init__")
    package = re.escape(".".join(parents))
    return re.compile(rf"{package}\.{name}\b|from {package} import (?:[\w, ]*|\([^)]*)\b{name}\b")


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def chosen_tests(file: str, line: int, contexts: Contexts | None, seconds: float) -> list[str]:
    """The tests that judge a change, most likely first: those that mirror the file, then those that execute the line.

    Without contexts, the answer is the files that mirror it. Test files near the module come first, then quick ones, as
    many as take `seconds` together when nothing is changed.
    """
    near = mirrors(file)
    if contexts is None:
        return near
    by_file: dict[str, set[str]] = {f: set(contexts.of_file(f)) for f in near}
    for test in contexts.of_line(file, line):
        test_file = test.partition("::")[0]
        if test_file not in by_file.get(test_file, ()):
            by_file.setdefault(test_file, set()).add(test)
    folder = Path("tests", file).parent

    def rank(test_file: str) -> tuple[bool, int, float]:
        shared = len(os.path.commonpath([folder, Path(test_file).parent]))
        return test_file not in near, -shared, sum(contexts.seconds.get(t, 0.0) for t in by_file[test_file])

    chosen: list[str] = []
    for test_file in sorted(by_file, key=rank):
        for test in sorted(by_file[test_file], key=lambda t: contexts.seconds.get(t, 0.0)):
            seconds -= contexts.seconds.get(test, 0.0)
            if seconds < 0 and chosen:
                return chosen
            chosen.append(test)
    return chosen
