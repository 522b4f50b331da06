from tests.making import copy, kernel, make_run

from alltrace.recipes.execution.ask import ask

MS = 1_000_000


def gaps(tmp_path, tables, **options):
    answer = ask(make_run(tmp_path / "run", {0: tables}), "gpu_gaps", options)
    return [(r["Row#"], r["Duration"], r["Start"]) for r in answer.table.to_pylist()], answer


def test_gaps_between_what_ran_are_longest_first(tmp_path):
    tables = {
        "kernels": [kernel(0, 10 * MS), kernel(12 * MS, 13 * MS), kernel(20 * MS, 21 * MS)],
        "copies": [copy(2 * MS, 11 * MS)],
    }
    rows, answer = gaps(tmp_path, tables, gap=1)
    assert rows == [(1, 7 * MS, 13 * MS)]  # a gap as long as the limit does not count
    assert answer.table.to_pylist()[0] == {
        "Row#": 1, "Duration": 7 * MS, "Start": 13 * MS, "PID": 4000, "Device ID": 0, "Context ID": 1, "File": "rank0",
    }  # fmt: skip
    assert "blocking call" in answer.notes[0]


def test_the_profilers_overhead_counts_as_work(tmp_path):
    flush = {"start": 14 * MS, "end": 19 * MS, "name": "CUDA profiling data flush overhead"}
    other = {"start": 14 * MS, "end": 19 * MS, "name": "something else"}
    outside = {"start": 15 * MS, "end": 30 * MS, "name": "CUDA profiling stop overhead"}
    kernels = [kernel(0, 13 * MS), kernel(20 * MS, 21 * MS)]
    rows, _ = gaps(tmp_path, {"kernels": kernels, "overheads": [flush, other, outside]}, gap=0)
    assert rows == [(1, MS, 13 * MS), (2, MS, 19 * MS)]


def test_no_gap_says_so_and_rows_limits_each_rank(tmp_path):
    kernels = [kernel(i * 10 * MS, i * 10 * MS + MS) for i in range(4)]
    rows, _ = gaps(tmp_path, {"kernels": kernels}, gap=1, rows=2)
    assert rows == [(1, 9 * MS, MS), (2, 9 * MS, 11 * MS)]
    answer = ask(make_run(tmp_path / "other", {0: {"kernels": kernels}}), "gpu_gaps")
    assert answer.table.num_rows == 0
    assert answer.notes == ("No GPU was without work for longer than the limit between its first and its last operation.",)


def test_a_kernel_that_ends_before_it_starts_is_no_time_of_little_use(tmp_path):
    answer = ask(make_run(tmp_path / "run", {0: {"kernels": [kernel(100, 50)]}}), "gpu_time_util")
    assert answer.table.num_rows == 0
