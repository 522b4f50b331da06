import re
from pathlib import Path

import pytest

from alltrace.trace.communication_kernels import COMMUNICATION_KERNELS
from alltrace.trace.kernel_rules import built_in_rules

# names as the sources of each library define them, in the forms in which profilers record them
SYMMETRIC_NCCL = [
    f"ncclSymkDevKernel_{name}(ncclSymkDevWorkArgs4K)"
    for name in (
        *(f"AllGather_{a}" for a in ("LL", "LLMC", "ST", "STMC", "TmaST", "TmaSTMC", "RailRing_LsaSTMC")),
        *(
            f"AllReduce_{a}_sum_f32"
            for a in ("AGxLL_R", "AGxLLMC_R", "RSxLD_AGxST", "RSxLDMC_AGxSTMC", "RSxTmaLD_AGxTmaST")
        ),
        *(f"ReduceScatter_{a}_avg_bf16" for a in ("LL", "LD", "LDMC", "TmaLD", "RailA2A_LsaLD", "RailA2A_LsaLDMC")),
    )
]
COLLECTIVES = [
    *SYMMETRIC_NCCL,
    "ncclSymDevKernel_AllReduce_AGxLLMC_R_sum_f32(ncclSymDevArgs)",
    "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
    "ncclDevKernelDebug_Generic(ncclDevKernelArgsStorage<4096ul>)",
    "void oneRankReduce<FuncPreMulSum<float>>(void*, void*, unsigned long, unsigned long, bool)",
    "mscclKernel_Sum_float_LL_0(ncclDevComm*, mscclAlgo*, mscclWork*)",
    "void (anonymous namespace)::one_shot_all_reduce_kernel<float, 16, 8>(float**, float*, float*, unsigned long)",
    "void (anonymous namespace)::two_shot_all_reduce_kernel<c10::BFloat16, 16, 8, true, false>(c10::BFloat16**)",
    "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<float, 16, 4>(float**, unsigned long)",
    "void (anonymous namespace)::multimem_all_reduce_kernel<float, 16>(float*, unsigned long)",
    "void (anonymous namespace)::multimem_one_shot_all_reduce_kernel<float, 8>(float*, float*, unsigned long)",
    "void (anonymous namespace)::multimem_all_gather_kernel<16>(char*, char*, unsigned long)",
    "c10d::symmetric_memory::barrier_kernel(unsigned int**, int, int, int, unsigned long)",
    "c10d::nvshmem_extension::allToAllV(void*, void*, long*, unsigned long, nvshmem_team_t)",
    "one_shot_all_reduce_kernel",
    "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals)",
    "void vllm::cross_device_all_gather<8>(vllm::RankData*, vllm::RankSignals)",
    "void vllm::cross_device_reduce_scatter<__half, 4>(vllm::RankData*)",
    "void vllm::mnnvl_lamport_all_gather<__nv_bfloat16, 8>(vllm::RankData*)",
    "void quickreduce::allreduce_prototype_twoshot<quickreduce::AllReduceTwoshot<__half>, __half>(__half const*)",
    "_ZN11quickreduce27allreduce_prototype_twoshotINS_16AllReduceTwoshotI6__half",
    (
        "void tensorrt_llm::kernels::oneShotAllReduceKernel<__half, 8, true,"
        " false>(tensorrt_llm::kernels::AllReduceParams)"
    ),
    "void tensorrt_llm::kernels::twoShotAllReduceKernel<float, 8>(tensorrt_llm::kernels::AllReduceParams)",
    "void lamport_style_one_shot_all_reduce_norm_kernel<__half, 8>(AllReduceParams<__half>)",
    "void one_shot_prenorm_all_reduce_norm_kernel<__half, 8>(AllReduceParams<__half>)",
    "void allreduce_fusion_kernel_oneshot_lamport<(AllReduceFusionPattern)1, __half, 8, false>(AllReduceFusionParams)",
    "void allreduce_fusion_kernel_twoshot_sync<(AllReduceFusionPattern)1, __half, 8, false>(AllReduceFusionParams)",
    "void moereduce_allreduce_fusion_kernel_oneshot_lamport<(AllReduceFusionPattern)1, __half, 8>(Params)",
    "void moefinalize_allreduce_fusion_kernel_oneshot_lamport<(AllReduceFusionPattern)1, __half, 8>(Params)",
    "void flashinfer::trtllm_mnnvl_allreduce::oneshotAllreduceFusionKernel<8, __nv_bfloat16>(Params)",
    "void flashinfer::trtllm_mnnvl_allreduce::twoshotAllreduceKernel<8, __nv_bfloat16>(Params)",
    "void flashinfer::mixed_comm::fused_reducescatter_allreduce_kernel<4, 2>(Args)",
    "void flashinfer::mixed_comm::allgather_kernel<4, 2>(Args)",
    "void flashinfer::comm::pcie_ipc::ipc_rsag_ring_push_param_kernel<__half>(Params)",
    "void flashinfer::comm::ulysses::ulysses_a2a_kernel<__half, 8>(__half const*)",
    "void nvshmemi_reduce_kernel<int, (rdxn_ops)4>(int, int, int, int*, int const*)",
    "void alltoall_on_stream_kernel<int, (threadgroup_t)1>(int, int*, int const*)",
    "void rdxn_on_stream_kernel<float, (rdxn_ops)4>(int, float*)",
    "ncclAllReduceRingLLKernel_sum_f32(ncclColl)",
    "void rcclGenericKernel<1, false>(ncclDevKernelArgsStorage<4096ul>)",
    "allToAllV_2d(void*, void*, long*, long*, unsigned long)",
    "void aiter::cross_device_reduce_2stage<__hip_bfloat16, 8>(aiter::RankData*)",
    "void tensorrt_llm::kernels::mnnvl::twoshot_allreduce_kernel<8, __nv_bfloat16>(__nv_bfloat16*)",
    "void flashinfer::trtllm_mnnvl_allreduce::rmsNormLamport<8, __nv_bfloat16>(Params)",
    "void tensorrt_llm::kernels::lowPrecisionTwoShotHierAllreduceKernel<__half, 8>(LowPrecisionAllReduceParams)",
    "void flashinfer::trtllm_alltoall::moe_prepare::allToAllMetadataDevice(int*, int*, float*)",
    "void userbuffers_fp16_sum_inplace_gpu_rr_rs_oop<8>(int, int, int, void**)",
    "barrier_on_stream_kernel_threadgroup<(threadgroup_t)0>(int, int)",
    "oneccl_reduce_base<float, 2, 16, 1, 1, 2>",
    "AllreduceMediumKernel_GlobalSync<float>",
    "AllgathervMediumKernel_LocalSync<sycl::_V1::ext::oneapi::bfloat16>",
    "AllgatherMediumKernel_read_write<float, 16>",
    "ReduceScatterLargeNoCopyKernel<float>",
    "Reduce_scatter_small_kernel_esimd<float, 8, 16>",
    "Allgatherv_small_kernel_scalar<float, 8, 32>",
    "Allreduce_small_kernel<sycl::_V1::detail::half_impl::half, 8>",
    "NoCopyKernel_all_sum<float>",
    "Kernel_gather_from_remote_and_dist_to_rank_pair<float, 16>",
    "allreduce_kernel_float32_sum",
    "reduce_read_write_kernel_4_bfloat16_sum",
    "read_write_monolithic_kernel_7_float32_max",
    "write_monolithic_kernel_2_int8_custom",
    "hcom_allReduce__428_0_1",
    "hcom_alltoallv_",
    "allreduceAicpuKernel",
]
EXCHANGES = [
    "void store_publish_fp8_kernel<8>(PushLayout, __nv_bfloat16 const*, int)",
    "wait_combine_kernel(PushLayout, int const*)",
    "void tensorrt_llm::kernels::moe_alltoall::moeA2ADispatchKernel<8, false, false, false>(int const*)",
    "moeA2APrepareDispatchKernel(int*, int*, int, unsigned int*, bool)",
    "void moeA2ACombineKernel<__nv_bfloat16, 8>(CombineKernelPointers, int, int)",
    "void flashinfer::trtllm_alltoall::moeAllToAllKernel<false>(MoeEpWorldInfo)",
    "helixAllToAllKernel<true>(HelixAllToAllParams)",
    "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*)",
    "void deep_ep::internode_ll::combine<true, false, 7168>(void*)",
    "void deep_ep::internode::notify_dispatch<false, 4>(int const*)",
    "void deep_ep::elastic::hybrid_dispatch_impl<2, 8>(void*)",
    "void hybrid_ep::dispatch_kernel<8, 4>(hybrid_ep::dispatch_kernel_param_t)",
    "void uccl::internode_ll::dispatch<true, 7168>(void*)",
    "void a2a_dispatch_recv_kernel<16, 8, int, int>(unsigned long)",
    "void a2a_combine_send_kernel<16, 8, int>(unsigned long)",
    "c10d::symmetric_memory::put_signal_kernel(unsigned int**, int, int, int)",
]
POINT_TO_POINT = [
    "hcom_send__210_4_1",
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    "nvshmemi_proxy_rma_signal_entrypoint(void*, void*)",
    "nvshmemi_uint64_wait_until_on_stream_kernel(unsigned long volatile*, int, unsigned long)",
]
COMPUTE = [
    # a compiler names a fused kernel after the operators in it
    "triton_poi_fused_all_gather_into_tensor_wait_tensor_0",
    "triton_red_fused_all_reduce_native_layer_norm_3",
    "void cub::DeviceReduceKernel<cub::Policy600, float*>(float*)",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(at::native::ReduceOp<float>)",
    "void at::native::_scatter_gather_elementwise_kernel<128, 8>(int)",
    "deep_ep::layout::get_dispatch_layout<256, 4, 2>(long const*)",
    "void moe::dev::routing::routingIndicesClusterKernel<float>(Params)",
    "void vllm::moe::moe_align_block_size_kernel<int>(int*)",
    "void at::native::xpu::reduce_kernel<1, at::native::xpu::ReduceOp<float>>",
    "triton_red_fused_write_scatter_kernel_3",
    "void flash_fwd_splitkv_combine_kernel<Traits, 4, 3, true>(Params)",
]


@pytest.mark.parametrize(
    ("names", "kind"),
    [(COLLECTIVES, "collective"), (EXCHANGES, "exchange"), (POINT_TO_POINT, "p2p"), (COMPUTE, "compute")],
)
def test_names_of_the_sources(names, kind):
    rules = built_in_rules()
    assert {name: rules.kind(name) for name in names} == dict.fromkeys(names, kind)


def test_each_rule_names_its_source_and_the_documentation_too():
    names = COLLECTIVES + EXCHANGES + POINT_TO_POINT + COMPUTE
    deciding = {next((r for r in built_in_rules().rules if re.search(r.pattern, name)), None) for name in names}
    assert [r.pattern for r in COMMUNICATION_KERNELS if r not in deciding or not r.source] == []
    page = (Path(__file__).parents[2] / "docs" / "kernel-rules.md").read_text(encoding="utf-8")
    projects = {
        project for r in COMMUNICATION_KERNELS for project in re.findall(r"(?:^|, )[\w-]+/([\w-]+)(?= |,|$)", r.source)
    }
    assert {p for p in projects if p.lower() not in page.lower()} == set()
