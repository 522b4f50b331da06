"""The benchmarks' command line, and what `make` installs for them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from benchmarks.__main__ import main


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["logs", "nonsense"], "there is no suite 'nonsense'"), (["--runs", "0", "logs"], "--runs must be at least 1")],
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
