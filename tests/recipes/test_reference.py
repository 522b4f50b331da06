"""The documentation of recipes as text."""

from __future__ import annotations

from tests.together import together

from alltrace.recipes.reference import recipe_reference, reference, summary
from alltrace.recipes.registry import find, names


@together("name", names())
def test_every_option_and_column_of_a_recipe_is_in_its_documentation(name):
    recipe = find(name)
    text = recipe_reference(recipe)
    assert text.startswith(f"{name} -- {summary(recipe)}\n")
    for option in recipe.options:
        assert f"    --{option.name.replace('_', '-')}: " in text
    for column in recipe.answer_columns({o.name: o.default for o in recipe.options}):
        assert f"    {column.name}" in text


def test_text_is_wrapped_and_a_section_without_entries_is_left_out():
    text = reference("name", f"First line.\n\n{'word ' * 40}", (), [("column", "meaning " * 20)])
    assert max(map(len, text.splitlines())) <= 80
    assert "Options" not in text
    assert text.splitlines()[-1].startswith("        meaning")
