"""The verb `recipe`."""

from __future__ import annotations

import argparse

from alltrace.cli.command import Parser, add_answer_options, add_run_argument
from alltrace.cli.recipe_verb import add_recipe_options, ask_and_write, summary
from alltrace.trace.errors import EXIT_DONE, UsageError


class RecipeByName:
    """Asks any recipe by its name."""

    example = "alltrace recipe breakdown ./reports/ --span run"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """The name; everything after it belongs to the recipe, whose own parser reads it."""
        import argparse

        parser.add_argument("--list", action="store_true", help="name all recipes, with what each answers")
        parser.add_argument("name", nargs="?", metavar="NAME", help="the recipe, or `all` of them; `NAME --help` shows its options")
        parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="RUN [options]", help="the run and the recipe's options")

    def run(self, args: argparse.Namespace) -> int:
        """List the recipes, or ask one."""
        from alltrace.recipes.registry import find, names

        if args.list:
            for name in names():
                print(f"{name:<24}{summary(find(name))}")  # noqa: T201
            return EXIT_DONE
        if args.name is None:
            raise UsageError("recipe needs the name of one; `alltrace recipe --list` names them")
        if args.name == "all":
            from alltrace.cli.all_recipes import ask_all_and_write

            return ask_all_and_write(args.rest)
        recipe = find(args.name)
        parser = Parser(
            prog=f"alltrace recipe {args.name}",
            description=recipe.__doc__,
            epilog=f"example:\n  alltrace recipe {args.name} ./reports/",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        add_run_argument(parser)
        add_recipe_options(parser, recipe)
        add_answer_options(parser, folders=True)
        return ask_and_write(args.name, recipe, parser.parse_args(args.rest))


COMMAND = RecipeByName()
