"""The verb `diff`: compares two runs by what is in them: counts, totals, quartiles, and whether it is chance."""

from __future__ import annotations

import argparse

from alltrace.cli.command import add_answer_options, add_import_options, add_rank_option, add_step_options, open_other
from alltrace.trace.errors import EXIT_DONE, UsageError
from alltrace.trace.spans import parse_ranks

EXAMPLE = "alltrace diff ./yesterday/ ./today/ --what kernel,step --limit 20"


def configure(parser: argparse.ArgumentParser) -> None:
    """Both runs, and how far they must differ."""
    from alltrace.recipes.questions.diff import ALPHA, THRESHOLD_PERCENT
    from alltrace.recipes.questions.durations import WHAT

    for label in ("a", "b"):
        text = f"a run directory, a report, a folder of reports, a pattern or a URL: run {label.upper()}"
        parser.add_argument(f"run_{label}", metavar=f"RUN_{label.upper()}", help=text)
    add_import_options(parser)
    group = parser.add_argument_group("the question")
    add_rank_option(group)
    add_step_options(group)
    group.add_argument(
        "--what", metavar="THINGS", help=f"only these, such as kernel,step; one or more of {', '.join(WHAT)}"
    )
    group.add_argument(
        "--merge-numbers",
        action="store_true",
        help="combine ranges whose names differ only in numbers, such as those of layers",
    )
    group.add_argument(
        "--by-tree",
        action="store_true",
        help="what replaced what: kernels that one run alone has, under the ranges of both, as a tree",
    )
    group.add_argument(
        "--alpha",
        type=float,
        default=ALPHA,
        help=f"a difference is significant if its p_value is below this; default: {ALPHA}",
    )
    group.add_argument(
        "--threshold",
        type=float,
        default=THRESHOLD_PERCENT,
        metavar="PERCENT",
        help=f"and it matters if the median changed by at least this much; default: {THRESHOLD_PERCENT:g}",
    )
    add_answer_options(parser)


def run(args: argparse.Namespace) -> int:
    from alltrace.cli.output import check_drawable, check_output, write_answer
    from alltrace.recipes.questions.diff import CHART, IMPORTANT, TREE_IMPORTANT, compare
    from alltrace.recipes.questions.durations import chosen
    from alltrace.trace.columns import by_importance

    check_output(args)
    check_drawable("diff --by-tree" if args.by_tree else "diff", None if args.by_tree else CHART, args)
    chosen({"what": args.what})
    if not 0 < args.alpha < 1:
        raise UsageError(f"--alpha is {args.alpha}; expected a number between 0 and 1")
    if not args.threshold >= 0:
        raise UsageError(f"--threshold is {args.threshold}; expected a percentage of 0 or more")
    ranks = parse_ranks(args.ranks)
    run_a, run_b = (open_other(args, run) for run in (args.run_a, args.run_b))
    answer = compare(
        run_a,
        run_b,
        what=args.what,
        merge_numbers=args.merge_numbers,
        alpha=args.alpha,
        threshold_percent=args.threshold,
        ranks=ranks,
        steps=args.steps,
        skip_warmup=args.skip_warmup,
        by_tree=args.by_tree,
        jobs=args.jobs,
    )
    answer = answer._replace(columns=by_importance(answer.columns, TREE_IMPORTANT if args.by_tree else IMPORTANT))
    write_answer("diff", answer, run_b.facts(), args)
    return EXIT_DONE
