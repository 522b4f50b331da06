"""Questions to tables of nccl-tests."""

from __future__ import annotations

import pytest

from alltrace.charts.prepare import draw
from alltrace.readers.nccl_tests.read import read_tests
from alltrace.recipes.logs.nccl_tests import answer, factor


def table(tmp_path, name, speeds, ranks=4, hosts=("a", "b"), scale=1.5):
    """A table with these algorithm bandwidths, doubling sizes from 1 KiB."""
    text = "".join(f"#  Rank {r} Group 0 Pid {r} on {hosts[r % len(hosts)]} device 0 [0x1] GPU\n" for r in range(ranks))
    text += "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
    for n, speed in enumerate(speeds):
        size = 1024 << n
        half = f"{size / speed / 1e3:.4f} {speed:.2f} {speed * scale:.2f} 0"
        text += f"{size} {size // 4} float sum -1 {half} {half}\n"
    path = tmp_path / name
    path.write_text(text)
    return read_tests(str(path))


@pytest.mark.parametrize(
    ("program", "ranks", "want"),
    [
        ("all_reduce_perf", 4, 1.5),
        ("all_gather_perf", 4, 0.75),
        ("alltoall", 8, 0.875),
        ("broadcast", 8, 1.0),
        ("x", 4, None),
    ],
)
def test_factors(program, ranks, want):
    assert factor(program, ranks) == want


def test_summary(tmp_path):
    run = table(tmp_path, "all_reduce.out", [1.0, 2.0, 8.0, 4.0, 9.0, 10.0])
    row = answer([run], "summary", peak_gb_per_s=30.0).table.to_pylist()[0]
    assert (row["ranks"], row["hosts"], row["sizes"], row["peak_busbw_gb_per_s"], row["peak_size_bytes"]) == (
        4,
        2,
        6,
        15.0,
        32768,
    )
    assert (row["peak_share"], row["knee_bytes"], row["outlier_sizes"], row["wrong"]) == (50.0, 4096, [8192], 0)
    assert row["average_busbw_gb_per_s"] == pytest.approx(1.5 * 34 / 6)
    assert (row["program"], row["failed"], row["printed_average_gb_per_s"]) == ("all_reduce", False, None)
    assert row["latency_us"] == pytest.approx(0.5120)  # the third size: 4096 bytes at 8 GB/s


def test_what_the_program_prints_at_its_end(tmp_path):
    table(tmp_path, "all_reduce.out", [1.0, 2.0])
    ended = tmp_path / "ended.out"
    ended.write_text(
        (tmp_path / "all_reduce.out").read_text()
        + "# Out of bounds values : 3 FAILED\n# Avg bus bandwidth    : 2.125\n#\n"
    )
    rows = answer([read_tests(str(ended))], "summary").table.to_pylist()
    assert [(r["place"], r["failed"], r["printed_average_gb_per_s"]) for r in rows] == [
        ("out", True, 2.125),
        ("in", True, 2.125),
    ]
    rows = answer([read_tests(str(ended))], "sizes").table.to_pylist()
    # 1024 bytes at 1 GB/s take 1.024 us, 2048 bytes at 2 GB/s as long
    assert [
        (r["size_bytes"], r["time_us"], r["algbw_gb_per_s"], r["busbw_gb_per_s"]) for r in rows if r["place"] == "in"
    ] == [(1024, 1.024, 1.0, 1.5), (2048, 1.024, 2.0, 3.0)]


def test_compare(tmp_path):
    runs = [table(tmp_path, "all_reduce_1.out", [2.0, 4.0]), table(tmp_path, "all_reduce_2.out", [1.0, 5.0])]
    rows = [r for r in answer(runs, "compare").table.to_pylist() if r["place"] == "out"]
    assert [(r["size_bytes"], r["run"], round(r["ratio"], 3)) for r in rows] == [
        (1024, "all_reduce_1.out", 1.0),
        (1024, "all_reduce_2.out", 0.5),
        (2048, "all_reduce_1.out", 1.0),
        (2048, "all_reduce_2.out", 1.25),
    ]


def test_the_picture_has_a_line_for_each_run(tmp_path):
    runs = [table(tmp_path, "all_reduce_1.out", [2.0, 4.0]), table(tmp_path, "all_reduce_2.out", [1.0, 5.0])]
    drawn = draw(answer(runs, "sizes"))
    assert drawn.x.log
    assert {s.name: s.y for s in drawn.series} == {"all_reduce_1.out": (3.0, 6.0), "all_reduce_2.out": (1.5, 7.5)}


def test_a_slow_host_is_found(tmp_path):
    pairs = [("a", "b"), ("a", "c"), ("b", "c"), ("a", "d"), ("b", "d")]
    runs = [table(tmp_path, f"all_reduce_{n}.out", [5.0 if "d" in p else 10.0], hosts=p) for n, p in enumerate(pairs)]
    rows = answer(runs, "hosts").table.to_pylist()
    assert [(r["host"], r["runs"], r["median_ratio"], r["outlier"]) for r in rows[:1]] == [("d", 2, 0.5, True)]
    assert not any(r["outlier"] for r in rows[1:])


def test_runs_that_nothing_compares_with_say_nothing_of_a_host(tmp_path):
    pairs = [("a", "b"), ("a", "c"), ("b", "c"), ("a", "d"), ("b", "d")]
    runs = [table(tmp_path, f"all_reduce_{n}.out", [5.0 if "d" in p else 10.0], hosts=p) for n, p in enumerate(pairs)]
    runs += [
        table(tmp_path, f"{name}.out", [1.0], hosts=("d", "e"))
        for name in ("all_gather", "reduce_scatter", "broadcast")
    ]
    rows = answer(runs, "hosts").table.to_pylist()
    assert rows[0] == {"host": "d", "runs": 2, "median_ratio": 0.5, "outlier": True}
    assert rows[-1] == {"host": "e", "runs": 0, "median_ratio": None, "outlier": False}


def test_a_bandwidth_that_breaks_the_formula_is_noted(tmp_path):
    notes = answer([table(tmp_path, "all_gather.out", [5.0, 6.0], scale=1.0)], "sizes").notes
    assert any("not 0.75 times" in n for n in notes)


def test_files_without_a_table_are_one_note_with_the_first_names(tmp_path):
    for n in range(53):
        (tmp_path / f"other_{n:02}.log").write_text("hello\n")
    others = [read_tests(str(tmp_path / f"other_{n:02}.log")) for n in range(53)]
    notes = answer([table(tmp_path, "all_reduce.out", [1.0, 2.0]), *others], "summary").notes
    (said,) = [n for n in notes if "other_" in n]
    assert (
        said
        == f"no table of nccl-tests in {tmp_path}/other_00.log, {tmp_path}/other_01.log, {tmp_path}/other_02.log and 50"
        " more"
    )
    assert len(notes) == 2


def test_failures_and_single_ranks_are_said(tmp_path):
    text = (
        "".join(f"# Rank {rank} Group 0 Pid 1 on host-{rank} device 0 [0x07] H100\n" for rank in range(2))
        + "# size count type redop root time algbw busbw #wrong\n8 2 float sum -1 5.5 0.5 0.5 0\n"
    )
    failure = (
        "host-1: Test CUDA failure common.cu:297 'uncorrectable ECC error encountered'\n .. host-1 pid 4: Test failure"
        " a.cu:5\n"
    )
    path = tmp_path / "all_reduce.out"
    path.write_text(text + failure)
    its = answer([read_tests(str(path))], "summary")
    (row,) = its.table.to_pylist()
    assert (row["failed"], row["failed_hosts"], row["failure"]) == (
        True,
        "host-1",
        "CUDA: uncorrectable ECC error encountered",
    )
    assert "all_reduce.out: host-1 failed: CUDA: uncorrectable ECC error encountered" in its.notes
    path.write_text(text.partition("\n")[2])
    notes = answer([read_tests(str(path))], "summary").notes
    assert any(note.startswith("1 run with one rank: no bandwidth between GPUs") for note in notes)
    path.write_text((text.partition("\n")[2]) * 2)
    assert not any("each alone" in note for note in answer([read_tests(str(path))], "summary").notes)
