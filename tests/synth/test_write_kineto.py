"""One simulated run as an nsys export and as traces of the PyTorch profiler: twins with the same answers."""

import json
import re

import pytest

from alltrace.api import open_run
from alltrace.recipes.registry import NVIDIA_RECIPES, REPORTS, find, names
from alltrace.run.importer import import_reports
from alltrace.synth import write_run
from alltrace.synth.truth import Truth

NEUTRAL = {"gpu", "communicator", "Communicator", "File", "Min File", "Max File"}
"""What the profilers tell apart: Kineto has no UUIDs, its own time 0, and process groups for communicators."""


@pytest.fixture(scope="module", params=["tiny", "sharded", "tensor-data", "pipeline"])
def twins(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("twins")
    size = (
        {}
        if request.param == "tiny"
        else {"ranks": 4, "steps": 2}
        if request.param == "sharded"
        else {"ranks": 8, "steps": 2}
    )
    runs = []
    for form in ("sqlite", "kineto"):
        write_run(request.param, folder / form, form, **size, ideal=True)
        runs.append(imported([folder / form], folder / f"run-{form}"))
    return request.param, *runs


def imported(paths, output):
    import_reports([str(p) for p in paths], output, jobs=1)
    return open_run(output)


def rows(run, recipe, **options):
    return [{k: v for k, v in r.items() if k not in NEUTRAL} for r in run.recipe(recipe, **options).to_pylist()]


NOT_RECORDED = {
    "kernel-counters": "counters that CUPTI measures kernel by kernel", "memory": "blocks of PyTorch's allocator",
    "memory-peak": "blocks of PyTorch's allocator", "memory-steps": "blocks of PyTorch's allocator",
    "memory-timeline": "blocks of PyTorch's allocator", "gpu-rates": "samples of GPU metrics",
    "metric-attribution": "samples of GPU metrics", "gpu_metric_util_map": "samples of GPU metrics",
    "gpu_metric_util_sum": "samples of GPU metrics", "network_map_aws": "metrics of network adapters",
    "network_sum": "metrics of network adapters", "network_traffic_map": "metrics of network adapters",
    "nvlink_sum": "samples of NVLink", "storage_util_map": "metrics of storage",
    "stats:network_congestion": "metrics of network switches", "mpi_sum": "calls of MPI",
    "stats:mpi_event_sum": "calls of MPI", "stats:mpi_event_trace": "calls of MPI",
    "stats:mpi_msg_size_sum": "calls of MPI", "osrt_sum": "calls of the operating system",
    "file_access_sum": "calls of the operating system", "stats:osrt_sum": "calls of the operating system",
    "stats:syscall_sum": "system calls", "stats:openacc_sum": "OpenACC", "stats:openmp_sum": "OpenMP",
    "stats:um_sum": "moves of unified memory", "stats:um_total_sum": "moves of unified memory",
    "stats:um_cpu_page_faults_sum": "page faults of unified memory",
    "stats:nvtx_startend_sum": "ranges that start and end rather than nest",
    "nccl_gpu_proj_sum": "NCCL's own ranges: what Kineto has are PyTorch's calls of process groups",
}  # fmt: skip
"""What only nsys records: such a recipe has nothing to ask a Kineto trace, which a test of its own holds."""

KERNEL = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x256x64_warpgroupsize1x1x1_execute_kernel__5x_cublas"
ASKED = {
    "operators": {"by": "range"},
    "gaps": {"min_ns": 20_000, "rows": 0},
    "whatif": {"max_error": 1e9},
    "mfu": {"parameters": 7e9, "layers": 2, "hidden": 4096, "sequence": 4096, "batch": 8, "peak_tflops": 989},
    "cuda_gpu_kern_pace": {"name": KERNEL},
    "nvtx_pace": {"name": "optimizer"},
    "nvtx_gpu_proj_pace": {"name": "optimizer"},
}
NESTED = {"NumChild", "Avg Num Child", "DurChild (ns)", "DurNonChild (ns)"}
APART = {
    "diagnose": {"evidence"},
    "operators": {"cpu_self_ns", "gpu_self_ns", "gpu_self_percent"},
    "nccl_straggler": {"Times Last"},
    "stragglers": {"cause", "cause_percent", "communication_excess_ns", "root_share"},
    "nvtx_gpu_proj_trace": NESTED,
    "stats:nvtx_gpu_proj_sum": NESTED,
    "stats:nvtx_gpu_proj_trace": NESTED,
    "stats:nvtx_pushpop_trace": NESTED,
}
"""Columns that differ by right: NCCL's ranges under nsys are ranges within ranges, and who is last of two that arrive
within the residual of the clocks is chance."""

MOMENT = re.compile(r"(\w+_)?(start|end)_ns|(\w+ )?(Start|End)( \(ns\))?")
MOMENTS = {"analysis": "Duration", "heatmap": "Duration", "pace_start": "", "pace_end": ""}
"""Times since the run's zero, by name or by table, which are compared from the first on. Maps of nsys call their
moments so."""

NUMBERING = {"confidence", "RangeId", "ParentId", "RangeStack"}
"""Numbers that ranges bear within their report, and how sure a match is: NCCL 2.19 does not number its operations,
PyTorch does."""

NSYS_ALONE = {"StcSMem (MB)", "DymSMem (MB)", "Result", "T-Pri"}
"""Columns that Kineto has nothing for: it writes the sum of static and dynamic shared memory."""

TYPES = {"datatype", "Datatype"}
"""What nsys has from the names of kernels, of which only those that reduce tell it; Kineto has it of every operation. A
simulated message of an odd size is bytes there, whatever its kernel is called."""

NOT_RECORDED_TABLES = {
    ("nccl_sum", "all_stats"): "NCCL's own ranges",
    ("nccl_sum", "rank_stats"): "NCCL's own ranges",
    ("nccl_sum", "files"): "the ranks that have such ranges",
}

OF_RANGES = {
    "durations",
    "kernel-origins",
    "operators",
    *(n for n in (*NVIDIA_RECIPES, *(f"stats:{n}" for n in REPORTS)) if "nvtx" in n),
}

COMMUNICATOR = re.compile(r"0x[0-9a-f]{8,}|pg \d+ \[[0-9, ]*\]")
VERSION = re.compile(r"\b(cu\w+)_v\d{4,5}\b")
"""What nsys adds to the names of calls; its own reports cut some of them."""

NOT_SHARED = re.compile("nccl[A-Z]|record_param_comms")
"""NCCL's own ranges, which Kineto has as operators: rows of ranges of that name, and what they launched, are not
compared."""

RANGE_COLUMNS = ("name", "Text", "Range", "NVTX Range", "Name")

EMPTY = {"diagnose", "gpu_gaps", "gpu_time_util", "cuda_memcpy_async", "cuda_memcpy_sync", "cuda_memset_sync"}
"""What has nothing to tell of a small sound run."""

CLOCKS_NS = 10_000
"""How far waits may differ: five residuals of the clocks, which nsys' stamps of the host and Kineto's of the process
place."""


def answers(run, recipe):
    """The tables of the answer: rows without what the profilers tell apart, in an order that small differences do not
    change."""
    answer = run.recipe(recipe, **ASKED.get(recipe, {})).answer
    if recipe == "activity":
        return {"answer": _summed(answer)}
    return {
        name: _comparable(recipe, name, table.table.to_pylist(), table.columns)
        for name, table in answer.all_tables().items()
    }


def _summed(answer):
    """The times of each rank over all bins: where bins begin depends on the run's zero."""
    times = [c.name for c in answer.columns if c.unit == "ns" and not MOMENT.fullmatch(c.name)]
    sums = {}
    for row in answer.table.to_pylist():
        of_rank = sums.setdefault(row["rank"], {"rank": row["rank"], **dict.fromkeys(times, 0)})
        for column in times:
            of_rank[column] += row[column]
    return [sums[r] for r in sorted(sums)], {"rank": None, **dict.fromkeys(times, "ns")}


def _comparable(recipe, name, rows, columns):
    units = {c.name: c.unit for c in columns}
    kept = []
    for row in rows:
        if (
            recipe in OF_RANGES
            and row.get("what", "range") == "range"
            and any(NOT_SHARED.search(str(row.get(c))) for c in RANGE_COLUMNS)
        ):
            continue
        row = {k: _plain(v) for k, v in row.items() if k not in NEUTRAL | NUMBERING | APART.get(recipe, set())}
        kept.append(row)
    for column in units:
        if (
            kept
            and column in kept[0]
            and (MOMENT.fullmatch(column) or (name in MOMENTS and MOMENTS[name] in (column, "")))
        ):
            zero = min(r[column] for r in kept if r[column] is not None)
            for row in kept:
                row[column] = None if row[column] is None else row[column] - zero
    words = [k for k, v in (kept or [{}])[0].items() if units[k] is None and not isinstance(v, float)]
    kept.sort(
        key=lambda r: (
            json.dumps([r[k] for k in words], default=str),
            -sum(v for v in r.values() if isinstance(v, int)),
        )
    )
    return kept, units


def _plain(value):
    return VERSION.sub(r"\1", COMMUNICATOR.sub("C", value)) if isinstance(value, str) else value


def agree(expected, found, unit):
    if unit == "ns" and expected is not None and found is not None:
        return abs(expected - found) <= max(CLOCKS_NS, 0.02 * abs(expected))
    if unit == "%" and expected is not None and found is not None:
        return abs(expected - found) <= 5
    numbers = isinstance(expected, int | float) and isinstance(found, int | float)
    return expected == found or (numbers and found == pytest.approx(expected, rel=0.02))


ALL = [*names(), *(f"stats:{n}" for n in REPORTS)]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("recipe", [n for n in ALL if n not in NOT_RECORDED and n != "info"])
def test_every_recipe_that_both_can_feed_answers_the_same(twins, recipe):
    scenario, nsys, kineto = twins
    expected, found = answers(nsys, recipe), answers(kineto, recipe)
    assert found.keys() == expected.keys()
    assert recipe in EMPTY or any(rows for rows, _ in expected.values())
    for name, (rows, units) in expected.items():
        if (recipe, name) in NOT_RECORDED_TABLES:
            assert not found[name][0]
            continue
        others = found[name][0]
        assert len(others) == len(rows)
        different = [
            (n, column, a[column], b[column])
            for n, (a, b) in enumerate(zip(rows, others, strict=True))
            for column in a
            if (
                b[column] is not None
                if column in NSYS_ALONE
                else not agree(a[column], b[column], units[column])
                and not (column in TYPES and (not a[column] or b[column] == "uint8"))
            )
        ]
        assert not different[:5]
        moved = find(recipe).clock == "aligned" or name in MOMENTS
        if not moved and recipe not in ("gaps", *APART) and scenario != "pipeline":
            assert [_exact(r) for r in others] == [_exact(r) for r in rows]


def _exact(row):
    """The columns that no clock moves and both formats have."""
    return {k: v for k, v in row.items() if k not in NSYS_ALONE | TYPES and not MOMENT.fullmatch(k)}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("recipe", NOT_RECORDED)
def test_what_kineto_does_not_record_is_not_answered(twins, recipe):
    (rows, _), *_ = answers(twins[2], recipe).values()
    assert not rows


def test_collectives_clocks_ranks_and_threads_are_the_same(twins):
    _, nsys, kineto = twins
    key = ("op", "bytes", "group_size", "ranks", "instances", "incomplete")
    expected, found = (sorted(tuple(r[c] for c in key) for r in rows(run, "collectives")) for run in (nsys, kineto))
    assert expected
    assert found == expected
    waits = [sum(r["wait_ns"] for r in rows(run, "collectives")) for run in (nsys, kineto)]
    assert waits[1] == pytest.approx(waits[0], rel=0.02)
    for a, b in zip(nsys.aligned().clocks, kineto.aligned().clocks, strict=True):
        assert (b.host, b.component) == (a.host, a.component)
        assert b.offset_ns == pytest.approx(a.offset_ns, abs=2_000)
    assert [(r.rank, r.host, r.pids) for r in kineto.ranks] == [(r.rank, r.host, r.pids) for r in nsys.ranks]
    assert {r.rank_source for r in kineto.ranks} == {"distributedInfo"}
    # `info` tells of the reports themselves; what it says of ranks is the same but for files and how a rank was told
    columns = ("rank", "local_rank", "host", "process", "kernels", "copies", "api", "syncs")
    expected, found = ([{c: r[c] for c in columns} for r in run.recipe("info").to_pylist()] for run in twins[1:])
    assert found == expected
    for nsys, kineto in zip(twins[1].recipe("info").to_pylist(), twins[2].recipe("info").to_pylist(), strict=True):
        assert kineto["end_ns"] - kineto["start_ns"] == pytest.approx(nsys["end_ns"] - nsys["start_ns"], rel=0.05)
        assert [d.partition(" (")[0] for d in kineto["devices"]] == [d.partition(" (")[0] for d in nsys["devices"]]


def test_the_two_have_no_difference_of_their_own(twins):
    """`diff` of the twins: whatever both have is the same, and each alone has NCCL's ranges or PyTorch's."""
    from alltrace.recipes.questions.diff import compare

    rows = compare(*twins[1:]).table.to_pylist()
    apart = [r for r in rows if r["verdict"] != "same"]
    assert {(r["what"], bool(NOT_SHARED.search(r["name"]))) for r in apart} <= {("range", True)}
    calls = [r for r in rows if r["what"] == "call"]
    assert "cudaLaunchKernel" in {r["name"] for r in calls}
    assert all(r["total_change_ns"] == 0 for r in calls)


@pytest.mark.sampled(4)
def test_a_run_may_mix_both(twins, tmp_path):
    _, nsys, kineto = twins
    half = len(nsys.ranks) // 2
    folders = [p for run, low, high in ((nsys, 0, half), (kineto, half, 2 * half)) for p in _paths(run)[low:high]]
    mixed = imported(folders, tmp_path / "run")
    assert [(r.rank, r.host) for r in mixed.ranks] == [(r.rank, r.host) for r in nsys.ranks]
    assert rows(mixed, "breakdown") == rows(nsys, "breakdown")
    assert rows(mixed, "kernels") == rows(nsys, "kernels")


def _paths(run):
    return [r.path for r in run.manifest.reports]


def test_times_are_written_to_the_nanosecond_and_the_file_is_json(tmp_path):
    truth = write_run("tiny", tmp_path, "kineto", ideal=True)
    path = truth.reports[0]
    text = path.read_text(encoding="utf-8")
    content = json.loads(text)
    kernels = [e for e in content["traceEvents"] if e.get("cat") == "kernel"]
    assert len(kernels) == truth.ranks[0]["rows"]["kernel"]
    assert content["distributedInfo"]["rank"] == 0
    assert f'"ts": {kernels[0]["ts"]:.3f}' in text


@pytest.mark.parametrize(
    ("scenario", "values"),
    [
        ("pipeline", {"ranks": 4, "hosts": 1, "steps": 1}),
        ("experts", {"ranks": 2, "hosts": 1, "steps": 1, "expert_parallel": 2, "grouped_all_to_all": True}),
    ],
)
def test_events_in_no_order_are_the_same_events(tmp_path, scenario, values):
    found = []
    for unordered in (False, True):
        truth = write_run(scenario, tmp_path, "kineto", unordered=unordered, **values, ideal=True)
        events = [json.dumps(e) for path in truth.reports for e in json.loads(path.read_text())["traceEvents"]]
        found.append(events)
    assert found[0] != found[1]
    assert sorted(found[0]) == sorted(found[1])


def test_a_second_run_takes_the_place_of_the_first(tmp_path):
    write_run("tiny", tmp_path, "kineto", ranks=2, ideal=True)
    write_run("tiny", tmp_path, "sqlite", ranks=2, ideal=True)
    assert not list(tmp_path.glob("*.pt.trace.json*"))
    assert len(Truth.read(tmp_path).reports) == 2


def test_planted_operators_are_found_with_their_work(tmp_path):
    truth = write_run("tiny", tmp_path / "traces", "kineto", operators=True, ideal=True)
    run = imported([tmp_path / "traces"], tmp_path / "run")
    found = {r["name"]: r for r in run.recipe("operators", top=0).to_pylist()}
    expected = {}
    for rank in truth.ranks:
        for name, facts in rank["operators"].items():
            own = expected.setdefault(name, dict.fromkeys(facts, 0))
            for key, value in facts.items():
                own[key] += value
    assert "aten::_flash_attention_backward" in expected
    for name, facts in expected.items():
        row = found[name]
        assert row["ranks"] == 2
        assert row["calls"] == facts["calls"]
        assert row["gpu_total_ns"] == pytest.approx(facts["gpu_ns"], rel=1e-4)
        assert (row["flops"] or 0) == facts["flops"]
        if facts["flops"]:
            assert row["tflop_per_s"] == pytest.approx(facts["flops"] / row["gpu_total_ns"] / 1000)
    modules = run.recipe("operators", by="module").to_pylist()
    assert {r["name"] for r in modules} == {"Layer_0", "Layer_1"}
    forward = ("aten::linear", "aten::scaled_dot_product_attention", "aten::matmul")
    assert sum(r["flops"] for r in modules) <= sum(expected[n]["flops"] for n in forward if n in expected)
    (stack,) = [r for r in run.recipe("operators", by="stack").to_pylist() if r["name"] == "train.py(12): train_step"]
    assert stack["gpu_total_ns"] > 0
