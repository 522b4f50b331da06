"""The scanner against `json` and exact decimals."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from alltrace.core.kineto import NOTHING, fingerprint, skip_value
from alltrace.readers.kineto.events import Scanner, decoded
from alltrace.readers.kineto.identity import _Bytes as Bytes


def scanned(text):
    scanner = Scanner(Bytes(text.encode()))
    rows = {}
    for block in scanner.blocks():
        for name in ("ts", "dur", "correlation", "name", "pid"):
            rows.setdefault(name, []).extend(block[name].tolist())
    return rows, scanner.scan


def times(*values):
    return scanned('{"traceEvents": [' + ",".join(f'{{"ts": {v}}}' for v in values) + "]}")[0]["ts"]


def test_times_are_exact_to_the_nanosecond_where_a_float_is_not():
    assert times("1669783687464181.123", "-5.5", "0", "12.0005", "12.00049", "1e3", "1.5E-2") == [
        1669783687464181123, -5500, 0, 12001, 12000, 1000000, 15,
    ]  # fmt: skip


def test_no_digit_of_a_number_with_an_exponent_is_lost():
    assert times("1.23457e+06", "1.669783687464181234e15", "-2.5e2", "123.4565e-1", "123456789012345678e-6", "1e-300",
        "0e99") == [
        1_234_570_000, 1_669_783_687_464_181_234, -250_000, 12_346, 123_456_789_012_346, 0, 0,
    ]  # fmt: skip


def test_what_is_no_number_or_too_large_is_nothing():
    assert times("NaN", "Infinity", "null", "true", '"x"', "[1]", "1e30", "99999999999999999999") == [NOTHING] * 8


@given(st.decimals(min_value=0, max_value=10**15, places=5, allow_nan=False))
def test_any_decimal_is_rounded_half_up_to_thousandths(value):
    assert times(f"{value:f}") == [int((value * 1000).quantize(Decimal(1), ROUND_HALF_UP))]


def test_the_fingerprint_is_the_published_fnv_1a():
    assert fingerprint(b"") == 0xCBF29CE484222325
    assert fingerprint(b"foobar") == 0x85944171F73967E8


def test_a_value_ends_where_json_ends_it():
    for text, end in (('"a\\"b", 1', 6), ('[1, [2, {}], "]"] ,', 17), ("12.5}", 4), ("NaN,", 3)):
        data = np.frombuffer(bytearray(text.encode()), np.uint8)
        assert skip_value(data, 0, len(data)) == end
    open_ended = np.frombuffer(bytearray(b'{"a": "b'), np.uint8)
    assert skip_value(open_ended, 0, len(open_ended)) == -1


def test_equal_strings_have_one_code_and_strings_are_decoded():
    rows, scan = scanned(r'[{"name": "a\u00e9\n"}, {"name": "b"}, {"name": "a\u00e9\n"}, {"name": "C:\work"}]')
    a, b, again, path = rows["name"]
    assert a == again != b
    assert decoded(scan.texts[a]) == "aé\n"
    assert decoded(scan.texts[path]) == r"C:\work"


def test_more_strings_than_the_first_table_holds_are_told_apart():
    count = 70_000
    rows, scan = scanned("[" + ",".join(f'{{"name": "n{i}", "pid": {i}}}' for i in range(count)) + "]")
    assert len(scan.texts) == count
    assert [scan.texts[c] for c in rows["name"]] == [f"n{i}".encode() for i in range(count)]
    assert rows["pid"] == list(range(count))


def test_an_event_broken_by_an_escape_is_left_out_alone():
    rows, scan = scanned(
        r'{"traceEvents": [{"pid": 1}, {"name": "C:\dir\", "pid": 2}, {"pid": 3}, {"pid": 4}], "x": 5}'
    )
    assert rows["pid"] == [1, 3, 4]
    assert (scan.broken, scan.whole, scan.metadata) == (1, True, {"x": 5})


def test_a_text_cut_anywhere_gives_its_whole_events():
    text = '{"a": 1, "traceEvents": [{"pid": 1, "args": {"correlation": 4}}, {"pid": 2}, {"pid": 3}], "b": 2}'
    whole_after = [i + 1 for i in range(len(text)) if text[i] == "}" and text[i - 1] != "}"]
    ends = [text.index("}}") + 2, *whole_after[1:3]]
    for cut in range(len(text)):
        rows, scan = scanned(text[:cut])
        assert rows.get("pid", []) == [1, 2, 3][: sum(cut >= e for e in ends)]
        assert not scan.whole
