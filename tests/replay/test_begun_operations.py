"""Operations of MPI that one call begins and another completes, in the graph of a rank."""

from __future__ import annotations

import numpy as np
from tests.making import kernel, make_run

from alltrace.align.store import aligned
from alltrace.replay.rank_graph import rank_graph

CALLS = (
    ("Isend", 100, 110, 5),
    ("Irecv", 120, 130, 6),
    ("Waitall", 400, 900, 5),
    ("Waitall", 400, 900, 6),
    ("Barrier", 1000, 1100, None),
)


def moments(folder, **tables):
    """(arrival, from when it is waited for, end) of the operations of rank 0, by its graph."""
    kinds = {"Isend": "p2p", "Irecv": "p2p", "Waitall": "start-wait", "Barrier": "collective"}
    ranks = {}
    for rank in (0, 1):
        mpi = [
            {
                "start": 1000 * start, "end": 1000 * end, "name": f"MPI_{name}", "kind": kinds[name], "thread": 0,
                "request": request,
                **({} if name == "Waitall" else {"communicator": 1}),
                **({"peer": 1 - rank, "tag": 0, "bytes": 8} if kinds[name] == "p2p" else {}),
            }
            for name, start, end, request in CALLS
        ]  # fmt: skip
        communicators = [{"communicator": 1, "parent": 0, "group_rank": rank, "size": 2, "process": 0}]
        ranks[rank] = {"mpi": mpi, "communicators": communicators, **tables}
    run = aligned(make_run(folder, ranks)).run
    graph = rank_graph(run.rank(0).with_host_work(), np.arange(3))
    nodes = zip(graph.member_arrival, graph.member_wait, graph.member_end, strict=True)
    return sorted(tuple(int(graph.when[n] - graph.when.min()) // 1000 for n in its) for its in nodes)


def test_beside_devices_they_are_moments_of_the_host(tmp_path):
    work = kernel(50_000, 60_000, stream=7)
    assert moments(tmp_path, kernels=[work]) == [(50, 350, 850), (70, 350, 850), (950, 950, 1050)]


def test_of_a_host_alone_they_are_its_calls(tmp_path):
    # the arrival is the end of the call that began it
    whole = {
        "start": 100_000,
        "end": 1_100_000,
        "name": "main",
        "kind": "pushpop",
        "thread": 0,
        "depth": 0,
        "domain": None,
    }
    assert moments(tmp_path, ranges=[whole]) == [(10, 300, 800), (30, 300, 800), (900, 900, 1000)]
