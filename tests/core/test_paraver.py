"""Sweeps, lines and pairs of Paraver traces against short computations in Python."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.together import together

from alltrace.core import paraver

TIME = st.integers(0, 30)


def cut(draw, times):
    """Where to cut rows in the order of time into blocks: nowhere between equal times."""
    places = [i for i in range(1, len(times)) if times[i] != times[i - 1]]
    return [0, *sorted(draw(st.sets(st.sampled_from(places)) if places else st.just(set()))), len(times)]


# ranges


@given(st.lists(st.tuples(st.integers(0, 2), TIME, TIME, st.integers(1, 9)), max_size=20), st.integers(1, 3), st.data())
def test_changes_of_the_innermost_range(drawn, room, data):
    rows = sorted(((g, min(a, b), max(a, b), v) for g, a, b, v in drawn), key=lambda r: (r[1], -r[2]))
    depths, ends, values = np.zeros(3, np.int64), np.zeros((3, room), np.int64), np.zeros((3, room), np.int64)
    found = []
    bounds = cut(data.draw, [r[1] for r in rows])
    for low, high in itertools.pairwise(bounds):
        block = np.array(rows[low:high], np.int64).reshape(-1, 4).T
        out = [np.empty(2 * (high - low) + int(depths.sum()), np.int64) for _ in range(4)]
        place = count = 0
        while True:
            place, count = paraver.innermost(
                place, *map(np.ascontiguousarray, block), depths, ends, values, count, *out
            )
            if place == high - low:
                break
            assert depths[rows[low + place][0]] == ends.shape[1]
            ends, values = (np.pad(a, ((0, 0), (0, a.shape[1]))) for a in (ends, values))
        found += zip(*(o[:count].tolist() for o in out), strict=True)
    for group in range(3):
        mine = [list(r[1:]) for r in rows if r[0] == group]
        for i, (start, end, _) in enumerate(mine):  # an end is that of the ranges around it, if they end before
            mine[i][1] = min([end, *(stop for _, stop, _ in mine[:i] if stop > start)])
        for time in range((mine[-1][0] if mine else 0) + 1):
            lasting = [v for start, end, v in mine if start <= time < end]
            # a range without length that begins at the last start is still open
            lasting += [v for start, end, v in mine[-1:] if start == end == time]
            states = [(value, depth) for g, at, value, depth in found if g == group and at <= time]
            assert (states or [(0, 0)])[-1] == ((lasting or [0])[-1], len(lasting))
        assert [t for g, t, *_ in found if g == group] == sorted(t for g, t, *_ in found if g == group)


@given(
    st.lists(st.tuples(st.integers(0, 1), TIME, st.integers(1, 9), st.integers(0, 3)), max_size=12),
    st.lists(st.tuples(st.integers(0, 1), TIME, TIME, st.integers(0, 5)), max_size=5),
    st.data(),
)
def test_the_strongest_state_and_what_waits_waited_for(intervals, questions, data):
    tracks, states, end, rest = 2, 4, 35, [4, 5]
    points = [(start, t << paraver.TRACK_SHIFT | s << 1 | 1, 0) for t, start, _, s in intervals]
    points += [(start + length, t << paraver.TRACK_SHIFT | s << 1, 0) for t, start, length, s in intervals]
    asked = 1 << paraver.QUERY_SHIFT
    points += [
        (until, t << paraver.TRACK_SHIFT | asked | own << paraver.OWNER_SHIFT, since)
        for t, until, since, own in questions
    ]
    points.sort(key=lambda p: p[:2])
    open_counts, since, now = np.zeros((tracks, states), np.int64), np.zeros(tracks, np.int64), np.array(rest)
    ended = np.full(tracks, -1, np.int64)
    found, answers = [], []
    bounds = cut(data.draw, [p[0] for p in points])
    for low, high in itertools.pairwise(bounds):
        times, codes, more = np.ascontiguousarray(np.array(points[low:high], np.int64).reshape(-1, 3).T)
        out = [np.empty(high - low, np.int64) for _ in range(6)]
        changed, answered = paraver.strongest(
            times, codes, more, end, np.array(rest), open_counts, since, now, ended, *out
        )
        found += zip(*(o[:changed].tolist() for o in out[:4]), strict=True)
        answers += [
            (points[low + row], last) for row, last in zip(*(o[:answered].tolist() for o in out[4:]), strict=True)
        ]
    found += zip(range(tracks), since.tolist(), [end] * tracks, now.tolist(), strict=True)
    for track in range(tracks):
        mine = [f[1:] for f in found if f[0] == track]
        shown = [state for start, stop, state in mine for _ in range(start, stop)]
        assert shown == [
            min((s for t, a, n, s in intervals if t == track and a <= time < a + n), default=rest[track])
            for time in range(end)
        ]
        assert all(one[2] != other[2] for one, other in itertools.pairwise(mine))
        assert all(start < stop for start, stop, _ in mine)
    expected = []
    for point in points:
        time, code, least = point
        last = max(
            (a + n for t, a, n, _ in intervals if t == code >> paraver.TRACK_SHIFT and a + n <= time), default=-1
        )
        if code & asked and last >= least:
            expected.append((point, last))
    assert answers == expected


@given(st.lists(st.tuples(st.integers(0, 2), TIME, TIME), max_size=20), st.integers(0, 20))
def test_overlapping_intervals(rows, first):
    last = np.full(3, -(2**63), np.int64)
    found = []
    for block in (rows[:first], rows[first:]):
        columns = np.array(block, np.int64).reshape(-1, 3).T
        out = np.empty(len(block), bool)
        assert paraver.overlapping(*columns, last, out) == out.sum()
        found += out.tolist()
    assert found == [any(o == own and end > start for o, _, end in rows[:i]) for i, (own, start, _) in enumerate(rows)]


# lines


def parsed(text):
    """Values, offsets and wrong lines of a text, in arrays of just the size that is asked for."""
    count = text.count(b"\n")
    values, offsets, wrong = np.empty(len(text), np.int64), np.empty(count + 1, np.int64), np.empty(count, bool)
    filled = paraver.parse_lines(np.frombuffer(text, np.uint8), values, offsets, wrong)
    assert filled == offsets[-1]
    return values, offsets.tolist(), wrong.tolist()


NUMBERS = st.integers(-(2**63) - 2, 2**63 + 1) | st.integers(-(10**25), 10**25) | st.integers(-9, 9)
LINES = st.one_of(
    st.lists(NUMBERS.map(str), min_size=1, max_size=9).map(":".join),
    st.text("0123456789:-#x ", max_size=25),
    st.sampled_from(
        [
            "",
            "#",
            "# a comment: 5",
            "-",
            ":",
            "1:",
            ":1",
            "1::2",
            "--1",
            "+1",
            "1 ",
            "00012",
            "1:2\r",
            "0" * 19,
            "0" * 20,
        ]
    ),
)


@given(st.lists(LINES, max_size=8))
def test_lines_as_numbers(lines):
    values, offsets, wrong = parsed("".join(f"{line}\n" for line in lines).encode())
    for number, line in enumerate(lines):
        own = values[offsets[number] : offsets[number + 1]].tolist()
        if not line or line.startswith("#"):
            assert not own
            assert not wrong[number]
            continue
        right = re.fullmatch(r"-?[0-9]{1,19}(:-?[0-9]{1,19})*", line) is not None
        right = right and all(abs(int(n)) < 2**63 for n in line.split(":"))
        assert wrong[number] is not right
        if right:
            assert own == [int(n) for n in line.split(":")]


@given(st.binary(max_size=60))
def test_any_bytes_are_lines(data):
    text = data + b"\n"
    _, offsets, wrong = parsed(text)
    assert len(wrong) == text.count(b"\n")
    assert offsets == sorted(offsets)


@pytest.mark.parametrize("text", [b"1", b"1:2:3\n4:-", b"#", b"\n\n7:"])
def test_a_text_without_a_last_line_end_is_refused(text):
    with pytest.raises(ValueError, match="does not end with a line end"):
        parsed(text)


@pytest.mark.parametrize(("values", "lines"), [(3, 2), (2, 3), (0, 0)])
def test_too_little_room_for_lines_is_refused(values, lines):
    text = np.frombuffer(b"1:2\n3:4\n5\n", np.uint8)
    around, ends, marks = np.full(9, 77), np.full(9, 77), np.full(9, 77, np.uint8)
    with pytest.raises(IndexError):
        paraver.parse_lines(text, around[:values], ends[: lines + 1], marks[:lines].view(bool))
    assert set(around[values:].tolist()) == set(ends[lines + 1 :].tolist()) == set(marks[lines:].tolist()) == {77}


# begins and ends

CALL, WORK, MORE_WORK, NESTED, DEPTH, MARK, BOTH, BYTES, GRAPH, LENGTH = 10, 11, 12, 13, 14, 15, 16, 20, 21, 30
SLOTS = {CALL: 0, WORK: 1, MORE_WORK: 2, NESTED: 3, MARK: 4, BOTH: 1}
KINDS = [0, 0, 0, paraver.CHANGES, paraver.PUNCTUAL]
KEPT = {BYTES: 0, GRAPH: 1, BOTH: 2}
FIRST_THREADS = [0, 2, 3]
TAG = 55001


def paired(lines, bounds, room):
    """The intervals that `pair` makes of lines, block by block, and how many ends had no begin."""
    types = sorted({*SLOTS, *KEPT})
    slots, kept = (np.array([d.get(t, -1) for t in types]) for d in (SLOTS, KEPT))
    threads = FIRST_THREADS[-1]
    heads, waiting = np.full((threads, len(KINDS)), -1, np.int64), np.full((threads, 2), -1, np.int64)
    depths, counters = np.zeros((threads, len(KINDS)), np.int64), np.zeros(4, np.int64)
    places = np.full((room, paraver.OPEN_OTHERS + len(KEPT)), -1, np.int64)
    places[:-1, paraver.OPEN_BELOW] = np.arange(1, room)
    found = []
    for low, high in itertools.pairwise(bounds):
        block = lines[low:high]
        values = np.array([n for line in block for n in line], np.int64)
        offsets = np.cumsum([0, *map(len, block)], dtype=np.int64)
        out = np.full((len(values) // 2 + 1, paraver.OTHERS + len(KEPT)), -1, np.int64)
        counters[paraver.ROWS] = line = 0
        while True:
            line = paraver.pair(
                line, values, offsets, np.zeros(len(block), bool), np.array(FIRST_THREADS), np.array(types), slots,
                np.array(KINDS), kept, heads, waiting, depths, places, out, counters, LENGTH, 0, 2, TAG,
            )  # fmt: skip
            if line == len(block):
                break
            more = np.full_like(places, -1)
            more[:-1, paraver.OPEN_BELOW] = np.arange(len(places) + 1, 2 * len(places))
            more[-1, paraver.OPEN_BELOW], counters[paraver.FREE] = counters[paraver.FREE], len(places)
            places = np.concatenate((places, more))
        found += out[: counters[paraver.ROWS]].tolist()
    return found, int(counters[paraver.LOST])


def paired_simply(lines):  # noqa: C901  all rules of pairing in one place
    """What `paired` gives, in Python."""
    open_, waiting, depths = defaultdict(list), defaultdict(list), defaultdict(int)
    found, lost, calls = [], 0, 0

    def place(task, thread):
        known = 1 <= task < len(FIRST_THREADS) and 1 <= thread <= FIRST_THREADS[task] - FIRST_THREADS[task - 1]
        return FIRST_THREADS[task - 1] + thread - 1 if known else None

    for line in lines:
        if len(line) < 8 or line[0] not in (2, 3) or (own := place(line[3], line[4])) is None:
            continue
        time = line[5]
        if line[0] == 3:
            other = place(line[9], line[10]) if len(line) == 15 and line[14] in (TAG, TAG + 1) else None
            call = next((c for c in reversed(open_[own, 0]) if c["start"] == time), None)
            if other is None or call is None:
                continue
            if call["call"] < 0:
                calls += 1
                call["call"] = calls
            works = [
                w for slot in (1, 2) for w in reversed(open_[other, slot]) if w["start"] == line[11] and w["call"] < 0
            ]
            if works:
                works[0]["call"] = call["call"]
            elif line[11] >= time:
                waiting[other].append((line[11], call["call"]))
            continue
        pairs = list(zip(line[6::2], line[7::2], strict=False))
        for number, (kind, value) in enumerate(pairs):
            slot = SLOTS.get(kind)
            if slot is None:
                continue
            if kind == MARK:
                found.append([slot, own, time, time, value, -1, *[-1] * len(KEPT)])
                continue
            begins = value != 0
            if kind == NESTED:
                depth = pairs[number + 1][1] if number + 1 < len(pairs) else 0
                begins, depths[own] = depth > depths[own], depth
            mine = open_[own, slot]
            if begins:
                one = {"start": time, "value": value, "end": -1, "call": -1, "kept": [-1] * len(KEPT)}
                for n, (t, v) in enumerate(pairs):
                    one["end"] = time + v if t == LENGTH else one["end"]
                    if t in KEPT and n != number:
                        one["kept"][KEPT[t]] = v
                if slot in (1, 2):
                    started = [w for w in waiting[own] if w[0] <= time]
                    now = next((n for n, w in enumerate(started) if w[0] == time), None)
                    if now is not None:  # what is found ends the search
                        one["call"] = started[now][1]
                        started = started[: now + 1]
                    for w in started:
                        waiting[own].remove(w)
                mine.append(one)
                continue
            ending = [o for o in reversed(mine) if o["end"] == time] or [o for o in reversed(mine) if o["end"] < 0]
            if not ending:
                lost += 1
                continue
            one = ending[0]
            mine[:] = [o for o in mine if o is not one]
            found.append([slot, own, one["start"], time, one["value"], one["call"], *one["kept"]])
    return found, lost


THREADS = st.sampled_from([(1, 1), (1, 1), (1, 2), (2, 1), (2, 2), (3, 1)])  # the last two do not exist


@st.composite
def launches(draw):
    """The lines of a call, of what it launches, and of the work of that, which may come early, late or never."""
    call, work = draw(THREADS), draw(THREADS)
    start = draw(st.integers(1, 12))
    arrives = start + draw(st.integers(-1, 3))
    kind, tag = draw(st.sampled_from([WORK, MORE_WORK])), draw(st.sampled_from([TAG, TAG + 1, TAG, TAG + 1, TAG + 2]))
    lines = [
        [2, 0, 1, *call, start, CALL, 1],
        [3, 0, 1, *call, start, start, 0, 1, *work, arrives, arrives, 0, tag],
        [2, 0, 1, *work, arrives, kind, 2],
        [2, 0, 1, *call, start + draw(st.integers(0, 4)), CALL, 0],
        [2, 0, 1, *work, arrives + draw(st.integers(0, 4)), kind, 0],
    ]
    return [lines[n] for n in sorted(draw(st.sets(st.integers(0, 4), min_size=3)))]


@st.composite
def events(draw):
    """A line of any events."""
    kind, value = draw(st.sampled_from([CALL, WORK, MORE_WORK, NESTED, MARK, BOTH, 99])), st.integers(0, 3)
    line = [2, 0, 1, *draw(THREADS), draw(st.integers(0, 15)), kind, draw(value)]
    if kind == NESTED:
        line += [DEPTH, draw(st.integers(0, 3))]
    for extra in draw(st.lists(st.sampled_from([BYTES, GRAPH, LENGTH, CALL]), max_size=3, unique=True)):
        line += [extra, draw(value)]
    return [line[: draw(st.sampled_from([99, 99, 99, 7, 9]))]]


@st.composite
def records(draw):
    """Numbers of the lines of a trace in the order of time, most of them good."""
    lines = [line for part in draw(st.lists(launches() | launches() | events(), max_size=10)) for line in part]
    return sorted(draw(st.permutations(lines) | st.just(lines)), key=lambda line: line[5])


@given(records(), st.integers(2, 9), st.data())
def test_begins_and_ends_are_intervals(lines, room, data):
    places = st.sets(st.integers(0, len(lines)))
    bounds = sorted({0, len(lines)} | data.draw(places))
    assert paired(lines, bounds, room) == paired_simply(lines)


def event(time, *types_and_values):
    return [2, 0, 1, 1, 1, time, *types_and_values]


def sent(time, arrives):
    return [3, 0, 1, 1, 1, time, time, 0, 1, 1, 1, arrives, arrives, 0, TAG]


RARE = {
    "an end is that of the interval whose length says so": (
        [event(1, WORK, 7, LENGTH, 5), event(2, WORK, 8), event(3, WORK, 9, LENGTH, 1),
            *(event(t, WORK, 0) for t in (4, 5, 6))],
        [[1, 0, 3, 4, 9, -1, -1, -1, -1], [1, 0, 2, 5, 8, -1, -1, -1, -1], [1, 0, 1, 6, 7, -1, -1, -1, -1]],
    ),
    "a launch that comes after the last one was taken still waits": (
        [
            *(event(t, CALL, 1) for t in (1, 2, 3)), sent(3, 9), sent(2, 5), event(5, WORK, 1), event(6, CALL, 2),
            sent(6, 7), event(7, WORK, 2), event(9, WORK, 3), *(event(t, WORK, 0) for t in (10, 11, 12)),
        ],
        [[1, 0, 9, 10, 3, 1, -1, -1, -1], [1, 0, 7, 11, 2, 3, -1, -1, -1], [1, 0, 5, 12, 1, 2, -1, -1, -1]],
    ),
    "a type with a slot goes with others, not with itself": (
        [event(1, BOTH, 5), event(2, CALL, 1, BOTH, 6), event(3, BOTH, 0), event(4, BOTH, 0)],
        [[1, 0, 2, 3, 6, -1, -1, -1, -1], [1, 0, 1, 4, 5, -1, -1, -1, -1]],
    ),
    "a range ends where fewer are open than before": (
        [event(t, NESTED, v, DEPTH, d) for t, v, d in ((1, 5, 1), (2, 6, 2), (3, 5, 1), (4, 0, 0))],
        [[3, 0, 2, 3, 6, -1, -1, -1, -1], [3, 0, 1, 4, 5, -1, -1, -1, -1]],
    ),
    "work that has begun is launched too, but not by a line that is too long": (
        [event(3, CALL, 1), event(3, MORE_WORK, 2), [*sent(3, 3), 0], event(4, MORE_WORK, 4), event(4, CALL, 1),
            sent(4, 4),
         event(5, MORE_WORK, 0), event(6, MORE_WORK, 0)],
        [[2, 0, 4, 5, 4, 1, -1, -1, -1], [2, 0, 3, 6, 2, -1, -1, -1, -1]],
    ),
    "there are places for two begins on each line": (
        [event(1, CALL, 1), event(2, CALL, 1), event(3, CALL, 1, WORK, 1), event(4, WORK, 0)],
        [[1, 0, 3, 4, 1, -1, -1, -1, -1]],
    ),
}  # fmt: skip


@together("name", RARE)
def test_what_is_rarely_drawn(name):
    lines, expected = RARE[name]
    assert paired(lines, [0, len(lines)], 3) == (expected, 0)
    assert paired_simply(lines) == (expected, 0)


@given(
    st.lists(
        st.lists(st.integers(-1, 4) | st.sampled_from([*SLOTS, *KEPT, TAG, 2**63 - 1, -(2**63)]), max_size=20),
        max_size=9,
    )
)
def test_any_numbers_are_lines(lines):
    lines = [[2 + n % 2, *line] for n, line in enumerate(lines)]
    found, lost = paired(lines, [0, len(lines)], 2)
    assert len(found) + lost <= sum(map(len, lines))


def test_a_line_with_more_begins_than_places_loses_some():
    types = [CALL, WORK, MORE_WORK]
    begins = [2, 0, 1, 1, 1, 5, *(n for t in types for n in (t, 1))]
    ends = [2, 0, 1, 1, 1, 6, *(n for t in types for n in (t, 0))]
    assert paired([begins, ends], [0, 2], 2)[1] == 2
    assert paired([begins, ends], [0, 2], 3)[1] == 0


def test_too_little_room_for_intervals_is_refused():
    line = [2, 0, 1, 1, 1, 5, MARK, 1, MARK, 2]
    around = np.full((3, paraver.OTHERS), 77)
    one = np.zeros((1, 1), np.int64)
    with pytest.raises(IndexError):
        paraver.pair(
            0, np.array(line), np.array([0, 10]), np.zeros(1, bool), np.array([0, 1]), np.array([MARK]), np.array([0]),
            np.array([paraver.PUNCTUAL]), np.array([-1]), one, np.zeros((1, 2), np.int64), one, np.full((2, 5), 1),
            around[:1], np.zeros(4, np.int64), LENGTH, 0, 0, TAG,
        )  # fmt: skip
    assert set(around[1:].reshape(-1).tolist()) == {77}
