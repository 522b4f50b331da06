"""The benchmarks' command line."""

from __future__ import annotations

import sys

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
