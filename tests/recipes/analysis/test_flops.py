from __future__ import annotations

import json

import pytest

from alltrace.recipes.analysis.flops import call_of, work_of

BF16, F32 = "c10::BFloat16", "float"


def called(*shapes, kind=F32, values=None):
    types = [kind if s else "Scalar" for s in shapes]
    about = {"Input Dims": [list(s) for s in shapes], "Input type": types}
    if values is not None:
        about["Concrete Inputs"] = ["" if v is None else v for v in values]
    return call_of(json.dumps(about))


def flops(name, *shapes, **others):
    found = work_of(name, called(*shapes, **others))
    return None if found is None else (found.flops, found.moved_bytes)


@pytest.mark.parametrize(
    ("name", "shapes", "expected"),
    [
        ("aten::mm", [(2, 3), (3, 5)], (60, 4 * (6 + 15 + 10))),
        ("aten::addmm", [(5,), (2, 3), (3, 5), (), ()], (60, 4 * (6 + 15 + 10))),
        ("aten::bmm", [(7, 2, 3), (7, 3, 5)], (420, 4 * 7 * 31)),
        ("aten::baddbmm", [(7, 2, 5), (7, 2, 3), (7, 3, 5)], (420, 4 * 7 * 31)),
        ("aten::mv", [(4, 6), (6,)], (48, 4 * (24 + 6 + 4))),
        ("aten::linear", [(4, 2, 3), (5, 3), (5,)], (240, 4 * (24 + 15 + 40))),
        ("aten::matmul", [(3,), (3,)], (6, 4 * (3 + 3 + 1))),
        ("aten::matmul", [(2, 3), (3,)], (12, 4 * (6 + 3 + 2))),
        ("aten::matmul", [(8, 1, 2, 3), (4, 3, 5)], (2 * 32 * 30, 4 * (48 + 60 + 320))),
        ("aten::_grouped_mm", [(10, 3), (4, 3, 5)], (300, 4 * (30 + 60 + 50))),
    ],
)
def test_products_of_matrices(name, shapes, expected):
    assert flops(name, *shapes) == expected


def test_the_width_is_that_of_the_first_tensor():
    assert flops("aten::mm", (2, 3), (3, 5), kind=BF16) == (60, 2 * 31)
    assert flops("aten::mm", (2, 3), (3, 5), kind="c10::Float8_e4m3fn") == (60, 31)
    assert flops("aten::mm", (2, 3), (3, 5), kind="something new") == (60, None)


PLAIN = [None, None, None, "[2, 2]", "[1, 1]", "[1, 1]"]


def test_convolutions():
    # 8 + 2 - 3 = 7, by 2 gives 4 by 4 outputs of 6 channels, each of 3 * 3 * 3 products
    shapes = [(2, 3, 8, 8), (6, 3, 3, 3), (6,)]
    expected = 2 * (2 * 6 * 16) * 27, 4 * (2 * 3 * 64 + 6 * 27 + 2 * 6 * 16)
    assert flops("aten::conv2d", *shapes, (), (), (), values=[*PLAIN, "1"]) == expected
    tail = ["False", "[0, 0]", "1"]
    assert flops("aten::convolution", *shapes, (), (), (), values=[*PLAIN, *tail]) == expected
    swapped = [None, None, "[1, 1]", "[2, 2]", "[1, 1]", "1"]
    assert flops("aten::cudnn_convolution", *shapes[:2], (), (), (), (), values=swapped) == expected
    moved = [None, None, None, "[1, 1]", "[2, 2]", "[1, 1]", "1"]
    assert flops("aten::miopen_convolution", *shapes, (), (), (), (), values=moved) == expected


def test_groups_dilation_and_padding_by_name():
    # a weight of 1 channel per group; dilation 2 makes the window 5 wide: 10 - 4 = 6
    alone = flops(
        "aten::conv1d", (1, 4, 10), (4, 1, 3), (), (), (), (), values=[None, None, None, "[1]", "[0]", "[2]", "4"]
    )
    assert alone[0] == 2 * (4 * 6) * 3
    same = flops(
        "aten::conv1d", (1, 4, 10), (4, 1, 3), (), (), (), (), values=[None, None, None, "[1]", "same", "[2]", "4"]
    )
    assert same[0] == 2 * (4 * 10) * 3
    valid = flops(
        "aten::conv1d", (1, 4, 10), (4, 1, 3), (), (), (), (), values=[None, None, None, "[1]", "valid", "[2]", "4"]
    )
    assert valid[0] == alone[0]


def test_transposed_convolutions_count_by_their_input():
    values = [*PLAIN, "True", "[0, 0]", "1"]
    assert (
        flops("aten::convolution", (2, 3, 4, 4), (3, 6, 3, 3), (), (), (), (), values=values)[0]
        == 2 * (2 * 3 * 16) * 54
    )


@pytest.mark.parametrize(
    ("mask", "gradients"), [("[True, True, False]", 2), ("[False, True, True]", 1), ("[False, False, True]", 0)]
)
def test_the_backward_of_a_convolution_counts_what_is_asked_for(mask, gradients):
    values = [None, None, None, "[0]", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", mask]
    found = flops("aten::convolution_backward", (2, 6, 8, 8), (2, 3, 8, 8), (6, 3, 3, 3), *[()] * 8, values=values)
    assert found[0] == gradients * 2 * (2 * 6 * 64) * 27


def test_a_convolution_without_its_arguments_is_not_guessed():
    assert flops("aten::conv2d", (2, 3, 8, 8), (6, 3, 3, 3), (6,)) is None
    assert flops("aten::convolution_backward", (2, 6, 8, 8), (2, 3, 8, 8), (6, 3, 3, 3)) is None


def test_attention():
    q, kv = (2, 8, 100, 64), (2, 8, 50, 64)
    pairs = 2 * 8 * 100 * 50
    moved = 4 * (2 * 2 * 8 * 100 * 64 + 2 * 2 * 8 * 50 * 64)
    for name in ("aten::scaled_dot_product_attention", "aten::_scaled_dot_product_flash_attention"):
        assert flops(name, q, kv, kv) == (2 * pairs * 128, moved)
    turned = [(2, 100, 8, 64), (2, 50, 8, 64), (2, 50, 8, 64)]
    assert flops("aten::_flash_attention_forward", *turned) == (2 * pairs * 128, moved)
    assert flops("aten::_flash_attention_backward", turned[0], *turned)[0] == 5 * pairs * 128
    assert flops("aten::_scaled_dot_product_flash_attention_backward", q, q, kv, kv)[0] == 5 * pairs * 128
    grouped = (2, 2, 50, 64)
    assert flops("aten::scaled_dot_product_attention", q, grouped, grouped)[0] == 2 * pairs * 128


def test_attention_over_sequences_packed_together_is_not_guessed():
    assert flops("aten::_flash_attention_forward", (300, 8, 64), (300, 8, 64), (300, 8, 64), (4,), (4,)) is None


@pytest.mark.parametrize(
    "payload",
    [
        None,
        "",
        "{",
        "[]",
        '{"Input Dims": 3}',
        '{"Input Dims": [3, 4]}',
        '{"Input Dims": [[2, -3], [3, 5]]}',
        '{"Input Dims": [[2, 4], [3, 5]], "Input type": ["float", "float"]}',
        '{"Input Dims": [[2, 3, 4], [3, 5]], "Input type": 7}',
        '{"Input Dims": [[99999999999999999999, 3], [3, 5]]}',
        '{"Input Dims": [["x", 3], [3, 5]]}',
        '{"Input Dims": [[281474976710655, 281474976710655], [281474976710655, 281474976710655]]}',
        # no operations, but more bytes than 64 bits hold
        '{"Input Dims": [[140737488355328, 140737488355328], [140737488355328, 0]], "Input type": ["float", "float"]}',
        '{"Input Dims": [[1, 140737488355328, 140737488355328], [1, 140737488355328, 0]]}',
        '{"Input Dims": ' + "[" * 100_000,
    ],
)
def test_damaged_shapes_are_no_shapes(payload):
    for name in ("aten::mm", "aten::bmm"):
        assert work_of(name, call_of(payload)) is None


def test_operators_without_a_formula_have_none():
    assert flops("aten::add", (2, 3), (2, 3)) is None
    assert flops("aten::einsum", (), (2, 3), (3, 5)) is None
