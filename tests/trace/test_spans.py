"""What `--steps`, `--ranks` and `--window` name, against the numbers written out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.together import together

from alltrace.trace.errors import UsageError
from alltrace.trace.spans import Span, parse_ranks, parse_steps, parse_window, rank_spans

FAR = 40
ENDS = st.tuples(st.integers(0, FAR - 1), st.integers(1, FAR)).filter(lambda ends: ends[0] < ends[1])


def held(span):
    return [n for n in range(FAR + 5) if span.holds(n)]


@given(ENDS)
def test_a_colon_leaves_the_end_out_and_a_dash_takes_it(ends):
    first, end = ends
    wanted = list(range(first, end))
    assert held(parse_steps(f"{first}:{end}")) == wanted
    assert held(parse_steps(f"{first}-{end - 1}")) == wanted
    assert held(parse_steps(f" {first} ")) == [first]
    assert held(parse_steps(f"{first}:")) == list(range(first, FAR + 5))
    assert held(parse_steps(f":{end}")) == list(range(end))
    assert held(parse_window(f"{first}:{end}")) == wanted
    assert parse_ranks(f"{first}-{end - 1}") == wanted


@given(st.lists(ENDS, min_size=1, max_size=6))
def test_a_list_of_ranks_names_each_once_in_order(spans):
    text = ",".join(str(first) if end == first + 1 else f"{first}-{end - 1}" for first, end in spans)
    assert parse_ranks(text) == sorted({n for ends in spans for n in range(*ends)})
    assert rank_spans(text) == [Span(*ends) for ends in spans]


@given(ENDS)
def test_a_span_is_written_as_it_is_read(ends):
    for span in (Span(*ends), Span(ends[0], None), Span(None, ends[1])):
        assert parse_steps(str(span)) == span
        numbers = np.arange(FAR + 5)
        assert numbers[span.holds(numbers)].tolist() == held(span)


def test_nothing_is_nothing():
    assert (parse_steps(None), parse_ranks(None), parse_window(None)) == (None, None, None)


@together(
    "text",
    [
        "",
        ":",
        "-",
        "x",
        "²",
        "٣",
        "9" * 5000,
        "1:²",
        "5:4",
        "5:5",
        ":0",
        "5-4",
        "-1",
        "3-",
        "1:2:3",
        "1,2",
        "1.5",
        "0x1",
        "1e3",
    ],
)
def test_what_names_no_step_is_refused(text):
    with pytest.raises(UsageError, match="expected steps such as 10:50"):
        parse_steps(text)


@together("text", ["", "5", "3-5", "5:5", "5:4", ":", "1e3:2e3"])
def test_what_names_no_time_is_refused(text):
    with pytest.raises(UsageError, match=r"--window is .*; expected a start and a later end in ns"):
        parse_window(text)


@together("text", ["", "x", "1:3", "3-1", "1,,2", "1-", ":", "0-9999999999", "0-2000000"])
def test_what_names_no_ranks_is_refused(text):
    with pytest.raises(UsageError, match=r"--ranks is .*; expected n"):
        parse_ranks(text)
