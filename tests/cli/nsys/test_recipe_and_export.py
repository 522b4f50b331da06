"""What `nsys recipe` and `nsys export` leave, with the real nsys and with us."""

import json
import shlex
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.nsight_recipes import ask_nsight, close, rows_of, twin
from tests.nsight_run import run_nsys

from alltrace.cli.main import main
from alltrace.cli.nsys import recipe
from alltrace.synth import write_run

# of scripts that profile on a cluster, each for one report, as they stand there
LINES = (
    "cuda_api_sum", "cuda_api_sync", "cuda_gpu_kern_pace --name ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
    "cuda_gpu_kern_sum", "cuda_gpu_mem_size_sum", "cuda_gpu_mem_time_sum", "cuda_gpu_time_util_map", "nccl_sum",
    "nccl_gpu_time_util_map",
    # of the guide
    "nvtx_sum --csv", "gpu_gaps --gap 0 --rows 5", "nvtx_gpu_proj_pace --name forward", "mpi_sum",
)  # fmt: skip
# of options that came later, or that change nothing here
NEWER = (
    "nvtx_sum --mode=concurrent --filter-time 1s/",
    "cuda_gpu_kern_hist --csv --mode unset",
    "nccl_gpu_overlap_trace --export-dir elsewhere",
    "gpu_metric_util_sum",
    "network_traffic_map --bins 10",
)
OUR_COLUMNS = {"files": ("Rank",), "analysis": ("Overlap",)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("simulated")
    write_run("tiny", place, ideal=True)
    (place / "tiny_rank1.sqlite").unlink()  # over one rank nothing is approximate
    return place


@pytest.fixture(autouse=True)
def here(tmp_path, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("ALLTRACE_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def answers(nsys, folder, tmp_path_factory):
    """Where nsys left the answers to all lines, and their tables, by the number of the line."""
    place = tmp_path_factory.mktemp("nsys")
    twin(next(folder.glob("*.sqlite")), place / "twin")
    asked = {str(number): shlex.split(line) for number, line in enumerate(LINES)}
    return place / "out", ask_nsight(nsys, place / "twin", place / "out", asked)


@pytest.mark.oracle
@pytest.mark.parametrize("number", range(len(LINES)), ids=LINES)
def test_a_recipe_leaves_the_tables_of_nsys(answers, folder, tmp_path, number, capfd):
    (export,) = folder.glob("*.sqlite")
    line, theirs = LINES[number], answers[1][str(number)]
    assert main(["nsys", "recipe", *shlex.split(line), "--input", str(export), "--output", "ours"]) == 0
    written = {f.stem: pq.read_table(f) for f in sorted((tmp_path / "ours").glob("*.parquet"))}
    assert written.keys() >= theirs.keys()  # of some there are more
    for name, table in theirs.items():
        ours = written[name].drop_columns([c for c in OUR_COLUMNS.get(name, ()) if c in written[name].column_names])
        facts = json.loads((table.schema.metadata or {}).get(b"pandas", b'{"index_columns": []}'))
        index = [i for i in facts["index_columns"] if isinstance(i, str) and not i.startswith("__")]
        if index:
            assert json.loads(written[name].schema.metadata[b"pandas"])["index_columns"] == index
        if "pace" in line or "util_map" in line:
            continue  # compared cell by cell with the recipes themselves
        wanted = rows_of(table, ours.column_names)
        for one, other in zip(ours.to_pylist(), wanted, strict=True):
            assert all(
                close(mine, his) for mine, his in zip(one.values(), other, strict=True) if isinstance(his, str | int)
            )
    if "--csv" in line:
        heads = {
            who: (who / "all_stats.csv").read_text().splitlines()[0]
            for who in (answers[0] / str(number), tmp_path / "ours")
        }
        assert len(set(heads.values())) == 1


@pytest.mark.parametrize("line", NEWER)
def test_what_came_later_is_taken(folder, line, capfd):
    assert main(["nsys", "recipe", *shlex.split(line), "--input", str(folder), "--output", "out"]) == 0
    assert "Generated:\n    out\n" in (said := capfd.readouterr().out) or said.startswith("No output generated")


def test_folders_are_named_as_nsys_names_them(folder, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("JOB", "42")
    for _ in range(2):
        assert main(["nsys", "recipe", "nvtx_sum", "--input", f"{folder}:1"]) == 0
    assert main(["nsys", "recipe", "nvtx_sum", "--input", str(folder), "--output", "out-%q{JOB}-%n-%%"]) == 0
    assert main(["nsys", "recipe", "nvtx_sum", "--input", str(folder), "--output", "nvtx_sum-1"]) == 0
    assert (
        main(
            [
                *"nsys recipe nvtx_sum --input".split(),
                str(folder),
                *"--output nvtx_sum-1 --force-overwrite --csv".split(),
            ]
        )
        == 0
    )
    assert {f.name for f in tmp_path.iterdir()} == {"nvtx_sum-1", "nvtx_sum-2", "nvtx_sum-3", "out-42-1-%"}
    assert (tmp_path / "nvtx_sum-1" / "all_stats.csv").read_text().startswith("Text,Count,Mean")


def test_pandas_finds_the_index_that_nsys_gives(folder, tmp_path):
    pandas = pytest.importorskip("pandas")
    assert main(["nsys", "-q", "recipe"]) == 2
    assert main(["nsys", "recipe", "-q", "cuda_gpu_kern_sum", "--input", str(folder), "--output", "out"]) == 0
    frame = pandas.read_parquet(tmp_path / "out" / "all_stats.parquet")
    assert frame.index.name == "Name"
    assert frame.columns[0] == "Time"


@pytest.mark.parametrize("name", sorted(recipe._LEFT_OUT))
def test_recipes_that_are_left_out_say_why(name, capfd):
    assert main(["nsys", "recipe", name]) == 1
    assert recipe._LEFT_OUT[name] in capfd.readouterr().err


def test_no_rows_leave_no_folder(folder, tmp_path, capfd):
    assert main(["nsys", "recipe", "ucx_gpu_time_util_map", "--filter-time", "900h/", "--input", str(folder)]) == 0
    said = capfd.readouterr()
    assert said.out.startswith("No output generated")
    assert "nothing" in said.err
    assert not list(tmp_path.iterdir())


@pytest.mark.oracle
def test_an_export_has_the_tables_of_nsys(nsys, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("ALLTRACE_NSYS", str(nsys))
    (tmp_path / "program.py").write_text("import nvtx\nwith nvtx.annotate('a'): pass\n")
    run_nsys(
        nsys,
        ("profile", "-t", "nvtx,osrt", "-s", "none", "--cpuctxsw=none", "-o", "cpu", sys.executable, "program.py"),
        tmp_path,
    )
    run_nsys(nsys, ("export", "-t", "parquetdir", "-q", "true", "-o", "theirs", "cpu.nsys-rep"), tmp_path)
    for line in (
        "-t parquetdir -o ours",
        "-t sqlite",
        "--type=arrow -q true",
        "-t arrowdir --tables=nvtx_events,string.*",
    ):
        assert main(["nsys", "export", *shlex.split(line), "cpu.nsys-rep"]) == 0
    assert {f.name for f in (tmp_path / "ours").iterdir()} == {f.name for f in (tmp_path / "theirs").iterdir()}
    for file in (tmp_path / "theirs").iterdir():
        theirs, ours = pq.read_table(file), pq.read_table(tmp_path / "ours" / file.name)
        assert ours.column_names == theirs.column_names
        for name in theirs.column_names:
            kind = pa.int64() if pa.types.is_boolean(theirs.schema.field(name).type) else theirs.schema.field(name).type
            if file.stem != "META_DATA_EXPORT":
                assert ours.column(name).cast(kind).to_pylist() == theirs.column(name).cast(kind).to_pylist(), (
                    file.stem,
                    name,
                )
    assert (tmp_path / "cpu.sqlite").is_file()
    assert sorted(f.name for f in (tmp_path / "cpu_arwdir").iterdir()) == ["NVTX_EVENTS.arrow", "StringIds.arrow"]
    with pa.OSFile(str(tmp_path / "cpu.arrows")) as file:
        tables = {}
        while file.tell() < file.size():
            stream = pa.ipc.open_stream(file)
            tables[stream.schema.metadata[b"table_name"].decode()] = stream.read_all().num_rows
    assert tables["StringIds"] == pq.read_table(tmp_path / "theirs" / "StringIds.parquet").num_rows
    assert "META_DATA_CAPTURE" not in tables
    # what is there stays, unless it is said otherwise
    assert main(["nsys", "export", "-t", "sqlite", "cpu.nsys-rep"]) == 1
    assert main(["nsys", "export", "-t", "sqlite", "-f", "true", "--lazy=false", "cpu.nsys-rep"]) == 0
    assert main(["nsys", "export", "-t", "parquetdir", "--append", "-o", "ours", "cpu.sqlite"]) == 0


def test_an_export_of_an_export_needs_no_nsys(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("ALLTRACE_NSYS", "/nowhere/nsys")
    (export,) = folder.glob("*.sqlite")
    assert (
        main(["nsys", "export", "--type", "parquetdir", "--tables=StringIds,nvtx.*", "--output=out", str(export)]) == 0
    )
    assert {f.stem for f in (tmp_path / "out").iterdir()} == {"StringIds", "NVTX_EVENTS"}
    for refused in ("--tables=nothing", "--tables=[", "--times=1s/2s"):
        assert main(["nsys", "export", "--type", "parquetdir", refused, "--output=two", str(export)]) in (1, 3)
    assert not (tmp_path / "two").exists()


def test_a_command_gets_the_answer_as_its_input(folder, capfd):
    (export,) = folder.glob("*.sqlite")
    assert main(["nsys", "stats", "-q", "-r", "nvtx_sum", "-o", "@grep -c forward", str(export)]) == 0
    assert int(capfd.readouterr().out) > 0
    assert main(["nsys", "stats", "-q", "-r", "nvtx_sum", "-o", "@/nowhere/program", str(export)]) == 0
    assert "cannot be run" in capfd.readouterr().err
    assert subprocess.run(
        [sys.executable, "-m", "alltrace.cli.main", "nsys", "stats", "--help"], capture_output=True, check=True
    ).stdout
