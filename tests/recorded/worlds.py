"""The recorded runs: what each is, with every value of its simulation stated, so that none follows from a default."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

BASE: dict[str, Any] = {
    "steps": 5, "seed": 11,
    # layout
    "hosts": 2, "ranks_per_host": 2, "tensor_parallel": 1, "pipeline_stages": 1, "expert_parallel": 1,
    # work
    "layers": 3, "kernels_per_layer": 4, "optimizer_kernels": 2, "kernel_ns": 60_000, "jitter": 0.05,
    "host_call_ns": 4_500, "host_jitter": 0.0, "host_gap_ns": 2_000, "extra_calls": 0, "kernels_per_range": 2,
    "data_ns": 200_000, "batch_bytes": 8 << 20, "gradient_bytes": 60_000_000, "buckets": 2, "activation_bytes": 8 << 20,
    "microbatches": 2, "kernel_names": 0, "warmup_steps": 1, "warmup_factor": 1.6, "checkpoint_every": 0,
    "checkpoint_bytes": 20_000_000, "checkpoint_ns": 2_000_000, "autograd_thread": True, "nvtx": True,
    # links
    "within_host_gb_per_s": 300.0, "between_hosts_gb_per_s": 100.0, "copy_gb_per_s": 25.0, "latency_ns": 15_000,
    "end_jitter_ns": 2_000,
    # clocks
    "offset_ms": 500.0, "drift_ppm": 20.0, "stamp_error_ms": 2.0, "start_spread_s": 2.0, "outlier_share": 0.0,
    "outlier_ms": 10.0,
    # environment
    "schema": "3.25.0", "rank_source": "environment", "visible_devices": False, "shared_pids": False,
    "unordered": False, "page_bytes": 1024, "secrets": False, "osrt": True, "gpu_metrics_hz": 500,
    "gpu_metrics_per_host": True, "step_names": "step", "grouped_all_to_all": False, "operators": False,
    "dropped_share": 0.0,
    # the ideal world, in which answers can be reviewed by plain sums
    "scatter": 0.0, "payloads": True, "device_table": True, "own_streams": False, "own_kernels": False,
}  # fmt: skip
"""What all simulated runs share."""


@dataclass(frozen=True)
class World:
    """A recorded run.

    Attributes:
        about: What it is.
        kind: `synth` for reports of Nsight Systems, `kineto`, `rocpd`, or `mpi`, which a real Nsight Systems records.
        layout: How the ranks share the work.
        values: What differs from `BASE`.
        faults: What is wrong with the run.
        logs: Whether the logs of NCCL and of the training are imported with the reports.
    """

    about: str
    kind: str = "synth"
    layout: str = "data"
    values: dict[str, Any] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    logs: bool = False


_TENSOR = {"tensor_parallel": 2, "schema": "3.7.2", "rank_source": "mpi", "step_names": "iteration", "seed": 12}
_PIPELINE = {"pipeline_stages": 2, "layers": 4, "kernels_per_layer": 3, "seed": 13, "gpu_metrics_hz": 0}
_SHARDED = {"visible_devices": True, "shared_pids": True, "unordered": True, "seed": 14, "autograd_thread": False}
_EXPERTS = {"expert_parallel": 2, "grouped_all_to_all": True, "seed": 15, "secrets": True, "gpu_metrics_hz": 0}
_HOST = {
    "hosts": 1, "ranks_per_host": 2, "steps": 6, "layers": 2, "kernels_per_layer": 8, "kernel_ns": 3_000,
    "host_call_ns": 1_500, "host_gap_ns": 1_000, "extra_calls": 1, "kernel_names": 0, "buckets": 1,
    "checkpoint_every": 3, "gradient_bytes": 4_000_000, "seed": 16, "warmup_steps": 0, "step_names": "profiler",
}  # fmt: skip
_OPERATORS = {"operators": True, "step_names": "profiler", "seed": 17, "kernels_per_layer": 6, "steps": 4}

WORLDS: dict[str, World] = {
    "ddp": World("data parallel over two hosts, with logs of NCCL and of the training", logs=True),
    "ddp-slow-rank": World(
        "the same, a rank slower and another with late data",
        faults=("slow-rank:ranks=2:factor=1.4", "data-stall:ranks=1:steps=3-4"),
        logs=True,
    ),
    "tensor": World("tensor parallel on a host, data parallel over hosts, MPI, an older export", values=_TENSOR),
    "tensor-slow-link": World(
        "the same, one communicator slow and a rank that waits for synchronous copies", values=_TENSOR,
        faults=("slow-communicator:factor=6", "sync-copy:ranks=0"),
    ),
    "pipeline": World("a pipeline of two stages on each host", layout="pipeline", values=_PIPELINE),
    "pipeline-imbalance": World(
        "the same, a rank with more work and one without a report", layout="pipeline", values=_PIPELINE,
        faults=("imbalance:ranks=1:extra=0.7", "missing-rank:ranks=3"),
    ),
    "sharded": World("fully sharded, in containers, rows in no order", layout="sharded", values=_SHARDED),
    "sharded-slow-host": World(
        "the same, a slow host, and a report that lost records", layout="sharded", values=_SHARDED,
        faults=("slow-host:hosts=1:factor=1.4", "dropped-events:ranks=0:share=0.03"),
    ),
    "experts": World("a mixture of experts, its all-to-all as sends and receives", layout="expert", values=_EXPERTS),
    "experts-imbalance": World(
        "the same, experts with more work, and a report that ends early", layout="expert", values=_EXPERTS,
        faults=("imbalance:ranks=1:extra=1.0", "host-pause:ranks=2:pause_ns=4000000:every=2",
            "cut-short:ranks=3:share=0.8"),
    ),
    "host": World("two ranks on one host with very short kernels and checkpoints", values=_HOST),
    "host-bound": World(
        "the same, bound by its host: launches, waits, allocations and copies", values=_HOST,
        faults=(
            "launch-bound:steps=0-1:pieces=2:gap_ns=12000", "sync:steps=2-3", "allocation:steps=2-3",
            "pageable-copy:ranks=1", "idle-gap:ranks=0:steps=4-5:gap_ns=400000",
        ),
    ),
    "kineto": World("traces of the PyTorch profiler with operators, memory and graphs", kind="kineto",
        values=_OPERATORS),
    "kineto-exposed": World(
        "traces of the PyTorch profiler, nothing overlaps, a rank with long copies, some events dropped",
        kind="kineto", layout="sharded",
        values=_OPERATORS | {"seed": 18, "unordered": True, "dropped_share": 0.01},
        faults=("exposed-communication", "low-bandwidth:ranks=3:factor=20"),
    ),
    "rocm": World(
        "databases of rocprofv3, a rank slower", kind="rocpd", values={"seed": 19, "gpu_metrics_hz": 0, "osrt": False},
        faults=("slow-rank:ranks=1:factor=1.3",),
    ),
    "mpi": World("a program with MPI and ranges under a real Nsight Systems, a rank late", kind="mpi"),
}  # fmt: skip
"""All recorded runs by name."""

CHEAP = ("kineto", "host", "rocm")
"""Those that a test makes anew."""
