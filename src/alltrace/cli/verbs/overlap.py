"""The verb `overlap`."""

from __future__ import annotations

from alltrace.cli.recipe_verb import RecipeCommand

COMMAND = RecipeCommand("overlap", "overlap", "alltrace overlap ./reports/ --ranks 0-7")
