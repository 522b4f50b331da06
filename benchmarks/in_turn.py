"""Two versions, run alternately: `python -m benchmarks.in_turn OTHER --runs N -- ARGUMENTS` prints their times.

OTHER is a checkout of the other version, such as `git worktree add --detach FOLDER COMMIT` makes; ARGUMENTS are passed
to `alltrace`, in which `{new}` is the name of a new folder for each run; `--questions` instead runs seven different
questions on one large report, which is new to the cache that they share, and `--imports REPORT...` imports each report,
one after the other, with the times of each. On a machine with a speed that changes from minute to minute, differences
of 5 % are visible only in this way: the mean difference is of the pairs, without the tenth at either end, and comes
with its standard error.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import tomllib
from pathlib import Path

from benchmarks.data import large_report
from benchmarks.measure import Taken, median, run_in_sequence

_HERE = Path(__file__).resolve().parents[1]
_QUESTIONS = (
    ("kernels",),
    ("breakdown",),
    ("overlap",),
    ("gaps",),
    ("stats", "cuda_api_sum"),
    ("stats", "nvtx_sum"),
    ("stats", "cuda_gpu_mem_time_sum"),
)
_LEFT_OUT = 10  # one in this many pairs, at either end


def compare(trees: tuple[Path, Path], commands: list[list[str]], runs: int) -> tuple[list[Taken], list[Taken]]:
    """What each run of the commands took, by the sources of either tree; one run of each beforehand does not count."""
    taken: tuple[list[Taken], list[Taken]] = ([], [])
    for round_number in range(runs + 1):
        for which in random.sample((0, 1), 2):
            with tempfile.TemporaryDirectory() as folder:
                filled_in = [
                    [*command_of(trees[which]), *(a.replace("{new}", f"{folder}/new") for a in arguments)]
                    for arguments in commands
                ]
                found = run_in_sequence(filled_in, {"PYTHONPATH": str(trees[which] / "src")})
            if round_number:
                taken[which].append(found)
    return taken


def command_of(tree: Path) -> list[str]:
    """The command line of a checkout, as its installed script would start it: versions have other entry points."""
    script = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]["alltrace"]
    module, function = script.split(":")
    return [sys.executable, "-c", f"import sys; from {module} import {function}; sys.exit({function}())"]


def _questions(report: Path) -> list[list[str]]:
    return [[*question, str(report), "--format", "csv", "--cache-dir", "{new}"] for question in _QUESTIONS]


def difference(first: list[Taken], second: list[Taken]) -> tuple[float, float]:
    """How many seconds longer the second took, the mean of pairs without the extremes, and its standard error."""
    found = sorted(b.wall_s - a.wall_s for a, b in zip(first, second, strict=True))
    middle = found[len(found) // _LEFT_OUT : len(found) - len(found) // _LEFT_OUT]
    error = statistics.stdev(middle) / len(middle) ** 0.5 if len(middle) > 1 else 0.0
    return statistics.mean(middle), error


def main() -> None:
    """Run the command with both versions."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.in_turn", description=__doc__)
    parser.add_argument("other", type=Path, help="a checkout of the other version")
    parser.add_argument("--runs", type=int, default=20, help="runs of each")
    parser.add_argument(
        "--questions", action="store_true", help="seven questions to one large report, in place of arguments"
    )
    parser.add_argument("--imports", type=Path, nargs="+", default=(), help="reports to import, in place of arguments")
    parser.add_argument("arguments", nargs="*", help="of alltrace")
    args = parser.parse_intermixed_args()
    if args.runs < 1:
        parser.error(f"--runs must be at least 1; {args.runs} was given")
    if not (args.other / "src" / "alltrace").is_dir():
        parser.error(
            f"{args.other} is not a checkout of this repository; make one with `git worktree add --detach FOLDER"
            " COMMIT`"
        )
    if bool(args.questions) + bool(args.arguments) + bool(args.imports) != 1:
        parser.error("expected arguments of alltrace, --questions or --imports")
    if args.imports:
        for report in args.imports:
            print(report.name)
            _show(args.other.resolve(), [["import", str(report), "-o", "{new}"]], args.runs)
        return
    _show(args.other.resolve(), _questions(large_report()) if args.questions else [args.arguments], args.runs)


def _show(tree: Path, commands: list[list[str]], runs: int) -> None:
    other, here = compare((tree, _HERE), commands, runs)
    for name, taken in (("other", other), ("here", here)):
        wall, cpu = median([t.wall_s for t in taken]), median([t.cpu_s for t in taken])
        print(f"{name:<6} median {wall:.3f} s, CPU {cpu:.3f} s, fastest {min(t.wall_s for t in taken):.3f} s")
    cpu_share = median([t.cpu_s for t in here]) / median([t.cpu_s for t in other])
    print(f"here / other: {100 * cpu_share:.1f} % of the CPU time")
    mean, error = difference(other, here)
    print(f"here - other: {1e3 * mean:+.1f} ms, standard error {1e3 * error:.1f}", flush=True)


if __name__ == "__main__":
    main()
