import json
from contextlib import contextmanager
from xml.etree import ElementTree as ET

import pytest
from tests.making import kernel, make_run

import alltrace.engine.cluster_start
from alltrace.cli.main import main
from alltrace.engine import tasks

HOSTILE = "<img src=x onerror=alert(1)>\x1b[31m&"


@pytest.fixture
def runs(tmp_path):
    made = []
    for name, length in (("a", 100), ("b", 150)):
        ranks = {
            r: {"kernels": [kernel(i * 1000, i * 1000 + length, name=HOSTILE) for i in range(20)]} for r in range(2)
        }
        made.append(str(make_run(tmp_path / name, ranks).path))
    return made


def test_diff_as_json_and_with_names_as_text(runs, capsys):
    assert main(["diff", *runs, "--what", "kernel", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    (row,) = told["rows"]
    assert (row["name"], row["verdict"], row["median_change_percent"]) == (HOSTILE, "slower", 50.0)
    assert main(["diff", *runs, "--what", "kernel", "--threshold", "60", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["verdict"] == "same"
    assert main(["diff", *runs, "--what", "kernel"]) == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--what", "kernal"], "kernel"),
        (["--what", ","], "--what is empty"),
        (["--alpha", "2"], "--alpha"),
        (["--threshold", "-1"], "--threshold"),
        (["--ranks", "9"], "9"),
    ],
)
def test_what_diff_cannot_do_is_told(runs, more, told, capsys):
    assert main(["diff", *runs, *more]) == 2
    assert told in capsys.readouterr().err


def test_check_passes_and_fails(runs, tmp_path, capsys):
    budget = tmp_path / "budget.toml"
    budget.write_text("limits = ['compute_ns.median <= 1.6 * baseline', 'compute_ns >= 1']\n")
    assert main(["check", runs[1], "--budget", str(budget), "--baseline", runs[0], "--format", "json"]) == 0
    assert [r["verdict"] for r in json.loads(capsys.readouterr().out)["rows"]] == ["held", "held"]
    junit = tmp_path / "check.xml"
    budget.write_text(
        "[limits]\n'time\u0007' = 'compute_ns.median <= 1.05 * baseline'\n"
        "steps = 'step_ns.median <= 1'\n'<x>' = 'compute_ns >= 1'\n".replace("'time\u0007'", '"time\\u0007"')
    )
    arguments = ["check", runs[1], "--budget", str(budget), "--baseline", runs[0], "--junit", str(junit)]
    assert main(arguments) == 1
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 2
    assert "time\\x07: 3.000 \u00b5s, and the limit is 2.100 \u00b5s; the baseline has 2.000 \u00b5s" in told[0]
    assert "cannot be judged" in told[1]
    suite = ET.parse(junit).getroot()
    assert {k: suite.get(k) for k in ("tests", "failures", "errors")} == {"tests": "3", "failures": "1", "errors": "1"}
    assert [c[0].tag for c in suite] == ["failure", "error", "system-out"]
    assert suite[2][0].text == "<x>: 3.000 \u00b5s, and the limit is 1.000 ns"
    assert suite[2].get("name") == "<x>"


def test_a_budget_that_cannot_be_read_is_told(runs, tmp_path, capsys):
    assert main(["check", runs[0], "--budget", str(tmp_path / "none.toml")]) == 3
    (tmp_path / "bad.toml").write_text("limits = [")
    assert main(["check", runs[0], "--budget", str(tmp_path / "bad.toml")]) == 3
    (tmp_path / "base.toml").write_text("limits = ['compute_ns.median <= baseline']")
    assert main(["check", runs[0], "--budget", str(tmp_path / "base.toml")]) == 2
    assert "--baseline RUN" in capsys.readouterr().err


def test_two_runs_are_read_by_one_cluster(runs, monkeypatch):
    class Workers:
        def run_tasks(self, function, items, progress=None, **_):
            return tasks.run_tasks(function, items, jobs=1, progress=progress)

    started = []

    @contextmanager
    def queue_engine(*asked):
        started.append(asked[:2])
        yield Workers()

    monkeypatch.setattr(alltrace.engine.cluster_start, "queue_engine", queue_engine)
    assert main(["diff", *runs, "--slurm", "2"]) == 0
    assert started == [("slurm", 2)]
    assert main(["info", runs[0], "--slurm", "3"]) == 0
    assert started == [("slurm", 2), ("slurm", 3)]


def test_sentences_of_diff_and_check(runs, capsys):
    assert main(["check", runs[0], "--baseline", runs[0], "--format", "json"]) in (0, 1)
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["check"] == "step_ns.median <= 1.05 * baseline"
    assert main(["check", runs[0]]) == 2
    assert "give --budget FILE, --baseline RUN or --against HISTORY" in capsys.readouterr().err
    assert main(["diff", *runs]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert main(["diff", *runs, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"].startswith(first)
    main(["check", runs[1], "--baseline", runs[0], "--format", "md"])
    told = capsys.readouterr().out
    assert told.startswith(
        "Whether the run is faster is not known: no step is in both runs. 1 of 1 limit not held: step"
    )
    assert "cannot be judged, for the baseline has no duration\\_ns" in told


def test_diff_by_tree_shows_what_replaced_what(tmp_path, capsys):
    pair = [
        str(make_run(tmp_path / n, {0: {"kernels": [kernel(0, 10, n), kernel(20, 30, "x")]}}).path)
        for n in ("one", "two")
    ]
    assert main(["diff", *pair, "--by-tree", "--format", "json"]) == 0
    assert [(r["tree"], r["what"]) for r in json.loads(capsys.readouterr().out)["rows"]] == [
        ("one", "kernel"),
        ("two", "kernel"),
    ]
    assert main(["diff", *pair, "--by-tree", "--picture", "x.png"]) == 2
    assert "diff --by-tree has no chart" in capsys.readouterr().err


def test_a_report_with_a_baseline_begins_with_what_differs(runs, tmp_path, capsys):
    assert main(["report", runs[1], "--baseline", runs[0], "--format", "md"]) == 0
    assert (
        capsys.readouterr().out.splitlines()[2]
        == "**Whether the run is faster is not known: no step is in both runs.**"
    )
    page = tmp_path / "report.html"
    assert main(["report", runs[1], "--baseline", runs[0], "-o", str(page)]) == 0
    assert '<p class="verdict">Whether the run is faster is not known: no step is in both runs.</p>' in page.read_text()
