"""A plugin of pytest: keeps how long tests take, and runs those of a list in its order. `-p tests.mutation.plugin`."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path

import pytest

DURATIONS = "MUTATION_DURATIONS"
"""The environment variable that names the file that gets the seconds of each test."""
TESTS = "MUTATION_TESTS"
"""The one that names a file with the ids of tests, or files of them, a line each; no other test is run."""
FAILED = "MUTATION_FAILED"
"""The one that names a file that gets the id of the first test that failed."""

_seconds: defaultdict[str, float] = defaultdict(float)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the listed tests, in the order of the list."""
    if TESTS in os.environ:
        lines = Path(os.environ[TESTS]).read_text(encoding="utf-8").splitlines()
        order = {line: number for number, line in enumerate(lines)}
        places = {i: order.get(i.nodeid, order.get(i.nodeid.partition("::")[0])) for i in items}
        config.hook.pytest_deselected(items=[i for i in items if places[i] is None])
        items[:] = sorted((i for i in items if places[i] is not None), key=lambda i: places[i] or 0)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Adds up the time of a test, and keeps the first that fails."""
    _seconds[report.nodeid] += report.duration
    failed = os.environ.get(FAILED)
    if failed and report.outcome == "failed" and not Path(failed).exists():
        Path(failed).write_text(report.nodeid, encoding="utf-8")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Writes the times."""
    if DURATIONS in os.environ and not hasattr(session.config, "workerinput"):
        Path(os.environ[DURATIONS]).write_text(json.dumps(_seconds), encoding="utf-8")
