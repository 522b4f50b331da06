"""The verb `info`."""

from __future__ import annotations

from alltrace.cli.recipe_verb import RecipeCommand

COMMAND = RecipeCommand("info", "info", "alltrace info ./reports/")
