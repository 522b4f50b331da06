from __future__ import annotations

import numpy as np
import pytest

from alltrace.align.clock_fit import _LATE_WEIGHT, _TUKEY, _weights

SCALE_NS = 70.0


def tukey(residual):
    part = residual / (_TUKEY * SCALE_NS)
    weight = (1.0 - part * part) ** 2 * (_LATE_WEIGHT if residual > 0 else 1.0) if abs(part) < 1.0 else 0.0
    return weight / SCALE_NS**2


def absolute(residual):
    return 1.0 / max(abs(residual) / SCALE_NS, 1.0) / SCALE_NS**2


@pytest.mark.parametrize("expected", [tukey, absolute])
def test_weights_fall_with_the_residual_and_are_0_where_a_member_is_missing(expected):
    generator = np.random.default_rng(1)
    residual, present = generator.normal(0, 250, (30, 5)), generator.random((30, 5)) < 0.8
    residual[0] = [0.0, -_TUKEY * SCALE_NS, _TUKEY * SCALE_NS, SCALE_NS, -SCALE_NS]
    found = _weights(residual, present, SCALE_NS, tukey=expected is tukey)
    for value, there, weight in zip(residual.ravel().tolist(), present.ravel().tolist(), found.ravel().tolist(), strict=True):
        assert weight == (pytest.approx(expected(value), rel=1e-12, abs=1e-18) if there else 0.0)
