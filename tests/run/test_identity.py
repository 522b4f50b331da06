"""Who is which rank: from evidence alone, without a file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alltrace.readers.base import Report, ReportProcess
from alltrace.run.identity import Source, natural_key, plan_ranks


def report(path, *, host="node1", pid=100, environment=None, mpi=None, utc_ns=0, world_size=None, processes=None):
    lead = ReportProcess(0, pid, mpi_rank=mpi, gpu=True, device_ordinal=0)
    return Report(
        path=str(path),
        format="test",
        profiler="test",
        host=host,
        utc_ns=utc_ns,
        processes=processes or (lead,),
        environment=environment or {},
        world_size=world_size,
    )


def found(plan):
    return [(r.rank, r.source, [s.report for s in r.sources]) for r in plan.ranks]


LAUNCHERS = [
    "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PALS_RANKID", "PMIX_RANK", "MV2_COMM_WORLD_RANK", "JSM_NAMESPACE_RANK",
    "FLUX_TASK_RANK", "SLURM_PROCID",
]  # fmt: skip


@pytest.mark.parametrize("best", range(len(LAUNCHERS)))
def test_a_better_source_comes_before_all_worse_ones(best):
    """Source number `best` says 0, 1; everything worse, the file names too, says the opposite."""
    both = []
    for rank in (0, 1):
        environment = {LAUNCHERS[best]: str(rank), **{v: str(1 - rank) for v in LAUNCHERS[best + 1 :]}}
        both.append(report(f"x_rank{1 - rank}.sqlite", pid=rank, environment=environment))
    assert found(plan_ranks(both)) == [(0, LAUNCHERS[best], [0]), (1, LAUNCHERS[best], [1])]


def test_what_the_profiler_recorded_of_mpi_comes_first():
    both = [report(f"x_rank{r}.sqlite", pid=r, environment={"RANK": str(r)}, mpi=1 - r) for r in (0, 1)]
    assert found(plan_ranks(both)) == [(0, "MPI_RANKS", [1]), (1, "MPI_RANKS", [0])]


def test_slurm_under_mpirun_numbers_nobody():
    reports = [report(f"x_rank{r}.sqlite", pid=r, environment={"SLURM_PROCID": "0"}) for r in range(4)]
    plan = plan_ranks(reports)
    assert found(plan) == [(r, "file name", [r]) for r in range(4)]
    assert plan.notes == ("SLURM_PROCID gives rank 0 to all 4 processes that have it, so it was not used",)
    with_mpirun = [
        x._replace(environment={"SLURM_PROCID": "0", "OMPI_COMM_WORLD_RANK": str(3 - i)}) for i, x in enumerate(reports)
    ]
    plan = plan_ranks(with_mpirun)
    assert found(plan) == [(r, "OMPI_COMM_WORLD_RANK", [3 - r]) for r in range(4)]
    assert plan.notes == ()


def test_without_a_number_ten_comes_after_two():
    plan = plan_ranks([report(f"trace_{n}.sqlite", pid=n) for n in (10, 2, 1)])
    assert found(plan) == [(0, "order", [2]), (1, "order", [1]), (2, "order", [0])]
    assert "from the order of file names" in plan.notes[0]


@pytest.mark.parametrize("text", ["x²", "rank²", "١٢", "a1b2", "", "9" * 5000])
def test_any_text_has_a_key(text):
    assert natural_key(text) == natural_key(text)
    assert natural_key("rank2") < natural_key("rank10")


def test_two_processes_of_one_report_with_one_id_are_two_ranks():
    two = tuple(ReportProcess(n, 5, gpu=True, device_ordinal=n) for n in range(2))
    assert [(r.pids, r.sources) for r in plan_ranks([report("a.sqlite", processes=two)]).ranks] == [
        ((5,), (Source(0, (n,)),)) for n in range(2)
    ]
    ranges = [report(f"a.{n}.sqlite", processes=two, utc_ns=n) for n in (1, 2)]
    assert [r.sources for r in plan_ranks(ranges).ranks] == [(Source(0, (n,)), Source(1, (n,))) for n in range(2)]


def test_one_report_of_several_processes_is_several_ranks():
    processes = tuple(ReportProcess(n, 50 + n, mpi_rank=3 - n, gpu=True, device_ordinal=n) for n in range(4))
    plan = plan_ranks([report("all.sqlite", processes=(*processes, ReportProcess(4, 99)))])
    assert [(r.rank, r.pids, r.sources[0].processes) for r in plan.ranks] == [
        (0, (53,), (3,)),
        (1, (52,), (2,)),
        (2, (51,), (1,)),
        (3, (50, 99), (0, 4)),
    ]
    assert [r.local_rank for r in plan.ranks] == [0, 1, 2, 3]


def test_the_environment_of_a_report_is_no_evidence_for_several_processes():
    processes = tuple(ReportProcess(n, 50 + n, gpu=True, device_ordinal=1 - n) for n in range(2))
    plan = plan_ranks([report("all_rank7.sqlite", processes=processes, environment={"RANK": "5"})])
    assert [(r.rank, r.source, r.pids) for r in plan.ranks] == [(0, "order", (51,)), (1, "order", (50,))]


def test_two_hosts_may_have_the_same_process_number():
    plan = plan_ranks([report("a.1.sqlite", host="n1", mpi=0), report("a.2.sqlite", host="n2", mpi=1)])
    assert [(r.rank, r.host, r.local_rank, r.pids) for r in plan.ranks] == [(0, "n1", 0, (100,)), (1, "n2", 0, (100,))]


def test_capture_ranges_of_one_process_are_one_rank_in_time_order():
    """The second range began after MPI_Init, so it knows no rank."""
    ranges = [
        report("rep.2.sqlite", utc_ns=500),
        report("rep.10.sqlite", utc_ns=900),
        report("rep.1.sqlite", utc_ns=100, mpi=3),
    ]
    plan = plan_ranks(ranges)
    assert found(plan) == [(3, "MPI_RANKS", [2, 0, 1])]
    assert plan.missing == (0, 1, 2)


@pytest.mark.parametrize("evidence", [{"mpi": 0}, {"environment": {"RANK": "0"}}])
def test_containers_with_one_process_number_are_not_taken_for_capture_ranges(evidence):
    other = {"mpi": 1} if "mpi" in evidence else {"environment": {"RANK": "1"}}
    plan = plan_ranks([report("rep.0.sqlite", **evidence), report("rep.1.sqlite", **other)])
    assert [(r.rank, [s.report for s in r.sources]) for r in plan.ranks] == [(0, [0]), (1, [1])]


def test_a_process_that_was_started_again_is_the_same_rank():
    first = [report(f"j_rank{r}_on_n.nsys-rep", pid=r, environment={"RANK": str(r)}, utc_ns=5) for r in range(3)]
    again = report("j-restart1_rank1_on_n.nsys-rep", pid=9, environment={"RANK": "1"}, utc_ns=7)
    plan = plan_ranks([again, *first])
    assert found(plan) == [(0, "RANK", [1]), (1, "RANK", [2, 0]), (2, "RANK", [3])]
    assert plan.ranks[1].pids == (1, 9)
    assert plan.notes == ()
    alone = plan_ranks([first[0], report("j-restart1_rank2_on_n.nsys-rep", pid=9, environment={"RANK": "2"})])
    assert [r for r, *_ in found(alone)] == [0, 2]


def test_reports_of_one_process_that_are_no_capture_ranges_stay_apart():
    plan = plan_ranks([report("a.sqlite"), report("b.sqlite"), report("other/a.sqlite")])
    assert len(plan.ranks) == 3


def test_missing_ranks_are_named():
    plan = plan_ranks([report(f"x_rank{r}.sqlite", pid=r, world_size=8) for r in (0, 1, 5)])
    assert plan.missing == (2, 3, 4, 6, 7)
    assert plan.notes == ("ranks 2, 3, 4, 6, 7: no report",)
    assert plan_ranks([report("x_rank0.sqlite"), report("x_rank2.sqlite", pid=2)]).notes == ("rank 1: no report",)
    long = plan_ranks([report("x_rank0.sqlite", world_size=100)])
    assert long.notes[0].endswith("18, 19, 20 and 79 more: no report")


@pytest.mark.parametrize("number", [20240101123456, 1 << 20])
def test_a_date_in_a_name_is_no_rank(number):
    plan = plan_ranks([report(f"x_rank{number}.sqlite")])
    assert found(plan) == [(0, "order", [0])]
    assert plan.missing == ()


@pytest.mark.parametrize("rank", [-1, 1 << 40])
def test_damaged_ranks_and_sizes_are_passed_over(rank):
    plan = plan_ranks(
        [report("x.sqlite", mpi=rank, world_size=1 << 40, environment={"WORLD_SIZE": "999999999", "RANK": "2"})]
    )
    assert found(plan) == [(2, "RANK", [0])]
    assert plan.missing == (0, 1)


def test_reports_without_a_host():
    plan = plan_ranks([report("b.sqlite", host=None), report("a.sqlite", host=None)])
    assert [(r.host, r.sources[0].report) for r in plan.ranks] == [("host-0", 1), ("host-1", 0)]
    joined = plan_ranks([report("a.1.sqlite", host=None), report("a.2.sqlite", host=None, utc_ns=5)])
    assert [(r.host, len(r.sources)) for r in joined.ranks] == [("host-0", 2)]


def test_a_report_that_cannot_be_read_is_passed_over():
    assert found(plan_ranks([None, report("x_rank1.sqlite"), None])) == [(1, "file name", [1])]
    assert plan_ranks([None]).ranks == ()


def test_the_launchers_local_rank_is_kept_where_it_is_distinct():
    told = [report(f"x_rank{r}.sqlite", pid=r, environment={"LOCAL_RANK": str(1 - r)}) for r in (0, 1)]
    assert [r.local_rank for r in plan_ranks(told).ranks] == [1, 0]
    alike = [report(f"x_rank{r}.sqlite", pid=r, environment={"LOCAL_RANK": "0"}) for r in (0, 1)]
    assert [r.local_rank for r in plan_ranks(alike).ranks] == [0, 1]


some_reports = st.lists(
    st.builds(
        lambda stem, host, pid, rank, mpi: (stem, host, pid, rank, mpi),
        st.sampled_from(["a", "a.1", "a.2", "b", "x_rank1", "x_rank10", "x_rank2"]),
        st.sampled_from(["n1", "n2", None]),
        st.integers(1, 3),
        st.one_of(st.none(), st.integers(0, 3)),
        st.one_of(st.none(), st.integers(0, 3)),
    ),
    max_size=6,
    unique_by=lambda r: r[0],
)


@given(some_reports, st.randoms(use_true_random=False))
def test_the_order_of_the_reports_does_not_matter(given_reports, random):
    reports = [
        report(
            f"{stem}.sqlite",
            host=host,
            pid=pid,
            mpi=mpi,
            environment={} if rank is None else {"RANK": str(rank)},
            utc_ns=n,
        )
        for n, (stem, host, pid, rank, mpi) in enumerate(given_reports)
    ]
    order = list(range(len(reports)))
    random.shuffle(order)
    plan, other = plan_ranks(reports), plan_ranks([reports[i] for i in order])
    assert (other.notes, other.missing) == (plan.notes, plan.missing)
    assert [
        (r.rank, r.local_rank, r.host, r.pids, r.source, [(order[s.report], s.processes) for s in r.sources])
        for r in other.ranks
    ] == [
        (r.rank, r.local_rank, r.host, r.pids, r.source, [(s.report, s.processes) for s in r.sources])
        for r in plan.ranks
    ]
    assert len({r.rank for r in plan.ranks}) == len(plan.ranks)
    assert sorted(s.report for r in plan.ranks for s in r.sources) == list(range(len(reports)))


def stated(path, rank, **others):
    """A report that states its own rank."""
    lead = ReportProcess(0, 100, rank_hint=rank, rank_hint_source="distributedInfo", gpu=True)
    return report(path, processes=(lead,), **others)


def test_a_rank_that_the_report_states_comes_before_launchers_and_file_names_and_after_mpi():
    both = [stated(f"x_rank{r}.json", 1 - r, environment={"RANK": str(r)}) for r in (0, 1)]
    assert found(plan_ranks(both)) == [(0, "distributedInfo", [1]), (1, "distributedInfo", [0])]
    mixed = [report("a.sqlite", pid=1, mpi=0), stated("b.json", 0), stated("c.json", 1)]
    assert found(plan_ranks(mixed)) == [(0, "MPI_RANKS", [0]), (1, "distributedInfo", [2]), (2, "order", [1])]


def test_a_stated_rank_that_is_given_twice_proves_nothing():
    plan = plan_ranks([stated(f"rank{r}.json", 0) for r in (0, 1)])
    assert found(plan) == [(0, "file name", [0]), (1, "file name", [1])]
    assert plan.notes == ("distributedInfo gives rank 0 to all 2 processes that have it, so it was not used",)
    plan = plan_ranks([stated(f"rank{r}.json", max(r - 1, 0)) for r in (0, 1, 2)])
    assert found(plan) == [(r, "file name", [r]) for r in (0, 1, 2)]
    assert plan.notes[0].startswith("by distributedInfo 2 different processes are rank 0, so it was not used")
    assert plan.notes[0].endswith("Rank 0 is stated in rank0.json, rank1.json")


def test_folders_of_steps_hold_windows_of_the_same_processes():
    paths = [f"{folder}/rank{r}_trace.json" for folder in ("iteration_10", "iteration_20", "other") for r in (0, 1)]
    windows = [stated(path, n % 2, host=None, utc_ns=n) for n, path in enumerate(paths[:4])]
    plan = plan_ranks(windows)
    assert found(plan) == [(0, "distributedInfo", [0, 2]), (1, "distributedInfo", [1, 3])]
    assert (plan.notes, len({r.host for r in plan.ranks})) == ((), 2)
    # another process id, another rank, or a folder of another name is another process
    anew = [report(path, pid=n) for n, path in enumerate(paths[:4])]
    assert len(plan_ranks(anew).ranks) == 4
    assert len(plan_ranks([stated(path, n) for n, path in enumerate(paths[:4])]).ranks) == 4
    assert len(plan_ranks([stated(path, n % 2) for n, path in enumerate(paths[2:])]).ranks) == 4


def test_a_negative_rank_that_a_report_states_is_said():
    plan = plan_ranks([stated(f"x_{r}.json", r - 1) for r in (0, 1, 2)])
    assert [(r.rank, r.source) for r in plan.ranks] == [(0, "distributedInfo"), (1, "distributedInfo"), (2, "order")]
    assert "a negative rank is stated in x_0.json, so it is not used" in plan.notes


@pytest.mark.parametrize("suffix", [".pt.trace.json.gz", ".json.zst", ".json"])
def test_traces_of_one_process_are_joined_and_of_two_ranks_are_not(suffix):
    windows = [stated(f"node_100.{n}{suffix}", 3, utc_ns=n) for n in (1, 2)]
    assert found(plan_ranks(windows)) == [(3, "distributedInfo", [0, 1])]
    ranks = [stated(f"trace.{n}{suffix}", n) for n in (0, 1)]  # containers may all number the process alike
    assert found(plan_ranks(ranks)) == [(0, "distributedInfo", [0]), (1, "distributedInfo", [1])]


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        # tensor parallel ranks of two pipeline stages
        (["1700-TP-0-PP-0", "1700-TP-1-PP-0", "1700-TP-0-PP-1", "1700-TP-1-PP-1"], [0, 1, 2, 3]),
        # attention in data parallel: the same ranks divided anew
        (["x-1700-TP-0-DP-0-EP-0", "x-1700-TP-1-DP-0-EP-1", "x-1700-TP-2-DP-1-EP-2"], [0, 1, 2]),
        # replicas of their own
        (["1700-TP-0-DP-0", "1700-TP-1-DP-0", "1700-TP-0-DP-1", "1700-TP-1-DP-1"], [0, 1, 2, 3]),
        (
            [
                "dp0_pp0_tp0_dcp0_ep0.17",
                "dp0_pp0_tp1_dcp0_ep1.18",
                "dp1_pp0_tp0_dcp0_ep2.19",
                "dp1_pp0_tp1_dcp0_ep3.20",
            ],
            [0, 1, 2, 3],
        ),
        (["tp=0,pp=0", "tp=1,pp=0", "tp=0,pp=1", "tp=1,pp=1"], [0, 1, 2, 3]),
        (["dp_rank0_tp_rank0", "dp_rank0_tp_rank1", "dp_rank1_tp_rank0", "dp_rank1_tp_rank1"], [0, 1, 2, 3]),
        (["cp0-tp0", "cp0-tp1", "cp1-tp0", "cp1-tp1"], [0, 1, 2, 3]),
    ],
)
def test_parallel_ranks_in_names_of_files_number_the_ranks(names, ranks):
    plan = plan_ranks([stated(f"{n}.trace.json.gz", 0, pid=n) for n in names])
    assert [r for r, _, _ in found(plan)] == ranks
    assert [s for _, _, (s,) in found(plan)] == list(range(len(names)))
    assert {source for _, source, _ in found(plan)} == {"parallel ranks in the file name"}
    assert plan.missing == ()


def test_ranks_of_several_frameworks_are_one_run():
    reports = [report(f"rank_{n}.json", pid=n) for n in range(14)]
    plan = plan_ranks(
        [*reports, report("17-TP-14.trace.json.gz", pid=14), report("dp0_pp0_tp15_dcp0_ep15.3.pt.trace.json", pid=15)]
    )
    assert [(r, *s) for r, _, s in found(plan)] == [(n, n) for n in range(16)]
    assert plan.missing == ()


def test_a_number_of_parallel_ranks_in_a_name_is_no_rank():
    assert found(plan_ranks([report("llama_tp8_pp2.sqlite")])) == [(0, "order", [0])]


def test_stages_that_sglang_profiles_apart_are_one_rank():
    names = ("17-TP-0-EXTEND", "17-TP-1-EXTEND", "17-TP-0-DECODE", "17-TP-1-DECODE")
    plan = plan_ranks([stated(f"{n}.trace.json.gz", int(n[6]), pid=int(n[6]), utc_ns=k) for k, n in enumerate(names)])
    assert found(plan) == [(0, "distributedInfo", [0, 2]), (1, "distributedInfo", [1, 3])]


def test_a_companion_goes_to_the_rank_of_its_number_or_is_one():
    beside = [report(f"memory_rank{r}.pickle")._replace(companion=True) for r in (1, 4)]
    plan = plan_ranks([*(stated(f"x{r}.json", r) for r in (0, 1)), *beside])
    assert found(plan) == [(0, "distributedInfo", [0]), (1, "distributedInfo", [1, 2]), (4, "file name", [3])]
    assert found(plan_ranks([report("memory.pickle")._replace(companion=True)])) == [(0, "order", [0])]


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        ([f"trace-{n}-of-16.json" for n in (2, 10, 0, 15)], [2, 10, 0, 15]),
        ([f"trace-{n}-of-16.json" for n in (2, 10, 1, 16)], [1, 9, 0, 15]),
        ([f"run3_{n}_of_4.pt.trace.json.gz" for n in range(4)], [0, 1, 2, 3]),
        ([f"llm_{n}.sqlite" for n in (5, 0, 11)], [5, 0, 11]),
        (["gpu3.sqlite", "gpu1.sqlite"], [3, 1]),
        (["run2.sqlite", "run1.sqlite", "run3.sqlite"], [1, 0, 2]),
        (["report1.nsys-rep", "report2.nsys-rep"], [0, 1]),
        (["my-report3.sqlite", "my-report4.sqlite"], [0, 1]),
        (["trace.100.sqlite", "trace.200.sqlite"], [0, 1]),
        (["job_1.sqlite", "other_2.sqlite"], [0, 1]),
        (["TP01-PP00.json", "TP00-PP00.json", "TP00-PP01.json", "TP01-PP01.json"], [1, 0, 2, 3]),
        (["http_1_load.json", "http_0_load.json"], [1, 0]),
        (["0002.json", "0000.json", "0005.json"], [2, 0, 5]),
        (["20240101.json", "20240102.json"], [0, 1]),
        (["prof-2of3.json", "prof-1of3.json", "prof-3of3.json"], [1, 0, 2]),
    ],
)
def test_numbers_in_names_of_files(names, ranks):
    plan = plan_ranks([report(name, pid=1000 + n) for n, name in enumerate(names)])
    numbers = {r.sources[0].report: r.rank for r in plan.ranks}
    assert [numbers[n] for n in range(len(names))] == ranks


def numbered_from_1(places, **others):
    """Reports with the numbers 1, 2, ... in their names, of processes at (host, device)."""
    return [
        report(
            f"profile.{n}.sqlite", host=host, processes=(ReportProcess(0, 100 + n, gpu=True, device_ordinal=device),)
        )._replace(**others)
        for n, (host, device) in enumerate(places, start=1)
    ]


@pytest.mark.parametrize(
    ("places", "others", "first"),
    [
        ([("a", 0), ("a", 1), ("a", 2)], {}, 0),
        ([("a", 1), ("a", 2), ("a", 3)], {}, 1),
        ([("a", None)] * 3, {}, 0),
        ([("a", None)] * 3, {"world_size": 4}, 1),
        ([("a", 1), ("a", 2), ("a", 3)], {"world_size": 3}, 0),
        ([("a", 1), ("a", 2), ("b", 1), ("b", 2)], {}, 0),
        ([("a", 0)] * 3 + [("b", 0)] * 4, {}, 1),
        ([("a", 0)] * 4 + [("b", 0)] * 3, {}, 0),
        ([("a", 0)] * 3 + [("b", 0)] * 3, {}, 0),
        ([("a", 0)] * 2 + [("b", 0)] * 4, {}, 0),
        ([("a", 0)] * 3 + [("b", 0)] * 3 + [("c", 0)] * 4, {}, 0),
    ],
)
def test_numbers_from_1_are_ranks_if_rank_0_has_no_report(places, others, first):
    plan = plan_ranks(numbered_from_1(places, **others))
    assert [rank for rank, _, _ in found(plan)] == list(range(first, first + len(places)))
    assert plan.missing == tuple(range(first))


def test_the_world_size_is_that_of_the_names():
    assert plan_ranks([report(f"trace-{n}-of-4.json", pid=n) for n in (0, 1, 3)]).missing == (2,)


def test_process_ids_in_names_are_no_ranks():
    plan = plan_ranks([report(f"x_{pid}.sqlite", pid=pid) for pid in (12, 7)])
    assert {r.source for r in plan.ranks} == {"order"}


def test_hosts_in_names_count_where_reports_have_none():
    """Two hosts of four ranks, each rank in two windows."""
    names = [f"node{h}-rank{4 * h + r}-iter{i}.json" for h in range(2) for r in range(4) for i in (5, 10)]
    plan = plan_ranks([report(name, host=None, pid=100 + n // 2, utc_ns=n) for n, name in enumerate(names)])
    assert [(r.rank, r.host, r.local_rank, len(r.sources)) for r in plan.ranks] == [
        (n, f"node{n // 4}", n % 4, 2) for n in range(8)
    ]
    gpus = plan_ranks([report(f"node{n // 2}_gpu{n % 2}.json", host=None, pid=n) for n in range(4)])
    assert [(r.host, r.local_rank) for r in gpus.ranks] == [("node0", 0), ("node0", 1), ("node1", 0), ("node1", 1)]
    told = plan_ranks([report(name, host="h", pid=100 + n // 2, utc_ns=n) for n, name in enumerate(names)])
    assert {r.host for r in told.ranks} == {"h"}


def test_the_name_of_the_trace_before_the_rank_is_no_host():
    plan = plan_ranks([report(f"trace-rank{n}.json", host=None, pid=n) for n in range(4)])
    assert [r.host for r in plan.ranks] == [f"host-{n}" for n in range(4)]
    plan = plan_ranks([report(f"{kind}-rank{n}.json", host=None, pid=n) for n, kind in enumerate(("a", "b", "c"))])
    assert [r.host for r in plan.ranks] == ["host-0", "host-1", "host-2"]


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"world_size": 8}, "the reports state different world sizes: 4 in 3 of them, 8 in x_1.sqlite"),
        ({"environment": {"RANK": "9"}}, "rank 9 is beyond its world size of 4 in x_1.sqlite"),
        ({"environment": {"RANK": "-1"}}, "a negative rank is stated in x_1.sqlite, so it is not used"),
    ],
)
def test_what_a_report_cannot_be_of_is_said_with_its_path(change, note):
    usual = [{"pid": n, "world_size": 4, "environment": {"RANK": str(n)}} for n in range(4)]
    usual[1] |= change
    assert note in plan_ranks([report(f"x_{n}.sqlite", **of) for n, of in enumerate(usual)]).notes


def test_ranks_that_agree_have_no_note():
    assert (
        plan_ranks([report(f"x_{n}.sqlite", pid=n, world_size=2, environment={"RANK": str(n)}) for n in range(2)]).notes
        == ()
    )


def recorded(name, first, last, *, pid=7, host="h", rank=None, folder="d", **more):
    its = (
        ReportProcess(0, pid, gpu=True, rank_hint=rank, rank_hint_source=None if rank is None else "distributedInfo"),
    )
    return report(f"{folder}/{name}.json", host=host, processes=its, **more)._replace(
        start_ns=first, last_ns=last, utc_ns=10
    )


def sources_of(*reports):
    return sorted([s.report for s in r.sources] for r in plan_ranks(reports).ranks)


def test_windows_of_one_process_under_any_names():
    """What one process recorded, one after the other, is of one rank."""
    assert sources_of(recorded("end", 200, 300), recorded("begin", 0, 100), recorded("x", 0, 90, pid=8)) == [
        [1, 0],
        [2],
    ]
    # without the name of its host, in one folder
    assert sources_of(recorded("b", 200, 300, host=None), recorded("a", 0, 100, host=None)) == [[1, 0]]
    assert sources_of(recorded("b", 200, 300, host=None), recorded("a", 0, 100, host=None, folder="e")) == [[0], [1]]
    # at once, as containers have one process id each, of other ranks, or without times
    assert sources_of(recorded("b", 50, 300), recorded("a", 0, 100)) == [[0], [1]]
    assert sources_of(recorded("b", 200, 300, rank=0), recorded("a", 0, 100, rank=1)) == [[0], [1]]
    assert sources_of(
        recorded("b", 200, 300, environment={"RANK": "0"}), recorded("a", 0, 100, environment={"RANK": "1"})
    ) == [[0], [1]]
    assert sources_of(recorded("b", 200, None), recorded("a", 0, 100)) == [[0], [1]]


def test_a_rank_in_the_name_that_is_not_the_stated_one_is_said():
    plan = plan_ranks([stated("rank1.json", 0, pid=1), stated("rank0.json", 1, pid=2), stated("rank2.json", 2, pid=3)])
    assert plan.notes == ("reports state another rank than their names: rank 1 in rank0.json, rank 0 in rank1.json",)
    by_user = stated("rank1.json", 0, pid=1)
    by_user = by_user._replace(processes=(by_user.processes[0]._replace(rank_hint_source="ranks.csv"),))
    assert plan_ranks([by_user]).notes == ()


def test_a_world_size_in_the_name_that_is_not_the_stated_one_is_said():
    plan = plan_ranks([stated(f"trace-{n}-of-4.json", n, pid=n, world_size=2) for n in (0, 1)])
    assert plan.notes[0] == (
        "the reports state different world sizes: 2 in 2 of them, 4 in trace-0-of-4.json, trace-1-of-4.json"
    )
