"""The verb `history`: what many runs have to say together, kept in a DuckDB file."""

import argparse
import sys

from alltrace.cli.argument_types import place, positive
from alltrace.cli.command import add_answer_options
from alltrace.trace.errors import EXIT_DONE, StrictError, UsageError, printable
from alltrace.trace.number_text import counted

EXAMPLE = "alltrace history ./runs/ --history history.duckdb --report week.html"
QUESTIONS = ("run", "host", "finding", "kind")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="*", metavar="FOLDER", help="run directories, or folders with run directories at any depth"
    )
    parser.add_argument(
        "--history",
        type=place,
        metavar="HISTORY",
        help=(
            "the DuckDB file that stores the results of runs, created if missing; without FOLDER it is only read, and"
            " without --history nothing is stored"
        ),
    )
    parser.add_argument(
        "--report",
        type=place,
        metavar="FILE.html",
        help="write a page instead of a table: hosts to look at, jobs that became slower, GPU hours lost by kind",
    )
    group = parser.add_argument_group("the question")
    group.add_argument("--by", choices=QUESTIONS, default="run", help="what each row is; default: run")
    group.add_argument("--job", metavar="NAME", help="only runs of this job")
    group.add_argument("--tag", metavar="TAG", help="only runs with this tag")
    group = parser.add_argument_group("reading runs")
    group.add_argument(
        "--jobs", type=positive, metavar="N", help="the maximum number of processes; default: one per processor"
    )
    group.add_argument(
        "--strict", action="store_true", help="exit with 4 if a run cannot be read, instead of leaving it out"
    )
    add_answer_options(parser, output=("-o", "--output", "--answer"))


def run(args: argparse.Namespace) -> int:
    from alltrace.cli.output import check_drawable, check_output, save, write_answer
    from alltrace.history.questions import ask_history, chart_of
    from alltrace.history.store import is_database, open_history
    from alltrace.history.update import find_runs, update
    from alltrace.report.history_page import history_page

    if args.output is not None and (args.output.suffix in (".db", ".duckdb") or is_database(args.output)):
        raise UsageError(
            f"-o names the file of the answer, and {args.output} is a database; write --history {args.output}"
        )
    if not args.runs and args.history is None:
        raise UsageError("history needs runs; give FOLDER, --history HISTORY or both")
    if args.report is not None and args.report.suffix != ".html":
        raise UsageError(f"--report writes HTML; expected a name that ends in .html, found {args.report}")
    check_output(args)
    check_drawable("history", chart_of(args.by), args)
    notes: tuple[str, ...] = ()
    runs = find_runs(args.runs) if args.runs else []  # before a file is made for them
    with open_history(args.history, write=bool(runs)) as history:
        if runs:
            done = update(history, runs, jobs=args.jobs, reading=_tell)
            if args.strict and done.unread:
                raise StrictError(done.unread[0])
            notes = (*done.unread, *done.notes)
            print(f"{counted(len(done.read), 'run')} read, {done.unchanged:,} unchanged", file=sys.stderr)  # noqa: T201
        if args.report is not None:
            page = history_page(history, args.history.name if args.history else "the runs")
            save(args.report, lambda place: place.write_text(page, encoding="utf-8"))
            print(f"wrote {args.report}", file=sys.stderr)  # noqa: T201
            return EXIT_DONE
        answer = ask_history(history, args.by, job=args.job, tag=args.tag)
        count = len(history.kept())
    write_answer("history", answer._replace(notes=(*answer.notes, *notes)), {"runs": count}, args)
    return EXIT_DONE


def _tell(path: str) -> None:
    if sys.stderr.isatty():
        print(f"reading {printable(path)}", file=sys.stderr)  # noqa: T201
