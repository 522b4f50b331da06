"""Kernels' names as libraries write them, and what they say."""

from __future__ import annotations

import pytest
from tests.together import together

from alltrace.recipes.analysis.device_peaks import peaks_of
from alltrace.recipes.analysis.kernel_families import family_of


@together(
    ("name", "family", "precision"),
    [
        ("volta_sgemm_128x64_nn", "gemm", "fp32"),
        ("ampere_sgemm_32x128_tn", "gemm", "fp32"),
        ("volta_dgemm_64x64_nt", "gemm", "fp64"),
        ("maxwell_hgemm_128x64_nn", "gemm", "half"),
        ("volta_cgemm_32x32_tn", "gemm", None),
        ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", "gemm", "half"),
        ("turing_fp16_s1688gemm_fp16_128x64_ldg8_relu_f2f_tn", "gemm", "half"),
        ("volta_h884gemm_64x128_ldg8_nn", "gemm", "half"),
        ("turing_h1688gemm_128x128_ldg8_nn", "gemm", "half"),
        ("ampere_h16816gemm_128x128_ldg8_stages_64x3_tn", "gemm", "half"),
        ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn", "gemm", "half"),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4>(T1::Params)", "gemm", "tf32"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688tf32gemm_256x128_16x3_nn_align4>(T1::Params)", "gemm", "tf32"),
        ("cutlass_tensorop_tf32_s1688gemm_tf32_256x128_16x3_nn_align4", "gemm", "tf32"),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nt_align1>(T1::Params)", "gemm", "fp32"),
        (
            "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8>(T1::Params)",
            "gemm",
            "half",
        ),
        (
            "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x64x32_stage3_warpsize2x2x1_tensor16x8x8_kernel",
            "gemm",
            "tf32",
        ),
        (
            "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_kernel",
            "gemm",
            "fp32",
        ),
        (
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_kernel",
            "gemm",
            "half",
        ),
        (
            "sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize64x128x128_warpgroupsize1x1x1_execute_kernel",
            "gemm",
            "fp8",
        ),
        ("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN", "gemm", "half"),
        ("nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_TNN", "gemm", "half"),
        ("nvjet_sss_tf32_128x256_TNT", "gemm", "tf32"),
        ("nvjet_qqtst_128x256_128x6_2x1_2cta_v_bz_TNT", "gemm", "fp8"),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT16x16x256_MI16x16x1", "gemm", "half"),
        ("Cijk_Ailk_Bljk_SB_MT64x64x8_SE_APM1_AF0EM1", "gemm", "fp32"),
        ("void gemmk1_kernel<float, 256, 5, false, false, false, false>(float const*)", "gemm", "fp32"),
        ("void gemv2T_kernel_val<int, int, __half, __half, __half, float, 128, 16>(T1)", "gemm", "half"),
        (
            "void implicit_convolve_sgemm<float, float, 1024, 6, 7, 3, 3, 5, 1, false, true, true>(int)",
            "convolution",
            "fp32",
        ),
        ("void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>(int)", "convolution", "fp32"),
        ("volta_scudnn_128x64_relu_interior_nn_v1", "convolution", "fp32"),
        ("volta_fp16_s884cudnn_fp16_256x128_ldg8_relu_exp_small_nhwc_tn_v1", "convolution", "half"),
        (
            "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4_kernel_cudnn_infer",
            "convolution",
            "tf32",
        ),
        (
            (
                "void xmma_cudnn::implicit_gemm::strided_dgrad_indexed::kernel<Kernel_traits<xmma_cudnn::Ampere_hmma_fp32_traits>>(T1)"  # noqa: E501
            ),
            "convolution",
            "half",
        ),
        (
            (
                "void cutlass_cudnn_train::Kernel<cutlass_tensorop_s1688wgrad_optimized_tf32_256x128_16x3_nhwc_align4>(T1::Params)"  # noqa: E501
            ),
            "convolution",
            "tf32",
        ),
        (
            "void cutlass_cudnn_infer::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16_128x128>(T1)",
            "convolution",
            "half",
        ),
        ("igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt64x128x32_wt32x32x8_ws1x1", "convolution", "half"),
        (
            "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>)",
            "attention",
            "3xtf32",
        ),
        (
            "fmha_cutlassB_f32_aligned_64x64_k64_sm75(PyTorchMemEffAttention::AttentionBackwardKernel<float>)",
            "attention",
            "fp32",
        ),
        ("fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel)", "attention", "half"),
        (
            "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<(int)128, cutlass::bfloat16_t>>(T1)",
            "attention",
            "half",
        ),
        ("void pytorch_flash::flash_bwd_convert_dq_kernel<traits>(Flash_bwd_params)", "attention", "half"),
        (
            "void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>>(T1)",
            "elementwise",
            None,
        ),
        ("void at::native::<unnamed>::vectorized_layer_norm_kernel<float, float>(int, T2)", "reduction", None),
        (
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>>>(T3)",
            "reduction",
            None,
        ),
        ("void <unnamed>::softmax_warp_forward<float, float, float, (int)7, (bool)0, (bool)0>(T2 *)", "softmax", None),
        (
            "void <unnamed>::softmax_warp_forward<float, float, float, (int)7, (bool)1, (bool)0>(T2 *)",
            "log-softmax",
            None,
        ),
        (
            "void (anonymous namespace)::softmax_warp_backward<c10::Half, c10::Half, float, 10, true>(float*)",
            "log-softmax",
            None,
        ),
        (
            "void at::native::cunn_SoftMaxForward<4, float, at::native::LogSoftMaxForwardEpilogue>(T4 *)",
            "log-softmax",
            None,
        ),
        ("triton_poi_fused_add_gelu_0", "fused", None),
        ("void cudnn::ops::nchwToNhwcKernel<__half, __half, float>(T1)", "other", None),
        ("void fbgemm_gpu::permute_2D_lengths_kernel<int>(int)", "other", None),
        ("my_kernel", "other", None),
        ("", "other", None),
    ],
)
def test_family_and_precision(name, family, precision):
    assert tuple(family_of(name)) == (family, precision)


@pytest.mark.parametrize(
    ("device", "tf32_by_fp32", "half_by_fp32"),
    [
        ("NVIDIA A100-SXM4-80GB", 8, 16),
        ("NVIDIA A100-PG509-200", 8, 16),
        ("Tesla V100-SXM2-32GB", None, 8),
        ("NVIDIA H100 80GB HBM3", 7.4, 14.8),
        ("NVIDIA L40S", 2, 4),
        ("NVIDIA A10G", 2, 4),
        ("NVIDIA GeForce RTX 4090", 1, 2),
        ("AMD Instinct MI300X", 4, 8),
    ],
)
def test_formats_are_as_many_times_as_fast_as_the_data_sheets_say(device, tf32_by_fp32, half_by_fp32):
    peaks = peaks_of(device)
    assert peaks.half / peaks.fp32 == pytest.approx(half_by_fp32, rel=0.02)
    assert (peaks.tf32 and peaks.tf32 / peaks.fp32) == (tf32_by_fp32 and pytest.approx(tf32_by_fp32, rel=0.02))
    assert peaks.rate("3xtf32") == (peaks.tf32 and peaks.tf32 / 3)


@pytest.mark.parametrize("device", [None, "", "NVIDIA GeForce GTX 1080", "A1000 Laptop", "L400"])
def test_a_device_that_is_not_in_the_table_has_no_peaks(device):
    assert peaks_of(device) is None
