"""Small jobs in true time, as tables in memory: ranks that compute, synchronize in collectives, and wait for each
other."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

from alltrace.replay.join import Replay, join
from alltrace.replay.rank_graph import rank_graph
from alltrace.trace.schema import TABLES

GAP_NS = 1_000
COMPUTE_STREAM, TALK_STREAM = 7, 20


@dataclass
class Rank:
    """A rank's tables, as a recipe's map sees them."""

    rank: int
    host: str = "a"
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    host_work: None = None

    @property
    def record(self):
        return SimpleNamespace(rows={})

    def has(self, table):
        return bool(self.rows.get(table))

    def holds(self, table):
        return True

    def batches(self, table, columns=None, rows=0):
        yield self.table(table, columns)

    def table(self, table, columns=None):
        declared = TABLES[table]
        wanted = list(columns or declared.column_names)
        rows = []
        for row in self.rows.get(table, []):
            row = dict(row)
            if isinstance(row.get("name"), str):
                if row["name"] not in self.names:
                    self.names.append(row["name"])
                row["name"] = self.names.index(row["name"])
            rows.append({c: row.get(c) for c in wanted})
        return pa.Table.from_pylist(rows, declared.arrow_schema(wanted))

    def texts(self, ids):
        return pa.array([None if i is None else self.names[i] for i in ids.to_pylist()], pa.string())


def full_queue(kernels: int, took_ns: int, launch_ns: int = 10_000, queue: int = 1024) -> Rank:
    """A rank that launches ahead of its device until the queue is full, and then for each kernel that begins."""
    rank, host, ends = Rank(0, rows={"kernels": [], "api": []}), 0, []
    for n in range(kernels):
        begun = host
        host += launch_ns
        if n > queue:
            host = max(host, ends[n - queue - 1] + GAP_NS)
        start = max(begun + 2 * GAP_NS, ends[-1] + GAP_NS if ends else 0)
        ends.append(start + took_ns)
        common = {"correlation": n, "name": "gemm"}
        rank.rows["kernels"].append(
            common | {"start": start, "end": ends[-1], "stream": COMPUTE_STREAM, "device": 0, "kind": "compute"}
        )
        rank.rows["api"].append({"start": begun, "end": host, "correlation": n, "name": "cudaLaunchKernel"})
    return rank


@dataclass
class Job:
    """What a job is: for each round the groups that meet, and for each rank and round how long it computes before.

    Attributes:
        compute_ns: Array (rounds, ranks).
        groups: For each round the groups; every rank is in one of them at most.
        transfer_ns: For each round the time of a transfer.
        launch_ns: How long the host takes for a launch; the host waits for the device after every `sync` rounds.
        sync: Rounds between waits of the host; 0 for none.
    """

    compute_ns: Any
    groups: list[list[tuple[int, ...]]]
    transfer_ns: list[int]
    launch_ns: int = 500
    sync: int = 0

    def makespan_ns(self):
        """The end of the job, which begins at 0."""
        return self._play()[1]

    def replay(self) -> tuple[Replay, Any]:
        """The job's graph and its members."""
        ranks, _, members = self._play()
        rows = {r.rank: [m["row"] for m in members if m["rank"] == r.rank] for r in ranks}
        graphs = [rank_graph(r, np.array(rows[r.rank], np.int64)) for r in ranks]
        schema = pa.schema(
            [
                *(
                    (c, pa.int64())
                    for c in (
                        "instance",
                        "communicator",
                        "rank",
                        "row",
                        "bytes",
                        "members",
                        "error_ns",
                        "awaited_rank",
                        "last_rank",
                    )
                ),
                ("synchronising", pa.bool_()),
                ("op", pa.dictionary(pa.int32(), pa.string())),
            ]
        )
        table = pa.Table.from_pylist(sorted(members, key=lambda m: (m["instance"], m["rank"])), schema)
        return join(graphs, table), table

    def _play(self):
        count = len(self.compute_ns[0])
        ranks = [Rank(r, rows={t: [] for t in ("kernels", "api", "collectives", "syncs")}) for r in range(count)]
        device, host, correlation = [0] * count, [0] * count, [0] * count
        members: list[dict[str, Any]] = []
        numbers: dict[tuple[int, ...], int] = {}
        instance, end = 0, 0

        def call(r, name, took):
            correlation[r] += 1
            ranks[r].rows["api"].append(
                {"start": host[r], "end": host[r] + took, "correlation": correlation[r], "name": name}
            )
            host[r] += took
            return {"correlation": correlation[r], "device": 0}

        for number, groups in enumerate(self.groups):
            for r in range(count):
                if number:
                    at = host[r]
                    common = call(r, "cudaStreamWaitEvent_v3020", self.launch_ns)
                    told = {"start": at, "end": host[r], "stream": COMPUTE_STREAM, "kind": "stream-wait"}
                    ranks[r].rows["syncs"].append(common | told)
                launch = host[r]
                common = call(r, "cudaLaunchKernel_v7000", self.launch_ns)
                start = max(device[r] + GAP_NS, launch + 2 * GAP_NS)
                device[r] = start + int(self.compute_ns[number][r])
                kernel = {
                    "start": start,
                    "end": device[r],
                    "stream": COMPUTE_STREAM,
                    "kind": "compute",
                    "name": f"gemm {number % 2}",
                }
                ranks[r].rows["kernels"].append(common | kernel)
            for group in groups:
                arrivals = {}
                for r in group:
                    launch = host[r]
                    common = call(r, "cudaLaunchKernelExC_v11060", self.launch_ns)
                    arrivals[r] = max(device[r] + GAP_NS, launch + 2 * GAP_NS), common
                done = max(a for a, _ in arrivals.values()) + self.transfer_ns[number]
                last = min(arrivals, key=lambda r: (-arrivals[r][0], r))
                for r, (arrival, common) in arrivals.items():
                    talk = {"start": arrival, "end": done, "stream": TALK_STREAM, "device": 0}
                    ranks[r].rows["kernels"].append(
                        common | talk | {"kind": "collective", "name": "ncclDevKernel_AllReduce"}
                    )
                    member = {"instance": instance, "communicator": numbers.setdefault(group, len(numbers)), "rank": r}
                    member |= {
                        "row": len(ranks[r].rows["collectives"]),
                        "bytes": 8,
                        "members": len(group),
                        "error_ns": 0,
                    }
                    members.append(
                        member | {"synchronising": True, "op": "AllReduce", "awaited_rank": last, "last_rank": last}
                    )
                    ranks[r].rows["collectives"].append(talk)
                    device[r] = done
                instance += 1
            for r in range(count) if self.sync and (number + 1) % self.sync == 0 else ():
                call(r, "cudaDeviceSynchronize_v3020", max(device[r] + GAP_NS - host[r], GAP_NS))
                end = max(end, host[r])
        return ranks, max(end, *device), members
