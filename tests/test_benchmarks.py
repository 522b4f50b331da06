"""The benchmarks' command line, and what `make` installs for them."""

import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from tools import make_growth_chart

from benchmarks import growth, in_turn, kineto, measure, processes, recorded_rows
from benchmarks.__main__ import main
from benchmarks.in_turn import difference
from benchmarks.measure import Taken


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["logs", "nonsense"], "unknown suite 'nonsense'"), (["--runs", "0", "logs"], "--runs must be at least 1")],
)
def test_what_cannot_be_measured_is_named_before_anything_is(monkeypatch, capsys, arguments, words):
    monkeypatch.setattr(sys, "argv", ["benchmarks", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    captured = capsys.readouterr()
    assert (ended.value.code, captured.out) == (2, "")
    assert words in captured.err


def test_make_leaves_the_environment_with_the_sources_and_no_copy_of_them():
    lines = (Path(__file__).resolve().parents[1] / "Makefile").read_text(encoding="utf-8").splitlines()
    own = [line for line in lines if "pip install" in line and "'.[" in line]
    assert len(own) == 2
    assert all("--editable" in line for line in own)


@pytest.mark.parametrize("arguments", [[], ["kernels", "--questions"]])
def test_in_turn_needs_either_a_command_or_the_questions(monkeypatch, capsys, arguments):
    monkeypatch.setattr(sys, "argv", ["in_turn", str(Path(__file__).resolve().parents[1]), *arguments])
    with pytest.raises(SystemExit):
        in_turn.main()
    assert "expected arguments of alltrace, --questions or --imports" in capsys.readouterr().err


def test_the_memory_of_diagnose_is_measured_for_a_trace_of_pytorch_and_one_four_times_as_large(monkeypatch, tmp_path):
    source = tmp_path / "trace.json"
    source.write_text('{"traceEvents": [{}\n], "traceName": "x"}')
    sizes = {"run": 1_000_000, "larger": 4_000_000}
    monkeypatch.delenv("ALLTRACE_KINETO", raising=False)
    monkeypatch.setattr(kineto, "kineto_trace", lambda: source)
    monkeypatch.setattr(kineto, "_events", lambda run: sizes[run.name])
    monkeypatch.setattr(kineto, "side_by_side", lambda its, *_: {name: [Taken(1, 2, 300)] for name in its})
    commands = []
    monkeypatch.setattr(
        kineto, "run_once", lambda command: commands.append(command) or Taken(1, 2, 300 + len(commands))
    )
    rows = [row for row in kineto.run(1) if "`diagnose`" in row]
    assert [(command[-2], Path(command[-1]).name) for command in commands if command[-2] == "diagnose"] == [
        ("diagnose", "run"), ("diagnose", "larger")
    ]  # fmt: skip
    assert rows == [
        "| `diagnose` of a run of Kineto, 1.00 M rows | - | - | 2.00 s CPU per million events, 301 MB in all |",
        "| `diagnose` of a run of Kineto, 4.00 M rows | - | - | 0.50 s CPU per million events, 303 MB in all |",
    ]


def test_commands_in_turn_share_a_new_folder(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(
        in_turn,
        "run_in_sequence",
        lambda commands, environment: asked.append((commands, environment)) or Taken(1, 1, 1),
    )
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "pyproject.toml").write_text('[project.scripts]\nalltrace = "m:f"\n')
    other, here = in_turn.compare((tmp_path / "a", tmp_path / "b"), [["x", "{new}"], ["y", "--cache-dir", "{new}"]], 2)
    assert (len(other), len(here), len(asked)) == (2, 2, 6)
    assert {e["PYTHONPATH"] for _, e in asked} == {str(tmp_path / "a" / "src"), str(tmp_path / "b" / "src")}
    folders = [first[-1] for (first, _), _ in asked]
    assert all(first[-1] == second[-1] for (first, second), _ in asked)
    assert len(set(folders)) == 6
    assert not any(Path(f).exists() for f in folders)


def test_commands_in_sequence_are_measured_as_one(monkeypatch):
    taken = iter([Taken(1.0, 2.0, 30.0), Taken(0.5, 0.25, 20.0)])
    monkeypatch.setattr(measure, "run_once", lambda *_: next(taken))
    assert measure.run_in_sequence([["a"], ["b"]]) == Taken(1.5, 2.25, 30.0)


def test_the_difference_in_turn_is_of_pairs_without_those_at_either_end():
    first = [Taken(1.0 + n, 0.0, 0.0) for n in range(20)]  # the machine slows down
    second = [Taken(1.2 + n, 0.0, 0.0) for n in range(20)]
    second[3], second[4] = Taken(99.0, 0.0, 0.0), Taken(0.0, 0.0, 0.0)
    assert difference(first, second) == pytest.approx((0.2, 0.0), abs=1e-9)


def test_the_standard_error_in_turn_is_that_of_the_mean():
    pairs = [Taken(0.0, 0.0, 0.0)] * 4, [Taken(t, 0.0, 0.0) for t in (0.1, 0.2, 0.3, 0.4)]
    assert difference(*pairs) == pytest.approx((0.25, 0.0645497), abs=1e-6)
    assert difference(pairs[0][:1], pairs[1][:1]) == (0.1, 0.0)


def test_processes_are_compared_with_one_and_growth_is_a_power():
    taken = {"one": Taken(8.0, 8.0, 100.0), "two": Taken(5.0, 8.8, 100.0), "dask": Taken(4.0, 0.5, 100.0)}
    assert (
        processes.row(64, "diagnose", taken)
        == "| 64 | `diagnose` | 8.0 s, 8.0 CPU s, 100 MB | 1.60 times as fast, 1.10 of its CPU time | 2.00 times as"
        " fast |"
    )
    assert processes.exponent((256, 1_024), (3.0, 12.0)) == pytest.approx(1.0)
    assert processes.exponent((256, 1_024), (3.0, 48.0)) == pytest.approx(2.0)


def test_each_way_begins_its_alignment_anew(monkeypatch, tmp_path):
    asked = []

    def once(command):
        asked.append((command[1], (tmp_path / "align").exists()))
        (tmp_path / "align").mkdir(exist_ok=True)
        return Taken(float(len(asked)), 1.0, 1.0)

    monkeypatch.setattr(processes, "run_once", lambda command: once(command[len(measure.ALLTRACE) - 1 :]))
    taken = processes.measured(tmp_path, "info", processes.ways(None), 3)
    assert asked == [("info", False)] * 9
    assert [t.wall_s for t in taken.values()] == [4.0, 5.0, 6.0]
    processes.measured(tmp_path, "diagnose", processes.ways("tcp://127.0.0.1:1"), 1)
    assert asked[9:] == [("diagnose", True)] * 4


def test_each_stage_is_measured_from_its_beginning(monkeypatch, tmp_path):
    run = tmp_path / "run"
    made = ("align", "operations", "tiles", "findings", "findings/diagnose.arrow", "../again")
    asked = []

    def once(command):
        asked.append((command[len(measure.ALLTRACE)], [f for f in made if not (run / f).exists()]))
        for folder in ("align", "operations", "tiles", "findings", "../again"):
            (run / folder).mkdir(exist_ok=True, parents=True)
        (run / "findings" / "diagnose.arrow").touch()
        return Taken(1.0, float(len(asked)), 10.0 * len(asked))

    once([*measure.ALLTRACE, "import"])
    monkeypatch.setattr(growth, "run_once", once)
    for stage in growth.STAGES:
        growth.measured(run, stage, 1)
    missing = [[f for f in its if f != "../again"] for _, its in asked[1:]]
    cold = ["findings", "findings/diagnose.arrow"]
    assert missing == [[], ["align", "operations"], ["tiles"], cold, cold[1:], [], cold, [], [], []]
    assert asked[1][0] == "import"
    assert not (tmp_path / "again").exists()
    assert growth.row("healthy", "alignment", [128, 512], [Taken(1, 3.0, 1), Taken(1, 10.5, 1)]).endswith("| 0.90 |")


def test_the_chart_of_growth_is_that_of_its_table():
    ranks, stages, powers = make_growth_chart.growth_table(make_growth_chart.PAGE.read_text())
    assert len(ranks) > 2
    assert len(stages) > 3
    for stage, seconds in stages.items():
        known = [(n, s) for n, s in zip(ranks, seconds, strict=True) if s is not None]
        assert float(powers[stage]) == pytest.approx(
            processes.exponent((known[0][0], known[-1][0]), (known[0][1], known[-1][1])), abs=0.02
        )
    assert make_growth_chart.CHART.read_text() == make_growth_chart.growth_chart(ranks, stages, powers)


def test_a_chart_of_growth_has_a_line_for_each_stage():
    page = "\n".join(
        [
            "| stage | 10 ranks | 100 ranks | 1,000 ranks | power |",
            "|---|---|---|---|---|",
            "| `one` | 1.0 CPU s, 9 MB | 10.0 CPU s | 100.0 CPU s | 1.00 |",
            "| `two` | 2.0 CPU s | - | 2,000.0 CPU s | 1.50 |",
            "",
        ]
    )
    ranks, stages, powers = make_growth_chart.growth_table(page)
    assert ranks == [10, 100, 1_000]
    assert stages == {"one": [1.0, 10.0, 100.0], "two": [2.0, None, 2_000.0]}
    root = ET.fromstring(make_growth_chart.growth_chart(ranks, stages, powers))
    lines = [
        [tuple(map(float, p.split(","))) for p in e.get("points").split()] for e in root if e.tag.endswith("polyline")
    ]
    assert [len(line) for line in lines] == [3, 2]
    (x0, y0), (x1, y1), (x2, y2) = lines[0]
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y1 - y0 == pytest.approx(y2 - y1, abs=0.2)
    assert y0 > y2  # more is higher


def test_rows_are_written_in_their_place_with_day_speed_and_load():
    page = "# Page\n\n<!-- rows of: import -->\n<!-- end of rows -->\n\nMore.\n"
    where = recorded_rows.machine()
    text = recorded_rows.with_rows(page, "import", where, ["| import | pandas | 9.9 | 1.0 s |"])
    assert "Measured on 20" in where
    assert "load" in where
    assert text.startswith(
        f"# Page\n\n<!-- rows of: import -->\n`python -m benchmarks import --record`. {where}\n\n| what |"
    )
    assert text.endswith("| import | pandas | 9.9 | 1.0 s |\n<!-- end of rows -->\n\nMore.\n")
    assert recorded_rows.suites_of(text) == ["import"]
    with pytest.raises(ValueError, match="0 places for the rows of stats"):
        recorded_rows.with_rows(page, "stats", where, [])


def test_rows_older_than_their_code_are_marked_until_they_are_new():
    where = "Measured on 2026-01-02T10:00:00Z: a loop takes 0.1 s, load 0.0."
    page = recorded_rows.with_rows(
        "<!-- rows of: import -->\n<!-- end of rows -->\n", "import", where, ["| a | b | 1 | c |"]
    )
    fresh = recorded_rows.marked(page, {"import": "2026-01-02T09:59:59Z"})
    assert fresh == (page, [])
    text, old = recorded_rows.marked(page, {"import": "2026-01-02T10:00:01Z"})
    assert old == ["import"]
    assert (
        "| a | b | 1 | c |\n\nThese rows are older than the code that they measure, which changed on"
        " 2026-01-02.\n<!-- end" in text
    )
    assert recorded_rows.marked(text, {"import": "2026-01-03T00:00:00Z"})[0].count("older than the code") == 1
    assert recorded_rows.marked(text, {"import": "2026-01-01T00:00:00Z"}) == (page, [])


def test_the_code_of_a_suite_is_as_old_as_its_last_commit():
    assert recorded_rows.changed_on("import") <= recorded_rows.changed_on("stats")
    assert recorded_rows.changed_on("stats").startswith("20")
