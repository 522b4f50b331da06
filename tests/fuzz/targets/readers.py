"""Small readers in Python: training logs, GPU logs, nccl-tests, PyTorch's flight recorder and memory snapshots,
damaged."""

from __future__ import annotations

import json
import os
import pickle
import tempfile
from pathlib import Path

from alltrace.readers.flight_recorder.read import read_recording
from alltrace.readers.gpu_log.read import read_gpu_log
from alltrace.readers.memory_snapshot.read import open_report
from alltrace.readers.nccl_tests.read import read_tests
from alltrace.readers.training_log.read import read_training
from alltrace.recipes.logs import flight_recorder, nccl_tests, training

_FOLDER = Path(tempfile.gettempdir())
_TRAINING = """\
 [2026-01-01 13:00:00.046609] iteration        1/       2 | elapsed time per iteration (ms): 44.303 | lm loss: 1.0E+01 |
0: 2026-01-01 13:00:01 step:  2  loss:  7.5 memory: 12.5GiB(20.1%) tps: 8,123 tflops: 51.2 mfu: 20.5%
iter 3: loss 4.2, time 120.50ms, mfu 30.25%
[epoch=1][batch=4/100]:
\t Train throughput/batches_per_sec: 2.5
\t Train loss/train/total: 3.5
step:5 - actor/pg_loss:np.float64(0.5) - perf/time_per_step:31.5 - perf/mfu/actor:0.31
epoch=0 global_step=6, RunningAvgSamplesPerSec=120.5, CurrSamplesPerSec=121.5, MemAllocated=1.5GB
steps: 7 loss: 3.25 iter time (s): 1.5 samples/sec: 10.5
Batch 8 Loss: 2.5, Speed: 100.5 samples/sec, lr: 0.001
 50%|#####     | 9/18 [00:10<00:10,  1.05it/s, loss=2.5]
{'loss': 2.25, 'grad_norm': 1.5, 'learning_rate': 5e-05, 'epoch': 0.5}
train_step_timing in s: [11.85, 6.98, 7.01]
"""
_GPU = """\
timestamp, index, uuid, pci.bus_id, clocks.sm [MHz], power.draw [W], temperature.gpu, clocks_event_reasons.active
2026/11/25 09:30:04.123, 0, GPU-00000000-0000-0000-0000-000000000001, 00000000:01:00.0, 1980 MHz, 310.25 W, 55, 0x0000000000000004
2026/11/25 09:30:04.223, 1, GPU-00000000-0000-0000-0000-000000000002, 00000000:02:00.0, 1980 MHz, [N/A], 56, 0x0000000000000000
"""  # noqa: E501
_TESTS = """\
# nThread 1 nGpus 1 minBytes 1024 maxBytes 2048 step: 2(factor)
#  Rank  0 Group  0 Pid  10 on      node0 device  0 [0x1] NVIDIA H100
#  Rank  1 Group  0 Pid  11 on      node0 device  1 [0x2] NVIDIA H100
#  size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
        1024           256     float     sum      -1    12.50    0.08    0.08      0    12.40    0.08    0.08      0
        2048           512     float     sum      -1    12.60    0.16    0.16      0    12.50    0.16    0.16      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.12
"""
_HALF = {"time": 1.5, "alg_bw": 2.5, "bus_bw": 3.75, "nwrong": 0}
_TESTS_JSON = {
    "config": {"test": "all_reduce_perf"},
    "devices": [{"rank": 0, "host": "a", "name": "GPU"}, {"rank": 1, "host": "a", "name": "GPU"}],
    "results": [{"size": 8, "count": 2, "type": "float", "redop": "sum", "out_of_place": _HALF, "in_place": _HALF}],
}
_ENTRY = {
    "record_id": 3, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": 4, "p2p_seq_id": 0,
    "op_id": 5, "profiling_name": "nccl:all_reduce", "time_created_ns": 10**18, "duration_ms": 1.5,
    "input_sizes": ((3, 4),), "input_dtypes": ("Float",), "output_sizes": ((3, 4),), "output_dtypes": ("Float",),
    "state": "completed", "time_discovered_started_ns": 10**18 + 5, "time_discovered_completed_ns": None,
    "retired": True, "timeout_ms": 600_000, "is_p2p": False,
}  # fmt: skip
_RECORDING = {
    "version": "2.5",
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
    "entries": [_ENTRY, {**_ENTRY, "profiling_name": "nccl:recv 0<-1", "is_p2p": True, "state": "started"}],
}
_BLOCK = {
    "action": "alloc",
    "addr": 4096,
    "size": 512,
    "stream": 0,
    "time_us": 10,
    "frames": [{"name": "f", "filename": "a.py", "line": 3}],
}
_SNAPSHOT = {
    "segments": [
        {"device": 0, "address": 4096, "total_size": 2048, "blocks": [{"size": 512, "state": "active_allocated"}]}
    ],
    "device_traces": [[_BLOCK, {**_BLOCK, "action": "free_completed", "time_us": 20}]],
}
_KINDS = {
    b"training": ".log", b"gpu": ".csv", b"tests": ".out", b"recorder": "_0", b"snapshot": ".pickle"
}  # fmt: skip
"""What an input says first, and how the file's name ends."""


def corpus() -> list[bytes]:
    """Each form, plain; the recorder's as JSON and pickled."""
    made = {
        b"training": [_TRAINING.encode(), *(line.encode() for line in _TRAINING.splitlines(keepends=True))],
        b"gpu": [_GPU.encode()],
        b"tests": [_TESTS.encode(), json.dumps(_TESTS_JSON).encode()],
        b"recorder": [json.dumps(_RECORDING).encode(), pickle.dumps(_RECORDING)],
        b"snapshot": [pickle.dumps(_SNAPSHOT)],
    }
    return [kind + b"\n" + data for kind, each in made.items() for data in each]


def run(data: bytes) -> None:
    """What the file holds, and an answer of it."""
    head, _, body = data.partition(b"\n")
    kind = head if head in _KINDS else b"training"
    path = _FOLDER / f"fuzz-{os.getpid()}{_KINDS[kind]}"
    path.write_bytes(body)
    try:
        if kind == b"training":
            training.answer([read_training(str(path))], "summary", None)
        elif kind == b"gpu":
            read_gpu_log(str(path))
        elif kind == b"tests":
            nccl_tests.answer([read_tests(str(path))], "summary")
        elif kind == b"recorder":
            flight_recorder.answer([read_recording(str(path))], "hangs")
        else:
            reader = open_report(path)
            for _, batch in reader.stream(reader.report.tables):
                batch.validate(full=True)
    finally:
        path.unlink()
