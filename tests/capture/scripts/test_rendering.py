import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alltrace.capture.scripts import rendering as module
from alltrace.capture.scripts.rendering import Expression

yaml = pytest.importorskip("yaml")
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    [
        "yes",
        "null",
        "1e3",
        "0x1",
        "1:2",
        "a: b",
        "# x",
        "- a",
        "a\n",
        "\na",
        " a\nb",
        "a\n\n",
        "a\n  b\n",
        "\ta\n",
        "|",
        "~",
        "a\n\nb",
        "\x85",
        "\u2028\n",
    ]
)


@given(TEXT, TEXT)
def test_a_value_is_read_back_at_any_depth(first, second):
    text = f"a:\n  b: {module.yaml(first, 4)}\n  c:\n    - {module.at(f'd: {module.yaml(second, 2)}', 6)}\n"
    assert yaml.safe_load(text) == {"a": {"b": first, "c": [{"d": second}]}}


def test_scripts_stay_readable():
    assert module.yaml("x: 1\n\n  y\n", 2) == "|\n  x: 1\n\n    y"
    assert module.yaml("x\ny", 2) == "|-\n  x\n  y"
    assert [module.yaml(t) for t in ("plain/word.1", "e f", "no", "", "\U0001f600")] == [
        "plain/word.1",
        '"e f"',
        '"no"',
        '""',
        '"\\U0001f600"',
    ]


def test_dollars_that_kubernetes_would_fill_in_are_doubled():
    assert module.literal("$(A) $$ $A ${A} $((1)) $$(B)") == "$$(A) $$$$ $A ${A} $$((1)) $$$$(B)"


def test_an_option_and_its_value_are_on_one_line_if_they_fit():
    words = ["a", "--x", "b c", "--y=1", "z", "--long", "w" * 120, Expression('"$v"')]
    assert module.array(words, "all").splitlines() == [
        "all=(",
        "  a",
        "  --x 'b c'",
        "  --y=1 z",
        f"  --long {'w' * 120}",
        '  "$v"',
        ")",
    ]


def test_a_long_command_is_continued():
    assert module.continued(["srun", "a" * 90, "b" * 10, "c"]) == f"srun {'a' * 90} \\\n  {'b' * 10} c"


def test_a_name_without_a_value_is_a_defect():
    with pytest.raises(jinja2.UndefinedError, match="'settings' is undefined"):
        module.fill("exec.sh", {})
