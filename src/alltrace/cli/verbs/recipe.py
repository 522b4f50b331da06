"""The verb `recipe`: runs any recipe by its name."""

import argparse

from alltrace.cli.command import listed
from alltrace.cli.recipe_verb import ask_by_name
from alltrace.recipes.reference import summary
from alltrace.trace.errors import EXIT_DONE, UsageError

EXAMPLE = "alltrace recipe breakdown ./reports/ --span run"


def configure(parser: argparse.ArgumentParser) -> None:
    """The name; everything after it goes to the recipe's own parser."""
    parser.add_argument(
        "--list", action="store_true", help="list all recipes by what they are about, with what each answers"
    )
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="the recipe, several such as kernels,steps, or `all` of them; `NAME --help` shows its options",
    )
    parser.add_argument(
        "rest", nargs=argparse.REMAINDER, metavar="RUN [options]", help="the run and the recipe's options"
    )


def run(args: argparse.Namespace) -> int:
    from alltrace.recipes.registry import find, groups

    if args.list:
        for group, names in groups().items():
            print(f"{group}:")  # noqa: T201
            for line in listed((name, summary(find(name))) for name in names):
                print(line)  # noqa: T201
        return EXIT_DONE
    if args.name is None:
        raise UsageError("recipe needs a name; `alltrace recipe --list` lists the recipes")
    if args.name == "all":
        from alltrace.cli.all_recipes import ask_all_and_write

        return ask_all_and_write(args.rest)
    if "," in args.name:
        from alltrace.cli.all_recipes import ask_several_and_write, chosen_recipes

        chosen = chosen_recipes(args.name, "the list of recipes")
        return ask_several_and_write(chosen, args.name, args.rest)
    return ask_by_name(args.name, find(args.name), args.rest, command=f"alltrace recipe {args.name}", folders=True)
