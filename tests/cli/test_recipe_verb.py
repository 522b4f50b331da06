import argparse

from alltrace.cli.recipe_verb import add_recipe_options
from alltrace.recipes.base import Option, Question
from alltrace.recipes.reference import summary
from alltrace.recipes.registry import REPORTS, find, find_report

ODD = Question(
    "odd",
    "What is odd.\n\nAnd more.",
    (),
    map=lambda _rank, _options: None,
    merge=lambda _parts, _run, _options: None,
    options=(
        Option("least_share", float, 0.5, "share in %, 50 % of %s"),
        Option("on", bool, True, "a flag that is up, 100 %"),
        Option("kind", str, None, "a kind", ("a", "b")),
    ),
)


def parsed(recipe, *arguments):
    parser = argparse.ArgumentParser()
    add_recipe_options(parser, recipe)
    return parser, vars(parser.parse_args(arguments))


def test_options_summary_and_spelling_of_a_recipe():
    parser, values = parsed(ODD, "--least-share", "0.75", "--kind", "b")
    assert values == {"ranks": None, "steps": None, "skip_warmup": False, "least_share": 0.75, "on": True, "kind": "b"}
    assert "share in %, 50 % of %s; default: 0.5" in " ".join(parser.format_help().split())
    assert summary(find("gaps")).startswith("The longest times in which a device did nothing")
    assert summary(ODD) == "What is odd."
    name = next(n for n in REPORTS if any(o.name == "by_rank" for o in find_report(n).options))
    assert parsed(find_report(f"{name}:by-rank"))[1]["by_rank"] is True
    assert parsed(find_report(name))[1]["by_rank"] is False
