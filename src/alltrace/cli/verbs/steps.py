"""The verb `steps`."""

from __future__ import annotations

from alltrace.cli.recipe_verb import RecipeCommand

COMMAND = RecipeCommand("steps", "steps", "alltrace steps ./reports/ --per-step --steps 10:50")
