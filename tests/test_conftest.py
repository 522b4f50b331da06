"""Which cases of a sampled test are slow."""

from types import SimpleNamespace

from tests.conftest import pytest_collection_modifyitems


class Case:
    """A collected case, with what the hook asks of it."""

    fixturenames = ()

    def __init__(self, nodeid, share=None):
        self.nodeid, self.share, self.marks = nodeid, share, set()

    def get_closest_marker(self, name):
        return SimpleNamespace(args=(self.share,)) if name == "sampled" and self.share else None

    def add_marker(self, mark):
        self.marks.add(mark.name)


def test_one_case_of_so_many_is_not_slow_and_always_the_same():
    sampled = [Case(f"tests/a.py::test_b[{n}]", 4) for n in range(10)]
    others = [Case("tests/a.py::test_c[1]"), Case("tests/a.py::test_d[1]", 4)]
    pytest_collection_modifyitems([*sampled, *others])
    quick = [case.nodeid for case in sampled if not case.marks]
    assert len(quick) == 3  # a quarter of ten, rounded up
    assert all(case.marks in (set(), {"slow", "nightly"}) for case in sampled)
    assert [case.marks for case in others] == [set(), set()]
    again = [Case(case.nodeid, 4) for case in reversed(sampled)]
    pytest_collection_modifyitems(again)
    assert sorted(case.nodeid for case in again if not case.marks) == sorted(quick)
