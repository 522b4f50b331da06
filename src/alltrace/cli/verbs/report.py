"""The verb `report`: a run's main answers as one file: a page with charts and no network, or Markdown."""

from __future__ import annotations

import argparse
import sys

from alltrace.cli.argument_types import file_or_output
from alltrace.cli.command import add_rank_option, add_run_argument, add_step_options, open_from, open_other
from alltrace.trace.errors import EXIT_DONE, UsageError, printable
from alltrace.trace.spans import parse_ranks

EXAMPLE = "alltrace report ./reports/ -o report.html"


def configure(parser: argparse.ArgumentParser) -> None:
    add_run_argument(parser)
    group = parser.add_argument_group("the question")
    add_rank_option(group)
    add_step_options(group)
    group.add_argument(
        "--baseline", metavar="RUN", help="another run, or its reports: the report begins with what differs from it"
    )
    group = parser.add_argument_group("the report")
    group.add_argument(
        "-o",
        "--output",
        type=file_or_output,
        metavar="FILE",
        help="the file to write; required for html, else default: standard output",
    )
    group.add_argument("--format", choices=("html", "md"), default="html", help="default: html")
    group.add_argument(
        "--page",
        type=_page,
        metavar="ADDRESS",
        help=(
            "the page that times of the html link to, as of `alltrace ui RUN --port N`; default: http://127.0.0.1:8765/"
        ),
    )
    group.add_argument(
        "--title", metavar="TEXT", help="title of the report; default: the run's job, date and machine, as far as known"
    )


def run(args: argparse.Namespace) -> int:
    from alltrace.recipes.execution.window import select
    from alltrace.report import gather
    from alltrace.report.naming import run_title

    write = _writer(args)
    ranks = parse_ranks(args.ranks)
    select(args.steps, skip_warmup=args.skip_warmup)
    opened = open_from(args)
    report = gather(
        opened,
        args.title or run_title(opened.manifest, args.run),
        baseline=None if args.baseline is None else open_other(args, args.baseline),
        ranks=ranks,
        steps=args.steps,
        skip_warmup=args.skip_warmup,
        jobs=args.jobs,
        pictures=args.format == "html",
        progress=_progress if sys.stderr.isatty() else None,
    )
    for section in report.sections:
        if section.answer is None:
            print(f"alltrace: {section.ask.title}: {printable(section.problem)}", file=sys.stderr)  # noqa: T201
    write(report)
    if args.output is not None:
        size = args.output.stat().st_size / 1e6
        print(f"{printable(str(args.output))}: {len(report.sections)} sections, {size:.1f} MB", file=sys.stderr)  # noqa: T201
    return EXIT_DONE


def _page(text: str) -> str:
    """The address of a page, without the part after `?` or `#`: a token is a secret."""
    from argparse import ArgumentTypeError
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(text)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ArgumentTypeError(
            f"{printable(text)!r} is not an address of a page; expected one such as http://127.0.0.1:8765/"
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path or '/'}"


def _writer(args: argparse.Namespace):  # type: ignore[no-untyped-def]
    """A function that writes a report as `args` say; what cannot work is refused here, before the work."""
    from alltrace.cli.output import emit
    from alltrace.report import to_html, to_markdown
    from alltrace.report.page import check_plotly

    if args.output is None and args.format == "html":
        raise UsageError("report needs -o FILE for a page; --format md may go to standard output")
    if args.output is not None and (not args.output.name or args.output.is_dir()):
        raise UsageError(f"-o is {printable(str(args.output))!r}; expected the name of a file")
    if args.format == "html":
        check_plotly()
    about = {} if args.page is None else {"page": args.page}
    return lambda report: emit(
        [to_html(report, **about) if args.format == "html" else to_markdown(report)], args.output
    )


def _progress(title: str) -> None:
    print(f"alltrace: {title}", file=sys.stderr)  # noqa: T201
