"""The arithmetic of a kernel and the format of its operands, detected from the kernel's name.

Libraries write both into the names of their kernels. Names and the sources of their rules:

* `cutlass_80_tensorop_s1688gemm_...`: CUTLASS, "CUTLASS Profiler" (procedural names) and `python/cutlass_library`:
  format of the accumulator, shape of the instruction, formats of the operands.
* `ampere_bf16_s16816gemm_bf16_...`, `volta_sgemm_...`, `..._scudnn_...`: cuBLAS and cuDNN; the same grammar after an
  architecture.
* `sm90_xmma_gemm_f32f32_tf32f32_f32_...`: cuBLAS and cuDNN; storage of A and B, formats of product and accumulator,
  storage of C.
* `nvjet_tst_...`: cuBLAS from 12.5 on; formats of operands, accumulator and result: `t` bf16, `h` fp16, `s` fp32 as
  TF32, `q` and `o` fp8, `d` fp64 (seen in public profiles; NVIDIA does not document it).
* `fmha_cutlassF_f32_aligned_..._sm80`: PyTorch, `aten/src/ATen/native/transformers/cuda/mem_eff_attention`; in fp32
  from sm80 on each product is three of TF32 (`OpMultiplyAddFastF32` in `gemm_kernel_utils.h`).
* `flash_fwd_kernel`, `fmha_fwd_loop_kernel`, `FlashAttnFwdSm90`: FlashAttention (Dao et al.), which has 16 and 8 bit
  formats only.
* `Cijk_Alik_Bljk_BBS_BH_...`: Tensile, "Kernel Parameters"; formats of operands, result and product.
* `igemm_fwd_gtcx3_nhwc_bf16_...`: MIOpen, iGEMMgen.
* `vectorized_elementwise_kernel`, `cunn_SoftMaxForward`, ...: PyTorch, `aten/src/ATen/native/cuda`.
* `triton_poi_fused_...`: PyTorch, `torch/_inductor`; what it has fused already.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from alltrace.trace.kernel_families import (
    ATTENTION,
    CONVOLUTION,
    ELEMENTWISE,
    GEMM,
    LOG_SOFTMAX,
    OTHER,
    REDUCTION,
    SOFTMAX,
    family_in_name,
)

MATRIX_FAMILIES = frozenset({GEMM, CONVOLUTION, ATTENTION})
"""Families with times that follow the rate of matrix products."""

BANDWIDTH_FAMILIES = frozenset({ELEMENTWISE, SOFTMAX, LOG_SOFTMAX, REDUCTION})
"""Families that read and write each element once or so, and nothing else: what a compiler can fuse."""

FP64, FP32, TF32X3, TF32, HALF, FP8, FP4 = "fp64", "fp32", "3xtf32", "tf32", "half", "fp8", "fp4"


class KernelFamily(NamedTuple):
    # one of those of `alltrace.trace.kernel_families`
    family: str
    precision: str | None = None  # the format of the products, one of `FP64` to `FP4`; None if the name does not say


_NVJET = {"t": HALF, "h": HALF, "s": TF32, "d": FP64, "q": FP8, "o": FP8}
_WORDS = {
    "f64": FP64, "fp64": FP64, "double": FP64, "f32": FP32, "fp32": FP32, "float": FP32, "tf32": TF32, "f16": HALF,
    "fp16": HALF, "half": HALF, "bf16": HALF, "bfloat16": HALF, "e4m3": FP8, "e5m2": FP8, "fp8": FP8, "e2m1": FP4,
    "fp4": FP4,
}  # fmt: skip
_TYPE = r"(?:tf32|bf16|fp?16|fp?32|fp?64|e4m3|e5m2|e2m1)"
_XMMA = re.compile(rf"xmma_\w*?_{_TYPE}{_TYPE}_({_TYPE}?)(?:{_TYPE})_{_TYPE}")
_XMMA_TRAITS = re.compile(r"_(hmma|imma|dmma|ffma|[hsd]gemm)_(?:(tf32|bf16|fp16|fp32)_)?traits")
_MATH = re.compile(
    r"(?:^|[_:<])g?(?P<accumulator>[shdic])(?P<shape>\d{3,8})?(?P<between>tf32|bf16|f16)?(?:gemm|cudnn|fprop|dgrad|"
    r"wgrad)"
)
_FMHA_CUTLASS = re.compile(r"fmha_cutlass[FB]_(f32|f16|bf16)_\w*?sm(\d+)")
_TENSILE = re.compile(r"Cijk_A\w+?_B\w+?_([A-Z0-9]{1,6})_")
_TENSILE_OPERAND = {"D": FP64, "Z": FP64, "S": FP32, "C": FP32, "X": TF32, "H": HALF, "B": HALF, "F": FP8}
_ARGUMENT = re.compile(r"(?:__)?(?:nv_|hip_|c10::|cutlass::)?(bfloat16|BFloat16|half|Half|float|double)(?:_t)?\b")
_WORD = re.compile(rf"(?:^|_)({_TYPE}|fp8|fp4)(?=[_>(]|$)")


@lru_cache(maxsize=1 << 14)
def family_of(name: str) -> KernelFamily:
    """What the kernel called `name` does; `OTHER` for what no rule knows."""
    family = family_in_name(name) or OTHER
    return KernelFamily(family, _precision(name, family) if family in MATRIX_FAMILIES else None)


def _precision(name: str, family: str) -> str | None:
    if match := re.search(r"nvjet_(?:sm\d+_)?([a-z])", name):
        return _NVJET.get(match[1])
    if match := _FMHA_CUTLASS.search(name):
        wide = match[1] == "f32"
        return (TF32X3 if int(match[2]) >= 80 else FP32) if wide else HALF
    if match := _XMMA.search(name):
        return _WORDS.get(match[1] or "f32")
    if match := _XMMA_TRAITS.search(name):
        return {
            "hmma": TF32 if match[2] == "tf32" else HALF,
            "dmma": FP64,
            "dgemm": FP64,
            "hgemm": HALF,
            "imma": None,
        }.get(match[1], FP32)
    if match := _TENSILE.search(name):
        return _TENSILE_OPERAND.get(match[1][0])
    narrow = [w for w in _WORD.findall(name) if w not in ("f32", "fp32")]
    if narrow:
        return _WORDS[narrow[0]]
    if match := _MATH.search(name):
        return _of_math(name, match)
    if match := _WORD.search(name) or _ARGUMENT.search(name):
        return _WORDS.get(match[1].lower())
    # of the libraries for fused attention, only PyTorch's memory-efficient one accepts fp32, and its names state it
    return HALF if family == ATTENTION and re.search(r"flash|pytorch_fmha", name, re.IGNORECASE) else None


def _of_math(name: str, match: re.Match[str]) -> str | None:
    """The format by CUTLASS's grammar: `s1688gemm` accumulates in fp32, by products of 16 x 8 x 8."""
    accumulator, shape = match["accumulator"], match["shape"]
    if match["between"]:
        return _WORDS[match["between"]]
    if accumulator in "dh":
        return FP64 if accumulator == "d" else HALF
    if accumulator in "ic":
        return None
    if shape is None:
        return FP32
    # of fp32 operands, the products of 16 x 8 x 4 and 16 x 8 x 8 are TF32 from Ampere on; others are not known of
    return (
        TF32
        if shape in ("1684", "1688") and re.search(r"cutlass_(?:80|9\d|1\d\d)|ampere|hopper|sm[89]\d", name)
        else None
    )
