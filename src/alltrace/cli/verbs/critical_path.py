"""The verb `critical-path`."""

from __future__ import annotations

from alltrace.cli.recipe_verb import RecipeCommand

COMMAND = RecipeCommand("critical-path", "critical-path", "alltrace critical-path ./reports/ --segments")
