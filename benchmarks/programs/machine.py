"""Executes instructions of hosts on a model of hosts, devices and links.

A host thread runs its instructions in order and launches work into streams, which are queues in order. A kernel begins
when the stream is free and the launch has reached the device. An operation of a communicator begins independently on
each member's device, and ends when the last has begun and the transfer has passed: on all at once, or, where a way of
leaving is given (`Leaving`), on each member a time of its own later, which all that depends on it sees. Of a rooted
operation the side that only sends does not wait. Streams wait for events, hosts for streams. As nothing shares a
resource but by these queues, each time is the latest of others, so the order in which the ranks are executed is free.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

KERNEL, COLLECTIVE, COPY, RECORD, WAIT, SYNC, HOST, CALL, PUSH, POP, LOAD, GRAPH, MPI, THREAD, MARK, STALL, IO = range(
    17
)
"""The instructions. After the code come:

* KERNEL: stream, kernel, duration, gap before the call, duration of the call, work
* COLLECTIVE: stream, kernel, duration of the transfer, gap, call, communicator, number of the operation, bytes
* COPY: stream, direction, bytes, duration, gap, call, whether the host waits, kind of memory of the host's side
* RECORD: stream, event, call; WAIT: stream, event, call
* SYNC: stream or None for the device, gap, name of the call
* HOST: duration of computing without a call
* CALL: name, duration, whether the device must be idle first
* PUSH: text, domain, payload; POP
* LOAD: workers, depth of the queue, duration of a batch, text of the range, whether reads are seen
* GRAPH: stream, nodes, nothing, gap, call; a node is a kernel as (kernel, duration, work), or an operation of a
  communicator as (kernel, duration of the transfer, 1.0, communicator, number of the operation)
* MPI: name, duration of the transfer, communicator, number of the operation, bytes
* THREAD: number of the thread that runs from here on
* MARK: number of the step that ends here
* STALL: stream, time in which the device does nothing although work is queued
* IO: name of the call of the operating system, duration, whether it is seen
"""

LAUNCH_LATENCY_NS = 2_500
KERNEL_GAP_NS = 900
QUEUE = 1_024
_FENCE = 64
SYNC_RETURN_NS = 4_000


@dataclass
class Recorded:
    """What happened on one rank, times in ns of true time.

    Attributes:
        kernels: (start, end, stream, kernel, correlation, work, communicator or -1, number in a graph or 0, number of
            the operation of the communicator or -1).
        copies: (start, end, stream, direction, bytes, memory, correlation).
        graphs: (start, end, stream, correlation, kernels).
        calls: (start, end, name, thread, correlation).
        ranges: (start, end, text, domain, payload, thread).
        osrt: (start, end, name, thread).
        mpi: (start, end, name, communicator, bytes).
        waits: (start, end, kind, stream, correlation).
    """

    kernels: list[tuple[int, int, int, int, int, float, int, int, int]] = field(default_factory=list)
    copies: list[tuple[int, int, int, str, int, str, int]] = field(default_factory=list)
    graphs: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    calls: list[tuple[int, int, str, int, int]] = field(default_factory=list)
    ranges: list[tuple[int, int, str, str, Any, int]] = field(default_factory=list)
    osrt: list[tuple[int, int, str, int]] = field(default_factory=list)
    mpi: list[tuple[int, int, str, int, int]] = field(default_factory=list)
    waits: list[tuple[int, int, str, int, int]] = field(default_factory=list)


@dataclass
class Timeline:
    """What an execution gave.

    Attributes:
        ends: For each rank, the time at which each step was done on its device.
        recorded: What happened, if that was wanted.
    """

    ends: list[dict[int, int]]
    recorded: list[Recorded] | None


class Leaving(Protocol):
    """How the members of an operation leave it."""

    def root(self, communicator: int, number: int) -> tuple[int, bool] | None:
        """The rank of the root of a rooted operation, and whether the root is the one that sends; None of any other."""

    def delays_ns(self, communicator: int, number: int, transfer_ns: int) -> dict[int, int]:
        """By rank, how much later than the transfer it ends there, in ns, 0 or more; a missing rank ends with it."""


class _Rank:
    """The device of a rank: its streams, and the times of events."""

    def __init__(self, number: int, machine: _Machine, recorded: Recorded | None) -> None:
        self.number = number
        self.machine = machine
        self.recorded = recorded
        self.free: dict[int, int] = {}
        self.queued: dict[int, deque[tuple[Any, ...]]] = {}
        self.events: dict[int, int] = {}
        self.streams_waiting: dict[int, list[int]] = {}
        self.host_waiting: int | None = None

    def enqueue(self, stream: int, item: tuple[Any, ...]) -> None:
        """Put an item into a stream: (code, time at which it reaches the device, ...)."""
        queue = self.queued.get(stream)
        if queue is None:
            queue = self.queued[stream] = deque()
            self.free[stream] = 0
        if queue or not self._done(stream, item):
            queue.append(item)

    def drain(self, stream: int) -> None:
        """Give times to all items of a stream that can have one."""
        queue = self.queued[stream]
        while queue and self._done(stream, queue[0]):
            queue.popleft()

    def _done(self, stream: int, item: tuple[Any, ...]) -> bool:
        """Give the item at the head of a stream its times; False if something it waits for has none yet."""
        code, reached = item[0], item[1]
        free = self.free[stream]
        if code == KERNEL:
            start = max(free + KERNEL_GAP_NS, reached)
            self.free[stream] = end = start + item[2]
            if self.recorded is not None:
                self.recorded.kernels.append((start, end, stream, item[3], item[4], item[5], -1, item[6], -1))
        elif code == RECORD:
            self._resolve(item[2], max(free, reached))
        elif code == WAIT:
            at = self.events.get(item[2])
            if at is None:
                self.streams_waiting.setdefault(item[2], []).append(stream)
                return False
            self.free[stream] = max(free, at, reached)
        elif code == COLLECTIVE:
            return self._arrive(stream, item)
        elif code == COPY:
            start = max(free + KERNEL_GAP_NS, reached)
            self.free[stream] = end = start + item[2]
            if self.recorded is not None:
                self.recorded.copies.append((start, end, stream, item[3], item[4], item[5], item[6]))
        elif code == GRAPH:
            self._graph(stream, max(free + KERNEL_GAP_NS, reached), item)
        else:  # STALL
            self.free[stream] = max(free, reached) + item[2]
        return True

    def _graph(self, stream: int, start: int, item: tuple[Any, ...]) -> None:
        at = start
        for number, (kernel, duration, work) in enumerate(item[2], 1):
            if self.recorded is not None:
                self.recorded.kernels.append((at, at + duration, stream, kernel, item[3], work, -1, number, -1))
            at += duration + KERNEL_GAP_NS // 2
        self.free[stream] = end = at - KERNEL_GAP_NS // 2
        if self.recorded is not None:
            self.recorded.graphs.append((start, end, stream, item[3], len(item[2])))

    def _arrive(self, stream: int, item: tuple[Any, ...]) -> bool:
        _, reached, transfer_ns, kernel, correlation, communicator, number, node = item
        meeting = self.machine.meeting(communicator, number)
        if (self.number, stream) not in meeting.members:
            start = max(self.free[stream] + KERNEL_GAP_NS, reached)
            self.free[stream] = start  # nothing after it in the stream reads it before it ends
            meeting.arrive(self.number, stream, start, transfer_ns)
        end = meeting.ends.get(self.number)
        if end is None:
            return False
        if self.recorded is not None:
            self.recorded.kernels.append(
                (self.free[stream], end, stream, kernel, correlation, 1.0, communicator, node, number)
            )
        self.free[stream] = end
        return True

    def _resolve(self, event: int, at: int) -> None:
        self.events[event] = at
        for waiting in self.streams_waiting.pop(event, ()):
            self.machine.ready.append((self.number, waiting))
        if self.host_waiting == event:
            self.machine.ready.append((self.number, None))


class _Meeting:
    """An operation of a communicator: who has arrived, and, as far as it is certain, when it ends on each member."""

    def __init__(self, machine: _Machine, communicator: int, number: int) -> None:
        self.machine = machine
        self.key = communicator, number
        self.size = machine.members[communicator]
        self.root = machine.leaving.root(communicator, number) if machine.leaving else None
        self.members: dict[tuple[int, int | None], int] = {}
        self.transfer_ns = 0
        self.ends: dict[int, int] = {}

    def arrive(self, rank: int, stream: int | None, start: int, transfer_ns: int) -> None:
        """A member has begun, with a stream or, if None, with its host; those that then certainly end go on."""
        self.members[rank, stream] = start
        self.transfer_ns = max(self.transfer_ns, transfer_ns)
        complete = len(self.members) == self.size
        if self.root is None and not complete:
            return
        delays = self.machine.leaving.delays_ns(*self.key, self.transfer_ns) if self.machine.leaving else {}
        last = max(self.members.values())
        begun = {r: at for (r, _), at in self.members.items()}
        for member, arrived in self.members.items():
            since: int | None = last
            if self.root is not None:
                root, root_sends = self.root
                if (member[0] == root) == root_sends:
                    since = arrived  # what it sends is taken from it without waiting
                elif root_sends:
                    since = max(arrived, begun[root]) if root in begun else None
                elif not complete:
                    since = None
            if since is not None and member[0] not in self.ends:
                self.ends[member[0]] = since + self.transfer_ns + delays.get(member[0], 0)
                if member != (rank, stream):
                    self.machine.ready.append(member)


class _Host:
    """The host threads of a rank, of which one runs at a time."""

    def __init__(self, rank: _Rank) -> None:
        self.rank = rank
        self.now = 0
        self.thread = 0
        self.correlation = 0
        self.launches = 0
        self.internal = 0  # events of our own have negative numbers
        self.fences: deque[int] = deque()
        self.open_ranges: list[tuple[int, str, str, Any, int]] = []
        self.workers: list[int] = []
        self.consumed: list[int] = []
        self.marks: list[tuple[int, int, list[int]]] = []

    def run(self, code: Sequence[tuple[Any, ...]]) -> Iterator[bool]:
        """Run the instructions; stops (False) where it waits for a time that is not known yet, and ends with True."""
        at_once = {
            RECORD: self._event, WAIT: self._event, HOST: self._compute, PUSH: self._push, POP: self._pop,
            LOAD: self._load, THREAD: self._switch, MARK: self._mark, STALL: self._stall, IO: self._io,
        }  # fmt: skip
        enqueue = self.rank.enqueue
        for op in code:
            what = op[0]
            if what in (KERNEL, COLLECTIVE, GRAPH):
                self.launches += 1
                if self.launches % _FENCE == 0:
                    yield from self._fence(op[1])
                self.correlation += 1
                begin = self.now + op[4]
                self.now = begin + op[5]
                reached = self.now + LAUNCH_LATENCY_NS
                if what == KERNEL:
                    enqueue(op[1], (KERNEL, reached, op[3], op[2], self.correlation, op[6], 0))
                elif what == COLLECTIVE:
                    enqueue(op[1], (COLLECTIVE, reached, op[3], op[2], self.correlation, op[6], op[7], 0))
                elif all(len(node) == 3 for node in op[2]):
                    enqueue(op[1], (GRAPH, reached, op[2], self.correlation))
                else:
                    self._replay(op[1], op[2], reached)
                self._called(begin, _LAUNCH_NAMES[what])
            elif what in at_once:
                at_once[what](op)
            elif what == MPI:
                yield from self._mpi(op)
            else:
                yield from self._blocking(op)
        yield True

    def _called(self, begin: int, name: str) -> None:
        if self.rank.recorded is not None:
            self.rank.recorded.calls.append((begin, self.now, name, self.thread, self.correlation))

    def _replay(self, stream: int, nodes: Sequence[tuple[Any, ...]], reached: int) -> None:
        """Queue the nodes of a graph that communicates, which waits for others in between."""
        for number, (kernel, duration, work, *meeting) in enumerate(nodes, 1):
            if meeting:
                item = (COLLECTIVE, reached, duration, kernel, self.correlation, *meeting, number)
            else:
                item = (KERNEL, reached, duration, kernel, self.correlation, work, number)
            self.rank.enqueue(stream, item)

    def _record(self, stream: int) -> int:
        self.internal -= 1
        self.rank.enqueue(stream, (RECORD, 0, self.internal))
        return self.internal

    def _await(self, events: Sequence[int], then_ns: int) -> Iterator[bool]:
        for event in events:
            while event not in self.rank.events:
                self.rank.host_waiting = event
                yield False
            self.now = max(self.now, self.rank.events[event] + then_ns)

    def _fence(self, stream: int) -> Iterator[bool]:
        """Wait where the queue of launches is full."""
        self.fences.append(self._record(stream))
        if len(self.fences) > QUEUE // _FENCE:
            yield from self._await([self.fences.popleft()], 0)

    def _event(self, op: tuple[Any, ...]) -> None:
        begin = self.now
        self.now += op[3]
        self.correlation += 1
        self.rank.enqueue(op[1], (op[0], self.now, op[2]))
        self._called(begin, "cudaEventRecord_v3020" if op[0] == RECORD else "cudaStreamWaitEvent_v3020")

    def _compute(self, op: tuple[Any, ...]) -> None:
        self.now += op[1]

    def _push(self, op: tuple[Any, ...]) -> None:
        self.open_ranges.append((self.now, op[1], op[2], op[3], self.thread))

    def _pop(self, _: tuple[Any, ...]) -> None:
        begin, text, domain, payload, thread = self.open_ranges.pop()
        if self.rank.recorded is not None:
            self.rank.recorded.ranges.append((begin, self.now, text, domain, payload, thread))

    def _switch(self, op: tuple[Any, ...]) -> None:
        self.thread = op[1]

    def _mark(self, op: tuple[Any, ...]) -> None:
        self.marks.append((op[1], self.now, [self._record(stream) for stream in self.rank.queued]))

    def _stall(self, op: tuple[Any, ...]) -> None:
        self.rank.enqueue(op[1], (STALL, self.now, op[2]))

    def _io(self, op: tuple[Any, ...]) -> None:
        begin = self.now
        self.now += op[2]
        if op[3] and self.rank.recorded is not None:
            self.rank.recorded.osrt.append((begin, self.now, op[1], self.thread))

    def _load(self, op: tuple[Any, ...]) -> None:
        """Take the next batch from a worker, which starts one when there is space in the queue."""
        _, count, depth, took, text, seen = op
        begin, number = self.now, len(self.consumed)
        if count == 0:
            self.now += took
        else:
            self.workers = self.workers or [(n + 1) * took // count - took for n in range(count)]  # they began before
            room = self.consumed[number - depth] if number >= depth else -took
            self.workers[number % count] = ready = max(self.workers[number % count], room) + took
            self.now = max(self.now + 20_000, ready)
        self.consumed.append(self.now)
        if self.rank.recorded is None:
            return
        if text:
            self.rank.recorded.ranges.append((begin, self.now, text, "", None, self.thread))
        if seen and self.now - begin > 30_000:
            names = ("read", "pread64") if count == 0 else ("poll", "sem_timedwait", "pthread_cond_timedwait")
            self.rank.recorded.osrt.append((begin + 5_000, self.now - 5_000, names[number % len(names)], self.thread))

    def _mpi(self, op: tuple[Any, ...]) -> Iterator[bool]:
        begin = self.now
        meeting = self.rank.machine.meeting(op[3], op[4])
        meeting.arrive(self.rank.number, None, begin, op[2])
        while self.rank.number not in meeting.ends:
            yield False
        self.now = meeting.ends[self.rank.number]
        if self.rank.recorded is not None:
            self.rank.recorded.mpi.append((begin, self.now, op[1], op[3], op[5]))

    def _blocking(self, op: tuple[Any, ...]) -> Iterator[bool]:
        """A copy, a wait, or another call, for which the host may have to wait for the device."""
        self.correlation += 1
        if op[0] == COPY:
            _, stream, direction, size, duration, gap, took, blocks, memory = op
            name = "cudaMemcpy_v3020" if blocks and memory == "pinned" else "cudaMemcpyAsync_v3020"
            item = (
                COPY,
                self.now + gap + took + LAUNCH_LATENCY_NS,
                duration,
                direction,
                size,
                memory,
                self.correlation,
            )
            self.rank.enqueue(stream, item)
            waits_for = [stream] if blocks else []
        elif op[0] == SYNC:
            _, chosen, gap, name = op
            took = 1_500
            waits_for = list(self.rank.queued) if chosen is None else [chosen]
        else:
            _, name, took, drains = op
            gap = 0
            waits_for = list(self.rank.queued) if drains else []
        begin = self.now + gap
        self.now = begin
        yield from self._await([self._record(stream) for stream in waits_for], SYNC_RETURN_NS if op[0] != CALL else 0)
        self.now = max(self.now, begin + took) if op[0] != CALL else self.now + took
        self._called(begin, name)
        if op[0] == SYNC and self.rank.recorded is not None:
            kind, stream = ("context", -1) if op[1] is None else ("stream", op[1])
            self.rank.recorded.waits.append((begin, self.now, kind, stream, self.correlation))


_LAUNCH_NAMES = {
    KERNEL: "cudaLaunchKernel_v7000",
    COLLECTIVE: "cudaLaunchKernelExC_v11060",
    GRAPH: "cudaGraphLaunch_v10000",
}


class _Machine:
    def __init__(
        self,
        code: Sequence[Sequence[tuple[Any, ...]]],
        members: Sequence[int],
        leaving: Leaving | None,
        *,
        record: bool,
    ) -> None:
        self.ranks = [_Rank(number, self, Recorded() if record else None) for number in range(len(code))]
        self.code = code
        self.members = members
        self.leaving = leaving
        self.meetings: dict[tuple[int, int], _Meeting] = {}
        self.ready: deque[tuple[int, int | None]] = deque()

    def meeting(self, communicator: int, number: int) -> _Meeting:
        """An operation of a communicator, by its number there."""
        found = self.meetings.get((communicator, number))
        if found is None:
            found = self.meetings[communicator, number] = _Meeting(self, communicator, number)
        return found

    def run(self) -> Timeline:
        """Run all ranks until they have finished."""
        hosts = [_Host(rank) for rank in self.ranks]
        runs = [host.run(code) for host, code in zip(hosts, self.code, strict=True)]
        done = [False] * len(hosts)
        self.ready.extend((rank, None) for rank in range(len(hosts)))
        while self.ready:
            number, stream = self.ready.popleft()
            if stream is not None:
                self.ranks[number].drain(stream)
            elif not done[number]:
                done[number] = next(runs[number])
        stuck = [r for r, rank in enumerate(self.ranks) if not done[r] or any(rank.queued.values())]
        if stuck:
            raise RuntimeError(f"the program never ends: on ranks {stuck} hosts or streams wait for each other")
        ends = [
            {step: max((rank.events[e] for e in needed), default=at) for step, at, needed in host.marks}
            for host, rank in zip(hosts, self.ranks, strict=True)
        ]
        return Timeline(ends, [rank.recorded for rank in self.ranks if rank.recorded is not None] or None)


def execute(
    code: Sequence[Sequence[tuple[Any, ...]]],
    members: Sequence[int],
    leaving: Leaving | None = None,
    *,
    record: bool = False,
) -> Timeline:
    """Execute the instructions of all ranks.

    Args:
        code: The instructions of each rank.
        members: How many members each communicator has.
        leaving: How members leave an operation; None if all of them leave when the transfer has passed.
        record: Whether to keep what a profiler would have seen.

    Raises:
        RuntimeError: The program never ends.
    """
    return _Machine(code, members, leaving, record=record).run()
