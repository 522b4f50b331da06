"""`NamedTuple` behaves as the one of `typing` does."""

from __future__ import annotations

import copy
import pickle
import typing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alltrace.trace import named_tuple
from alltrace.trace.named_tuple import NamedTuple

SOURCE = Path(named_tuple.__file__).parents[1]
values = st.lists(st.integers(), max_size=5)
names = st.dictionaries(st.sampled_from("abcdef"), st.integers(), max_size=4)


class Ours(NamedTuple):
    """A point."""

    a: int
    b: str
    c: float = 0.5
    d: list[int] | None = None

    @property
    def twice(self) -> int:
        return 2 * self.a

    @classmethod
    def of(cls, a: int) -> Ours:
        return cls(a, str(a))

    def __str__(self) -> str:
        return f"<{super().__str__()}>"


class Theirs(typing.NamedTuple):
    """A point."""

    a: int
    b: str
    c: float = 0.5
    d: list[int] | None = None


def outcome(make, positional, named):
    try:
        return tuple(make(*positional, **named))
    except TypeError:
        return TypeError


@given(values, names)
def test_a_constructor_takes_what_that_of_typing_takes(positional, named):
    assert outcome(Ours, positional, named) == outcome(Theirs, positional, named)


@pytest.mark.parametrize(
    ("positional", "named", "said"),
    [
        ((), {"a": 1}, "Ours lacks values for 'b'$"),
        ((), {"d": 1}, "Ours lacks values for 'a', 'b'$"),
        ((1, "x"), {"a": 2, "c": 3, "e": 4}, "Ours has no field, or several values, for 'a', 'e'$"),
        ((1, "x", 0.5, None, 5), {}, "Ours takes 4 values, 5 were given$"),
    ],
)
def test_an_error_names_the_fields(positional, named, said):
    with pytest.raises(TypeError, match=said):
        Ours(*positional, **named)


@given(values)
def test_rows_become_records(row):
    assert outcome(Ours._make, [row], {}) == outcome(Theirs._make, [row], {})


def test_a_record_is_a_tuple_with_names():
    ours, theirs = Ours(1, "x", d=[3]), Theirs(1, "x", d=[3])
    assert ours == theirs == (1, "x", 0.5, [3])
    assert (ours.a, ours.b, ours.c, ours.d) == (1, "x", 0.5, [3])
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert ours._asdict() == theirs._asdict()
    assert hash(Ours(1, "x")) == hash(Theirs(1, "x"))
    assert ours._replace(b="y", c=2.0) == (1, "y", 2.0, [3])
    assert type(ours._replace(b="y")) is Ours
    with pytest.raises(TypeError, match="unexpected field names: \\['e'\\]"):
        ours._replace(e=1)
    with pytest.raises(AttributeError):
        ours.a = 2
    assert not hasattr(ours, "__dict__")


def test_what_a_class_says_of_itself():
    assert Ours._fields == Ours.__match_args__ == Theirs._fields
    assert Ours._field_defaults == Theirs._field_defaults == {"c": 0.5, "d": None}
    assert typing.get_type_hints(Ours) == typing.get_type_hints(Theirs)
    assert Ours.__doc__ == "A point."
    assert (type(Ours), Ours.__module__, Ours.__qualname__) == (type, __name__, "Ours")
    assert Ours.a.__doc__ == Theirs.a.__doc__


def test_methods_are_those_of_the_class():
    assert (Ours.of(4), Ours.of(4).twice) == ((4, "4", 0.5, None), 8)
    assert str(Ours(1, "x")) == "<Ours(a=1, b='x', c=0.5, d=None)>"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_records_are_pickled_and_copied(protocol):
    ours = Ours(1, "x", d=[3])
    for again in pickle.loads(pickle.dumps(ours, protocol)), copy.copy(ours), copy.deepcopy(ours):
        assert (type(again), again) == (Ours, ours)


def test_classes_that_cannot_be_are_refused():
    with pytest.raises(TypeError, match="Wrong: a field without a default follows one that has one"):
        exec("from __future__ import annotations\nclass Wrong(NamedTuple):\n  a: int = 0\n  b: int", {"NamedTuple": NamedTuple})
    for bases in "NamedTuple", "NamedTuple, dict":
        body = "pass" if bases == "NamedTuple" else "a: int"
        with pytest.raises(TypeError, match="Wrong: expected NamedTuple as the only base, fields"):
            exec(f"class Wrong({bases}):\n  {body}", {"NamedTuple": NamedTuple})


def test_the_package_makes_all_of_them_in_this_way():
    others = [f for f in SOURCE.rglob("*.py") if "NamedTuple" in f.read_text(encoding="utf-8") and f.name != "named_tuple.py"]
    assert len(others) > 30
    for file in others:
        text = file.read_text(encoding="utf-8")
        assert "from alltrace.trace.named_tuple import NamedTuple\n" in text, file
        assert "from __future__ import annotations\n" in text, file
