"""One rank's part of the graph: device work in segments between synchronisations, its host's waits, its collectives.

What starts a piece of work is what it waited for: the work before it on its stream, its launch, or work of another
stream. A segment is work of one stream and class that only its first piece waits for others in, and only its last piece
is waited for in. Its end is the latest of: the end of the segment before plus all of its work; what its first piece
waits for plus all of its work; and, for each of its pieces, the launch plus what is left of the work from there on. Of
these launches, three represent all: the first, the last, and the one that decides. Gaps between pieces that nothing
explains are kept as they were recorded, and counted apart.

The host continues from one wait for a device to the next: launches are placed relative to the wait before them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alltrace.replay.graph import Arcs, Int32
from alltrace.replay.work import COMPUTE, COPY, ELSEWHERE, EVERY, OTHER, TRANSFER, UNKNOWN, Work, read
from alltrace.run.clock import ClockMap
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Int64, blocks, integers, narrow
from alltrace.trace.distinct import distinct, run_starts

__all__ = ["COMPUTE", "COPY", "HOST", "OTHER", "TRANSFER", "RankGraph", "rank_graph"]

HOST = 4
"""Class of nodes of the host."""

_DEVICE_GAP_NS = 5_000
"""A pause of a stream up to this long is how devices work, and needs no cause."""

_LATE_START_NS = 20_000
"""Work that starts this long after its launch would allow is not delayed by its launch."""

_LATE_WAKE_NS = 50_000
"""A stream continues at most this long after the work of another stream that it waited for."""


_NARROW = "fixed_ns idle_ns host_ns work_ns cell_ns member_row member_arrival member_wait member_end".split()


@dataclass
class RankGraph:
    """Nodes and arcs of one rank; arrays of n nodes, m arcs, c cells and k members.

    A weight of an arc is the sum of its four parts. Times but `when` and `launched`, and numbers of rows and nodes, are
    int32 where that holds them.
    """

    rank: int
    when: Int64  # of each node, ns on the aligned clock; node 0 is the rank's first moment
    kind: NDArray[np.int8]  # of a segment's end its work's class, `TRANSFER` for both ends of a collective, `HOST`
    track: Int32  # number of the stream of each node, -1 for the host
    launched: Int64  # when the host came to each node's work, ns
    source: Int32  # where each arc begins
    target: Int32  # where it ends
    fixed_ns: Int64  # part of its weight: launch latency, and pauses as devices make them
    idle_ns: Int64  # pauses that nothing explains
    host_ns: Int64  # time of the host
    work_ns: Int64  # time of device work
    names: Int64  # of device work, ascending, as in `Work.name`
    cell_node: Int32  # for each cell the segment
    cell_name: Int32  # the name of the kernels in it, its place among `names`
    cell_ns: Int64  # their summed duration
    cell_count: Int32  # their number
    member_row: Int64  # for each matched operation the row of `collectives`
    member_arrival: Int64  # its node of arrival
    member_wait: Int64  # from which it waits: its arrival, or the call that completes what it only began then
    member_end: Int64  # its node of end
    tracks: list[tuple[int, int]]  # for each track its (device, stream)
    elsewhere: Int64  # the nodes at which a wait of the host ends that was for another device of its process
    unplaced: int  # matched operations of a device for which there is no work, so that they are not in the graph

    def placed(self, clock: ClockMap) -> RankGraph:
        """The graph of a rank in the time of its files as it is on the run's clock."""
        moved = replace(self, when=clock.apply(self.when), launched=clock.apply(self.launched))
        for name in ("fixed_ns", "idle_ns", "host_ns", "work_ns", "cell_ns") if clock.drift else ():
            setattr(moved, name, narrow(clock.lengths(getattr(self, name))))
        return moved


def rank_graph(rank: Rank, matched: Int64) -> RankGraph:
    """The nodes and arcs of one rank; `matched` are rows of its `collectives` that are members of an instance."""
    graph = _Builder(rank, np.unique(matched)).build()
    if rank.host_work is not None:  # what nothing explains is a pause of the host that works
        graph = replace(graph, host_ns=graph.host_ns + graph.idle_ns, idle_ns=np.zeros_like(graph.idle_ns))
    for name in _NARROW:
        setattr(graph, name, narrow(getattr(graph, name)))
    return graph


def _host_meetings(rank: Rank, matched: Int64, placed: set[int]) -> tuple[list[tuple[int, int, int, int]], int]:
    """Matched operations of the host: start, start of its wait, end, row; sorted by end.

    And the number of those of a device that are not placed.
    """
    import pyarrow as pa

    left = np.array([r for r in matched.tolist() if r not in placed], np.int64)
    if not len(left):
        return [], 0
    table = rank.table("collectives", ("start", "api_start", "wait_start", "api_end")).take(pa.array(left))
    start, begin, wait, end = (
        integers(table.column(c), UNKNOWN) for c in ("start", "api_start", "wait_start", "api_end")
    )
    meetings = [
        (b, max(b, w), max(b, w, e), r)
        for s, b, w, e, r in zip(*(c.tolist() for c in (start, begin, wait, end, left)), strict=True)
        if s == UNKNOWN and b != UNKNOWN and e != UNKNOWN
    ]
    return sorted(meetings, key=lambda m: (m[2], m[0], m[3])), int((start != UNKNOWN).sum())


def _begun(rank: Rank, work: Work) -> dict[int, int]:
    """For each operation that is waited for on its stream the earlier piece of work, also there, that began it."""
    import pyarrow as pa

    if rank.host_work is None or not work.rows:
        return {}
    piece, row = np.array([(p, r) for p, rows in work.rows.items() for r in rows], np.int64).T
    table = rank.table("collectives", ("api_start", "wait_start")).take(pa.array(row))
    begin, wait = (integers(table.column(c), UNKNOWN) for c in ("api_start", "wait_start"))
    beginning = {}
    for p, r, at in zip(*(c[wait != UNKNOWN].tolist() for c in (piece, row, begin)), strict=True):
        low = int(np.searchsorted(work.track, work.track[p]))
        place = low + int(np.searchsorted(work.start[low:p], at))
        if place < p and work.start[place] == at:
            beginning[r] = place
    return beginning


class _Builder:
    def __init__(self, rank: Rank, matched: Int64) -> None:
        self._rank, self._of_host, self._arcs = rank.rank, rank.host_work is not None, Arcs()
        self._work, self._waits = w, _ = read(rank, matched)
        self._meetings, self._unplaced = _host_meetings(rank, matched, {r for rows in w.rows.values() for r in rows})
        self._begun = _begun(rank, w)
        count = len(w.start)
        self._bounds = np.searchsorted(w.track, np.arange(len(w.tracks) + 1))
        self._first = np.ones(count, np.bool_)
        self._first[1:] = w.track[1:] != w.track[:-1]
        self._member = np.zeros(count, np.bool_)
        self._member[list(w.rows)] = True
        # work that ends within the previous work on its stream takes no own time, and ends with that work for later
        # work
        self._end = self._ascending(w.end)
        # launches in the order of their stream; if one is unknown, the previous one is used
        self._ordered = self._ascending(w.launch)
        if self._end is not w.end:
            self._end[self._member] = w.end[self._member]
        self._within = ~self._first & ~self._member
        self._within[1:] &= (w.end < self._end)[1:] & (self._end[1:] == self._end[:-1])

    def _ascending(self, times: Int64) -> Int64:
        """The latest of each track's times up to each one; the times themselves if none is before another."""
        if ((times[1:] >= times[:-1]) | self._first[1:]).all():
            return times
        latest = times.copy()
        for low, high in zip(self._bounds[:-1], self._bounds[1:], strict=True):
            np.maximum.accumulate(times[low:high], out=latest[low:high])
        return latest

    def build(self) -> RankGraph:
        w = self._work
        self._host_moments()
        self._explain()
        waited = self._waited_for()
        segment_first = self._cuts(waited)
        first = np.flatnonzero(segment_first)
        last = np.concatenate((first[1:], [len(w.start)]))[: len(first)] - 1 if len(first) else first
        del self._ordered, waited, segment_first
        # nodes: the host's moments, an end for each segment, an arrival for each collective
        hosts = len(self._moment_ns)
        ends = hosts + np.arange(len(first))
        of_member = np.flatnonzero(self._member[first]) if len(first) else first
        arrivals = hosts + len(first) + np.arange(len(of_member))
        enters = ends.copy()  # the node with the time at which the segment's first piece may continue
        enters[of_member] = arrivals
        end_of = np.repeat(ends.astype(np.int32), last - first + 1)  # of each piece of work
        self._segment_arcs(first, last, enters, end_of)
        self._host_arcs(end_of)
        members = self._members(first[of_member], arrivals, ends[of_member], end_of)
        launched = np.where(w.launch == UNKNOWN, w.start, w.launch)
        cells = self._cells(first, ends)
        target, source, _, fixed, idle, host, spent = (column.copy() for column in self._arcs.columns())
        arcs = source, target, fixed, idle, host, spent
        return RankGraph(
            self._rank,
            np.concatenate((self._moment_ns, self._end[last], w.start[first[of_member]])),
            np.concatenate((np.full(hosts, HOST), w.kind[first], np.full(len(of_member), TRANSFER))).astype(np.int8),
            np.concatenate((np.full(hosts, -1), w.track[first], w.track[first[of_member]])).astype(np.int32),
            np.concatenate((self._moment_ns, launched[first], launched[first[of_member]])),
            *arcs,
            *cells,
            *members,
            w.tracks,
            self._elsewhere,
            self._unplaced,
        )

    # the host

    def _host_moments(self) -> None:
        """Host nodes: its first moment, each wait's end, start, wait and end of hosts' meetings; sorted by time."""
        w, waits = self._work, self._waits
        firsts = [int(w.start.min())] if len(w.start) else []
        firsts += [waits.first_call] if waits.first_call != UNKNOWN else []
        firsts += [m[0] for m in self._meetings]
        begin = min(firsts, default=0)
        events = [(begin, 0, -1)]
        events += [(int(e), 1, n) for n, e in enumerate(waits.end.tolist())]
        for n, (start, wait, end, _) in enumerate(self._meetings):
            events += [(start, 2, n), *([(wait, 4, n)] if wait > start else []), (end, 5, n)]
        events.sort()
        self._events = events
        self._moment_ns = np.array([e[0] for e in events], np.int64)
        # what a launch is placed by: moments at which the host continues, not those at which it begins to wait
        going = np.array([e[1] not in (2, 4) for e in events])
        self._going = np.flatnonzero(going)

    def _anchor(self, at: Any, node: Any = 1 << 32) -> Any:
        """The last moment of the host at or before each time, and before a node if told; the first of all without."""
        place = np.searchsorted(self._moment_ns[self._going], at, "right")
        return self._going[np.maximum(np.minimum(place, np.searchsorted(self._going, node)) - 1, 0)]

    def _host_arcs(self, end_of: Int32) -> None:
        """What the host's moments wait for: the moment before, and device work."""
        self._elsewhere = np.empty(0, np.int64)
        waits, when = self._waits, self._moment_ns
        w = self._work
        for node, (_, kind, n) in enumerate(self._events):
            if kind in (2, 4):
                start = self._meetings[n][0 if kind == 2 else 1]
                last = self._anchor(start, node)
                self._arcs.add(last, node, host=start - when[last])
            elif kind == 5 and self._events[node - 1][:2] == self._events[node][:2]:
                self._arcs.add(node - 1, node)  # one call completes several
        ends = [(node, n) for node, (_, kind, n) in enumerate(self._events) if kind == 1]
        if not ends:
            return
        number, call = np.array(ends, np.int64).T
        begun, end, awaited = waits.start[call], waits.end[call], self._awaited[:, call]
        moments = np.where(awaited >= 0, self._end[awaited] if len(self._end) else UNKNOWN, UNKNOWN)
        latest = moments.max(axis=0) if len(w.tracks) else np.full(len(call), UNKNOWN)
        waiting = latest >= begun
        after = np.where(waiting, end - latest, 0)
        for track in range(len(w.tracks)):
            own = awaited[track] >= 0
            self._arcs.add(end_of[awaited[track][own]], number[own], fixed=after[own])
        anchor = self._anchor(begun, number)
        # of a call that waited only its way in and out is the host's own
        took = np.where(waiting, np.minimum(end - latest, _DEVICE_GAP_NS), end - begun)
        other = waits.track[call] == ELSEWHERE
        took = np.where(other, np.minimum(took, _DEVICE_GAP_NS), took)
        self._elsewhere = number[other]
        self._arcs.add(anchor, number, host=begun - when[anchor] + took)

    # what work waited for

    def _explain(self) -> None:
        """For each piece of work: its anchor, its awaited work, and how it began, of which `_pauses` has the rest."""
        w = self._work
        count = len(w.start)
        known = self._known = w.launch != UNKNOWN
        self._anchors = np.empty(count, np.int32)
        for some in blocks(count):
            self._anchors[some] = self._anchor(np.where(known[some], w.launch[some], w.start[some]))
        # on a busy device few launches start at once, so the fastest are used; none takes longer than a launch of
        # delayed work
        latency = w.start[known] - w.launch[known]
        usual = self._usual = min(int(np.quantile(latency, 0.001)), _LATE_START_NS) if len(latency) else 0
        del latency
        by_launch, late = np.empty((2, count), np.bool_)
        for some in blocks(count):
            launch, before, pause = self._begins(some)
            # a call that copies from pageable memory has much to do before the device begins
            in_time = w.start[some] - launch <= usual + _LATE_START_NS
            in_time |= w.start[some] <= w.launched[some] + usual + _LATE_START_NS
            by_launch[some] = known[some] & (launch + usual > before) & in_time
            late[some] = self._first[some] | (pause > _DEVICE_GAP_NS)
        w.launched = w.launched[:0].copy()  # it is long, and not needed any more
        late &= ~by_launch & ~(self._first & ~known)
        self._binding = self._ended_just_before(np.flatnonzero(late))
        self._told_by = self._told(self._binding)
        # it waited for the work that it was set to wait for, and that ended after its possible launch
        waiting = np.flatnonzero(by_launch & (self._told_by >= 0))
        waiting = waiting[self._end[self._told_by[waiting]] > w.launch[waiting] + usual]
        self._binding[waiting], self._told_by[waiting], by_launch[waiting] = self._told_by[waiting], -1, False
        # what was launched on a stream that had nothing left waits for its launch, however long that takes to reach the
        # device
        self._alone = ~by_launch & (self._binding < 0)
        self._steady = self._alone.copy()
        small = np.zeros(_DEVICE_GAP_NS + 1, np.int64)  # how many pauses take each time
        for some in blocks(count):
            _, before, pause = self._begins(some)
            self._alone[some] &= self._first[some] | (known[some] & (w.launch[some] >= before))
            self._steady[some] &= ~self._alone[some]
            own = pause[self._steady[some] & ~self._within[some] & (pause <= _DEVICE_GAP_NS) & (pause >= 0)]
            small += np.bincount(own, minlength=len(small))
        middle = np.searchsorted(np.cumsum(small), ((small.sum() - 1) // 2, small.sum() // 2), "right")
        self._gap = int(middle.sum()) // 2 if small.any() else 0
        self._direct = by_launch | self._alone

    def _begins(self, some: slice) -> tuple[Int64, Int64, Int64]:
        """Of some pieces of work the launch, else the start, the end of the piece before, and the pause after it."""
        w, first = self._work, self._first[some]
        launch = np.where(self._known[some], w.launch[some], w.start[some])
        before = np.append(UNKNOWN, self._end[max(some.start - 1, 0) : some.stop - 1])[-len(first) :]
        before = np.where(first, UNKNOWN, before)
        return (
            launch,
            before,
            np.where(first | self._within[some], 0, w.start[some] - np.where(first, w.start[some], before)),
        )

    def _pauses(self, some: slice) -> tuple[Int64, Int64, Int64, Int64]:
        """Of some pieces the pause before each, its unexplained part, the latency, and the odd part of a lone one."""
        launch, _, pause = self._begins(some)
        steady, latency = self._steady[some], self._work.start[some] - launch
        odd = np.where(steady & (pause > _DEVICE_GAP_NS), pause - _DEVICE_GAP_NS, 0)
        odd_alone = np.where(
            self._alone[some] & self._known[some], np.maximum(latency - self._usual - _LATE_START_NS, 0), 0
        )
        pause = np.where(steady | (pause < 0), pause, np.minimum(self._gap, pause))
        return pause, odd, np.where(self._direct[some], latency, np.minimum(latency, self._usual)), odd_alone

    def _ended_just_before(self, at: Int64) -> Int32:
        """For the pieces `at` the piece of another track that ended last before each, if it can have waited."""
        w = self._work
        binding = np.full(len(w.start), -1, np.int32)
        other = np.full(len(at), -1, np.int64)
        for low, high in zip(self._bounds[:-1].tolist(), self._bounds[1:].tolist(), strict=True):
            elsewhere = w.track[at] != w.track[low]
            if not elsewhere.any():
                continue
            reached = np.maximum.accumulate(self._end[low:high])
            place = low + np.searchsorted(reached, w.start[at], "right") - 1
            later = (place >= low) & elsewhere
            later &= (other < 0) | (self._end[np.maximum(place, 0)] > self._end[other])
            other[later] = place[later]
        fits = other >= 0
        fits &= self._first[at] | (self._end[other] > self._end[at - 1])
        fits &= (w.start[at] - self._end[other] <= _LATE_WAKE_NS) | self._of_host  # a thread waits for a CPU, too
        fits &= (w.launch[other] == UNKNOWN) | (w.launch[at] == UNKNOWN) | (w.launch[other] <= w.launch[at])
        binding[at[fits]] = other[fits]
        return binding

    def _told(self, binding: Int32) -> Int32:
        """For collectives, and for the first work after an order to wait: the last work launched on another track."""
        w, waits = self._work, self._waits
        order_work = np.full(len(w.start), -1, np.int32)
        members = np.flatnonzero(self._member & self._known)
        target, told_at = [members], [w.launch[members]]
        for track in np.unique(waits.order_track).tolist():
            low, high = int(self._bounds[track]), int(self._bounds[track + 1])
            at = waits.order_at[waits.order_track == track]
            n = low + np.searchsorted(self._ordered[low:high], at)
            target.append(n[n < high])
            told_at.append(at[n < high])
        n, at = np.concatenate(target), np.concatenate(told_at)
        if not len(n) or not self._known.any():
            return order_work
        by_launch = np.flatnonzero(self._known)
        by_launch = by_launch[np.argsort(w.launch[by_launch], kind="stable")].astype(np.int32)
        # from each launch back to the last one of another track
        track_of = w.track[by_launch]
        begins = run_starts(track_of)
        place = np.searchsorted(w.launch[by_launch], at) - 1
        own = (place >= 0) & (track_of[place] == w.track[n])
        place = np.where(own, begins[np.searchsorted(begins, place, "right") - 1] - 1, place)
        other = np.where(place >= 0, by_launch[place], -1)
        fits = (other >= 0) & (other != binding[n])
        fits[fits] = self._end[other[fits]] <= w.start[n[fits]]
        order_work[n[fits]] = other[fits]
        return order_work

    def _waited_for(self) -> NDArray[np.bool_]:
        """The pieces that other streams or the host wait for; a segment ends with them."""
        w, waits = self._work, self._waits
        marked = np.zeros(len(w.start), np.bool_)
        for others in (self._binding, self._told_by, np.array([*self._begun.values()], np.int64)):
            marked[others[others >= 0]] = True
        # of each track and wait of the host the last piece that it can have waited for, -1 for none
        self._awaited = np.full((len(w.tracks), len(waits.start)), -1, np.int64)
        for track in range(len(w.tracks)):
            low, high = int(self._bounds[track]), int(self._bounds[track + 1])
            by_launch = np.searchsorted(self._ordered[low:high], waits.start, "right")
            by_end = np.searchsorted(np.maximum.accumulate(self._end[low:high]), waits.end, "right")
            at = low + np.minimum(by_launch, by_end) - 1
            self._awaited[track] = np.where((at >= low) & ((waits.track == EVERY) | (waits.track == track)), at, -1)
        marked[self._awaited[self._awaited >= 0]] = True
        return marked

    def _cuts(self, waited: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The first piece of each segment."""
        w = self._work
        cut = self._first | self._member | (self._binding >= 0) | (self._told_by >= 0)
        if len(cut) > 1:
            cut[1:] |= waited[:-1] | self._member[:-1] | (w.kind[1:] != w.kind[:-1])
            cut[1:] |= self._anchors[1:] != self._anchors[:-1]
            # each copy is a segment, so that a replay can leave it out and not others
            cut[1:] |= w.kind[1:] == COPY
        for some in blocks(len(cut)) if self._of_host else ():  # so that each arc has one
            cut[some] |= self._pauses(some)[1] > 0
        return cut

    # segments

    def _segment_arcs(self, first: Int64, last: Int64, enters: Int64, end_of: Int32) -> None:
        w = self._work
        if not len(first):
            return
        row, segment, left_work, left_pause, left_odd, pause, odd, latency, odd_alone = self._left(first, last)
        known = self._known[row]
        at = np.searchsorted(row, first)  # of the first pieces
        for others, binds in ((None, False), (self._binding, True), (self._told_by, False)):
            other = np.where(self._first[first], -1, first - 1) if others is None else others[first]
            has = other >= 0
            own, other = at[has], other[has]
            begin = w.start[row[own]] - self._end[other] if binds else np.zeros(len(own), np.int64)
            late = np.maximum(begin - _LATE_WAKE_NS, 0)
            fixed, idle = (begin - late, late) if others is not None else ((pause - odd)[own], odd[own])
            fixed, idle = fixed + left_pause[own], idle + left_odd[own]
            self._arcs.add(end_of[other], enters[has], fixed=fixed, idle=idle, work=left_work[own])
        chosen = row[known]
        self._arcs.add(
            self._anchors[chosen],
            enters[segment[known]],
            fixed=(latency - odd_alone + left_pause)[known],
            idle=(left_odd + odd_alone)[known],
            host=w.launch[chosen] - self._moment_ns[self._anchors[chosen]],
            work=left_work[known],
        )
        # what nothing leads to hangs on the rank's first moment
        lost = ~np.logical_or.reduceat(self._known, first) & self._first[first] & (self._binding[first] < 0)
        own = at[lost]
        idle = w.start[first[lost]] - self._moment_ns[0] + left_odd[own]
        self._arcs.add(0, enters[lost], fixed=left_pause[own], idle=idle, work=left_work[own])

    def _left(self, first: Int64, last: Int64) -> Int64:
        """Of the first piece of each segment, the last, and the one whose launch decides, what is left from each on.

        A column for each, by row: its row, its segment, the work from it on to the segment's end, the pauses after it,
        and what nothing explains of them; then `_pauses` of itself.
        """
        w = self._work
        totals, carried = np.zeros((3, len(first)), np.int64), [0, 0, 0]
        for rows, begin, numbers, _ in _parts(first, len(w.start)):
            for total, values in zip(totals, self._spent(rows), strict=False):
                total[numbers] += np.add.reduceat(values, begin)
        columns = []
        for rows, begin, numbers, part in _parts(first, len(w.start)):
            spent = self._spent(rows)
            begins = first[numbers] == rows.start + begin
            left = []
            for n, values in enumerate(spent[:3]):
                reached = np.cumsum(values)
                before = np.append(0, reached)[begin]
                before[0] -= 0 if begins[0] else carried[n]
                reached -= before[part]
                carried[n] = int(reached[-1])
                left.append(totals[n][numbers][part] - reached)
            left[0] += spent[0]
            left[0][begin[begins & self._member[first[numbers]]]] = 0  # a collective's arrival takes no time itself
            reach = np.where(self._known[rows], w.launch[rows] + spent[3] + left[0] + left[1] + left[2], UNKNOWN)
            most = np.flatnonzero(reach == np.maximum.reduceat(reach, begin)[part])
            wanted = np.zeros(len(part), np.bool_)
            ends = last[numbers] - rows.start
            for chosen in (begin[begins], ends[ends < len(part)], most[run_starts(part[most])]):
                wanted[chosen] = True
            at = np.flatnonzero(wanted)
            facts = (*left, spent[1] + spent[2], *spent[2:], reach)
            columns.append(np.stack((rows.start + at, numbers[part[at]], *(c[at] for c in facts))))
        whole = np.concatenate(columns, axis=1)
        row, segment, reach = whole[0], whole[1], whole[-1]
        order = np.lexsort((row, ~reach, segment))  # of equal ones the first
        decides = np.zeros(len(row), np.bool_)
        decides[order[run_starts(segment[order])]] = True
        chosen_rows: Int64 = whole[:-1, decides | (row == first[segment]) | (row == last[segment])]
        return chosen_rows

    def _spent(self, rows: slice) -> tuple[Int64, ...]:
        """Of some pieces work, explained and other pause before each, 0 for a track's first; the rest of `_pauses`."""
        pause, odd, latency, odd_alone = self._pauses(rows)
        pause, odd = (np.where(self._first[rows], 0, c) for c in (pause, odd))
        return (
            np.where(self._within[rows], 0, self._end[rows] - self._work.start[rows]),
            pause - odd,
            odd,
            latency,
            odd_alone,
        )

    def _cells(self, first: Int64, ends: Int64) -> tuple[Int64, Int32, Int32, Int64, Int32]:
        """How each segment's work divides among names."""
        w = self._work
        some_names = [np.unique(w.name[some][~self._member[some]]) for some in blocks(len(w.name))]
        names = np.unique(np.concatenate([np.empty(0, np.int64), *some_names]))
        parts = [np.empty((3, 0), np.int64)]
        for rows, _, numbers, part in _parts(first, len(w.start)):
            mine = np.flatnonzero(~self._member[rows])
            of_rows, place = distinct(w.name[rows][mine])
            keys, at = distinct(numbers[part[mine]] * len(names) + np.searchsorted(names, of_rows)[place])
            spent = np.zeros(len(keys), np.int64)
            np.add.at(spent, at, (w.end[rows] - w.start[rows])[mine])
            parts.append(np.stack((keys, spent, np.bincount(at, minlength=len(keys)))))
        of_parts = np.concatenate(parts, axis=1)
        keys, at = distinct(of_parts[0])
        spent, count = np.zeros((2, len(keys)), np.int64)
        np.add.at(spent, at, of_parts[1])
        np.add.at(count, at, of_parts[2])
        node, code = (c.astype(np.int32) for c in (ends[keys // max(len(names), 1)], keys % max(len(names), 1)))
        return names, node, code, spent, count.astype(np.int32)

    def _members(self, pieces: Int64, arrivals: Int64, ends: Int64, end_of: Int32) -> tuple[Int64, Int64, Int64, Int64]:
        """Row, arrival, wait and end of every matched operation of the rank."""
        members = [
            (row, int(end_of[self._begun[row]] if row in self._begun else a), int(a), int(e))
            for piece, a, e in zip(pieces.tolist(), arrivals, ends, strict=True)
            for row in self._work.rows[piece]
        ]
        node = {(e[1], e[2]): n for n, e in enumerate(self._events) if e[1] in (2, 4, 5)}
        members += [(m[3], node[2, n], node.get((4, n), node[2, n]), node[5, n]) for n, m in enumerate(self._meetings)]
        row, arrival, wait, end = np.array(members, np.int64).reshape(-1, 4).T
        return row, arrival, wait, end


def _parts(first: Int64, count: int) -> Iterator[tuple[slice, Int64, Int64, Int64]]:
    """Rows some at a time: them, where each part of a segment begins, its segment, and each row's part.

    `first`: The first row of each segment. `count`: The number of rows.
    """
    for rows in blocks(count):
        low, high = np.searchsorted(first, (rows.start, rows.stop - 1), "right").tolist()
        begin = np.maximum(first[low - 1 : high] - rows.start, 0)
        size = np.diff(np.append(begin, rows.stop - rows.start))
        yield rows, begin, np.arange(low - 1, high), np.repeat(np.arange(len(begin)), size)
