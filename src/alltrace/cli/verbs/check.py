"""The verb `check`: judges a run by a budget of limits; exits with 1 if one is breached or cannot be judged."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from alltrace.cli.command import add_answer_options, add_run_argument, open_from, open_other
from alltrace.trace.errors import EXIT_BREACH, EXIT_DONE, InputError, UsageError, printable

_STEP_TIME = "step_ns.median <= 1.05 * baseline"
EXAMPLE = "alltrace check ./today/ --baseline ./yesterday/ --junit check.xml"


def configure(parser: argparse.ArgumentParser) -> None:
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
        help=(
            "the run, or its reports, to which `baseline` in a limit refers; "
            "without a budget a step may take 5 %% longer than in it"
        ),
    )
    group.add_argument(
        "--against",
        type=Path,
        metavar="HISTORY",
        help="a file of `alltrace history`: the run must be within the spread of the job's earlier runs",
    )
    group.add_argument(
        "--job", metavar="NAME", help="with --against: compare with the runs of this job; default: the job of RUN"
    )
    group.add_argument(
        "--require-history",
        action="store_true",
        help=(
            "with --against: fail if there are too few earlier runs to compare with; their limits are skipped otherwise"
        ),
    )
    group.add_argument(
        "--junit", type=Path, metavar="FILE", help="also write a JUnit XML report with a test case per limit"
    )
    add_answer_options(parser)


def run(args: argparse.Namespace) -> int:
    """Judge and write; the breaches also go to standard error."""
    from alltrace.cli.output import check_drawable, check_output, write_answer
    from alltrace.history.gate import judge_against
    from alltrace.history.store import open_history
    from alltrace.recipes.questions.check import change_in_words, judge, judgement, read_limits

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
        limits = (
            read_limits({"limits": [_STEP_TIME]}, "--baseline")
            if args.baseline is not None and args.against is None
            else []
        )
    if any(limit.scale for limit in limits) and args.baseline is None:
        needing = next(limit for limit in limits if limit.scale)
        raise UsageError(f"{args.budget}: {printable(needing.check)!r} compares with a baseline; give --baseline RUN")
    if args.against is not None:
        with open_history(args.against):  # what is wrong with it is reported before hours of import, not after
            pass
    run = open_from(args)
    baseline = None if args.baseline is None else open_other(args, args.baseline)
    answer = judge(run, limits, baseline, jobs=args.jobs)
    if args.against is not None:
        with open_history(args.against) as history:
            spread = judge_against(run, history, job=args.job, jobs=args.jobs, required=args.require_history)
        rows = [*answer.table.to_pylist(), *spread.table.to_pylist()]
        change = "" if baseline is None else change_in_words(run, baseline, args.jobs)
        answer = judgement(rows, (*answer.notes, *spread.notes), change=change)
    rows = answer.table.to_pylist()
    if args.junit is not None:
        _write_junit(rows, args.junit)
    write_answer("check", answer, run.facts(), args)
    breached = [r for r in rows if r["verdict"] not in ("held", "skipped")]
    for row in breached:
        print(f"alltrace: {printable(row['sentence'])}", file=sys.stderr)  # noqa: T201
    return EXIT_BREACH if breached else EXIT_DONE


def _budget(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            path, found=f"cannot be read ({error.strerror})", advice="check the name and the permissions"
        ) from None
    except (ValueError, RecursionError) as error:
        raise InputError(
            path, found=f"is not TOML ({error})", advice="see the section on check in docs/cli.md"
        ) from None


def _write_junit(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """A test case per limit, with a failure for each that is breached, an error for each not judged, and its words."""
    from xml.etree import ElementTree as ET

    from alltrace.cli.output import save

    def clean(text: str) -> str:
        # XML has no place for control characters
        return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)

    counts = {v: str(sum(r["verdict"] == v for r in rows)) for v in ("breached", "unknown", "skipped")}
    number = {
        "tests": str(len(rows)),
        "failures": counts["breached"],
        "errors": counts["unknown"],
        "skipped": counts["skipped"],
    }
    suite = ET.Element("testsuite", {"name": "alltrace check", **number})
    tags = {"breached": "failure", "unknown": "error", "skipped": "skipped"}
    for row in rows:
        case = ET.SubElement(suite, "testcase", classname="alltrace.check", name=clean(row["name"]))
        if row["verdict"] in tags:
            ET.SubElement(case, tags[row["verdict"]], message=clean(row["sentence"]))
        else:
            ET.SubElement(case, "system-out").text = clean(row["sentence"])
    text = ET.tostring(suite, encoding="utf-8", xml_declaration=True)
    save(path, lambda place: place.write_bytes(text))
