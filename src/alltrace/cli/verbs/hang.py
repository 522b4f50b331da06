"""The verb `hang`: what a hanging or dead job left, as one sentence with the ranks that are responsible."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alltrace.cli.command import add_answer_options
from alltrace.trace.errors import EXIT_BREACH, EXIT_DONE, UsageError, printable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from alltrace.recipes.base import Answer

EXAMPLE = "alltrace hang ./job-4711/"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", type=Path, metavar="FOLDER", help="a folder with what the job left: dumps, logs, stacks"
    )
    group = parser.add_argument_group("the question")
    group.add_argument(
        "--at",
        metavar="TIME",
        help=(
            "when the dumps were written, as 2026-05-04T12:04:03+00:00 or in seconds since 1970; default: the times of"
            " the files"
        ),
    )
    group.add_argument("--fail", action="store_true", help="exit with 1 if the job hangs or died")
    group.add_argument(
        "--share", action="store_true", help="replace hosts, users, paths and addresses, as `capture scrub` does"
    )
    add_answer_options(parser, cards=True)


def run(args: argparse.Namespace) -> int:
    at_ns = None if args.at is None else time_ns(args.at)
    check(args)
    return write_verdict("hang", args.folder, args, at_ns)


def check(args: argparse.Namespace) -> None:
    from alltrace.cli.output import check_drawable, check_output

    args.format = args.format or "cards"
    check_output(args)
    check_drawable("hang", None, args)


def time_ns(text: str) -> int:
    """A time as ns since 1970: ISO 8601, in the time of this machine without an offset; or seconds."""
    try:
        return int(float(text) * 1e9)
    except (ValueError, OverflowError):
        pass
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1e9)
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"--at is {printable(text)!r}; expected a time such as 2026-05-04T12:04:03+00:00 or seconds since 1970"
        ) from None


def write_verdict(verb: str, folder: Path, args: argparse.Namespace, at_ns: int | None = None) -> int:
    """Judge what is in a folder, write the verdict as the arguments say, and return the exit code."""
    from alltrace.cli.output import write_answer
    from alltrace.hang.files import gather
    from alltrace.hang.verdict import judged

    evidence = gather(folder)
    words = None
    if getattr(args, "share", False):
        from alltrace.share.words import Words

        words = Words()
        words.hosts({*evidence.hosts.values(), *evidence.dead_hosts, *(x.host for x in evidence.xids)})
        words.number()
    answer = judged(evidence, at_ns, words)
    if args.format == "cards":
        from alltrace.cli.cards import cards_text, written_width
        from alltrace.cli.output import emit

        width, color = written_width(args)
        emit([cards_text(_cards(answer), args.limit, width, str(folder), color=color)], args.output)
    else:
        facts = {
            "ranks": len(evidence.recordings),
            "hosts": len(set(evidence.hosts.values())),
            "devices": 0,
            "span_ns": 0,
        }
        write_answer(verb, answer, facts, args)
    hangs = answer.table.column("kind")[0].as_py() != "no-hang"
    return EXIT_BREACH if hangs and getattr(args, "fail", False) else EXIT_DONE


def verdict_text(folder: Path) -> str:
    from alltrace.charts.text_table import terminal_width
    from alltrace.cli.cards import cards_text
    from alltrace.hang.verdict import verdict_of

    return cards_text(_cards(verdict_of(folder)), width=terminal_width() or 100, run=str(folder))


def _cards(answer: Answer) -> Any:
    from alltrace.recipes.questions.diagnose.cards import Diagnosis

    rows = [row for row in answer.table.to_pylist() if row["kind"] != "no-hang"]
    return Diagnosis(answer.verdict or "", tuple(map(_card, rows)), answer.notes)


def _card(row: Mapping[str, Any]) -> Any:
    from alltrace.hang.verdict import who
    from alltrace.recipes.questions.diagnose.cards import Card
    from alltrace.recipes.terms import HANG_KIND_MEANINGS

    numbers = {k: v for k, v in row["evidence"].items() if v is not None and k != "details"}
    parts = [row["evidence"]["details"], *(f"{name} {value:g}" for name, value in numbers.items())]
    hosts = f" on {', '.join(row['hosts'])}" if row["hosts"] else ""
    return Card(
        row["kind"],
        "high" if row["confidence"] >= 0.5 else "low",
        HANG_KIND_MEANINGS[row["kind"]],
        f"{who(row['ranks'])}{hosts}" if row["ranks"] else hosts.removeprefix(" on "),
        row["where"] or "",
        "",
        "; ".join(filter(None, parts)) + f"; confidence {row['confidence']:.2f}",
        row["advice"],
        row["confidence"],
        tuple(row["ranks"]),
        "",
        None,
    )
