"""NCCL's words: operations, datatypes, reductions, algorithms, protocols, by their numbers.

From NCCL's sources (src/nccl.h.in, src/include/device.h, tags v2.8.4 to v2.30.7) and RCCL's.
"""

import re

OPERATIONS = (
    "AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "Send", "Recv", "AlltoAll", "Gather", "Scatter",
    "AllGatherV", "PutSignal", "Signal", "WaitSignal", "AllToAll", "AllToAllv",
)  # fmt: skip
"""Words that may precede `: opCount`; the last two are RCCL's."""

POINT_TO_POINT = frozenset({"Send", "Recv", "PutSignal", "Signal", "WaitSignal"})
ROOTED = frozenset({"Broadcast", "Reduce", "Gather", "Scatter"})
PER_RANK_SHARE = frozenset({"AllGather", "ReduceScatter", "AlltoAll", "AllToAll", "Gather", "Scatter"})
"""Operations with one rank's share as count; their payload is count times the number of ranks."""

DATATYPES = (
    ("int8", 1), ("uint8", 1), ("int32", 4), ("uint32", 4), ("int64", 8), ("uint64", 8), ("float16", 2), ("float32", 4),
    ("float64", 8), ("bfloat16", 2), ("float8_e4m3", 1), ("float8_e5m2", 1),
)  # fmt: skip
"""Name and bytes by NCCL's number of the type."""

_NOT_LETTERS = re.compile(r"[^a-z0-9]")
_SAME_TYPE = {
    "int8": ("i8", "int8t", "char", "schar"),
    "uint8": ("u8", "uint8t", "byte", "uchar", "bool"),
    "int32": ("i32", "int32t", "int"),
    "uint32": ("u32", "uint32t", "uint"),
    "int64": ("i64", "int64t", "long", "longlong"),
    "uint64": ("u64", "uint64t", "ulong", "ulonglong"),
    "float16": ("f16", "fp16", "half"),
    "float32": ("f32", "fp32", "float"),
    "float64": ("f64", "fp64", "double"),
    "bfloat16": ("bf16", "nvbfloat16", "rcclbfloat16", "hipbfloat16"),
    "float8_e4m3": ("f8e4m3", "fp8e4m3", "float8e4m3", "float8e4m3fn", "nvfp8e4m3", "rcclfloat8", "e4m3"),
    "float8_e5m2": ("f8e5m2", "fp8e5m2", "float8e5m2", "nvfp8e5m2", "rcclbfloat8", "e5m2"),
}
_TYPES = {_NOT_LETTERS.sub("", word): name for name, words in _SAME_TYPE.items() for word in (name, *words)}


def standard_datatype(text: str) -> str | None:
    """The name in `DATATYPES` of a type as kernels and frameworks write it (`f32`, `ncclFloat`, `Half`); or None."""
    plain = _NOT_LETTERS.sub("", text.lower())
    return _TYPES.get(plain.removeprefix("nccl")) or _TYPES.get(plain.removeprefix("torch"))


REDUCTIONS = ("sum", "prod", "max", "min", "avg")
ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
PROTOCOLS = ("LL", "LL128", "SIMPLE")

GPU_TIMING = "kernel_gpu"
"""The timing source of NCCL Inspector with times of the kernel on the GPU."""
