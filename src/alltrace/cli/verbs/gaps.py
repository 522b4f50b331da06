"""The verb `gaps`."""

from __future__ import annotations

from alltrace.cli.recipe_verb import RecipeCommand

COMMAND = RecipeCommand("gaps", "gaps", "alltrace gaps ./reports/ --min-ns 1000000")
