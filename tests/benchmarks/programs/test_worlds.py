"""One program as profilers record it by default, and in the ideal world."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from benchmarks.programs.draw import draw, plant
from benchmarks.programs.worlds import as_ideal, as_recorded


def test_the_default_is_what_profilers_record():
    program = plant(10, "straggler")
    assert draw(10, "straggler") == as_recorded(program, 10)
    assert draw(10, "straggler", ideal=True) == as_ideal(program) == as_ideal(as_recorded(program, 10))
    recorded, ideal = as_recorded(program, 10), as_ideal(program)
    assert (recorded.scatter, recorded.view.streams_differ, recorded.view.protocols_differ) == (1.0, True, True)
    assert (ideal.scatter, ideal.view.streams_differ, ideal.view.protocols_differ, ideal.view.nccl) == (
        0.0,
        False,
        False,
        "json",
    )
    assert replace(recorded, view=ideal.view, scatter=0.0) == ideal  # the program itself is the same


def test_what_reports_tell_is_mixed_as_in_real_jobs():
    program = plant(10, "none")
    program = replace(
        program, grid=replace(program.grid, hosts=1), view=replace(program.view, late=())
    )  # four ranks on a host
    seen = [as_recorded(program, seed) for seed in range(2_000)]
    shares = Counter(p.view.nccl for p in seen)
    assert 0.49 < (shares["json"] + shares["binary"]) / 2_000 < 0.58
    assert 0.30 < shares["names"] / 2_000 < 0.37
    assert 0.11 < shares["none"] / 2_000 < 0.16
    assert 0.17 < sum(p.view.devices > 1 for p in seen) / 2_000 < 0.23
    assert all((program.grid.ranks // program.grid.hosts) % p.view.devices == 0 for p in seen)
    assert all(p.view.groups == (p.view.nccl != "none") for p in seen)


def test_a_job_of_mpi_has_no_ranges_of_nccl_and_a_rank_without_a_report_is_a_process():
    program = replace(plant(10, "none"), mpi=True)
    assert {as_recorded(program, seed).view.nccl for seed in range(50)} == {as_ideal(program).view.nccl} == {"none"}
    alone = replace(program, mpi=False, view=replace(program.view, missing=(1,)))
    assert {as_recorded(alone, seed).view.devices for seed in range(100)} == {1}
