"""What the host's time in a rank's graph went to: which of it a replay may leave out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from alltrace.recipes.questions.diagnose.gaps import HOST_CLASSES, HostSets
from alltrace.recipes.questions.diagnose.lone_operations import LoneOperations
from alltrace.recipes.questions.diagnose.machine_state import MachineState
from alltrace.replay.rank_graph import COPY, HOST, RankGraph
from alltrace.run.clock import ClockMap
from alltrace.trace.arrays import Int64, narrow
from alltrace.trace.intervals import containing, exclusive, overlap_ns

BLOCKING = ("allocation", "pageable-copy", "sync-copy", "sync")  # classes of calls that may wait for the device


@dataclass(frozen=True)
class HostTime:
    """The host's time on the arcs of a `RankGraph`: k arcs with such time, w arcs of a host's waits."""

    arc: Int64  # numbers of the arcs with time of the host, k
    times: Int64  # how it divides into `HOST_CLASSES`, (k, len(HOST_CLASSES)), ns; the last is launch
    after: Int64  # the part of launch from a wait's end to the first launch after it, k, ns
    after_class: NDArray[np.int8]  # the number of that wait's class among `HOST_CLASSES`, k; -1 without a wait
    wait_arc: Int64  # numbers of the arcs by which a host waits, w
    wait_class: NDArray[np.int8]  # the number of the class of the call that waits, w; -1 for none
    # for each node of the graph that is copies the number of the class of the call that launched them; -1 for others
    copy_class: NDArray[np.int8]


def host_time(graph: RankGraph, host: HostSets, begin: int) -> HostTime:
    """How the host's time in a rank's graph divides.

    `begin`: When the judged time begins, ns; what the host did before is not counted.
    """
    named = exclusive([host.sets[name] for name in HOST_CLASSES[:-1]])
    arc = np.flatnonzero(graph.host_ns > 0)
    source, target = graph.source[arc], graph.target[arc]
    start, end = (np.maximum(t, begin) for t in (graph.when[source], graph.when[source] + graph.host_ns[arc]))
    times = np.zeros((len(arc), len(HOST_CLASSES)), np.int64)
    for column, merged in enumerate(named):
        times[:, column] = overlap_ns(start, end, merged)
    times[:, -1] = end - start - times.sum(axis=1) - overlap_ns(start, end, host.exchanges)
    # until the first launch after a wait
    first = np.full(len(graph.when), np.iinfo(np.int64).max)
    launches = graph.kind[target] != HOST
    # a segment of work may be placed by a later launch than its first one
    began = graph.launched[target[launches]]
    placed = np.where(began >= start[launches], np.minimum(began, end[launches]), end[launches])
    np.minimum.at(first, source[launches], placed)
    until = np.maximum(np.minimum(first[source], end), start)
    after = until - start - sum(overlap_ns(start, until, merged) for merged in (*named, host.exchanges))
    waits = np.flatnonzero((graph.kind[graph.target] == HOST) & (graph.kind[graph.source] != HOST))

    def classes(nodes: NDArray[Any], moments: Int64, names: Sequence[str]) -> NDArray[np.int8]:
        of_node = np.full(len(graph.when), -1, np.int8)
        for column in map(HOST_CLASSES.index, names):
            of_node[nodes[containing(named[column], moments) >= 0]] = column
        return of_node

    nodes, copies = np.unique(graph.target[waits]), np.flatnonzero(graph.kind == COPY)
    node_class = classes(nodes, graph.when[nodes] - 1, BLOCKING)
    copy_class = classes(copies, graph.launched[copies], ("pageable-copy", "sync-copy"))
    waiting = node_class[graph.target[waits]]
    arc, times, after, waits = map(narrow, (arc, times, after, waits))
    return HostTime(arc, times, after, node_class[source], waits, waiting, copy_class)


@dataclass(frozen=True)
class Contribution:
    # its facts (`alltrace.recipes.questions.diagnose.rank_facts.RankFacts`), or None without device work
    facts: Any = None
    graph: Any = None  # its graph (`alltrace.replay.rank_graph.RankGraph`), or None likewise
    host: HostTime | None = None  # its host's time
    lone: LoneOperations | None = None  # its unmatched operations
    # what its GPU, its host's network and its CPUs did in the judged steps
    machine: MachineState = field(default_factory=MachineState)
    # by name of a kernel the operator, module and line that launched most of its time, in words
    origins: Mapping[str, str] = field(default_factory=dict)

    def placed(self, clock: ClockMap) -> Self:
        """The contribution of a rank in the time of its files, without its graph, as it is on the run's clock."""
        if self.facts is None or self.host is None:
            return self
        times, after = (narrow(clock.lengths(own)) for own in (self.host.times, self.host.after))
        host = replace(self.host, times=times, after=after)
        return replace(self, facts=self.facts.placed(clock), host=host)
