"""A simulated rank as the PyTorch profiler writes it: JSON with times in microseconds, calls with arguments."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alltrace.synth.kernels import ALL_KERNELS
from alltrace.synth.nsys_facts import GPU_FACTS, Report
from alltrace.synth.operators import operator_events
from alltrace.synth.program import Group
from alltrace.synth.timeline import Rows

_BASE_STEP_NS = 10**15  # the profiler's base changes every few days
_CONTEXT = 1
_CALLS = {
    "ncclAllReduce": "allreduce", "ncclAllGather": "_allgather_base", "ncclReduceScatter": "_reduce_scatter_base",
    "ncclBroadcast": "broadcast", "ncclReduce": "reduce", "ncclAlltoAll": "all_to_all", "ncclSend": "send",
    "ncclRecv": "recv",
}  # fmt: skip
_DIRECTIONS = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP"}
_MEMORY = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed"}
_PROPERTIES = {
    "name": "name", "totalGlobalMem": "totalMemory", "computeMajor": "computeMajor", "computeMinor": "computeMinor",
    "maxThreadsPerBlock": "maxThreadsPerBlock", "regsPerBlock": "maxRegistersPerBlock",
    "regsPerMultiprocessor": "maxRegistersPerSm", "warpSize": "threadsPerWarp", "sharedMemPerBlock": "maxShmemPerBlock",
    "sharedMemPerMultiprocessor": "maxShmemPerSm", "numSms": "smCount",
    "sharedMemPerBlockOptin": "maxShmemPerBlockOptin",
}  # fmt: skip
_WAITS = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}


def file_name(report: Report) -> str:
    """The name that PyTorch's handler for TensorBoard uses: host, process and time."""
    identity = report.identity
    return f"{identity.host_name}_{identity.pid}.{identity.utc_stamp_ns // 10**6}.pt.trace.json"


def write_kineto(report: Report, path: Path) -> dict[str, int]:
    """Writes `path`, completely or not at all."""
    # What the profiler does not see is left out: MPI, calls of the operating system, metrics of the GPU. `path`: the
    # file; one that is there is replaced. Returns the number of events by category.
    partial = path.with_name(path.name + ".partial")
    counts: dict[str, int] = {}
    layout = report.scenario.layout
    groups = [
        {"pg_name": str(n), "pg_desc": g.name, "pg_size": len(g.ranks), "ranks": list(g.ranks)}
        for n, g in enumerate(report.run.groups)
    ]
    identity = report.identity
    head = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": identity.ordinal, **_device_properties()}],
        "distributedInfo": {"backend": "nccl", "rank": report.rank, "world_size": layout.ranks, "pg_config": groups},
        "record_shapes": int(report.environment.operators),
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": _base_ns(report),
    }
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(json.dumps(head)[:-1] + ', "traceEvents": [')
            first = True
            for category, text in _events(report):
                file.write(("\n" if first else ",\n") + text)
                first = False
                counts[category] = counts.get(category, 0) + 1
            file.write(f'\n], "traceName": {json.dumps(path.name)}}}\n')
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return counts


def _device_properties() -> dict[str, object]:
    warps, warp = GPU_FACTS["maxWarpsPerSm"], GPU_FACTS["threadsPerWarp"]
    threads = int(str(warps)) * int(str(warp))
    return {name: GPU_FACTS[fact] for name, fact in _PROPERTIES.items()} | {"maxThreadsPerMultiprocessor": threads}


def _base_ns(report: Report) -> int:
    return (report.identity.utc_stamp_ns // _BASE_STEP_NS - 1) * _BASE_STEP_NS


def _events(report: Report) -> Iterator[tuple[str, str]]:
    line, identity = report.timeline, report.identity
    for tid, name in ((identity.pid, "python3"), (identity.autograd_tid, "pt_autograd_0")):
        named = {"name": f"thread {tid} ({name})"}
        about = {"ph": "M", "name": "thread_name", "pid": identity.pid, "tid": tid, "args": named}
        yield "metadata", json.dumps(about)
    calls = list(_calls_of_groups(report))
    yield from (calls[place] for place in _order(report, len(calls)).tolist())
    if report.environment.operators:
        yield from _operators(report)
    names = line.names.texts
    own = line.ranges.where(line.ranges["domain"] != 1)
    for row, start, end in _placed(report, own):
        yield _host(report, "user_annotation", names[own["name"][row]], start, end, int(own["thread"][row]), {})
    for row, start, end in _placed(report, line.api):
        name = names[line.api["name"][row]].partition("_v")[0]
        category = "cuda_driver" if name.startswith("cu") and not name.startswith("cuda") else "cuda_runtime"
        correlation = {"correlation": int(line.api["correlation"][row])}
        yield _host(report, category, name, start, end, int(line.api["thread"][row]), correlation)
    yield from _gpu_events(report)


def _operators(report: Report) -> Iterator[tuple[str, str]]:
    shift = report.identity.utc_stamp_ns - _base_ns(report)
    for number, event in enumerate(operator_events(report.timeline)):
        start, end = (report.identity.stamps(np.array([event.start, event.end])) + shift).tolist()
        about = {**event.arguments, "Ev Idx": number}
        yield _host(report, event.category, event.name, start, end, event.thread, about)


def _gpu_events(report: Report) -> Iterator[tuple[str, str]]:
    line = report.timeline
    for row, start, end in _placed(report, line.kernels):
        kernel = ALL_KERNELS[line.kernels["kernel"][row]]
        about = {
            "registers per thread": kernel.registers,
            "shared memory": kernel.static_shared_bytes + kernel.dynamic_shared_bytes,
            "grid": list(kernel.grid),
            "block": list(kernel.block),
        }
        yield _gpu(report, "kernel", kernel.demangled, line.kernels, row, start, end, about)
    for row, start, end in _placed(report, line.copies):
        source, target = (_MEMORY.get(int(line.copies[c][row]), "Unknown") for c in ("source", "target"))
        name = f"Memcpy {_DIRECTIONS.get(int(line.copies['kind'][row]), 'Unknown')} ({source} -> {target})"
        yield _gpu(report, "gpu_memcpy", name, line.copies, row, start, end, {"bytes": int(line.copies["bytes"][row])})
    for row, start, end in _placed(report, line.memsets):
        about = {"bytes": int(line.memsets["bytes"][row])}
        yield _gpu(report, "gpu_memset", "Memset (Device)", line.memsets, row, start, end, about)
    for row, start, end in _placed(report, line.syncs):
        yield _gpu(
            report, "cuda_sync", _WAITS.get(int(line.syncs["type"][row]), "Sync"), line.syncs, row, start, end, {}
        )


def _calls_of_groups(report: Report) -> Iterator[tuple[str, str]]:
    """The calls of process groups, which NCCL's ranges are inside of."""
    line = report.timeline
    rows = line.ranges.where(line.ranges["domain"] == 1)
    numbers = _numbers(report)
    names, payloads = line.names.texts, line.payloads.texts
    grouped: list[tuple[int, int, dict[str, Any]]] | None = None
    begin = 0
    # a group's messages are detected by the calls between its start and its end
    for row, start, end in _placed(report, rows, in_order=True):
        name, thread = names[rows["name"][row]], int(rows["thread"][row])
        payload = json.loads(payloads[rows["payload"][row]]) if rows["payload"][row] >= 0 else {}
        if name == "ncclGroupStart":
            grouped, begin = [], start
        elif name == "ncclGroupEnd":
            messages, grouped = grouped or [], None
            whole = _all_to_all([call for _, _, call in messages])
            for first, last, call in [(begin, end, whole)] if whole else messages:
                yield _host(report, "cpu_op", "record_param_comms", first, last, thread, call)
        elif name.startswith("ncclCommInit"):
            yield _host(report, "cpu_op", "record_param_comms", start, end, thread, {"Collective name": "init"})
        elif name in _CALLS and "NCCL communicator ID" in payload:
            call = _call(report, name, payload, numbers.get((int(rows["start"][row]), name)))
            if grouped is None:
                yield _host(report, "cpu_op", "record_param_comms", start, end, thread, call)
            else:
                grouped.append((start, end, call))


def _all_to_all(messages: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The one call that sends to and receives from all members are inside of; None if they are separate messages."""
    if not messages or len(messages) != 2 * messages[0]["Group size"]:
        return None
    first = messages[0]
    total = sum(m["In msg nelems"] for m in messages) // 2
    shared = {k: v for k, v in first.items() if k not in ("Src Rank", "Dst Rank")}
    return {**shared, "Collective name": "all_to_all", "In msg nelems": total, "Out msg nelems": total}


def _call(report: Report, name: str, payload: dict[str, Any], sequence: int | None) -> dict[str, Any]:
    number, group = _group(report, int(payload["NCCL communicator ID"]))
    count = int(payload["Message size [bytes]"])
    members = len(group.ranks)
    # NCCL's size is a rank's share in both; the shares of all members make up the other side
    sent, received = {"ncclAllGather": (count, count * members), "ncclReduceScatter": (count * members, count)}.get(
        name, (count, count)
    )
    odd = count % 2  # a size that no number of bfloat16 has
    call: dict[str, Any] = {
        "Collective name": _CALLS[name],
        "dtype": "Byte" if odd else "BFloat16",
        "In msg nelems": sent if odd else sent // 2,
        "Out msg nelems": received if odd else received // 2,
        "Group size": members,
        "Process Group Name": str(number),
        "Process Group Description": group.name,
        "Process Group Ranks": json.dumps(list(group.ranks)),
        "Rank": group.ranks.index(report.rank),
    }
    if "Peer rank" in payload:
        peer, own = group.ranks[int(payload["Peer rank"])], report.rank
        call |= {"Src Rank": own, "Dst Rank": peer} if name == "ncclSend" else {"Src Rank": peer, "Dst Rank": own}
    return call if sequence is None else {**call, "Seq": sequence}


def _group(report: Report, comm_hash: int) -> tuple[int, Group]:
    return next((n, g) for n, g in enumerate(report.run.groups) if g.comm_hash == comm_hash)


def _numbers(report: Report) -> dict[tuple[int, str], int]:
    """By start and name the number of each call among those of its communicator, also those not recorded."""
    line = report.run.timelines[report.rank]
    rows = line.ranges.where(line.ranges["domain"] == 1)
    names, payloads = line.names.texts, line.payloads.texts
    numbers: dict[tuple[int, str], int] = {}
    last: dict[int, int] = {}
    for start, name, payload in zip(
        rows["start"].tolist(), rows["name"].tolist(), rows["payload"].tolist(), strict=True
    ):
        communicator = json.loads(payloads[payload]).get("NCCL communicator ID") if payload >= 0 else None
        if communicator is not None and names[name] not in ("ncclSend", "ncclRecv"):
            last[communicator] = numbers[start, names[name]] = last.get(communicator, -1) + 1
    return numbers


def _order(report: Report, count: int) -> NDArray[np.int64]:
    if report.environment.unordered:
        return np.random.default_rng((report.scenario.seed, 7, report.rank)).permutation(count)
    return np.arange(count)


def _placed(report: Report, rows: Rows, in_order: bool = False) -> Iterator[tuple[int, int, int]]:
    """The rows, with their times since the base, in the order in which they are written or by start."""
    if not len(rows):
        return
    shift = report.identity.utc_stamp_ns - _base_ns(report)
    starts, ends = (report.identity.stamps(rows[c]) + shift for c in ("start", "end"))
    order = np.arange(len(rows)) if in_order else _order(report, len(rows))
    yield from zip(order.tolist(), starts[order].tolist(), ends[order].tolist(), strict=True)


def _host(
    report: Report, category: str, name: str, start: int, end: int, thread: int, about: dict[str, Any]
) -> tuple[str, str]:
    identity = report.identity
    tid = identity.autograd_tid if thread else identity.pid
    return category, _event(category, name, start, end, identity.pid, tid, about)


def _gpu(
    report: Report, category: str, name: str, rows: Rows, row: int, start: int, end: int, about: dict[str, Any]
) -> tuple[str, str]:
    device, stream = report.identity.ordinal, int(rows["stream"][row])
    where = {"device": device, "context": _CONTEXT, "stream": stream, "correlation": int(rows["correlation"][row])}
    return category, _event(category, name, start, end, device, stream, {**where, **about})


def _event(category: str, name: str, start: int, end: int, pid: int, tid: int, about: dict[str, Any]) -> str:
    # the times are written as decimals, because a float has no space for nanoseconds
    return (
        f'{{"ph": "X", "cat": "{category}", "name": {json.dumps(name)}, "pid": {pid}, "tid": {tid}, '
        f'"ts": {start // 1000}.{start % 1000:03d}, "dur": {(end - start) // 1000}.{(end - start) % 1000:03d}, '
        f'"args": {json.dumps(about)}}}'
    )
