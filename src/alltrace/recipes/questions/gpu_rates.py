"""How hard each GPU worked: tensor cores, issue of instructions, memory, NVLink and PCIe, from the sampled GPU metrics.

Means are weighted by the time that a sample describes, and times without samples count for nothing. `sm active` is the
share of multiprocessors and time with work: 50 % may be half of them always, or all of them half the time. `sm issue`
is the share of the cycles that issue an instruction: 4 a cycle at most. `instructions` is about what the warps of the
device executed: 4 a cycle and multiprocessor, times that share, the sampled clock and the time; the last row has the
sum over the application. Nsight Compute counts exactly, kernel by kernel (`smsp__inst_executed.sum`). `warps in flight`
is the occupancy that was reached. Memory rates are the share by the device's peak bandwidth. What the GPU does in
kernels alone says `metric-attribution`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from alltrace.recipes.analysis.device_intervals import GPU, device_rows
from alltrace.recipes.analysis.metric_samples import CLOCK, SM_ISSUE, executed, samplings
from alltrace.recipes.analysis.sampled import GPU_READS, plain_metric
from alltrace.recipes.base import Answer, Chart, Options, Part, Question, RunFacts
from alltrace.run.rank import Rank
from alltrace.trace import columns as col

_RATES = {
    "gr active": r"gr active", "sm active": r"sm active", "sm issue": SM_ISSUE, "tensor active": r"tensor active",
    "warps in flight": r"compute warps in flight", "dram read": r"dram read (bandwidth|throughput)",
    "dram write": r"dram write (bandwidth|throughput)", "nvlink received": r"nvlink rx.*",
    "nvlink sent": r"nvlink tx.*", "pcie received": r"pcie rx throughput", "pcie sent": r"pcie tx throughput",
    "clock": CLOCK,
}  # fmt: skip
_DRAM = ("dram read", "dram write")
_MINE, _TAKEN = "devices of ranks", "devices in use"


COLUMNS: col.Columns = (
    col.rank("rank", "rank that works on the GPU"),
    GPU,
    col.text("rate", f"what was sampled: {', '.join(_RATES)}"),
    col.text("metric", "the profiler's name of it"),
    col.whole("samples", "samples"),
    col.ns("known_ns", "time that they describe"),
    col.real("mean", "mean by time: % of the peak; of the clock in the unit of the metric", decimals=1),
    col.real("median", "exact median of the samples", decimals=1),
    col.real("p95", "95th percentile, linear between neighbours", decimals=1),
    col.real("max", "largest", decimals=1),
    col.whole("mean_bytes_per_s", "of memory the mean by the device's peak; null if unknown", "bytes/s"),
    col.whole(
        "instructions", "of sm issue: approximate instructions executed by warps; null without clock or multiprocessors"
    ),
)


def _prepared(options: Options, run: RunFacts) -> Mapping[str, Any]:
    mine = {r.rank: frozenset(d.device for d in r.devices) for r in run.ranks}
    taken = frozenset(d.identity for r in run.ranks for d in r.devices)
    return {**options, _MINE: mine, _TAKEN: taken}


def _map(rank: Rank, options: Options) -> Any:
    devices = rank.table("devices", ["device", "memory_bandwidth_bytes_per_s", "uuid", "bus_id"]).to_pylist()
    peaks = {d["device"]: d["memory_bandwidth_bytes_per_s"] for d in devices}
    names = {d["device"]: d["uuid"] or d["bus_id"] for d in devices}
    mine = options[_MINE].get(rank.rank, frozenset())
    rows: list[dict[str, Any]] = []
    counts = executed(rank)
    for sampling in samplings(rank):
        name = names.get(sampling.device)
        if sampling.device not in mine and (rank.host, name) in options[_TAKEN]:
            continue  # it is listed with the rank that uses it
        for metric, values in sampling.values.items():
            rate = next((r for r, words in _RATES.items() if re.fullmatch(words, plain_metric(metric))), None)
            if rate is None:
                continue
            mean = float(np.average(values, weights=sampling.known_ns))
            median, p95, high = np.quantile(values, (0.5, 0.95, 1)).tolist()
            peak = peaks.get(sampling.device) if rate in _DRAM else None
            count = counts.get(sampling.device) if rate == "sm issue" else None
            rows.append(
                {
                    "device": sampling.device, "gpu": name, "rate": rate, "metric": metric, "samples": len(values),
                    "known_ns": int(sampling.known_ns.sum()), "mean": mean, "median": median, "p95": p95, "max": high,
                    "mean_bytes_per_s": None if peak is None else round(mean * peak / 100),
                    "instructions": None if count is None else count.instructions,
                }
            )  # fmt: skip
    places = {rate: i for i, rate in enumerate(_RATES)}
    rows.sort(key=lambda r: (r["device"], places[str(r["rate"])], r["metric"]))
    return pa.Table.from_pylist(rows)


def _merge(parts: Sequence[Part], run: RunFacts, _options: Options) -> Answer:
    rows = device_rows(parts, run)
    executed = [row for row in rows if row["instructions"] is not None]
    if len(executed) > 1:
        rows.append(
            {
                **dict.fromkeys(c.name for c in COLUMNS), "rate": "sm issue", "metric": "all devices",
                "known_ns": sum(row["known_ns"] for row in executed),
                "instructions": sum(row["instructions"] for row in executed),
            }
        )  # fmt: skip
    notes = ("no GPU metric is one of these rates",) if parts and not rows else ()
    return Answer.of(rows, COLUMNS, notes)


QUESTION = Question(
    "gpu-rates",
    __doc__,
    COLUMNS,
    _map,
    _merge,
    tables={"gpu_metrics": GPU_READS},
    chart=Chart("bars", "rate", ("mean",), "rank", "gpu"),
    prepare=_prepared,
    host_samples=True,
    important=("rank", "rate", "mean", "metric", "max", "gpu"),
)
