"""The command that judges the diagnosis by programs."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarks.programs.draw_changes import draw_change
from benchmarks.programs.losses import measure
from benchmarks.programs.model import Without
from benchmarks.programs.score_changes import MARKS, ChangeJudgement
from benchmarks.truth import drawing_seed, main, run_change, seed_of


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["truth", *map(str, arguments)])
    main()


def test_a_program_is_judged_and_kept(monkeypatch, capsys, tmp_path):
    run(
        monkeypatch, "--programs", 1, "--seed", 8, "--kind", "straggler", "--keep", tmp_path / "kept", "--json", tmp_path / "j.json"
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
        return ChangeJudgement(seed, kind, "2 ranks", 0.1, counts=True)

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
    found = {"kind": "device-stall", "lost_share": share, "ranks": [], "evidence": {"since_step": min(program.causes[0].steps)}}
    monkeypatch.setattr("benchmarks.truth.findings_of", lambda *_: [found])
    judgement = run_change("dev", 7, "device-stall", share / 2, tmp_path)
    assert judgement.true_share == share > 0
    assert judgement.counts
    assert set(MARKS) - set(judgement.right) == {"culprits"}
    assert json.loads((tmp_path / "truth.json").read_text())["right"] == judgement.right
    unimportant = run_change("dev", 7, "device-stall", 2 * share, tmp_path)
    assert (unimportant.counts, unimportant.findings) == (False, [])


def test_programs_of_a_run_can_be_run_alone_and_splits_share_none():
    seeds = [seed_of(5, index) for index in range(1000)]
    assert seeds[0] == 5
    assert len(set(seeds)) == 1000
    assert seed_of(seeds[7], 0) == seeds[7]
    assert not {drawing_seed("dev", s) for s in seeds} & {drawing_seed("unseen", s) for s in seeds}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--programs", "0"], "--programs must be at least 1"),
        (["--least", "1"], "--least must be a share"),
        (["--kind", "x"], "--kind"),
        (["--kinds", "jitter"], "--kinds"),
        (["--kind", "jitter", "--kinds", "throttling"], "name one of the two"),
    ],
)
def test_options_that_make_no_sense_are_refused(monkeypatch, capsys, arguments, words):
    with pytest.raises(SystemExit):
        run(monkeypatch, *arguments)
    assert words in capsys.readouterr().err
