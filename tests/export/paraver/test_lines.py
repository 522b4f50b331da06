import numpy as np
import pytest

from alltrace.export.paraver import lines, records
from alltrace.export.paraver.lines import EVENT_LINE, Lines
from alltrace.export.paraver.records import RecordWriter
from alltrace.export.sorted_rows import RowSorter
from alltrace.trace.errors import UsageError

OBJECTS = ["0:1:1:1", "12:1:3:45678", "65535:1:65535:65535"]
NUMBERS = np.array([0, 1, 9, 10, 99_999_999, 10**8, 10**8 + 1, 2**32 - 1, 2**32, 10**16, 2**59 // 10, 2**62], np.int64)


def written(tmp_path, add):
    """The lines of what `add` adds to a writer."""
    with RowSorter(tmp_path / "s", 2) as sorter:
        writer = RecordWriter(sorter, OBJECTS)
        add(writer)
        return b"".join(bytes(piece) for piece in writer.text()).decode().split("\n")[:-1], writer.counts


@pytest.mark.parametrize("room", [1, 100, 1 << 18])
def test_times_and_values_of_any_size(tmp_path, monkeypatch, room):
    monkeypatch.setattr(lines, "_WRITTEN_BYTES", room)
    times = np.array([t for t in NUMBERS.tolist() if t < 2**59], np.int64)
    times = np.concatenate((-times[:0:-1], times))
    for value in [*NUMBERS.tolist(), -1, -(10**12), -(2**62)]:
        own = np.arange(len(times)) % 3
        found, _ = written(
            tmp_path, lambda w, own=own, value=value: w.points(own, times, 77, np.full(len(times), value))
        )
        assert found == [f"2:{OBJECTS[o]}:{t}:77:{value}" for o, t in zip(own.tolist(), times.tolist(), strict=True)]


def test_more_values_on_a_line(tmp_path):
    two = np.array([5, 2**40])
    found, counts = written(
        tmp_path,
        lambda w: w.points(
            np.array([0, 1]), np.array([3, 4]), [(1, 2, 3), (7, 8, 9)], two, [two + 1, -two], kinds=np.array([1, 0])
        ),
    )
    assert found == [f"2:{OBJECTS[0]}:3:7:5:8:6:9:-5", f"2:{OBJECTS[1]}:4:1:{2**40}:2:{2**40 + 1}:3:-{2**40}"]
    assert counts["events"] == 2


def test_intervals_begin_end_overlap_and_have_no_length(tmp_path):
    own, starts, ends = np.array([1, 1, 1, 2]), np.array([10, 15, 40, 40]), np.array([20, 30, 40, 50])
    values, kinds = np.array([3, 4, 5, 2**33]), np.array([0, 1, 0, 1])
    found, counts = written(
        tmp_path, lambda w: w.intervals(own, starts, ends, (100, 200), values, [(9, values + 1)], kinds=kinds)
    )
    one, two = (f"2:{OBJECTS[n]}:" for n in (1, 2))
    assert found == [
        f"{one}10:100:3:9:4",
        f"{one}15:200:4:9:5:63000220:15",
        f"{one}20:100:0:9:0",
        f"{one}30:200:0:9:0:63000220:0",
        f"{one}40:100:5:9:6",
        f"{one}40:100:0:9:0",
        f"{two}40:200:{2**33}:9:{2**33 + 1}",
        f"{two}50:200:0:9:0",
    ]
    assert counts["events"] == 8


@pytest.mark.parametrize("length", [1, 2**32 - 1, 2**32, 10**15])
def test_states_of_any_length(tmp_path, length):
    starts = np.array([5, 6])
    found, counts = written(
        tmp_path, lambda w: w.states(np.array([0, 2]), starts, starts + length, np.array([1, 0]), (17, 5))
    )
    assert found == [f"1:{OBJECTS[0]}:5:{5 + length}:5", f"1:{OBJECTS[2]}:6:{6 + length}:17"]
    assert counts["states"] == 2


@pytest.mark.parametrize("sizes", [0, [0, 0], [2**40, 3]])
@pytest.mark.parametrize("tags", [55, [55, 55], [-3, 2**50]])
@pytest.mark.parametrize(
    "later", [(0, 7, 7), (1, 2**32 - 1, 2**32 - 1), (4, 2**32, 2**32), (0, -3, -3), (2, 9, 8), (-1, 0, 0)]
)
def test_communications_of_any_kind(tmp_path, sizes, tags, later):
    sent = np.array([100, 200])
    moved, received, finished = (sent + n for n in later)
    finished = received if later[1] == later[2] else finished
    own, other = np.array([1, 2]), np.array([2, 0])
    given = [np.array(v) if isinstance(v, list) else v for v in (sizes, tags)]
    found, counts = written(
        tmp_path, lambda w: w.communications(own, (sent, moved), other, (received, finished), *given)
    )
    size, tag = (v if isinstance(v, list) else [v, v] for v in (sizes, tags))
    assert found == [
        f"3:{OBJECTS[o]}:{sent[n]}:{moved[n]}:{OBJECTS[p]}:{received[n]}:{finished[n]}:{size[n]}:{tag[n]}"
        for n, (o, p) in enumerate(((1, 2), (2, 0)))
    ]
    assert counts["communications"] == 2


def test_lines_of_one_time_have_their_order(tmp_path):
    def add(writer):
        own, at = np.array([0]), np.array([8])
        writer.communications(own, (at, at), own, (at, at), 2**40, 1)
        writer.points(own, at, 2, np.array([3]), [])
        writer.states(own, at, at + 1, np.array([0]), (4,))
        writer.intervals(own, at, at, 5, 6)
        writer.intervals(own, at - 1, at, 7, 8)
        writer.points(own, at, 2, np.array([2**35]))

    found, _ = written(tmp_path, add)
    zero = OBJECTS[0]
    assert found == [
        f"2:{zero}:7:7:8",
        f"2:{zero}:8:7:0",
        f"2:{zero}:8:5:6",
        f"2:{zero}:8:5:0",
        f"1:{zero}:8:9:4",
        f"2:{zero}:8:2:3",
        f"2:{zero}:8:2:{2**35}",
        f"3:{zero}:8:8:{zero}:8:8:{2**40}:1",
    ]


def test_more_kinds_of_lines_than_can_be_numbered_are_refused(monkeypatch):
    assert lines._MOST_SHAPES << 48 == 1 << 63  # the largest of them is still a number of 64 bits with a sign
    monkeypatch.setattr(lines, "_MOST_SHAPES", 2)
    shapes = Lines(OBJECTS)
    assert [shapes.shape(EVENT_LINE, form) for form in (":1\n", ":2\n", ":1\n")] == [0, 1, 0]
    with pytest.raises(UsageError, match="more than 2 kinds of lines"):
        shapes.shape(EVENT_LINE, ":3\n")


def test_places_are_those_of_the_lines():
    assert records.COMMUNICATION < lines.PLACES


def test_lines_packed_apart_are_those_packed_together(tmp_path):
    def first(writer):
        writer.points(np.zeros(2, np.int64), np.array([5, 9]), 77, np.array([1, 2**40]))
        writer.states(np.zeros(1, np.int64), np.array([3]), np.array([8]), np.zeros(1, np.int64), [4])

    def second(writer):  # the same shapes have other numbers here
        writer.states(np.array([1, 2]), np.array([1, 2]), np.array([4, 8]), np.array([0, 1]), [4, 9])
        writer.points(np.array([1, 2]), np.array([5, 7]), 77, np.array([3, 2**41]))
        writer.points(np.array([2]), np.array([9]), 55, np.array([6]))

    def ours(writer):
        times = np.array([6])
        writer.communications(np.array([2]), (times, times), np.array([0]), (times + 1, times + 2), 64, 7)

    def together(writer):
        for add in (first, second, ours):
            add(writer)

    expected, counts = written(tmp_path, together)
    with RowSorter(tmp_path / "merged", 2) as sorter:
        writer = RecordWriter(sorter, OBJECTS)
        for number, (add, objects) in enumerate(((first, [0]), (second, [1, 2]))):
            with RowSorter(tmp_path / f"apart{number}", 2) as own:
                packed = RecordWriter(own, len(OBJECTS))
                add(packed)
                sorter.take(own.keep())
            writer.lines.take(np.array(objects), packed.lines.shapes)
        ours(writer)
        assert b"".join(bytes(piece) for piece in writer.text()).decode().split("\n")[:-1] == expected
    assert counts == {"states": 3, "events": 5, "communications": 1}
