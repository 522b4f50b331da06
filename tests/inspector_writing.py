"""Files of NCCL Inspector as its plugin writes them (plugins/profiler/inspector/inspector_json.cc in NVIDIA/nccl)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def record(
    rank: int,
    perf: dict[str, Any],
    *,
    key: str = "coll_perf",
    communicator: str = "0x9f",
    size: int = 2,
    name: str = "world",
    version: str = "v4.0",
    pid: int | None = None,
    host: str = "h",
    written_us: int = 5_000_000,
) -> str:
    """A line."""
    meta = {
        "inspector_output_format_version": version,
        "git_rev": "",
        "rec_mechanism": "nccl_profiler_interface",
        "dump_timestamp_us": written_us,
        "hostname": host,
        "pid": 100 + rank if pid is None else pid,
    }
    header = {"id": communicator, "comm_name": name, "rank": rank, "n_ranks": size, "nnodes": 1}
    return json.dumps({"header": header, "metadata": meta, key: perf})


def collective(op: str, number: int, us: int, size: int = 1 << 20, **others: Any) -> dict[str, Any]:
    """What `coll_perf` holds."""
    own = {"coll": op, "coll_sn": number, "coll_msg_size_bytes": size, "coll_exec_time_us": us, "coll_timing_source": "kernel_gpu"}
    return {**own, "coll_algobw_gbs": 1.0, "coll_busbw_gbs": 1.5, **others}


def message(op: str, number: int, peer: int, us: int = 30, size: int = 1 << 18) -> dict[str, Any]:
    """What `p2p_perf` holds."""
    own = {"p2p": op, "p2p_sn": number, "p2p_peer": peer, "p2p_msg_size_bytes": size, "p2p_exec_time_us": us}
    return {**own, "p2p_timing_source": "kernel_gpu", "p2p_algobw_gbs": 1.0, "p2p_busbw_gbs": 1.0}


def stats(collectives: int, messages: int) -> dict[str, int]:
    """What `dump_stats` of version 4.1 holds."""
    return {
        "coll_records": 3,
        "coll_dropped_total": collectives,
        "coll_dropped_since_last_dump": 0,
        "p2p_records": 0,
        "p2p_dropped_total": messages,
        "p2p_dropped_since_last_dump": 0,
    }


def write(folder: Path, ranks: dict[int, list[str]]) -> list[str]:
    """A file for each rank; the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for rank, lines in ranks.items():
        path = folder / f"h-pid{100 + rank}.log"
        path.write_text("".join(f"{line}\n" for line in lines))
        paths.append(str(path))
    return paths
