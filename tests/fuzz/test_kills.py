"""A slice of `python -m tests.fuzz.kills`."""

import pytest

from tests.fuzz.kills import run_kills


@pytest.mark.nightly
@pytest.mark.slow
def test_what_was_killed_goes_on_to_the_same_end():
    found = run_kills(3, seed=2)
    assert found.failures == []
    assert found.importing + found.aligning + found.late == 3
