"""What `explain` says."""

from __future__ import annotations

import pytest
from tests.together import together

from alltrace.cli.main import main
from alltrace.recipes.questions.diagnose.finding import EVIDENCE
from alltrace.recipes.terms import KIND_MEANINGS, explain
from alltrace.trace.errors import UsageError


@together("term", [*KIND_MEANINGS, *EVIDENCE, "kernels", "Lost_NS", "correlation", "breakdown", "StdDev"])
def test_a_word_has_a_meaning(term):
    rows = explain(term).table.to_pylist()
    assert rows
    assert all(row["meaning"] and row["term"].lower() == term.lower() for row in rows)


def test_a_word_of_several_tables_has_each_of_them():
    of = {row["what"] for row in explain("correlation").table.to_pylist()}
    assert {"column of the table kernels", "column of the table api"} <= of
    assert explain("duration_ns").table.num_rows == len(set(map(str, explain("duration_ns").table.to_pylist())))


def test_an_unknown_word_has_a_hint(capfd):
    with pytest.raises(UsageError, match="did you mean straggler"):
        explain("stragler")
    with pytest.raises(UsageError, match="expected a kind"):
        explain("")
    assert main(["explain", "zzzz"]) == 2
    assert main(["explain", "straggler", "--format", "csv"]) == 0
    assert capfd.readouterr().out.startswith("term,what,unit,meaning\nstraggler,kind of finding,,")
