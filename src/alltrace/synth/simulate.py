"""The engine: runs every rank's instructions in true time and synchronizes collectives.

Each rank is a coroutine that runs until it needs the end of a collective with missing members. Kernels of one block are
placed with a running maximum instead of a loop: kernel i ends at `E_i = S_i + max over j <= i of (L_j - S_(j-1))`,
where `L` are the launches and `S` the sums of durations, which unrolls `E_i = max(L_i, E_(i-1)) + d_i`; the gap that a
device leaves between two kernels counts with the duration.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from alltrace.synth import program as p
from alltrace.synth.faults import Fault
from alltrace.synth.kernels import nccl_kernel_index
from alltrace.synth.layouts import LAYOUTS
from alltrace.synth.program import Collective, Group
from alltrace.synth.scatter import Delays
from alltrace.synth.scenario import Environment, Layout, Links, Scenario
from alltrace.synth.timeline import ALL_STREAMS, NO_VALUE, Timeline

# What NCCL's calls look like and what they cost: ranges with payloads, and the transfer time of a ring.
_STEP_NS = 120
_MARGIN_NS = 100


def transfer_ns(group: Group, op: Collective | None, layout: Layout, links: Links) -> int:
    """The time from the last arrival to the end, of a collective or, without `op`, of a barrier of host threads."""
    # The volume that crosses the slowest link follows the bus bandwidth factors of nccl-tests (PERFORMANCE.md).
    # `group`: the communicator. `layout`: where the ranks are. `links`: how fast the network is.
    if op is None:
        return links.latency_ns
    members = len(group.ranks)
    across = len({layout.host_of(rank) for rank in group.ranks}) > 1
    bandwidth = links.between_hosts_gb_per_s if across else links.within_host_gb_per_s
    if op.op == "AllReduce":
        volume = 2.0 * ((members - 1) / members) * op.size_bytes
    elif op.op in {"AllGather", "ReduceScatter", "AlltoAll"}:
        volume = (members - 1) * float(op.size_bytes)
    else:
        volume = float(op.size_bytes)
    return links.latency_ns + int(volume / bandwidth)


def host_ranges(
    op: Collective, group: Group, rank: int, environment: Environment, begin: int
) -> tuple[list[tuple[str, int, int, dict[str, object]]], int]:
    """The ranges of the calls before the one that launches, and the time after them."""
    # Sends and receives that belong together are between `ncclGroupStart` and `ncclGroupEnd`, and the latter launches
    # one kernel for all of them. `group`: its communicator. `environment`: determines how all-to-alls are called.
    # `begin`: when the thread begins. Returns name, start, end and payload of each range, and when the launching range
    # begins.
    if not is_grouped(op, environment):
        return [], begin
    ranges: list[tuple[str, int, int, dict[str, object]]] = []
    at = begin
    for name, payload in [("ncclGroupStart", {}), *_messages(op, group, rank)]:
        ranges.append((name, at, at + _STEP_NS, payload))
        at += _STEP_NS + _MARGIN_NS
    return ranges, at


def launching_range(op: Collective, group: Group, rank: int, environment: Environment) -> tuple[str, dict[str, object]]:
    if is_grouped(op, environment):
        return "ncclGroupEnd", {}
    if op.op == "SendRecv":
        return next(_messages(op, group, rank))
    payload = _payload(group, op.size_bytes)
    if op.op in {"AllReduce", "ReduceScatter"}:
        payload["Reduction operation"] = "Sum"
    return f"nccl{op.op}", payload


def is_grouped(op: Collective, environment: Environment) -> bool:
    return (op.op == "AlltoAll" and environment.grouped_all_to_all) or (
        op.op == "SendRecv" and op.sends and op.receives
    )


def _payload(group: Group, size_bytes: int) -> dict[str, object]:
    return {"NCCL communicator ID": group.comm_hash, "Message size [bytes]": size_bytes}


def _messages(op: Collective, group: Group, rank: int) -> Iterator[tuple[str, dict[str, object]]]:
    everyone = op.op == "AlltoAll"
    for place, peer in enumerate(group.ranks):
        if peer == rank and not everyone:
            continue
        for name, happens in (("ncclSend", op.sends or everyone), ("ncclRecv", op.receives or everyone)):
            if happens:
                yield name, {**_payload(group, op.size_bytes), "Peer rank": place}


_RANGE_MARGIN_NS = 400
_START_LATENCY_NS = 1_000
_KERNEL_GAP_NS = 700
_GRAPH_GAP_NS = 300
_WAKE_NS = 15_000
_COMM_INIT_NS = 2_000_000
_LARGE_BYTES = 64 << 20
_EXTRA_CALLS = tuple(
    "cudaStreamIsCapturing_v10000 cudaEventQuery_v3020 cudaGetLastError_v3020 cudaEventRecord_v3020".split()
)
_STREAM_WAIT, _STREAM_SYNC, _CONTEXT_SYNC = 2, 3, 4


@dataclass
class Instance:
    group: int  # index of the communicator
    sequence: int  # its number among the communicator's collectives, from 0
    op: str  # name of the operation
    size_bytes: int  # message size
    step: int = 0  # the step in which its first member came
    correlations: dict[int, int] = field(default_factory=dict)  # correlation number of the kernel on each rank
    # start of the launching API call of each rank that has come so far, true nanoseconds
    launches: dict[int, int] = field(default_factory=dict)
    arrivals: dict[int, int] = field(default_factory=dict)  # arrival of each rank that has come so far
    ends: dict[int, int] = field(default_factory=dict)  # end on each member, empty until all have arrived
    # of an exchange between two, whether each rank sends and whether it receives
    directions: dict[int, tuple[bool, bool]] = field(default_factory=dict)


@dataclass
class SimulatedRun:
    scenario: Scenario  # what was simulated
    groups: tuple[p.Group, ...]  # the communicators; collectives name them by index
    timelines: list[Timeline]  # events by rank
    steps: NDArray[np.int64]  # true start and end of each step by rank, int64, shape (ranks, steps, 2)
    collectives: list[Instance]  # NCCL collectives by communicator and sequence
    faults: tuple[Fault, ...] = ()  # the scenario's faults with all their ranks named


def simulate(scenario: Scenario) -> SimulatedRun:
    """The events of every rank of a scenario, in true time."""
    # `scenario`: the run; the same values give the same events. Returns all events; memory grows with the number of
    # events, about 50 bytes each. Raises `UsageError`: the scenario's values do not fit together.
    scenario.check()
    meeting = _Meeting(scenario, LAYOUTS[scenario.layout.kind](scenario))
    ranks = [_Rank(rank, meeting) for rank in range(scenario.layout.ranks)]
    running = {rank.rank: rank.run() for rank in ranks}
    while running:
        before = meeting.arrivals, len(running)
        for number in list(running):
            if next(running[number], _FINISHED) is _FINISHED:
                del running[number]
        if before == (meeting.arrivals, len(running)):
            raise RuntimeError(f"ranks {sorted(running)} wait for collectives that never complete")
    for rank in ranks:
        rank.place_nccl_kernels()
    nccl = [instance for key, instance in sorted(meeting.instances.items()) if key[0] == "nccl"]
    steps = np.array([rank.steps for rank in ranks], np.int64)
    return SimulatedRun(
        scenario, meeting.program.groups, [rank.timeline for rank in ranks], steps, nccl, meeting.faults
    )


_FINISHED = object()


class _Meeting:
    """Where ranks synchronize: collectives that wait for members, and their cost."""

    def __init__(self, scenario: Scenario, program: Any) -> None:
        self.scenario = scenario
        self.program = program
        self.faults = tuple(fault.placed(scenario.layout, program.groups) for fault in scenario.faults)
        self.instances: dict[tuple[str, int, int], Instance] = {}
        self.arrivals = 0
        self._delays = Delays(scenario.seed, scenario.links.scatter) if scenario.links.scatter else None

    def arrive(
        self,
        kind: str,
        rank: int,
        op: p.Collective | None,
        group: int,
        sequence: int,
        step: int,
        times: tuple[int, int],
    ) -> Instance:
        """`rank` arrives at `times` (launch, arrival); the last to arrive sets everyone's end."""
        key = (kind, group, sequence)
        instance = self.instances.get(key)
        if instance is None:
            name, size = (op.op, op.size_bytes) if op else ("Barrier", 0)
            instance = self.instances[key] = Instance(group, sequence, name, size, step)
        instance.launches[rank], instance.arrivals[rank] = times
        if op is not None and op.op == "SendRecv":
            instance.directions[rank] = op.sends, op.receives
        self.arrivals += 1
        communicator = self.program.groups[group]
        members = communicator.ranks
        if len(instance.arrivals) == len(members):
            links = self.scenario.links
            transfer = transfer_ns(communicator, op, self.scenario.layout, links)
            if op is not None:
                for fault in self.faults:
                    transfer = fault.transfer_ns(communicator, op, instance.step, transfer)
            end = max(instance.arrivals.values()) + transfer
            if self._delays is not None and op is not None:
                across = len({self.scenario.layout.host_of(member) for member in members}) > 1
                late = self._delays.of(group, sequence, op.op, transfer, len(members), across=across)
            else:
                rng = np.random.default_rng((self.scenario.seed, 5, group, sequence))
                late = rng.integers(0, links.end_jitter_ns + 1, size=len(members)).tolist()
            instance.ends = {member: end + later for member, later in zip(members, late, strict=True)}
        return instance


class _Rank:
    def __init__(self, rank: int, meeting: _Meeting) -> None:
        scenario = meeting.scenario
        self.rank = rank
        self.timeline = Timeline()
        self.steps: list[tuple[int, int]] = []
        self._meeting = meeting
        self._scenario = scenario
        self._rng = np.random.default_rng((scenario.seed, 4, rank))
        begin = int(self._rng.integers(0, 3_000_000)) if rank else 0
        self._threads = [begin, begin]
        self._open: list[list[tuple[int, int]]] = [[], []]
        self._ready: dict[int, int] = {}
        self._pending: dict[int, Instance] = {}
        self._nccl: list[tuple[int, int, int, Instance]] = []
        self._sequences: dict[tuple[str, int], int] = {}
        self._step = 0
        self._correlation = 1_000 + int(self._rng.integers(0, 1_000))

    def run(self) -> Generator[None, None, None]:
        """Runs all steps; yields while it waits for other ranks."""
        scenario, meeting = self._scenario, self._meeting
        rng = np.random.default_rng((scenario.seed, 1, self.rank))
        own = [np.random.default_rng((scenario.seed, 3, number, self.rank)) for number in range(len(scenario.faults))]
        self._init_communicators()
        for step in range(scenario.steps):
            self._step = step
            ops = meeting.program.step(self.rank, step, rng)
            for fault, fault_rng in zip(meeting.faults, own, strict=True):
                if fault.hits(self.rank, step):
                    ops = fault.edit(self.rank, step, ops, fault_rng)
            begin = self._threads[p.MAIN_THREAD]
            for op in ops:
                waiting = self._HANDLERS[type(op)](self, op)
                if waiting is not None:
                    yield from waiting
            self.steps.append((begin, self._threads[p.MAIN_THREAD]))

    def place_nccl_kernels(self) -> None:
        """Records the kernels of collectives; their ends are known only when all ranks have run."""
        for start, stream, correlation, instance in self._nccl:
            end = instance.ends[self.rank]
            self.timeline.kernels.add(start, end, stream, correlation, self._nccl_kernel(instance))

    def _nccl_kernel(self, instance: Instance) -> int:
        if not self._scenario.environment.own_kernels:
            return nccl_kernel_index(instance.op)
        group = self._meeting.program.groups[instance.group]
        differs = group.comm_hash % 3 == 0 and self.rank % 2 == 1
        return nccl_kernel_index(instance.op, other=(instance.size_bytes > _LARGE_BYTES) != differs)

    def _init_communicators(self) -> None:
        for group in self._meeting.program.groups:
            if self.rank in group.ranks and len(group.ranks) > 1 and self._scenario.work.nvtx:
                start = self._threads[0] + _MARGIN_NS
                payload = {
                    "NCCL communicator ID": group.comm_hash,
                    "No. of ranks": len(group.ranks),
                    "Rank": group.ranks.index(self.rank),
                    "CUDA device": self._scenario.layout.local_rank(self.rank),
                }
                self._nccl_range("ncclCommInitRank", start, start + _COMM_INIT_NS, 0, payload)
                self._threads[0] = start + _COMM_INIT_NS + _MARGIN_NS

    # Host side

    def _call(self, name: str, thread: int, until: int = 0, duration_ns: int | None = None) -> tuple[int, int, int]:
        """One API call: its start, end and correlation; it lasts until `until` at least."""
        work = self._scenario.work
        start = self._threads[thread] + work.host_gap_ns
        drawn = int(self._host_durations(duration_ns or work.host_call_ns, 1)[0])
        end = max(start + drawn, until)
        self._threads[thread] = end
        self._correlation += 1
        self.timeline.api.add(start, end, thread, self._correlation, self.timeline.names.number(name))
        return start, end, self._correlation

    def _host_durations(self, mean_ns: int, count: int) -> NDArray[np.int64]:
        """How long calls last that do not wait."""
        jitter = self._scenario.work.host_jitter
        if not jitter:
            return (mean_ns * (0.8 + 0.4 * self._rng.random(count))).astype(np.int64)
        # with a mean of 1; no call takes less than it takes to record one
        drawn = self._rng.lognormal(-jitter * jitter / 2, jitter, count)
        return np.maximum(mean_ns * drawn, 300.0).astype(np.int64)

    def _nccl_range(self, name: str, start: int, end: int, thread: int, payload: Mapping[str, object]) -> None:
        line = self.timeline
        text = line.payloads.number(json.dumps(payload)) if payload else NO_VALUE
        line.ranges.add(start, end, thread, line.names.number(name), 1, text)

    def _push(self, op: p.Push) -> None:
        start = self._threads[op.thread] + _MARGIN_NS
        self._open[op.thread].append((start, self.timeline.names.number(op.text)))
        self._threads[op.thread] = start + _MARGIN_NS

    def _pop(self, op: p.Pop) -> None:
        start, name = self._open[op.thread].pop()
        end = self._threads[op.thread] + _MARGIN_NS
        self.timeline.ranges.add(start, end, op.thread, name, 0, NO_VALUE)
        self._threads[op.thread] = end + _MARGIN_NS

    def _host_work(self, op: p.HostWork) -> None:
        start = self._threads[op.thread]
        self._threads[op.thread] = start + op.duration_ns
        if op.call:
            self.timeline.osrt.add(start, start + op.duration_ns, op.thread, self.timeline.names.number(op.call))

    def _handover(self, op: p.Handover) -> None:
        start = self._threads[op.to]
        self._threads[op.to] = end = max(start, self._threads[op.thread]) + _WAKE_NS
        if op.call:
            self.timeline.osrt.add(start, end, op.to, self.timeline.names.number(op.call))

    def _host_collective(self, op: p.HostCollective) -> Generator[None, None, None]:
        start = self._threads[op.thread]
        instance = self._arrive("mpi", None, op.group, (start, start))
        while not instance.ends:
            yield
        end = instance.ends[self.rank]
        self._threads[op.thread] = end
        self.timeline.mpi.add(start, end, op.thread, self.timeline.names.number(op.call))

    # Device side

    def _settle(self, stream: int) -> Generator[None, None, None]:
        """Waits until it is known when `stream` is through with its collectives."""
        instance = self._pending.get(stream)
        if instance is None:
            return
        while not instance.ends:
            yield
        self._ready[stream] = max(self._ready.get(stream, 0), instance.ends[self.rank])
        del self._pending[stream]

    def _compute(self, op: p.Compute) -> Generator[None, None, None]:
        if len(op.kernels) == 0:
            return
        yield from self._settle(op.stream)
        if op.graph is not None:
            self._launch_graph(op, op.graph)
            return
        work, line = self._scenario.work, self.timeline
        gap_ns = work.host_gap_ns if op.gap_ns is None else op.gap_ns
        launches, calls = len(op.kernels), 1 + work.extra_calls
        durations = self._host_durations(work.host_call_ns, launches * calls)
        ends = self._threads[op.thread] + np.cumsum(durations + gap_ns)
        starts = ends - durations
        correlations = self._correlation + 1 + np.arange(launches * calls)
        menu = [*(_EXTRA_CALLS[i % len(_EXTRA_CALLS)] for i in range(work.extra_calls)), "cudaLaunchKernel_v7000"]
        names = np.tile(np.array([line.names.number(name) for name in menu], np.int64), launches)
        line.api.add_block(starts, ends, op.thread, correlations, names)

        queued = ends[work.extra_calls :: calls] + _START_LATENCY_NS
        slots = op.durations_ns + _KERNEL_GAP_NS
        total = np.cumsum(slots)
        queued[0] = max(int(queued[0]), self._ready.get(op.stream, 0) + _KERNEL_GAP_NS)
        done = total + np.maximum.accumulate(queued - (total - slots)) - _KERNEL_GAP_NS
        started = done - op.durations_ns
        line.kernels.add_block(started, done, op.stream, correlations[work.extra_calls :: calls], op.kernels)
        if work.kernels_per_range and work.nvtx:
            first = np.arange(0, launches, work.kernels_per_range)
            last = np.minimum(first + work.kernels_per_range, launches) - 1
            texts = [line.names.number(f"aten::operator {number}") for number in range(16)]
            line.ranges.add_block(
                starts[first * calls] - _RANGE_MARGIN_NS,
                ends[last * calls + calls - 1] + _RANGE_MARGIN_NS,
                op.thread,
                np.array(texts, np.int64)[np.arange(len(first)) % len(texts)],
                0,
                NO_VALUE,
            )
        self._ready[op.stream] = int(done[-1])
        self._threads[op.thread] = int(ends[-1]) + _RANGE_MARGIN_NS
        self._correlation += launches * calls

    def _launch_graph(self, op: p.Compute, graph: int) -> None:
        _, end, correlation = self._call("cudaGraphLaunch_v10000", op.thread)
        start = max(end + _START_LATENCY_NS, self._ready.get(op.stream, 0) + _KERNEL_GAP_NS)
        # inside a graph kernels follow each other more closely, and no event shows them
        done = start + int((op.durations_ns + _GRAPH_GAP_NS).sum())
        self._ready[op.stream] = done
        self.timeline.graphs.add(start, done, op.stream, correlation, graph)

    def _copy(self, op: p.Copy) -> Generator[None, None, None]:
        yield from self._settle(op.stream)
        name = "cudaMemcpy_v3020" if op.synchronous else "cudaMemcpyAsync_v3020"
        before = self._threads[op.thread] + self._scenario.work.host_gap_ns
        queued = before + self._scenario.work.host_call_ns + _START_LATENCY_NS
        blocked = op.blocking or op.synchronous
        until = max(queued, self._ready.get(op.stream, 0)) + op.duration_ns + _START_LATENCY_NS if blocked else 0
        _, end, correlation = self._call(name, op.thread, until)
        start = max(queued if blocked else end + _START_LATENCY_NS, self._ready.get(op.stream, 0))
        self._ready[op.stream] = start + op.duration_ns
        host = 0 if op.pageable else 1
        source, target = {1: (host, 2), 2: (2, host)}.get(op.kind, (2, 2))
        self.timeline.copies.add(
            start, start + op.duration_ns, op.stream, correlation, op.size_bytes, op.kind, source, target
        )

    def _plain_call(self, op: p.Call) -> Generator[None, None, None]:
        until = 0
        if op.drains:
            for stream in sorted({*self._ready, *self._pending}):
                yield from self._settle(stream)
            until = max(self._ready.values(), default=0) + _START_LATENCY_NS + op.duration_ns
        self._call(op.name, op.thread, until, op.duration_ns)

    def _device_gap(self, op: p.DeviceGap) -> Generator[None, None, None]:
        yield from self._settle(op.stream)
        self._ready[op.stream] = max(self._ready.get(op.stream, 0), self._threads[op.thread]) + op.duration_ns

    def _memset(self, op: p.Memset) -> Generator[None, None, None]:
        yield from self._settle(op.stream)
        _, end, correlation = self._call("cudaMemsetAsync_v3020", op.thread)
        start = max(end + _START_LATENCY_NS, self._ready.get(op.stream, 0))
        self._ready[op.stream] = start + op.duration_ns
        self.timeline.memsets.add(start, start + op.duration_ns, op.stream, correlation, op.size_bytes)

    def _stream_wait(self, op: p.StreamWait) -> Generator[None, None, None]:
        yield from self._settle(op.other)
        yield from self._settle(op.stream)
        self._call("cudaEventRecord_v3020", op.thread)
        start, end, correlation = self._call("cudaStreamWaitEvent_v3020", op.thread)
        self.timeline.syncs.add(start, end, op.stream, correlation, _STREAM_WAIT)
        self._ready[op.stream] = max(self._ready.get(op.stream, 0), self._ready.get(op.other, 0))

    def _synchronize(self, op: p.Synchronize) -> Generator[None, None, None]:
        streams = sorted({*self._ready, *self._pending}) if op.stream is None else [op.stream]
        for stream in streams:
            yield from self._settle(stream)
        until = max((self._ready.get(stream, 0) for stream in streams), default=0) + _START_LATENCY_NS
        if op.stream is None:
            start, end, correlation = self._call("cudaDeviceSynchronize_v3020", op.thread, until)
            self.timeline.syncs.add(start, end, ALL_STREAMS, correlation, _CONTEXT_SYNC)
        else:
            start, end, correlation = self._call("cudaStreamSynchronize_v3020", op.thread, until)
            self.timeline.syncs.add(start, end, op.stream, correlation, _STREAM_SYNC)

    def _collective(self, op: p.Collective) -> Generator[None, None, None]:
        yield from self._settle(op.stream)
        if op.after is not None:
            yield from self._settle(op.after)
        group, environment = self._meeting.program.groups[op.group], self._scenario.environment
        calls, begin = host_ranges(op, group, self.rank, environment, self._threads[op.thread] + _MARGIN_NS)
        self._threads[op.thread] = begin
        start, end, correlation = self._call("cudaLaunchKernelExC_v11060", op.thread)
        self._threads[op.thread] = end + 2 * _MARGIN_NS
        if self._scenario.work.nvtx:
            name, payload = launching_range(op, group, self.rank, environment)
            for call in (*calls, (name, begin, end + _MARGIN_NS, payload)):
                self._nccl_range(call[0], call[1], call[2], op.thread, call[3])
        after = 0 if op.after is None else self._ready.get(op.after, 0)
        arrival = max(end + _START_LATENCY_NS, after, self._ready.get(op.stream, 0))
        instance = self._arrive("nccl", op, op.group, (start, arrival))
        instance.correlations[self.rank] = correlation
        self._pending[op.stream] = instance
        self._nccl.append((arrival, op.stream, correlation, instance))

    def _arrive(self, kind: str, op: p.Collective | None, group: int, times: tuple[int, int]) -> Instance:
        sequence = self._sequences.get((kind, group), 0)
        self._sequences[kind, group] = sequence + 1
        return self._meeting.arrive(kind, self.rank, op, group, sequence, self._step, times)

    # of functions, not of bound methods, which would keep all that a rank recorded until Python looks for garbage
    _HANDLERS: ClassVar[dict[type, Callable[[_Rank, Any], Generator[None, None, None] | None]]] = {
        p.Compute: _compute, p.Push: _push, p.Pop: _pop, p.HostWork: _host_work, p.Handover: _handover,
        p.Collective: _collective, p.HostCollective: _host_collective, p.StreamWait: _stream_wait, p.Copy: _copy,
        p.Memset: _memset, p.Synchronize: _synchronize, p.Call: _plain_call, p.DeviceGap: _device_gap,
    }  # fmt: skip
