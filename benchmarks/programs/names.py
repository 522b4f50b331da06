"""Names and launch configurations of kernels, as in reports of real jobs, and the layers made of them."""

from __future__ import annotations

from typing import NamedTuple


class Kernel(NamedTuple):
    """A kind of kernel.

    Attributes:
        name: Demangled.
        short: Without arguments.
        blocks: Of the grid at the usual work.
        threads: Of a block.
        registers: Of a thread.
    """

    name: str
    short: str
    blocks: int
    threads: int
    registers: int

    @property
    def memory_bound(self) -> bool:
        """Whether memory limits it: kernels that compute much have many registers."""
        return self.registers <= 64


ELEMENTWISE = (
    (
        "void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<c10::BFloat16>,"
        " std::array<char *, (unsigned long)3>>(int, T2, T3)"
    ),
    (
        "void at::native::vectorized_elementwise_kernel<(int)4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase"
        " &, at::native::GeluType)::[lambda() (instance 2)]::operator ()() const::[lambda() (instance 4)],"
        " std::array<char *, (unsigned long)2>>(int, T2, T3)"
    ),
    (
        "void at::native::elementwise_kernel<(int)128, (int)4, void"
        " at::native::gpu_kernel_impl_nocast<at::native::BinaryFunctor<float, float, float,"
        " at::native::binary_internal::MulFunctor<float>>>(at::TensorIteratorBase &, const T1 &)>(int, T3)"
    ),
    (
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase"
        " &)::[lambda() (instance 3)], std::array<char *, (unsigned long)2>, (int)4>(int, T1, T2)"
    ),
)
NORMS = {
    "aten": (
        "void at::native::<unnamed>::vectorized_layer_norm_kernel<c10::BFloat16, float, (bool)0>(int, T2, const T1 *,"
        " T1 *)"
    ),
    "apex": (
        "void <unnamed>::cuApplyLayerNorm<float, float, float>(T2 *, T3 *, T3 *, const T1 *, int, int, T3, const T2 *)"
    ),
    "triton": "triton_per_fused__to_copy_add_mean_mul_pow_rsqrt_3",
}
GEMMS = {
    "cutlass": (
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8>(T1::Params)",
        "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_nn_align8>(T1::Params)",
    ),
    "ampere": (
        "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn",
        "ampere_fp16_s16816gemm_fp16_256x128_ldg8_f2f_stages_32x3_nt",
    ),
    "hopper": (
        "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
    ),
    "volta": ("volta_sgemm_128x64_tn", "volta_fp16_s884gemm_fp16_256x128_ldg8_f2f_nn"),
}
ATTENTION = {
    "flash": (
        (
            "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<(int)128, (int)128, (int)64, (int)4, (bool)0,"
            " (bool)0, cutlass::bfloat16_t>, (bool)0, (bool)1>(flash::Flash_fwd_params)"
        ),
        (
            "void flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<(int)128, (int)64,"
            " (int)128, (int)8>, (bool)0, (bool)1>(flash::Flash_bwd_params)"
        ),
    ),
    "cudnn": (
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3_64x128x128_4x1x1_kernel0_0",
        "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_128x64x128_1x1x1_kernel0_0",
    ),
    "triton": ("_attn_fwd", "_attn_bwd"),
}
CONVOLUTIONS = (
    "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16_stage4_warpsize2x2x1_g1_tensor16x8x8",
    (
        "void cudnn::cnn::wgrad_alg0_engine<float, (int)512, (int)6, (int)5, (int)3, (int)3, (int)3, (bool)0,"
        " (int)512>(int, int)"
    ),
    "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, (int)512, (bool)1, (int)1>(cudnnTensorStruct, const T1 *)",
    "void cudnn::bn_bw_1C11_kernel_new<float, float, float2, (int)512>(float, float, float, float, cudnnTensorStruct)",
)
TRITON = (
    "triton_poi_fused_add_gelu_mul_1",
    "triton_red_fused_native_layer_norm_backward_sum_5",
    "triton_poi_fused_silu_mul_2",
)
OTHER_ATTENTION = (
    (
        "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t,"
        " cutlass::arch::Sm80, (bool)1, (int)64, (int)64, (int)64, (bool)1, (bool)1>::Params)"
    ),
    (
        "fmha_cutlassB_bf16_aligned_64x64_k64_sm80(PyTorchMemEffAttention::AttentionBackwardKernel<cutlass::arch::Sm80,"
        " cutlass::bfloat16_t, (bool)1, (bool)0, (bool)0, (int)64, (int)64, (int)64, (bool)0>::Params)"
    ),
)
UNFUSED_ATTENTION = (
    (
        "void gemmSN_TN_kernel<float, (int)128, (int)16, (int)2, (int)4, (int)8, (int)9, (bool)0,"
        " cublasGemvTensorStridedBatched<__nv_bfloat16 const>>(T1)"
    ),
    (
        "void <unnamed>::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, (int)10, (bool)0, (bool)0>(T2 *,"
        " const T1 *, int)"
    ),
    (
        "void gemmSN_NN_kernel<float, (int)128, (int)2, (int)4, (int)8, (int)3, (int)4, (bool)0,"
        " cublasGemvTensorStridedBatched<__nv_bfloat16 const>>(T1)"
    ),
)
OTHER_GEMM = "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x4_nn_align1>(T1::Params)"
OTHER_CONVOLUTION = (
    "void implicit_convolve_sgemm<float, float, (int)1024, (int)5, (int)5, (int)3, (int)3, (int)3>(int, int)"
)
METRICS = (
    "void at::native::reduce_kernel<(int)512, (int)1, at::native::ReduceOp<float, at::native::MeanOps<float, float,"
    " float, float>, unsigned int, float, (int)4>>(T3)"
)
OPTIMIZER = (
    "void at::native::<unnamed>::multi_tensor_apply_kernel<at::native::<unnamed>::TensorListMetadata<(int)4>, "
    "at::native::<unnamed>::FusedAdamMathFunctor<float, (int)4, (at::native::ADAM_MODE)1>>(T1, T2, T3...)"
)
NORM_KERNEL = (
    "void at::native::<unnamed>::multi_tensor_apply_kernel<at::native::<unnamed>::TensorListMetadata<(int)1>, "
    "at::native::<unnamed>::LpNormFunctor<float, (int)2>>(T1, T2, T3...)"
)
LOSS = (
    "void at::native::<unnamed>::cunn_SoftMaxForward<(int)8, float, float, float,"
    " at::native::LogSoftMaxForwardEpilogue>(T4 *, T2)"
)
EMBEDDING = (
    "void at::native::<unnamed>::indexSelectLargeIndex<c10::BFloat16, long, unsigned int, (int)2, (int)2, (int)-2>(int)"
)
ROUTER = "void at::native::sbtopk::gatherTopK<float, unsigned int, (int)2, (bool)0>(T1, T2, bool, T2, T2)"
TINY = (
    "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>, std::array<char *, 1>>(int,"
    " T2, T3)"
)

STYLES = ("megatron", "torch", "compiled", "vision", "hopper", "volta")


def _short(name: str) -> str:
    head = (
        name.split("<")[0] if not name.startswith("void at::native::<unnamed>") else name.split("::")[-1].split("<")[0]
    )
    return head.split("(")[0].removeprefix("void ").split("::")[-1] or name[:40]


def kernel(name: str, blocks: int, threads: int = 128, registers: int = 64) -> Kernel:
    """A kind of kernel by its demangled name."""
    return Kernel(name, _short(name), blocks, threads, registers)


Layer = tuple[tuple[str, Kernel, float], ...]


def layer_of(style: str) -> tuple[Layer, Layer]:
    """The kernels of a layer, forward and backward: (part, kernel, weight), weights of forward add up to about 1."""
    forward: Layer
    backward: Layer
    if style == "vision":
        forward = (
            ("conv", kernel(CONVOLUTIONS[0], 784, 256, 168), 0.45),
            ("norm", kernel(CONVOLUTIONS[2], 64, 512, 32), 0.12),
            ("act", kernel(ELEMENTWISE[0], 3136, 128, 28), 0.08),
            ("conv", kernel(CONVOLUTIONS[0], 392, 256, 168), 0.35),
        )
        backward = (
            ("act", kernel(ELEMENTWISE[2], 3136, 128, 28), 0.15),
            ("norm", kernel(CONVOLUTIONS[3], 64, 512, 40), 0.25),
            ("conv", kernel(CONVOLUTIONS[1], 512, 512, 128), 0.9),
            ("conv", kernel(CONVOLUTIONS[0], 784, 256, 168), 0.7),
        )
        return forward, backward
    gemms = GEMMS[
        {"megatron": "cutlass", "torch": "ampere", "compiled": "hopper", "hopper": "hopper", "volta": "volta"}[style]
    ]
    attention = ATTENTION[{"compiled": "triton", "hopper": "cudnn"}.get(style, "flash")]
    norm = kernel(NORMS[{"compiled": "triton", "megatron": "apex"}.get(style, "aten")], 2048, 128, 40)
    pointwise = [kernel(name, 4096, 128, 32) for name in (TRITON if style == "compiled" else ELEMENTWISE)]
    big, small = kernel(gemms[0], 432, 256, 234), kernel(gemms[1], 216, 128, 168)
    attend, attend_back = kernel(attention[0], 512, 128, 255), kernel(attention[1], 512, 256, 255)
    forward = (
        ("norm", norm, 0.04),
        ("gemm", big, 0.17),
        ("attention", attend, 0.20),
        ("gemm", small, 0.09),
        ("act", pointwise[0], 0.04),
        ("mlp", big, 0.22),
        ("mlp", pointwise[1], 0.05),
        ("mlp", small, 0.19),
    )
    backward = (
        ("mlp", big, 0.40),
        ("mlp", pointwise[2], 0.10),
        ("mlp", big, 0.38),
        ("act", pointwise[0], 0.08),
        ("gemm", small, 0.20),
        ("attention", attend_back, 0.48),
        ("gemm", big, 0.32),
        ("norm", norm, 0.10),
    )
    if style in ("torch", "volta"):  # eager: more kernels
        forward += (("act", pointwise[3], 0.03), ("act", pointwise[2], 0.03))
        backward += (("act", pointwise[3], 0.06), ("act", pointwise[1], 0.05))
    return forward, backward


def other_kernels(layer: Layer, part: str, factor: float) -> Layer:
    """A layer, forward or backward, that runs other kernels for a part of its work.

    Args:
        layer: As usual.
        part: `attention`, `unfused attention` (three kernels in place of one), `gemm` or `conv`.
        factor: How many times as long they take.
    """
    others: list[tuple[str, Kernel, float]] = []
    for own, usual, weight in layer:
        if usual.memory_bound or own not in {"gemm": ("gemm", "mlp"), "conv": ("conv",)}.get(part, ("attention",)):
            others.append((own, usual, weight))
        elif part == "unfused attention":
            shares = zip(UNFUSED_ATTENTION, (0.4, 0.2, 0.4), strict=True)
            others += [(own, kernel(name, 768, 128, 96), weight * factor * share) for name, share in shares]
        else:
            of_attention = OTHER_ATTENTION[usual.name in {backward for _, backward in ATTENTION.values()}]
            name = {"gemm": OTHER_GEMM, "conv": OTHER_CONVOLUTION}.get(part, of_attention)
            others.append((own, kernel(name, 2 * usual.blocks, 256, 122), weight * factor))
    return tuple(others)


def nccl_kernel(operation: str, style: str, algorithm: str = "RING_LL") -> Kernel:
    """The kernel that NCCL launches for an operation, with one algorithm and protocol."""
    if operation in ("SendRecv", "AllToAll"):
        stem = "SendRecv"
    elif operation in ("AllReduce", "ReduceScatter", "Reduce"):
        stem = f"{operation}_Sum_{'bf16' if style != 'vision' else 'f32'}_{algorithm}"
    else:
        stem = f"{operation}_{algorithm}"
    if style in ("volta", "vision"):  # before NCCL 2.19
        parts = stem.split("_")
        old = f"{parts[0]}_{algorithm}_Sum_{'float' if 'Sum' in stem else 'int8_t'}" if stem != "SendRecv" else stem
        return Kernel(f"ncclKernel_{old}(ncclDevComm *, unsigned long, ncclWork *)", f"ncclKernel_{old}", 8, 512, 96)
    argument = (
        "ncclDevKernelArgsStorage<(unsigned long)4096>"
        if style != "megatron"
        else "ncclDevComm *, unsigned long, ncclWork *"
    )
    return Kernel(f"ncclDevKernel_{stem}({argument})", f"ncclDevKernel_{stem}", 16, 544, 96)


_ALGORITHMS = {"AllReduce": ("TREE_LL", "RING_LL", "NVLS_SIMPLE"), "AllGather": ("RING_LL", "RING_LL", "NVLS_SIMPLE")}
_SIZES = (65_536, 16 << 20)


def nccl_kernel_by_size(operation: str, style: str, size_bytes: int, *, other: bool) -> Kernel:
    """The kernel that NCCL picks for a size.

    Args:
        operation: The operation.
        style: Of the program.
        size_bytes: Its message.
        other: Take what another size would have, as a member does whose links differ.
    """
    names = _ALGORITHMS.get(operation, ("RING_LL", "RING_LL", "RING_SIMPLE"))
    choice = sum(size_bytes > limit for limit in _SIZES)
    if other:
        choice = 2 if names[choice] != names[2] else 1
    return nccl_kernel(operation, style, names[choice])
