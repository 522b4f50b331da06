"""Tables `collectives` of made-up runs with known truth, without any report: quick enough for many seeds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from alltrace.align.evidence import collect
from alltrace.run.clock import ClockMap
from alltrace.trace.names import intern, name_id
from alltrace.trace.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

WORDS = (
    "AllReduce",
    "AllGather",
    "ReduceScatter",
    "Broadcast",
    "AllToAll",
    "Send",
    "Recv",
    "SendRecv",
    "bfloat16",
    "float32",
    "Barrier",
)

LAYOUTS: dict[str, dict[str, Any]] = {
    "data": {"scenario": "tensor-data", "tensor_parallel": 1},
    "tensor": {"scenario": "tensor-data", "tensor_parallel": 2},
    "pipeline": {"scenario": "healthy", "kind": "pipeline"},
    "expert": {"scenario": "healthy", "kind": "expert"},
    "sharded": {"scenario": "healthy", "kind": "sharded"},
}
"""What `write_run` is given for each layout of parallel training."""


@dataclass
class Made:
    """A run: each rank's table, the truth of each of its rows, and what the clocks are ahead."""

    tables: dict[int, Any]
    truth: dict[int, NDArray[np.int64]]
    shifts_ns: dict[int, int]
    names: list[str] = field(default_factory=list)

    def texts(self, ids: Any) -> Any:
        """The strings of name ids."""
        known = {name_id(w): w for w in (*WORDS, *self.names)}
        return pa.array([known.get(i) for i in ids.to_pylist()], pa.string())

    def dropped(self, share: float, seed: int, late: dict[int, float] | None = None) -> Made:
        """The run without a share of its rows, and without those of some ranks before a share of the time."""
        rng = np.random.default_rng(seed)
        tables, truth = {}, {}
        for rank, table in self.tables.items():
            keep = rng.random(table.num_rows) >= share
            times = table.column("start").to_numpy()
            if late and rank in late and len(times):
                keep &= times >= times.min() + late[rank] * np.ptp(times)
            tables[rank], truth[rank] = table.filter(pa.array(keep)), self.truth[rank][keep]
        return Made(tables, truth, self.shifts_ns, self.names)

    def without(self, *columns: str) -> Made:
        """The run without what some columns say."""
        tables = {}
        for rank, table in self.tables.items():
            for column in columns:
                at = table.column_names.index(column)
                table = table.set_column(at, column, pa.nulls(table.num_rows, table.schema.field(at).type))
            tables[rank] = table
        return Made(tables, self.truth, self.shifts_ns, self.names)


def collected(run: Any, truth: Any) -> Made:
    """The operations collected from simulated reports, in the time of each rank's files.

    Calls that share a kernel are one operation of the truth; of a send and a receive in it, each has its own partner.
    """
    sequences: dict[tuple[int, str], list[int]] = {}
    for row in truth.collectives().to_pylist():
        sequences.setdefault((row["rank"], f"{row['comm_hash']:#x}"), []).append(row["sequence"])
    ids: dict[tuple[str, int, int], int] = {}
    tables, truths, shifts, names = {}, {}, {}, set()
    for record in run.ranks:
        rank = run.rank(record.rank)
        shifts[record.rank], rank.clock = rank.clock.shift_ns, ClockMap(0)
        table = collect(rank)
        rows = table.to_pylist()
        truths[record.rank] = np.empty(len(rows), np.int64)
        kernels: dict[str, set[int]] = {}
        for i in sorted(range(len(rows)), key=lambda i: rows[i]["start"]):
            row = rows[i]
            kernels.setdefault(row["communicator"], set()).add(row["start"])
            own = sorted(sequences[record.rank, row["communicator"]])[len(kernels[row["communicator"]]) - 1]
            sender = {"Send": row["group_rank"], "Recv": row["peer"]}.get(row["op"], -1)
            truths[record.rank][i] = ids.setdefault((row["communicator"], own, sender), len(ids))
        for column in TABLES["collectives"].name_columns():
            ids_of, texts = intern(table.column(column))
            names.update(texts.column("value").to_pylist())
            table = table.set_column(table.column_names.index(column), column, ids_of)
        tables[record.rank] = table.cast(TABLES["collectives"].arrow_schema())
    return Made(tables, truths, shifts, sorted(n for n in names if n))


def simulated(
    seed: int,
    *,
    ranks: int = 8,
    steps: int = 40,
    tensor: int = 1,
    per_step: int = 4,
    step_ns: float = 30e6,
    step_jitter: float = 0.002,
    offset_ns: float = 0.5e9,
    drift: float = 20e-6,
    jitter_ns: float = 2_000.0,
    outliers: float = 0.0,
    op: str = "AllReduce",
    equal_sizes: bool = True,
    ranks_per_clock: int = 1,
) -> Made:
    """A data parallel run, with tensor parallel groups of neighbours if `tensor` is above 1.

    Each step has `per_step` operations of each kind of group; each rank computes between them, the last one decides
    when an operation ends; a recorded end is late by up to `jitter_ns`, and of a share `outliers` by up to 10 ms.
    """
    rng = np.random.default_rng(seed)
    groups = [list(range(first, first + tensor)) for first in range(0, ranks, tensor)] if tensor > 1 else []
    kinds = [groups] if groups else []
    data = [list(range(place, ranks, tensor)) for place in range(tensor)]
    kinds.append(data)
    names = [f"group {k}.{g}" for k, kind in enumerate(kinds) for g in range(len(kind))]
    now = rng.uniform(0, 3e6, ranks)
    rows: list[list[tuple[float, float, int, int, int, int]]] = [[] for _ in range(ranks)]
    instance = 0
    for _ in range(steps):
        slower = 1.0 + step_jitter * rng.standard_normal()
        for place in range(per_step):
            number = 0
            for k, kind in enumerate(kinds):
                for members in kind:
                    work = step_ns * slower / (per_step * len(kinds))
                    arrive = now[members] + work * (1.0 + 0.02 * rng.standard_normal(len(members)))
                    end = arrive.max() + 50_000.0 * (k + 1)
                    size = 1 << 20 if equal_sizes else (1 << 20) + 4096 * place
                    for rank, start in zip(members, arrive, strict=True):
                        late = rng.uniform(0, jitter_ns)
                        late += rng.uniform(1e5, 1e7) if rng.random() < outliers else 0.0
                        rows[rank].append((start, end + late, instance, number, size, 13 + k))
                        now[rank] = end + late * (late <= jitter_ns)
                    instance += 1
                    number += 1
                number = sum(len(other) for other in kinds[: k + 1])
    clocks = ranks // ranks_per_clock
    offsets, rates = rng.uniform(-offset_ns, offset_ns, clocks), rng.uniform(-drift, drift, clocks)
    offsets[0] = rates[0] = 0.0
    tables, truth, shifts = {}, {}, {}
    for rank in range(ranks):
        clock = rank // ranks_per_clock
        session = int(rng.uniform(-5e9, 5e9))  # the report's own zero
        starts, ends = (
            np.array([r[i] for r in rows[rank]]) * (1 + rates[clock]) + offsets[clock] - session for i in (0, 1)
        )
        facts = [[r[i] for r in rows[rank]] for i in range(2, 6)]
        order = np.lexsort((starts, facts[3]))
        tables[rank] = table_of(
            start=starts[order],
            end=ends[order],
            communicator=[names[facts[1][i]] for i in order],
            op=[op] * len(order),
            bytes=np.array(facts[2])[order],
            stream=np.array(facts[3])[order],
            datatype=["bfloat16"] * len(order),
            group_size=[
                len(next(m for kind in kinds for m in kind if names[facts[1][i]] and rank in m)) for i in order
            ],
        )
        truth[rank] = np.array(facts[0])[order]
        shifts[rank] = session + int(rng.normal(0, 2e6))
    return Made(tables, truth, shifts, names)


def table_of(**columns: Any) -> Any:
    """A canonical table of the given columns; names are text, others null."""
    declared = TABLES["collectives"]
    schema = declared.arrow_schema()
    count = len(next(iter(columns.values())))
    arrays = []
    for column in schema:
        values = columns.get(column.name)
        if column.name == "evidence" and values is None:
            values = ["nvtx+kernel"] * count
        if values is None:
            arrays.append(pa.nulls(count, column.type))
        elif column.name in declared.name_columns():
            known = {w: name_id(w) for w in set(values) if w is not None}
            arrays.append(pa.array([known.get(w) for w in values], pa.int64()))
        elif column.name == "evidence":
            arrays.append(pa.array(list(values), pa.string()).dictionary_encode())
        else:
            arrays.append(pa.array([None if v is None else int(v) for v in values], column.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def quality(matching: Any, made: Made) -> tuple[float, float]:
    """Precision and recall of the pairs of operations that are one instance."""
    table = matching.members
    ranks, rows = table.column("rank").to_numpy(), table.column("row").to_numpy()
    instances = table.column("instance").to_numpy()
    truths = np.array([made.truth[r][w] for r, w in zip(ranks.tolist(), rows.tolist(), strict=True)], np.int64)
    every = np.concatenate([made.truth[r] for r in made.truth]) if made.truth else np.zeros(0, np.int64)
    found, right, possible = _pairs(instances), _pairs(instances * (1 << 32) + truths), _pairs(every)
    return (right / found if found else 1.0), (right / possible if possible else 1.0)


def _pairs(labels: Sequence[int] | NDArray[np.int64]) -> int:
    _, counts = np.unique(np.asarray(labels), return_counts=True)
    return int((counts * (counts - 1) // 2).sum())


def pipeline(seed: int, *, stages: int = 4, steps: int = 20, micro: int = 4, offset_ns: float = 0.3e9) -> Made:
    """A pipeline: activations go from stage to stage, forwards, then gradients back; a message's two ends are near each
    other."""
    rng = np.random.default_rng(seed)
    rows: list[list[tuple[float, float, str, int, int]]] = [[] for _ in range(stages)]
    now = np.zeros(stages)
    message = 0
    for _ in range(steps):
        for way in (1, -1):
            for _ in range(micro):
                order = range(stages - 1) if way > 0 else range(stages - 1, 0, -1)
                for source in order:
                    target = source + way
                    now[source] += 2e6 * (1 + 0.05 * rng.standard_normal())
                    begin = max(now[source], now[target])
                    ends = begin + 300_000 + rng.uniform(0, 3_000, 2)
                    rows[source].append((now[source], ends[0], "Send", target, message))
                    rows[target].append((now[target], ends[1], "Recv", source, message))
                    now[source], now[target] = ends[0] + 1_000, ends[1] + 1_000
                    message += 1
        now += 1e6
    tables, truth, shifts = {}, {}, {}
    for rank, mine in enumerate(rows):
        offset = rng.uniform(-offset_ns, offset_ns) if rank else 0.0
        columns = list(zip(*sorted(mine), strict=True))
        tables[rank] = table_of(
            start=np.array(columns[0]) + offset,
            end=np.array(columns[1]) + offset,
            communicator=["pipe"] * len(mine),
            op=list(columns[2]),
            peer=list(columns[3]),
            group_rank=[rank] * len(mine),
            group_size=[stages] * len(mine),
            bytes=[1 << 20] * len(mine),
            stream=[21] * len(mine),
        )
        truth[rank], shifts[rank] = np.array(columns[4]), 0
    return Made(tables, truth, shifts, ["pipe"])
