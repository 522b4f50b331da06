import json

import fsspec
import pyarrow.parquet as pq
import pytest
from tests.making import kernel, make_run

from alltrace.cli.main import main
from alltrace.cli.output_folder import Folder, is_folder
from alltrace.recipes.registry import find
from alltrace.trace.errors import InputError, UsageError

RANGES = [{"start": 0, "end": 50, "name": "step", "kind": "pushpop"}]


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "run", {r: {"ranges": RANGES, "kernels": [kernel(10, 40)]} for r in (0, 1)}).path


def test_an_answer_with_several_tables_is_a_folder_of_files(run, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["recipe", "nvtx_sum", str(run), "--csv", "-o", str(out)]) == 0
    assert sorted(f.name for f in out.iterdir()) == [
        f"{t}.{k}" for t in ("all_stats", "files", "rank_stats") for k in ("csv", "parquet")
    ]
    assert pq.read_table(out / "all_stats.parquet").column("Count").to_pylist() == [2]
    assert (out / "files.csv").read_text() == "File,Rank\nrank0,0\nrank1,1\n"


def test_one_of_the_tables_alone_or_all_in_json(run, capsys):
    assert main(["recipe", "nvtx_sum", str(run), "--table", "files", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == [{"File": "rank0", "Rank": 0}, {"File": "rank1", "Rank": 1}]
    assert main(["recipe", "nvtx_sum", str(run), "--table", "filse"]) == 2
    assert "files" in capsys.readouterr().err
    assert main(["recipe", "nvtx_sum", str(run), "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [r["Count"] for r in told["rows"]] == [2]
    assert [r["Rank"] for r in told["further"]["rank_stats"]["rows"]] == [0, 1]
    assert told["further"]["files"]["columns"][0] == {"name": "File", "unit": None}


@pytest.fixture
def launching(tmp_path):
    api = [{"start": 5, "end": 6, "name": "cudaLaunchKernel", "correlation": 1}]
    tables = {
        "ranges": [{**RANGES[0], "thread": 0, "source_row": 1}],
        "kernels": [kernel(10, 40, correlation=1)],
        "api": api,
    }
    return make_run(tmp_path / "run", dict.fromkeys((0, 1), tables)).path


def test_rows_that_are_made_as_they_are_written_are_counted(launching, tmp_path, capsys):
    out = tmp_path / "out"
    for kind in ("csv", "json", "md"):
        command = ["recipe", "nccl_gpu_overlap_trace", str(launching), "--format", kind]
        assert main([*command, "--csv", "-o", str(out)]) == 0
        assert sorted(f.name for f in out.glob(f"*.{kind}")) == [
            f"{t}.{kind}" for t in ("files", "grouped_trace", "rank_trace")
        ]
        assert main([*command, "--table", "rank_trace"]) == 0
        assert capsys.readouterr().out == (out / f"rank_trace.{kind}").read_text()
    assert (out / "rank_trace.csv").read_text().count("\n") == 3
    assert main(["recipe", "nccl_gpu_overlap_trace", str(launching)]) == 0
    assert "rank_trace (2 rows)" in capsys.readouterr().out
    assert (
        main(
            ["recipe", "all", str(launching), "-o", str(out), "--recipes", "nccl_gpu_overlap_trace,nvtx_gpu_proj_trace"]
        )
        == 0
    )
    index = json.loads((out / "index.json").read_text())
    told = {t["table"]: t["rows"] for r in index["recipes"] for t in r["tables"]}
    assert told["rank_trace"] == pq.read_table(out / "nccl_gpu_overlap_trace" / "rank_trace.parquet").num_rows == 2
    assert told["trace"] == pq.read_table(out / "nvtx_gpu_proj_trace" / "trace.parquet").num_rows == 2


def test_rows_that_cannot_be_made_are_a_reason_to_skip(launching, tmp_path, monkeypatch):
    recipe = type(find("nvtx_gpu_proj_trace"))
    pieces = recipe._pieces

    def refused(*given):
        yield next(pieces(*given))
        raise UsageError("the ranges are nested so deeply")

    monkeypatch.setattr(recipe, "_pieces", refused)
    out = tmp_path / "out"
    assert main(["recipe", "all", str(launching), "-o", str(out), "--recipes", "nvtx_sum,nvtx_gpu_proj_trace"]) == 0
    index = json.loads((out / "index.json").read_text())
    assert index["skipped"] == [{"recipe": "nvtx_gpu_proj_trace", "why": "the ranges are nested so deeply"}]
    assert not list(out.rglob("trace*"))


def test_all_recipes_are_written_with_an_index(run, tmp_path, capsys):
    out = tmp_path / "all"
    assert main(["recipe", "all", str(run), "-o", str(out), "--format", "csv", "--end", "45"]) == 0
    index = json.loads((out / "index.json").read_text())
    told = {r["recipe"]: r for r in index["recipes"]}
    assert index["run"]["ranks"] == 2
    assert {t["file"] for t in told["nvtx_sum"]["tables"]} == {
        f"nvtx_sum/{t}.csv" for t in ("all_stats", "rank_stats", "files")
    }
    assert all((out / t["file"]).is_file() for r in told.values() for t in r["tables"])
    # whatif cannot judge a run without steps; the reason is told
    page = (out / "index.md").read_text()
    assert all(s["why"] and f"* {s['recipe']}: " in page for s in index["skipped"])
    assert "nvtx_sum/all_stats.csv" in page
    assert not list(out.rglob(".*"))


def test_several_recipes_are_one_document_of_json(run, capsys):
    assert main(["recipe", "kernels,breakdown", str(run), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["alltrace"], document["verb"], document["skipped"]) == (1, "recipe", [])
    for answer, name in zip(document["answers"], ("kernels", "breakdown"), strict=True):
        assert main(["recipe", name, str(run), "--format", "json"]) == 0
        assert answer == json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("form", "heading"), [("table", "breakdown\n=========\n"), ("md", "## breakdown\n\n|")])
def test_several_recipes_are_tables_with_a_heading_each(run, form, heading, tmp_path, capsys):
    assert main(["recipe", "kernels,breakdown", str(run), "--format", form]) == 0
    text = capsys.readouterr().out
    assert text.index("kernels") < text.index(heading)
    assert main(["recipe", "kernels,breakdown", str(run), "--format", form, "-o", str(tmp_path / "answers")]) == 0
    assert (tmp_path / "answers").read_text() == text


def test_several_recipes_are_a_file_each_in_a_folder(run, tmp_path, capsys):
    assert main(["recipe", "kernels,nvtx_sum", str(run), "--format", "csv"]) == 2
    assert "give -o FOLDER" in capsys.readouterr().err
    assert main(["recipe", "kernels,nvtx_sum", str(run), "--format", "csv", "-o", str(tmp_path / "out")]) == 0
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "kernels.csv", "nvtx_sum-files.csv", "nvtx_sum-rank_stats.csv", "nvtx_sum.csv"
    ]  # fmt: skip
    assert main(["recipe", "kernels,steps", str(run), "-o", str(tmp_path)]) == 2
    assert "a folder" in capsys.readouterr().err


def test_a_recipe_without_an_answer_ends_no_other(run, capsys):
    assert main(["recipe", "memory,kernels", str(run), "--format", "json"]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert [a["verb"] for a in document["answers"]] == ["kernels"]
    assert [s["recipe"] for s in document["skipped"]] == ["memory"]
    assert "memory is left out: no rank has `allocations`" in printed.err
    assert main(["recipe", "memory,memory-peak", str(run)]) != 0
    assert "memory: no rank has" in capsys.readouterr().err
    assert main(["recipe", "kernels,colonels", str(run)]) == 2
    assert "colonels" in capsys.readouterr().err


def test_chosen_recipes_are_uploaded(run):
    assert (
        main(["recipe", "all", str(run), "-o", "memory://bucket/prefix", "--recipes", "nvtx_sum,cuda_gpu_kern_sum"])
        == 0
    )
    files = fsspec.filesystem("memory").find("/bucket/prefix")
    assert len(files) == 7
    assert "/bucket/prefix/nvtx_sum/all_stats.parquet" in files


def test_what_cannot_be_written_to_is_refused(run, tmp_path, capsys):
    (tmp_path / "file").write_text("kept")
    for place in (str(tmp_path / "file"), "nosuch://x/y"):
        with pytest.raises(UsageError, match="expected a"):
            Folder(place, ("csv",))
    assert main(["recipe", "all", str(run), "-o", str(tmp_path / "file")]) == 2
    assert (tmp_path / "file").read_text() == "kept"
    with pytest.raises(InputError, match="cannot be created"):
        Folder(str(tmp_path / "file" / "deeper"), ("csv",)).write_text("index.md", "x")
    assert main(["recipe", "all", str(run), "-o", str(tmp_path / "o"), "--recipes", "nosuch"]) == 2
    assert main(["recipe", "all", str(run), "-o", str(tmp_path / "o"), "--filter-time", "soon"]) == 2
    assert main(["recipe", "all", str(run)]) == 2
    assert not (tmp_path / "o").exists()


def test_a_store_that_fails_is_named(monkeypatch):
    folder = Folder("memory://bucket/broken", ("csv",))

    def fail(*_):
        raise RuntimeError("no such bucket")

    monkeypatch.setattr(type(folder._system), "put_file", fail)
    with pytest.raises(InputError, match=r"memory://bucket/broken/a\.md.*no such bucket"):
        folder.write_text("a.md", "x")


def test_what_names_a_folder(tmp_path):
    assert is_folder("s3://b/p")
    assert is_folder("out/")
    assert is_folder(str(tmp_path))
    assert not is_folder("answer.csv")
