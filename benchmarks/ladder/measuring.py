"""Runs the training in separate processes: timed without a profiler, and recorded with one."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from alltrace.capture.profilers.tool import locate
from alltrace.trace.errors import AlltraceError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

    from benchmarks.ladder.causes import Cause, Settings

ROOT = Path(__file__).resolve().parents[2]
_PROBE = (
    "import json, torch; c = torch.cuda.is_available(); "
    "print(json.dumps([torch.__version__, torch.cuda.get_device_name() if c else None]))"
)


class TrainingError(AlltraceError):
    """A training, or its recording, that ended with an error; the message says which one, and its last words."""


@dataclass(frozen=True)
class Torch:
    """A Python with PyTorch.

    Attributes:
        python: How it is started.
        version: Of PyTorch.
        gpu: The name of the first GPU; None if it can use none.
    """

    python: str
    version: str
    gpu: str | None


def find_torch(python: str) -> Torch:
    """The PyTorch that a Python has.

    Raises:
        UsageError: It cannot be started, or has none.
    """
    try:
        done = subprocess.run([python, "-c", _PROBE], capture_output=True, text=True, check=False)
    except OSError as error:
        raise UsageError(
            f"--python: {python} cannot be started: {error.strerror}; name a Python that has PyTorch"
        ) from error
    if done.returncode:
        raise UsageError(
            f"--python: {python} cannot import torch ({_last_line(done.stderr)}); name one that can, or set"
            " ALLTRACE_TORCH_PYTHON"
        )
    try:
        version, gpu = json.loads(_last_line(done.stdout))
    except ValueError as error:
        raise UsageError(f"--python: {python} did not say which PyTorch it has; name a Python") from error
    return Torch(python, version, gpu)


@dataclass(frozen=True)
class Times:
    """The mean time of a step of each round, in ns, without a profiler: of the slow side and of the fast one."""

    slow_ns: tuple[float, ...]
    fast_ns: tuple[float, ...]

    @property
    def gained(self) -> float:
        """What the switch saves, as a share of the slow side's step: of medians; below 0 if it costs time."""
        return 1 - statistics.median(self.fast_ns) / statistics.median(self.slow_ns)

    @property
    def least_gained(self) -> float:
        """The same of the slowest fast round and the fastest slow one."""
        return 1 - max(self.fast_ns) / min(self.slow_ns)

    @property
    def most_gained(self) -> float:
        """The same of the fastest fast round and the slowest slow one."""
        return 1 - min(self.fast_ns) / max(self.slow_ns)


@dataclass(frozen=True)
class Bench:
    """How trainings are run.

    All that are timed run one after the other in one process, so both sides of a switch meet the same memory, clocks
    and caches. One that is recorded has a process of its own. Close it, or use it as a context, to end the process.

    Attributes:
        python: The Python that has PyTorch.
        device: `cpu` or `cuda`.
        warmup: Steps before those that count.
        steps: Steps that count.
    """

    python: str
    device: str
    warmup: int
    steps: int
    _trainers: list[_Trainer] = field(default_factory=list, init=False, repr=False)

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process of the timed trainings."""
        self.close()

    def close(self) -> None:
        """End the process of the timed trainings, if there is one; the next training that is timed starts another."""
        while self._trainers:
            self._trainers.pop().end()

    def time(self, cause: Cause, rounds: int) -> Times:
        """The time of a step on both sides, in turn, so that a machine that slows down slows both.

        Raises:
            TrainingError: A training ended with an error.
        """
        pairs = [(self.step_ns(cause.slow), self.step_ns(cause.fast)) for _ in range(rounds)]
        slow, fast = zip(*pairs, strict=True)
        return Times(slow, fast)

    def step_ns(self, settings: Settings) -> float:
        """The mean time of a step, without a profiler.

        Raises:
            TrainingError: The training ended with an error, or without a time.
        """
        if not self._trainers:
            self._trainers.append(_Trainer(self._command()))
        said = ""
        try:
            with self._neighbour() if settings.neighbour else nullcontext():
                said = self._trainers[0].answer(_line(settings))
            return float(json.loads(said)["step_ns"])
        except (ValueError, TypeError, KeyError) as error:
            self.close()
            raise TrainingError(
                f"the training ended without the time of a step; its last words: {_last_line(said)}"
            ) from error
        except BaseException:
            self.close()
            raise

    def record(self, settings: Settings, profiler: str, folder: Path) -> None:
        """Record the steps that count with `torch` or `nsys`; the report is in `folder`.

        Raises:
            TrainingError: The training or the profiler ended with an error.
        """
        window = f"{self.warmup}:{self.warmup + self.steps}"
        wrapper = [sys.executable, *"-m alltrace.cli.main capture exec --profiler".split(), profiler, "--steps", window]
        if profiler == "nsys":
            wrapper += ["--trace", "cuda,nvtx,osrt"]
        command = [*wrapper, "--strict", "--force", "--job", "ladder", "--output", str(folder), "--", *self._command()]
        with self._neighbour() if settings.neighbour else nullcontext():
            done = subprocess.run(
                command, input=_line(settings), capture_output=True, text=True, env=_environment(), check=False
            )
        if done.returncode:
            raise TrainingError(
                f"the training recorded with {profiler} ended with {done.returncode}: {_last_line(done.stderr)}"
            )

    def _command(self) -> list[str]:
        numbers = ["--device", self.device, "--warmup", str(self.warmup), "--steps", str(self.steps)]
        return [self.python, "-m", "benchmarks.ladder.training", *numbers]

    @contextmanager
    def _neighbour(self) -> Iterator[None]:
        """A second process on the device while the block runs; not below the profiler, which would record it too."""
        command = [self.python, "-m", "benchmarks.ladder.neighbour", "--device", self.device]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_environment()) as process:
            try:
                if process.stdout is None or process.stdout.readline() != "ready\n":
                    raise TrainingError("the process that shares the device ended before it had begun")
                yield
            finally:
                process.terminate()


class _Trainer:
    """A process that trains as it is asked to, one training after the other, until `end`."""

    def __init__(self, command: Sequence[str]) -> None:
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - open for as long as the process
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=self._errors, text=True, env=_environment()
        )

    def answer(self, line: str) -> str:
        """What it answers to a line; empty if it has ended.

        Raises:
            TrainingError: It has ended with an error.
        """
        questions, answers = self._process.stdin, self._process.stdout
        assert questions is not None
        assert answers is not None
        with suppress(BrokenPipeError):
            questions.write(line)
            questions.flush()
        said = answers.readline()
        if not said and self._process.wait():
            self._errors.seek(0)
            raise TrainingError(
                f"the training without a profiler ended with {self._process.returncode}:"
                f" {_last_line(self._errors.read())}"
            )
        return said

    def end(self) -> None:
        """End the process, whatever it does."""
        self._process.terminate()
        with suppress(BrokenPipeError), self._process:  # closes its pipes and waits for it
            pass
        self._errors.close()


def profilers(device: str) -> tuple[str, ...]:
    """The profilers that can record: PyTorch's own, and nsys where there is a GPU and it is installed."""
    if device != "cuda":
        return ("torch",)
    try:
        locate("nsys")
    except UsageError:
        return ("torch",)
    return ("torch", "nsys")


def _environment() -> dict[str, str]:
    """The environment of this process, with the packages of this checkout; they only need the standard library."""
    before = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src"), *([before] if before else [])])}


def _line(settings: Settings) -> str:
    return json.dumps(asdict(settings)) + "\n"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"
