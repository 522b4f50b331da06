"""Known causes of lost time: what removing each gains, and what `diagnose` says. `python -m benchmarks.ladder`.

Each cause is a switch of one training. Both sides are timed alternately without a profiler, in one process. Then the
slow side is recorded with the PyTorch profiler, and with nsys if there is a GPU and it is installed, and `diagnose`
runs on the report.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from alltrace.trace.errors import EXIT_DONE, EXIT_INPUT, EXIT_USAGE, AlltraceError, UsageError
from benchmarks.first_findings import diagnosed
from benchmarks.ladder.causes import CAUSES, Cause
from benchmarks.ladder.measuring import Bench, Torch, find_torch, profilers
from benchmarks.ladder.table import Measured, text

_WARMUP = 5
_INTERRUPTED = 130


def chosen(names: list[str] | None) -> tuple[Cause, ...]:
    """The causes of these names; None for all.

    Raises:
        UsageError: There is no cause of a name.
    """
    known = {cause.name: cause for cause in CAUSES}
    for name in names or ():
        if name not in known:
            raise UsageError.unknown("cause", name, known)
    return tuple(known[name] for name in names) if names else CAUSES


def device_of(torch: Torch, asked: str | None) -> str:
    """The requested device; by default a GPU if there is one.

    Raises:
        UsageError: A GPU is requested and PyTorch can use none.
    """
    if asked == "cuda" and torch.gpu is None:
        raise UsageError(f"--device cuda: PyTorch {torch.version} of {torch.python} can use no GPU; use --device cpu")
    return asked or ("cpu" if torch.gpu is None else "cuda")


def measure(cause: Cause, bench: Bench, rounds: int, folder: Path) -> Measured:
    """Time both sides of a cause, record the slow one into `folder`, and ask for its diagnosis.

    Raises:
        AlltraceError: A training ended with an error, or its report cannot be read.
    """
    _say(f"{cause.name}: {cause.switch}, {rounds} rounds")
    times = bench.time(cause, rounds)
    found = {}
    for profiler in profilers(bench.device):
        _say(f"{cause.name}: recording with {profiler}")
        place = folder / cause.name / profiler
        bench.record(cause.slow, profiler, place)
        found[profiler] = diagnosed([place], folder / "cache")
    return Measured(cause, times, bench.device == "cuda", found)


@dataclass(frozen=True)
class Page:
    """What has been measured, which is written after each cause if there is a file for it.

    Attributes:
        heading: The line on the machine.
        file: Where it is written; None if nowhere.
        measured: The causes that were measured.
        left_out: The others, with the reason.
    """

    heading: str
    file: Path | None
    measured: list[Measured] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """The page as it is now."""
        return text(self.heading, self.measured, self.left_out)

    def write(self) -> None:
        """Write the page as it is now.

        Raises:
            OSError: The file cannot be written.
        """
        if self.file is not None:
            self.file.write_text(self.text(), encoding="utf-8")


def measure_all(causes: tuple[Cause, ...], bench: Bench, rounds: int, folder: Path, page: Page) -> int:
    """Measure every cause, into the page; the code to exit with. An interruption ends it with what has been measured.

    Raises:
        OSError: The page cannot be written.
    """
    code = EXIT_DONE
    page.write()  # before anything is measured, so that a file that cannot be written costs no measurement
    for number, cause in enumerate(causes):
        try:
            if cause.needs_cuda and bench.device != "cuda":
                page.left_out[cause.name] = "needs a GPU"
            else:
                page.measured.append(measure(cause, bench, rounds, folder))
        except AlltraceError as error:
            page.left_out[cause.name] = str(error)
            code = EXIT_INPUT
            _say(f"{cause.name}: {error}")
        except KeyboardInterrupt:
            page.left_out.update(dict.fromkeys((c.name for c in causes[number:]), "interrupted"))
            code = _INTERRUPTED
            break
        finally:
            page.write()
    return code


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _positive(value: str) -> int:
    number = int(value)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1; {value} was given")
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ladder", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", action="append", metavar="CAUSE", help=f"of {', '.join(c.name for c in CAUSES)}; can be repeated"
    )
    parser.add_argument(
        "--steps", type=_positive, default=20, help="steps that are timed and recorded; default: %(default)s"
    )
    parser.add_argument(
        "--rounds", type=_positive, default=3, help="timings of each side, in turn; default: %(default)s"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: a GPU where there is one")
    python = os.environ.get("ALLTRACE_TORCH_PYTHON") or sys.executable
    parser.add_argument(
        "--python", default=python, help="a Python that has PyTorch; default: ALLTRACE_TORCH_PYTHON, then this one"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the reports there")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the table there; default: standard output")
    return parser


def main() -> int:
    """Measure what the arguments say; the code to exit with."""
    given = _parser().parse_args()
    try:
        causes = chosen(given.only)
        torch = find_torch(given.python)
        device = device_of(torch, given.device)
    except UsageError as error:
        _say(f"error: {error}")
        return EXIT_USAGE
    name = torch.gpu if device == "cuda" else f"no GPU, {len(os.sched_getaffinity(0))} cores of {platform.machine()}"
    heading = f"{name}; PyTorch {torch.version}; {given.rounds} rounds of {given.steps} steps after {_WARMUP}"
    try:
        with tempfile.TemporaryDirectory() as scratch, Bench(torch.python, device, _WARMUP, given.steps) as bench:
            measured = Page(heading, given.output)
            code = measure_all(causes, bench, given.rounds, given.keep or Path(scratch), measured)
        if given.output is None:
            print(measured.text(), end="")
    except OSError as error:
        _say(f"error: {error.filename}: {error.strerror}; name a folder or file that can be written")
        return EXIT_USAGE
    return code


if __name__ == "__main__":
    sys.exit(main())
