"""Numbers in sentences."""

import pytest

from alltrace.trace.number_text import counted, number_ranges


@pytest.mark.parametrize(("number", "text"), [(0, "0 ranks"), (1, "1 rank"), (2, "2 ranks"), (1024, "1,024 ranks")])
def test_one_thing_has_no_s(number, text):
    assert counted(number, "rank") == text


def test_plurals_and_spans_of_numbers():
    assert [counted(n, "entry", "entries") for n in (1, 2)] == ["1 entry", "2 entries"]
    assert number_ranges([]) == "none"
    assert number_ranges([7, 0, 2, 1]) == "0-2, 7"
