"""Exchanges with both neighbours of a ring, which one call completes: a late sender has a name, and its wait counts
once."""

from __future__ import annotations

import pytest
from tests.making import make_run

from alltrace.recipes.execution.ask import ask

MS = 10**6
RANKS, STEPS, LATE = 4, 40, 2
OWN, LATER, TRANSFER = 3 * MS, 4 * MS, MS // 10
COLLECTIVE = {"kind": "collective", "thread": 0, "communicator": 1}


def exchange(rank, begin, send, end):
    """The calls of one step: two receives, two sends, and their common wait."""
    up, down = (rank + 1) % RANKS, (rank - 1) % RANKS
    message = {"kind": "p2p", "bytes": 2000, "thread": 0, "communicator": 1}
    rows = [
        {
            "start": begin + n,
            "end": begin + n + 1,
            "name": "MPI_Irecv",
            "peer": peer,
            "tag": tag,
            "request": n,
            **message,
        }
        for n, (peer, tag) in enumerate(((down, 1), (up, 2)))
    ]
    rows += [
        {
            "start": send + n,
            "end": send + n + 1,
            "name": "MPI_Isend",
            "peer": peer,
            "tag": tag,
            "request": 2 + n,
            **message,
        }
        for n, (peer, tag) in enumerate(((up, 1), (down, 2)))
    ]
    wait = {"start": send + 10, "end": end, "name": "MPI_Waitall", "kind": "start-wait", "thread": 0}
    return rows + [wait | {"request": n} for n in range(4)]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    calls = {rank: [] for rank in range(RANKS)}
    at = [0] * RANKS
    waited, in_barriers = [0] * RANKS, 0
    for step in range(STEPS):
        sends = [at[r] + OWN + (r * 7 + step * 3) % 5 * MS // 20 + (LATER if r == LATE else 0) for r in range(RANKS)]
        for r in range(RANKS):
            last = max(sends[r - 1], sends[(r + 1) % RANKS])
            end = max(last, sends[r] + 10) + TRANSFER
            calls[r] += exchange(r, at[r], sends[r], end)
            waited[r] += max(0, last - sends[r] - 10)
            at[r] = end
        if step % 10 == 0:
            met = max(at)
            for r in range(RANKS):
                calls[r].append({"start": at[r], "end": met + 10, "name": "MPI_Barrier", **COLLECTIVE})
                waited[r] += met - at[r]
                in_barriers += met - at[r]
            at = [met + 10] * RANKS
    world = {"communicator": 1, "parent": 0, "size": RANKS, "process": 0}
    tables = {r: {"mpi": calls[r], "communicators": [{**world, "group_rank": r}]} for r in range(RANKS)}
    return make_run(tmp_path_factory.mktemp("halo"), tables), waited, max(at), in_barriers


def test_a_rank_that_waits_for_several_at_once_waits_once(run):
    rows = {r["rank"]: r for r in ask(run[0], "stragglers").table.to_pylist()}
    assert [rows[r]["waited_ns"] for r in range(RANKS)] == pytest.approx(run[1], abs=STEPS * 10)
    assert max(rows.values(), key=lambda r: r["caused_ns"])["rank"] == LATE


def test_late_senders_are_told_from_late_receivers(run):
    (messages,) = (r for r in ask(run[0], "collectives").table.to_pylist() if r["op"] == "Send")
    assert (messages["instances"], messages["incomplete"]) == (2 * RANKS * STEPS, 0)
    assert messages["late_sender_ns"] == messages["wait_ns"] == pytest.approx(sum(run[1]) - run[3], rel=0.001)
    assert messages["late_receiver_ns"] == 0
    # from when both are there, and not as long as the call waits for other messages
    assert messages["transfer_median_ns"] == pytest.approx(TRANSFER, abs=20)


def test_the_late_sender_is_the_finding_with_what_it_costs(run):
    first = ask(run[0], "diagnose").table.to_pylist()[0]
    assert (first["kind"], first["ranks"]) == ("straggler", [LATE])
    assert first["lost_share"] == pytest.approx(STEPS * (LATER - MS // 5) / run[2], rel=0.1)
    saved = next(r for r in ask(run[0], "whatif").table.to_pylist() if r["what"] == "rank")
    assert saved["rank"] == LATE
    assert saved["saved_ns"] == pytest.approx(STEPS * LATER, rel=0.1)
