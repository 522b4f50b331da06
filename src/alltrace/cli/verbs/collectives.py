"""The verb `collectives`."""

from __future__ import annotations

from alltrace.cli.recipe_verb import RecipeCommand

COMMAND = RecipeCommand("collectives", "collectives", "alltrace collectives ./reports/ --link-gb-per-s 450")
