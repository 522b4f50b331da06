"""The command that judges the diagnosis by programs."""

from __future__ import annotations

import json
import sys

import pytest
from benchmarks.truth import drawing_seed, main, seed_of


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
    ],
)
def test_options_that_make_no_sense_are_refused(monkeypatch, capsys, arguments, words):
    with pytest.raises(SystemExit):
        run(monkeypatch, *arguments)
    assert words in capsys.readouterr().err
