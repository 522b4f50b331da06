"""Reads the traces that ByteDance published with its straggler analysis (OSDI'25), as graphs of the replay.

A row of such a trace is one operation of one worker (data-parallel rank and pipeline stage) in one training step; every
step of every data-parallel rank has the same operations. What waits for what follows from Megatron's schedule:

* computations of a worker run one after the other; so do transfers of one kind and direction, and the data-parallel
  collectives;
* a forward (backward) receive precedes its computation and follows the computation before of its direction; a send
  follows its computation; the first backward transfers follow the forward computation before the last of the warm-up;
* the last gather of parameters precedes the first forward computation of its model chunk; with overlap the last scatter
  of gradients follows the last backward computation of its chunk;
* after the last computation: garbage collection, layer-norm gradients, embedding gradients (first and last stage
  synchronize), gradient scatters (without overlap), separate gradients (with overlap), clipping (all workers
  synchronize), optimizer.

Operations that synchronize end together: at their last start plus the transfer time.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from alltrace.replay.graph import Graph, make_graph, times

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

_SLACK_S = 5e-5
_LATE_S = 0.01
_TRANSFERS = ("forward-send", "forward-recv", "backward-send", "backward-recv")
_GATHER, _SCATTER, _SEPARATE = "params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce"
_LAYERNORM, _EMBEDDING, _CLIP = "layernorm-grads-all-reduce", "embedding-grads-all-reduce", "optimizer-clip-main-grad"
_OVER_RANKS = (_GATHER, _SCATTER, _SEPARATE, _CLIP)
_COMMUNICATION = (*_TRANSFERS, _GATHER, _SEPARATE, _SCATTER, _LAYERNORM, _EMBEDDING, _CLIP)
_PEERS = {"forward-send": "forward-recv", "backward-send": "backward-recv"}

Name = tuple[str, int, int]
"""An operation of the schedule: its type, its number among those of its type and stage, and the stage."""


@dataclass
class Schedule:
    """The operations of one step of one data-parallel rank.

    Attributes:
        after: For each operation, the operations that it waits for.
        meetings: The operations that synchronize, each list once.
    """

    after: dict[Name, list[Name]] = field(default_factory=lambda: defaultdict(list))
    meetings: list[list[Name]] = field(default_factory=list)

    def chain(self, names: list[Name], before: list[Name] | None = None) -> None:
        """Each waits for the one before."""
        last = before or []
        for name in names:
            self.after[name].extend(last)
            last = [name]


@dataclass(frozen=True)
class Trace:
    """A trace as a graph; n operations, each with a node for its start (its row number) and one for its end (n + row).

    Attributes:
        optype: Type of each operation.
        dp_rank: Data-parallel rank.
        stage: Pipeline stage.
        step: Training step.
        work_ns: Duration; for an operation that synchronizes, its transfer time.
        graph: The graph.
        weight_of: For each arc of the graph the operation with the work that is its weight, or -1 for a weight of 0.
        recorded_s: For each step its recorded time.
    """

    optype: NDArray[Any]
    dp_rank: Ints
    stage: Ints
    step: Ints
    work_ns: Floats
    graph: Graph
    weight_of: Ints
    recorded_s: dict[int, float]

    def step_times_s(self, work_ns: Floats) -> dict[int, float]:
        """The time of each step if operations took `work_ns`; without any delay that no dependency explains."""
        weights = np.concatenate((np.rint(work_ns), [0.0])).astype(np.int64)[self.weight_of]
        when, _ = times(self.graph, weights)
        ends = when[len(self.step) :]
        steps, at = np.unique(self.step, return_inverse=True)
        last = np.zeros(len(steps), np.int64)
        np.maximum.at(last, at, ends)
        return dict(zip(steps.tolist(), (last / 1e9).tolist(), strict=True))

    def ideal_ns(self) -> Floats:
        """Every operation at the mean (computation) or median (communication) of all of its type."""
        ideal: Floats = self.work_ns.copy()
        for kind in np.unique(self.optype):
            own = self.optype == kind
            ideal[own] = np.median(self.work_ns[own]) if kind in _COMMUNICATION else self.work_ns[own].mean()
        return ideal


def load(path: Path, *, parts: int = 1) -> Trace:
    """A trace from its Parquet file.

    Args:
        path: The file.
        parts: How many ways a sequence is split within a data-parallel rank (`dsp_size` of the job).
    """
    table = pq.read_table(path)
    columns = {c: table.column(c).to_numpy() for c in ("dp_rank", "stage", "step", "seq_id", "mc", "gmc")}
    columns = {c: v.astype(np.int64) for c, v in columns.items()}
    optype = np.array(pc.cast(table.column("optype"), "string").to_pylist())
    start = table.column("start_ts").to_numpy().astype(np.float64)
    end = start + table.column("duration").to_numpy().astype(np.float64)
    schedule = _schedule(columns, optype, start, end, parts)
    rows = _rows(columns, optype)
    source, target, weight_of, work = _arcs(schedule, rows, start, end)
    graph = make_graph(2 * len(start), source, target)
    recorded = {
        int(s): float(end[columns["step"] == s].max() - start[columns["step"] == s].min())
        for s in np.unique(columns["step"])
    }
    return Trace(
        optype,
        columns["dp_rank"],
        columns["stage"],
        columns["step"],
        work * 1e9,
        graph,
        weight_of[graph.arcs],
        recorded,
    )


def _rows(columns: dict[str, Ints], optype: NDArray[Any]) -> dict[Name, Ints]:
    """For each operation of the schedule its rows, of shape (steps, data-parallel ranks)."""
    width = int(columns["dp_rank"].max()) + 1
    rows = {}
    for kind in np.unique(optype):
        for stage in np.unique(columns["stage"]):
            own = np.flatnonzero((optype == kind) & (columns["stage"] == stage))
            if not len(own):
                continue
            order = np.lexsort((columns["dp_rank"][own], columns["step"][own], columns["seq_id"][own]))
            own = own[order]
            numbers, first = np.unique(columns["seq_id"][own], return_index=True)
            for number, found in zip(numbers.tolist(), np.split(own, first[1:]), strict=True):
                rows[str(kind), number, int(stage)] = found.reshape(-1, width)
    return rows


def _arcs(schedule: Schedule, rows: dict[Name, Ints], start: Floats, end: Floats) -> tuple[Ints, Ints, Ints, Floats]:
    count = len(start)
    sources: list[Ints] = []
    targets: list[Ints] = []
    weights: list[Ints] = []
    work = end - start

    def add(source: Ints, target: Ints, weight: Ints) -> None:
        for into, values in ((sources, source), (targets, target), (weights, weight)):
            into.append(np.broadcast_to(values, target.shape).ravel())

    none = np.array(-1)
    for name, before in schedule.after.items():
        for other in before:
            add(rows[other] + count, rows[name], none)
    met = {name for names in schedule.meetings for name in names}
    for name, own in rows.items():
        if name not in met:
            add(own, own + count, own)
    for names in schedule.meetings:
        whole = np.stack([rows[n] for n in names])  # (members, steps, data-parallel ranks)
        if names[0][0] in _OVER_RANKS:
            whole = whole.transpose(0, 2, 1).reshape(-1, whole.shape[1])
        last = start[whole].max(axis=0)
        transfer = end[whole] - last
        work[whole] = np.where(transfer <= -_LATE_S, 0.0, transfer)
        for one in whole:
            for other in whole:
                add(one, other + count, other)
    return np.concatenate(sources), np.concatenate(targets), np.concatenate(weights), work


def _schedule(columns: dict[str, Ints], optype: NDArray[Any], start: Floats, end: Floats, parts: int) -> Schedule:
    """What waits for what, read off the first step of data-parallel rank 0."""
    schedule = Schedule()
    first = (columns["dp_rank"] == 0) & (columns["step"] == columns["step"].min())
    stages = int(columns["stage"].max()) + 1
    chunks = int(columns["mc"][first].max()) + 1
    paired: dict[Name, list[Name]] = {}
    ranks = (int(columns["dp_rank"].max()) + 1) * parts
    overlap = bool((optype == _SEPARATE).any())
    for stage in range(stages):
        on = np.flatnonzero(first & (columns["stage"] == stage))
        on = on[np.lexsort((optype[on], columns["seq_id"][on], start[on]))]
        worker = _Worker(schedule, stage, on, columns, optype, start, end)
        worker.transfers(stages, chunks, paired)
        if ranks > 1:
            worker.over_ranks(overlap=overlap)
        worker.finish(stages, ranks > 1, overlap=overlap)
    schedule.meetings += list(paired.values())
    names = {(str(optype[i]), int(columns["seq_id"][i]), int(columns["stage"][i])) for i in np.flatnonzero(first)}
    if ranks > 1:
        schedule.meetings += [[n] for n in sorted(names) if n[0] in (_GATHER, _SCATTER, _SEPARATE)]
    schedule.meetings.append(sorted(n for n in names if n[0] == _EMBEDDING))
    schedule.meetings.append(sorted(n for n in names if n[0] == _CLIP))
    schedule.meetings = [m for m in schedule.meetings if m]
    return schedule


class _Worker:
    """One stage of the first step."""

    def __init__(
        self,
        schedule: Schedule,
        stage: int,
        rows: Ints,
        columns: dict[str, Ints],
        optype: NDArray[Any],
        start: Floats,
        end: Floats,
    ) -> None:
        self._schedule, self._stage = schedule, stage
        self._kind = optype[rows]
        self._number, self._chunk, self._place = (columns[c][rows] for c in ("seq_id", "mc", "gmc"))
        self._start, self._end = start[rows], end[rows]

    def _name(self, at: int) -> Name:
        return (str(self._kind[at]), int(self._number[at]), self._stage)

    def _of(self, *kinds: str) -> Ints:
        return np.flatnonzero(np.isin(self._kind, kinds))

    def transfers(self, stages: int, chunks: int, paired: dict[Name, list[Name]]) -> None:
        """The computations, and the transfers between stages."""
        after = self._schedule.after
        computing = self._of("forward-compute", "backward-compute")
        self._schedule.chain([self._name(i) for i in computing])
        for kind in _TRANSFERS:
            own = self._of(kind)
            self._schedule.chain([self._name(i) for i in own])
            forward, sends = kind.startswith("forward"), kind.endswith("send")
            compute = self._of(f"{kind.split('-')[0]}-compute")
            if not len(own) or not len(compute):
                continue
            if sends:
                real = own[self._end[own] >= self._end[compute].min() - _SLACK_S]
            else:
                real = own[self._start[own] <= self._start[compute].max() + _SLACK_S]
            number = 1 if not sends and len(real) + 1 == len(compute) else 0
            pair = 0
            by_number = {int(self._number[i]): i for i in compute}
            carried = set()
            for i in real:
                at = by_number[number]
                name, matched = self._name(i), self._name(at)
                if sends:
                    after[name].append(matched)
                else:
                    after[matched].append(name)
                    if number:
                        after[name].append((matched[0], number - 1, self._stage))
                number += 1
                step = 1 if forward == sends else -1
                if 0 <= int(self._place[at]) + step < chunks * stages:
                    sender = self._stage if sends else (self._stage + step) % stages
                    direction = "forward" if forward else "backward"
                    paired.setdefault((direction, pair, sender), []).append(name)
                    carried.add(i)
                    pair += 1
            for i in own:
                if i not in carried:  # a transfer that was recorded, but has no partner
                    paired[f"{kind} alone", int(self._number[i]), self._stage] = [self._name(i)]
        backward = [n for n, i in enumerate(computing) if self._kind[i] == "backward-compute"]
        if backward and backward[0] >= 2:
            for kind in ("backward-recv", "backward-send"):
                if len(self._of(kind)):
                    after[kind, 0, self._stage].append(self._name(computing[backward[0] - 2]))

    def over_ranks(self, *, overlap: bool) -> None:
        """The collectives of data parallelism."""
        after = self._schedule.after
        self._schedule.chain([self._name(i) for i in self._of(_GATHER, _SCATTER)])
        for kind, wanted in ((_GATHER, True), (_SCATTER, overlap)):
            seen = set()
            own = self._of(kind)
            own = own[np.argsort(self._number[own])]
            for i in (own[::-1] if kind == _GATHER else own) if wanted else ():
                chunk = int(self._chunk[i])
                if chunk in seen:
                    continue
                seen.add(chunk)
                compute = self._of("forward-compute" if kind == _GATHER else "backward-compute")
                compute = compute[self._chunk[compute] == chunk]
                if kind == _GATHER:
                    after[self._name(compute[self._start[compute].argmin()])].append(self._name(i))
                else:
                    after[self._name(i)].append(self._name(compute[self._end[compute].argmax()]))

    def finish(self, stages: int, ranks: bool, *, overlap: bool) -> None:
        """What comes after the last computation."""
        stage = self._stage
        computing = self._of("forward-compute", "backward-compute")
        last = self._name(computing[self._end[computing].argmax()])
        scatters = [(_SCATTER, n, stage) for n in sorted(self._number[self._of(_SCATTER)].tolist())]
        ends = [(_EMBEDDING, 0, stage)] if stage in (0, stages - 1) else []
        tail: list[Name] = [(_CLIP, 0, stage), ("optimizer", 0, stage)]
        self._schedule.after["gc", 0, stage].append(last)
        before: list[Name] = [("gc", 0, stage)]
        if not ranks:
            middle: list[Name] = []
        elif overlap:
            before, middle = [scatters[-1], *before], [(_SEPARATE, 0, stage)]
        else:
            middle = scatters
        self._schedule.chain([(_LAYERNORM, 0, stage), *ends, *middle, *tail], before)
