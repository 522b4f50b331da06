from __future__ import annotations

import gc
import io
import tempfile
from contextlib import redirect_stdout
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.making import kernel, make_run

from alltrace.cli.csv_text import to_csv
from alltrace.cli.main import main
from alltrace.recipes import row_stream
from alltrace.recipes.execution import part_store
from alltrace.recipes.execution.ask import ask
from alltrace.recipes.row_stream import RowStream, SpilledRows, StreamedRank, merged_spilled
from alltrace.run import row_groups, time_slices
from alltrace.run.rank import Rank
from alltrace.run.time_slices import spans
from alltrace.trace.errors import InputError

TRACES = (
    "stats:cuda_gpu_trace",
    "stats:cuda_api_trace",
    "stats:cuda_kern_exec_trace",
    "stats:nvtx_pushpop_trace",
    "stats:nvtx_gpu_proj_trace",
)
SIZES = {row_stream: ("SPAN_ROWS", "_BLOCK_ROWS", "_ROOM_BYTES"), time_slices: ("_SAMPLE_ROWS", "_FIRST_ROWS")}


def sizes(monkeypatch, rows, room_bytes=1 << 20):
    """Spans, blocks and samples of so many rows."""
    for module, names in SIZES.items():
        for name in names:
            monkeypatch.setattr(module, name, room_bytes if name == "_ROOM_BYTES" else rows)
    monkeypatch.setattr(part_store, "LARGE_BYTES", 1)


def rank_rows(starts):
    """Kernels on two streams, copies and calls; a correlation id may occur several times."""
    kernels = [kernel(s, s + 5, f"k{n % 3}", correlation=n // 2, stream=7 + n % 2) for n, s in enumerate(starts)]
    copies = [
        {"start": s, "end": s + 2, "kind": "HtoD", "bytes": n, "correlation": n + 100}
        for n, s in enumerate(starts[::2])
    ]
    api = [
        {"start": s - 1, "end": s, "name": "cudaLaunchKernel_v7000", "correlation": n // 2}
        for n, s in enumerate(starts)
    ]
    ranges = [
        {
            "start": s - 1,
            "end": s + 3,
            "thread": 0,
            "name": f"r{n % 2}",
            "kind": "pushpop",
            "end_thread": 0,
            "depth": 0,
            "source_row": n,
        }
        for n, s in enumerate(dict.fromkeys(s // 4 * 4 for s in starts))
    ]
    return {"kernels": kernels, "copies": copies, "api": api, "ranges": ranges}


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.lists(st.integers(1, 12), max_size=12), min_size=1, max_size=4),
    st.integers(1, 40),
    st.sampled_from([0, 1 << 20]),
    st.booleans(),
)
def test_a_stream_has_the_rows_of_the_table_in_its_order(tmp_path_factory, starts, rows, room_bytes, by_rank):
    run = make_run(tmp_path_factory.mktemp("run") / "run", {n: rank_rows(sorted(one)) for n, one in enumerate(starts)})
    with pytest.MonkeyPatch.context() as patch:
        sizes(patch, rows, room_bytes)
        for name in TRACES:
            table = ask(run, name, {"by_rank": by_rank}).table
            streamed = ask(run, name, {"by_rank": by_rank}, stream=True)
            assert streamed.stream.is_empty == (table.num_rows == 0)
            assert streamed.notes == ask(run, name, {"by_rank": by_rank}).notes
            found = streamed.stream.read_all()
            assert found.to_pylist() == table.to_pylist()
            assert to_csv(found) == to_csv(table)


def small_row_groups(monkeypatch):
    """Row groups of 8 rows in files made from now on, with what they say of their rows."""
    monkeypatch.setattr(row_groups, "ROW_GROUP_ROWS", 8)
    monkeypatch.setattr(row_groups, "_SMALL_ROWS", 2)


IDS = st.one_of(st.none(), st.integers(0, 40))
CALLS = st.lists(
    st.tuples(st.integers(0, 60), st.one_of(st.none(), st.integers(0, 9)), IDS, st.sampled_from([0, 1])), max_size=40
)
KERNELS = st.lists(
    st.tuples(st.integers(0, 90), st.one_of(st.none(), st.integers(0, 9)), IDS, st.sampled_from([0, 1])), max_size=30
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(CALLS, KERNELS), min_size=1, max_size=3),
    st.integers(1, 40),
    st.sampled_from([0, 1 << 20]),
    st.sampled_from([0, 20, 1 << 20]),
    st.booleans(),
)
def test_kernels_come_with_their_calls_whenever_they_run(
    tmp_path_factory, ranks, rows, room_bytes, looked_up, in_order
):
    """Calls that start at once, several calls of an id, ids of two processes and in no order, ends that are not
    known."""

    def events(found, **more):
        ids = sorted(found, key=lambda e: -1 if e[2] is None else e[2]) if in_order else found
        times = sorted(found, key=lambda e: e[0])
        return [
            {"start": t[0], "end": None if t[1] is None else t[0] + t[1], "correlation": i[2], "process": t[3], **more}
            for t, i in zip(times, ids, strict=True)
        ]

    tables = {
        n: {
            "api": events(calls, name="cudaLaunchKernel_v7000"),
            "kernels": [{**k, "name": f"k{p % 3}", "stream": 7 + p % 2} for p, k in enumerate(events(kernels))],
            "processes": [{"process": p, "pid": 4000 + p, "name": "train"} for p in (0, 1)],
        }
        for n, (calls, kernels) in enumerate(ranks)
    }
    with pytest.MonkeyPatch.context() as patch:
        sizes(patch, rows, room_bytes)
        small_row_groups(patch)
        patch.setattr(row_stream, "_LOOKED_UP_ROWS", looked_up)
        run = make_run(tmp_path_factory.mktemp("run") / "run", tables)
        table = ask(run, "stats:cuda_kern_exec_trace").table
        assert ask(run, "stats:cuda_kern_exec_trace", stream=True).read().table.to_pylist() == table.to_pylist()


def launching(count):
    """Calls of two kernels each; the kernels run long after the calls, in the order of their ids."""
    return {
        "api": [
            {"start": 10 * n, "end": 10 * n + 1, "name": "cudaLaunchKernel", "correlation": n} for n in range(count)
        ],
        "kernels": [kernel(5000 + 10 * n, 5005 + 10 * n, "k", correlation=n // 2) for n in range(2 * count)],
    }


@pytest.fixture
def launches(tmp_path, monkeypatch):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    sizes(monkeypatch, 16)
    small_row_groups(monkeypatch)
    return make_run(tmp_path / "run", {**{n: launching(200) for n in range(3)}, 3: {"api": [], "kernels": []}})


@pytest.fixture
def read(monkeypatch):
    """The row groups that were read, in order."""
    found = []
    inner = Rank.file_piece

    def counted(self, table, group, columns):
        found.append((self.rank, table, group))
        return inner(self, table, group, columns)

    monkeypatch.setattr(Rank, "file_piece", counted)
    return found


def test_the_first_rows_come_before_the_others_are_read(launches, read, tmp_path):
    with ask(launches, "stats:cuda_kern_exec_trace", stream=True).stream as stream:
        rows = stream.batches()
        assert next(rows).num_rows
        assert len(read) <= 3 * (2 + 4), "of each rank those of its first calls"
        assert not left(tmp_path), "and no file is needed"
        assert sum(batch.num_rows for batch in rows) > 0
    assert len(read) == len(set(read)) == 3 * (200 + 400) // 8, "each is read once"


def test_ranks_with_too_much_work_to_look_through_go_through_files(launches, read, tmp_path, monkeypatch):
    table = ask(launches, "stats:cuda_kern_exec_trace").table
    monkeypatch.setattr(row_stream, "_LOOKED_UP_ROWS", 20)
    with ask(launches, "stats:cuda_kern_exec_trace", stream=True).stream as stream:
        assert len(left(tmp_path)) == 1
        assert {rank for rank, _, _ in read} == {0}, "as many ranks as there is room for are read span by span"
        assert stream.read_all().to_pylist() == table.to_pylist()
    assert not left(tmp_path)


@pytest.mark.parametrize("kind", ["csv", "json", "md", "parquet", "table"])
def test_a_row_group_that_cannot_be_read_leaves_no_file(launches, tmp_path, monkeypatch, kind, capsys):
    inner = Rank.file_piece
    count = []

    def damaged(self, *given):
        count.append(given)
        if len(count) > 40:
            raise InputError("kernels.parquet", found="it cannot be read")
        return inner(self, *given)

    monkeypatch.setattr(Rank, "file_piece", damaged)
    before = sorted(tmp_path.iterdir())
    assert (
        main(["stats", "cuda_kern_exec_trace", str(tmp_path / "run"), "--format", kind, "-o", str(tmp_path / "out")])
        == 3
    )
    assert "it cannot be read" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before
    count.clear()
    more = [] if kind == "table" else ["--format", kind]
    command = [
        "recipe",
        "stats:cuda_kern_exec_trace",
        str(tmp_path / "run"),
        *more,
        "--csv",
        "-o",
        str(tmp_path / "out"),
    ]
    assert main(command) == 3
    assert not list((tmp_path / "out").iterdir())
    assert not left(tmp_path)


@given(st.lists(st.lists(st.one_of(st.none(), st.integers(-3, 3))), max_size=4), st.integers(1, 9))
def test_sorted_files_are_merged_with_lower_ranks_first(starts, rows):
    tables = [
        pa.table(
            {"at": pa.array(one, pa.int64()), "row": pa.array([f"{rank} {n}" for n in range(len(one))], pa.string())}
        )
        for rank, one in enumerate(starts)
    ]
    wanted = [(at, row) for table in tables for at, row in zip(*table.to_pydict().values(), strict=True)]
    wanted.sort(key=lambda row: (row[0] is None, row[0]))
    with pytest.MonkeyPatch.context() as patch:
        sizes(patch, rows)
        found = []
        for parts in merged_spilled(enumerate(tables), "at"):
            some = [row for part in parts for row in zip(*part.table.to_pydict().values(), strict=True)]
            found += sorted(some, key=lambda row: (row[0] is None, row[0]))
    assert found == wanted


def test_spans_have_about_as_many_rows_as_asked():
    rank = (pa.array(range(0, 1000, 10)).to_numpy(), pa.array([10] * 100).to_numpy())
    found = spans([rank, rank], 200)
    assert found[0][0] is None
    assert found[-1][1] is None
    assert 9 <= len(found) <= 11
    assert all(left[1] == right[0] for left, right in pairwise(found))
    assert spans([], 10) == [(None, None)]


@pytest.fixture
def run(tmp_path, monkeypatch):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    sizes(monkeypatch, 4)
    return make_run(tmp_path / "run", {n: rank_rows(list(range(1, 60))) for n in range(3)})


def left(tmp_path):
    return list((tmp_path / "temporary").iterdir())


@pytest.mark.parametrize(
    "name", ["cuda_gpu_trace", "cuda_kern_exec_trace", "nvtx_pushpop_trace", "nvtx_gpu_proj_trace"]
)
def test_the_command_writes_what_the_table_says(run, tmp_path, name):
    table = ask(run, f"stats:{name}").table
    with redirect_stdout(io.StringIO()) as out:
        assert main(["stats", name, str(tmp_path / "run"), "--format", "csv"]) == 0
    assert out.getvalue() == to_csv(table)
    with redirect_stdout(io.StringIO()) as out:
        assert main(["stats", name, str(tmp_path / "run"), "--format", "csv", "--limit", "7"]) == 0
    assert out.getvalue() == to_csv(table.slice(0, 7))
    with redirect_stdout(io.StringIO()) as out:
        assert main(["stats", name, str(tmp_path / "run"), "--limit", "7"]) == 0
    assert (f"... {table.num_rows - 7} more rows" in out.getvalue()) == (table.num_rows > 7)
    assert (
        main(["stats", name, str(tmp_path / "run"), "--format", "parquet", "-o", str(tmp_path / "rows.parquet")]) == 0
    )
    assert pq.read_table(tmp_path / "rows.parquet").to_pylist() == table.to_pylist()
    assert not left(tmp_path)


def test_a_stream_that_is_left_removes_its_files(run, tmp_path):
    for name in ("stats:nvtx_pushpop_trace", "stats:nvtx_gpu_proj_trace", "nccl_gpu_overlap_trace"):
        answer = ask(run, name, stream=True)
        assert len(left(tmp_path)) == 1
        answer.close()
        assert not left(tmp_path)
    rows = ask(run, "stats:nvtx_pushpop_trace", stream=True).stream.batches()
    assert next(rows).num_rows
    del rows
    gc.collect()
    assert not left(tmp_path)


def test_ranks_that_follow_each_other_are_made_one_after_the_other(run, monkeypatch):
    asked = []
    whole = StreamedRank.whole
    monkeypatch.setattr(StreamedRank, "whole", lambda rank: asked.append(rank.rank) or whole(rank))
    table = ask(run, "nvtx_gpu_proj_trace").table
    with ask(run, "nvtx_gpu_proj_trace", stream=True).stream as stream:
        assert asked == [0]
        assert stream.read_all().to_pylist() == table.to_pylist()
    assert asked == [0, 1, 2]


def test_further_tables_are_streams_too(run, tmp_path):
    wanted = ask(run, "nccl_gpu_overlap_trace")
    answer = ask(run, "nccl_gpu_overlap_trace", stream=True)
    assert (answer.stream, answer.further["rank_trace"].table.num_rows) == (None, 0)
    assert len(left(tmp_path)) == 1, "what waits until the sums are made"
    found = answer.read()
    assert {n: t.table.to_pylist() for n, t in found.all_tables().items()} == {
        n: t.table.to_pylist() for n, t in wanted.all_tables().items()
    }
    assert not left(tmp_path)
    with run.recipe_rows("nccl_gpu_overlap_trace") as rows:
        assert not left(tmp_path), "they are not asked for"
        assert rows.read_all().to_pylist() == wanted.table.to_pylist()


def test_an_interrupted_command_leaves_no_file(run, tmp_path, monkeypatch):
    read = SpilledRows.between
    calls = []

    def interrupted(*given):
        calls.append(given)
        if len(calls) > 9:
            raise KeyboardInterrupt
        return read(*given)

    monkeypatch.setattr(SpilledRows, "between", interrupted)
    before = sorted(tmp_path.iterdir())
    for kind in ("csv", "parquet"):
        calls.clear()
        assert (
            main(["stats", "nvtx_pushpop_trace", str(tmp_path / "run"), "--format", kind, "-o", str(tmp_path / "out")])
            == 130
        )
        assert sorted(tmp_path.iterdir()) == before
        assert not left(tmp_path)


def test_a_full_disk_and_a_missing_folder_are_a_sentence(run, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(part_store.PartFiles, "_path", lambda *_: Path("/dev/full"))  # each write to it finds no room
        with pytest.raises(
            InputError, match=r"what the ranks contributed cannot be written there .No space left.*TMPDIR"
        ):
            ask(run, "stats:nvtx_pushpop_trace", stream=True)
    assert not left(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(InputError, match=r"none: no temporary folder can be made .No such file.*TMPDIR"):
        ask(run, "stats:nvtx_pushpop_trace", stream=True)


def test_the_library_gives_batches(run):
    for name in ("stats:cuda_gpu_trace", "stats:cuda_gpu_kern_sum"):
        with run.recipe_rows(name, by_rank=True) as rows:
            batches = list(rows.batches(10))
        assert max(b.num_rows for b in batches) <= 10
        assert pa.Table.from_batches(batches).to_pylist() == run.recipe(name, by_rank=True).to_pylist()


def test_rows_of_another_schema_become_those_of_the_first():
    def made():
        yield pa.table({"x": pa.array([1], pa.int64())})
        yield pa.table({"x": pa.array([2], pa.int32())})

    stream = RowStream(made(), pa.table({"x": pa.array([], pa.int64())}))
    assert stream.read_all().column("x").to_pylist() == [1, 2]
    assert stream.read_all().num_rows == 0
