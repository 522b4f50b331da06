"""The verb `diagnose`."""

from __future__ import annotations

from alltrace.cli.recipe_verb import RecipeCommand

COMMAND = RecipeCommand("diagnose", "diagnose", "alltrace diagnose ./reports/ --skip-warmup")
