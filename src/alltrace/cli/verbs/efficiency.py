"""The verb `efficiency`."""

from __future__ import annotations

from alltrace.cli.recipe_verb import RecipeCommand

COMMAND = RecipeCommand("efficiency", "efficiency", "alltrace efficiency ./reports/ --per step --convention talp")
