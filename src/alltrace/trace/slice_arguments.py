"""The arguments of slices in traces for viewers, named as in traces of PyTorch's profiler, to be read back."""

from __future__ import annotations

VIEWER_VERSION = 1
"""Of what a trace for viewers says of its ranks and tracks, so that it can be read back."""

_WORK = {"device": ("device",), "context": ("context",), "stream": ("stream",)}
FEW: dict[str, dict[str, tuple[str, ...]]] = {
    "kernels": {
        "full name": ("name",),
        "grid": ("grid_x", "grid_y", "grid_z"),
        "block": ("block_x", "block_y", "block_z"),
        "cluster": ("cluster_x", "cluster_y", "cluster_z"),
        "registers per thread": ("registers",),
        "static shared memory": ("static_shared_memory",),
        "dynamic shared memory": ("dynamic_shared_memory",),
        "graph": ("graph",),
        **_WORK,
    },
    "copies": {"source": ("src_kind",), "destination": ("dst_kind",), **_WORK},
    "graphs": {"graph": ("graph",), **_WORK},
    "api": {"return value": ("return_value",)},
    "ranges": {"domain": ("domain",), "category": ("category",), "payload": ("payload",)},
    "marks": {"domain": ("domain",), "category": ("category",), "payload": ("payload",)},
    "mpi": {
        "kind": ("kind",),
        "communicator": ("communicator",),
        "peer": ("peer",),
        "tag": ("tag",),
        "root": ("root",),
    },
    "ucx": {"kind": ("kind",), "peer": ("peer",)},
    "osrt": {"return value": ("return_value",)},
    "syscalls": {"return value": ("return_value",)},
    "openacc": {n: (n,) for n in ("kind", "file", "line", "function", "kernel", "variable")},
    "openmp": {"kind": ("kind",)},
}
"""Arguments of which there are few different ones, by table: their names and columns."""

MANY: dict[str, dict[str, str]] = {
    "kernels": {"correlation": "correlation", "graph node": "graph_node"},
    "copies": {"bytes": "bytes", "correlation": "correlation"},
    "graphs": {"correlation": "correlation"},
    "api": {"correlation": "correlation"},
    "ranges": {"sequence": "sequence"},
    "mpi": {"bytes": "bytes", "request": "request"},
    "ucx": {"bytes": "bytes"},
    "openacc": {"bytes": "bytes"},
}
"""Whole numbers that differ from slice to slice."""

OPERATION = {
    "collective": "op", "communicator": "communicator", "datatype": "datatype", "group size": "group_size",
    "group rank": "group_rank", "peer": "peer", "root": "root", "evidence": "evidence",
}  # fmt: skip
OPERATION_MANY = {"sequence": "sequence", "bytes": "bytes", "elements": "count"}
