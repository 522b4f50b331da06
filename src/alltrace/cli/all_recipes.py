"""`recipe all`: every recipe that the run has data for, a file for each of their tables, and an index."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from alltrace.cli.argument_types import folder
from alltrace.cli.command import Parser, add_import_options, add_rank_option, open_from
from alltrace.cli.output_folder import Folder
from alltrace.trace.errors import EXIT_DONE, UsageError, printable
from alltrace.trace.number_text import counted
from alltrace.trace.spans import parse_ranks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.base import Question
    from alltrace.recipes.execution.ask_all import Reply


def _parser(recipes: Sequence[Question], arguments: Sequence[str]) -> Parser:
    from alltrace.nvidia.filters import FILTERS, PROJECTED

    parser = Parser(
        prog="alltrace recipe all",
        description="Run every recipe that the run has data for. Each table of each answer becomes a file, RECIPE/TABLE.parquet; "
        "index.md and index.json list them and say what was skipped and why.",
        example="alltrace recipe all ./reports/ -o answers --format csv",
        arguments=arguments,
    )
    parser.add_argument("run", nargs="+", metavar="RUN", help="a run directory; or reports, folders of reports, patterns or URLs")
    add_import_options(parser)
    group = parser.add_argument_group("the questions")
    group.add_argument("--recipes", metavar="NAMES", help="these recipes only, such as nvtx_sum,gpu_gaps")
    add_rank_option(group)
    # what a recipe cannot do without, and what many share
    shared = {o.name: o for r in recipes for o in r.options if o.required} | {o.name: o for o in (*FILTERS, PROJECTED)}
    for option in shared.values():
        needed = ", ".join(r.name for r in recipes if any(o.name == option.name and o.required for o in r.options))
        text = f"{option.help} For {needed}." if needed else option.help
        option._replace(default=None, help=text, choices=None).add_to(group)
    output = parser.add_argument_group("output")
    output.add_argument(
        "-o",
        "--output",
        type=folder,
        metavar="DIR",
        required=True,
        help="the folder to write to, or a URL such as s3://bucket/prefix",
    )
    output.add_argument(
        "--format", choices=("parquet", "csv", "json", "md"), default="parquet", help="format of the tables; default: parquet"
    )
    parser.add_last()
    return parser


def ask_all_and_write(arguments: Sequence[str]) -> int:
    """Ask every recipe and write what they answer, as the arguments after `recipe all` say."""
    from alltrace.nvidia.filters import FILTERS, PROJECTED, given_filters
    from alltrace.recipes.registry import find, names

    recipes = [find(name) for name in names()]
    args = _parser(recipes, arguments).parse_args(arguments)
    chosen = _chosen(recipes, args.recipes)
    folder = Folder(args.output, (args.format,))
    ranks = parse_ranks(args.ranks)
    given = {k: v for k, v in vars(args).items() if v is not None}
    filters = {o.name for o in (*FILTERS, PROJECTED)}
    # --name applies to recipes that require a name, not to those with an optional one
    questions = [
        (r, {o.name: given[o.name] for o in r.options if o.name in given and (o.required or o.name in filters)}) for r in chosen
    ]
    given_filters(given)  # what cannot be understood is refused before anything is imported
    run = open_from(args)
    from alltrace.cli.progress import ALIGNING, stages
    from alltrace.recipes.execution.ask_all import each_reply

    asked = len(run.ranks) if ranks is None else len(ranks)
    done: dict[int, _Done] = {}
    with stages(asked) as advance_of:
        progress, aligning = advance_of("asking"), advance_of(ALIGNING)
        replies_of = each_reply(run, questions, ranks=ranks, jobs=args.jobs, progress=progress, aligning=aligning, stream=True)
        for number, reply in replies_of:
            done[number] = _written(folder, reply, run.facts())
            del reply  # an answer is let go before the next one is made
    replies = [done[number] for number in sorted(done)]
    facts = run.facts()
    folder.write_text("index.json", f"{json.dumps(_index(replies, facts), ensure_ascii=False, indent=1)}\n")
    folder.write_text("index.md", _page(replies, facts))
    skipped = sum(r.skipped is not None for r in replies)
    print(  # noqa: T201
        f"alltrace: {counted(len(replies) - skipped, 'recipe')}, {counted(sum(len(r.files) for r in replies), 'table')} "
        f"in {printable(args.output)}; {skipped} skipped, see index.md",
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


def _chosen(recipes: Sequence[Question], names: str | None) -> list[Question]:
    if names is None:
        return list(recipes)
    known = {r.name: r for r in recipes}
    wanted = [n.strip() for n in names.split(",") if n.strip()]
    for name in wanted:
        if name not in known:
            raise UsageError.unknown("recipe", name, known)
    if not wanted:
        raise UsageError("--recipes is empty; `alltrace recipe --list` lists the recipes")
    return [known[n] for n in dict.fromkeys(wanted)]


def _index(replies: Sequence[_Done], facts: Mapping[str, int]) -> dict[str, Any]:
    recipes = [
        {"recipe": r.recipe.name, "tables": r.files, "notes": [printable(n) for n in r.notes]} for r in replies if r.skipped is None
    ]
    skipped = [{"recipe": r.recipe.name, "why": printable(r.skipped)} for r in replies if r.skipped is not None]
    return {"alltrace": 1, "run": dict(facts), "recipes": recipes, "skipped": skipped}


def _page(replies: Sequence[_Done], facts: Mapping[str, int]) -> str:
    from alltrace.cli.output import markdown_text
    from alltrace.recipes.reference import summary

    ranks, hosts, devices = (counted(facts[thing], thing[:-1]) for thing in ("ranks", "hosts", "devices"))
    lines = ["# All recipes", "", f"{ranks} on {hosts}, {devices}.", ""]
    lines += ["| recipe | table | rows | file |", "|---|---|---:|---|"]
    for reply in replies:
        lines += [f"| {reply.recipe.name} | {f['table']} | {f['rows']:,} | [{f['file']}]({f['file']}) |" for f in reply.files]
    for reply in replies:
        if reply.skipped is None:
            lines += ["", f"## {reply.recipe.name}", "", summary(reply.recipe)]
            lines += ["", *(f"* {markdown_text(n)}" for n in reply.notes)] if reply.notes else []
    skipped = [r for r in replies if r.skipped is not None]
    if skipped:
        lines += ["", "## Skipped", "", *(f"* {r.recipe.name}: {markdown_text(r.skipped or '')}" for r in skipped)]
    return "\n".join(lines) + "\n"
