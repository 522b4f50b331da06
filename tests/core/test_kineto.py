"""The scanner of events against `json`, `decimal` and regular expressions."""

from __future__ import annotations

import json
import re
from decimal import ROUND_HALF_UP, Decimal, localcontext

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.together import together

from alltrace.core.kineto import (
    BROKEN,
    CLOSED,
    FULL,
    IDENTITIES,
    IDENTITY,
    INSIDE,
    MORE,
    NOTHING,
    NUMBER,
    RAW,
    TEXT,
    TIME,
    TRIPLE,
    EventScanner,
    blank,
    next_event,
    skip_value,
)

FIELDS = {"pid": (NUMBER, 0), "ts": (TIME, 1), "name": (TEXT, 2)}
ARGUMENTS = {"id": (NUMBER, 3), "name": (TEXT, 4), "dims": (RAW, 5), "grid": (TRIPLE, 6)}
ROWS = 9
KEYS = [
    (0, b"args", INSIDE, 0),
    *((0, key.encode(), *field) for key, field in FIELDS.items()),
    *((1, key.encode(), *field) for key, field in ARGUMENTS.items()),
]
LARGEST_CERTAIN = 9 * 10**17


class Scanned:
    """What a scanner made of pieces of text: rows, the strings by code, why and where it stopped last."""

    def __init__(self, room=50):
        self.scanner = EventScanner(KEYS)
        self.rows = np.full((ROWS, room), NOTHING)
        self.count, self.texts = 0, []

    def scan(self, text, at=0):
        self.at, self.why, self.count, texts = self.scanner.scan(text, at, len(text), self.rows, self.count)
        self.texts += texts
        return self

    @property
    def events(self):
        """The rows of each event, its strings as bytes."""
        found = self.rows[:, : self.count].T.tolist()
        for event in found:
            for row in (2, 4, 5):
                if event[row] != NOTHING:
                    event[row] = self.texts[event[row]]
        return found


def value(text):
    return Scanned().scan(b'{"ts": ' + text + b"}]").rows[1, 0]


def rounded(text, digits):
    """The number times 10 to the power of `digits`, rounded, from `decimal`."""
    with localcontext(prec=100):
        return int(Decimal(text).scaleb(digits).to_integral_value(ROUND_HALF_UP))


digits = st.text("0123456789", min_size=1, max_size=8)
plain = st.from_regex(r"-?[0-9]{1,25}(\.[0-9]{0,12})?", fullmatch=True, alphabet="0123456789-.")
exponential = st.builds(
    lambda sign, whole, part, mark, power: f"{sign}{whole}.{part}{mark}{power}",
    st.sampled_from(["", "-"]), digits, digits, st.sampled_from("eE"), st.sampled_from(["", "-", "+"]).flatmap(
        lambda sign: st.integers(0, 40).map(lambda n: f"{sign}{n}")
    ),
)  # fmt: skip


@given(st.one_of(plain, exponential), st.booleans())
@example("900000000000000000.9995", False)
@example("9223372036854775.8085", False)
@example("-0.0005", True)
def test_numbers_are_exact_or_nothing(text, quoted):
    expected = rounded(text, 3)
    found = value(f'"{text}"'.encode() if quoted else text.encode())
    assert found == expected or (found == NOTHING and abs(expected) > LARGEST_CERTAIN)


@together("text", ["", "-", "+1", "1-", "1.2.3", "e5", "1e5.", "0x1", "1_0", "1e100", "1e+-2", "NaN"])
def test_what_is_no_number_is_nothing(text):
    assert value(f'"{text}"'.encode()) == NOTHING


def test_an_exponent_without_digits_is_zero():
    assert value(b'"1e"') == value(b"1E-") == 1000


@given(st.lists(st.text(max_size=6), max_size=12), st.booleans())
def test_strings_are_interned_as_json_reads_them(names, ascii_only):
    text = json.dumps([{"name": name} for name in names], ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    scanned = Scanned().scan(text, 1)
    codes = scanned.rows[2, : len(names)].tolist()
    assert [json.loads(b'"' + scanned.texts[code] + b'"') for code in codes] == names
    assert len(scanned.texts) == len(set(names))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text('ab"\\{}[],: \n', max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("xy", max_size=2), inner, max_size=3),
    max_leaves=6,
)
numbers = st.integers(-LARGEST_CERTAIN, LARGEST_CERTAIN)
arguments = st.fixed_dictionaries(
    {},
    optional={
        "id": numbers,
        "name": st.text('a"\\}', max_size=4),
        "dims": json_values,
        "grid": st.lists(st.integers(0, 2**31), max_size=5),
        "other": json_values,
        "pid": json_values,
    },
)
events = st.fixed_dictionaries(
    {},
    optional={
        "pid": numbers,
        "ts": st.decimals(-(10**12), 10**12, places=3, allow_nan=False),
        "name": st.text('a"\\{', max_size=4),
        "args": arguments | st.lists(json_values, max_size=2),
        "id": json_values,
        "other": json_values,
    },
)


def written(event, style):
    """The event as JSON, with a time as the decimal that it is."""
    if "ts" in event:
        event = {**event, "ts": float("nan")}  # its place: NaN stands nowhere else outside of strings
    return json.dumps(event, **style)


def expected_of(event, style):
    found = [NOTHING] * ROWS
    inner = event.get("args")
    inner = inner if isinstance(inner, dict) else {}
    found[0] = event.get("pid", NOTHING)
    found[1] = rounded(event["ts"], 3) if "ts" in event else NOTHING
    found[2] = json.dumps(event["name"])[1:-1].encode() if "name" in event else NOTHING
    found[3] = inner.get("id", NOTHING)
    found[4] = json.dumps(inner["name"])[1:-1].encode() if "name" in inner else NOTHING
    if "dims" in inner:
        found[5] = json.dumps(inner["dims"], **style).encode()
    for n, size in enumerate(inner.get("grid", [])[:3]):
        found[6 + n] = size
    return found


styles = st.sampled_from([{}, {"separators": (",", ":")}, {"separators": (" ,\r\n", "\t: ")}])


@settings(max_examples=25, deadline=None)  # each of them cut at some hundred places
@given(st.lists(events, max_size=3), styles)
def test_a_list_cut_at_any_byte_gives_the_events_that_are_whole_and_goes_on_from_there(items, style):
    text, ends = b"", []
    for n, item in enumerate(items):
        one = written(item, style).replace("NaN", f"{item.get('ts', 0):f}")
        text += (b", \n" if n else b" ") + one.encode()
        ends.append(len(text))
    text += b" ]"
    expected = [expected_of(item, style) for item in items]
    for cut in range(len(text)):
        part = Scanned().scan(text[:cut])
        whole = sum(end <= cut for end in ends)
        assert (part.why, part.count) == (MORE, whole)
        assert part.events == expected[:whole]
        part.scan(text[part.at :])
        assert (part.why, part.count) == (CLOSED, len(items))
        assert part.events == expected
        assert len(part.texts) == len(set(part.texts))


@together(
    ("member", "row", "expected"),
    [
        ('"dims": "a"', 5, b'"a"'),
        ('"dims": -1', 5, b"-1"),
        ('"name": [1, "a"]', 4, b'[1, "a"]'),
        ('"grid": "[7]"', 6, NOTHING),
        ('"grid": 7', 6, NOTHING),
        ('"grid": ["a", 7]', 7, 7),
        ('"grid": [ 7\t,8]', 7, 8),
        ('"id": "-7"', 3, -7),
        ('"id": 7.5', 3, 8),
        ('"id": [7]', 3, NOTHING),
    ],
)
def test_each_kind_of_field_has_its_own_reading(member, row, expected):
    scanned = Scanned().scan(f'{{"args": {{{member}}}}}]'.encode())
    found = scanned.rows[row, 0]
    assert (scanned.texts[found] if row in (4, 5) else found) == expected


class Identified(Scanned):
    """As a trace's tables read it: processes by number or by label, and names, which share the codes of strings."""

    def __init__(self):
        super().__init__()
        self.scanner = EventScanner([(0, b"pid", IDENTITY, 0), (0, b"name", TEXT, 1)])

    def read(self, *pids, name="b"):
        text = ",".join(f'{{"name": "{name}", "pid": {pid}}}' for pid in pids) + "]"
        return self.scan(text.encode()).rows[0, : self.count].tolist()

    def label(self, value):
        return self.texts[IDENTITIES - value]


@together(
    ("pid", "expected"),
    [
        ("7", 7),
        ('"7"', 7),
        ("-1", -1),
        ('"-1"', -1),
        ("null", NOTHING),
        ("[7]", NOTHING),
        ("true", NOTHING),
        ("{}", NOTHING),
    ],
)
def test_an_identity_that_is_a_number_or_nothing(pid, expected):
    identified = Identified()
    assert identified.read(pid) == [expected]
    assert identified.texts == [b"b"]  # no string of its own


@together("pid", ["[TP00-DP00] 7", "python", "7 ", "0x7", "", "\u00e9"])
def test_an_identity_that_is_a_label(pid):
    identified = Identified()
    (value,) = identified.read(json.dumps(pid))
    assert NOTHING < value <= IDENTITIES < -(10**12)  # no number of a process
    assert json.loads(b'"' + identified.label(value) + b'"') == pid


def test_labels_are_one_identity_wherever_they_come_and_no_name():
    identified = Identified()
    first, number, second, again = identified.read('"a"', "3", '"b"', '"a"')
    assert (first, number) == (again, 3)
    assert first != second
    assert identified.read('"b"', name="a")[4:] == [second]  # in a later scan, by the code that the name has
    assert identified.texts == [b"b", b"a"]
    assert identified.rows[1, :5].tolist() == [0, 0, 0, 0, 1]


def test_an_event_with_more_labels_than_any_has_loses_the_rest():
    members = ",".join(f'"pid": "p{n}"' for n in range(40))
    identified = Identified().scan(f"{{{members}}}]".encode())
    assert identified.label(identified.rows[0, 0]) == b"p31"
    assert len(identified.texts) == 32


def test_labels_keep_their_codes_over_scans():
    identified, labels = Identified(), [f"p{n}" for n in range(40)]
    text = (",".join(f'{{"pid": "{label}"}}' for label in labels) + "]").encode()
    for end in range(0, len(text) + 1, 7):
        identified.scan(text[:end], identified.at if end else 0)
    identified.scan(text, identified.at)
    assert [identified.label(v).decode() for v in identified.rows[0, :40].tolist()] == labels


def test_a_list_without_room_goes_on_where_it_stopped():
    text = b"".join(b'{"pid": %d},' % n for n in range(5)) + b"]"
    first = Scanned(room=3).scan(text)
    assert (first.why, first.rows[0].tolist()) == (FULL, [0, 1, 2])
    first.count = 0
    first.scan(text, first.at)
    assert (first.why, first.rows[0].tolist()) == (CLOSED, [3, 4, 2])


@together(
    "broken",
    [b'{"pid": 2 x}', b'{"pid": 2 "b": 5}', b'{"pid": 2, 5}', b'{"pid": 2, "b" 5}', b'{"pid": 2, "b":}', b"5", b'"x"'],
)
def test_a_broken_event_leaves_no_trace(broken):
    scanned = Scanned().scan(b'{"pid": 1},,' + broken + b', {"pid": 3}]')
    assert (scanned.why, scanned.at, scanned.count) == (BROKEN, 12, 1)
    assert (scanned.rows[:, 1] == NOTHING).all()


def test_an_event_with_more_strings_than_any_has_loses_the_rest():
    scanned = Scanned().scan(b"{" + b",".join(b'"name": "n%d"' % n for n in range(40)) + b', "pid": 7}]')
    assert scanned.texts == [b"n%d" % n for n in range(32)]
    assert scanned.rows[:3, 0].tolist() == [NOTHING, NOTHING, 31]


def test_a_number_of_new_strings_beyond_one_scan_and_one_table():
    count, names = 50_000, 40_000
    text = b"".join(b'{"name": "n%d"},' % (n % names) for n in range(count)) + b"]"
    scanned = Scanned(room=count).scan(text)
    stops = 1
    while scanned.why == FULL:
        scanned.scan(text, scanned.at)
        stops += 1
    assert scanned.why == CLOSED
    assert stops > 2
    assert scanned.rows[2].tolist() == [n % names for n in range(count)]
    assert scanned.texts == [b"n%d" % n for n in range(names)]


pieces = st.lists(
    st.sampled_from([b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b" ", b"\n", b"1", b"e", b"\x00", b"\xff"])
)


@given(pieces.map(b"".join), st.integers(0, 5), st.integers(0, 5))
def test_any_bytes_are_passed_over_as_regular_expressions_say(text, at, spare):
    at, end = min(at, len(text)), max(len(text) - spare, 0)
    part = text[:end]
    at = min(at, end)
    assert blank(text, at, end) == re.compile(rb"[ \n\r\t]*").match(part, at).end()
    found = re.compile(rb"\}[ \n\r\t]*,[ \n\r\t]*\{").search(part, at)
    assert next_event(text, at, end) == (found.end() - 1 if found else -1)
    string = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL).match(part, at)
    stop = skip_value(text, at, end)
    assert stop in (-1, -2) or at < stop <= end
    if part[at : at + 1] == b'"':
        assert stop == (string.end() if string else -1)
    scanned = Scanned(room=3)
    scanned.scan(part, at)
    assert at <= scanned.at <= end


@given(json_values, styles)
def test_a_value_ends_where_json_ends_it(item, style):
    text = json.dumps(item, **style).encode()
    assert skip_value(text + b"}", 0, len(text) + 1) == len(text)
    for cut in range(len(text)):
        assert skip_value(text, 0, cut) == -1


@together("text", ["", ",", "}", "]", " ", '1"', "1:", "1{", "1["])
def test_what_is_no_value_has_no_end(text):
    assert skip_value(text.encode() + b",", 0, len(text) + 1) == -2


@together("function", [blank, skip_value, next_event])
@together(("at", "end"), [(-1, 2), (0, 4)])
def test_bounds_outside_of_the_buffer_are_refused(function, at, end):
    with pytest.raises(IndexError, match="of the buffer"):
        function(b"[1]", at, end)
    with pytest.raises(IndexError, match="of the buffer"):
        EventScanner(KEYS).scan(b"[1]", at, end, np.zeros((ROWS, 1), np.int64), 0)


def test_places_outside_of_the_tables_are_refused():
    for rows, row in ((np.zeros((1, 1), np.int64), 0), (np.zeros((ROWS, 1), np.int64), -1)):
        with pytest.raises(IndexError):
            EventScanner(KEYS).scan(b'{"ts": 1}]', 0, 10, rows, row)
    with pytest.raises(ValueError, match="128 keys"):
        EventScanner(KEYS * 16)


def test_a_place_behind_the_end_has_nothing():
    assert (blank(b"", 0, 0), skip_value(b"", 3, 0), next_event(b"", 3, 0)) == (0, -1, -1)
    assert EventScanner(KEYS).scan(b" ", 3, 1, np.zeros((ROWS, 1), np.int64), 0) == (3, MORE, 0, [])
