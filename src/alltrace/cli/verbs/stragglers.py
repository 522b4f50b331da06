"""The verb `stragglers`."""

from __future__ import annotations

from alltrace.cli.recipe_verb import RecipeCommand

COMMAND = RecipeCommand("stragglers", "stragglers", "alltrace stragglers ./reports/")
