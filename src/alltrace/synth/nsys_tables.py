"""A simulated rank as the tables of an Nsight Systems export: host stamps, names interned, nsys' own ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from alltrace.synth.kernels import ALL_KERNELS, KERNELS
from alltrace.synth.nsys_facts import Report, fact_tables
from alltrace.synth.nsys_schema import enums
from alltrace.synth.timeline import Rows

_PUSH_POP, _DOMAIN_CREATE = 59, 75
_OS_RUNTIME = 27
_CONTEXT = 1
_DEVICE_MEMORY = 2
_GPU_METRIC_TYPE = (1 << 48) | (1 << 32)

# Metric, the kernels that drive it (all, compute, communication; `constant` for none), value when they are busy all the
# time.
_GPU_METRICS = (
    ("GPC Clock Frequency [MHz]", "constant", 1980), ("SYS Clock Frequency [MHz]", "constant", 1700),
    ("GR Active [Throughput %]", "all", 100), ("SMs Active [Throughput %]", "all", 92),
    ("SM Issue [Throughput %]", "compute", 41), ("Tensor Active [Throughput %]", "compute", 47),
    ("Compute Warps in Flight [Throughput %]", "all", 55),
    ("Unallocated Warps in Active SMs [Throughput %]", "all", 30),
    ("DRAM Read Bandwidth [Throughput %]", "compute", 36), ("DRAM Write Bandwidth [Throughput %]", "compute", 22),
    ("NVLink RX Requests User Data [Throughput %]", "communication", 61),
    ("NVLink TX Requests User Data [Throughput %]", "communication", 61),
    ("PCIe RX Throughput [Throughput %]", "communication", 9),
    ("PCIe TX Throughput [Throughput %]", "communication", 9),
)  # fmt: skip

Values: TypeAlias = "NDArray[np.generic] | Sequence[object] | str | int | float | None"


@dataclass
class Table:
    """Rows of one table. A column is an array or list of `rows` values, or one value for all; others are null."""

    rows: int
    columns: dict[str, Values]

    def shuffled(self, rng: np.random.Generator) -> Table:
        order = rng.permutation(self.rows)
        moved: dict[str, Values] = {}
        for name, values in self.columns.items():
            if isinstance(values, np.ndarray):
                moved[name] = values[order]
            else:
                moved[name] = [values[i] for i in order] if isinstance(values, (list, tuple)) else values
        return Table(self.rows, moved)


def build_tables(report: Report) -> dict[str, Table]:
    """All tables of one rank's report that have rows, enumerations and metadata included."""
    # `report`: the rank within its simulated run. Returns tables by name; event tables ordered by start unless the
    # scenario wants them in disorder.
    events = {
        "CUPTI_ACTIVITY_KIND_KERNEL": _kernels(report),
        "CUPTI_ACTIVITY_KIND_MEMCPY": _copies(report),
        "CUPTI_ACTIVITY_KIND_MEMSET": _memsets(report),
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": _graphs(report),
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": _syncs(report),
        "CUPTI_ACTIVITY_KIND_RUNTIME": _api(report),
        "NVTX_EVENTS": _ranges(report),
        "OSRT_API": _osrt(report),
        "MPI_COLLECTIVES_EVENTS": _mpi(report),
        "GPU_METRICS": _gpu_metrics(report),
    }
    if report.environment.unordered:
        rng = np.random.default_rng((report.scenario.seed, 7, report.rank))
        events = {name: table.shuffled(rng) for name, table in events.items()}
    facts = {
        name: Table(len(rows), _transposed(columns, rows)) for name, (columns, rows) in fact_tables(report).items()
    }
    known = enums(report.environment.schema)
    labels = {name: Table(len(rows), _transposed(("id", "name", "label"), rows)) for name, rows in known.items()}
    if "GPU_METRICS" in events and events["GPU_METRICS"].rows:
        facts["TARGET_INFO_GPU_METRICS"] = _gpu_metric_names(report)
    texts = report.strings.texts
    facts["StringIds"] = Table(len(texts), {"id": np.arange(len(texts), dtype=np.int64), "value": texts})
    return {name: table for name, table in {**facts, **events, **labels}.items() if table.rows}


def _transposed(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> dict[str, Values]:
    return {name: [row[place] for row in rows] for place, name in enumerate(columns)}


def _times(report: Report, rows: Rows) -> dict[str, Values]:
    return {"start": report.identity.stamps(rows["start"]), "end": report.identity.stamps(rows["end"])}


def _device(report: Report, rows: Rows) -> dict[str, Values]:
    return {
        "deviceId": report.identity.ordinal,
        "contextId": _CONTEXT,
        "greenContextId": 0,
        "streamId": rows["stream"],
        "correlationId": rows["correlation"],
        "globalPid": report.global_pid,
    }


def _kernels(report: Report) -> Table:
    rows = report.timeline.kernels
    used = np.unique(rows["kernel"])
    kernel = rows["kernel"]

    def facts(values: Sequence[int]) -> NDArray[np.int64]:
        return np.array(values, np.int64)[kernel]

    def text_ids(texts: list[str]) -> NDArray[np.int64]:
        return facts([report.strings.number(text) if number in used else 0 for number, text in enumerate(texts)])

    return Table(
        len(rows),
        {
            **_times(report, rows),
            **_device(report, rows),
            "demangledName": text_ids([k.demangled for k in ALL_KERNELS]),
            "shortName": text_ids([k.short for k in ALL_KERNELS]),
            "mangledName": text_ids([k.mangled for k in ALL_KERNELS]),
            "launchType": 1,
            "cacheConfig": 0,
            "registersPerThread": facts([k.registers for k in ALL_KERNELS]),
            **{f"grid{axis}": facts([k.grid[place] for k in ALL_KERNELS]) for place, axis in enumerate("XYZ")},
            **{f"block{axis}": facts([k.block[place] for k in ALL_KERNELS]) for place, axis in enumerate("XYZ")},
            "staticSharedMemory": facts([k.static_shared_bytes for k in ALL_KERNELS]),
            "dynamicSharedMemory": facts([k.dynamic_shared_bytes for k in ALL_KERNELS]),
            "localMemoryPerThread": 0,
            "localMemoryTotal": 0,
            "gridId": np.arange(1, len(rows) + 1),
            "sharedMemoryExecuted": 32_768,
            "sharedMemoryLimitConfig": 0,
            **({"tensorSizeMinusOneElements": "[]"} if report.newer else {}),
        },
    )


def _copies(report: Report) -> Table:
    rows = report.timeline.copies
    columns: dict[str, Values] = {
        **_times(report, rows),
        **_device(report, rows),
        "bytes": rows["bytes"],
        "copyKind": rows["kind"],
        "srcKind": rows["source"],
        "dstKind": rows["target"],
    }
    return Table(len(rows), {**columns, "copyCount": 1} if report.newer else columns)


def _memsets(report: Report) -> Table:
    rows = report.timeline.memsets
    fixed: dict[str, Values] = {"value": 0, "memKind": _DEVICE_MEMORY}
    return Table(len(rows), {**_times(report, rows), **_device(report, rows), "bytes": rows["bytes"], **fixed})


def _graphs(report: Report) -> Table:
    rows = report.timeline.graphs
    return Table(
        len(rows),
        {**_times(report, rows), **_device(report, rows), "graphId": rows["graph"], "graphExecId": rows["graph"]},
    )


def _syncs(report: Report) -> Table:
    rows = report.timeline.syncs
    columns = {**_times(report, rows), **_device(report, rows), "syncType": rows["type"], "eventId": 0}
    # a wait for the whole context belongs to no stream, which nsys shows as all bits set
    streams = np.where(rows["stream"] < 0, (1 << 32) - 1, rows["stream"])
    return Table(len(rows), {**columns, "streamId": streams, "greenContextId": None})


def _api(report: Report) -> Table:
    rows = report.timeline.api
    columns: dict[str, Values] = {
        **_times(report, rows),
        "eventClass": 0,
        "globalTid": report.global_tids[rows["thread"]],
        "correlationId": rows["correlation"],
        "nameId": report.text_ids(np.unique(rows["name"]))[rows["name"]],
        "returnValue": 0,
    }
    return Table(len(rows), columns)


def _ranges(report: Report) -> Table:
    rows, line = report.timeline.ranges, report.timeline
    if not len(rows):
        return Table(0, {})
    nccl = rows["domain"] == 1
    times = _times(report, rows)
    texts = np.array([*line.names.texts, None], object)
    with_payloads = report.environment.payloads  # nsys exports them only if it is asked to
    payloads = np.array([*(text if with_payloads else None for text in line.payloads.texts), None], object)
    text_ids = report.text_ids(np.unique(rows["name"][nccl])).astype(object)
    nothing = np.array(None, object)
    domain = report.nccl_domain
    columns: dict[str, Values] = {
        **times,
        "eventType": _PUSH_POP,
        "globalTid": report.global_tids[rows["thread"]],
        # NCCL registers its texts, so that they come as ids; the program's come inline
        "text": np.where(nccl, nothing, texts[rows["name"]]),
        "textId": np.where(nccl, text_ids[rows["name"]], nothing),
        "domainId": np.where(nccl, domain, 0),
        "jsonText": payloads[rows["payload"]],
    }
    if not nccl.any():
        return Table(len(rows), columns)
    first = int(np.asarray(times["start"]).min()) - 1_000
    create: dict[str, object] = {
        "start": first,
        "end": None,
        "eventType": _DOMAIN_CREATE,
        "globalTid": int(report.global_tids[0]),
    }
    create.update({"text": "NCCL", "textId": None, "domainId": domain, "jsonText": None})
    whole: dict[str, Values] = {}
    for name, values in columns.items():
        many = np.full(len(rows), values) if isinstance(values, int) else np.asarray(values)
        whole[name] = np.concatenate((np.array([create[name]], object if create[name] is None else many.dtype), many))
    return Table(len(rows) + 1, whole)


def _osrt(report: Report) -> Table:
    rows = report.timeline.osrt
    if not report.environment.osrt:
        return Table(0, {})
    columns: dict[str, Values] = {
        **_times(report, rows),
        "eventClass": _OS_RUNTIME,
        "globalTid": report.global_tids[rows["thread"]],
        "nameId": report.text_ids(np.unique(rows["name"]))[rows["name"]],
        "returnValue": 0,
        "nestingLevel": 0,
        "callchainId": 0,
    }
    return Table(len(rows), columns)


def _mpi(report: Report) -> Table:
    rows = report.timeline.mpi
    columns: dict[str, Values] = {
        **_times(report, rows),
        "globalTid": report.global_tids[rows["thread"]],
        "textId": report.text_ids(np.unique(rows["name"]))[rows["name"]],
        "commHandle": report.mpi_handle,
    }
    return Table(len(rows), columns)


# GPU metrics


def _sampled_ranks(report: Report) -> list[int]:
    layout, environment = report.scenario.layout, report.environment
    if not environment.gpu_metrics_hz:
        return []
    if not environment.gpu_metrics_per_host:
        return [report.rank]
    if report.identity.local_rank:
        return []
    return list(range(report.rank, report.rank + layout.ranks_per_host))


def _gpu_metric_names(report: Report) -> Table:
    rows = [
        (_GPU_METRIC_TYPE | report.scenario.layout.local_rank(rank), _GPU_METRIC_TYPE, "", number, metric[0])
        for rank in _sampled_ranks(report)
        for number, metric in enumerate(_GPU_METRICS)
    ]
    return Table(len(rows), _transposed(("typeId", "sourceId", "typeName", "metricId", "metricName"), rows))


def _gpu_metrics(report: Report) -> Table:
    times, types, metrics, values = [], [], [], []
    for rank in _sampled_ranks(report):
        line = report.run.timelines[rank]
        # no longer than the report itself
        own_first, own_last = report.timeline.bounds
        first, last = max(line.bounds[0], own_first), min(line.bounds[1], own_last)
        if last <= first + 1:  # a report without events has the bounds 0 and 1
            continue
        period = 10**9 // report.environment.gpu_metrics_hz
        edges = np.arange(first, last + period, period)
        kernels, graphs = line.kernels, line.graphs
        starts, ends = (np.concatenate((kernels[name], graphs[name])) for name in ("start", "end"))
        compute = np.concatenate((kernels["kernel"] < len(KERNELS), np.ones(len(graphs), bool)))
        chosen = {"all": np.ones(len(starts), bool), "compute": compute, "communication": ~compute}
        share = {name: _busy_share(starts[rows], ends[rows], edges) for name, rows in chosen.items()}
        share["constant"] = np.ones(len(edges) - 1)
        table = np.stack([np.rint(share[driver] * peak) for _, driver, peak in _GPU_METRICS], axis=1).astype(np.int64)
        count = len(_GPU_METRICS)
        times.append(np.repeat(report.identity.stamps(edges[1:]), count))
        types.append(np.full(table.size, _GPU_METRIC_TYPE | report.scenario.layout.local_rank(rank)))
        metrics.append(np.tile(np.arange(count), len(table)))
        values.append(table.ravel())
    if not times:
        return Table(0, {})
    stamps = np.concatenate(times)
    columns: dict[str, Values] = {
        "timestamp": stamps,
        "typeId": np.concatenate(types),
        "metricId": np.concatenate(metrics),
        "value": np.concatenate(values),
    }
    return Table(len(stamps), {**columns, "rawTimestamp": stamps} if report.newer else columns)


def _busy_share(starts: NDArray[np.int64], ends: NDArray[np.int64], edges: NDArray[np.int64]) -> NDArray[np.float64]:
    """The share of each bin between two edges that the union of the intervals covers."""
    if len(starts) == 0:
        return np.zeros(len(edges) - 1)
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    opens = np.concatenate(([True], starts[1:] > ends[:-1]))
    begins = starts[opens]
    stops = ends[np.concatenate((opens[1:], [True]))]
    covered = np.concatenate(([0], np.cumsum(stops - begins)))
    points = np.stack((begins, stops), axis=1).ravel()
    heights = np.stack((covered[:-1], covered[1:]), axis=1).ravel()
    reached = np.interp(edges, points, heights)
    share: NDArray[np.float64] = np.diff(reached) / np.diff(edges)
    return share
