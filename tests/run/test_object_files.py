from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tests.making import flip

from alltrace.run.checked_arrow import read_object, write_object
from alltrace.trace.errors import DamageError


@dataclass
class Inner:
    values: object
    names: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Outer:
    inner: Inner | None
    pairs: list[tuple[int, int]]
    share: float
    text: str


@dataclass
class Other:
    values: object


shapes = arrays.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4)
numbers = st.sampled_from(["<i8", "<i4", "|i1", "<f8", "|b1", "<u2"]).flatmap(
    lambda d: arrays.arrays(np.dtype(d), shapes)
)
outers = st.builds(
    Outer,
    st.none() | st.builds(Inner, numbers, st.dictionaries(st.text(), st.integers())),
    st.lists(st.tuples(st.integers(), st.integers())),
    st.floats(),
    st.text(),
)


@given(outers)
def test_an_object_comes_back_as_it_was(tmp_path_factory, outer):
    path = tmp_path_factory.mktemp("objects") / "outer"
    write_object(path, outer, "this")
    found = read_object(path, "this", (Outer, Inner))
    assert (found.pairs, found.text) == (outer.pairs, outer.text)
    assert np.array_equal(found.share, outer.share, equal_nan=True)
    if outer.inner is None:
        assert found.inner is None
        return
    assert found.inner.names == outer.inner.names
    assert found.inner.values.dtype == outer.inner.values.dtype
    assert np.array_equal(found.inner.values, outer.inner.values, equal_nan=outer.inner.values.dtype.kind == "f")
    found.inner.values[...] = 0  # what is read can be written to


def test_what_is_kept_beside_it_decides(tmp_path):
    write_object(tmp_path / "object", Other(1), "this")
    assert read_object(tmp_path / "object", "that", (Other,)) is None
    assert read_object(tmp_path / "object", "", (Other,)) is None
    assert read_object(tmp_path / "object", "this", (Other,)) == Other(1)


def test_no_other_class_is_made(tmp_path):
    write_object(tmp_path / "object", Outer(Inner(1), [], 0.5, ""), "")
    with pytest.raises(ValueError, match="does not hold an object of these classes"):
        read_object(tmp_path / "object", "", (Outer,))


def test_fields_of_another_version_are_refused(tmp_path):
    write_object(tmp_path / "object", Inner(1), "")
    Changed = dataclass(type("Inner", (), {"__annotations__": {"values": object}}))  # noqa: N806
    with pytest.raises(ValueError, match="does not hold an object of these classes"):
        read_object(tmp_path / "object", "", (Changed,))


@pytest.mark.parametrize("value", [object(), Other(object()), np.array([object()]), {"a": {1, 2}}])
def test_what_cannot_be_kept_is_not_written(tmp_path, value):
    with pytest.raises(TypeError, match="cannot be kept"):
        write_object(tmp_path / "object", value, "")
    assert list(tmp_path.iterdir()) == []


def test_damage_is_noticed(tmp_path):
    write_object(tmp_path / "object", Other(np.arange(1_000)), "")
    flip(tmp_path / "object", 200)
    with pytest.raises(DamageError):
        read_object(tmp_path / "object", "", (Other,))
