"""Small traces."""

from __future__ import annotations

import gzip
import json

import pytest

BASE_NS = 1_700_000_000_000_000_000
GROUP = {"Process Group Name": "0", "Process Group Ranks": "[0, 1]", "Group size": 2}
RANK_1 = {"backend": "nccl", "rank": 1, "world_size": 2}


def event(cat, name, ts, dur, pid=4000, tid=4001, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def gpu(cat, name, ts, dur, correlation, stream=7, **args):
    return event(cat, name, ts, dur, 0, stream, device=0, context=1, stream=stream, correlation=correlation, **args)


EVENTS = [
    {"ph": "M", "name": "process_name", "pid": 4000, "tid": 0, "args": {"name": "python3"}},
    {"ph": "M", "name": "thread_name", "pid": 4000, "tid": 4001, "args": {"name": "main "}},
    event("user_annotation", "ProfilerStep#3", 1_000_000.5, 900.25),
    event("cpu_op", "aten::mm", 1_000_010, 20,
          **{"External id": 5, "Input Dims": [[8, 16], [16, 4]], "Input type": ["float", "float"]}),
    event("cuda_runtime", "cudaLaunchKernel", 1_000_012.001, 5.999, correlation=77, **{"External id": 5}),
    gpu(
        "kernel", "void ns::gemm<float, (int)4>(float const*)", 1_000_030.123, 10.001, 77,
        **{"grid": [3, 2, 1], "block": [128, 1, 1], "registers per thread": 40, "shared memory": 512,
            "graph node id": 0},
    ),
    {"ph": "s", "id": 77, "pid": 4000, "tid": 4001, "ts": 1_000_012.001, "cat": "ac2g", "name": "ac2g"},
    gpu("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 1_000_050, 4, 78, bytes=4096),
    gpu("gpu_memset", "Memset (Device)", 1_000_055, 1, 79, bytes=64),
    event("cuda_sync", "Stream Wait Event", 1_000_056, 2, 0, 7, device=0, stream=7, correlation=80, context=1),
    event(
        "cpu_op", "record_param_comms", 1_000_100, 40,
        **{"External id": 9, "Collective name": "_allgather_base", "dtype": "BFloat16", "In msg nelems": 100,
           "Out msg nelems": 200, "Seq": 12, **GROUP},
    ),
    event("cuda_driver", "cuLaunchKernelEx", 1_000_110, 5, correlation=90, **{"External id": 9}),
    gpu("kernel", "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 1_000_120, 50, 90, stream=20),
    gpu("gpu_user_annotation", "ProfilerStep#3", 1_000_030, 140, 1),
    event("python_function", "train.py(3): step", 1_000_001, 100),
    event("python_function", "nn.Module: Linear_0", 1_000_005, 50),
]  # fmt: skip


def trace(events=None, **metadata):
    return {
        "schemaVersion": 1,
        "deviceProperties": [
            {"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 2**37, "computeMajor": 9, "numSms": 132}
        ],
        "distributedInfo": RANK_1,
        "baseTimeNanoseconds": BASE_NS,
        **metadata,
        "traceEvents": EVENTS if events is None else events,
        "traceName": "x.json",
    }


@pytest.fixture
def write(tmp_path):
    """Writes a trace, an object or text, and gives its path."""

    def made(content=None, name="rank_7.json"):
        content = trace() if content is None else content
        text = content if isinstance(content, (str, bytes)) else json.dumps(content)
        data = text if isinstance(text, bytes) else text.encode()
        path = tmp_path / name
        if name.endswith(".gz"):
            data = gzip.compress(data)
        elif name.endswith(".zst"):
            import pyarrow as pa

            data = pa.Codec("zstd").compress(data, asbytes=True)
        path.write_bytes(data)
        return path

    return made
