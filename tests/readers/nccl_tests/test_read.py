"""Tables of nccl-tests of several versions."""

from __future__ import annotations

import json

import pytest

from alltrace.readers.nccl_tests.read import read_tests
from alltrace.recipes.logs.nccl_tests import VIEWS, answer
from alltrace.trace.errors import InputError

NEW = """\
# nccl-tests version 2.19.6 nccl-headers=23003 nccl-library=23003
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 8 maxBytes 64 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0 unalign: 0
#
# Using devices
#  Rank  0 Group  0 Pid     52 on   host-a device  0 [0001:8f:00] NVIDIA H200
#  Rank  1 Group  0 Pid     53 on   host-b device  0 [0001:8f:00] NVIDIA H200
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
           8             2  bfloat16     avg      -1     9.81    0.00    0.00       0     9.86    0.00    0.00     N/A
     1048576        524288  bfloat16     avg      -1  1.2e+05  100.00  100.00       1    20.00   52.43   52.43       0
# Out of bounds values : 1 FAILED
# Avg bus bandwidth    : 38.107
#
# Collective test concluded: all_reduce_perf
"""  # noqa: E501
OLD = """\
#                                                     out-of-place                       in-place
#       size         count    type    root     time   algbw   busbw  error     time   algbw   busbw  error
           4             1   float       0     5.29    0.00    0.00  0e+00     5.02    0.00    0.00  0e+00
"""


def read(tmp_path, text, name="x.out"):
    path = tmp_path / name
    path.write_text(text)
    return read_tests(str(path))


@pytest.mark.parametrize("prefix", ["", "0: ", "[1,0]<stdout>:", "host-a 0: "])
def test_new_tables(tmp_path, prefix):
    found = read(tmp_path, "".join(prefix + line + "\n" for line in NEW.splitlines()))
    (run,) = found.runs
    assert (run.program, run.version, run.library, run.average, run.failed) == (
        "all_reduce_perf",
        "2.19.6",
        "23003",
        38.107,
        True,
    )
    assert [r[2] for r in run.ranks] == ["host-a", "host-b"]
    first, second = run.rows
    assert (first.size, first.count, first.datatype, first.redop, first.root) == (8, 2, "bfloat16", "avg", -1)
    assert (first.out_of_place.time_us, first.out_of_place.wrong, first.in_place.wrong) == (9.81, 0, None)
    assert (second.out_of_place.time_us, second.out_of_place.wrong, second.in_place.busbw) == (1.2e5, 1, 52.43)
    assert found.not_understood == 0


def test_old_tables_and_several_runs(tmp_path):
    found = read(tmp_path, OLD + "# Avg bus bandwidth    : 3.6\n" + NEW, "bcast.out")
    assert [(r.program, len(r.rows)) for r in found.runs] == [("bcast", 1), ("all_reduce_perf", 2)]
    assert (found.runs[0].rows[0].redop, found.runs[0].rows[0].root, found.runs[0].average) == (None, 0, 3.6)


def test_extra_columns_cut_rows_and_single_halves(tmp_path):
    half = "time algbw busbw #wrong i_min i_max i_p99 i_cv%"
    head = f"#  size count type redop root {half} {half}\n"
    row = "64 16 float sum -1 1.0 2.0 3.0 0 .9 1.1 1.0 5 4.0 5.0 6.0 0 3.9 4.1 4.0 5\n"
    found = read(tmp_path, head + row + row[:30] + "\n" + "128 32 float sum -1 1.0 2.0 3.\n")
    assert [(r.size, r.out_of_place.busbw, r.in_place.busbw) for r in found.runs[0].rows] == [(64, 3.0, 6.0)]
    assert found.not_understood == 2


def test_a_table_with_the_times_of_the_cpu(tmp_path):
    lines = [
        "#       size         count      type   redop    root  cputime   algbw   busbw #wrong  cputime   algbw   busbw #wrong",  # noqa: E501
        "           8             2     float     sum      -1     6.01    0.50    0.25      0     5.99    0.00    0.00      0",  # noqa: E501
    ]
    (run,) = read(tmp_path, "\n".join(lines)).runs
    assert run.cpu_time
    assert [(r.size, r.out_of_place.time_us, r.in_place.time_us) for r in run.rows] == [(8, 6.01, 5.99)]


@pytest.mark.parametrize("odd", ["9" * 20, "9" * 5000, "²"])
def test_numbers_that_are_none_end_nothing(tmp_path, odd):
    lines = [
        f"#  Rank  {odd} Group  0 Pid  52 on host device  0 [0001:8f:00] NVIDIA H200",
        "#       size         count      type   redop    root     time   algbw   busbw  wrong     time   algbw   busbw  wrong",  # noqa: E501
        "           8             2     float     sum      -1    10.00    0.00    0.00      0    10.00    0.00    0.00      0",  # noqa: E501
        f"      {odd}             2     float     sum      -1    10.00    0.00    0.00      0    10.00    0.00    0.00      0",  # noqa: E501
        f"# Out of bounds values : {odd} OK",
    ]
    file = read(tmp_path, "\n".join(lines))
    assert [row.size for run in file.runs for row in run.rows] == [8]
    assert file.not_understood == 1
    for view in VIEWS:
        answer([file], view)


@pytest.mark.parametrize("odd", ["Infinity", "NaN", "1" + "0" * 30, "[]"])
@pytest.mark.parametrize("key", ["size", "count", "root", "rank"])
def test_json_with_odd_numbers_is_refused_in_a_sentence(tmp_path, odd, key):
    text = (
        '{"devices": [{"rank": @rank}], "results": [{"size": @size, "count": @count, "root": @root, "redop": 3, '
        '"out_of_place": {"time": 1, "alg_bw": 1, "bus_bw": 1}}]}'
    )
    for name in ("size", "count", "root", "rank"):
        text = text.replace(f"@{name}", odd if name == key else "1")
    with pytest.raises(InputError, match="its JSON is not from nccl-tests"):
        read(tmp_path, text)
    whole = read(tmp_path, text.replace(odd, "1"))
    for view in VIEWS:
        answer([whole], view)


def test_json(tmp_path):
    half = {"time": 10.0, "alg_bw": 1.0, "bus_bw": 1.5, "nwrong": 0}
    data = {
        "config": {"test": "all_gather_perf"},
        "devices": [{"rank": 0, "host": "a"}],
        "results": [
            {
                "size": 8,
                "count": 2,
                "type": "float",
                "redop": "none",
                "root": -1,
                "out_of_place": half,
                "in_place": None,
            }
        ],
    }
    found = read(tmp_path, json.dumps(data))
    assert (found.runs[0].program, found.runs[0].rows[0].out_of_place.busbw) == ("all_gather", 1.5)
    again = {**data, "config": {"test": "all_reduce_perf"}}
    runs = read(tmp_path, json.dumps(data) + "\n" + json.dumps(again)).runs
    assert [(run.number, run.program, len(run.rows)) for run in runs] == [(0, "all_gather", 1), (1, "all_reduce", 1)]
    with pytest.raises(InputError, match="its JSON is not from nccl-tests"):
        read(tmp_path, '{"results": [{"out_of_place": 5}]}')


@pytest.mark.corpus
def test_averages_of_real_tables_are_what_the_programs_printed(corpus):
    checked = 0
    for path in sorted((corpus / "nccl-tests").iterdir()):
        found = read_tests(str(path))
        text = path.read_text(errors="replace")
        assert found.not_understood == 0
        assert found.table_rows + found.foreign <= found.lines
        for run in found.runs:
            if run.average is None:
                continue
            halves = [h.busbw for row in run.rows for h in (row.out_of_place, row.in_place) if h is not None]
            assert sum(halves) / len(halves) == pytest.approx(run.average, abs=0.006)
            checked += 1
        assert len([r for r in found.runs if r.average is not None]) == text.count("# Avg bus bandwidth")
    assert checked == 11


HEAD = """\
# nThread 1 nGpus 1 minBytes 8 maxBytes 16 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
"""
COLUMNS = "size count type redop root time algbw busbw #wrong time algbw busbw #wrong".split()
ROWS = [
    [8, 2, "float", "sum", -1, 5.5, 0.5, 0.25, 0, 6.5, 0.75, 0.125, 0],
    [16, 4, "float", "sum", -1, 7.5, 1.5, 1.25, 0, 8.5, 1.75, 1.125, 0],
]


def values(run):
    return [
        (
            r.size,
            r.count,
            r.datatype,
            r.redop,
            r.root,
            r.out_of_place.time_us,
            r.out_of_place.busbw,
            r.in_place.time_us,
            r.in_place.wrong,
        )
        for r in run.rows
    ]


WANTED = [(8, 2, "float", "sum", -1, 5.5, 0.25, 6.5, 0), (16, 4, "float", "sum", -1, 7.5, 1.25, 8.5, 0)]


@pytest.mark.parametrize("prefix", ["", "3: "])
@pytest.mark.parametrize(
    ("gap", "comma", "quote", "first"),
    [
        (",", ".", "", "size"),
        (",", ".", '"', "size"),
        (";", ",", "", "size"),
        ("  ", ".", "", "  size"),
        ("  ", ",", "", "#  size"),
        (",", ".", "", "size (B)"),
        ("\t", ".", "", "size"),
        (",", ".", "", "\ufeffsize"),
        (";", ",", "", "\ufeffsize"),
    ],
)
def test_tables_in_other_forms(tmp_path, gap, comma, quote, first, prefix):
    lines = [[first, *COLUMNS[1:]], *ROWS]
    text = "".join(
        prefix + gap.join(f"{quote}{cell}{quote}".replace(".", comma) for cell in line) + "\n" for line in lines
    )
    (run,) = read(tmp_path, text).runs
    assert values(run) == WANTED


MARKDOWN = (
    "| size | count | type | redop | root | time | algbw | busbw | #wrong |\n|---:|---|:-:|---|---|---|---|---|---|\n"
    "| 1048576 | 262144 | float | sum | -1 | 1050.00 | 20.97 | 31.5 | 0 |\n"
)
SPACES = "# size count type redop root time algbw busbw #wrong\n 1048576 262144 float sum -1 1050.00 20.97 31.5 0\n"
QUOTED = (
    'size,count,type,redop,root,time,algbw,busbw,#wrong\n"1,048,576","262,144",float,sum,-1,"1,050.00",20.97,31.5,0\n'
)


@pytest.mark.parametrize(
    "text",
    [
        "# Results\n\n" + MARKDOWN,
        "".join(f"{line.strip('| ')}\n" for line in MARKDOWN.splitlines()),
        MARKDOWN.replace("| 1048576 | 262144", "| 1.048.576 | 262.144").replace(
            "1050.00 | 20.97 | 31.5", "1.050,00 | 20,97 | 31,5"
        ),
        MARKDOWN.replace("| 1048576", "0: | 1048576"),
        SPACES,
        SPACES.upper().replace("FLOAT SUM", "float sum"),
        SPACES.replace("size count", "Size Count").replace("time algbw busbw", "Time AlgBw BusBw"),
        SPACES.replace("1050.00", "1,050.00"),
        SPACES.replace("1048576 262144", "1,048,576 262,144"),
        SPACES.replace("1050.00 20.97 31.5", "1.050,00 20,97 31,5"),
        SPACES.replace("1048576 262144", "1.048.576 262.144").replace("1050.00 20.97 31.5", "1.050 20,97 31,5"),
        SPACES.replace("1050.00 20.97 31.5", "1050,000 20,970 31,500"),
        SPACES.replace("1050.00 20.97 31.5", "1050.000 20.970 31.500"),
        QUOTED,
        QUOTED.replace(",", ";")
        .replace('"1;048;576";"262;144"', "1.048.576;262.144")
        .replace('"1;050.00";20.97;31.5', "1.050,00;20,97;31,5"),
    ],
)
def test_tables_in_markdown_capitals_and_with_signs_between_thousands(tmp_path, text):
    found = read(tmp_path, text)
    (row,) = found.runs[0].rows
    assert (row.size, row.count, row.root, found.not_understood) == (1048576, 262144, -1, 0)
    assert (row.out_of_place.time_us, row.out_of_place.algbw, row.out_of_place.busbw) == (1050, 20.97, 31.5)


@pytest.mark.parametrize(
    ("numbers", "time"), [("1.050 20.970 31.500", 1.05), ("1,050 20,970 31,500", 1.05), ("0,123 20,970 31,500", 0.123)]
)
def test_three_digits_behind_every_sign_are_decimals(tmp_path, numbers, time):
    (row,) = read(tmp_path, SPACES.replace("1050.00 20.97 31.5", numbers)).runs[0].rows
    assert (row.out_of_place.time_us, row.out_of_place.algbw, row.out_of_place.busbw) == (time, 20.97, 31.5)


def test_halves_are_in_the_order_of_the_header(tmp_path):
    """As mscclpp-test prints them: in place first, without type, reduction and root."""
    text = "#      in-place      out-of-place\n# size count time algbw busbw #wrong time algbw busbw #wrong\n"
    text += "8 2 6.5 0.75 0.125 0 5.5 0.5 0.25 0\nan epoch of 8 2 6.5 0.75\n8 2 6.5 0.75\n"
    (run,) = read(tmp_path, text).runs
    assert values(run) == [(8, 2, None, None, None, 5.5, 0.25, 6.5, 0)]
    (within,) = read(tmp_path, "#   in-place\n# size count time algbw busbw #wrong\n8 2 6.5 0.75 0.125 0\n").runs
    assert (within.rows[0].out_of_place, within.rows[0].in_place.time_us) == (None, 6.5)
    (again,) = read(tmp_path, NEW).runs
    assert again.rows[1].in_place.time_us == 20


def rank_line(rank, pid):
    return f"#  Rank {rank:2} Group  0 Pid {pid:6} on   host-a device {rank:2} [0x07] NVIDIA H100\n"


def test_jobs_of_several_ranks_that_each_ran_alone(tmp_path):
    """Three launches of two GPUs that were meant to be one of six: no rank of the second host is that of another."""
    header, rows = "# " + " ".join(COLUMNS) + "\n", [" ".join(map(str, row)) + "\n" for row in ROWS]
    heads = [
        (HEAD + rank_line(0, pid) + rank_line(1, pid) + header).replace("host-a", f"host-{pid}") for pid in (10, 11, 12)
    ]
    runs = read(tmp_path, "".join(heads) + "".join(rows * 3) + "# Avg bus bandwidth : 0.5\n" * 3).runs
    assert [(r.alone, [rank[2] for rank in r.ranks]) for r in runs] == [
        (3, [f"host-{pid}"] * 2) for pid in (10, 11, 12)
    ]
    assert [values(r) for r in runs] == [WANTED] * 3


@pytest.mark.parametrize("comma", [".", ","])
def test_a_time_in_powers_of_ten_with_either_sign(tmp_path, comma):
    line = "1048576 262144 float sum -1 1.2e+05 20.97 20.97 0 40.00 26.21 26.21 0".replace(".", comma)
    (run,) = read(tmp_path, "# " + " ".join(COLUMNS) + "\n" + line + "\n").runs
    assert (run.rows[0].out_of_place.time_us, run.rows[0].out_of_place.busbw) == (1.2e5, 20.97)


@pytest.mark.parametrize("interleaved", [False, True])
def test_processes_that_each_run_alone_are_runs_of_their_own(tmp_path, interleaved):
    header, rows = "# " + " ".join(COLUMNS) + "\n", [" ".join(map(str, row)) + "\n" for row in ROWS]
    end = "# Avg bus bandwidth : 0.5\n"
    if interleaved:  # the second process is a row behind
        text = (
            HEAD * 2
            + rank_line(0, 10)
            + rank_line(0, 11)
            + header * 2
            + rows[0]
            + rows[1]
            + rows[0]
            + end
            + rows[1]
            + end
        )
    else:
        text = "".join(HEAD + rank_line(0, pid) + header for pid in (10, 11)) + "".join(rows * 2) + end * 2
    runs = read(tmp_path, text).runs
    assert [(len(r.ranks), r.alone, r.average, r.number) for r in runs] == [(1, 2, None, 0), (1, 2, None, 1)]
    assert [values(r) for r in runs] == [WANTED, WANTED]


def test_sizes_that_come_again_in_one_job_stay_one_run(tmp_path):
    """As with several cycles; and a job that is started again after it died before its first row."""
    header, rows = "# " + " ".join(COLUMNS) + "\n", "".join(" ".join(map(str, row)) + "\n" for row in ROWS)
    head = HEAD + rank_line(0, 10) + rank_line(1, 11) + header
    for text in (head + rows * 2, head + head + rows):
        (run,) = read(tmp_path, text).runs
        assert (len(run.ranks), run.alone) == (2, 0)


@pytest.mark.parametrize(
    ("line", "host", "cause"),
    [
        (
            "node-7: Test CUDA failure common.cu:297 'uncorrectable ECC error encountered'",
            "node-7",
            "CUDA: uncorrectable ECC error encountered",
        ),
        (
            "n1.cluster: Test NCCL failure common.cu:1012 'unhandled system error (run with NCCL_DEBUG=INFO for details) / '",  # noqa: E501
            "n1.cluster",
            "NCCL: unhandled system error",
        ),
        (
            "n1: Test NCCL failure common.cu:9 'internal error / Proxy Call to rank 3 failed'",
            "n1",
            "NCCL: internal error / Proxy Call to rank 3 failed",
        ),
        (" .. hostB pid 4711: Test failure common.cu:500", "hostB", ""),
        ("srun: error: hostB: task 1: Exited with exit code 2", "hostB", "task 1: Exited with exit code 2"),
        (
            "mpirun noticed that process rank 3 with PID 0 on node c9 exited on signal 6 (Aborted).",
            "c9",
            "exited on signal 6 (Aborted).",
        ),
        (
            "prterun noticed that process rank 1 with PID 4711 on node c9 exited on\nsignal 7 (Bus error).",
            "c9",
            "exited",
        ),
        ("=   PID 4711 RUNNING AT c9.cluster\n=   EXIT CODE: 139", "c9.cluster", ""),
        (
            "slurmstepd: error: *** STEP 123.0 ON c9 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***",
            "c9",
            "CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT",
        ),
    ],
)
def test_the_host_that_failed_and_its_cause(tmp_path, line, host, cause):
    text = "".join(NEW.splitlines(keepends=True)[:12])
    (run,) = read(tmp_path, text + line + "\n").runs
    assert (run.failed, len(run.rows)) == (True, 1)
    assert [tuple(f) for f in run.failures] == [(host, cause)]
    assert not read(tmp_path, NEW.replace("1 FAILED", "0 OK") + line.replace("Test", "test") + "\n").runs[0].failures


def test_a_job_that_failed_before_its_table(tmp_path):
    (run,) = read(tmp_path, "n4: Test CUDA failure common.cu:891 'out of memory'\n", "all_reduce.out").runs
    assert (run.program, run.failed, run.rows, run.failures[0].cause) == ("all_reduce", True, [], "CUDA: out of memory")
