"""Numbers that can change an answer stand in one module, with the measurement that they come from."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import alltrace.align
from alltrace.align import constants

FOLDER = Path(alltrace.align.__file__).parent
MODULES = sorted(p.name for p in FOLDER.glob("*.py") if p.name != "constants.py")
MOST = 10

LEFT = {
    "capture_slowdown.py": 5,
    "clock_jumps.py": 1,
    "communicators_by_order.py": 2,
    "log_call_matching.py": 15,
    "log_join.py": 3,
    "matching.py": 5,
    "matching_score.py": 2,
    "message_partners.py": 1,
    "nccl_names.py": 3,
    "order_matching.py": 10,
    "pair_clocks.py": 20,
    "printed_steps.py": 9,
    "related_clocks.py": 4,
    "run_matching.py": 1,
    "step_names.py": 3,
    "steps.py": 19,
    "store.py": 1,
    "timelines.py": 1,
}
"""How many numbers modules still have of their own: these become fewer, never more."""
MOST_LEFT = 107
"""A number that a module needs anew follows from the run, or stands in `constants` with its measurement in place of
another."""


def numbers_of(text: str) -> list[float]:
    """The numbers in a module that can change an answer.

    Others are -1, 0, 1, 2 and powers of two, as sizes of batches have; thousands, as units have; and what is in a text,
    is a place in a sequence or a number of bits or digits.
    """
    found: list[float] = []

    def walk(node: ast.AST) -> None:
        if isinstance(node, ast.JoinedStr):
            return
        if isinstance(node, ast.Subscript):
            walk(node.value)
            return
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.LShift | ast.RShift | ast.Pow):
            walk(node.left)
            return
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "round":
            walk(node.args[0])
            return
        if isinstance(node, ast.Constant) and type(node.value) in {int, float} and not _harmless(node.value):
            found.append(node.value)
        for child in ast.iter_child_nodes(node):
            walk(child)

    walk(ast.parse(text))
    return found


def _harmless(value: float) -> bool:
    size = abs(value)
    batch = isinstance(value, int) and size.bit_count() <= 1
    unit = size in {10.0**digits for digits in (3, 6, 9, 12)}
    return batch or unit or size in {0, 1, 2}


def test_numbers_that_can_change_an_answer_are_recognized():
    text = (
        "A = 0.3\nB = -1, 2.0, 64, 1 << 20, 1e9, x[3:5], round(y, 3), f'{z / 7}'\ndef f(n: int = 5):\n    return 4.0 *"
        " n > 12\n"
    )
    assert numbers_of(text) == [0.3, 5, 4.0, 12]


@pytest.mark.parametrize("module", MODULES)
def test_modules_have_no_more_numbers_of_their_own(module):
    found = numbers_of((FOLDER / module).read_text(encoding="utf-8"))
    assert len(found) == LEFT.get(module, 0), found


def test_all_modules_together_have_no_more_numbers_of_their_own():
    assert sum(LEFT.values()) <= MOST_LEFT


def test_each_number_has_its_measurement():
    tree = ast.parse(Path(constants.__file__).read_text(encoding="utf-8"))
    body = tree.body[1:]  # without the module's own text
    assert len(body) % 2 == 0
    for number, text in zip(body[::2], body[1::2], strict=True):
        assert isinstance(number, ast.Assign)
        assert isinstance(text, ast.Expr)
        assert isinstance(text.value, ast.Constant)
        assert len(str(text.value.value)) > 40
    assert len(body) // 2 <= MOST
