"""The tools of the server, without the protocol."""

import json
from pathlib import Path

import pytest
from tests.hang_writing import HangFault, Job, Layout, write_job
from tests.making import kernel, make_run

from alltrace.mcp.tools import MOST_BYTES, Tools
from alltrace.recipes.registry import REPORTS, find, names
from alltrace.trace.errors import AlltraceError, InputError, UsageError

LONG = "k" * 5000


@pytest.fixture
def tools(tmp_path):
    kernels = [kernel(10 * i, 10 * i + 5, f"kernel {i:04d}") for i in range(1200)]
    make_run(
        tmp_path / "runs" / "one",
        {0: {"kernels": kernels}, 1: {"kernels": [kernel(0, 50, LONG)]}},
        missing=(2,),
        notes=("rank 2: no report",),
    )
    make_run(tmp_path / "runs" / "two", {0: {"kernels": [kernel(0, 9, "kernel 0000")]}})
    make_run(tmp_path / "outside", {0: {"kernels": [kernel(0, 9, "x")]}})
    return Tools([tmp_path / "runs"], tmp_path / "cache")


def test_a_run_is_asked_and_answers_are_bounded(tools):
    opened = tools.open("one")
    assert opened["run"] == "one"
    assert [row["rank"] for row in opened["rows"]] == [0, 1]
    assert "rank 2: no report" in opened["notes"]
    found = tools.recipe("one", "kernels", {"by_rank": True}, ranks=[1])
    assert found["rows_total"] == 1
    assert found["rows"][0]["name"].endswith("…")
    assert len(found["rows"][0]["name"]) < 500
    assert {c["name"] for c in found["columns"]} >= {"name", "total_ns"}
    seen = []
    reply = tools.recipe("one", "kernels", limit=10_000)
    while True:
        assert len(json.dumps(reply["rows"])) < MOST_BYTES + 2000
        seen += [row["name"] for row in reply["rows"]]
        if "more" not in reply:
            break
        offset = int(reply["more"].rpartition("=")[2])
        assert offset == len(seen)
        reply = tools.recipe("one", "kernels", limit=10_000, offset=offset)
    assert len(seen) == len(set(seen)) == reply["rows_total"] == 1201


def test_sql_has_its_fence(tools, tmp_path):
    assert tools.sql("one", "SELECT count(*) AS n FROM kernels")["rows"] == [{"n": 1201}]
    (tmp_path / "runs" / "secret.csv").write_text("a\n1\n")
    with pytest.raises(
        UsageError
    ):  # tests/recipes/questions/test_sql.py has all that is refused; each takes a process here
        tools.sql("one", f"SELECT * FROM '{tmp_path}/runs/secret.csv'")


def test_what_is_outside_of_the_folders_is_refused(tools, tmp_path):
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "outside")
    for path in ("../outside", str(tmp_path / "outside"), "link", "lin*", "[l]ink", "**", "/etc/passwd"):
        with pytest.raises(UsageError, match="outside the folders"):
            tools.open(path)
    with pytest.raises(InputError):
        tools.open("nothing")


def test_options_that_name_files_tell_nothing_of_files_outside(tools, tmp_path):
    (tmp_path / "there.txt").write_text("x")
    refused = set()
    for path in (tmp_path / "there.txt", tmp_path / "not-there.txt", "/etc/shadow", "../there.txt"):
        with pytest.raises(UsageError, match="outside the folders") as found:
            tools.recipe("one", "collectives", {"nccl_tests": str(path)})
        refused.add(str(found.value).replace(str(path), "").replace(str(Path(path).resolve()), ""))
    assert len(refused) == 1
    for path in ("\0", "a\0b", "\ud800", "x" * 5000):
        with pytest.raises((UsageError, InputError)):
            tools.open(path)


def test_a_run_that_an_option_names_is_within_the_folders_too(tools, tmp_path):
    assert tools.recipe("one", "efficiency", {"reference": "two"})["rows"][0]["computation_scalability"] is not None
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "outside")
    for path in (tmp_path / "outside", tmp_path / "nothing", "../outside", "link", "lin*"):
        with pytest.raises(UsageError, match="outside the folders"):
            tools.recipe("one", "efficiency", {"reference": str(path)})
    with pytest.raises(InputError, match="no such file"):
        tools.recipe("one", "efficiency", {"reference": "https://127.0.0.1:9/x"})  # a path below the folder


def test_no_option_of_a_recipe_opens_a_file_unless_it_says_so(tools, tmp_path):
    def told(name, option, path):
        try:
            reply = tools.recipe("one", name, {option.name: str(path)})
        except AlltraceError as error:
            return str(error).replace(str(path), "PATH")
        return json.dumps(reply).replace(str(path), "PATH")

    options = [(n, o) for n in (*names(), *(f"stats:{r}" for r in REPORTS)) for o in find(n).options]
    chosen = [(n, o) for n, o in options if o.type is str and o.choices is None and o.reads is None]
    assert len(chosen) > 30
    for name, option in chosen:
        assert told(name, option, tmp_path / "outside") == told(name, option, tmp_path / "nothing"), (name, option.name)


def test_a_file_of_a_run_that_is_a_link_to_another_is_not_read(tools, tmp_path):
    file = tmp_path / "runs/two/ranks/rank=0/kernels.parquet"
    file.unlink()
    file.symlink_to(tmp_path / "outside/ranks/rank=0/kernels.parquet")
    with pytest.raises(AlltraceError, match="checksum does not match"):
        tools.sql("two", "SELECT * FROM kernels")
    assert tools.sql("one", "SELECT 1 AS n")["rows"] == [{"n": 1}]


def test_two_runs_are_compared_and_words_explained(tools):
    found = tools.compare("one", "two", what="kernel")
    assert {row["what"] for row in found["rows"]} == {"kernel"}
    assert "wait for it" in tools.explain("straggler")["rows"][0]["meaning"]
    assert tools.diagnose("one")["rows_total"] >= 0
    for limit, offset in ((0, 0), (1, -1)):
        with pytest.raises(UsageError, match="expected a limit"):
            tools.diagnose("one", limit, offset)
    with pytest.raises(UsageError):
        tools.recipe("one", "nothing")


def test_relative_paths_are_of_the_first_folder(tmp_path, monkeypatch):
    make_run(tmp_path / "run", {0: {"kernels": [kernel(0, 9, "x")]}})
    monkeypatch.chdir(tmp_path)
    assert Tools([Path()], tmp_path / "cache").open("run")["rows"]


def test_a_folder_of_dumps_is_asked_by_hang_and_diagnose(tools, tmp_path):
    write_job(tmp_path / "runs" / "job", Job(Layout(), HangFault("stuck", (3,), 4, 1)))
    reply = tools.hang("job")
    assert reply["rows"][0]["ranks"] == [3]
    assert reply["verdict"].startswith("Rank 3 never entered")
    assert tools.diagnose("job")["verdict"] == reply["verdict"]
    (tmp_path / "runs" / "job" / "link.log").symlink_to(tmp_path / "outside" / "manifest.json")
    with pytest.raises(UsageError, match="outside the folders"):
        tools.hang("job")
