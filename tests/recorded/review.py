"""What recorded answers have to be, computed from the stored events in plain Python: no analysis of the product is
used.

Tables are read with pyarrow. Times are those of each rank's own clock, so what compares hosts is compared with the
truth.
"""

from __future__ import annotations

import json
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from itertools import pairwise
from typing import Any

import pyarrow.parquet as pq

from tests.recorded.making import RUNS

Spans = list[tuple[int, int]]
STEP = re.compile(r"(?:step |iteration |ProfilerStep#)(\d+)")
COMMUNICATES = ("collective", "p2p")


@cache
def table(name: str, rank: int, kind: str) -> list[dict[str, Any]]:
    """The rows of a table of a rank; none if it has no such table."""
    path = RUNS / name / "run" / "ranks" / f"rank={rank}" / f"{kind}.parquet"
    rows: list[dict[str, Any]] = pq.read_table(path, partitioning=None).to_pylist() if path.exists() else []
    return rows


@cache
def texts(name: str) -> dict[int, str]:
    """The run's strings by id."""
    found = pq.read_table(RUNS / name / "run" / "names.parquet")
    return dict(zip(found.column("id").to_pylist(), found.column("value").to_pylist(), strict=True))


def ranks_of(name: str) -> list[int]:
    """The ranks that have reports."""
    return sorted(int(p.name.partition("=")[2]) for p in (RUNS / name / "run" / "ranks").iterdir())


def truth_of(name: str) -> dict[str, Any]:
    """The planted truth."""
    found: dict[str, Any] = json.loads((RUNS / name / "truth.json").read_text())
    return found


def true_collectives(name: str) -> list[dict[str, Any]]:
    """Every planted collective on every member that has a report."""
    present = ranks_of(name)
    rows = pq.read_table(RUNS / name / "truth_collectives.parquet").to_pylist()
    return [row for row in rows if row["rank"] in present]


def spans_of(rows: Iterable[dict[str, Any]]) -> Spans:
    """Starts and ends."""
    return [(row["start"], row["end"]) for row in rows]


def launches_known(name: str, rank: int) -> bool:
    """Whether the call that launched it is there for all work of a rank."""
    calls = {c["correlation"] for c in table(name, rank, "api")}
    return all(w["correlation"] in calls for kind in ("kernels", "copies") for w in table(name, rank, kind))


def lost_spans(name: str, rank: int) -> Spans:
    """When records may be lacking, by the import."""
    record = json.loads((RUNS / name / "run" / "ranks" / f"rank={rank}" / "rank.json").read_text())
    return [tuple(span) for span in record["rank"]["unrecorded"]]


def device_times(name: str, rank: int, *, judged: bool) -> dict[str, int]:
    """By set of classes how long exactly these run on the device of a rank: between two neighbouring moments nothing
    changes.

    With `judged`, time in which records are lacking is a class of its own.
    """
    kernels = table(name, rank, "kernels")
    classes = {
        "compute": [
            *spans_of(k for k in kernels if k["kind"] not in COMMUNICATES),
            *spans_of(table(name, rank, "graphs")),
        ],
        "communication": spans_of(k for k in kernels if k["kind"] in COMMUNICATES),
        "copy": spans_of(table(name, rank, "copies")),
    }
    work = [span for spans in classes.values() for span in spans]
    first, last = min(s for s, _ in work), max(e for _, e in work)
    if judged:
        classes["lost"] = [(max(s, first), min(e, last)) for s, e in lost_spans(name, rank) if s < last and e > first]
    changes: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for kind, spans in classes.items():
        for start, end in spans:
            changes[start].append((kind, 1))
            changes[end].append((kind, -1))
    running, found = dict.fromkeys(classes, 0), defaultdict(int)
    moments = sorted(changes)
    for moment, following in pairwise(moments):
        for kind, change in changes[moment]:
            running[kind] += change
        found["+".join(kind for kind in classes if running[kind])] += following - moment
    return found


def summed(times: dict[str, int], wanted: str, without: str = "") -> int:
    """How long all of the classes `wanted` run and none of `without`, where no records are lacking."""
    total = 0
    for classes, length in times.items():
        names = set(classes.split("+")) - {""}
        if "lost" not in names and set(wanted.split()) <= names and not set(without.split()) & names:
            total += length
    return total


def breakdown(name: str, rank: int) -> dict[str, int]:
    """The columns of `breakdown` for one rank."""
    times = device_times(name, rank, judged=True)
    return {
        "span_ns": summed(times, ""), "compute_ns": summed(times, "compute"),
        "exposed_communication_ns": summed(times, "communication", "compute"),
        "exposed_copy_ns": summed(times, "copy", "compute communication"),
        "idle_ns": summed(times, "", "compute communication copy"),
    }  # fmt: skip


def overlap(name: str, rank: int) -> dict[str, int]:
    """The columns of `overlap` for one rank, of which time with lacking records is a part."""
    times = device_times(name, rank, judged=False)
    communication, copied = summed(times, "communication"), summed(times, "copy")
    overlapped = summed(times, "communication compute")
    exposed = summed(times, "copy", "compute communication")
    return {
        "compute_ns": summed(times, "compute"), "communication_ns": communication, "overlapped_ns": overlapped,
        "exposed_ns": communication - overlapped, "copy_ns": copied, "copy_overlapped_ns": copied - exposed,
        "copy_exposed_ns": exposed,
    }  # fmt: skip


def kernels(name: str) -> dict[str, dict[str, float]]:
    """The columns of `kernels` by name of the kernel."""
    lengths, ranks = defaultdict(list), defaultdict(set)
    for rank in ranks_of(name):
        for row in table(name, rank, "kernels"):
            kernel = texts(name)[row["name"]]
            lengths[kernel].append(row["end"] - row["start"])
            ranks[kernel].add(rank)
    whole = sum(map(sum, lengths.values()))
    found = {}
    for kernel, values in lengths.items():
        quarters = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
        found[kernel] = {
            "ranks": len(ranks[kernel]), "count": len(values), "total_ns": sum(values),
            "time_percent": 100 * sum(values) / whole, "mean_ns": statistics.fmean(values), "min_ns": min(values),
            "max_ns": max(values), "q1_ns": quarters[0], "median_ns": quarters[1], "q3_ns": quarters[2],
            **({"stddev_ns": statistics.stdev(values)} if len(values) > 1 else {}),
        }  # fmt: skip
    return found


def steps(name: str, rank: int) -> dict[int, dict[str, int]]:
    """By number of the step its length on the host, and from the first to the last work that a call inside of it
    launched."""
    ranges = [(texts(name)[r["name"]], r) for r in table(name, rank, "ranges")]
    found = {}
    for text, row in ranges:
        match = STEP.fullmatch(text)
        if match:
            launched = {c["correlation"] for c in table(name, rank, "api") if row["start"] <= c["start"] < row["end"]}
            work = [
                w
                for kind in ("kernels", "copies", "graphs")
                for w in table(name, rank, kind)
                if w["correlation"] in launched
            ]
            span = max(w["end"] for w in work) - min(w["start"] for w in work) if work else None
            found[int(match[1])] = {"duration_ns": row["end"] - row["start"], "device_span_ns": span}
    return found


def collectives(name: str) -> dict[tuple[str, str, int], dict[str, float]]:
    """By communicator, operation and size what `collectives` tells, in true time."""
    found = defaultdict(list)
    for members in instances(name).values():
        first = members[0]
        found[hex(first["comm_hash"]), first["op"], first["bytes"]].append(members)
    return {key: _meetings(sets) for key, sets in found.items()}


def _meetings(sets: list[list[dict[str, Any]]]) -> dict[str, float]:
    arrivals = [[m["arrival_ns"] for m in members] for members in sets]
    skews = [max(a) - min(a) for a in arrivals]
    transfers = [max(m["end_ns"] for m in members) - max(m["arrival_ns"] for m in members) for members in sets]
    return {
        "instances": len(sets), "skew_median_ns": statistics.median(skews), "skew_max_ns": max(skews),
        "transfer_median_ns": statistics.median(transfers), "wait_ns": sum(max(a) * len(a) - sum(a) for a in arrivals),
    }  # fmt: skip


def true_waits(name: str) -> tuple[dict[int, int], dict[int, int], dict[int, int]]:
    """By rank how long it waited at planted collectives, how long others waited for it as the last, and how many there
    were."""
    waited, caused, count = defaultdict(int), defaultdict(int), defaultdict(int)
    for members in instances(name).values():
        arrivals = {m["rank"]: m["arrival_ns"] for m in members}
        last = max(arrivals, key=lambda rank: arrivals[rank])
        for rank, arrival in arrivals.items():
            waited[rank] += arrivals[last] - arrival
            caused[last] += arrivals[last] - arrival
            count[rank] += 1
    return waited, caused, count


def instances(name: str) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """The members of each planted collective by communicator and number."""
    found: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for row in true_collectives(name):
        if row["recorded"]:
            found[row["group"], row["sequence"]].append(row)
    return {key: members for key, members in found.items() if len(members) > 1}
