"""Floating-point operations of a PyTorch operator, and the least it must move, by its shapes.

A multiplication and an addition are two operations. What is counted is what `torch.utils.flop_counter` counts: the
products of matrices, convolutions and attention; additions of a bias, activations and softmax are left out, and a
causal mask is not deducted. The least bytes are every operand read once and the result written once; caches do not
change that.

| what | operations |
|---|---|
| product of (m, k) and (k, n), b of them | 2 b m k n |
| convolution | 2 (elements of the output) (channels of a group) (elements of the window); transposed: of the input |
| its backward | the same for each requested gradient, of input and of weight |
| attention, b batches and h heads, q queries and k keys of d elements, values of v | 2 b h q k (d + v) |
| its backward, which computes the scores again (FlashAttention, Dao et al. 2022) | 2 b h q k (3 d + 2 v) |
| experts of t tokens, each of which meets s of e experts with weights of w elements | 2 t s w |

Of experts as many read their weights as even routing reaches, e (1 - (1 - 1/e)^(t s)).
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

Shape = tuple[int, ...]

_WIDTHS = {
    "float": 4, "double": 8, "half": 2, "bfloat16": 2, "char": 1, "signedchar": 1, "unsignedchar": 1, "byte": 1,
    "short": 2, "shortint": 2, "int": 4, "long": 8, "longint": 8, "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "complex<float>": 8, "complex<double>": 16, "complexfloat": 8,
    "complexdouble": 16,
}  # fmt: skip
EXPERTS = tuple(
    "vllm::rocm_aiter_fused_moe vllm::inplace_fused_experts vllm::outplace_fused_experts vllm::fused_experts"
    " sglang::inplace_fused_experts sglang::outplace_fused_experts aiter::fused_moe aiter::fused_moe_".split()
)
"""Operators that take tokens, two weights of each expert, and each token's choice of experts."""
_MOST_DIMENSIONS = 16
_MOST_ELEMENTS = 1 << 62


@dataclass(frozen=True)
class Call:
    shapes: tuple[Shape, ...]  # the shape of each argument; empty for one that is not a tensor
    types: tuple[str, ...]  # the type of each argument as the profiler names it
    values: tuple[str, ...]  # each argument that is not a tensor as the profiler writes it; empty if it did not
    strides: tuple[Shape, ...] = ()  # the strides of each argument, in elements; empty if they were not recorded

    def shape(self, at: int, least: int = 1) -> Shape:
        """The shape of a tensor with at least that many dimensions; ValueError if the argument is not one."""
        sizes = self.shapes[at] if at < len(self.shapes) else ()
        if len(sizes) < least:
            raise ValueError(f"argument {at} is not a tensor")
        return sizes

    def integers(self, at: int, count: int) -> Sequence[int]:
        """The whole numbers of an argument that is a list, or one number for all; ValueError if there are none."""
        text = self.values[at] if at < len(self.values) else ""
        value = json.loads(text.replace("(", "[").replace(")", "]")) if text else None
        listed = [value] * count if isinstance(value, int) else value
        if not isinstance(listed, list) or any(not isinstance(n, int) for n in listed) or len(listed) not in (1, count):
            raise ValueError(f"argument {at} is not a list of numbers")
        return listed * count if len(listed) == 1 else listed

    def truth(self, at: int) -> bool:
        """Whether an argument is true; ValueError if not known."""
        if at >= len(self.values) or self.values[at] not in ("True", "False"):
            raise ValueError(f"argument {at} is not a truth value")
        return self.values[at] == "True"


@dataclass(frozen=True)
class Work:
    flops: int  # floating-point operations
    moved_bytes: int | None  # the least bytes it moves; None if a type is not known


def call_of(payload: str | None) -> Call | None:
    """What the payload of an operator's range says it was called with; None if it does not say, or is damaged."""
    try:
        about = json.loads(payload) if payload else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(about, dict):
        return None
    dims = about.get("Input Dims")
    if not isinstance(dims, list):
        return None
    strides = about.get("Input Strides")
    return Call(
        tuple(_shape(d) for d in dims),
        _texts(about.get("Input type")),
        _texts(about.get("Concrete Inputs")),
        tuple(_shape(d) for d in strides) if isinstance(strides, list) else (),
    )


def work_of(name: str, call: Call | None) -> Work | None:
    """What the operator `name` does when it is called so; None if there is no formula or the shapes do not fit it."""
    formula = _FORMULAS.get(name)
    if formula is None or call is None:
        return None
    try:
        flops, moved = formula(call)
    except (ValueError, IndexError, ZeroDivisionError, RecursionError):
        return None
    width = _width(call)
    if not 0 <= flops < _MOST_ELEMENTS or not moved * (width or 1) < _MOST_ELEMENTS:
        return None
    return Work(flops, None if width is None else moved * width)


def _shape(value: Any) -> Shape:
    if not isinstance(value, list) or len(value) > _MOST_DIMENSIONS:
        return ()
    return tuple(value) if all(isinstance(n, int) and 0 <= n < 2**48 for n in value) else ()


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(t if isinstance(t, str) else "" for t in value) if isinstance(value, list) else ()


def width_of(kind: str) -> int | None:
    """The bytes of an element of a type as the profiler names it; None if it is not known."""
    return _WIDTHS.get(kind.replace("c10::", "").replace(" ", "").lower())


def _width(call: Call) -> int | None:
    """The bytes of an element of the first tensor, which represents all."""
    return next((width_of(kind) for shape, kind in zip(call.shapes, call.types, strict=False) if shape), None)


def _product(batch: int, m: int, k: int, n: int) -> tuple[int, int]:
    return 2 * batch * m * k * n, batch * (m * k + k * n + m * n)


def _mm(call: Call, first: int = 0) -> tuple[int, int]:
    (m, k), (other, n) = call.shape(first)[-2:], call.shape(first + 1)[-2:]
    _agree(k, other)
    return _product(1, m, k, n)


def _bmm(call: Call, first: int = 0) -> tuple[int, int]:
    (b, m, k), (_, other, n) = call.shape(first), call.shape(first + 1)
    _agree(k, other)
    return _product(b, m, k, n)


def _mv(call: Call, first: int = 0) -> tuple[int, int]:
    m, k = call.shape(first)
    return _product(1, m, k, 1)


def _matmul(call: Call) -> tuple[int, int]:
    """As `torch.matmul` broadcasts: vectors count as a row or a column, leading dimensions as batches."""
    a, b = call.shape(0), call.shape(1)
    a, b = (1, *a) if len(a) == 1 else a, (*b, 1) if len(b) == 1 else b
    _agree(a[-1], b[-2])
    outer_a, outer_b = a[:-2], b[:-2]
    longest = max(len(outer_a), len(outer_b))
    padded = [(1,) * (longest - len(o)) + o for o in (outer_a, outer_b)]
    batch = prod(max(x, y) for x, y in zip(*padded, strict=True))
    m, k, n = a[-2], a[-1], b[-1]
    return 2 * batch * m * k * n, prod(a) + prod(b) + batch * m * n


def _linear(call: Call) -> tuple[int, int]:
    x, (n, k) = call.shape(0), call.shape(1)
    _agree(x[-1], k)
    return _product(1, prod(x[:-1]), k, n)


def _grouped_mm(call: Call) -> tuple[int, int]:
    """Tokens (t, k) sorted by group times one matrix (k, n) per group."""
    (t, k), (groups, other, n) = call.shape(0), call.shape(1)
    _agree(k, other)
    return 2 * t * k * n, t * k + groups * k * n + t * n


def experts_of(call: Call) -> tuple[int, int, int]:
    """The tokens of a call of fused experts, how many experts each meets, and how many there are; else `ValueError`."""
    (tokens, hidden), first, second = call.shape(0, 2)[-2:], call.shape(1, 3), call.shape(2, 3)
    _agree(first[0], second[0])
    if hidden not in first or hidden not in second:
        raise ValueError("the weights are not of these tokens")
    chosen = next((s[1] for s in call.shapes[3:] if len(s) == 2 and s[0] == tokens and s[1] <= first[0]), None)
    if not chosen:
        raise ValueError("the choice of each token is not known")
    return tokens, chosen, first[0]


def _experts(call: Call) -> tuple[int, int]:
    tokens, chosen, experts = experts_of(call)
    weights = prod(call.shape(1)[1:]) + prod(call.shape(2)[1:])
    reached = experts * (1 - (1 - 1 / experts) ** (tokens * chosen))
    return 2 * tokens * chosen * weights, round(reached * weights) + 2 * prod(call.shape(0))


def _agree(a: int, b: int) -> None:
    if a != b:
        raise ValueError("the shapes do not fit")


def _convolution(
    stride: int, padding: int, dilation: int, transposed: int | None = None
) -> Callable[[Call], tuple[int, int]]:
    """The formula of a convolution with its arguments at these positions; input and weight come first."""

    def formula(call: Call) -> tuple[int, int]:
        x, w = call.shape(0, 3), call.shape(1, 3)
        window = w[2:]
        _agree(len(x), len(w))
        count = len(window)
        steps, spread = call.integers(stride, count), call.integers(dilation, count)
        if call.values[padding : padding + 1] == ("same",):
            out: Sequence[int] = x[2:]
        else:
            room = [0] * count if call.values[padding : padding + 1] == ("valid",) else call.integers(padding, count)
            out = [
                (n + 2 * p - d * (k - 1) - 1) // s + 1
                for n, p, d, k, s in zip(x[2:], room, spread, window, steps, strict=True)
            ]
        if transposed is not None and call.truth(transposed):
            # every element of the input is multiplied with the window of all output channels of its group
            wide = [(n - 1) * s + d * (k - 1) + 1 for n, d, k, s in zip(x[2:], spread, window, steps, strict=True)]
            return 2 * prod(x) * prod(w[1:]), prod(x) + prod(w) + x[0] * w[1] * prod(wide)
        if min(out, default=0) < 0:
            raise ValueError("the window is larger than the input")
        written = x[0] * w[0] * prod(out)
        return 2 * written * prod(w[1:]), prod(x) + prod(w) + written

    return formula


def _convolution_backward(call: Call) -> tuple[int, int]:
    gradient, x, w = call.shape(0, 3), call.shape(1, 3), call.shape(2, 3)
    one = 2 * prod(x if call.truth(7) else gradient) * prod(w[1:])
    mask = call.values[10] if len(call.values) > 10 else ""
    wanted = [part.strip(" []") == "True" for part in mask.split(",")]
    if len(wanted) != 3:
        raise ValueError("which gradients are asked for is not known")
    moved = (prod(gradient) + prod(x) + prod(w)) * (wanted[0] + wanted[1])
    return one * (wanted[0] + wanted[1]), moved


def _attention(
    first: int = 0, *, heads_last: bool = False, backward: bool = False
) -> Callable[[Call], tuple[int, int]]:
    """Attention: query, key, value from argument `first` on, as (batch, heads, sequence, elements), or heads third."""

    def formula(call: Call) -> tuple[int, int]:
        q, k, v = (call.shape(first + n, 4) for n in range(3))
        _agree(max(len(q), len(k), len(v)), 4)
        heads, sequence = (2, 1) if heads_last else (1, 2)
        _agree(q[3], k[3])
        _agree(k[sequence], v[sequence])
        pairs = q[0] * q[heads] * q[sequence] * k[sequence]
        out = q[0] * q[heads] * q[sequence] * v[3]
        moved = prod(q) + prod(k) + prod(v) + out
        if backward:
            return 2 * pairs * (3 * q[3] + 2 * v[3]), 2 * moved
        return 2 * pairs * (q[3] + v[3]), moved

    return formula


_FORMULAS: dict[str, Callable[[Call], tuple[int, int]]] = {
    name: formula
    for names, formula in (
        ("aten::mm aten::_int_mm aten::_scaled_mm", _mm),
        ("aten::addmm aten::_addmm_activation", partial(_mm, first=1)),
        ("aten::bmm", _bmm),
        ("aten::baddbmm aten::addbmm", partial(_bmm, first=1)),
        ("aten::mv", _mv),
        ("aten::addmv", partial(_mv, first=1)),
        ("aten::matmul", _matmul),
        ("aten::linear vllm::rocm_unquantized_gemm", _linear),
        ("aten::_grouped_mm", _grouped_mm),
        (" ".join(EXPERTS), _experts),
        ("aten::conv1d aten::conv2d aten::conv3d", _convolution(3, 4, 5)),
        ("aten::convolution aten::_convolution aten::convolution_overrideable", _convolution(3, 4, 5, 6)),
        ("aten::cudnn_convolution", _convolution(3, 2, 4)),
        ("aten::miopen_convolution", _convolution(4, 3, 5)),
        ("aten::convolution_backward", _convolution_backward),
        (
            "aten::scaled_dot_product_attention aten::_scaled_dot_product_attention_math"
            " aten::_scaled_dot_product_flash_attention aten::_scaled_dot_product_efficient_attention"
            " aten::_scaled_dot_product_cudnn_attention aten::_scaled_dot_product_fused_attention_overrideable",
            _attention(),
        ),
        (
            "aten::_scaled_dot_product_flash_attention_backward"
            " aten::_scaled_dot_product_efficient_attention_backward"
            " aten::_scaled_dot_product_cudnn_attention_backward",
            _attention(1, backward=True),
        ),
        (
            "aten::_flash_attention_forward aten::_efficient_attention_forward flash_attn::_flash_attn_forward",
            _attention(heads_last=True),
        ),
        (
            "aten::_flash_attention_backward aten::_efficient_attention_backward flash_attn::_flash_attn_backward",
            _attention(1, heads_last=True, backward=True),
        ),
    )
    for name in names.split()
}
"""Operator to its formula: operations, and elements moved at least. Einsums and others count through these."""
