"""A rank that is read and judged in pieces of a few rows gives the answer that it gives as a whole."""

from __future__ import annotations

import shutil

import pytest
from tests.recorded.making import RUNS

import alltrace
from alltrace.recipes.questions.diagnose import gaps
from alltrace.run import collecting, rank
from alltrace.trace import arrays


def answers(recorded, folder):
    """What is said of a recorded run, made anew."""
    shutil.copytree(recorded, folder, ignore=shutil.ignore_patterns("align", "operations", "findings"))
    run = alltrace.open(str(folder))
    return [
        (answer.to_arrow().to_pylist(), answer.notes)
        for answer in map(run.recipe, ("diagnose", "critical-path", "steps"))
    ]


@pytest.mark.parametrize("name", ["host-bound", "experts"])
def test_pieces_of_a_few_rows_change_nothing(tmp_path, monkeypatch, name):
    whole = answers(RUNS / name / "run", tmp_path / "whole")
    monkeypatch.setattr(rank, "_MOST_HELD_ROWS", 0)
    monkeypatch.setattr(collecting, "_PIECE_ROWS", 7)
    monkeypatch.setattr(arrays, "BLOCK_ROWS", 7)
    monkeypatch.setattr(gaps, "_PIECE_KERNELS", 7)
    assert answers(RUNS / name / "run", tmp_path / "pieces") == whole
