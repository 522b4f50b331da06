"""The reports of `nsys stats` with a row per event."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.nvidia.cells import cells, stack
from alltrace.nvidia.kernel_names import (
    MEMORY_LABELS,
    call_texts,
    copy_labels,
    kernel_columns,
    kernel_texts,
    launch_dims,
    launches,
    relabel,
)
from alltrace.nvidia.ranges import pids_and_tids
from alltrace.nvidia.report import BY_RANK, Trace
from alltrace.nvidia.report_sums import DIM_CELLS, KERNEL_OPTIONS
from alltrace.recipes.analysis.lookups import as_text, column, look_up
from alltrace.recipes.base import Option, Options
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Int64, integers


def _durations(table: Any) -> Any:
    return pc.subtract(column(table, "end"), column(table, "start"))


def _api_rows(rank: Rank, options: Options) -> Any:
    api = rank.table("api", cuda_api_trace.tables["api"])
    threads = rank.table("threads")
    thread = column(api, "thread")
    return pa.table(
        {
            "Start": column(api, "start"),
            "Duration": _durations(api),
            "Name": call_texts(column(api, "name"), rank),
            "Result": column(api, "return_value"),
            "CorrID": column(api, "correlation"),
            "Pid": look_up(rank.table("processes"), "pid", column(api, "process")),
            "Tid": look_up(threads, "tid", thread),
            "T-Pri": look_up(threads, "priority", thread),
            "Thread Name": as_text(look_up(threads, "name", thread), rank),
        }
    )


cuda_api_trace = Trace(
    "cuda_api_trace",
    "CUDA API Trace",
    "Every call of the CUDA runtime and driver, in the order of their starts.",
    tables={"api": ("start", "end", "name", "return_value", "correlation", "process", "thread")},
    rows=_api_rows,
    cells=cells(
        "Start | time | Start of the call.",
        "Duration | time | Its length.",
        "Name | name | Function.",
        "Result | int | Return value, a CUDA error code.",
        "CorrID | int | Correlation id: joins a call and the GPU work it launched.",
        "Pid | int | Process that made the call.",
        "Tid | int | Thread that made the call.",
        "T-Pri | int | Scheduling priority of the thread.",
        "Thread Name | name | Name of the thread.",
    ),
)

_PLACE = ("start", "end", "correlation", "device", "context", "green_context", "stream")
_DIMS = {"GrdX": "grid_x", "GrdY": "grid_y", "GrdZ": "grid_z", "BlkX": "block_x", "BlkY": "block_y", "BlkZ": "block_z"}
_KERNEL = {**_DIMS, "Reg/Trd": "registers", "StcSMem": "static_shared_memory", "DymSMem": "dynamic_shared_memory"}
_COPY = ("kind", "bytes", "src_kind", "dst_kind")


def _gpu_rows(rank: Rank, options: Options) -> Any:
    """The kernels of one rank, then its copies, then its fills."""
    kernels = rank.table("kernels", list(dict.fromkeys([*_PLACE, *kernel_columns(options), *_KERNEL.values()])))
    copies = rank.table("copies", [*_PLACE, *_COPY])
    fill = _are_fills(copies).to_numpy(zero_copy_only=False)
    tables = [
        _kernel_rows(rank, kernels, options),
        _copy_rows(rank, copies.take(pa.array(np.argsort(fill, kind="stable")))),
    ]
    titles = [cell.title for cell in cuda_gpu_trace.cells]
    return stack([t.select(titles) for t in tables if t.num_rows] or [tables[0].select(titles)])


def _are_fills(copies: Any) -> Any:
    return pc.fill_null(pc.equal(column(copies, "kind").cast(pa.string()), "memset"), fill_value=False)


def _kernel_rows(rank: Rank, kernels: Any, options: Options) -> Any:
    n = kernels.num_rows
    no_text = pa.DictionaryArray.from_arrays(pa.nulls(n, pa.int32()), pa.array([], pa.string()))
    return pa.table(
        {
            **_place(rank, kernels),
            **{title: column(kernels, name).cast(pa.int64()) for title, name in _KERNEL.items()},
            "Bytes": pa.nulls(n, pa.int64()),
            "Throughput": pa.nulls(n, pa.float64()),
            "SrcMemKd": no_text,
            "DstMemKd": no_text,
            "Name": kernel_texts(rank, kernels, options),
        }
    )


def _copy_rows(rank: Rank, copies: Any) -> Any:
    fill = _are_fills(copies)
    kind = column(copies, "kind")
    encoded = kind if pa.types.is_dictionary(kind.type) else kind.dictionary_encode()
    source, target = (column(copies, c).cast(pa.string()) for c in ("src_kind", "dst_kind"))
    size, took = column(copies, "bytes"), _durations(copies)
    # as nsys computes it: bytes * floor(1e9 / ns); null for an operation that took no time
    per_second = pc.divide(pa.scalar(1_000_000_000, pa.int64()), pc.if_else(pc.greater(took, 0), took, None))
    return pa.table(
        {
            **_place(rank, copies),
            **dict.fromkeys(_KERNEL, pa.nulls(copies.num_rows, pa.int64())),
            "Bytes": size,
            "Throughput": pc.multiply(size.cast(pa.float64(), safe=False), per_second.cast(pa.float64())),
            "SrcMemKd": relabel(pc.if_else(fill, target, source), MEMORY_LABELS),
            "DstMemKd": relabel(pc.if_else(fill, None, target), MEMORY_LABELS),
            "Name": pa.DictionaryArray.from_arrays(encoded.indices.cast(pa.int32()), copy_labels(encoded.dictionary)),
        }
    )


def _place(rank: Rank, events: Any) -> dict[str, Any]:
    """The cells that kernels and copies share; a GPU is `NVIDIA A100-SXM4-40GB (0)`, or ` (0)` without a name."""
    devices = rank.table("devices", ["device", "ordinal", "name"])
    numbers = pc.binary_join_element_wise("(", column(devices, "ordinal").cast(pa.string()), ")", "")
    labels = pc.binary_join_element_wise(pc.fill_null(rank.texts(column(devices, "name")), ""), numbers, " ")
    named = pa.table({"device": column(devices, "device"), "label": labels})
    green = column(events, "green_context").cast(pa.int64())
    return {
        "Start": column(events, "start"),
        "Duration": _durations(events),
        "CorrId": column(events, "correlation"),
        "Device": look_up(named, "label", column(events, "device")).dictionary_encode(),
        "Ctx": column(events, "context").cast(pa.int64()),
        "GreenCtx": pc.if_else(pc.equal(green, 0), None, green),  # 0 is the whole context
        "Strm": column(events, "stream"),
    }


cuda_gpu_trace = Trace(
    "cuda_gpu_trace",
    "CUDA GPU Trace",
    "Every kernel, copy and fill on GPUs, in the order of their starts.",
    tables={
        "kernels": (*_PLACE, "process", "name", "short_name", "mangled_name", *_KERNEL.values()),
        "copies": (*_PLACE, *_COPY),
    },
    rows=_gpu_rows,
    options=KERNEL_OPTIONS,
    cells=cells(
        "Start | time | Start.",
        "Duration | time | Length.",
        "CorrId | int | Correlation id: joins the work and the call that launched it.",
        *(f"Grd{axis.upper()} | int | Blocks of the grid in {axis}." for axis in "xyz"),
        *(f"Blk{axis.upper()} | int | Threads of a block in {axis}." for axis in "xyz"),
        "Reg/Trd | int | Registers per thread.",
        "StcSMem | size | Static shared memory per block.",
        "DymSMem | size | Dynamic shared memory per block.",
        "Bytes | size | Size of a copy or fill.",
        "Throughput | throughput | Bytes times the whole number of such operations that fit in a second.",
        "SrcMemKd | name | Kind of memory copied from, or filled.",
        "DstMemKd | name | Kind of memory copied to.",
        "Device | name | Name of the GPU and its CUDA ordinal.",
        "Ctx | int | CUDA context id.",
        "GreenCtx | int | CUDA green context id.",
        "Strm | int | CUDA stream id.",
        "Name | name | Kernel, copy or fill.",
    ),
)

_API = ("start", "end", "process", "thread", "correlation", "name")


def _launch_rows(rank: Rank, options: Options) -> Any:
    """The kernels with a known launch, with the call, the wait in the queue and the execution."""
    dims = tuple(_DIMS.values())
    wanted = list(dict.fromkeys(["start", "end", "process", "device", "correlation", *kernel_columns(options), *dims]))
    kernels, api = _ended(rank, "kernels", wanted), _ended(rank, "api", _API)
    kernel, call = launches(kernels, api)
    kernels, api = _taken(kernels, kernel), _taken(api, call)
    called, returned, start, end = (column(t, c).to_numpy() for t in (api, kernels) for c in ("start", "end"))
    waited = start - returned
    early = waited < 0
    return pa.table(
        {
            "API Start": called,
            "API Dur": returned - called,
            "Queue Start": pa.array(returned, mask=early),
            "Queue Dur": pa.array(waited, mask=early),
            "Kernel Start": start,
            "Kernel Dur": end - start,
            "Total Dur": np.maximum(returned, end) - called,
            "PID": look_up(rank.table("processes"), "pid", column(api, "process")),
            "TID": look_up(rank.table("threads"), "tid", column(api, "thread")),
            "DevId": pc.cast(look_up(rank.table("devices"), "ordinal", column(kernels, "device")), pa.int64()),
            "API Function": call_texts(column(api, "name"), rank),
            "GridXYZ": launch_dims(*(column(kernels, name) for name in dims[:3])),
            "BlockXYZ": launch_dims(*(column(kernels, name) for name in dims[3:])),
            "Kernel Name": kernel_texts(rank, kernels, options),
        }
    )


def _ended(rank: Rank, table: str, columns: Sequence[str]) -> Any:
    """The events with a known end; a damaged report lacks the end of others."""
    events = rank.table(table, columns)
    ends = events.column("end")
    return events.filter(ends.is_valid()) if ends.null_count else events


def _taken(table: Any, rows: Int64) -> Any:
    """The rows of a table in another order, or itself where these are all of them as they are."""
    if len(rows) == table.num_rows and (rows == np.arange(len(rows))).all():
        return table
    return table.take(pa.array(rows))


cuda_kern_exec_trace = Trace(
    "cuda_kern_exec_trace",
    "CUDA Kernel Launch & Exec Time Trace",
    "Every kernel with a known launch: the call, the wait in the queue, the execution; in the order of the calls.",
    tables={
        "kernels": (
            "start",
            "end",
            "process",
            "device",
            "correlation",
            "name",
            "short_name",
            "mangled_name",
            *_DIMS.values(),
        ),
        "api": _API,
    },
    requires=("kernels", "api"),
    rows=_launch_rows,
    options=KERNEL_OPTIONS,
    by_call=("kernels",),
    order="API Start",
    height="Total Dur",
    called="API Function",
    cells=(
        *cells(
            "API Start | time | Start of the call that launched the kernel.",
            "API Dur | time | Length of the call.",
            "Queue Start | time | End of the call; empty if the kernel started before.",
            "Queue Dur | time | From there to the start of the kernel.",
            "Kernel Start | time | Start of the kernel.",
            "Kernel Dur | time | Length of the kernel.",
            "Total Dur | time | From the start of the call to the end of call or kernel, whichever is later.",
            "PID | int | Process that made the call.",
            "TID | int | Thread that made the call.",
            "DevId | int | CUDA ordinal of the GPU.",
            "API Function | name | Function called.",
        ),
        *DIM_CELLS,
        *cells("Kernel Name | name | Kernel."),
    ),
)


def _mpi_rows(rank: Rank, options: Options) -> Any:
    events = _ended(rank, "mpi", mpi_event_trace.tables["mpi"])
    events = events.filter(events.column("start").is_valid())
    pid, tid = pids_and_tids(rank, integers(events.column("thread")))
    collective = pc.equal(column(events, "kind").cast(pa.string()), "collective")
    return pa.table(
        {
            "Start": events.column("start"),
            "End": events.column("end"),
            "Duration": _durations(events),
            "Event": as_text(column(events, "name"), rank),
            "Pid": pid,
            "Tid": tid,
            "Tag": events.column("tag"),
            "Rank": np.full(events.num_rows, rank.rank, np.int64),
            "PeerRank": events.column("peer").cast(pa.int64()),
            "RootRank": events.column("root").cast(pa.int64()),
            "Size": pc.if_else(collective, None, column(events, "bytes")),
            "CollSendSize": events.column("sent_bytes"),
            "CollRecvSize": events.column("recv_bytes"),
        }
    )


mpi_event_trace = Trace(
    "mpi_event_trace",
    "MPI Event Trace",
    "Every MPI event as recorded: a wait for n requests is n rows, a send-receive is two, of which the sending has no"
    " length.",
    tables={
        "mpi": ("start", "end", "thread", "name", "kind", "tag", "peer", "root", "bytes", "sent_bytes", "recv_bytes")
    },
    rows=_mpi_rows,
    options=(),
    called="Event",
    cells=cells(
        "Start | time | Start.",
        "End | time | End.",
        "Duration | time | Length.",
        "Event | name | Function.",
        "Pid | int | Process id.",
        "Tid | int | Thread id.",
        "Tag | int | Message tag.",
        "Rank | int | Rank.",
        "PeerRank | int | Other rank of a point-to-point call, in the communicator's numbering.",
        "RootRank | int | Root of a collective, in the communicator's numbering.",
        "Size | size | Bytes of a point-to-point message.",
        "CollSendSize | size | Bytes sent by a collective.",
        "CollRecvSize | size | Bytes received by a collective.",
    ),
)


def _congestion_rows(rank: Rank, options: Options) -> Any:
    tables = []
    for name, columns in network_congestion.tables.items():
        samples = rank.table(name, columns)
        waits = pc.equal(rank.texts(column(samples, "metric")), "IB: Send waits")
        high = pc.greater(column(samples, "value"), float(options["ticks_threshold"]))
        samples = samples.filter(pc.fill_null(pc.and_(waits, high), False))
        guids = [None if g is None else f"{g & (1 << 64) - 1:x}" for g in samples.column("guid").to_pylist()]
        models = rank.texts(column(samples, "model")) if "model" in columns else pa.nulls(samples.num_rows, pa.string())
        table = {"Start": samples.column("start"), "End": samples.column("end"), "Duration": _durations(samples)}
        rate = samples.column("value").cast(pa.int64(), safe=False)
        tables.append(
            pa.table({**table, "Send wait rate": rate, "GUID": pa.array(guids, pa.string()), "Device name": models})
        )
    return pa.concat_tables(tables)


network_congestion = Trace(
    "network_congestion",
    "Network Devices Congestion",
    "The samples of adapters and switches in which sending waited for more than a threshold of ticks per ms.",
    tables={
        "nic_metrics": ("start", "end", "guid", "metric", "value", "model"),
        "switch_metrics": ("start", "end", "guid", "metric", "value"),
    },
    rows=_congestion_rows,
    options=(
        Option("ticks_threshold", int, default=10000, help="Ticks per ms above which a sample counts as congestion."),
        BY_RANK,
    ),
    height="Send wait rate",
    called="GUID",
    cells=cells(
        "Start | time | Start of the sample.",
        "End | time | End of the sample.",
        "Duration | time | Length of the sample.",
        "Send wait rate | ticks | Ticks per ms in which data waited for credits or arbitration.",
        "GUID | name | GUID of the device.",
        "Device name | name | Model of the adapter; switches have none.",
    ),
)
