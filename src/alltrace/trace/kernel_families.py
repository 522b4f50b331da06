"""What a kernel computes, by its name: the family of arithmetic as libraries write it into the names of their kernels.

Names and the projects that write them, in addition to those that `alltrace.recipes.analysis.kernel_families` explains:

* `Cijk_...`, `Custom_Cijk_...`: Tensile, the kernels of rocBLAS and hipBLASLt; `Cijk_*_PostGSU*` sums the parts of one
  product.
* `attn_fwd`, `bwd_kernel_dk_dv`, `bwd_kernel_dq`, `bwd_kernel_fuse`, `bwd_preprocess`: AOTriton, of PyTorch for ROCm.
* `_matmul_ogs_...`, `_p_matmul_ogs_...`: triton_kernels, products of gathered rows for experts.
* `ck::`, `ck_tile::`, also mangled: Composable Kernel; `igemm_...`, `miopen...`, `SubTensorOp...`,
  `batched_transpose_...`: MIOpen.
* `aiter::...`, `fmoe_...`: AITER; `ck_moe_stage1_...`, `fused_moe_kernel`: experts of vLLM and SGLang.
* `kernel_unified_attention_2d`, `kernel_paged_attention_2d`, `_fwd_grouped_kernel_stage1`: Triton kernels of vLLM and
  SGLang.
"""

from __future__ import annotations

import re

GEMM = "gemm"
CONVOLUTION = "convolution"
ATTENTION = "attention"
ELEMENTWISE = "elementwise"
SOFTMAX = "softmax"
LOG_SOFTMAX = "log-softmax"
REDUCTION = "reduction"
FUSED = "fused"
OTHER = "other"

FAMILIES: tuple[tuple[str, str], ...] = (
    (
        OTHER,
        (
            r"^(?:void"
            r" )?(?:thrust|cub|fbgemm_gpu|dali)::|nchwToNhwc|nhwcToNchw|splitKreduce|multi_tensor_apply|"
            r"[oO]ffsets?Kernel"
        ),
    ),
    (FUSED, r"^triton_(?:poi|per|red|for)_"),
    (
        ATTENTION,
        r"fmha|flash_(?:fwd|bwd)|flash_attn|FlashAttn|flash::|\bmha_|sdpa|paged_attention|attention_kernel|"
        r"AttentionKernel|"
        r"(?:^|[^a-zA-Z])attn_(?:fwd|bwd)|unified_attention|_attention_(?:2d|3d)|[a-z]_attention_(?:fwd|bwd|"
        r"forward|backward)|"
        r"^bwd_(?:kernel_(?:dk_dv|dq|fuse)|preprocess)|_fwd_(?:grouped_)?kernel_stage[12]|\bmla_|aiter(?:::|"
        r"\d+)(?:mla|pa)_|FmhaFwd|FmhaBwd",
    ),
    # of a loss; PyTorch's name has a word for it, or a boolean after three types and a size
    (LOG_SOFTMAX, r"LogSoftMax|log_softmax|softmax_warp_\w+<(?:[^,<>]+, ){4}(?:\(bool\)1|true)"),
    (SOFTMAX, r"(?i:softmax)"),
    (
        ELEMENTWISE,
        r"elementwise_kernel|CatArrayBatchedCopy|fused_dropout_kernel|vectorized_gather_kernel|index_elementwise",
    ),
    (
        REDUCTION,
        r"at::native::(?:(?:\(anonymous namespace\)|\S*)::)?"
        r"(?:reduce_kernel|\w*(?:layer|batch|group|rms)_?norm\w*|GammaBeta\w*|RowwiseMoments\w*)|"
        r"MIOpenBatchNorm|cudnn::bn_|(?:aiter|vllm|flashinfer)::(?:\w+::)*\w*(?:rms|layer)_?norm|(?i:(?:rms|"
        r"layer)norm2d)|^_?(?:rms|layer)_?norm|"
        r"(?:max|avg|average|adaptive)_?pool|^_topk_forward|topk_softmax|moe_sum|_moe_reduce|^reduce_segments|"
        r"^_finalize_matmul",
    ),
    (
        CONVOLUTION,
        r"[a-z]\d*cudnn_|(?:^|[_:\d])[fdw](?:prop|grad)|(?i:conv(?!ert)|winograd)|igemm_|implicit_gemm|fft2d_",
    ),
    (
        GEMM,
        r"(?<!fb)gemm|gemv|nvjet|Cijk_|^triton_(?:mm|bmm|tem_fused\w*_mm)|Gemm|matmul_ogs|_matmul_kernel|^_?matmul_|"
        r"^bmm_|wvSplitKQ?_|fused_moe_kernel|\bfmoe_|aiter(?:::|\d+)fmoe|moe_stage[12]",
    ),
    (
        ELEMENTWISE,
        r"^SubTensorOp|^batched_transpose_|^transpose_(?:CNHW2NCHW|NCHW2CNHW|NHWC2NCHW|NCHW2NHWC)|"
        r"^Op[12345]dTensor|^OpTensor|"
        r"rotary_embedding_kernel|reshape_and_cache|act_and_mul|miopenCastTensor",
    ),
)
"""(family, pattern) in order: the first pattern that is found in a name decides."""


def family_in_name(name: str) -> str | None:
    """The family of the first rule that knows the name; None if no rule does."""
    return next((family for family, pattern in FAMILIES if re.search(pattern, name)), None)
