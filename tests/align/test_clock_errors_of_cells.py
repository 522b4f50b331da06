"""How late cells are, from cells that are made up."""

from __future__ import annotations

import numpy as np
import pytest

from alltrace.align.clock_errors import lateness
from alltrace.align.clock_fit import Cells
from alltrace.align.clock_sharing import Units


def test_what_cells_of_one_clock_are_always_late_is_measured_as_a_share_of_their_scatter():
    blocks, late, scatter = 400, 30.0, 50.0**2
    rng = np.random.default_rng(1)
    block, rank = np.repeat(np.arange(blocks), 2), np.tile([0, 1], blocks)
    own = rng.normal(0.0, late, 2 * blocks)
    every = np.zeros(2 * blocks)
    cells = Cells(
        block, rank, rank + 2 * block, 0 * block, own, every, every, every + scatter, every + 1.0, every + np.inf
    )
    units = Units(np.zeros(2, np.int64), np.zeros(2, np.int64), np.zeros(2))
    found = lateness(cells, np.arange(2 * blocks), units, 1, np.zeros(2))
    assert found.always == pytest.approx(np.full(2 * blocks, late**2), rel=0.12)
    assert found.noise.tolist() == [1.0] * (2 * blocks)
    assert found.sigmas == pytest.approx(1.96, abs=0.03)
    assert found.weight == pytest.approx(1.0 / (found.always + 1.0))
    # with few cells the assumption that they are late by as much as they scatter counts
    few = lateness(cells, np.arange(4), units, 1, np.zeros(2))
    assert late**2 < few.always[0] < scatter
    assert few.sigmas > 2.3
