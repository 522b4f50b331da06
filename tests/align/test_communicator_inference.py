"""Pools of operations that may be of one communicator; what is inferred from them is tested with the matching."""

from __future__ import annotations

import numpy as np
import pytest

from alltrace.align.communicator_inference import _Part, _Pool


def pool(*ends):
    """A pool of ranks with these ends, ns."""
    parts = {rank: _Part(e - 1_000.0, e, np.arange(len(e))) for rank, e in enumerate(np.asarray(e, float) for e in ends)}
    return _Pool(parts.__getitem__, {rank: len(part.end) for rank, part in parts.items()}, False, 0, -1)


def test_others_end_within_half_of_what_the_busiest_rank_leaves_between_two_ends():
    found = pool(np.arange(20) * 200_000 + 10**6, np.arange(10) * 80_000 + 10**6)
    assert found.width == pytest.approx(40_000)
    assert found.extents == {0: (1e6, 4.8e6), 1: (1e6, 1.72e6)}
    assert found.inside(1, np.array([1e6 - 41_000, 1e6 - 39_000, 1.72e6 + 39_000, 1.72e6 + 41_000])).tolist() == [
        False, True, True, False,
    ]  # fmt: skip


def test_where_each_rank_ends_once_others_end_far_away():
    assert pool([1e6], [1e6 + 100]).width == 60_000
