"""Several recipes at once: `recipe A,B,C`, and `recipe all` with a file for each of their tables, and an index."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alltrace.charts.text_table import PLAIN, to_text
from alltrace.cli.argument_types import folder as folder_path
from alltrace.cli.command import FORMATS, Parser, add_import_options, add_rank_option, open_from
from alltrace.cli.output import ENVELOPE_VERSION, console_form, emit, markdown_text, to_json, to_markdown
from alltrace.cli.output_folder import Folder
from alltrace.cli.progress import ALIGNING, stages
from alltrace.cli.recipe_verb import for_writing
from alltrace.nvidia.filters import FILTERS, PROJECTED, given_filters
from alltrace.recipes.execution.ask_all import Reply, each_reply
from alltrace.recipes.reference import summary
from alltrace.recipes.registry import find, names
from alltrace.run.members import gpu_names
from alltrace.trace.errors import EXIT_DONE, AlltraceError, UsageError, printable
from alltrace.trace.number_text import counted
from alltrace.trace.spans import parse_ranks

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from alltrace.api import OpenRun
    from alltrace.charts.text_table import TableForm
    from alltrace.recipes.base import Answer, Question


def _parser(
    recipes: Sequence[Question], name: str, description: str, output: str, arguments: Sequence[str]
) -> tuple[Parser, Any]:
    """A parser with the run, what the questions share, and a group for the output; `output` ends the example."""
    command = f"alltrace recipe {name}"
    parser = Parser(
        prog=command, description=description, example=f"{command} ./reports/ {output}", arguments=arguments
    )
    parser.add_argument(
        "run", nargs="+", metavar="RUN", help="a run directory; or reports, folders of reports, patterns or URLs"
    )
    add_import_options(parser)
    group = parser.add_argument_group("the questions")
    add_rank_option(group)
    # what a recipe cannot do without, and what many share
    filters = {o.name: o for o in (*FILTERS, PROJECTED)}
    shared = {o.name: o for r in recipes for o in r.options if o.required or o.name in filters}
    for option in shared.values():
        needed = ", ".join(r.name for r in recipes if any(o.name == option.name and o.required for o in r.options))
        text = f"{option.help} For {needed}." if needed else option.help
        option._replace(default=None, help=text, choices=None).add_to(group)
    return parser, parser.add_argument_group("output")


def _replies(
    recipes: Sequence[Question], run: OpenRun, args: argparse.Namespace, *, stream: bool
) -> Iterator[tuple[int, Reply]]:
    """The number of each recipe and its answer, with the options among `args` that are required or filter rows."""
    values = {k: v for k, v in vars(args).items() if v is not None}
    filters = {o.name for o in (*FILTERS, PROJECTED)}
    # --name applies to recipes that require a name, not to those with an optional one
    questions = [
        (r, {o.name: values[o.name] for o in r.options if o.name in values and (o.required or o.name in filters)})
        for r in recipes
    ]
    ranks = parse_ranks(args.ranks)
    with stages(len(run.ranks) if ranks is None else len(ranks)) as advance_of:
        progress, aligning = advance_of("asking"), advance_of(ALIGNING)
        yield from each_reply(
            run, questions, ranks=ranks, jobs=args.jobs, progress=progress, aligning=aligning, stream=stream
        )


def ask_all_and_write(arguments: Sequence[str]) -> int:
    recipes = [find(name) for name in names()]
    text = (
        "Run every recipe that the run has data for. Each table of each answer becomes a file, RECIPE/TABLE.parquet; "
        "index.md and index.json list them and say what was skipped and why."
    )
    parser, output = _parser(recipes, "all", text, "-o answers --format csv", arguments)
    parser.add_argument("--recipes", metavar="NAMES", help="these recipes only, such as nvtx_sum,gpu_gaps")
    output.add_argument(
        "-o",
        "--output",
        type=folder_path,
        metavar="DIR",
        required=True,
        help="the folder to write to, or a URL such as s3://bucket/prefix",
    )
    output.add_argument(
        "--format",
        choices=("parquet", "csv", "json", "md"),
        default="parquet",
        help="format of the tables; default: parquet",
    )
    parser.add_last()
    args = parser.parse_args(arguments)
    chosen = recipes if args.recipes is None else chosen_recipes(args.recipes, "--recipes")
    folder = Folder(args.output, (args.format,))
    given_filters(vars(args))  # what cannot be understood is refused before anything is imported
    run = open_from(args)
    done: dict[int, _Done] = {}
    for number, reply in _replies(chosen, run, args, stream=True):
        done[number] = _written(folder, reply, run.facts())
        del reply  # an answer is let go before the next one is made
    replies = [done[number] for number in sorted(done)]
    facts = run.facts()
    folder.write_text("index.json", f"{json.dumps(_index(replies, facts), ensure_ascii=False, indent=1)}\n")
    folder.write_text("index.md", _page(replies, facts))
    skipped = sum(r.skipped is not None for r in replies)
    print(  # noqa: T201
        f"alltrace: {counted(len(replies) - skipped, 'recipe')}, {counted(sum(len(r.files) for r in replies), 'table')}"
        f" in {printable(args.output)}; {skipped} skipped, see index.md",
        file=sys.stderr,
    )
    return EXIT_DONE


@dataclass(frozen=True)
class _Done:
    """What became of a question: the files and notes of its answer, or why it was skipped."""

    recipe: Question
    files: list[dict[str, Any]]
    notes: tuple[str, ...]
    skipped: str | None


def _written(folder: Folder, reply: Reply, facts: Mapping[str, int]) -> _Done:
    if reply.answer is None:
        return _Done(reply.recipe, [], (), reply.skipped or "")
    with closing(reply.answer) as answer:
        try:
            files = folder.write(reply.recipe.name, answer, facts, within=reply.recipe.name)
        except UsageError as error:  # of rows that are made as they are written
            return _Done(reply.recipe, [], (), str(error))
    return _Done(reply.recipe, files, reply.answer.notes, None)


def ask_several_and_write(recipes: Sequence[Question], name: str, arguments: Sequence[str]) -> int:
    text = (
        "Ask several recipes of one run, which is read once for all of them. Options are those that they need or"
        " filter by."
    )
    parser, output = _parser(recipes, name, text, "--format json", arguments)
    output.add_argument(
        "--format", choices=FORMATS, default="table", help="default: table; csv and parquet need a folder"
    )
    output.add_argument(
        "-o",
        "--output",
        metavar="PLACE",
        help="the file to write to; for csv and parquet a folder, with a file for each recipe",
    )
    parser.add_last()
    args = parser.parse_args(arguments)
    folder = None
    if args.format in ("csv", "parquet"):
        if args.output is None:
            raise UsageError(f"--format {args.format} of several recipes is several files; give -o FOLDER")
        folder = Folder(args.output, (args.format,))
    elif args.output is not None and Path(args.output).is_dir():
        raise UsageError(
            f"-o is {printable(args.output)!r}, a folder; expected the name of a file, or --format csv or parquet"
        )
    given_filters(vars(args))
    run = open_from(args)
    replies = dict(_replies(recipes, run, args, stream=False))
    failed = {reply.recipe.name: reply.skipped for reply in replies.values() if reply.skipped is not None}
    if len(failed) == len(recipes):
        raise AlltraceError("; ".join(f"{name}: {why}" for name, why in failed.items()))
    answers = [
        (r.recipe.name, for_writing(r.recipe, r.answer, run, args.format))
        for _, r in sorted(replies.items())
        if r.answer is not None
    ]
    if folder is None:
        form = (PLAIN if args.output is not None else console_form())._replace(gpus=gpu_names(run.ranks))
        pieces = (
            _in_json(answers, run.facts(), failed)
            if args.format == "json"
            else _in_text(answers, args.format == "md", form)
        )
        emit(pieces, None if args.output is None else Path(args.output))
    else:
        for recipe, answer in answers:
            folder.write(recipe, answer, run.facts(), main=recipe)
    for recipe, why in failed.items():
        print(f"alltrace: {recipe} is left out: {printable(why)}", file=sys.stderr)  # noqa: T201
    return EXIT_DONE


def _in_json(
    answers: Sequence[tuple[str, Answer]], facts: Mapping[str, int], failed: Mapping[str, str]
) -> Iterator[str]:
    envelopes = ",\n".join(to_json(recipe, answer, answer.table, facts).rstrip() for recipe, answer in answers)
    skipped = json.dumps(
        [{"recipe": recipe, "why": printable(why)} for recipe, why in failed.items()], ensure_ascii=False
    )
    yield f'{{"alltrace": {ENVELOPE_VERSION}, "verb": "recipe", "answers": [\n{envelopes}\n],\n"skipped": {skipped}}}\n'


def _in_text(answers: Sequence[tuple[str, Answer]], markdown: bool, form: TableForm) -> Iterator[str]:
    for number, (recipe, answer) in enumerate(answers):
        heading = f"## {recipe}\n" if markdown else f"{recipe}\n{'=' * len(recipe)}"
        text = to_markdown(answer, answer.table) if markdown else to_text(answer, answer.table, 0, form)
        yield f"{chr(10) if number else ''}{heading}\n{text}"


def chosen_recipes(wanted: str, where: str) -> list[Question]:
    """The recipes that a list such as `kernels,launches` names, each once; `where` says where the list stands."""
    chosen = dict.fromkeys(name.strip() for name in wanted.split(",") if name.strip())
    if not chosen:
        raise UsageError(f"{where} is empty; `alltrace recipe --list` lists the recipes")
    return [find(name) for name in chosen]


def _index(replies: Sequence[_Done], facts: Mapping[str, int]) -> dict[str, Any]:
    recipes = [
        {"recipe": r.recipe.name, "tables": r.files, "notes": [printable(n) for n in r.notes]}
        for r in replies
        if r.skipped is None
    ]
    skipped = [{"recipe": r.recipe.name, "why": printable(r.skipped)} for r in replies if r.skipped is not None]
    return {"alltrace": 1, "run": dict(facts), "recipes": recipes, "skipped": skipped}


def _page(replies: Sequence[_Done], facts: Mapping[str, int]) -> str:
    ranks, hosts, devices = (counted(facts[thing], thing[:-1]) for thing in ("ranks", "hosts", "devices"))
    lines = ["# All recipes", "", f"{ranks} on {hosts}, {devices}.", ""]
    lines += ["| recipe | table | rows | file |", "|---|---|---:|---|"]
    for reply in replies:
        lines += [
            f"| {reply.recipe.name} | {f['table']} | {f['rows']:,} | [{f['file']}]({f['file']}) |" for f in reply.files
        ]
    for reply in replies:
        if reply.skipped is None:
            lines += ["", f"## {reply.recipe.name}", "", summary(reply.recipe)]
            lines += ["", *(f"* {markdown_text(n)}" for n in reply.notes)] if reply.notes else []
    skipped = [r for r in replies if r.skipped is not None]
    if skipped:
        lines += ["", "## Skipped", "", *(f"* {r.recipe.name}: {markdown_text(r.skipped or '')}" for r in skipped)]
    return "\n".join(lines) + "\n"
