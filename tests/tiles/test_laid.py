import pyarrow as pa
import pytest
from tests.together import together

from alltrace.tiles.laid import laid
from alltrace.trace.errors import UsageError


def test_rows_become_tracks_of_their_ranks():
    rows = {"rank": [1, 0, 1, 1], "name": ["c", "a", "b", None], "start": [30, 10, 5, None], "end": [40, 20, 35, 9]}
    found = laid(pa.table(rows))
    assert found["left_out"] == 1
    first, second = found["tracks"]
    assert first == {"rank": 0, "start": [10], "length": [10], "name": ["a"], "lane": [0], "row": [1]}
    assert second == {
        "rank": 1,
        "start": [5, 30],
        "length": [30, 10],
        "name": ["b", "c"],
        "lane": [0, 1],
        "row": [2, 0],
    }


@together(
    ("columns", "length"),
    [
        ({"start_ns": [7]}, 0),
        ({"time": [7], "kind": ["x"]}, 0),
        ({"Start": [7], "duration_ns": [3]}, 3),
        ({"start": [7], "duration_ns": pa.array([None], pa.int64())}, 0),
        ({"start": [7], "end": [2]}, 0),
        ({"start": [7], "end": pa.array([None], pa.int64())}, 0),
        ({"start": pa.array([7.0]), "end": pa.array([9], pa.decimal128(38, 0))}, 2),
    ],
)
def test_an_end_a_length_or_neither(columns, length):
    (track,) = laid(pa.table(columns))["tracks"]
    assert (track["rank"], track["start"], track["length"]) == (None, [7], [length])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"rank": [1], "n": [2]}, "no column of times; expected one called start, start_ns"),
        ({"start": ["x"]}, "the column start holds string; expected whole numbers"),
        ({"start": [1.5]}, "the column start holds double"),
        ({"start": [1], "end": [[2]]}, "the column end holds list"),
    ],
)
def test_what_is_no_time_is_refused(columns, message):
    with pytest.raises(UsageError, match=message):
        laid(pa.table(columns))


def test_no_rows_are_no_tracks():
    assert laid(pa.table({"start": pa.array([], pa.int64())})) == {"tracks": [], "left_out": 0}
