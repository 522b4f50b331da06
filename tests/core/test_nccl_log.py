"""The scanner of COLL lines against regular expressions and `datetime`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.together import together

from alltrace.core.nccl_log import (
    ABSENT,
    FIELDS,
    lead_hash,
    put,
    put_communicator,
    scan,
    time_of,
    token_start,
    word_hash,
)

OPERATIONS = ("AllReduce", "Send")
HEAD = b"3: host-1:17:18 [2] "
CALL = b"AllReduce: opCount 1f sendbuff 0x7f recvbuff 0x2 count 5 datatype 7 op 0 root 1 comm 0x9"
LONG = CALL + b" [nranks=16] stream 0x3 task 0 globalrank 12"
POINTER = rb"0x[0-9a-f]{1,16}|\(nil\)"
CALL_LINE = re.compile(
    rb"(?P<operation>AllReduce|Send): opCount (?P<op_count>[0-9a-f]{1,16}) sendbuff (?P<sendbuff>@) recvbuff"
    rb" (?P<recvbuff>@)"
    rb"(?: acc (?:@))? count (?P<count>#) datatype (?P<datatype>#) op (?P<redop>#) root (?P<root>#) comm"
    rb" (?P<communicator>@)"
    rb"(?: \[nranks=(?P<nranks>#)\])? stream (?P<stream>@)(?: task # globalrank (?P<global_rank>#))?\r?".replace(
        b"@", POINTER
    ).replace(b"#", rb"[0-9]{1,18}")
)
WATCHED = re.compile(rb"(?=.{6})(?:(?i:itera|step)|[sS]trea|comm )", re.DOTALL)


class Tables:
    """What a reader holds for the scanner, and what it gave: calls as dictionaries, other lines by their bounds and
    numbers."""

    def __init__(self, heads=(HEAD,), room=20):
        self.leads = np.zeros(64, np.uint64), np.zeros(64, np.int64)
        for token, head in enumerate(heads):
            start = token_start(head + b"NCCL", 0, len(head))
            put(*self.leads, lead_hash(head, 0, start, len(head)), token)
        self.processes = np.arange(len(heads)) + 100
        self.numbers = np.zeros(64, np.uint64), np.zeros(64, np.int64)
        self.communicators = np.zeros((32, 2), np.int64)
        self.known = 0
        self.room = room

    def scan(self, block, first_line=0, times=False):
        calls, careful = np.zeros((self.room, len(FIELDS)), np.int64), np.zeros((self.room, 3), np.int64)
        operations = np.array([word_hash(name.encode()) for name in OPERATIONS], np.uint64)
        call_count, careful_count, self.known, self.lines, self.foreign, self.at = scan(
            block, first_line, times, operations, *self.leads, self.processes, *self.numbers, self.communicators,
            self.known, calls, careful,
        )  # fmt: skip
        self.calls = [dict(zip(FIELDS, row, strict=True)) for row in calls[:call_count].tolist()]
        self.careful = careful[:careful_count].tolist()
        return self


def signed(text):
    found = 0 if text == b"(nil)" else int(text, 16)
    return found - (1 << 64) if found >> 63 else found


def expected_of(body):
    """The fields of a COLL record, with the communicator's pointer; None where it is none."""
    found = CALL_LINE.fullmatch(body)
    if found is None:
        return None
    fields = dict.fromkeys(FIELDS, ABSENT) | {"line": 0, "token": 0, "flags": 0}
    for name, text in found.groupdict().items():
        if name == "operation":
            fields[name] = OPERATIONS.index(text.decode())
        elif text is not None:
            hexadecimal = name in ("op_count", "sendbuff", "recvbuff", "communicator", "stream")
            fields[name] = signed(text) if hexadecimal else int(text)
    return fields


def check_line(body):
    tables = Tables().scan(HEAD + b"NCCL INFO " + body + b"\n")
    expected = expected_of(body)
    if expected is None:
        assert (tables.calls, tables.careful) == ([], [[0, len(HEAD) + 10 + len(body), 0]])
    else:
        assert tables.communicators[0].tolist() == [100, expected["communicator"]]
        assert tables.calls == [expected | {"communicator": 0}]
        assert tables.careful == []
    assert (tables.lines, tables.foreign, tables.at) == (1, 0, len(HEAD) + 11 + len(body))


pointers = st.one_of(st.just("(nil)"), st.integers(0, 2**64 + 5).map(hex))
counts = st.integers(0, 10**18 + 5).map(str)


@st.composite
def bodies(draw):
    acc = f" acc {draw(pointers)}" if draw(st.booleans()) else ""
    ranks = f" [nranks={draw(counts)}]" if draw(st.booleans()) else ""
    task = f" task {draw(counts)} globalrank {draw(counts)}" if draw(st.booleans()) else ""
    return (
        f"{draw(st.sampled_from((*OPERATIONS, 'Other')))}: opCount {draw(st.integers(0, 2**64)):x} sendbuff"
        f" {draw(pointers)} recvbuff {draw(pointers)}{acc} count {draw(counts)} datatype {draw(counts)} op"
        f" {draw(counts)} root {draw(counts)} comm {draw(pointers)}{ranks} stream"
        f" {draw(pointers)}{task}{draw(st.sampled_from(['', chr(13)]))}"
    ).encode()


@given(bodies())
def test_a_call_has_the_fields_of_its_line(body):
    check_line(body)


@together("byte", [b"", b" ", b"0", b"f", b"?", b"\r", b"\xff"])
def test_a_line_that_differs_in_a_byte_is_taken_where_it_is_still_whole(byte):
    body = LONG.replace(b"0x2 count", b"0x2 acc (nil) count")
    for at in range(len(body) + 1):
        check_line(body[:at] + byte + body[at + 1 :])
        check_line(body[:at] + byte + body[at:])


@together("digits", range(15, 21))
def test_numbers_have_at_most_the_digits_that_fit(digits):
    for field in (b"5", b"7", b"16", b"12"):
        check_line(LONG.replace(b" " + field, b" " + b"9" * digits).replace(b"=" + field, b"=" + b"9" * digits))
    for field in (b" 1f", b"0x7f", b"0x2", b"0x9", b"0x3"):
        check_line(LONG.replace(field, field[:2] + b"f" * (digits - 1)))


@pytest.mark.parametrize("body", [LONG, LONG.replace(b"0x2 count", b"0x2 acc (nil) count"), CALL + b" stream (nil)\r"])
def test_a_line_cut_at_any_byte_is_taken_where_it_is_still_whole(body):
    for cut in range(len(body) + 1):
        check_line(body[:cut])


def test_a_block_cut_at_any_byte_gives_the_calls_of_whole_lines():
    block = b"".join(HEAD + b"NCCL INFO " + LONG.replace(b"count 5", b"count %d" % n) + b"\n" for n in range(3))
    for cut in range(len(block) + 1):
        tables = Tables().scan(block[:cut])
        whole = block[:cut].count(b"\n")
        assert [call["count"] for call in tables.calls] == list(range(whole))
        assert [call["line"] for call in tables.calls] == list(range(whole))
        cut_in_a_line = not block[:cut].endswith(b"\n") and cut > 0
        assert len(tables.careful) + tables.foreign == cut_in_a_line
        assert tables.lines == whole + cut_in_a_line


lines = st.lists(
    st.one_of(
        st.just(HEAD + b"NCCL INFO " + LONG),
        st.just(b"4: other:1:1 [2] NCCL INFO " + LONG),
        st.sampled_from(
            [b"NCCL INFO x", b"x NCCL WARN", b"NCC", b"an iteration 5", b"comm 0x1", b"Stream 1", b"a Step", b"", b"\0"]
        ),
        st.lists(
            st.sampled_from([b"I", b"ter", b"a", b"s", b"S", b"tep", b"TEP", b"trea", b"comm", b" ", b"N", b"CCL"])
        ).map(b"".join),
    ),
    max_size=8,
)


@given(lines, st.integers(1, 3))
def test_each_line_is_taken_or_handed_on_or_counted_however_little_room_there_is(items, room):
    block = b"".join(line + b"\n" for line in items)
    tables = Tables(room=room)
    calls, careful, foreign, at, number = [], [], 0, 0, 0
    while at < len(block):
        tables.scan(block[at:], number)
        calls += [call["line"] for call in tables.calls]
        careful += [(line, block[at + begin : at + end]) for begin, end, line in tables.careful]
        foreign += tables.foreign
        number += tables.lines
        at += tables.at
    assert calls == [n for n, line in enumerate(items) if line.startswith(HEAD)]
    ours = [n for n, line in enumerate(items) if n not in calls and (b"NCCL" in line or WATCHED.search(line))]
    assert careful == [(n, items[n]) for n in ours]
    assert foreign == len(items) - len(calls) - len(ours)
    assert number == len(items)


def test_processes_and_pointers_make_communicators():
    heads = (HEAD, b"a:1:1 ", b"b:2:2 ")
    block = b"".join(head + b"NCCL INFO " + CALL + b" stream 0x1\n" for head in (*heads, *heads))
    tables = Tables(heads)
    put_communicator(*tables.numbers, 101, 9, 0)
    tables.communicators[0], tables.known = (101, 9), 1
    tables.scan(block)
    assert [call["communicator"] for call in tables.calls] == [1, 0, 2, 1, 0, 2]
    assert [call["token"] for call in tables.calls] == [0, 1, 2, 0, 1, 2]
    assert tables.communicators[: tables.known].tolist() == [[101, 9], [100, 9], [102, 9]]


@given(st.from_regex(rb"[a-z\[: ]{0,5}[0-9]{1,9}[a-z\]: ]{0,5}[0-9]{0,9}", fullmatch=True))
def test_leads_that_differ_in_numbers_only_are_one(lead):
    token = b"h:1:1 "
    key = lead_hash(lead + token, 0, len(lead), len(lead) + 6)
    other = re.sub(rb"[0-9]+", b"12345", lead)
    assert lead_hash(other + token, 0, len(other), len(other) + 6) == key
    assert lead_hash(b"x" + lead + token, 1, len(lead) + 1, len(lead) + 7) == key
    assert lead_hash(lead + b"h:1:2 ", 0, len(lead), len(lead) + 6) != key
    assert lead_hash(lead + b"." + token, 0, len(lead) + 1, len(lead) + 7) != key


def test_a_token_begins_after_a_space():
    for text, start in (
        (b"3: host:1:2 [0] NCCL", 3),
        (b"host:1:2 NCCL", 0),
        (b"a [0] NCCL", 0),
        (b"[0] NCCL", 0),
        (b"NCCL", 0),
        (b" NCCL", 0),
    ):
        assert token_start(text, 0, text.index(b"NCCL")) == start
        assert token_start(b"y x" + text, 3, 3 + text.index(b"NCCL")) == 3 + start


def since_1970_ns(when, fraction):
    return (when - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1) * 10**9 + int(f"{fraction:0<9}"[:9])


times = st.datetimes(datetime(1680, 1, 1), datetime(2260, 1, 1))
fractions = st.text("0123456789", max_size=11)
zones = st.integers(-14 * 60, 14 * 60)


@given(times, fractions, st.none() | zones, st.booleans())
@example(datetime(2000, 2, 29, 23, 59, 59), "999999999", 330, True)
@example(datetime(1900, 3, 1), "", None, False)
def test_dates_are_read_to_the_nanosecond(when, fraction, zone, colon):
    text = (
        when.strftime("[%Y-%m-%d %H:%M:%S" if colon else "%Y/%m/%dT%H:%M:%S")
        + ("." if colon else ",") * bool(fraction)
        + fraction
    )
    when = when.replace(microsecond=0, tzinfo=UTC)
    if zone is not None:
        text += f"{'-' if zone < 0 else '+'}{abs(zone) // 60:02}{':' * colon}{abs(zone) % 60:02}"
        when -= timedelta(minutes=zone)
    assert time_of(f"x 12 {text}] ".encode()) == since_1970_ns(when, fraction)


@given(st.integers(10**9, 9_223_372_035), fractions)
def test_seconds_since_1970_are_read_to_the_nanosecond(seconds, fraction):
    expected = seconds * 10**9 + int(f"{fraction:0<9}"[:9])
    assert time_of(f"[{seconds}.{fraction}] ".encode()) == time_of(f"7 {seconds}.{fraction}".encode()) == expected
    assert time_of(f"5.{seconds} ".encode()) == ABSENT


def test_a_year_that_64_bits_cannot_hold_wraps_around():
    days = -719_526  # of the third of January of year 0, which `datetime` does not know
    assert time_of(b"0000-01-03 00:00:00") == (days * 86_400 * 10**9 + 2**63) % 2**64 - 2**63


@given(
    st.lists(
        st.sampled_from([b"2026", b"-", b"/", b"05", b" ", b":", b"0", b".", b"+", b"]", b"1621500728", b"x"]),
        max_size=25,
    ).map(b"".join)
)
def test_any_lead_has_a_time_or_none_that_a_scan_agrees_with(lead):
    head = lead + b" a:1:1 "
    tables = Tables((head,)).scan(head + b"NCCL INFO " + LONG + b"\n", times=True)
    assert [call["time_ns"] for call in tables.calls] == [time_of(head[: token_start(head, 0, len(head))])]


@pytest.mark.parametrize("bounds", [(-1, 0, 1), (2, 1, 3), (0, 3, 2), (0, 1, 5)])
def test_bounds_outside_of_the_buffer_are_refused(bounds):
    with pytest.raises(IndexError, match="no ascending places in a buffer of 4 bytes"):
        lead_hash(b"NCCL", *bounds)


def test_nothing_has_no_calls():
    tables = Tables().scan(b"")
    assert (tables.calls, tables.careful, tables.lines, tables.at) == ([], [], 0, 0)
    assert time_of(b"") == ABSENT
