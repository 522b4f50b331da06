from __future__ import annotations

import numpy as np

from alltrace.align.members import Evidence, meet


def test_clocks_confirm_a_matching_by_which_all_ends_meet():
    ends = np.array([0, 5_000_000, 10_000_000, 15_200_000])
    evidence = Evidence(
        np.array([0, 0, 1, 1]),
        np.zeros(4, np.int64),
        np.array([3, 8, 3, 8]),
        ends - 1,
        ends,
        np.ones(4, np.bool_),
        np.zeros(4, np.int8),
    )
    assert meet(evidence, {3: 5_000_000, 8: 0})
    assert not meet(evidence, {3: 4_100_000, 8: 0})
    assert not meet(evidence, {3: 0, 8: 0})
