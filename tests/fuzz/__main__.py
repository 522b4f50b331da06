"""The command of the fuzz tests; see the package."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from subprocess import CalledProcessError

from tests.fuzz.build import ROOT, NoSanitizersError, build, environment, plain_environment
from tests.fuzz.harness import FAILURES, Result, Run, replay
from tests.fuzz.targets import TARGETS

_PROGRESS_S = 10.0


def main() -> int:
    """Run what the command line says; 1 where something failed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description="Fuzz tests of the compiled loops, under sanitizers."
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("build", help="build the package with sanitizers into build/sanitized")
    running = verbs.add_parser("run", help="run mutated inputs")
    running.add_argument("--inputs", type=int, default=100_000, help="of each target (default: 100000)")
    running.add_argument("--seed", type=int, default=1, help="which inputs (default: 1)")
    running.add_argument("--targets", default="", help=f"separated by commas (default: all: {','.join(TARGETS)})")
    running.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time (default: one for each core)"
    )
    running.add_argument(
        "--failures", type=Path, default=FAILURES, help=f"folder for inputs that fail (default: {FAILURES})"
    )
    running.add_argument("--plain", action="store_true", help="without sanitizers, several times faster")
    again = verbs.add_parser("replay", help="run one input that failed again")
    again.add_argument("input", type=Path, help="the file, named TARGET-SEED-NUMBER.bin")
    given = parser.parse_args()
    refusal = _what_cannot_be(given)
    if refusal:
        return _refuse(refusal)
    try:
        target = ROOT if given.verb == "run" and given.plain else build()
    except NoSanitizersError as error:
        return _refuse(str(error))
    except CalledProcessError:
        return _refuse("the package does not compile with sanitizers; the compiler's messages are above")
    if given.verb == "build":
        print(target.relative_to(ROOT))
        return 0
    if given.verb == "replay":
        return replay(given.input, TARGETS[_target_of(given.input)])
    names = _names(given.targets)
    run = Run(
        {n: TARGETS[n] for n in names},
        given.inputs,
        given.seed,
        given.failures,
        plain_environment if given.plain else environment,
        on_result=_show,
        on_progress=_Progress(),
    )
    results = run.run(given.jobs)
    return int(any(r.failures for r in results))


def _target_of(path: Path) -> str:
    return path.name.partition("-")[0]


def _names(targets: str) -> list[str]:
    return [n for n in targets.split(",") if n] or list(TARGETS)


def _what_cannot_be(given: argparse.Namespace) -> str:
    """What is wrong with the arguments, before anything is built; empty if nothing is."""
    if given.verb == "replay" and (_target_of(given.input) not in TARGETS or not given.input.is_file()):
        return f"{given.input} is not a file of a failed input, named TARGET-SEED-NUMBER.bin"
    if given.verb == "run":
        unknown = [n for n in _names(given.targets) if n not in TARGETS]
        if unknown or given.inputs < 1 or given.jobs < 1:
            what = f"unknown target {unknown[0]!r}" if unknown else "--inputs and --jobs are at least 1"
            return f"{what}; targets are {', '.join(TARGETS)}"
    return ""


class _Progress:
    def __init__(self) -> None:
        self._last = self._began = time.monotonic()

    def __call__(self, share: float) -> None:
        now = time.monotonic()
        if now - self._last >= _PROGRESS_S:
            self._last = now
            print(f"{share:.0%} of all inputs after {now - self._began:.0f} s", file=sys.stderr, flush=True)


def _show(result: Result) -> None:
    print(result, flush=True)
    for path in result.failures:
        print(f"  {path}: run it again with `{sys.executable} -m tests.fuzz replay {path}`", flush=True)


def _refuse(message: str) -> int:
    print(message, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
