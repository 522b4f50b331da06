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


def test_lines_stay_readable_and_dollars_are_doubled():
    assert module.yaml("x: 1\n\n  y\n", 2) == "|\n  x: 1\n\n    y"
    assert module.yaml("x\ny", 2) == "|-\n  x\n  y"
    assert [module.yaml(t) for t in ("plain/word.1", "e f", "no", "", "\U0001f600")] == [
        "plain/word.1",
        '"e f"',
        '"no"',
        '""',
        '"\\U0001f600"',
    ]
    assert module.literal("$(A) $$ $A ${A} $((1)) $$(B)") == "$$(A) $$$$ $A ${A} $$((1)) $$$$(B)"
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
    assert module.continued(["srun", "a" * 90, "b" * 10, "c"]) == f"srun {'a' * 90} \\\n  {'b' * 10} c"
    with pytest.raises(jinja2.UndefinedError, match="'settings' is undefined"):
        module.fill("exec.sh", {})
