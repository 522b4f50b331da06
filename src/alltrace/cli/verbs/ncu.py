"""The verb `ncu`: shows reports of Nsight Compute, which need not be installed: speed of light, occupancy, roofline, advice."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from alltrace.cli.command import add_answer_options, add_import_options, open_from
from alltrace.recipes.ncu import VIEWS
from alltrace.trace.errors import EXIT_DONE, UsageError

if TYPE_CHECKING:
    import argparse

    from alltrace.recipes.base import Answer
    from alltrace.recipes.ncu.tables import Profiled

_TWO = 2
EXAMPLE = "alltrace ncu gemm.ncu-rep --view advice"


def configure(parser: argparse.ArgumentParser) -> None:
    """The reports, and what is asked of them."""
    parser.add_argument(
        "reports",
        nargs="+",
        type=Path,
        metavar="REPORT",
        help="a report (.ncu-rep), or what `ncu --page raw` or `--page details` printed, with or without --csv",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--view", choices=tuple(VIEWS), default="launches", help="default: launches, one row per kernel launch")
    what.add_argument("--raw", action="store_true", help="the view raw: every metric of every launch as the report has it")
    what.add_argument("--compare", action="store_true", help="two reports side by side, launch by launch")
    what.add_argument(
        "--run",
        action="append",
        metavar="RUN",
        help="weigh each kernel by its time over all ranks of this run; a run directory, or reports, once each",
    )
    parser.add_argument("--table", metavar="NAME", help="of --compare and --run: the table unmatched, or not_profiled, alone")
    add_import_options(parser)
    add_answer_options(parser)


def run(args: argparse.Namespace) -> int:
    """Read the reports and write the answer."""
    from alltrace.cli.kernel_reports import read_reports
    from alltrace.cli.output import check_drawable, check_output, write_answer

    if args.compare and len(args.reports) != _TWO:
        raise UsageError(f"--compare is given {len(args.reports)} reports; expected two, such as `alltrace ncu --compare A B`")
    if args.table is not None and not (args.compare or args.run):
        raise UsageError("--table is for the answers of --compare and --run, which have several; leave it out")
    view = "raw" if args.raw else "compare" if args.compare else "weigh" if args.run else args.view
    check_output(args)
    chart = None if args.table else import_module(VIEWS.get(view, f"alltrace.recipes.ncu.{view}")).CHART
    check_drawable(f"the view {view} of ncu" if args.table is None else f"the table {args.table}", chart, args)
    reports, notes = read_reports(args.reports)
    answer = _asked(view, reports, notes, args)
    if args.table is not None:
        answer = answer.only(args.table)
    write_answer("ncu", answer, {"reports": len(reports), "launches": sum(map(len, reports))}, args)
    return EXIT_DONE


def _asked(view: str, reports: list[list[Profiled]], notes: list[str], args: argparse.Namespace) -> Answer:
    every = [each for report in reports for each in report]
    if view == "compare":
        from alltrace.recipes.ncu import compare

        return compare.answer(reports[0], reports[1], notes)
    if view == "weigh":
        from alltrace.recipes.ncu import weigh

        args.run = list(args.run)
        run = open_from(args)
        ran = run.recipe("launch-configurations")
        return weigh.answer(every, ran.to_pylist(), (*notes, *ran.notes))
    answer: Answer = import_module(VIEWS[view]).answer(every, notes)
    return answer
