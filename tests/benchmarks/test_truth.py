"""The command that judges the diagnosis by programs."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarks.drawn_programs import drawing_seed
from benchmarks.programs.draw_changes import draw_change
from benchmarks.programs.draw_pairs import draw_pair
from benchmarks.programs.draw_uneven import draw_uneven
from benchmarks.programs.losses import measure
from benchmarks.programs.model import Without
from benchmarks.programs.score_causes import CauseJudgement
from benchmarks.programs.score_changes import MARKS
from benchmarks.truth import in_turn, main, run_change, run_pair, run_uneven


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["truth", *map(str, arguments)])
    main()


def test_a_program_is_judged_and_kept(monkeypatch, capsys, tmp_path):
    run(
        monkeypatch,
        "--programs",
        1,
        "--seed",
        8,
        "--kind",
        "straggler",
        "--keep",
        tmp_path / "kept",
        "--json",
        tmp_path / "j.json",
    )
    printed = capsys.readouterr().out
    assert "1 programs, --split dev --seed 8 --kind straggler" in printed
    assert "| programs answered | 1 of 1 (100.0 %) |" in printed
    [judgement] = json.loads((tmp_path / "j.json").read_text())
    assert (judgement["seed"], judgement["error"]) == (8, None)
    assert [p["kind"] for p in judgement["planted"]] == ["straggler"]
    kept = json.loads((tmp_path / "kept" / "dev-8" / "truth.json").read_text())
    assert kept["findings"] == judgement["findings"]
    assert list((tmp_path / "kept" / "dev-8" / "reports").iterdir())


def test_healthy_programs_take_turns_with_kinds_that_change_in_time(monkeypatch, capsys, tmp_path):
    planted = []

    def judged(split, seed, kind, least, folder, *, ideal):
        planted.append(kind)
        return CauseJudgement(seed, kind, "2 ranks", 0.1, counts=True)

    monkeypatch.setattr("benchmarks.truth.run_change", judged)
    run(monkeypatch, "--kinds", "throttling", "regression", "--programs", 5, "--json", tmp_path / "j.json")
    assert planted == ["throttling", "regression", "healthy", "throttling", "regression"]
    printed = capsys.readouterr().out
    assert "| throttling | 2 | 0 of 2 (0.0 %)" in printed
    assert "--kinds ITS_KIND --programs 1" in printed
    assert [p["kind"] for p in json.loads((tmp_path / "j.json").read_text())] == planted


def test_the_truth_about_a_cause_that_changes_in_time_is_what_an_execution_without_it_gains(monkeypatch, tmp_path):
    program = draw_change(drawing_seed("dev", 7), "device-stall")
    share = 1 - measure(program, Without(frozenset([0]))) / measure(program)
    found = {
        "kind": "device-stall",
        "lost_share": share,
        "ranks": [],
        "evidence": {"since_step": min(program.causes[0].steps)},
    }
    monkeypatch.setattr("benchmarks.truth.findings_of", lambda *_: [found])
    judgement = run_change("dev", 7, "device-stall", share / 2, tmp_path)
    assert judgement.true_share == pytest.approx(share)
    assert share > 0
    assert judgement.counts
    assert set(MARKS) - set(judgement.right) == {"culprits"}
    assert json.loads((tmp_path / "truth.json").read_text())["right"] == judgement.right
    unimportant = run_change("dev", 7, "device-stall", 2 * share, tmp_path)
    assert (unimportant.counts, unimportant.findings) == (False, [])


def test_each_family_of_kinds_has_healthy_programs_of_its_own():
    assert in_turn(["pair"], 5) == ["pair"]
    assert in_turn(["uneven-stage", "late-rank", "pair"], 5) == ["uneven-stage", "late-rank", "pair", "healthy-twin"]
    assert in_turn(["late-rank", "regression"], 5) == ["late-rank", "regression", "healthy", "healthy-twin"]
    assert in_turn(["late-rank", "healthy-twin"], 5) == ["late-rank", "healthy-twin"]
    assert in_turn(["late-rank"], 1) == ["late-rank"]
    assert in_turn([], 5) == []


def test_the_truth_about_uneven_work_is_what_an_execution_with_the_work_of_the_peers_gains(monkeypatch, tmp_path):
    program = draw_uneven(drawing_seed("dev", 7), "uneven-stage")
    share = 1 - measure(program, Without(frozenset([0]))) / measure(program)
    finding = {"kind": "imbalance", "lost_share": share, "ranks": [], "severity": "low", "confidence": 0.5}
    monkeypatch.setattr("benchmarks.truth.findings_of", lambda *_: [finding])
    judgement = run_uneven("dev", 7, "uneven-stage", share / 2, tmp_path)
    assert judgement.true_share == pytest.approx(share)
    assert share > 0
    assert {"any finding", "a loss", "loss within 15 %"} <= set(judgement.right)
    assert "culprits" not in judgement.right
    assert json.loads((tmp_path / "truth.json").read_text())["kinds"]["imbalance"] >= share


def test_the_truth_about_a_pair_is_what_executions_without_each_and_without_both_gain(monkeypatch, tmp_path):
    program, gains = draw_pair(drawing_seed("dev", 4))
    first, second = (cause.kind for cause in program.causes)
    joint = {"together_ns": gains.together * gains.judged_ns}
    both = [
        {"kind": kind, "lost_share": None, "lost_ns": None, "ranks": [], "evidence": joint} for kind in (first, second)
    ]
    verdict = f"They hide each other: together {100 * gains.together:.1f} %, alone 0.0 and 0.0 %."
    monkeypatch.setattr("benchmarks.truth.diagnosed", lambda *_: (both, verdict))
    judgement = run_pair("dev", 4, 0.01, tmp_path)
    assert judgement.true_share == gains.together > max(gains.alone)
    assert {"both named, or joint loss", "joint loss within 15 %", "said in the verdict"} <= set(judgement.right)
    assert json.loads((tmp_path / "truth.json").read_text())["verdict"] == verdict


def test_a_program_with_a_late_rank_is_diagnosed_and_kept(monkeypatch, capsys, tmp_path):
    run(monkeypatch, "--kinds", "late-rank", "--programs", 1, "--seed", 5, "--keep", tmp_path / "kept")
    printed = capsys.readouterr().out
    assert "| late-rank | 1 |" in printed
    assert "No answer: 0" in printed
    assert json.loads((tmp_path / "kept" / "dev-5" / "truth.json").read_text())["findings"]


def test_tables_are_written_into_the_place_of_their_kinds(monkeypatch, tmp_path):
    def judged(split, seed, kind, least, folder, *, ideal):
        return CauseJudgement(seed, kind, "2 ranks", 0.1, counts=True, right=list(MARKS[:1]))

    monkeypatch.setattr("benchmarks.truth.run_change", judged)
    page = tmp_path / "page.md"
    names = ("random programs", "changes in time")
    page.write_text("".join(f"<!-- table: {name} -->\n<!-- end of table -->\n" for name in names))
    kinds = ("throttling", "device-stall", "regression")
    run(monkeypatch, "--split", "unseen", "--kinds", *kinds, "--programs", 4, "--seed", 9, "--write", page)
    before, _, table = page.read_text().partition("<!-- table: changes in time -->")
    assert before == "<!-- table: random programs -->\n<!-- end of table -->\n"
    assert "4 programs, --split unseen --seed 9 --kinds throttling device-stall regression healthy" in table
    assert "| all | 3 | 3 of 3 (100.0 %) | 0 of 3 (0.0 %) |" in table


def test_a_page_without_a_place_is_refused_before_programs_run(monkeypatch, tmp_path):
    monkeypatch.setattr("benchmarks.truth.run_program", lambda *_, **__: pytest.fail("a program ran"))
    (tmp_path / "page.md").write_text("none")
    with pytest.raises(SystemExit, match="expected the line <!-- table: random programs -->"):
        run(monkeypatch, "--split", "unseen", "--write", tmp_path / "page.md")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--programs", "0"], "--programs must be at least 1"),
        (["--least", "1"], "--least must be a share"),
        (["--kind", "x"], "--kind"),
        (["--kinds", "jitter"], "--kinds"),
        (["--kind", "jitter", "--kinds", "throttling"], "name one of the two"),
        (["--kind", "jitter", "--write", "page.md"], "--write has a table"),
        (["--kinds", "throttling", "--write", "page.md"], "device-stall regression throttling"),
        (["--write", "page.md"], "add --split unseen"),
        (["--split", "unseen", "--ideal", "--write", "page.md"], "as profilers record them"),
    ],
)
def test_options_that_make_no_sense_are_refused(monkeypatch, capsys, arguments, words):
    with pytest.raises(SystemExit):
        run(monkeypatch, *arguments)
    assert words in capsys.readouterr().err
