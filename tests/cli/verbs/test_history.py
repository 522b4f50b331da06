"""`history` and `check --against`: options, forms of the answer, and what cannot be done."""

import json
from pathlib import Path

import pytest
from tests.history_rows import put
from tests.making import kernel, make_run

from alltrace.history.store import open_history


@pytest.fixture
def history(alltrace):
    """A history of seven runs, in the folder where commands run; names in it are hostile."""
    path = Path("h.duckdb")
    with open_history(path, write=True) as opened:
        for number in range(7):
            hosts = [{"host": "a"}, {"host": "b\x1b[31m", "slow": True, "kind": "sync", "lost_percent": 2.0}]
            put(opened, number, hosts=hosts, findings=[{"kind": "sync", "hosts": ["b\x1b[31m"]}], revision="\x1b]0;x")
    return path


@pytest.mark.sampled(3)
@pytest.mark.parametrize("by", ["run", "host", "finding", "kind"])
def test_every_question_has_every_form(alltrace, history, by):
    for form in ("table", "json", "csv", "md", "parquet"):
        assert alltrace("history", "--history", history, "--by", by, "--format", form, "-o", form).code == 0
        assert len(Path(form).read_bytes()) > 20
    assert b"\x1b" not in Path("table").read_bytes()
    told = json.loads(Path("json").read_text())
    assert (told["verb"], told["run"]) == ("history", {"runs": 7})
    assert len(told["rows"]) == {"run": 7, "host": 2, "finding": 1, "kind": 1}[by]


def test_a_picture_is_drawn(alltrace, history):
    for by in ("run", "host", "finding", "kind"):
        assert alltrace("history", "--history", history, "--by", by, "--picture", f"{by}.svg").code == 0
        assert "<svg" in Path(f"{by}.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "history needs runs; give FOLDER, --history HISTORY or both"),
        (["--history", "none.duckdb"], 3, "none.duckdb: there is no such file; expected a history file"),
        (["none"], 3, "none: there is no such folder"),
        (["empty", "--history", "new.duckdb"], 3, "empty: no run in it"),
        (["--history", "none.duckdb", "--format", "parquet"], 2, "-o FILE"),
        (
            ["runs", "-o", "new.duckdb"],
            2,
            "-o names the file of the answer, and new.duckdb is a database; write --history new.duckdb",
        ),
        (["runs", "-o", "old.db"], 2, "write --history old.db"),
        (["runs", "--answer", "new.duckdb"], 2, "write --history new.duckdb"),
        (["runs", "-o", "kept"], 2, "-o names the file of the answer, and kept is a database; write --history kept"),
        (["runs", "--report", "week.txt"], 2, "expected a name that ends in .html, found week.txt"),
        (["runs", "--history", "no/such/h.duckdb"], 3, "its folder does not exist"),
        (["runs", "--history", "h", "--job", "nope"], 2, "unknown job in the history 'nope'"),
    ],
)
def test_what_history_cannot_do_is_told(alltrace, arguments, code, said):
    Path("empty").mkdir()
    with open_history(Path("kept"), write=True):
        pass
    make_run(Path("runs") / "a", {0: {"kernels": [kernel(0, 10)]}})
    done = alltrace("history", *arguments)
    assert done.code == code
    assert said in done.err
    assert not Path("new.duckdb").exists()


def test_the_page_of_a_week_and_a_run_that_cannot_be_read(alltrace):
    path = Path("h.duckdb")
    with open_history(path, write=True) as opened:
        for number in range(8):
            bad = {"host": "<b>bad", "slow": number >= 6, "kind": "slow-host", "lost_percent": 10.0}
            finding = {"kind": "slow-host", "lost_ns": 1800 * 10**9, "hosts": ["<b>bad"]}
            put(
                opened,
                number,
                hosts=[{"host": "a"}, bad],
                findings=[finding] if number >= 6 else [],
                step_ns=(100 + 30 * (number >= 6)) * 10**6,
            )
        put(
            opened, 9, ranks=64, hosts=[{"host": "a"}], step_ns=10**9
        )  # of another size, so it is compared with none of them
    done = alltrace("history", "--history", path, "--report", "week.html")
    assert (done.code, done.out) == (0, "")
    page = Path("week.html").read_text(encoding="utf-8")
    assert "Look at host &lt;b&gt;bad: slow in 2 of 8 runs, since 2026-03-01 18:30." in page
    assert "train on 4 ranks and 2 hosts takes 30 % more time for a step than before." in page
    assert "4 GPU hours were lost in the recorded time, 4 of them to slow-host." in page
    assert "<b>bad" not in page
    assert "64" not in page.split("Jobs that became slower</h2>")[1].split("</section>")[0]
    assert "<script" not in page
    assert alltrace("history", "--history", path, "--report", "week.html", "--job", "train").code == 0
    make_run(Path("runs") / "a", {0: {"kernels": [kernel(0, 10)]}})
    (Path("runs") / "a" / "manifest.json").write_text("{}")
    done = alltrace("history", "runs")
    assert (done.code, "left out: " in done.out) == (0, True)
    assert alltrace("history", "runs", "--strict").code == 4


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "check needs limits; give --budget FILE, --baseline RUN or --against HISTORY"),
        (["--budget", "x.toml", "--job", "a"], 2, "--job selects runs of a history, so it needs --against HISTORY"),
        (["--against", "none.duckdb"], 3, "none.duckdb: there is no such file"),
        (["--against", "runs/a/manifest.json"], 3, "it is not a DuckDB file"),
    ],
)
def test_what_check_cannot_judge_by_is_told(alltrace, arguments, code, said):
    make_run(Path("runs") / "a", {0: {"kernels": [kernel(0, 10)]}})
    done = alltrace("check", "runs/a", *arguments)
    assert done.code == code
    assert said in done.err


def test_too_few_earlier_runs_are_skipped_unless_they_are_required(alltrace):
    make_run(Path("runs") / "a", {0: {"kernels": [kernel(0, 10)]}})
    with open_history(Path("h.duckdb"), write=True):
        pass
    done = alltrace("check", "runs/a", "--against", "h.duckdb", "--format", "json", "--junit", "check.xml")
    (row,) = json.loads(done.out)["rows"]
    assert (done.code, row["verdict"]) == (0, "skipped")
    assert (
        row["sentence"] == "earlier runs: skipped, for the history has 0 such runs, and the comparison needs 5 or more"
    )
    assert json.loads(done.out)["notes"] == [row["sentence"] + "; --require-history makes this a failure"]
    assert 'skipped="1"' in Path("check.xml").read_text()
    done = alltrace("check", "runs/a", "--against", "h.duckdb", "--require-history")
    assert done.code == 1
    assert "earlier runs: cannot be judged, for the history has 0 such runs" in done.err
    assert "needs --against HISTORY" in alltrace("check", "runs/a", "--budget", "x", "--require-history").err
