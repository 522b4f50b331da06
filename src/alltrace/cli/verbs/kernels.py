"""The verb `kernels`."""

from __future__ import annotations

from alltrace.cli.recipe_verb import RecipeCommand

COMMAND = RecipeCommand("kernels", "kernels", "alltrace kernels ./reports/ --by-rank --limit 20")
