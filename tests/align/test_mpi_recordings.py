"""Matched operations of real MPI programs, against the programs' own record of every call (see `benchmarks.mpi_truth`).

`mpi_recordings/` holds what Nsight Systems 2023.4 recorded of `benchmarks/mpi_programs/calls.c` with Open MPI 4.1 on
four ranks and MPICH 4.0 on three, while other programs kept the machine busy: collectives on the world, a copy of it
and halves of it, some of which only begin, vector forms, messages and persistent ones, in random order after sleeps of
up to 20 ms. The recorded times with the UTC stamps of the reports, and the order of the record, give every wait. In the
two `mixed` ones, of three and four ranks, messages and collectives are under way at once, and ranks complete them by
all calls that wait or test; among them are halo exchanges of equal tags, and with MPICH persistent collectives.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from benchmarks.mpi_programs.score import scored

FOLDER = Path(__file__).with_name("mpi_recordings")
RECORDINGS = ("openmpi-4", "mpich-3")
MIXED = {"openmpi-3-mixed": 0, "mpich-4-mixed": 8}
"""And how many starts of persistent collectives each has."""
BLOCKING = ("world", "copy", "halves")
PARTS = (*BLOCKING, "non-blocking", "messages")
SIZES = {"openmpi": {"world": 168, "copy": 168, "halves": 168}, "mpich": {"world": 126, "copy": 126, "halves": 84}}


def score_of(name, folder):
    with tarfile.open(FOLDER / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return scored(folder, folder / "run")


@pytest.fixture(scope="module", params=RECORDINGS)
def score(request, tmp_path_factory):
    return score_of(request.param, tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize("name", MIXED)
def test_what_is_under_way_at_once_is_as_in_the_record(name, tmp_path):
    score = score_of(name, tmp_path)
    whole = score.total()
    assert (whole.right, whole.partial, score.wrong) == (whole.planted, 0, 0)
    assert whole.planted > 100
    assert whole.sizes_right == whole.sizes
    assert whole.wait_ns == pytest.approx(whole.record_wait_ns, rel=0.01)
    # an exchange in one call may have waited for its message as for its receiver
    assert whole.waits - whole.waits_right <= 0.04 * whole.waits
    assert any("completed by calls that test, such as MPI_Test" in note for note in score.notes)
    unknown = [note for note in score.notes if "set-up in the reports" in note]
    assert [int(note.split()[0]) for note in unknown] == [n for n in [MIXED[name]] if n]


def test_the_record_plants_operations_of_all_parts(score):
    assert {part for part, _kind in score.parts} == set(PARTS)
    assert all(score.total(part).planted >= 40 for part in PARTS)
    assert {kind for part, kind in score.parts if part == "world"} == {
        *(
            "AllGather",
            "AllReduce",
            "AllToAll",
            "Barrier",
            "Broadcast",
            "Exscan",
            "Gather",
            "Reduce",
            "ReduceScatter",
            "Scan",
            "Scatter",
        )
    }


def test_no_calls_are_put_together_that_do_not_belong_together(score):
    assert score.wrong == 0


@pytest.mark.parametrize("part", PARTS)
def test_every_instance_is_as_in_the_record(score, part):
    found = score.total(part)
    assert (found.right, found.partial) == (found.planted, 0)


@pytest.mark.parametrize("part", PARTS)
def test_every_wait_is_as_in_the_record(score, part):
    found = score.total(part)
    assert found.waits_right == found.waits
    assert found.wait_ns == pytest.approx(found.record_wait_ns, rel=0.01)


@pytest.mark.parametrize("part", BLOCKING)
def test_the_size_of_every_message_is_as_in_the_record(score, part):
    found = score.total(part)
    assert (found.sizes_right, found.sizes + found.sizes_ambiguous) == (
        found.sizes,
        SIZES[score.name.partition("-")[0]][part],
    )
    assert found.sizes_ambiguous <= 0.15 * found.sizes


@pytest.mark.parametrize("part", ["non-blocking", "messages"])
def test_sizes_of_what_only_begins_are_as_in_the_record(score, part):
    found = score.total(part)
    assert found.sizes_right == found.sizes


def test_processes_of_one_host_share_a_clock(score):
    assert score.clock_error_ns <= 2_000
