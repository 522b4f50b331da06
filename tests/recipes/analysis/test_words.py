from __future__ import annotations

import pyarrow as pa
import pytest

from alltrace.recipes.analysis.words import coded, is_one_of

WORDS = pa.dictionary(pa.int8(), pa.string())


def column(*chunks: list[str | None]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(c, pa.string()).dictionary_encode().cast(WORDS) for c in chunks], WORDS)


@pytest.mark.parametrize("chunks", [[], [[]], [["a", None, "b"]], [["a"], [None], ["b", "a"]], [[None]]])
def test_codes_and_words_are_the_rows(chunks):
    rows = [word for chunk in chunks for word in chunk]
    codes, words = coded(column(*chunks))
    assert [None if code < 0 else words[code] for code in codes.tolist()] == rows
    assert is_one_of(column(*chunks), ("b", "c")).tolist() == [word == "b" for word in rows]
    assert not is_one_of(column(*chunks), ()).any()
