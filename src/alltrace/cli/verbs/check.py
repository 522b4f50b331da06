"""The verb `check`: judges a run by a budget of limits; exits with 1 if one is breached or cannot be judged."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alltrace.cli.command import add_answer_options, add_run_argument, open_from
from alltrace.trace.amounts import amount
from alltrace.trace.errors import EXIT_BREACH, EXIT_DONE, InputError, UsageError, printable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

_UNIT = re.compile(r"_(ns|bytes|percent)\b")
_STEP_TIME = "step_ns.median <= 1.05 * baseline"
EXAMPLE = "alltrace check ./reports/ --budget budget.toml --baseline ./yesterday/ --junit check.xml"


def configure(parser: argparse.ArgumentParser) -> None:
    """RUN, the limits and what to compare with."""
    add_run_argument(parser)
    group = parser.add_argument_group("the budget")
    group.add_argument(
        "--budget",
        type=Path,
        metavar="FILE",
        help="a TOML file with limits = ['step_ns.median <= 1.05 * baseline', 'overlap_percent >= 80']",
    )
    group.add_argument(
        "--baseline",
        metavar="RUN",
        help="the run, or its reports, to which `baseline` in a limit refers; "
        "without a budget a step may take 5 %% longer than in it",
    )
    group.add_argument(
        "--against",
        type=Path,
        metavar="HISTORY",
        help="a file of `alltrace history`: the run must be within the spread of the job's earlier runs",
    )
    group.add_argument(
        "--require-history",
        action="store_true",
        help="with --against: exit with 1 if fewer than five earlier runs can be compared with, instead of leaving the limits out",
    )
    group.add_argument("--job", metavar="NAME", help="with --against: compare with the runs of this job; default: the job of RUN")
    group.add_argument("--junit", type=Path, metavar="FILE", help="also write a JUnit XML report with a test case per limit")
    add_answer_options(parser)


def run(args: argparse.Namespace) -> int:
    """Judge and write; the breaches also go to standard error."""
    from alltrace.cli.output import check_drawable, check_output, write_answer
    from alltrace.history.gate import judge_against
    from alltrace.history.store import open_history
    from alltrace.recipes.questions.check import judge, judgement, read_limits

    check_output(args)
    check_drawable("check", None, args)
    if args.budget is None and args.against is None and args.baseline is None:
        raise UsageError("check needs limits; give --budget FILE, --baseline RUN or --against HISTORY")
    if args.job is not None and args.against is None:
        raise UsageError("--job selects runs of a history, so it needs --against HISTORY")
    if args.require_history and args.against is None:
        raise UsageError("--require-history is about a history, so it needs --against HISTORY")
    if args.budget is not None:
        limits = read_limits(_budget(args.budget), str(args.budget))
    else:
        limits = read_limits({"limits": [_STEP_TIME]}, "--baseline") if args.baseline is not None and args.against is None else []
    if any(limit.scale for limit in limits) and args.baseline is None:
        needing = next(limit for limit in limits if limit.scale)
        raise UsageError(f"{args.budget}: {printable(needing.check)!r} compares with a baseline; give --baseline RUN")
    if args.against is not None:
        with open_history(args.against):  # what is wrong with it is reported before hours of import, not after
            pass
    run = open_from(args)
    baseline = None
    if args.baseline is not None:
        args.run = [args.baseline]
        baseline = open_from(args)
    answer = judge(run, limits, baseline, jobs=args.jobs)
    if args.against is not None:
        with open_history(args.against) as history:
            spread = judge_against(run, history, job=args.job, jobs=args.jobs, required=args.require_history)
        answer = judgement([*answer.table.to_pylist(), *spread.table.to_pylist()], (*answer.notes, *spread.notes))
    rows = answer.table.to_pylist()
    if args.junit is not None:
        _write_junit(rows, args.junit)
    write_answer("check", answer, run.facts(), args)
    breached = [r for r in rows if r["verdict"] != "held"]
    for row in breached:
        print(f"alltrace: {printable(_told(row))}", file=sys.stderr)  # noqa: T201
    return EXIT_BREACH if breached else EXIT_DONE


def _told(row: dict[str, Any]) -> str:
    if row["verdict"] == "unknown":
        return f"{row['name']}: cannot be judged: {row['why']}"
    unit = _UNIT.search(row["check"])
    named = unit and unit[1].replace("percent", "%")
    value, bound = (amount(row[name], named, 4) for name in ("value", "bound"))
    return f"{row['name']}: {value} against {bound}, from {row['check']!r}"


def _budget(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(path, found=f"cannot be read ({error.strerror})", advice="check the name and the permissions") from None
    except (ValueError, RecursionError) as error:
        raise InputError(path, found=f"is not TOML ({error})", advice="see the section on check in docs/cli.md") from None


def _write_junit(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """A test case per limit, with a failure for each that is breached and an error for each that cannot be judged."""
    from xml.etree import ElementTree as ET

    from alltrace.cli.output import save

    def clean(text: str) -> str:
        # XML has no place for control characters
        return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)

    counts = {v: str(sum(r["verdict"] == v for r in rows)) for v in ("breached", "unknown")}
    suite = ET.Element(
        "testsuite", name="alltrace check", tests=str(len(rows)), failures=counts["breached"], errors=counts["unknown"], skipped="0"
    )
    for row in rows:
        case = ET.SubElement(suite, "testcase", classname="alltrace.check", name=clean(row["name"]))
        if row["verdict"] != "held":
            kind = "failure" if row["verdict"] == "breached" else "error"
            ET.SubElement(case, kind, message=clean(_told(row)))
    text = ET.tostring(suite, encoding="utf-8", xml_declaration=True)
    save(path, lambda place: place.write_bytes(text))
