"""What the shapes, strides and formats of an operator's arguments say of its speed: what keeps it from the roof.

* few tiles: a product is divided into tiles, each of which one multiprocessor computes; fewer tiles than
  multiprocessors leave some without work (NVIDIA, "Matrix Multiplication Background User's Guide": tile and wave
  quantization).
* misaligned: rows that do not begin at multiples of 16 bytes are read in pieces (the same guide: "Tensor Core
  requirements").
* few rows: a product with few rows reads each weight for few operations, so that its intensity is below the device's
  ridge.
* one window per channel: a depthwise convolution multiplies each value it reads a few times only.
* few channels: the sum over input channels is shorter than what a matrix unit adds in one instruction.
* short sequences: a kernel of attention spends its time on its beginning and end.
* strided: operands whose elements do not lie in the order in which they are read.
"""

import re
from collections.abc import Sequence
from math import ceil, prod
from typing import NamedTuple

from alltrace.recipes.analysis.flops import EXPERTS, Call, Shape, experts_of, width_of

_ALIGNED_BYTES = 16
_TILE = (128, 128)
_TILE_IN_NAME = re.compile(r"(?:MT|tilesize|bt|[_x])(\d{2,3})x(\d{2,3})(?=x\d|_|$|\D)")
_PARTS_IN_NAME = re.compile(r"GSU(\d+)_|split_?[kK](?:_slices)?_?(\d+)")
_FEW_ROWS = 64
_FEW_CHANNELS = 8
_SHORT = 512
_QUERIES_OF_A_TILE = 128
_FEW_TOKENS = 128

_PRODUCTS = {
    "mm": 0, "_int_mm": 0, "_scaled_mm": 0, "addmm": 1, "_addmm_activation": 1, "bmm": 0, "baddbmm": 1, "addbmm": 1,
    "mv": 0, "addmv": 1, "matmul": 0, "linear": 0, "rocm_unquantized_gemm": 0,
}  # fmt: skip
_TRANSPOSED = ("linear", "rocm_unquantized_gemm")

_NORMS = frozenset(
    "softmax _softmax log_softmax _log_softmax _softmax_backward_data _log_softmax_backward_data layer_norm"
    " native_layer_norm native_layer_norm_backward batch_norm native_batch_norm cudnn_batch_norm miopen_batch_norm"
    " _batch_norm_impl_index group_norm native_group_norm rms_norm _fused_rms_norm instance_norm cumsum".split()
)
_SAME_SIZE = _NORMS | frozenset(
    "add sub rsub mul div neg abs pow sqrt rsqrt exp log relu gelu silu sigmoid tanh clamp clamp_min clamp_max"
    " leaky_relu elu hardtanh hardswish softplus mish where maximum minimum dropout native_dropout masked_fill lerp"
    " addcmul addcdiv clone contiguous to _to_copy bitwise_not eq ne lt gt le ge sin cos reciprocal square erf floor"
    " round remainder threshold threshold_backward gelu_backward silu_backward sigmoid_backward tanh_backward".split()
)
_SMALLER = frozenset(
    "sum mean amax amin max min argmax argmin norm linalg_vector_norm var std var_mean prod any all max_pool2d"
    " avg_pool2d max_pool2d_with_indices adaptive_avg_pool2d _adaptive_avg_pool2d nll_loss mse_loss logsumexp "
    "topk".split()
)
_WRITES_FIRST = frozenset("copy_ fill_ zero_".split())


class Reason(NamedTuple):
    name: str  # in two or three words
    says: str  # with its numbers
    advice: str  # what to do about it
    tiles: int | None = None  # the tiles that its result is divided into
    # whether the operator is at its best for these shapes, and only others would be faster
    by_shape: bool = False
    on_any: bool = False  # whether it keeps the operator from the roof of any device


_STRIDED = Reason(
    "strided",
    "strided: its operands do not lie in memory in the order in which they are read",
    "make operands contiguous once, where they are made (contiguous, channels-last)",
)


def moved_bytes(name: str, call: Call) -> int | None:
    """The least bytes of an operator that moves each element once; None for others, or if a type is not known."""
    stem = name.removeprefix("aten::")
    plain = stem.rstrip("_") if stem not in _WRITES_FIRST else stem
    if stem == name or not (stem in _WRITES_FIRST or plain in _SAME_SIZE or plain in _SMALLER):
        return None
    tensors = [(s, width_of(t)) for s, t in zip(call.shapes, call.types, strict=False) if s]
    if not tensors or any(width is None for _, width in tensors):
        return None
    read = sum(prod(s) * (width or 0) for s, width in tensors)
    written = (
        0 if plain in _SMALLER or stem in _WRITES_FIRST else max(prod(s) for s, _ in tensors) * (tensors[0][1] or 0)
    )
    return read + written


def is_half(call: Call) -> bool:
    """Whether the first tensor has 16 bits an element."""
    return next((width_of(t) == 2 for s, t in zip(call.shapes, call.types, strict=False) if s), False)


def reasons_of(name: str, call: Call, units: int, kernel: str) -> list[Reason]:
    """What keeps an operator from its roof, most important first; `kernel`: the name of its longest kernel."""
    stem = name.partition("::")[2]
    try:
        if name in EXPERTS:
            return _of_experts(call)
        if stem in _PRODUCTS:
            return _of_product(stem, call, units, kernel)
        if "convolution" in stem or re.fullmatch(r"conv\dd", stem):
            return _of_convolution(call, units, kernel, backward="backward" in stem)
        if "attention" in stem or "flash_attn" in stem:
            return _of_attention(stem, call, units)
        return _of_elements(stem, call)
    except (ValueError, IndexError):
        return []


def _of_product(stem: str, call: Call, units: int, kernel: str) -> list[Reason]:
    first = _PRODUCTS[stem]
    a, b = call.shape(first), call.shape(first + 1)
    if stem in _TRANSPOSED:
        a, b = (prod(a[:-1]), a[-1]), (b[-1], b[0])
    a, b = (1, *a) if len(a) == 1 else a, (*b, 1) if len(b) == 1 else b
    if len(a) > len(b) == 2:
        a = (prod(a[:-1]), a[-1])
    batch, m, k, n = prod(a[:-2]), a[-2], a[-1], b[-1]
    reasons = _misaligned(call, {"k": k, "n": n} if n > 1 else {"k": k}, first)
    if k <= _FEW_ROWS < min(m, n):
        says = (
            f"memory-bound: sums of only {k} products, so that reading and writing {m:,} x {n:,} values takes longer"
            " than they do"
        )
        advice = "fuse the product with what makes or reads its values, or do several of them at once"
        return [*reasons, Reason("short sums", says, advice, by_shape=True)]
    if min(m, n) <= _FEW_ROWS < max(m, n):
        few = "one row" if min(m, n) == 1 else f"only {min(m, n)} rows"
        says = f"memory-bound: a product with {few} reads each of {k * max(m, n):,} weights for few operations"
        advice = "process more rows at once (a larger batch, or several requests together)"
        return [*reasons, Reason("few rows", says, advice, by_shape=True)]
    tiles = batch * _tiles(m, n, kernel)
    return [*reasons, *_few_tiles(tiles, units, f"the {m} x {n} result", k), *_inner_stride(call, 2)]


def _few_tiles(tiles: int, units: int, of_what: str, length: int) -> list[Reason]:
    """That a result has so few tiles that half of the multiprocessors have none."""
    if 2 * tiles > units:
        return []
    has = "a single tile" if tiles == 1 else f"{tiles:,} tiles"
    says = f"few tiles: {of_what} has {has} for {units:,} multiprocessors, each a sum of {length:,}"
    advice = (
        "let several kernels or a split of the sum (split-K, stream-K, smaller tiles) share it, or batch such products"
    )
    return [Reason("few tiles", says, advice, tiles, on_any=True)]


def _tiles(m: int, n: int, kernel: str) -> int:
    """The tiles of a result, of the size in the kernel's name or the common one; the larger of both ways to lay it."""
    sizes = [(int(a), int(b)) for a, b in _TILE_IN_NAME.findall(kernel) if 16 <= int(a) <= 512 and 16 <= int(b) <= 512]
    height, width = sizes[0] if sizes else _TILE
    parts = next((int(a or b) for a, b in _PARTS_IN_NAME.findall(kernel)), 1)
    return max(ceil(m / height) * ceil(n / width), ceil(n / height) * ceil(m / width)) * max(parts, 1)


def _misaligned(call: Call, sizes: dict[str, int], first: int = 0) -> list[Reason]:
    """That the sizes of rows, or their strides where these are recorded, are no multiples of 16 bytes."""
    width = next((width_of(t) for s, t in zip(call.shapes[first:], call.types[first:], strict=False) if s), None) or 0
    step = _ALIGNED_BYTES // width if 0 < width <= _ALIGNED_BYTES else 1
    strides = [s for shape, s in _layouts(call) if len(shape) > 1]
    if strides and all(n % step == 0 for s in strides for n in s if n > 1) and "head size" not in sizes:
        return []  # padded rows
    uneven = {name: size for name, size in sizes.items() if size % step and size > step}
    if not uneven:
        return []
    named = ", ".join(f"{name} {size}" for name, size in uneven.items())
    multiple = "is no multiple" if len(uneven) == 1 else "are no multiples"
    says = f"misaligned: {named} {multiple} of {step} elements ({_ALIGNED_BYTES} bytes)"
    padded = ", ".join(str(ceil(size / (8 * step)) * 8 * step) for size in dict.fromkeys(uneven.values()))
    return [Reason("misaligned", says, f"pad to multiples of {8 * step}, such as {padded}", on_any=True)]


def _of_convolution(call: Call, units: int, kernel: str, *, backward: bool) -> list[Reason]:
    x, w = call.shape(int(backward), 3), call.shape(1 + int(backward), 3)
    channels, groups = x[1], x[1] // w[1] if w[1] and x[1] % w[1] == 0 else 1
    window = " x ".join(map(str, w[2:]))
    if groups > 1 and w[1] < _FEW_ROWS:
        kind = "depthwise" if w[1] == 1 else f"grouped ({groups:,} groups of {w[1]})"
        times = prod(w[2:]) * w[1]
        says = (
            f"memory-bound: a {kind} convolution of {channels:,} channels multiplies each value it reads {times} times"
        )
        advice = "use channels-last memory and a 16-bit format, fuse it with its neighbours, or use fewer groups"
        return [Reason("depthwise" if w[1] == 1 else "grouped", says, advice)]
    if channels < _FEW_CHANNELS:
        size = " x ".join(map(str, x[2:]))
        says = f"few channels: {channels} input channels of {size} fill no matrix unit, which adds 8 or more at once"
        advice = "pad the input to 4 or 8 channels, or rearrange pixels into channels (space to depth)"
        reasons = [Reason("few channels", says, advice)]
    else:
        reasons = _misaligned(call, {"input channels": channels, "output channels": w[0]})
    if prod(w[2:]) == 1 and not is_half(call):
        rows = x[0] * prod(x[2:])
        product = f"{rows:,} x {channels:,} and {channels:,} x {w[0]:,}"
        says = f"pointwise: a 1 x 1 convolution is a product of {product}, here in a wide format"
        advice = "use channels-last memory and a 16-bit format, so that it runs as a plain product"
        reasons.append(Reason("pointwise", says, advice, on_any=True))
    tiles = _tiles(x[0] * prod(x[2:]), w[0], kernel)
    return reasons + _few_tiles(tiles, units, f"the result of a {window} convolution", channels * prod(w[2:]))


def _of_attention(stem: str, call: Call, units: int) -> list[Reason]:
    first = 1 if "backward" in stem else 0
    q, k = call.shape(first, 4), call.shape(first + 1, 4)
    heads, sequence = (2, 1) if stem.startswith(("_flash", "_efficient")) else (1, 2)
    queries, keys, size = q[sequence], k[sequence], q[3]
    tiles = q[0] * q[heads] * ceil(queries / _QUERIES_OF_A_TILE)
    few = _few_tiles(tiles, units, f"attention of {q[0] * q[heads]} heads and {queries:,} queries", keys)
    if queries == 1 or (queries < _FEW_ROWS and keys > _SHORT):
        queries_text = "one query" if queries == 1 else f"{queries} queries"
        says = f"memory-bound: {queries_text} for {keys:,} keys and values, which are read for few operations"
        advice = "decode more sequences at once, or share keys between heads"
        reason = Reason("few queries", says, advice, by_shape=True)
    elif keys <= _SHORT:
        says = (
            f"short sequence: {keys} keys for each of {q[0] * q[heads]:,} heads, so that a block's overhead outweighs"
            " its products"
        )
        advice = "pack short sequences into one call, or use a kernel for short sequences"
        reason = Reason("short sequence", says, advice)
    elif few:
        (reason,) = few
    else:
        says = (
            f"low efficiency: a long sequence of {keys:,} keys has work for all multiprocessors, which the kernel does"
            " not use"
        )
        advice = "use a newer kernel for this device (FlashAttention-3, cuDNN, Composable Kernel, AITER)"
        reason = Reason("low efficiency", says, advice)
    return [*_misaligned(call, {"head size": size}), reason, *_inner_stride(call, 1)]


def _of_experts(call: Call) -> list[Reason]:
    tokens, chosen, experts = experts_of(call)
    each = tokens * chosen / experts
    routing = f"{tokens:,} tokens, top-{chosen} of {experts} experts" + (" (sparse)" if chosen == 1 else "")
    share = f"{each:,.1f}".removesuffix(".0")
    if each < _FEW_TOKENS:
        says = (
            f"memory-bound: few tokens per expert: {routing} are {share} for each, which reads all its weights for them"
        )
        advice = "batch more tokens, or spread experts over fewer devices"
        return [Reason("few tokens per expert", says, advice, by_shape=True)]
    return []


def experts_in_words(name: str, call: Call) -> str:
    """How many tokens each expert has; empty for other operators."""
    if name not in EXPERTS:
        return ""
    tokens, chosen, experts = experts_of(call)
    return f" with {tokens * chosen // experts:,} tokens of capacity for each of {experts} experts"


def _of_elements(stem: str, call: Call) -> list[Reason]:
    strided = _strided(call)
    sizes = {prod(s) for s in call.shapes if prod(s) > 1}
    if not strided and len(sizes) > 1 and stem.rstrip("_") not in _NORMS:
        says = "memory-bound: it reads operands of different shapes (broadcast) at a poor bandwidth"
        advice = "fuse it with its neighbours (torch.compile), or lay the smaller operand out like the other"
        return [Reason("broadcast", says, advice)]
    return strided


def _strided(call: Call) -> list[Reason]:
    """That an operand's elements do not lie together, or two operands of one shape lie in different orders."""
    layouts = [(shape, s) for shape, s in _layouts(call) if prod(shape) > 1 and len(shape) > 1]
    orders = {(shape, tuple(sorted(range(len(s)), key=lambda d: -s[d]))) for shape, s in layouts if 1 not in shape}
    apart = any(not _is_dense(shape, s) for shape, s in layouts)
    return [_STRIDED] if apart or len(orders) > len({shape for shape, _ in orders}) else []


def _inner_stride(call: Call, last: int) -> list[Reason]:
    """That in none of the last dimensions of a matrix its elements follow one another."""
    matrices = [(shape, s) for shape, s in _layouts(call) if len(shape) > 1]
    apart = (all(n != 1 and d > 1 for n, d in zip(s[-last:], h[-last:], strict=True)) for h, s in matrices)
    return [_STRIDED] if any(apart) else []


def _layouts(call: Call) -> list[tuple[Shape, Shape]]:
    return [(shape, s) for shape, s in zip(call.shapes, call.strides, strict=False) if _is_layout(shape, s)]


def _is_layout(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether these can be the strides of such a tensor: no two elements share a place, but those that are repeated."""
    if len(shape) != len(strides):
        return False
    end = 0
    for stride, size in sorted((s, n) for n, s in zip(shape, strides, strict=True) if n > 1 and s):
        if stride <= end:
            return False
        end += stride * (size - 1)
    return True


def _is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the elements lie together, in any order of dimensions, or are repeated."""
    following = 1
    for stride, size in sorted((s, n) for n, s in zip(shape, strides, strict=True) if n > 1 and s):
        if stride != following:
            return False
        following *= size
    return True
