"""Ranks that are connected one by one: which are together, and under which number."""

from __future__ import annotations

import numpy as np
import pytest

from alltrace.align.timing import _Components


@pytest.mark.parametrize("seed", range(10))
def test_joined_ranks_have_the_number_of_the_first(seed):
    draw = np.random.default_rng(seed)
    ranks = draw.permutation(40)[:25].tolist()
    found, number = _Components(ranks), {r: r for r in ranks}
    for _ in range(40):
        first, second = draw.choice(ranks, 2).tolist()
        if found[first] == found[second]:
            continue
        found.join(first, second)
        number = {r: number[first] if n == number[second] else n for r, n in number.items()}
        assert {r: found[r] for r in ranks} == number
        assert found.count == len(set(number.values()))
