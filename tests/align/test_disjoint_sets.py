from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from alltrace.align.disjoint_sets import DisjointSets


@given(st.lists(st.tuples(st.integers(0, 19), st.integers(0, 19)), max_size=40))
def test_sets_are_those_that_chains_of_pairs_connect_and_have_the_number_of_their_lowest_member(pairs):
    sets, expected = DisjointSets(20), [{n} for n in range(20)]
    for one, other in pairs:
        apart = expected[one] is not expected[other]
        assert sets.join(one, other) == apart
        if apart:
            expected[one] |= expected[other]
            for member in expected[other]:
                expected[member] = expected[one]
    assert sets.labels().tolist() == [min(e) for e in expected]
    assert all(sets.of(n) == min(expected[n]) for n in range(20))
