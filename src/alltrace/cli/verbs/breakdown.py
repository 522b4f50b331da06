"""The verb `breakdown`."""

from __future__ import annotations

from alltrace.cli.recipe_verb import RecipeCommand

COMMAND = RecipeCommand("breakdown", "breakdown", "alltrace breakdown ./reports/ --format csv")
