"""The verb `ncu`: shows reports of Nsight Compute, without installing it: speed of light, rules, lines, advice."""

from __future__ import annotations

from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from alltrace.cli.argument_types import positive
from alltrace.cli.command import add_answer_options, add_import_options, open_from
from alltrace.recipes.ncu import LINES, MATCHES, VIEWS
from alltrace.trace.errors import EXIT_DONE, UsageError

if TYPE_CHECKING:
    import argparse

    from alltrace.readers.ncu.listing import Listings
    from alltrace.recipes.base import Answer
    from alltrace.recipes.ncu.tables import Profiled

_TWO = 2
_DETAILED = ("details", "rules", "instances", "source")
INTERMIXED = True
"""Options may be between the name of a view and the reports."""
EXAMPLE = "alltrace ncu source gemm.ncu-rep"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "reports",
        nargs="+",
        type=Path,
        metavar="REPORT",
        help=(
            "a report (.ncu-rep), or the output of `ncu --page raw` or `--page details`, with or without --csv; a"
            " view's name may come first, as in `ncu source REPORT`"
        ),
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--view", choices=tuple(VIEWS), help="default: launches, one row per kernel launch")
    what.add_argument(
        "--raw", action="store_true", help="the view metrics: every metric of every launch, as in the report"
    )
    what.add_argument("--compare", action="store_true", help="compare reports with the first of them, launch by launch")
    what.add_argument(
        "--run",
        action="append",
        metavar="RUN",
        help=(
            "weigh each kernel by its time over all ranks of this run: a run directory or reports; may be given several"
            " times"
        ),
    )
    parser.add_argument(
        "--instances", action="store_true", help="for the view metrics: values by address, opcode or unit"
    )
    parser.add_argument(
        "--metric",
        metavar="GLOB",
        action="append",
        help="for the view metrics and --compare: only metrics with this name; * matches any text",
    )
    parser.add_argument(
        "--lines", choices=LINES, help="for the view source: what each row is; default: source if available, else sass"
    )
    parser.add_argument(
        "--sass", action="store_true", help="for the view source: disassemble, with nvdisasm of CUDA 12.8 or later"
    )
    parser.add_argument(
        "--nvdisasm", metavar="PATH", help="for --sass: the nvdisasm program; default: nvdisasm on PATH"
    )
    parser.add_argument(
        "--sources",
        action="append",
        type=Path,
        metavar="FOLDER",
        help=(
            "for the view source: the folder of source files, for reports that do not contain them (`ncu"
            " --import-source yes`)"
        ),
    )
    parser.add_argument(
        "--match", choices=MATCHES, help="for --compare: how launches are paired; default: configuration"
    )
    parser.add_argument(
        "--registers",
        type=positive,
        metavar="N",
        help="for the view occupancy: registers per thread, instead of the launch's own",
    )
    parser.add_argument(
        "--shared-memory",
        type=positive,
        metavar="BYTES",
        help="for the view occupancy: shared memory per block, instead of the launch's own",
    )
    parser.add_argument(
        "--table",
        metavar="NAME",
        help="show only this table: unmatched of --compare and --run, not_profiled of --run, or stalls of source",
    )
    add_import_options(parser)
    add_answer_options(parser)


def run(args: argparse.Namespace) -> int:
    from alltrace.cli.kernel_reports import read_reports
    from alltrace.cli.output import check_drawable, check_output, write_answer

    view = _view(args)
    _check(view, args)
    check_output(args)
    chart = None if args.table else resolve_name(VIEWS.get(view, f"alltrace.recipes.ncu.{view}:VIEW")).chart
    check_drawable(f"the view {view} of ncu" if args.table is None else f"the table {args.table}", chart, args)
    listings = _listings(args) if view == "source" else None
    reports, notes = read_reports(args.reports, detail=view in _DETAILED, listings=listings)
    answer = _answer(view, reports, notes, args)
    if args.table is not None:
        answer = answer.only(args.table)
    write_answer("ncu", answer, {"reports": len(reports), "launches": sum(map(len, reports))}, args)
    return EXIT_DONE


def _view(args: argparse.Namespace) -> str:
    """The view; its name may come before the reports and is then removed from them."""
    named = str(args.reports[0]) if str(args.reports[0]) in VIEWS and not args.reports[0].exists() else None
    if named is not None:
        if args.view or args.raw or args.compare or args.run:
            raise UsageError(
                f"the view {named} was given together with --view, --raw, --compare or --run; give one of them"
            )
        del args.reports[0]
        if not args.reports:
            raise UsageError(f"ncu {named} needs a report, such as `alltrace ncu {named} gemm.ncu-rep`")
    view = (
        "metrics"
        if args.raw
        else "compare"
        if args.compare
        else "weigh"
        if args.run
        else named or args.view or "launches"
    )
    if args.instances:
        if view not in ("metrics", "instances"):
            raise UsageError(f"--instances is for the view metrics, not {view}")
        view = "instances"
    return view


def _check(view: str, args: argparse.Namespace) -> None:
    if args.compare and len(args.reports) < _TWO:
        raise UsageError("--compare needs two reports or more, and 1 was given, such as `alltrace ncu --compare A B`")
    if args.match and not args.compare:
        raise UsageError("--match needs --compare, which was not given")
    for option in ("registers", "shared_memory"):
        if getattr(args, option) and view != "occupancy":
            raise UsageError(f"--{option.replace('_', '-')} is for the view occupancy, not {view}")
    if args.table is not None and view not in ("compare", "weigh", "source"):
        raise UsageError(
            "--table works with --compare, --run and the view source, which have several tables; leave it out"
        )
    if args.metric and view not in ("metrics", "instances", "compare"):
        raise UsageError(f"--metric is for the view metrics and --compare, not {view}")
    for option in ("lines", "sass", "sources"):
        if getattr(args, option) and view != "source":
            raise UsageError(f"--{option} is for the view source, not {view}")
    if args.nvdisasm and not args.sass:
        raise UsageError("--nvdisasm needs --sass, which was not given")
    for folder in args.sources or ():
        if not folder.is_dir():
            raise UsageError(f"--sources {folder} is not a folder")


def _answer(view: str, reports: list[list[Profiled]], notes: list[str], args: argparse.Namespace) -> Answer:
    every = [each for report in reports for each in report]
    if view == "compare":
        from alltrace.recipes.ncu import compare

        return compare.answer(reports[0], reports[1:], notes, args.match or MATCHES[0], args.metric)
    if view == "weigh":
        from alltrace.recipes.ncu import weigh

        args.run = list(args.run)
        run = open_from(args)
        ran = run.recipe("launch-configurations")
        return weigh.answer(every, ran.to_pylist(), (*notes, *ran.notes))
    if view == "occupancy":
        from alltrace.recipes.ncu import occupancy

        chosen = {name: n for name in ("registers", "shared_memory") if (n := getattr(args, name)) is not None}
        return occupancy.answer(every, notes, chosen)
    if view == "source":
        from alltrace.cli.kernel_reports import source_texts
        from alltrace.recipes.ncu import source

        return source.answer(every, notes, args.lines, source_texts(args.sources) if args.sources else None)
    answer: Answer = resolve_name(VIEWS[view]).answer(
        every, notes, *([args.metric] if view in ("metrics", "instances") else [])
    )
    return answer


def _listings(args: argparse.Namespace) -> Listings:
    """Lists instructions, with their text if `--sass` is given."""
    from functools import partial

    from alltrace.readers.ncu.disassembly import disassembled, find_nvdisasm
    from alltrace.readers.ncu.listing import Listings

    return Listings(partial(disassembled, program=find_nvdisasm(args.nvdisasm)) if args.sass else None)
