"""Cases that are run in one test."""

import inspect

import pytest

from tests.together import together


def test_every_case_is_run_and_all_that_fail_are_listed():
    seen = []

    @together("a, b", [(1, 1), (1, 2), ("x", 3)])
    @together("c", "de")
    def check(other, a, b, c):
        seen.append((other, a, b, c))
        assert a == b, f"{c} is wrong"
        if c == "e":
            with pytest.raises(KeyError):
                pass

    assert list(inspect.signature(check).parameters) == ["other"]
    with pytest.raises(AssertionError) as error:
        check(other=7)
    assert len(seen) == 6
    assert {case[0] for case in seen} == {7}
    lines = str(error.value).splitlines()
    assert lines[0] == "3 of 3 cases:"
    assert [line for line in lines if "c=" in line] == [
        "c='e': Failed: DID NOT RAISE KeyError",
        "c='d': AssertionError: d is wrong",
        "c='e': AssertionError: e is wrong",
        "c='d': AssertionError: d is wrong",
        "c='e': AssertionError: e is wrong",
    ]


@pytest.mark.parametrize(("names", "values"), [("a", []), ("a,b", [(1, 2), (1,)]), (("a",), [(1, 2)])])
def test_cases_without_their_values_are_refused(names, values):
    with pytest.raises(ValueError, match="no cases, or one without a value"):
        together(names, values)
