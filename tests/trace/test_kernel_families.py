"""Families of kernels by the names that libraries write, and that the class of a kernel comes from the same list."""

from tests.together import together

from alltrace.trace.kernel_families import FAMILIES, family_in_name
from alltrace.trace.kernel_rules import built_in_rules

AMD = {
    "gemm": (
        "wvSplitK_hf_sml_",
        "void wvSplitKQ_hf_<__hip_bfloat16, 64, 2, 16, 16, 2, 1>(int)",
        "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT32x32x256_MI16x16x1_SN_LDSB1",
        "Cijk_Ailk_Bljk_SB_MT64x64x8_SE_APM1_AF0EM1",
        "Cijk_Ailk_Bjlk_HHS_BH_MT128x128x32_MI32x32x8x1_SN_GSU4",
        "Custom_Cijk_Ailk_Bljk_F8SS_BH_Bias_AS_SAB_SCD_SAV_freeSize_128x512x32_UserArgs_shortname0_gfx942",
        "Cijk_B_PostGSU2",
        "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1",
        "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu",
        "_p_matmul_ogs_NTN_fp8xfp8_128x256x64x1",
        "_ZN2ck16tensor_operation6device37kernel_batched_gemm_xdlops_bwd_weightINS_47GridwiseGemm_bk0mk1_bk0nk1_mn_xdlops_bwd_weight",
        "_ZN2ck27kernel_gemm_xdl_cshuffle_v3INS_28GridwiseGemm_xdl_cshuffle_v3INS_13tensor_layout4gemm8RowMajor",
        "_ZN7ck_tile6kentryILi1ENS_17FlatmmKernelINS_26GemmSpatiallyLocalTilePart",
        "void aiter::fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_ps_32x256",
        "_ZN5aiter50fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_ps_32x256E",
        "fmoe_bf16_noquantBf16_g1u0_silu_1tg_32x384",
        "ck_moe_stage1_kernel<BF16, 128, 128>",
        "fused_moe_kernel",
        "triton_mm_32",
        "_gemm_a8_w8_blockscale_kernel",
        "void rocblas_gemvt_sn_kernel<false, 256, 4, float2 const*, float2*>",
        "void wvSplitKrc_gemm_hf_sml_<__half, 64, 2, 16, 8, 2, 1>",
    ),
    "attention": (
        "attn_fwd",
        "attn_fwd.kd",
        "bwd_kernel_dk_dv.kd",
        "bwd_kernel_dq",
        "bwd_kernel_fuse",
        "bwd_preprocess",
        "_attn_fwd",
        "_attn_bwd_dkdv",
        "kernel_unified_attention_2d",
        "kernel_unified_attention_3d",
        "kernel_paged_attention_2d",
        "_fwd_grouped_kernel_stage1",
        "_ZN7ck_tile6kentryILi1ENS_13FmhaFwdKernelINS_34BlockFmhaPipelineQRKSVSAsync",
        "void aiter::fmha_fwd_hd128_bf16_causal_rtna_group",
        "void paged_attention_ll4mi_QKV_mfma16_kernel<__hip_bfloat16, __hip_bfloat16, (vllm::Fp8KVCacheDataType)0>",
        "aiter::mla_dec_stage1_bf16_a16w16_subQ16_mqa16",
        "_ZN5aiter38mla_dec_stage1_bf16_a16w16_subQ16_mqa16E",
        "_ZN5aiter24pa_bf16_noquant_gqa8_1tgE",
    ),
    "convolution": (
        "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32_wt32x32x8_ws1x1",
        "igemm_wrw_gtcx3_nhwc_bf16_bx0_ex1_bt64x64x64",
        "_ZN2ck16tensor_operation6device12_GLOBAL__N_149kernel_grouped_conv_fwd_multiple_abd_xdl_cshuffleINS_34GridwiseGemm",
        "miopenSp3AsmConv_v30_3_1_gfx9_fp32_f2x3_stride1",
        "MIOpenConvUni.kd",
        "naive_conv_ab_nonpacked_fwd_nchw_half_double_half",
        "gridwise_convolution_implicit_gemm_v4r4_xdlops_nchw_kcyx_nkhw",
    ),
    "reduction": (
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int, float)",
        "MIOpenBatchNormFwdTrainSpatial",
        "MIOpenBatchNormBwdSpatialFinalDX",
        (
            "void at::native::batch_norm_collect_statistics_kernel<at::native::Var, c10::BFloat16, c10::BFloat16,"
            " float, int>(int)"
        ),
        "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipelineOnePassINS_27Rmsnorm2dFwdPipelineProblem",
        "void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16*, c10::BFloat16 const*)",
        (
            "void at::native::(anonymous namespace)::max_pool_backward_nchw<c10::BFloat16, float>(c10::BFloat16 const*,"
            " long const*)"
        ),
        "moe_sum_kernel<BF16>",
        "_topk_forward",
    ),
    "elementwise": (
        "SubTensorOpWithScalar1d",
        "SubTensorOpWithCastTensor1d",
        "batched_transpose_16x32_half",
        "transpose_CNHW2NCHW_V2_2D_WG_off64",
        "Op2dTensorLite",
        "OpTensorFwdBias",
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*,"
            " 3ul> >(int)"
        ),
        "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*, c10::BFloat16*)",
        "void vllm::reshape_and_cache_flash_kernel<__hip_bfloat16, __hip_bfloat16, (vllm::Fp8KVCacheDataType)0>(int)",
        "void vllm::act_and_mul_kernel<c10::BFloat16, &(vllm::silu_kernel)>(int)",
    ),
    "softmax": (
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>(float*)",
        "SoftmaxForward_miopen",
    ),
    "fused": (
        "triton_poi_fused__to_copy_1",
        "triton_per_fused_native_layer_norm_add_0",
        "triton_red_fused__scaled_dot_product_attention_3",
    ),
}


@together(("family", "name"), [(family, name) for family, names in AMD.items() for name in names])
def test_kernels_of_amd_libraries_have_a_family_and_count_as_compute(family, name):
    assert family_in_name(name) == family
    assert built_in_rules().kind(name) == "compute"


def test_what_has_a_family_is_compute():
    """One list: no rule of a family without a rule of the class."""
    patterns = {rule.pattern for rule in built_in_rules().rules if rule.kind == "compute"}
    assert {pattern for _family, pattern in FAMILIES} <= patterns


@together(
    "name",
    [
        "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "_Z23ncclDevKernel_Generic_124ncclDevKernelArgsStorageILm4096EE",
        "_Z17rcclGenericKernelIhEvv",
        "void mscclKernel_Sum_half_Simple_false(mscclKernelArgs)",
        "void vllm::cross_device_reduce_2stage<__hip_bfloat16, 8>(vllm::RankData*)",
        "void aiter::cross_device_reduce_1stage<__half, 8>(aiter::RankData*)",
        "_ZN8deep_ep9intranode8dispatchE deep_ep::intranode::dispatch",
    ],
)
def test_kernels_that_communicate_are_no_family_before_their_class(name):
    assert built_in_rules().kind(name) in ("collective", "exchange")
