"""A slice of `python -m tests.fuzz.flips`."""

import pytest

from tests.fuzz.flips import run_flips
from tests.thorough import cases


@pytest.mark.nightly
@pytest.mark.slow
def test_no_changed_bit_changes_an_answer_in_silence():
    found = run_flips(cases(8, 15), seed=3)
    assert found.failures == []
    assert found.refused > 20 < found.same
