"""Files of NCCL Inspector as its plugin writes them (plugins/profiler/inspector/inspector_json.cc in NVIDIA/nccl)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from alltrace.synth.identity import JOB_START_UTC_NS, identities
from alltrace.synth.simulate import simulate


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
    own = {
        "coll": op,
        "coll_sn": number,
        "coll_msg_size_bytes": size,
        "coll_exec_time_us": us,
        "coll_timing_source": "kernel_gpu",
    }
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


def write_job(
    folder: Path, scenario: Any, *, verbose: bool = True, least_bytes: int = 8192, drop: Any = None
) -> list[str]:
    """The files that the ranks of a simulated job would have written: a path for each rank.

    Operations below `least_bytes` have no record, as NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES leaves them out; `drop(rank,
    number)` says which of a rank's records were lost. Each function's records come together, as buffers are drained,
    not in the order of calls.
    """
    folder.mkdir(parents=True, exist_ok=True)
    job = simulate(scenario)
    paths = []
    for who in identities(scenario):

        def micros(at: int, who: Any = who) -> int:
            return int((JOB_START_UTC_NS + who.host_clock_ns(at)) // 1000)

        counts: dict[Any, int] = {}
        lines = []
        mine = sorted((i for i in job.collectives if who.rank in i.launches), key=lambda i: i.launches[who.rank])
        for number, instance in enumerate(mine):
            group = job.groups[instance.group]
            place = group.ranks.index(who.rank)
            begin, end = instance.arrivals[who.rank], instance.ends[who.rank]
            us = round((end - begin) / 1000)
            calls: list[tuple[str, int | None]] = [(instance.op, None)]
            if instance.op == "SendRecv":
                sends, receives = instance.directions[who.rank]
                calls = [*[("Send", 1 - place)] * sends, *[("Recv", 1 - place)] * receives]
            elif instance.op == "AlltoAll" and scenario.environment.grouped_all_to_all:
                calls = [(way, peer) for peer in range(len(group.ranks)) for way in ("Send", "Recv")]
            for op, peer in calls:
                key = "p2p" if peer is not None else (instance.group, op)
                sequence = counts[key] = counts.get(key, -1) + 1
                word = "coll" if peer is None else "p2p"
                its = (
                    collective(op, sequence, us, instance.size_bytes)
                    if peer is None
                    else message(op, sequence, peer, us, instance.size_bytes)
                )
                if verbose:
                    stamps = {"kernel_start_ts": micros(end) - us, "kernel_stop_ts": micros(end)}
                    its["event_trace_ts"] = {
                        f"{word}_start_ts": micros(instance.launches[who.rank]),
                        "kernel_events": [{"channel_id": 0, **stamps}],
                    }
                if instance.size_bytes < least_bytes or (drop is not None and drop(who.rank, number)):
                    continue
                about: dict[str, Any] = {
                    "communicator": f"{group.comm_hash:#x}",
                    "size": len(group.ranks),
                    "pid": who.pid,
                    "host": who.host_name,
                }
                lines.append((op, record(place, its, key=f"{word}_perf", **about)))
        path = folder / f"{who.host_name}-pid{who.pid}.log"
        path.write_text("".join(f"{line}\n" for _op, line in sorted(lines, key=lambda each: each[0])))
        paths.append(str(path))
    return paths
