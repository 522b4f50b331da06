"""Communicators as Nsight Systems 2023.4 records them of Open MPI and MPICH, and the calls on them."""

from __future__ import annotations

import pytest

from alltrace.trace.names import name_id

COMMUNICATORS = (
    "MPI_COMMUNICATORS(rank, timestamp, commHandle, parentHandle, localRank, size, groupRoot, groupRootUid, members"
    " TEXT)"
)
CALLS = "MPI_COLLECTIVES_EVENTS(start, end, globalTid, textId, commHandle, rootRank, size, recvSize, requestHandle)"
MESSAGES = "MPI_P2P_EVENTS(start, end, globalTid, textId, commHandle, tag, remoteRank, size, requestHandle)"
WORLD, HALF, COPY = 1140850688, 2214592514, 2214592516


@pytest.fixture
def recorded(export, read, tid):
    """A reader of a report of rank 2 with these communicators and all-reduces (start, handle, bytes counted)."""

    def made(communicators, calls=(), messages=()):
        thread = tid(9, 9)
        return read(
            export(
                {
                    COMMUNICATORS: communicators,
                    CALLS: [
                        (start, start + 1, thread, 1, handle, None, size, size, None) for start, handle, size in calls
                    ],
                    MESSAGES: [
                        (start, start + 1, thread, 2, handle, 5, 0, size, None) for start, handle, size in messages
                    ],
                    "MPI_RANKS(globalTid, rank)": [(thread, 2)],
                },
                strings={1: "MPI_Allreduce", 2: "MPI_Send"},
            )
        )

    return made


def test_a_group_is_known_by_its_first_member_and_that_ranks_count(recorded):
    got = recorded([(2, 10, WORLD, 0, 2, 4, None, None, None), (2, 20, HALF, WORLD, 1, 2, 0, 7, None)])
    world, half = got.rows("communicators")
    assert (world["communicator"], world["uid"], world["group_rank"], world["size"]) == (WORLD, None, 2, 4)
    assert (half["communicator"], half["uid"], half["group_rank"], half["size"]) == (
        HALF,
        name_id("mpi group 7 of rank 0"),
        1,
        2,
    )
    assert (half["parent"], half["process"]) == (WORLD, 0)


def test_a_copy_is_the_nth_of_its_parent_and_as_large(recorded):
    half = (2, 20, HALF, WORLD, 1, 2, 0, 7, None)
    copies = [
        (2, 30 + n, 50 + n, parent, None, None, None, None, None) for n, parent in enumerate((HALF, WORLD, HALF, 52))
    ]
    got = recorded([*reversed(copies), half, (2, 10, WORLD, 0, 2, 4, None, None, None)])
    found = {r["communicator"]: (r["uid"], r["group_rank"], r["size"]) for r in got.rows("communicators")}
    assert found[50] == (name_id("mpi copy 1 of group 7 of rank 0"), 1, 2)
    assert found[51] == (name_id("mpi copy 1 of world"), 2, 4)
    assert found[52] == (name_id("mpi copy 2 of group 7 of rank 0"), 1, 2)
    assert found[53] == (name_id("mpi copy 1 of copy 2 of group 7 of rank 0"), 1, 2)


def test_a_copy_of_what_is_not_recorded_has_no_identity(recorded):
    got = recorded([(2, 10, WORLD, 0, 2, 4, None, None, None), (2, 20, 50, 1140850689, None, None, None, None, None)])
    assert [(r["uid"], r["size"]) for r in got.rows("communicators")] == [(None, 4), (None, None)]


def test_a_handle_that_is_used_again_means_another_communicator(recorded):
    got = recorded(
        [
            (2, 10, WORLD, 0, 2, 4, None, None, None),
            (2, 20, HALF, WORLD, 1, 2, 0, 7, None),
            (2, 50, HALF, WORLD, 0, 3, 2, 1, None),
            (2, 60, COPY, HALF, None, None, None, None, None),
        ],
        [(15, WORLD, 12), (25, HALF, 12), (50, HALF, 12), (55, HALF, 12), (65, COPY, 12)],
        [(30, HALF, 12), (70, HALF, 12)],
    )
    rows = got.rows("communicators")
    assert [r["communicator"] for r in rows] == [WORLD, HALF, -3, COPY]
    assert (rows[3]["parent"], rows[3]["size"]) == (-3, 3)
    assert got.column("mpi", "communicator") == [HALF, -3, WORLD, HALF, -3, -3, COPY]
    assert got.column("mpi", "bytes") == [12, 12, 3, 6, 4, 4, 4]


def test_a_call_before_the_first_row_of_its_handle_is_on_it(recorded):
    got = recorded([(2, 100, WORLD, 0, 2, 4, None, None, None)], [(5, WORLD, 12)])
    assert got.column("mpi", "bytes") == [3]


def test_a_handle_that_is_not_recorded_stays_without_a_size(recorded):
    got = recorded([(2, 10, WORLD, 0, 2, 4, None, None, None)], [(15, 1140850689, 12), (16, WORLD, 12)])
    assert got.column("mpi", "communicator") == [1140850689, WORLD]
    assert got.column("mpi", "bytes") == [None, 3]
    assert got.column("mpi", "sent_bytes") == got.column("mpi", "recv_bytes") == [12, 12]


def test_equal_handles_of_two_processes_are_two_communicators(export, read, tid):
    first, second = tid(9, 9), tid(10, 10)
    got = read(
        export(
            {
                COMMUNICATORS: [(0, 1, WORLD, 0, 0, 4, None, None, None), (1, 1, WORLD, 0, 1, 6, None, None, None)],
                CALLS: [(n, n + 1, thread, 1, WORLD, None, 12, 12, None) for n, thread in ((5, second), (6, first))],
                "MPI_RANKS(globalTid, rank)": [(first, 0), (second, 1)],
            },
            strings={1: "MPI_Allreduce"},
        )
    )
    assert got.column("mpi", "bytes") == [2, 3]


def test_the_unique_id_of_newer_versions_counts(export, read, tid):
    table = COMMUNICATORS.replace("members", "commUid, members")
    rows = {table: [(2, 1, HALF, WORLD, 0, 2, 0, 7, 4711, None)], "MPI_RANKS(globalTid, rank)": [(tid(9, 9), 2)]}
    (row,) = read(export(rows)).rows("communicators")
    assert row["uid"] == 4711
