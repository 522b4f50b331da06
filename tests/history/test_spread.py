import numpy as np
import pytest

from alltrace.history.spread import LEAST_VALUES, SPREADS, usual


def test_bounds_are_scaled_median_distances():
    values = [100, 103, 99, 102, 98, 101, 97]  # median 100, distances 0 3 1 2 2 1 3, their median 2
    found = usual(values, 0.0)
    margin = 4 * 1.4826 * 1.140 * 2
    assert SPREADS == 4
    assert found == pytest.approx((100, 100 - margin, 100 + margin))
    assert usual(values, 50.0) == (100, 50, 150)
    values = [100, 103, 99, 102, 98, 101, 97]
    plain, odd = usual(values, 0.0), usual([*values[:-1], 5000], 0.0)
    assert plain is not None
    assert odd is not None
    assert odd.high < 1.05 * plain.high
    assert usual([1.0] * (LEAST_VALUES - 1), 1.0) is None
    assert usual([1.0] * LEAST_VALUES, 1.0) == (1.0, 0.0, 2.0)


@pytest.mark.parametrize(("count", "most"), [(5, 0.05), (10, 0.012), (20, 0.004)])
def test_normal_values_seldom_breach(count, most):
    """The shares that the documentation states."""
    draw = np.random.default_rng(count).normal(100, 1, (4000, count + 1))
    breaches = [v[-1] > found.high for v in draw if (found := usual(v[:-1].tolist(), 0.0)) is not None]
    assert len(breaches) == 4000
    assert 0 < np.mean(breaches) < most
