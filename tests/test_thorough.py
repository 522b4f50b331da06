import pytest

from tests import thorough


@pytest.mark.parametrize(("wanted", "count"), [(False, 3), (True, 20)])
def test_all_cases_are_tried_where_that_is_asked_for(monkeypatch, wanted, count):
    monkeypatch.setattr(thorough, "THOROUGH", wanted)
    assert thorough.cases(3, 20) == count
