from __future__ import annotations

import pytest

from alltrace.cli.command import parse_ranks
from alltrace.trace.errors import UsageError


@pytest.mark.parametrize(
    ("text", "ranks"),
    [(None, None), ("3", [3]), ("0-2,64", [0, 1, 2, 64]), (" 5 , 4-5,1", [1, 4, 5]), ("7-7", [7])],
)
def test_lists_of_ranks(text, ranks):
    assert parse_ranks(text) == ranks


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "3-1", "1,,2", "1-2-3", "²", "0-9999999999", "0-99999999", "1.5", "٣"])
def test_what_is_no_list_of_ranks_is_refused(text):
    with pytest.raises(UsageError, match="expected numbers and spans such as 0-7,64"):
        parse_ranks(text)
