"""How the host's time in the graph of a rank divides, on a graph of a few nodes."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from alltrace.recipes.questions.diagnose.gaps import HOST_CLASSES
from alltrace.recipes.questions.diagnose.host_time import host_time
from alltrace.replay.rank_graph import COMPUTE, COPY, HOST
from alltrace.trace.intervals import NOTHING, merge

DATA, PAGEABLE, SYNC, LAUNCH = (HOST_CLASSES.index(n) for n in ("data", "pageable-copy", "sync", "launch"))


def graph(kinds, when, launched, arcs):
    """Nodes by kind, time and launch; arcs as source, target and ns of the host."""
    source, target, host_ns = (np.array(values, np.int64) for values in zip(*arcs, strict=True))
    return SimpleNamespace(
        kind=np.array(kinds),
        when=np.array(when, np.int64),
        launched=np.array(launched, np.int64),
        source=source,
        target=target,
        host_ns=host_ns,
    )


def intervals(**by_class):
    sets = dict.fromkeys(HOST_CLASSES, NOTHING)
    for name, spans in by_class.items():
        starts, ends = zip(*spans, strict=True)
        sets[name.replace("_", "-")] = merge(np.array(starts, np.int64), np.array(ends, np.int64))
    return SimpleNamespace(sets=sets, exchanges=NOTHING)


def test_time_belongs_to_the_first_class_that_covers_it_and_the_rest_is_launch():
    host = intervals(data=[(10, 30)], sync=[(20, 50)])
    part = host_time(graph([HOST, COMPUTE], [0, 100], [-1, 90], [(0, 1, 100)]), host, begin=0)
    assert part.arc.tolist() == [0]
    (times,) = part.times.tolist()
    assert (times[DATA], times[SYNC], times[LAUNCH], sum(times)) == (20, 20, 60, 100)
    assert part.after.tolist() == [50]  # up to the launch at 90, without 40 of data and waits
    (late,) = host_time(graph([HOST, COMPUTE], [0, 100], [-1, 90], [(0, 1, 100)]), host, begin=25).times.tolist()
    assert (late[DATA], late[SYNC], late[LAUNCH]) == (5, 20, 50)


def test_a_wait_has_the_class_of_the_call_in_which_it_ends():
    # work that ends at 40 ends the wait of the host at node 1, whose call ends there
    kinds, when = [COMPUTE, HOST, COMPUTE], [40, 40, 90]
    part = host_time(graph(kinds, when, [5, -1, 60], [(0, 1, 0), (1, 2, 20)]), intervals(sync=[(30, 40)]), begin=0)
    assert (part.wait_arc.tolist(), part.wait_class.tolist()) == ([0], [SYNC])
    assert (part.arc.tolist(), part.after_class.tolist(), part.after.tolist()) == ([1], [SYNC], [20])
    part = host_time(graph(kinds, when, [5, -1, 60], [(0, 1, 0), (1, 2, 20)]), intervals(sync=[(41, 50)]), begin=0)
    assert part.wait_class.tolist() == [-1]


def test_copies_have_the_class_of_the_call_that_launched_them():
    kinds = [HOST, COPY, COPY, COMPUTE]
    host = intervals(pageable_copy=[(10, 20), (50, 60)])
    part = host_time(graph(kinds, [0, 30, 70, 90], [-1, 12, 55, 12], [(0, 1, 10)]), host, begin=0)
    assert part.copy_class.tolist() == [-1, PAGEABLE, PAGEABLE, -1]
    part = host_time(graph(kinds, [0, 30, 70, 90], [-1, 25, 59, 12], [(0, 1, 10)]), host, begin=0)
    assert part.copy_class.tolist() == [-1, -1, PAGEABLE, -1]
