import pytest
from tests.making import copy, kernel, make_run
from tests.together import together

from alltrace.nvidia.filters import filtered, given_filters, parse_times
from alltrace.recipes.execution.ask import ask
from alltrace.trace.errors import UsageError
from alltrace.trace.range_selector import RangeName, parse_range


def push(start, end, name, **others):
    return {"start": start, "end": end, "name": name, "kind": "pushpop", **others}


def call(start, end, correlation, **others):
    return {"start": start, "end": end, "name": "cudaLaunchKernel", "correlation": correlation, **others}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    tables = {
        "ranges": [
            push(0, 100, "step"),
            push(10, 20, "a"),
            push(30, 40, "a"),
            push(50, 60, "a", domain="NCCL"),
            push(50, 60, "b@c/d", thread=1),
            push(70, None, "open"),
            {"start": 200, "end": 300, "name": "window", "kind": "startend"},
        ],
        "kernels": [kernel(15, 25, correlation=1), kernel(100, 110, correlation=2), kernel(400, 500, correlation=3)],
        "copies": [copy(40, 50)],
        "api": [call(11, 12, 1), call(31, 32, 2), call(55, 56, 3, thread=1), call(250, 260, 4)],
        "threads": [{"thread": t, "process": 0, "tid": 4001 + t, "name": "main"} for t in (0, 1)],
        "marks": [{"time": 35, "name": "m"}, {"time": 36, "name": "n", "thread": 1}],
    }
    return make_run(tmp_path_factory.mktemp("filters") / "run", {0: tables})


def starts(run, table, column="start", **options):
    return filtered(run.rank(0), options).table(table, [column]).column(column).to_pylist()


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, [15, 100, 400]),
        ({"start": 25}, [15, 100, 400]),
        ({"start": 26}, [100, 400]),
        ({"end": 100}, [15, 100]),
        ({"end": 99}, [15]),
        ({"filter_time": "26ns/99ns"}, []),
        ({"filter_time": "26/"}, [100, 400]),
        ({"filter_time": "/99", "start": 0}, [15]),
        ({"start": 111, "filter_time": "0/450"}, [400]),
    ],
)
def test_a_row_passes_that_overlaps_the_window_or_touches_it(run, options, kept):
    assert starts(run, "kernels", **options) == kept


@pytest.mark.parametrize(
    ("name", "kernels", "copies"),
    [
        ("a", [15], [40]),
        ("a/0", [15], []),
        ("a/1", [], [40]),
        ("a/2", [], []),
        ("step", [15, 100], [40]),
        ("open", [100], []),  # closed by the latest end of a range
        ("a@NCCL", [], [40]),
        ("a@*", [15], [40]),
        ("nothing", [], []),
    ],
)
def test_a_row_without_thread_passes_that_overlaps_a_range_named(run, name, kernels, copies):
    assert starts(run, "kernels", filter_nvtx=name) == kernels
    assert starts(run, "copies", filter_nvtx=name) == copies


def test_a_range_that_was_pushed_holds_rows_of_its_thread_and_one_that_was_started_those_of_its_process(run):
    assert starts(run, "api", filter_nvtx=r"b\@c\/d") == [55]
    assert starts(run, "api", filter_nvtx="step") == [11, 31]
    assert starts(run, "api", filter_nvtx="window") == [250]
    assert starts(run, "marks", "time", filter_nvtx="a") == [35]


def test_what_ran_on_the_gpu_passes_by_its_time_whichever_thread_called_for_it(tmp_path):
    tables = {
        "ranges": [push(0, 100, "step")],
        "collectives": [
            {"start": 50 + t, "end": 60 + t, "api_start": t, "api_end": t + 1, "thread": t} for t in (0, 1)
        ],
        "threads": [{"thread": t, "process": 0, "tid": 4001 + t, "name": "main"} for t in (0, 1)],
    }
    assert starts(make_run(tmp_path / "run", {0: tables}), "collectives", filter_nvtx="step") == [50, 51]


def test_filters_by_ranges_of_a_name(run):
    assert starts(run, "api", nvtx="a") == [11]
    assert starts(run, "api", nvtx="a@NCCL") == []
    assert starts(run, "api", nvtx="a/1") == [31]
    # the two ranges called a launched the kernels at 15 and at 100
    assert starts(run, "kernels", filter_projected_nvtx="a") == [15, 100]
    assert starts(run, "kernels", filter_projected_nvtx="a/1") == [100]
    assert starts(run, "copies", filter_projected_nvtx="step") == [40]
    assert starts(run, "api", filter_projected_nvtx="a/1") == [11, 31, 250, 55]
    ranges = filtered(run.rank(0), {"start": 45}).table("ranges", ["name", "parent", "start"])
    assert ranges.column("start").to_pylist() == [0, 50, 70, 200, 50]
    assert ranges.column("parent").to_pylist() == [None, 0, None, None, None]
    assert starts(run, "kernels", filter_nvtx="step", start=90) == [100]


@together(
    ("text", "wanted"),
    [
        ("a", RangeName("a", None, None)),
        ("a b@c d/12", RangeName("a b", "c d", 12)),
        (r"a\@b\/c@d", RangeName("a@b/c", "d", None)),
        (r"a\\@*/0", RangeName("a\\", "*", 0)),
        (r"a\b", RangeName("a\\b", None, None)),
        ("a\\", RangeName("a\\", None, None)),
    ],
)
def test_ranges_are_spelled_as_nsys_does(text, wanted):
    assert parse_range("--filter-nvtx", text) == wanted


@together("text", ["", "@d", "a@", "a/b", "a@b@c", "a/1/2", "a/", "a@b/x", "/1"])
def test_a_range_that_cannot_be_is_refused(text):
    with pytest.raises(UsageError, match="expected RANGE"):
        parse_range("--filter-nvtx", text)


@together(
    ("text", "wanted"),
    [
        ("1s/2s500ms", (10**9, 2_500_000_000)),
        ("10ms/", (10_000_000, None)),
        ("/3us", (None, 3000)),
        ("5/7", (5, 7)),
        ("1h1m/1.5s", (3_660 * 10**9, 1_500_000_000)),
    ],
)
def test_times_have_units(text, wanted):
    assert parse_times(text) == wanted


def test_fractions_of_times_are_exact():
    for ms in range(0, 5000, 7):
        assert parse_times(f"{ms / 1000:.3f}s/") == (ms * 10**6, None)


@together("text", ["", "/", "1s", "a/b", "1parsec/", "1 s/2s", f"{'9' * 5000}s/", f"{'9' * 400}.5s/"])
def test_times_that_cannot_be_are_refused(text):
    with pytest.raises(UsageError, match="--filter-time"):
        parse_times(text)


def test_a_window_that_ends_before_it_starts_is_refused():
    with pytest.raises(UsageError, match="before it starts"):
        given_filters({"start": 5, "filter_time": "/3"})


def test_an_answer_says_that_nothing_passed(run):
    answer = ask(run, "nvtx_sum", {"filter_nvtx": r"a\@b/3"})
    assert answer.table.num_rows == 0
    assert answer.notes == (r"nothing passes --filter-nvtx a\@b/3, so the answer is empty",)
