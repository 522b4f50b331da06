"""Many kernel names as C++ templates make them: long, alike at their beginnings, different deep inside."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product, zip_longest

_TYPES = ("float", "c10::BFloat16", "c10::Half", "double", "long", "bool")
_FUNCTORS = (
    "AddFunctor", "MulFunctor", "DivFunctor", "SiluFunctor", "ExpFunctor", "RsqrtFunctor", "CompareEqFunctor", "ClampFunctor",
    "WhereFunctor", "PowTensorScalarFunctor",
)  # fmt: skip
_REDUCTIONS = ("sum_functor", "MeanOps", "NormTwoOps", "MaxNanFunctor", "ArgMaxOps", "WelfordOps")
_TILES = ("64x64_32x6", "128x64_32x4", "128x128_32x5", "128x256_64x3", "256x128_64x3", "256x64_32x4")
_ORDERS = ("nn_align8", "nt_align8", "tn_align8", "tt_align4")
_FUSED = ("add", "mul", "native_layer_norm", "gelu", "_to_copy", "view", "embedding", "clone", "sum", "rsqrt")
_LOADERS = "at::native::memory::LoadWithCast<(int)2>, at::native::memory::StoreWithCast<(int)1>"


def kernel_names(count: int) -> list[tuple[str, str, str]]:
    """Different kernel names.

    `count`: how many, up to about 450. Returns the demangled, short and mangled name of each.
    """
    found: list[tuple[str, str, str]] = []
    # one of each family in turn
    for turn in zip_longest(_elementwise(), _gemms(), _reductions(), _fused(), _optimizers(), _sorts()):
        found += [names for names in turn if names]
        if len(found) >= count:
            break
    return found[:count]


def _mangled(name: str, tail: str) -> str:
    return "_Z" + "".join(f"{len(part)}{part}" for part in name.split("::")) + f"IL{len(tail)}{tail}EEvT_"


def _elementwise() -> Iterator[tuple[str, str, str]]:
    for functor, kind, unrolled in product(_FUNCTORS, _TYPES, (False, True)):
        short = "unrolled_elementwise_kernel" if unrolled else "vectorized_elementwise_kernel"
        inner = f"at::native::BinaryFunctor<{kind}, {kind}, {kind}, at::native::binary_internal::{functor}<{kind}>>"
        casts = f", TrivialOffsetCalculator<(int)2, unsigned int>, {_LOADERS}" if unrolled else ""
        width = "" if unrolled else "(int)4, "
        arguments = f"<{width}{inner}, std::array<char *, (unsigned long)3>{casts}>"
        yield f"void at::native::{short}{arguments}(int, T2, T3)", short, _mangled(f"at::native::{short}", functor + kind)


def _gemms() -> Iterator[tuple[str, str, str]]:
    for tile, order, kind in product(_TILES, _ORDERS, ("bf16", "f16")):
        name = f"cutlass_80_tensorop_{kind}_s16816gemm_relu_{kind}_{tile}_{order}"
        yield f"void cutlass::Kernel2<{name}>(T1::Params)", "Kernel2", _mangled("cutlass::Kernel2", name)


def _reductions() -> Iterator[tuple[str, str, str]]:
    for operation, kind, width in product(_REDUCTIONS, _TYPES[:3], ("(int)512, (int)1", "(int)128, (int)4")):
        inner = f"at::native::{operation}<{kind}, float, {kind}>"
        reduce = f"at::native::ReduceOp<{kind}, at::native::func_wrapper_t<{kind}, {inner}>, unsigned int, {kind}, (int)4, (int)4>"
        yield (
            f"void at::native::reduce_kernel<{width}, {reduce}>(T3)",
            "reduce_kernel",
            _mangled("at::native::reduce_kernel", operation + kind + width[5]),
        )


def _fused() -> Iterator[tuple[str, str, str]]:
    for number, (one, two, kind) in enumerate(product(_FUSED, _FUSED, ("poi", "red"))):
        name = f"triton_{kind}_fused_{one}_{two}_{number}"
        yield name, name, name


def _optimizers() -> Iterator[tuple[str, str, str]]:
    for functor, depth, kind in product(("FusedAdamMathFunctor", "BinaryOpScalarFunctor", "LerpFunctor"), range(1, 5), _TYPES[:3]):
        inner = f"at::native::<unnamed>::TensorListMetadata<(int){depth}>, at::native::<unnamed>::{functor}<{kind}, (int){depth}>"
        text = f"void at::native::<unnamed>::multi_tensor_apply_kernel<{inner}, std::multiplies<{kind}>, float>(T1, T2, T3...)"
        yield text, "multi_tensor_apply_kernel", _mangled("at::native::multi_tensor_apply_kernel", f"{functor}{depth}{kind}")


def _sorts() -> Iterator[tuple[str, str, str]]:
    for stage, kind in product(("Histogram", "ExclusiveSum", "Onesweep"), _TYPES[:5]):
        short = f"DeviceRadixSort{stage}Kernel"
        policy = f"cub::DeviceRadixSortPolicy<{kind}, at::cuda::cub::detail::OpaqueType<(int)8>, unsigned long long>::Policy900"
        text = f"void cub::{short}<{policy}, (bool)0, {kind}, at::cuda::cub::detail::OpaqueType<(int)8>>(T3 *, const T3 *, T5, int)"
        yield text, short, _mangled(f"cub::{short}", kind)
