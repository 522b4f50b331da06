"""Ranks are compared with those of their role: another role has other work by design."""

from __future__ import annotations

import random

import pytest
from tests.making import collective, kernel, make_run

MS = 1_000_000
STEPS = 12
ROLES = {**dict.fromkeys(range(4), "trainer"), **dict.fromkeys(range(4, 8), "rollout")}
COMPARED = {"straggler", "slow-host", "imbalance", "jitter"}


def program(folder, factor, *, roles=ROLES, works=None, hosts=None):
    """Eight ranks meet at the end of each step; `factor(rank, step)` of its kernels' time each rank takes.

    Trainers have 20 kernels of 1 ms a step, and rollouts 20 of the same kernel on the same grid, of 0.5 ms.
    """
    rows = {}
    for rank in range(8):
        kernels, ranges, api, at = [], [], [], 0
        ahead = [random.Random(n) for n in range(STEPS)]
        for step in range(STEPS):
            start, number = at, 1000 * step
            length = MS if ROLES[rank] == "trainer" else MS // 2
            count = 20 if works is None else works(rank, step)
            for n in range(count):
                took = round(length * factor(rank, step) * ahead[step].uniform(0.999, 1.001))
                kernels.append(
                    kernel(at, at + took, correlation=number + n, grid_x=64, grid_y=1, grid_z=1, block_x=128)
                )
                api.append(
                    {"start": start + n, "end": start + n + 1, "name": "cudaLaunchKernel", "correlation": number + n}
                )
                at += took
            end = start + 40 * MS
            kernels.append(collective(at, end, correlation=number + 999))
            api.append(
                {"start": start + 900, "end": start + 901, "name": "cudaLaunchKernel", "correlation": number + 999}
            )
            ranges.append({"start": start, "end": end, "name": f"step {step}", "kind": "pushpop"})
            at = end
        rows[rank] = {"kernels": kernels, "ranges": ranges, "api": api}
    return make_run(folder, rows, roles=roles, hosts=hosts)


def found(run):
    return [(r["kind"], r["ranks"]) for r in run.recipe("diagnose").to_pylist() if r["kind"] in COMPARED]


def even(_rank, _step):
    return 1.0


def test_a_role_with_longer_kernels_is_no_straggler(tmp_path):
    assert found(program(tmp_path / "run", even)) == []


def test_without_roles_they_are_compared(tmp_path):
    """The same numbers of ranks that do the same: the slow half is found."""
    kinds = {kind for kind, _ranks in found(program(tmp_path / "run", even, roles=None))}
    assert kinds & COMPARED


@pytest.mark.sampled(2)
@pytest.mark.parametrize("slow", [1, 6])
def test_a_slow_rank_is_found_among_its_role(tmp_path, slow):
    run = program(tmp_path / "run", lambda rank, _step: 1.3 if rank == slow else 1.0)
    assert ("straggler", [slow]) in found(run)
    assert {tuple(ranks) for _kind, ranks in found(run)} == {(slow,)}


@pytest.mark.slow
def test_a_slow_host_is_found_within_a_role(tmp_path):
    """The rollouts of host b are slow, and its trainers are not."""
    hosts = {rank: "a" if rank % 4 < 2 else "b" for rank in range(8)}
    run = program(tmp_path / "run", lambda rank, _step: 1.3 if rank in (6, 7) else 1.0, hosts=hosts)
    assert ("slow-host", [6, 7]) in found(run)


def test_uneven_work_within_a_role_is_found_though_it_moves_over_all_of_its_ranks(tmp_path):
    run = program(tmp_path / "run", even, works=lambda rank, step: 28 if rank == step % 4 else 20)
    assert ("imbalance", [0, 1, 2, 3]) in found(run)


def test_a_role_with_more_kernels_is_no_imbalance(tmp_path):
    assert found(program(tmp_path / "run", even, works=lambda rank, _step: 30 if rank >= 4 else 20)) == []
