"""The verb `whatif`."""

from __future__ import annotations

from alltrace.cli.recipe_verb import RecipeCommand

COMMAND = RecipeCommand("whatif", "whatif", "alltrace whatif ./reports/ --rank 3")
