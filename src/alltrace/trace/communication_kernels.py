"""Names of kernels that communicate, each with the source file that defines it.

Names are those that profilers record: demangled, with namespaces where the library has them, or the bare name of an
`extern "C"` kernel. A pattern is anchored to the start of an identifier. Compilers name fused compute kernels after the
operators in them (`triton_poi_fused_all_gather_into_tensor_wait_tensor_0`), so a word such as `all_gather` alone proves
nothing.
"""

from __future__ import annotations

from typing import NamedTuple

COLLECTIVE = "collective"
P2P = "p2p"
EXCHANGE = "exchange"
"""Kernels that send tokens to peers and wait for theirs, or for a signal: how long they run is no time on the
network."""

_START = r"(?:^|[\s:])"
"""The start of an identifier: of the text, or after a return type or a namespace."""


class KernelRule(NamedTuple):
    """A kernel whose name matches `pattern` (a regular expression, searched, case-sensitive) is of class `kind`."""

    pattern: str
    kind: str
    source: str = ""  # project and file that define kernels of that name; empty for rules of a user


COMMUNICATION_KERNELS: tuple[KernelRule, ...] = (
    KernelRule(
        r"^(void |_Z\d+)?nccl(Dev)?Kernel_?(_|)?(SendRecv|Send|Recv)", P2P, "NVIDIA/nccl src/device/generate.py"
    ),
    KernelRule(r"^(void |_Z\d+)?nccl(Dev)?Kernel", COLLECTIVE, "NVIDIA/nccl src/device/generate.py"),
    # kernels on symmetric memory: 2.27 named them ncclSymDevKernel, later versions ncclSymkDevKernel
    KernelRule(r"^(void |_Z\d+)?ncclSymk?DevKernel", COLLECTIVE, "NVIDIA/nccl src/device/symmetric/generate.py"),
    KernelRule(
        r"^(void )?nccl[A-Z]\w*(RING|TREE|COLLNET|NVLS|Ring|Tree|CollNet|Nvls)", COLLECTIVE, "NVIDIA/nccl before 2.9"
    ),
    KernelRule(r"oneRankReduce|onerankreduce", COLLECTIVE, "NVIDIA/nccl src/device/onerank.cu"),
    KernelRule(r"^(void |_Z\d+)?rccl\w*Kernel", COLLECTIVE, "ROCm/rccl src/device/generate.py"),
    KernelRule(r"^(void )?mscclKernel|^(void )?msccl(pp)?::", COLLECTIVE, "ROCm/rccl src/include/msccl/msccl_kernel.h"),
    KernelRule(r"nvshmem\w*(put|get|p2p|signal|wait|rma)", P2P, "NVIDIA/nvshmem src/host/proxy, src/host/stream"),
    KernelRule(r"nvshmem", COLLECTIVE, "NVIDIA/nvshmem src/host/coll"),
    KernelRule(
        _START + r"(alltoall|barrier|broadcast|fcollect|rdxn|reducescatter|sync)_on_stream_kernel",
        COLLECTIVE,
        "NVIDIA/nvshmem src/include/internal/host/coll.h",
    ),
    KernelRule(
        _START + r"(multimem_|)(one_shot_|two_shot_|)(all_reduce|all_gather|reduce_scatter)_kernel",
        COLLECTIVE,
        "pytorch/pytorch torch/csrc/distributed/c10d/symm_mem/CUDASymmetricMemoryOps.cu",
    ),
    KernelRule(
        _START + r"(lsa_)?(put|wait)_signal_kernel",
        EXCHANGE,
        "pytorch/pytorch torch/csrc/distributed/c10d/symm_mem/CUDASymmetricMemory.cu",
    ),
    KernelRule(
        _START + r"allToAllV(_2d|Push)?\(",
        COLLECTIVE,
        "pytorch/pytorch torch/csrc/distributed/c10d/symm_mem/nvshmem_extension.cu",
    ),
    KernelRule(r"c10d::symmetric_memory::", COLLECTIVE, "pytorch/pytorch torch/csrc/distributed/c10d/symm_mem"),
    KernelRule(
        _START + r"cross_device_(reduce_[12]stage|all_gather|reduce_scatter)",
        COLLECTIVE,
        "vllm-project/vllm csrc/custom_all_reduce.cuh, csrc/custom_all_gather_reduce_scatter.cuh",
    ),
    KernelRule(
        _START + r"mnnvl_lamport_(all_gather|reduce_scatter)",
        COLLECTIVE,
        "vllm-project/vllm csrc/custom_all_gather_reduce_scatter.cuh",
    ),
    KernelRule(
        r"quickreduce(::|\d)|" + _START + r"allreduce_prototype_(one|two)shot",
        COLLECTIVE,
        "vllm-project/vllm csrc/quickreduce/quick_reduce.h",
    ),
    KernelRule(
        _START + r"(lamport_style_)?one_shot_(prenorm_)?all_reduce_norm_kernel",
        COLLECTIVE,
        "NVIDIA/TensorRT-LLM cpp/tensorrt_llm/kernels/customAllReduceKernels.cu",
    ),
    KernelRule(
        _START + r"(one|two)[sS]hot_?[aA]ll_?[rR]educe",
        COLLECTIVE,
        "NVIDIA/TensorRT-LLM cpp/tensorrt_llm/kernels/customAllReduceKernels.cu",
    ),
    KernelRule(
        _START + r"(\w+_)?allreduce_fusion_kernel",
        COLLECTIVE,
        "NVIDIA/TensorRT-LLM cpp/tensorrt_llm/kernels/communicationKernels/allReduceFusionKernels.cu",
    ),
    KernelRule(
        _START + r"(oneshotAllreduceFusionKernel|twoshotAllreduceKernel|rmsNormLamport)",
        COLLECTIVE,
        "flashinfer-ai/flashinfer include/flashinfer/comm/trtllm_mnnvl_allreduce.cuh",
    ),
    KernelRule(
        _START + r"moeA2A(Prepare)?(Dispatch|Combine)Kernel",
        EXCHANGE,
        "NVIDIA/TensorRT-LLM cpp/tensorrt_llm/kernels/communicationKernels/moeAlltoAllKernels.cu",
    ),
    KernelRule(
        _START + r"(moe|helix)AllToAllKernel", EXCHANGE, "NVIDIA/TensorRT-LLM cpp/tensorrt_llm/kernels/helixAllToAll.cu"
    ),
    KernelRule(
        r"moe_prepare::allToAllMetadataDevice", COLLECTIVE, "flashinfer-ai/flashinfer csrc/trtllm_alltoall_prepare.cu"
    ),
    KernelRule(
        r"userbuffers?_fp16|userbuffers?_(all|reduce|push|pull)",
        COLLECTIVE,
        "NVIDIA/TransformerEngine comm_gemm_overlap",
    ),
    KernelRule(
        r"mixed_comm::(fused_)?(allreduce|allgather|reducescatter)",
        COLLECTIVE,
        "flashinfer-ai/flashinfer include/flashinfer/comm/mixed_comm.cuh",
    ),
    KernelRule(
        r"comm::(pcie_ipc|ulysses)::",
        COLLECTIVE,
        "flashinfer-ai/flashinfer include/flashinfer/comm/pcie_ipc_all_reduce.cuh",
    ),
    KernelRule(
        r"(tensorrt_llm|flashinfer)::(\w+::)*\w*[aA]ll_?[rR]educe\w*[kK]ernel",
        COLLECTIVE,
        "NVIDIA/TensorRT-LLM cpp/tensorrt_llm/kernels/customLowPrecisionAllReduceKernels.cu",
    ),
    KernelRule(
        _START + r"(store|combine)_publish_\w*kernel|" + _START + r"wait_(acks|combine|prefix)_kernel",
        EXCHANGE,
        "flashinfer-ai/flashinfer flashinfer/moe_ep/kernel_src/sm90/push_style_megamoe/src/a2a",
    ),
    # oneCCL, the library of PyTorch's XCCL on Intel's GPUs; its operations are several kernels each, some of them local
    KernelRule(
        _START + r"oneccl_[a-z]\w*",
        COLLECTIVE,
        "uxlfoundation/oneCCL 2022.1, as intel/torch-xpu-ops records them (its issue 5384)",
    ),
    KernelRule(
        _START + r"(All(gather|reduce)v?|ReduceScatter)(Medium|Large)(NoCopy)?Kernel|"
        r"(Allgatherv|Allreduce|Reduce_scatter)_small_kernel|"
        + _START
        + r"(NoCopy)?Kernel_(2rank|all_sum|local_sum_and_distribute|gather_from_remote|load_input_to_temp_buffer)",
        COLLECTIVE,
        "uxlfoundation/oneCCL src/coll/algorithms",
    ),
    KernelRule(
        _START
        + r"(allreduce|alltoallv|reduce_scatter|allgatherv)_kernel_\w+|"
        + _START
        + r"(read|reduce|write)_\w*kernel_[0-9]_[a-z0-9]+_\w+",
        COLLECTIVE,
        "uxlfoundation/oneCCL src/kernels/kernels.cl",
    ),
    # HCCL, the library of Ascend's NPUs
    KernelRule(
        r"^hcom_(batchsendrecv|send|receive)_", P2P, "Ascend/mstt profiler/msprof_analyze/prof_common/constant.py"
    ),
    KernelRule(r"^hcom_[a-z]\w*_", COLLECTIVE, "Ascend/mstt profiler/msprof_analyze/prof_common/constant.py"),
    KernelRule(
        r"^(all(reduce|gather|toall)|reduce_?scatter|broadcast)\w*AicpuKernel",
        COLLECTIVE,
        "Ascend/mstt profiler/msprof_analyze/prof_common/constant.py",
    ),
    # which tokens go where is computed without a peer
    KernelRule(r"(deep_ep|uccl)::layout::", "compute", "deepseek-ai/DeepEP csrc/kernels/legacy/layout.cu"),
    KernelRule(r"deep_ep::", EXCHANGE, "deepseek-ai/DeepEP csrc/kernels, deep_ep/include/deep_ep/impls"),
    KernelRule(r"hybrid_ep::\w*(dispatch|combine)", EXCHANGE, "deepseek-ai/DeepEP branch hybrid-ep csrc/hybrid_ep"),
    KernelRule(r"uccl::\w*(::)?(dispatch|combine|notify|barrier)", EXCHANGE, "uccl-project/uccl ep/src"),
    KernelRule(
        _START + r"a2a_(dispatch|combine)_(send|recv)_kernel|pplx::\w+::(dispatch|combine)",
        EXCHANGE,
        "perplexityai/pplx-garden, perplexityai/pplx-kernels csrc/all_to_all",
    ),
)
"""Rules for kernels that communicate, in order: the first that matches decides."""
