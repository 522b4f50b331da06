"""Where tests find real reports and a real Nsight Systems."""

from __future__ import annotations

import fcntl
import math
import os
import shutil
import signal
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.thorough import cases

# How long an example takes depends on what else the machine does.
settings.register_profile("untimed", deadline=None, max_examples=cases(40, 100))
settings.load_profile("untimed")

# A shell that starts the tests in the background has them ignore these, and so would every program that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def _no_waits_for_the_disk() -> Iterator[None]:
    """Files of tests need not outlive a power failure, and a run of two ranks made by hand would wait for the disk
    three times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield


def _corpus_root() -> Path | None:
    given = os.environ.get("ALLTRACE_DATA")
    root = Path(given) if given else Path(__file__).resolve().parents[2] / "shared" / "data"
    return root if root.is_dir() else None


def _nsys() -> Path | None:
    given = os.environ.get("ALLTRACE_NSIGHT")
    if given:
        tool = Path(given) / "nsys" / "target-linux-x64" / "nsys"
        return tool if tool.is_file() else None
    found = shutil.which("nsys")
    return Path(found) if found else None


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of real reports; the test is skipped where there is none."""
    root = _corpus_root()
    if root is None:
        pytest.skip("no real reports: set ALLTRACE_DATA")
    return root


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """Gives a folder that a function filled, once for all processes of a run of tests; not to be changed."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent

    def made(name: str, fill: Callable[[Path], object]) -> Path:
        folder, whole = base / f"once-{name}", base / f"once-{name}.whole"
        with (base / f"once-{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not whole.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                fill(folder)
                whole.touch()
        return folder

    return made


@pytest.fixture(scope="session")
def nsys() -> Path:
    """A real nsys; the test is skipped where there is none."""
    tool = _nsys()
    if tool is None:
        pytest.skip("no Nsight Systems: set ALLTRACE_NSIGHT")
    return tool


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives another try to what runs a real nsys, and makes most cases of a sampled test slow ones.

    The agent of nsys crashes now and then on a busy machine, and the report with it. The kernel logs it as
    `*1GlobalProcess[PID]: segfault`, some four times in the hundreds of starts of a run of all tests. What is wrong
    with us fails every time.
    """
    sampled: dict[str, list[pytest.Item]] = {}
    for item in items:
        if "nsys" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.flaky(reruns=2))
        if item.get_closest_marker("sampled"):
            sampled.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases_of_one in sampled.values():
        share = cases_of_one[0].get_closest_marker("sampled").args[0]
        drawn = sorted(cases_of_one, key=lambda item: zlib.crc32(item.nodeid.encode()))
        for item in drawn[math.ceil(len(drawn) / share) :]:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.nightly)
