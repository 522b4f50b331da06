from __future__ import annotations

import pytest

from alltrace.align.nccl_names import operation_of_kernel, parse_payload

OPERATIONS = {
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "AllReduce",
    "ncclSymkDevKernel_AllGather_STMC(ncclSymkDevWorkArgs4K)": "AllGather",
    "ncclSymkDevKernel_ReduceScatter_LDMC_sum_f32(ncclSymkDevWorkArgs4K)": "ReduceScatter",
    "void (anonymous namespace)::multimem_all_gather_kernel<16>(char*)": "AllGather",
    "void vllm::cross_device_reduce_2stage<__half, 8>(vllm::RankData*)": "AllReduce",
    "void vllm::cross_device_reduce_scatter<__half, 8>(vllm::RankData*)": "ReduceScatter",
    "void moeA2ACombineKernel<__half, 8>(CombineKernelPointers)": "AllToAll",
    "void flashinfer::comm::ulysses::ulysses_a2a_kernel<__half, 8>(__half const*)": "AllToAll",
    "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)": None,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_kernel_names_its_operation(name):
    assert operation_of_kernel(name) == OPERATIONS[name]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("18446744073709551615", "0xffffffffffffffff"),
        ("-1", "0xffffffffffffffff"),
        ("0x190cf64ad4b4a6a5", "0x190cf64ad4b4a6a5"),
        ("ff00aa", "0xff00aa"),
        ("fg", "fg"),
    ],
)
def test_a_communicator_has_one_name_however_its_number_is_written(text, name):
    assert parse_payload(f'{{"NCCL communicator ID": "{text}"}}').communicator == name
