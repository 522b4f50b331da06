"""Which ranks share a clock."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from alltrace.align.clock_sharing import place_ranks
from alltrace.align.clocks import solve
from alltrace.align.members import Evidence
from benchmarks.accuracy_clocks import Job, errors_ns, simulate

JOB = Job(hosts=3, per_host=4, tensor=2, steps=12, layers=2, span_s=20.0, drift_ppm=0.0, seed=3)


def clocks_of(solution, ranks):
    return {p.host: {solution.shared[q.rank] for q in ranks if q.host == p.host} for p in ranks}


def test_processes_of_a_host_share_its_clock_if_their_ends_agree_with_their_stamps():
    simulated = simulate(replace(JOB, stamp_ms=0.0))
    solution = solve(simulated.evidence, simulated.ranks)
    assert all(len(numbers) == 1 for numbers in clocks_of(solution, simulated.ranks).values())
    assert all(-1 <= error <= 1 for error in solution.stamp_errors_ns.values())


def test_processes_whose_stamps_contradict_their_ends_have_clocks_of_their_own():
    simulated = simulate(replace(JOB, stamp_ms=2.0))
    solution = solve(simulated.evidence, simulated.ranks)
    assert all(len(numbers) == 4 for numbers in clocks_of(solution, simulated.ranks).values())
    assert errors_ns(simulated, solution).max() < 4_000


def test_of_one_host_alone_a_process_with_a_wrong_stamp_takes_its_mates_apart_but_not_other_hosts():
    simulated = simulate(replace(JOB, stamp_ms=0.0))
    ranks = [replace(p, shift_ns=p.shift_ns + 4_000_000 * (p.rank == 5)) for p in simulated.ranks]
    shared = clocks_of(solve(simulated.evidence, ranks), ranks)
    assert {host: len(numbers) for host, numbers in shared.items()} == {"node0": 1, "node1": 4, "node2": 1}


def test_ranks_that_are_always_late_keep_their_hosts_clock():
    simulated = simulate(replace(JOB, stamp_ms=0.0))
    late = np.where(simulated.evidence.rank % 4 == 1, 20_000, 0)
    solution = solve(replace(simulated.evidence, end=simulated.evidence.end + late), simulated.ranks)
    assert all(len(numbers) == 1 for numbers in clocks_of(solution, simulated.ranks).values())


def test_processes_without_stamps_share_a_clock_among_themselves_unless_their_ends_differ():
    simulated = simulate(replace(JOB, stamp_ms=0.0))
    stamped = {1, 3, 8, 9, 10, 11}
    ranks = [
        replace(p, stamped=p.rank in stamped, shift_ns=p.shift_ns + 4_000_000 * (p.rank == 9)) for p in simulated.ranks
    ]
    solution = solve(simulated.evidence, ranks)
    shared = [solution.shared[p.rank] for p in ranks]
    assert shared[0] == shared[2] != shared[1] == shared[3], (
        "a report without a stamp does not share a clock with one that has one"
    )
    assert len(set(shared[4:8])) == 1
    assert len(set(shared[8:])) == 4, "the stamp of one of four is wrong"


def test_hosts_that_are_containers_of_one_machine_share_its_monotonic_clock():
    simulated = simulate(replace(JOB, monotonic=True))
    for machines in ({"node1"}, {"node0", "node1", "node2"}):
        ranks = [replace(p, host=f"container{p.rank}") if p.host in machines else p for p in simulated.ranks]
        shared = solve(simulated.evidence, ranks).shared
        assert [len({shared[r] for r in range(first, first + 4)}) for first in (0, 4, 8)] == [1, 1, 1]
        assert len(set(shared.values())) == 3
    unknown = [replace(p, system_ns=None) for p in ranks]
    assert len(set(solve(simulated.evidence, unknown).shared.values())) == 12


def test_ranks_that_end_far_later_keep_their_hosts_clock_if_another_one_would_break_the_law():
    """Two pairs that only their host connects; one rank mostly ends its operations 0.2 ms after its mate, in two
    modes."""
    long_ns, starts = 30_000, np.arange(40) * 1_000_000
    late = np.where(np.arange(40) % 8 == 0, 0, 200_000)
    instance, communicator, rank, start, end = [], [], [], [], []
    for pair in range(2):
        for n, (begin, delay) in enumerate(zip(starts.tolist(), late.tolist(), strict=True)):
            for member in range(2):
                slow = pair == 0 and member == 1
                instance.append(40 * pair + n)
                communicator.append(pair)
                rank.append(2 * pair + member)
                start.append(begin)
                end.append(begin + long_ns + delay * slow)
    columns = [np.array(c, np.int64) for c in (instance, communicator, rank, start, end)]
    evidence = Evidence(*columns, np.ones(len(rank), np.bool_), np.zeros(len(rank), np.int8))
    simulated = simulate(replace(JOB, stamp_ms=0.0))
    ranks = [replace(p, rank=n, host="node0", shift_ns=0, report=n) for n, p in enumerate(simulated.ranks[:4])]
    solution = solve(evidence, ranks)
    assert len({solution.shared[p.rank] for p in ranks}) == 1


def test_ranks_are_placed_by_their_stamps_and_the_monotonic_clock_of_their_report():
    def rank(number, base, *reports):
        return SimpleNamespace(rank=number, host="h", reports=reports, time_base_utc_ns=base)

    reports = [SimpleNamespace(system_clock_ns=70), SimpleNamespace(system_clock_ns=80)]
    ranks = [rank(0, 150, 0), rank(1, None, 1), rank(2, 130), rank(3, 110, 2)]
    placed = place_ranks(SimpleNamespace(zero_utc_ns=100, ranks=ranks, reports=reports))
    assert [(p.report, p.shift_ns, p.system_ns, p.stamped) for p in placed] == [
        (0, 50, 70, True), (1, 0, 80, False), (-3, 30, None, True), (2, 10, None, True)
    ]  # fmt: skip
    unstamped = place_ranks(SimpleNamespace(zero_utc_ns=None, ranks=ranks[:1], reports=reports))
    assert (unstamped[0].shift_ns, unstamped[0].stamped) == (0, False)
