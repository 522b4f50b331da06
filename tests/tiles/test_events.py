from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from alltrace.tiles.events import MOST_LANES, lanes_of


def lanes(pairs):
    starts, ends = (np.array(v, np.int64) for v in zip(*pairs, strict=True))
    return lanes_of(starts, ends).tolist()


def test_what_overlaps_has_lanes_up_to_a_last_one():
    assert lanes([(0, 10), (10, 20), (30, 40)]) == [0, 0, 0]
    assert lanes([(0, 100), (10, 50), (20, 30), (60, 70), (100, 110)]) == [0, 1, 2, 1, 0]
    assert lanes_of(np.zeros(0, np.int64), np.zeros(0, np.int64)).tolist() == []
    assert max(lanes([(i, 1000) for i in range(100)])) == MOST_LANES - 1


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), min_size=1, max_size=20))
def test_no_two_of_a_lane_overlap(pairs):
    spans = sorted((s, s + n) for s, n in pairs)
    found = lanes(spans)
    for lane in set(found):
        own = [s for s, at in zip(spans, found, strict=True) if at == lane]
        assert all(b[0] >= a[1] for a, b in pairwise(own))
