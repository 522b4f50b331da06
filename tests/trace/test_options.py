"""One declaration of an option: as an argument, as words of a command line, and as a value of a file or a call."""

import argparse
import re

import pytest
from tests.together import together

from alltrace.trace.errors import UsageError
from alltrace.trace.options import Option, count, flag, seconds

SPAN = Option(
    "a_span",
    str,
    None,
    "100 % of a span",
    metavar="SPAN",
    expected="a span such as 3:5",
    pattern=re.compile("[0-9]+:[0-9]+"),
    parse=lambda text: tuple(map(int, text.split(":"))) if ":" in text else None,
)
OPTIONS = (
    Option("words", list, [], "words", metavar="WORD"),
    Option("kind", str, "a", "a kind", ("a", "b"), flags=("-k", "--sort")),
    count("per_node", None, "at most N"),
    count("skip", 0, "skipped", 0),
    seconds("grace", 60.0, "a time"),
    flag("quick", "a flag"),
    SPAN,
    Option("share", float, 0.5, "a share"),
    Option("pair", str, None, "two words", metavar=("N", "RUN"), nargs=2),
)


@pytest.fixture
def parser():
    parser = argparse.ArgumentParser(prog="x", exit_on_error=False)
    for option in OPTIONS:
        option.add_to(parser)
    return parser


def test_arguments_defaults_and_help(parser):
    defaults = {o.name: o.default for o in OPTIONS}
    assert vars(parser.parse_args([])) == defaults
    given = "--words=-x --words y -k b --per-node 3 --skip 2 --grace 1.5 --quick --a-span 3:5 --share 2 --pair 4 run"
    values = vars(parser.parse_args(given.split()))
    assert values == {
        "words": ["-x", "y"],
        "kind": "b",
        "per_node": 3,
        "skip": 2,
        "grace": 1.5,
        "quick": True,
        "a_span": (3, 5),
        "share": 2.0,
        "pair": ["4", "run"],
    }
    options = [o for o in OPTIONS if o.name != "pair"]
    values = {
        "words": ["a b", "-y"],
        "kind": "b",
        "per_node": 7,
        "skip": 0,
        "grace": 2.5,
        "quick": True,
        "a_span": (3, 5),
    }
    words = [w for o in options for w in o.words(values.get(o.name))]
    assert words == [
        *("--words=a b", "--words=-y", "--sort", "b", "--per-node", "7", "--skip", "0"),
        *("--grace", "2.5", "--quick", "--a-span", "3:5"),
    ]
    assert vars(parser.parse_args(words)) == {**values, "share": 0.5, "pair": None}
    assert flag("quick", "").words(False) == []
    text = " ".join(parser.format_help().split())
    for expected in (
        "-k {a,b}, --sort {a,b} a kind; default: a",
        "--skip N skipped; default: 0",
        "--grace SECONDS a time; default: 60 ",
        "--quick a flag --a-span SPAN 100 % of a span",
        "--share SHARE a share; default: 0.5",
        "--pair N RUN two words",
        "--words WORD words -k",
    ):
        assert expected in text
    assert Option("x", str, "nsys", "").command_help == "default: nsys"
    assert Option("x", str, "auto", "a; default: what fits").command_help == "a; default: what fits"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--per-node", "0"], "it is '0', expected a whole number of 1 or more"),
        (["--per-node", "2.0"], "it is '2.0', expected a whole number of 1 or more"),
        (["--skip", "-1"], "it is '-1', expected a whole number of 0 or more"),
        (["--grace", "0"], "it is '0', expected a number of seconds greater than 0"),
        (["--grace", "nan"], "it is 'nan', expected a number of seconds greater than 0"),
        (["--grace", "x"], "it is 'x', expected a number of seconds greater than 0"),
        (["--a-span", "3"], "it is '3', expected a span such as 3:5"),
        (["--sort", "c"], "invalid choice: 'c'"),
    ],
)
def test_what_a_command_line_gets_wrong(parser, words, said):
    with pytest.raises(argparse.ArgumentError, match=re.escape(said)):
        parser.parse_args(words)


@together(
    ("option", "value", "said"),
    [
        (Option("n", int, 1, "", least=2, most=5), 1, "n is 1; expected 2 or more"),
        (Option("n", int, 1, "", least=2, most=5), 6, "n is 6; expected 5 or less"),
        (Option("n", int, 1, ""), True, "n is True; expected int"),
        (Option("n", int, 1, ""), 1 << 63, f"n is {1 << 63}; expected a number that fits into 64 bits"),
        (count("n", 1, ""), 0, "n is 0; expected a whole number of 1 or more"),
        (count("n", 1, ""), "1", "n is '1'; expected a whole number of 1 or more"),
        (Option("n", str, None, "", ("a", "b")), "c", "n is 'c'; expected one of a, b"),
        (Option("n", str, None, ""), "\udc80", "n is '\\udc80', with bytes that are not UTF-8; expected text"),
        (Option("n", str, None, ""), 3, "n is 3; expected str"),
        (SPAN, "3:", "n is '3:'; expected a span such as 3:5"),
        (SPAN, 3, "n is '3'; expected a span such as 3:5"),
        (SPAN, "", "n is ''; expected a span such as 3:5"),
    ],
)
def test_what_a_file_or_a_call_gets_wrong(option, value, said):
    with pytest.raises(UsageError) as caught:
        option.checked(value, "n")
    assert str(caught.value) == said


def test_values_and_facts_of_a_form():
    assert Option("n", float, 0.5, "").checked(2, "n") == 2.0
    assert SPAN.checked("3:5", "n") == "3:5"
    assert SPAN._replace(default="").checked("", "n") == ""
    assert Option("n", int, 1, "", least=2, most=5).checked(5, "n") == 5
    assert Option("n", str, None, "", pattern=re.compile("[0-9]+")).checked(64, "n") == "64"
    assert Option("kind", str, "a", "a kind", ("a", "b"), required=True).facts() == {
        "name": "kind",
        "type": "str",
        "default": "a",
        "help": "a kind",
        "choices": ["a", "b"],
        "required": True,
    }
    assert flag("quick", "a flag").facts()["choices"] is None
