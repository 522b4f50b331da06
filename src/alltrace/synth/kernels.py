"""The kernels a simulated model launches, with plausible names and shapes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product, zip_longest
from math import exp
from statistics import NormalDist

_TYPES = ("float", "c10::BFloat16", "c10::Half", "double", "long", "bool")
_FUNCTORS = (
    "AddFunctor", "MulFunctor", "DivFunctor", "SiluFunctor", "ExpFunctor", "RsqrtFunctor", "CompareEqFunctor",
    "ClampFunctor", "WhereFunctor", "PowTensorScalarFunctor",
)  # fmt: skip
_REDUCTIONS = ("sum_functor", "MeanOps", "NormTwoOps", "MaxNanFunctor", "ArgMaxOps", "WelfordOps")
_TILES = ("64x64_32x6", "128x64_32x4", "128x128_32x5", "128x256_64x3", "256x128_64x3", "256x64_32x4")
_ORDERS = ("nn_align8", "nt_align8", "tn_align8", "tt_align4")
_FUSED = ("add", "mul", "native_layer_norm", "gelu", "_to_copy", "view", "embedding", "clone", "sum", "rsqrt")
_LOADERS = "at::native::memory::LoadWithCast<(int)2>, at::native::memory::StoreWithCast<(int)1>"


def kernel_names(count: int) -> list[tuple[str, str, str]]:
    """Different kernel names."""
    # `count`: how many, up to about 450. Returns the demangled, short and mangled name of each.
    chosen_names: list[tuple[str, str, str]] = []
    # one of each family in turn
    for turn in zip_longest(_elementwise(), _gemms(), _reductions(), _fused(), _optimizers(), _sorts()):
        chosen_names += [names for names in turn if names]
        if len(chosen_names) >= count:
            break
    return chosen_names[:count]


def _mangled(name: str, tail: str) -> str:
    return "_Z" + "".join(f"{len(part)}{part}" for part in name.split("::")) + f"IL{len(tail)}{tail}EEvT_"


def _elementwise() -> Iterator[tuple[str, str, str]]:
    for functor, kind, unrolled in product(_FUNCTORS, _TYPES, (False, True)):
        short = "unrolled_elementwise_kernel" if unrolled else "vectorized_elementwise_kernel"
        inner = f"at::native::BinaryFunctor<{kind}, {kind}, {kind}, at::native::binary_internal::{functor}<{kind}>>"
        casts = f", TrivialOffsetCalculator<(int)2, unsigned int>, {_LOADERS}" if unrolled else ""
        width = "" if unrolled else "(int)4, "
        arguments = f"<{width}{inner}, std::array<char *, (unsigned long)3>{casts}>"
        yield (
            f"void at::native::{short}{arguments}(int, T2, T3)",
            short,
            _mangled(f"at::native::{short}", functor + kind),
        )


def _gemms() -> Iterator[tuple[str, str, str]]:
    for tile, order, kind in product(_TILES, _ORDERS, ("bf16", "f16")):
        name = f"cutlass_80_tensorop_{kind}_s16816gemm_relu_{kind}_{tile}_{order}"
        yield f"void cutlass::Kernel2<{name}>(T1::Params)", "Kernel2", _mangled("cutlass::Kernel2", name)


def _reductions() -> Iterator[tuple[str, str, str]]:
    for operation, kind, width in product(_REDUCTIONS, _TYPES[:3], ("(int)512, (int)1", "(int)128, (int)4")):
        inner = f"at::native::{operation}<{kind}, float, {kind}>"
        reduce = (
            f"at::native::ReduceOp<{kind}, at::native::func_wrapper_t<{kind}, {inner}>, unsigned int, {kind}, (int)4,"
            " (int)4>"
        )
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
    for functor, depth, kind in product(
        ("FusedAdamMathFunctor", "BinaryOpScalarFunctor", "LerpFunctor"), range(1, 5), _TYPES[:3]
    ):
        inner = (
            f"at::native::<unnamed>::TensorListMetadata<(int){depth}>, at::native::<unnamed>::{functor}<{kind},"
            f" (int){depth}>"
        )
        text = (
            f"void at::native::<unnamed>::multi_tensor_apply_kernel<{inner}, std::multiplies<{kind}>, float>(T1, T2,"
            " T3...)"
        )
        yield (
            text,
            "multi_tensor_apply_kernel",
            _mangled("at::native::multi_tensor_apply_kernel", f"{functor}{depth}{kind}"),
        )


def _sorts() -> Iterator[tuple[str, str, str]]:
    for stage, kind in product(("Histogram", "ExclusiveSum", "Onesweep"), _TYPES[:5]):
        short = f"DeviceRadixSort{stage}Kernel"
        policy = (
            f"cub::DeviceRadixSortPolicy<{kind}, at::cuda::cub::detail::OpaqueType<(int)8>, unsigned long"
            " long>::Policy900"
        )
        text = (
            f"void cub::{short}<{policy}, (bool)0, {kind}, at::cuda::cub::detail::OpaqueType<(int)8>>(T3 *, const T3 *,"
            " T5, int)"
        )
        yield text, short, _mangled(f"cub::{short}", kind)


FORWARD = (0, 1, 2, 3, 4, 5)
BACKWARD = (6, 7, 0, 8, 4, 9)
OPTIMIZER = (10, 11)
_NCCL_ARGUMENTS = "(ncclDevKernelArgsStorage<(unsigned long)4096>)"


@dataclass(frozen=True)
class Kernel:
    """A kernel's names, its launch shape, and its share of the mean duration."""

    demangled: str
    short: str
    mangled: str
    weight: float
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers: int
    static_shared_bytes: int
    dynamic_shared_bytes: int


def _gemm(tile: str, layout: str, weight: float) -> Kernel:
    name = f"sm90_xmma_gemm_bf16bf16_bf16f32_f32_{layout}_n_tilesize{tile}_warpgroupsize1x1x1_execute_kernel__5x_cublas"
    return Kernel(name, name, name, weight, (132, 1, 1), (384, 1, 1), 168, 0, 232_448)


def _pointwise(functor: str, weight: float) -> Kernel:
    short = "vectorized_elementwise_kernel"
    long = f"void at::native::{short}<(int)4, at::native::{functor}, std::array<char *, (unsigned long)3>>(int, T2, T3)"
    mangled = f"_ZN2at6native29{short}ILi4ENS0_{len(functor)}{functor.split('<')[0]}EEEviT0_T1_"
    return Kernel(long, short, mangled, weight, (4096, 1, 1), (128, 1, 1), 32, 0, 0)


def _attention(direction: str, weight: float) -> Kernel:
    short = f"flash_{direction}_kernel"
    long = f"void flash::{short}<flash::Traits<(int)128, (int)128, (int)64>, (bool)1>(flash::Params)"
    return Kernel(
        long, short, f"_ZN5flash{len(short)}{short}EvNS_6ParamsE", weight, (16, 32, 8), (256, 1, 1), 255, 0, 163_840
    )


def _norm(direction: str, weight: float) -> Kernel:
    short = f"layer_norm_{direction}_kernel"
    long = f"void at::native::{short}<c10::BFloat16, float>(int, T2, const T1 *, T1 *)"
    return Kernel(long, short, f"_ZN2at6native{len(short)}{short}Ev", weight, (8192, 1, 1), (32, 4, 1), 40, 1024, 0)


VARIED_KERNELS = 220
"""How many kernels replace the model's dozen for work with many names."""


def _varied() -> tuple[Kernel, ...]:
    """Many kernels with long names; their lengths are lognormally distributed from 0.25 to 20 times the mean."""
    kernels = []
    for number, (demangled, short, mangled) in enumerate(kernel_names(VARIED_KERNELS)):
        # a stride without a common divisor visits every quantile once, in no order
        quantile = ((number * 97) % VARIED_KERNELS + 0.5) / VARIED_KERNELS
        weight = min(max(0.65 * exp(NormalDist().inv_cdf(quantile)), 0.25), 20.0)
        grid = (66 * (1 + number % 9), 1 + number % 4, 1)
        kernels.append(
            Kernel(demangled, short, mangled, weight, grid, (128 << number % 3, 1, 1), 24 + 8 * (number % 20), 0, 0)
        )
    return tuple(kernels)


_MODEL: tuple[Kernel, ...] = (
    _gemm("128x256x64", "tn", 1.8),
    _norm("forward", 0.4),
    _attention("fwd", 1.4),
    _pointwise("AddFunctor<c10::BFloat16>", 0.3),
    _gemm("128x128x64", "nn", 1.6),
    _pointwise("GeluFunctor<c10::BFloat16>", 0.5),
    _gemm("128x256x64", "nt", 1.8),
    _attention("bwd", 1.6),
    _norm("backward", 0.5),
    _pointwise("GeluBackwardFunctor<c10::BFloat16>", 0.5),
    _pointwise("FusedAdamFunctor<float>", 1.4),
    _pointwise("LerpFunctor<float>", 0.6),
)

FIRST_VARIED = len(_MODEL)
KERNELS: tuple[Kernel, ...] = (*_MODEL, *_varied())
"""The kernels that compute: a model's, then `VARIED_KERNELS` of many names from `FIRST_VARIED` on."""

NCCL_OPS = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "SendRecv")


_OTHER_ALGORITHMS = {"AllReduce": "TREE_LL", "AllGather": "NVLS_SIMPLE", "ReduceScatter": "NVLS_SIMPLE"}


def nccl_kernel(op: str, algorithm: str = "RING_LL") -> Kernel:
    """The device kernel of an NCCL operation. `op`: one of `NCCL_OPS`. `algorithm`: algorithm and protocol."""
    reduction = "_Sum_bf16" if op in {"AllReduce", "ReduceScatter"} else ""
    short = f"ncclDevKernel_{op}{reduction}_{algorithm}" if op != "SendRecv" else "ncclDevKernel_SendRecv"
    mangled = f"_Z{len(short)}{short}24ncclDevKernelArgsStorageILm4096EE"
    return Kernel(short + _NCCL_ARGUMENTS, short, mangled, 1.0, (24, 1, 1), (544, 1, 1), 96, 0, 82_240)


ALL_KERNELS: tuple[Kernel, ...] = (
    *KERNELS,
    *(nccl_kernel(op) for op in NCCL_OPS),
    *(nccl_kernel(op, algorithm) for op, algorithm in _OTHER_ALGORITHMS.items()),
)
"""Model kernels first, then one for each of `NCCL_OPS`, then some with another algorithm; a kernel's index is its
number everywhere in the simulator."""


def nccl_kernel_index(op: str, *, other: bool = False) -> int:
    """The index in `ALL_KERNELS` of an NCCL operation's kernel; an all-to-all consists of sends and receives."""
    # `other`: of another algorithm, where it has one.
    op = "SendRecv" if op == "AlltoAll" else op
    if other and op in _OTHER_ALGORITHMS:
        return len(KERNELS) + len(NCCL_OPS) + list(_OTHER_ALGORITHMS).index(op)
    return len(KERNELS) + NCCL_OPS.index(op)
