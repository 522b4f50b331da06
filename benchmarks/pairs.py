"""Real pairs: a run before and after one change; the step times show the gain. `python -m benchmarks.pairs`.

The first run of each pair is diagnosed, and the findings are compared with the gain. The pairs are in the folder that
ALLTRACE_DATA names; `--before` and `--after` select another pair. Step times are from `alltrace steps`, and from a
computation from the files that shares no code with it.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from alltrace.trace.errors import EXIT_DONE, EXIT_INPUT, AlltraceError, UsageError
from benchmarks.accuracy_page import write_table
from benchmarks.first_findings import Diagnosed, StepTimes, diagnosed, milliseconds, percent
from benchmarks.raw_steps import raw_step_ns

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Pair:
    """Two runs of one training.

    Attributes:
        name: As the table shows it.
        before: A pattern that matches the report of the first, below the folder of the data.
        after: The pattern of the second.
        kinds: Kinds of findings of which one should come first; empty if nothing in the first report could show the
            cause.
    """

    name: str
    before: str = ""
    after: str = ""
    kinds: tuple[str, ...] = ()


PAIRS = (
    Pair("fp32 to mixed precision", "nsys/nersc_dali_fp32*", "nsys/nersc_dali_bf16*", ("precision",)),
    Pair(
        "no loader process to four",
        "kineto/tb_plugin/resnet50_workers0*",
        "kineto/tb_plugin/resnet50_workers4*",
        ("data-stall",),
    ),
    Pair("an unnamed change, two GPUs", "nsys/mfu_before_2gpu*", "nsys/mfu_after_2gpu*"),
)
OWN = Pair("yours")

HEAD = (
    (
        "| pair | step before | after | gained: all steps | median step | by the files alone | first finding | should"
        " be first | its loss or ceiling | loss / gained |"
    ),
    "|---|---|---|---|---|---|---|---|---|---|",
)


@dataclass(frozen=True)
class Side:
    """One run of a pair: its steps, and their mean time by the file alone, None if unknown."""

    steps: StepTimes
    raw_ns: float | None


def gained(before: float | None, after: float | None) -> float | None:
    """What the change saves, as a share of the time before; below 0 if it costs time; None if a time is not known."""
    return None if before is None or after is None else 1 - after / before


def row(pair: Pair, before: Side, after: Side, found: Diagnosed) -> str:
    """A row of the table."""
    means = (before.steps.mean_ns, after.steps.mean_ns)
    whole = 1 - means[1] / means[0]
    others = (gained(before.steps.median_ns, after.steps.median_ns), gained(before.raw_ns, after.raw_ns))
    first = f"`{found.first.kind}` {found.first.share_text()}" if found.first else "nothing"
    own = next(((n, f) for n, f in enumerate(found.findings, 1) if f.kind in pair.kinds), None)
    share = f"{own[1].share_text()}, as number {own[0]}" if own else "not found" if pair.kinds else ""
    lost = own[1].lost_share if own and own[1].ceiling_share is None else None
    cells = [
        pair.name,
        *(milliseconds(ns) for ns in means),
        percent(whole),
        *("unknown" if g is None else percent(g) for g in others),
        first,
        " or ".join(f"`{kind}`" for kind in pair.kinds) or "not in the report",
        share,
        f"{lost / whole:.2f}" if lost is not None and whole > 0 else "",
    ]
    return "| " + " | ".join(cells) + " |"


def measured_row(pair: Pair, reports: tuple[Path, Path], cache: Path) -> str:
    """The row of a pair; `reports` are those before and after.

    Raises:
        AlltraceError: A report is not there, cannot be read, or has no steps.
    """
    sides = []
    answers = [diagnosed([path], cache) for path in reports]
    for path, answer in zip(reports, answers, strict=True):
        if answer.steps is None:
            raise AlltraceError(f"{path}: no steps were found, so nothing can be compared; record named steps")
        sides.append(Side(answer.steps, _raw_ns(path)))
    return row(pair, sides[0], sides[1], answers[0])


def _raw_ns(path: Path) -> float | None:
    try:
        return raw_step_ns(path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, sqlite3.Error) as error:
        print(f"{path}: no step times by the file alone: {error}", file=sys.stderr)
        return None


def located(root: Path, pattern: str) -> Path:
    """The one file below `root` that a pattern fits.

    Raises:
        UsageError: There is none, or there are several.
    """
    found = sorted(root.glob(pattern))
    if len(found) != 1:
        raise UsageError(
            f"{root / pattern}: expected one report, found {len(found) or 'none'}; see what ALLTRACE_DATA names"
        )
    return found[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table or write it into a page; the code to exit with."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.pairs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, help="a report or a folder of reports; needs --after")
    parser.add_argument("--after", type=Path, help="that of the same training after a change")
    parser.add_argument(
        "--write", type=Path, metavar="PAGE", help="write the table into this page, such as docs/accuracy.md"
    )
    given = parser.parse_args(arguments)
    if (given.before is None) != (given.after is None):
        parser.error("--before and --after come together; one was given")
    if given.before is None and "ALLTRACE_DATA" not in os.environ:
        parser.error("there are no pairs: set ALLTRACE_DATA, or name two runs with --before and --after")
    root = Path(os.environ.get("ALLTRACE_DATA", ""))
    code = EXIT_DONE
    lines = list(HEAD)
    with tempfile.TemporaryDirectory() as cache:
        for pair in PAIRS if given.before is None else (OWN,):
            print(pair.name, file=sys.stderr, flush=True)
            try:
                reports = (
                    (given.before, given.after)
                    if pair is OWN
                    else (located(root, pair.before), located(root, pair.after))
                )
                lines.append(measured_row(pair, reports, Path(cache)))
            except AlltraceError as error:
                print(f"error: {error}", file=sys.stderr)
                code = EXIT_INPUT
    if given.write is None:
        print("\n".join(lines))
    elif code == EXIT_DONE:  # a page keeps its table rather than a part of a new one
        write_table(given.write, "real pairs", lines)
    return code


if __name__ == "__main__":
    sys.exit(main())
