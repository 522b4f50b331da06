"""Runs targets in worker processes, several at a time, and collects what failed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.build import ROOT, environment
from tests.fuzz.worker import STATE

FAILURES = ROOT / "build" / "fuzz-failures"
_SHARD = 10_000  # inputs of a worker process
_MOST_FAILURES = 5  # of a target, after which it is given up
_LONGEST_S = 60.0  # of one input
_LONGEST_START_S = 600.0  # of a worker process: imports, and making the corpus
_POLL_S = 0.05
_TMPFS = Path("/dev/shm")
_MOST_REPORT = 20_000


@dataclass
class Result:
    """What the inputs of a target gave.

    Attributes:
        target: Its name.
        inputs: How many were run.
        answered: How many of them gave an answer.
        refused: How many gave an AlltraceError.
        failures: For each failure the file with the input; a .txt beside it has the report.
        seconds: The time of its worker processes.
    """

    target: str
    inputs: int = 0
    answered: int = 0
    refused: int = 0
    failures: list[Path] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        each = 1000 * self.seconds / max(self.inputs, 1)
        line = (
            f"{self.target}: {self.inputs} inputs, {self.answered} answered, {self.refused} refused,"
            f" {len(self.failures)} failed"
        )
        return f"{line}; {self.seconds:.0f} s, {each:.1f} ms each"


@dataclass
class Run:
    """One run of some targets.

    Attributes:
        modules: The module of each target, by name.
        inputs: Inputs of each.
        seed: Which inputs.
        failures: The folder for inputs that failed.
        environment: Variables of the worker processes, given a folder for temporary files.
        longest_s: Seconds that one input may take.
        on_result: Called with each result once it is whole.
        on_progress: Called with the share of all inputs that are done, now and then.
    """

    modules: Mapping[str, str]
    inputs: int
    seed: int
    failures: Path = FAILURES
    environment: Callable[[Path], dict[str, str]] = environment
    longest_s: float = _LONGEST_S
    on_result: Callable[[Result], None] = lambda _result: None
    on_progress: Callable[[float], None] = lambda _share: None

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._done = 0
        self._results = {name: Result(name) for name in self.modules}

    def run(self, jobs: int) -> list[Result]:
        """Run everything in `jobs` processes at a time."""
        shards = [(name, first) for name in self.modules for first in range(0, self.inputs, self._shard(jobs))]
        left = {name: sum(n == name for n, _ in shards) for name in self.modules}

        def shard(name: str, first: int) -> None:
            self._run_shard(name, first, min(self._shard(jobs), self.inputs - first))
            with self._lock:
                left[name] -= 1
                if not left[name]:
                    self.on_result(self._results[name])

        with ThreadPoolExecutor(jobs) as pool:
            for future in [pool.submit(shard, *s) for s in shards]:
                future.result()
        return list(self._results.values())

    def _shard(self, jobs: int) -> int:
        return max(1, min(_SHARD, -(-self.inputs // jobs)))

    def _run_shard(self, name: str, first: int, count: int) -> None:
        """Run inputs in a worker process; after a crash in another one, from the input behind it."""
        while count > 0 and len(self._results[name].failures) < _MOST_FAILURES:
            scratch = Path(
                tempfile.mkdtemp(prefix="alltrace-fuzz-", dir=_TMPFS if os.access(_TMPFS, os.W_OK) else None)
            )
            try:
                done = self._run_worker(name, first, count, scratch)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
            first, count = first + done, count - done

    def _run_worker(self, name: str, first: int, count: int, folder: Path) -> int:
        """Start a worker process and wait for it; how many inputs it took off the list."""
        result = self._results[name]
        temporary = folder / "tmp"
        temporary.mkdir()
        command = [
            sys.executable,
            *"-W error -m tests.fuzz.worker".split(),
            self.modules[name],
            str(self.seed),
            str(first),
        ]
        began = time.monotonic()
        with (folder / "output").open("wb") as output:
            process = subprocess.Popen(
                [*command, str(count), str(folder)],
                cwd=folder,
                env=self.environment(temporary),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
            try:
                ending = self._watch(process, folder, result)
            finally:
                process.kill()
                process.wait()
        done, answered, refused, failed = _state(folder)
        with self._lock:
            result.seconds += time.monotonic() - began
            result.inputs += done
            result.answered += answered
            result.refused += refused
            for path in sorted(folder.glob("*.bin")):
                self._keep(result, path.stem, path, path.with_suffix(".txt").read_text())
        if ending is None:
            return done if failed < _MOST_FAILURES and done else count
        report = (folder / "output").read_text(errors="replace")[-_MOST_REPORT:]
        if not (folder / "input").is_file() or done == count:
            raise RuntimeError(f"the worker of {name} {ending} outside of an input:\n{report}")
        with self._lock:
            result.inputs += 1
            self._done += 1
            self._keep(result, str(first + done), folder / "input", f"{ending}\n{report}")
        return done + 1

    def _watch(self, process: subprocess.Popen[bytes], folder: Path, result: Result) -> str | None:
        """Wait for a worker process: None where it ended well or was stopped for its failures, else how it ended."""
        seen, since = 0, time.monotonic()
        while True:
            code = process.poll()
            done, _, _, failed = _state(folder)
            if done > seen:
                with self._lock:
                    self._done += done - seen
                    self.on_progress(self._done / (self.inputs * len(self.modules)))
                seen, since = done, time.monotonic()
            if code is not None:
                return None if code == 0 else f"ended with {code}"
            if failed + len(result.failures) >= _MOST_FAILURES:
                return None
            longest_s = self.longest_s if (folder / "input").is_file() else _LONGEST_START_S
            if time.monotonic() - since > longest_s:
                return f"did not end within {longest_s:.0f} s"
            time.sleep(_POLL_S)

    def _keep(self, result: Result, number: str, data: Path, report: str) -> None:
        self.failures.mkdir(parents=True, exist_ok=True)
        path = self.failures / f"{result.target}-{self.seed}-{number}.bin"
        shutil.copyfile(data, path)
        path.with_suffix(".txt").write_text(report)
        if path not in result.failures:  # an input of the corpus fails in each worker process
            result.failures.append(path)


def replay(path: Path, module: str, variables: Callable[[Path], dict[str, str]] = environment) -> int:
    """Run one input again, its report on the terminal; 0 where it does not fail."""
    with tempfile.TemporaryDirectory(prefix="alltrace-fuzz-") as scratch:
        command = [sys.executable, "-W", "error", "-m", "tests.fuzz.worker", module, "--replay", str(path.resolve())]
        return subprocess.run(command, cwd=scratch, env=variables(Path(scratch)), check=False).returncode


def _state(folder: Path) -> tuple[int, int, int, int]:
    path = folder / "state"
    raw = path.read_bytes() if path.is_file() else b""
    return STATE.unpack(raw) if len(raw) == STATE.size else (0, 0, 0, 0)
