"""Verbs that ask a recipe: its options become arguments, its answer is written."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alltrace.cli.command import (
    Parser,
    add_answer_options,
    add_rank_option,
    add_run_argument,
    add_step_options,
    open_from,
)
from alltrace.cli.output_folder import Folder, is_folder
from alltrace.cli.progress import ALIGNING, stages
from alltrace.recipes.execution.ask import answer_of, checked, resolve_options
from alltrace.recipes.reference import description
from alltrace.run.discover import NoReportError
from alltrace.run.members import gpu_names
from alltrace.trace.columns import by_importance
from alltrace.trace.errors import EXIT_DONE, UsageError
from alltrace.trace.spans import parse_ranks

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from alltrace.api import OpenRun
    from alltrace.recipes.base import Answer, Question


class RecipeCommand:
    def __init__(self, recipe: str, example: str) -> None:
        self.recipe = recipe
        self.EXAMPLE = example

    def configure(self, parser: argparse.ArgumentParser) -> None:
        from alltrace.recipes.registry import find

        add_recipe_arguments(parser, find(self.recipe))

    def run(self, args: argparse.Namespace) -> int:
        from alltrace.recipes.registry import find

        return ask_and_write(self.recipe, find(self.recipe), args)


def ask_by_name(verb: str, recipe: Question, arguments: Sequence[str], *, command: str, folders: bool = False) -> int:
    """Ask a recipe by the arguments that follow its name, or print its SQL."""
    # `verb`: The name of the answer. `arguments`: The arguments after its name. `command`: The command line before
    # these arguments, such as `alltrace recipe kernels`. `folders`: Whether the answer may be written to a folder.
    parser = Parser(prog=command, description=description(recipe), example=f"{command} ./reports/", arguments=arguments)
    if "--show-sql" in arguments:
        add_recipe_options(parser, recipe)
        parser.add_argument("--show-sql", action="store_true")
        parser.add_argument("run", nargs="*", metavar="RUN")
        args = parser.parse_args(arguments)
        if args.ranks or getattr(args, "steps", None) or getattr(args, "skip_warmup", False):
            raise UsageError(
                "--show-sql prints the query for all ranks and steps; leave out --ranks, --steps and --skip-warmup"
            )
        print(recipe.shown_statement(resolve_options(recipe, _options(recipe, args))))  # noqa: T201
        return EXIT_DONE
    add_recipe_arguments(parser, recipe, folders=folders)
    parser.add_last()
    parser.add_argument("--show-sql", action="store_true", help="print the query as SQL for `alltrace sql` and stop")
    return ask_and_write(verb, recipe, parser.parse_args(arguments))


def add_recipe_arguments(parser: argparse.ArgumentParser, recipe: Question, *, folders: bool = False) -> None:
    """RUN, the options of `recipe`, and the output's; with `folders` the answer may be written to one."""
    add_run_argument(parser)
    add_recipe_options(parser, recipe)
    top = any(option.name == "top" for option in recipe.options)
    add_answer_options(parser, folders=folders, cards=recipe.name == "diagnose", top=not top)


def _options(recipe: Question, args: argparse.Namespace) -> dict[str, Any]:
    return {o.name: getattr(args, o.name) for o in recipe.options if hasattr(args, o.name)}


def add_recipe_options(parser: argparse.ArgumentParser, recipe: Question) -> None:
    """The options of `recipe` as arguments, with the options that select ranks and steps."""
    group = parser.add_argument_group("the question")
    add_rank_option(group)
    if recipe.windowed:
        add_step_options(group)
    for option in recipe.options:
        option.add_to(group)


def ask_and_write(verb: str, recipe: Question, args: argparse.Namespace) -> int:
    from alltrace.cli.output import check_drawable, check_output, write_answer, write_picture

    options = _options(recipe, args)
    if args.format is None:  # plain numbers select rows of a table
        args.format = "table" if args.units == "ns" or getattr(args, "table", None) else "cards"
    # what cannot work is refused before hours of import, not after
    folder = _folder(args)
    if folder is None:
        check_output(args)
    question = checked(
        recipe,
        options,
        ranks=parse_ranks(args.ranks),
        steps=getattr(args, "steps", None),
        skip_warmup=getattr(args, "skip_warmup", False),
    )
    check_drawable(recipe.name, recipe.answer_chart(question.options), args)
    try:
        run = open_from(args)
    except NoReportError:
        if recipe.name != "diagnose" or len(args.run) != 1 or folder is not None or not Path(args.run[0]).is_dir():
            raise
        from alltrace.cli.verbs.hang import write_verdict

        return write_verdict(verb, Path(args.run[0]), args)  # a job without a profile that hangs or died
    stream = args.picture is None
    with stages(len(run.ranks if question.ranks is None else question.ranks)) as advance_of:
        progress, aligning = advance_of(verb), advance_of(ALIGNING)
        whole = answer_of(run, question, jobs=args.jobs, progress=progress, aligning=aligning, stream=stream)
    with closing(whole):
        answer = whole if getattr(args, "table", None) is None else whole.only(args.table)
        if args.format == "cards" and folder is None:
            from alltrace.cli.cards import write_cards

            write_cards(verb, answer, {r.rank: r.host for r in run.ranks}, args)
        elif folder is None:
            answer = for_writing(recipe, answer, run, args.format)
            write_answer(verb, answer, run.facts(), args, gpu_names(run.ranks))
        else:
            folder.write(verb, answer, run.facts())
            if args.picture is not None:
                write_picture(verb, answer, args.picture)
    return EXIT_DONE


def for_writing(recipe: Question, answer: Answer, run: OpenRun, form: str) -> Answer:
    """The answer with the importance of its columns, and in JSON with the verdict of `diagnose` in words."""
    answer = answer._replace(columns=by_importance(answer.columns, recipe.important))
    if recipe.name != "diagnose" or form != "json":
        return answer
    from alltrace.recipes.questions.diagnose.cards import with_verdict

    return with_verdict(answer, {r.rank: r.host for r in run.ranks})


def _folder(args: argparse.Namespace) -> Folder | None:
    """The folder that -o names, or None if it names a file; a file's name becomes a path."""
    if not isinstance(args.output, str):
        return None
    if args.output == "-" and not args.csv:
        args.output = None
        return None
    if args.csv or is_folder(args.output):
        if args.limit is not None:
            raise UsageError("--limit shortens what is shown, but a folder receives whole tables; give one of them")
        kinds = ["parquet" if args.format in ("cards", "table") else args.format, *(["csv"] if args.csv else [])]
        from alltrace.cli.output import check_csv_safe

        check_csv_safe(args, kinds)
        return Folder(args.output, tuple(dict.fromkeys(kinds)), csv_safe=args.csv_safe)
    args.output = Path(args.output)
    return None
