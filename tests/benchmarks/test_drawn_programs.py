"""Seeds, options and folders of the benchmarks that draw programs."""

from __future__ import annotations

import argparse
import json
import sys

from benchmarks.drawn_programs import add_options, drawing_seed, folder_for, parsed, seed_of, write_json


def options(monkeypatch, *args):
    monkeypatch.setattr(sys, "argv", ["draw", *map(str, args)])
    parser = argparse.ArgumentParser()
    add_options(parser, 12, "score")
    return parsed(parser)


def test_without_options_a_program_leaves_nothing(monkeypatch):
    args = options(monkeypatch)
    assert (args.programs, args.seed, args.split) == (12, 1, "dev")
    with folder_for(args, "one") as folder:
        (folder / "report").write_text("")
    assert not folder.exists()
    write_json(args, [{"seed": 1}])


def test_what_a_program_leaves(monkeypatch, tmp_path):
    args = options(monkeypatch, "--keep", tmp_path / "kept", "--json", tmp_path / "scores.json")
    with folder_for(args, "one") as folder:
        folder.mkdir(parents=True)
    assert folder == tmp_path / "kept" / "one"
    assert folder.exists()
    write_json(args, [{"seed": 1}])
    assert json.loads((tmp_path / "scores.json").read_text()) == [{"seed": 1}]


def test_programs_of_a_run_can_be_run_alone_and_splits_share_none():
    seeds = [seed_of(5, index) for index in range(1000)]
    assert seeds[0] == 5
    assert len(set(seeds)) == 1000
    assert seed_of(seeds[7], 0) == seeds[7]
    assert not {drawing_seed("dev", s) for s in seeds} & {drawing_seed("unseen", s) for s in seeds}
